//! The bodies that an application reduces.

use std::any::Any;

use everfold_protocol::spec::BodyKind;
use everfold_runtime::{
    body::{self, BodyError, Object},
    executor::Returned,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::encoding;

/// A type of the application's own that can be reduced (DR §1 Fig. 2).
///
/// # Laws
/// `combine` is associative: `(a∘b)∘c` equals `a∘(b∘c)`, as far as it matters to the application. If it is
/// not commutative, set [`COMMUTATIVE`](Self::COMMUTATIVE) to `false`: it then reduces in
/// [`Order::Fixed`](crate::Order::Fixed), the lower ranks on the left.
///
/// ```
/// use everfold::ReducerBody;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Histogram {
///     bins: Vec<u64>,
/// }
///
/// impl ReducerBody for Histogram {
///     fn combine(&mut self, other: Self) {
///         for (mine, theirs) in self.bins.iter_mut().zip(other.bins) {
///             *mine += theirs;
///         }
///     }
/// }
/// ```
///
/// # Encoding
/// Bodies travel in a compact encoding without names, so every field has to be written, always. A call is
/// refused with [`BodyError::Unfit`](crate::BodyError::Unfit), which names the type and the field, if
/// another value would arrive than the one that was contributed: with `skip_serializing_if` on a field that
/// is skipped, with `skip_serializing`, `flatten`, enums that are `untagged` or have a `tag`, and with a
/// `Serialize` that does not match its `Deserialize`. `skip`, which leaves a field out on both sides, is
/// fine. To find that out, the first body of a type in a process is decoded and encoded again, and so is each
/// that shows a struct or variant for the first time.
///
/// ```
/// use everfold::ReducerBody;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Stats {
///     // Not `#[serde(skip_serializing_if = "Option::is_none")]`: the reader would take `count` for the label.
///     label: Option<u64>,
///     count: u64,
///     #[serde(skip)]
///     cache: Vec<u64>,
/// }
///
/// impl ReducerBody for Stats {
///     fn combine(&mut self, other: Self) {
///         self.label = self.label.max(other.label);
///         self.count += other.count;
///     }
/// }
/// ```
///
/// Structs, options, sequences and maps may be nested 256 levels deep, as the threads that encode and decode
/// have small stacks; a deeper value is refused. A long chain or a tree without balance belongs in a `Vec`,
/// with indices.
pub trait ReducerBody: Serialize + DeserializeOwned + Send + 'static {
    /// Whether `a∘b` equals `b∘a`.
    const COMMUTATIVE: bool = true;

    /// `self = self ∘ other`
    fn combine(&mut self, other: Self);
}

/// A body for [`Session::reduce`](crate::Session::reduce): every [`ReducerBody`], and the arrays of this
/// crate.
pub trait Body: Send + Sized + 'static {
    /// The value of the reduction.
    type Value: Send + 'static;

    #[doc(hidden)]
    fn contribute(self) -> Contribution;

    #[doc(hidden)]
    fn value(returned: Returned) -> Option<Self::Value>;
}

/// A body without its type.
#[doc(hidden)]
pub struct Contribution {
    pub(crate) kind: BodyKind,
    pub(crate) commutative: bool,
    pub(crate) body: body::Body,
}

impl<T: ReducerBody> Body for T {
    type Value = Self;

    fn contribute(self) -> Contribution {
        Contribution {
            kind: BodyKind::Object { type_name: std::any::type_name::<T>().to_owned() },
            commutative: T::COMMUTATIVE,
            body: body::Body::Object(Box::new(Boxed(self))),
        }
    }

    fn value(returned: Returned) -> Option<Self> {
        match returned {
            Returned::Object(object) => object.into_any().downcast::<Boxed<T>>().ok().map(|boxed| boxed.0),
            Returned::Array(_) | Returned::Pieces { .. } => None,
        }
    }
}

/// A body of which ranks have to agree on more than its type.
pub(crate) struct Described<T> {
    /// The text on which they have to agree.
    pub(crate) what: String,
    pub(crate) body: T,
}

impl<T: ReducerBody> Body for Described<T> {
    type Value = T;

    fn contribute(self) -> Contribution {
        Contribution { kind: BodyKind::Object { type_name: self.what }, ..self.body.contribute() }
    }

    fn value(returned: Returned) -> Option<T> {
        T::value(returned)
    }
}

struct Boxed<T>(T);

impl<T: ReducerBody> Object for Boxed<T> {
    fn encode(&self) -> Result<Vec<u8>, BodyError> {
        encoding::encode(&self.0)
    }

    fn check(&self) -> Result<(), BodyError> {
        encoding::check(&self.0)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Box<dyn Object>, BodyError> {
        Ok(Box::new(Self(encoding::decode(bytes)?)))
    }

    fn combine(&mut self, right: Box<dyn Object>) {
        let right = right.into_any().downcast::<Self>().expect("operands come from `decode` of this type");
        self.0.combine(right.0);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}
