//! What the application reduces.

use std::any::Any;

use everfold_protocol::{codec, spec::BodyKind};
use everfold_worker::{
    body::{self, BodyError, Object},
    executor::Returned,
};
use serde::{Serialize, de::DeserializeOwned};

/// A type of the application's own that can be reduced (DR §1 Fig. 2).
///
/// # Laws
/// `combine` is associative: `(a∘b)∘c` equals `a∘(b∘c)`, as far as it matters to the application. If it is not
/// commutative, set [`COMMUTATIVE`](Self::COMMUTATIVE) to `false`: it then reduces in [`Order::Fixed`](crate::Order::Fixed), the
/// lower ranks on the left.
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
pub trait ReducerBody: Serialize + DeserializeOwned + Send + 'static {
    /// Whether `a∘b` equals `b∘a`.
    const COMMUTATIVE: bool = true;

    /// `self = self ∘ other`
    fn combine(&mut self, other: Self);
}

/// What [`Session::reduce`](crate::Session::reduce) takes: every [`ReducerBody`], and the arrays of this crate.
pub trait Body: Send + Sized + 'static {
    /// What the reduction yields.
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
            Returned::Array(_) => None,
        }
    }
}

struct Boxed<T>(T);

impl<T: ReducerBody> Object for Boxed<T> {
    fn encode(&self) -> Result<Vec<u8>, BodyError> {
        codec::encode(&self.0).map_err(|error| BodyError(error.to_string()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Box<dyn Object>, BodyError> {
        let value: T = codec::decode(bytes).map_err(|error| BodyError(error.to_string()))?;
        Ok(Box::new(Self(value)))
    }

    fn combine(&mut self, right: Box<dyn Object>) {
        let right = right.into_any().downcast::<Self>().expect("operands come from `decode` of this type");
        self.0.combine(right.0);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}
