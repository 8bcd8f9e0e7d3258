//! Why bytes are not an encoding, and what an encoding may not exceed.

use alloc::string::{String, ToString};

use serde::de::Error;

/// How deeply values may be nested. Every struct, enum, option, sequence and map is one.
///
/// Encoding, decoding, combining and dropping recurse. A level takes up to 4 KiB of stack in programs without
/// optimisation, and threads of the application have 2 MiB.
pub const DEPTH_MAX: u32 = 256;

/// Elements of collections in one value that may take no bytes, such as `()`: nothing else bounds their
/// number.
pub const EMPTY_ELEMENTS_MAX: usize = 1 << 20;

/// Why bytes are not an encoding of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ends before the value does.
    #[error("the input ends {missing} bytes too early")]
    End {
        /// Bytes that are missing at least.
        missing: usize,
    },
    /// A length announces more than the rest of the input can hold.
    #[error("a length of {announced} is announced, but only {left} bytes are left")]
    Length {
        /// Elements or bytes that were announced.
        announced: u64,
        /// Bytes that are left.
        left: usize,
    },
    /// A collection has more elements without any bytes than a value may have.
    #[error("more than {EMPTY_ELEMENTS_MAX} elements take no bytes")]
    EmptyElements,
    /// An integer is too large for its type, or begins with a byte that begins no integer.
    #[error("an integer does not fit into its type {0}")]
    Integer(&'static str),
    /// A byte that stands for false or true, absent or present, is neither.
    #[error("the byte {0} stands for neither no nor yes")]
    Flag(u8),
    /// Values are nested deeper than any that is encoded.
    #[error("it is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// Text is not UTF-8.
    #[error("text is not UTF-8")]
    Text,
    /// The type asks the input for what it is, which this format does not say.
    #[error("the encoding does not describe itself: {0} cannot be decoded")]
    NotDescribed(&'static str),
    /// The type's own `Deserialize` refuses the value.
    #[error("{0}")]
    Refused(String),
}

impl Error for DecodeError {
    fn custom<T: core::fmt::Display>(message: T) -> Self {
        Self::Refused(message.to_string())
    }
}
