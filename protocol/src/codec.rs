//! The only place that knows how values become bytes: bincode 2 with serde.
//!
//! To replace the format, replace these functions; no other module names bincode. bincode encodes; decoding
//! is done in `decoder`, because bincode allocates what a length announces before it looks whether it can be
//! true.

use alloc::vec::Vec;
use serde::{Serialize, de::DeserializeOwned};

mod decoder;

pub use decoder::{DEPTH_MAX, DecodeError, EMPTY_ELEMENTS_MAX};

/// Version of everything on the wire. Two versions never talk to each other.
pub const VERSION: u16 = 10;

/// Why bytes are not the value they should be.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The value has a shape that the format cannot hold, or its `Serialize` refused.
    #[error("value cannot be encoded: {0}")]
    Encode(#[from] bincode::error::EncodeError),
    /// The bytes are not an encoding of the expected type.
    #[error("bytes are not a valid encoding: {0}")]
    Decode(#[from] DecodeError),
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
/// [`CodecError::Decode`] if they are not a `T`, [`CodecError::Trailing`] if something follows it. Lengths
/// inside `bytes` are never trusted further than `bytes` reaches: nothing is allocated for more elements than
/// there are bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (value, used) = decode_first(bytes)?;
    match bytes.len() - used {
        0 => Ok(value),
        left => Err(CodecError::Trailing { used, left }),
    }
}

/// Decodes the value that `bytes` begin with, and tells how many of them it takes.
///
/// # Errors
/// [`CodecError::Decode`], as [`decode`].
pub fn decode_first<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, usize), CodecError> {
    let mut decoder = decoder::Decoder::new(bytes);
    let value = T::deserialize(&mut decoder)?;
    Ok((value, bytes.len() - decoder.left()))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use core::fmt::Debug;

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Nothing,
        One(i64),
        Pair(u8, char),
        Named { text: String, bits: (bool, i8, u16) },
    }

    type Deep = (Vec<Shape>, BTreeMap<String, Option<Vec<u32>>>, [i16; 3], (u128, i128), (f32, f64), i32, ());

    fn shape() -> impl Strategy<Value = Shape> {
        prop_oneof![
            Just(Shape::Nothing),
            any::<i64>().prop_map(Shape::One),
            any::<(u8, char)>().prop_map(|(byte, letter)| Shape::Pair(byte, letter)),
            any::<(String, (bool, i8, u16))>().prop_map(|(text, bits)| Shape::Named { text, bits }),
        ]
    }

    fn deep() -> impl Strategy<Value = Deep> {
        (
            prop::collection::vec(shape(), 0..5),
            any::<BTreeMap<String, Option<Vec<u32>>>>(),
            any::<[i16; 3]>(),
            any::<(u128, i128)>(),
            (prop::num::f32::NORMAL, prop::num::f64::NORMAL),
            any::<i32>(),
            Just(()),
        )
    }

    /// What bincode's own decoder makes of `bytes`.
    fn reference<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
        let (value, used) = bincode::serde::decode_from_slice(bytes, config()).ok()?;
        (used == bytes.len()).then_some(value)
    }

    fn agrees<T: DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
        assert_eq!(decode::<T>(bytes).ok(), reference::<T>(bytes), "{bytes:02x?}");
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(value in deep()) {
            let bytes = encode(&value).unwrap();
            prop_assert_eq!(decode::<Deep>(&bytes).unwrap(), value);
        }

        #[test]
        fn it_understands_what_bincode_does(bytes in prop::collection::vec(prop_oneof![0u8..6, 245u8..=255], 0..20)) {
            agrees::<u8>(&bytes);
            agrees::<i8>(&bytes);
            agrees::<u16>(&bytes);
            agrees::<i16>(&bytes);
            agrees::<u32>(&bytes);
            agrees::<i32>(&bytes);
            agrees::<u64>(&bytes);
            agrees::<i64>(&bytes);
            agrees::<u128>(&bytes);
            agrees::<i128>(&bytes);
            agrees::<usize>(&bytes);
            agrees::<char>(&bytes);
            agrees::<(bool, Option<u8>)>(&bytes);
            agrees::<[u16; 2]>(&bytes);
        }

        #[test]
        fn an_integer_is_not_written_as_a_longer_one(marker in 251u8..=254, digits in any::<[u8; 16]>()) {
            let bytes: Vec<u8> = core::iter::once(marker).chain(digits).collect();
            for bytes in [3, 5, 9, 17].map(|len| &bytes[..len]) {
                agrees::<u16>(bytes);
                agrees::<i16>(bytes);
                agrees::<u32>(bytes);
                agrees::<i32>(bytes);
                agrees::<u64>(bytes);
                agrees::<i64>(bytes);
                agrees::<u128>(bytes);
                agrees::<i128>(bytes);
            }
        }

        #[test]
        fn a_cut_value_is_refused(value in deep(), cut: prop::sample::Index) {
            let bytes = encode(&value).unwrap();
            prop_assert!(decode::<Deep>(&bytes[..cut.index(bytes.len())]).is_err());
        }
    }
}
