//! Requests and answers.

use everfold_protocol::{Generation, RegionOffset, WindowId, message::ByteRange, seal::Tag};
use serde::{Deserialize, Serialize};

/// Requests and answers are short; the bytes of a window follow outside of frames.
pub(super) const FRAME_BYTES_MAX: u64 = 1 << 10;
/// What is read ahead of short frames.
pub(super) const READ_AHEAD_BYTES: usize = 16 << 10;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Comes back with the answer.
    pub number: u64,
    pub window: WindowId,
    pub generation: Generation,
    pub range: ByteRange,
    /// Where the window begins in its region, if an agent is asked.
    pub at: Option<RegionOffset>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub number: u64,
    pub result: Result<Bytes, Refused>,
}

/// As many bytes as were asked for follow.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Bytes {
    pub tag: Tag,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Refused {
    Released,
    OutOfRange,
    Damaged,
    NoRoom(String),
}
