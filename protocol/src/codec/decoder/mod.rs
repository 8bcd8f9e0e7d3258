//! Reads bincode's standard format: integers of variable length, the smallest first; no names and no types.
//!
//! bincode's own decoder allocates what a length announces before it looks whether that many bytes follow.
//! This one believes no length further than the input reaches, so that the memory a value takes is bounded by
//! its encoding.
//!
//! | file | holds |
//! |---|---|
//! | `input` | the bytes that are left: numbers, text, lengths |
//! | `deserializer` | values of any type, from the input to serde's visitors |
//! | `error` | why bytes are not an encoding, and what an encoding may not exceed |

mod deserializer;
mod error;
mod input;

pub use self::{
    deserializer::Decoder,
    error::{DEPTH_MAX, DecodeError, EMPTY_ELEMENTS_MAX},
};
