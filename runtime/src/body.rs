//! Contributions of the application, as far as the worker has to know them.

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
    /// Bytes that stay as they are.
    Pieces(Box<dyn Memory>),
}

impl Body {
    /// The bytes of an array, or of pieces.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Array { memory, .. } | Self::Pieces(memory) => memory.bytes(),
            Self::Object(_) => &[],
        }
    }
}

/// A body cannot be encoded, or bytes that should be one are not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The type's own `Serialize` or `Deserialize` fails, or the bytes end early.
    #[error("the body cannot be encoded or decoded: {0}")]
    Failed(String),
    /// Others would receive another value than the one that was contributed, or none.
    #[error("a body of type `{type_name}` cannot be reduced: {unfit}")]
    Unfit {
        /// The type of the body.
        type_name: &'static str,
        /// The reason.
        unfit: Unfit,
    },
}

/// Types that the encoding of bodies cannot express. It is compact and does not describe itself: there are no
/// names in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A field is left out because of its value.
    #[error(
        "`{within}` leaves its field `{field}` out, and the others would take the next field for it; write it always: \
         remove `skip_serializing_if`"
    )]
    SkippedField {
        /// The struct or variant.
        within: &'static str,
        /// Its field.
        field: &'static str,
    },
    /// A sequence or map does not say beforehand how long it is.
    #[error(
        "it has a sequence or map of unknown length; say it in `serialize_seq` or `serialize_map`, and remove \
         `#[serde(flatten)]`"
    )]
    UnknownLength,
    /// Another number of elements or fields is written than was announced.
    #[error(
        "`{within}` announces {announced} elements or fields and writes {written}; correct its `Serialize`"
    )]
    WrongLength {
        /// The struct or variant, or what else it is.
        within: &'static str,
        /// As `Serialize` says at first.
        announced: usize,
        /// As it does.
        written: usize,
    },
    /// Values are nested deeper than the stacks of threads allow.
    #[error(
        "it is nested more than {limit} levels deep; keep what is that deep in a `Vec`, with indices instead of boxes"
    )]
    TooDeep {
        /// Most levels.
        limit: u32,
    },
    /// It is encoded, but the encoding is not accepted by the type's own `Deserialize`.
    #[error(
        "its own encoding cannot be decoded: {reason}; remove `skip_serializing`, `untagged`, `tag` and `flatten`, or \
         correct its `Deserialize`"
    )]
    Undecodable {
        /// What went wrong.
        reason: String,
    },
    /// The encoding decodes to another value: encoded again, that gives other bytes.
    #[error(
        "the encoding decodes to another value than was encoded; make `Serialize` and `Deserialize` match"
    )]
    Changed,
}

/// A value of any type.
pub trait Object: Any + Send {
    /// The value as peers read it.
    ///
    /// # Errors
    /// The type refuses to be serialised.
    fn encode(&self) -> Result<Vec<u8>, BodyError>;

    /// Whether values of this type come back from their encoding, for those that are never encoded
    /// themselves.
    ///
    /// # Errors
    /// They do not.
    fn check(&self) -> Result<(), BodyError> {
        Ok(())
    }

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
            Self::Pieces(memory) => write!(f, "piece of {} bytes", memory.bytes().len()),
        }
    }
}

/// A body together with its name on the wire.
#[derive(Debug)]
pub struct Contributed {
    /// Type, operation, length.
    pub kind: BodyKind,
    /// The value.
    pub body: Body,
}
