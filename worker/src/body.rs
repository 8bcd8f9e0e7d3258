//! What the application contributes, as far as the worker has to know.

use std::any::Any;

use everfold_protocol::spec::BodyKind;

use crate::{kernel::Accumulate, memory::buffer::Memory};

/// A contribution.
pub enum Body {
    /// Elements that combine one by one.
    Array {
        /// Where they are.
        memory: Box<dyn Memory>,
        /// Size of one in bytes.
        element_bytes: usize,
        /// How two blocks of them become one.
        accumulate: Accumulate,
    },
    /// A value of any type.
    Object(Box<dyn Object>),
}

impl Body {
    /// The bytes of an array.
    pub(crate) fn array(&self) -> &[u8] {
        match self {
            Self::Array { memory, .. } => memory.bytes(),
            Self::Object(_) => &[],
        }
    }
}

/// Bytes that should be a value of the body's type are not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body cannot be encoded or decoded: {0}")]
pub struct BodyError(pub String);

/// A value of any type.
pub trait Object: Any + Send {
    /// The value as peers read it.
    ///
    /// # Errors
    /// The type refuses to be serialised.
    fn encode(&self) -> Result<Vec<u8>, BodyError>;

    /// A value of the same type from its encoding.
    ///
    /// # Errors
    /// `bytes` are no such encoding.
    fn decode(&self, bytes: &[u8]) -> Result<Box<dyn Object>, BodyError>;

    /// `self = self ∘ right`, where `right` came from [`decode`](Self::decode).
    fn combine(&mut self, right: Box<dyn Object>);

    /// The value under its own type.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Array { memory, .. } => write!(f, "array of {} bytes", memory.bytes().len()),
            Self::Object(_) => f.write_str("object"),
        }
    }
}

/// A body together with what it is called on the wire.
#[derive(Debug)]
pub struct Contributed {
    /// Type, operation, length.
    pub kind: BodyKind,
    /// The value.
    pub body: Body,
}
