//! The only place that knows how values become bytes: bincode 2 with serde.
//!
//! To replace the format, replace these functions; no other module names bincode.

use serde::{Serialize, de::DeserializeOwned};

/// Why bytes are not the value they should be.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The value has a shape that the format cannot hold, or its `Serialize` refused.
    #[error("value cannot be encoded: {0}")]
    Encode(#[from] bincode::error::EncodeError),
    /// The bytes are not an encoding of the expected type.
    #[error("bytes are not a valid encoding: {0}")]
    Decode(#[from] bincode::error::DecodeError),
    /// The value ended before its bytes did.
    #[error("{left} bytes are left over after a value of {used} bytes")]
    Trailing {
        /// Bytes that belonged to the value.
        used: usize,
        /// Bytes after it.
        left: usize,
    },
}

const fn config() -> bincode::config::Configuration {
    bincode::config::standard()
}

/// Encodes `value`.
///
/// # Errors
/// [`CodecError::Encode`] if the value's own `Serialize` fails.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    Ok(bincode::serde::encode_to_vec(value, config())?)
}

/// Appends the encoding of `value` to `out`.
///
/// # Errors
/// As [`encode`]; `out` may then hold a part of the value.
pub fn encode_into<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    bincode::serde::encode_into_std_write(value, out, config())?;
    Ok(())
}

/// Decodes exactly one value from all of `bytes`.
///
/// # Errors
/// [`CodecError::Decode`] if they are not a `T`, [`CodecError::Trailing`] if something follows it. Lengths inside
/// `bytes` are never trusted further than `bytes` reaches.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (value, used) = bincode::serde::decode_from_slice(bytes, config())?;
    if used == bytes.len() { Ok(value) } else { Err(CodecError::Trailing { used, left: bytes.len() - used }) }
}
