//! Where a result lies, and what becomes of those who copy it.

use alloc::{string::String, vec::Vec};

use serde::{Deserialize, Serialize};

use super::{
    data::Data,
    task::{Fault, Task},
};
use crate::{
    id::{ByteRange, ProcessId, ReductionId},
    report::Report,
};

/// The reduction ended well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Which reduction.
    pub reduction: ReductionId,
    /// Where the result lies, segment by segment: for those who are to have it and do not hold it.
    pub result: Vec<Piece>,
    /// What makes the result of the receiver's partial: for those who are to have it, if all that is left to
    /// be folded travels inlined. Nobody waits for an answer.
    pub last: Option<Task>,
    /// Whether those who have copied it lend it to others until they are told otherwise.
    pub lend: bool,
    /// Whether they copy it beside their contributions, which stay readable until all have it. If pieces are
    /// lost before, the contributions of those who live can be folded once more, without what is lost.
    pub beside: bool,
    /// What the master has learnt from such reductions, and wants to learn.
    pub learning: Learning,
    /// What happened.
    pub report: Report,
}

/// A finished segment of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// Where it belongs in the body, and lies in what can be read; of a contribution that is not folded, only the
    /// latter.
    pub range: ByteRange,
    /// Who holds it.
    pub process: ProcessId,
    /// Where it is readable.
    pub data: Data,
}

/// Parts of a result that is to be handed out: the receiver copies them beforehand, and lends them to others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefetch {
    /// Which reduction.
    pub reduction: ReductionId,
    /// Length of the whole result in bytes.
    pub bytes: u64,
    /// Which parts. Each lies at the same place in the result and in what can be read.
    pub parts: Vec<Piece>,
}

/// What became of a part that was to be copied beforehand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefetched {
    /// Of which reduction.
    pub reduction: ReductionId,
    /// Where the part begins.
    pub start: u64,
    /// Where what the sender has of the result is readable; nothing if the part could not be had.
    pub body: Option<Data>,
}

/// How the next reduction of a [class](crate::class::Class) is to be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learning {
    /// Whether bodies are to come inlined, however long they are.
    pub inlines: bool,
    /// Whether the caller is to tell how long this reduction took.
    pub asks: bool,
}

/// The result of a reduction could not be copied as a whole: the process that holds a piece of it could not
/// be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotCollected {
    /// Which reduction.
    pub reduction: ReductionId,
    /// Who could not be reached.
    pub culprit: ProcessId,
    /// What kind of failure it is.
    pub fault: Fault,
    /// What went wrong, for people.
    pub reason: String,
    /// What the sender has instead, if it is an array.
    pub body: Option<HalfBody>,
}

/// An array into which a part of the result was copied: the sender's contribution, or its partial where the
/// result is copied beside that. It is readable until the reduction ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HalfBody {
    /// Where it is readable.
    pub data: Data,
    /// The bytes before this one are the result.
    pub collected: u64,
    /// The bytes from this one on are as they were before.
    pub untouched: u64,
}
