//! IS, the integer sort kernel: the ranks of many small keys.
//!
//! A key follows from its index, and its rank is the number of lesser keys. So ranks of the job count keys by
//! value, each in a part of them, and any rank can count any part, again if need be.

mod keys;
mod published;

pub use keys::{Counter, Histogram, keys};
pub use published::{Class, TEST_KEYS};
