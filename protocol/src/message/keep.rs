//! Which original a worker is to copy, and what becomes of the copy.

use alloc::string::String;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::{data::Data, task::Source};
use crate::id::{ProcessId, ReductionId};

/// Make a copy of an original while its owner lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Keep {
    /// Of which reduction.
    pub reduction: ReductionId,
    /// Whose original, and where it is readable.
    pub source: Source,
    /// Which of its segments.
    pub segments: Range<u32>,
    /// How the copy is kept.
    pub how: KeepAs,
}

/// How copies of originals are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepAs {
    /// Length of each segment of the original in bytes, of the last one at most; 0 for objects, which are one
    /// piece.
    pub segment_bytes: u64,
    /// When it is written to the keeper's disk.
    pub writing: Writing,
}

/// When a copy is written to its keeper's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Writing {
    /// Not at all: it stays in memory.
    Never,
    /// After it was acknowledged.
    Behind,
    /// Before it is acknowledged.
    Through,
}

/// What became of a copy of an original.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Of which reduction.
    pub reduction: ReductionId,
    /// Whose original.
    pub owner: ProcessId,
    /// Which of its segments.
    pub segments: Range<u32>,
    /// Where the copy is readable, or why there is none.
    pub result: Result<Data, NotKept>,
}

/// Why there is no copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotKept {
    /// The owner could not be reached: another attempt may succeed, or its death explains it.
    Unreachable,
    /// It cannot be kept here; the reason is for people.
    Impossible(String),
    /// The holder of the owner's memory, the owner or its agent, says that the original is there no more.
    Gone,
}

impl From<String> for NotKept {
    fn from(reason: String) -> Self {
        Self::Impossible(reason)
    }
}
