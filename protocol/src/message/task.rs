//! What a worker is to fold, and what becomes of it.

use alloc::{string::String, vec::Vec};

use serde::{Deserialize, Serialize};

use super::data::Data;
use crate::{
    id::{ByteRange, ProcessId, Rank, SegmentId, TaskId},
    path::Path,
};

/// Read those partials and fold them into yours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Identifies the task in its answer.
    pub task: TaskId,
    /// Which segment of which reduction.
    pub segment: SegmentId,
    /// Where the segment lies in the body; meaningless for objects, which are one piece.
    pub range: ByteRange,
    /// What the executor's own partial is believed to hold. Empty: its bytes are of no use any more, and the
    /// sources alone become its partial.
    pub own: Path,
    /// What to fold into it.
    pub sources: Vec<Source>,
}

/// A partial to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Whose.
    pub process: ProcessId,
    /// What it holds.
    pub path: Path,
    /// Where it is readable.
    pub data: Data,
}

/// A task is done and its result readable.
///
/// `process`'s window keeps unchanged until the reduction ends. Duplicates are harmless: a task is completed
/// once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartialReady {
    /// The task that made it.
    pub task: TaskId,
    /// Of which segment.
    pub segment: SegmentId,
    /// What is folded into it.
    pub path: Path,
    /// Where it is readable.
    pub data: Data,
    /// Perf counters of the task.
    pub counters: TaskCounters,
}

/// What a worker observed while it did a task (DR §1, performance counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounters {
    /// From taking the task up to having its data ready, in nanoseconds.
    pub task_ns: u64,
    /// Of these, spent on reading peers.
    pub fetch_ns: u64,
    /// Bytes read from peers.
    pub fetched_bytes: u64,
    /// Whose bytes were the last to be there.
    pub last: Option<Rank>,
    /// When those of all others were, counted from the start.
    pub others_ns: u64,
}

/// A task could not be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailed {
    /// Which task.
    pub task: TaskId,
    /// Of which segment.
    pub segment: SegmentId,
    /// Whose data could not be read or combined.
    pub culprit: ProcessId,
    /// Whose contributions these were, if that is known better than by who held them; else empty.
    pub suspects: Path,
    /// What kind of failure it is.
    pub fault: Fault,
    /// What went wrong, for people.
    pub reason: String,
}

/// Why a task could not be done, as far as that decides what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The culprit could not be reached: another attempt may succeed, or its death explains it.
    Unreachable,
    /// Who holds the culprit's memory, which is the culprit or its agent, says that this is there no more.
    Gone,
    /// The culprit's copy is damaged; another one may do.
    Damaged,
    /// Bytes changed while they were folded, and spoilt the executor's own partial: it is to be put together
    /// again.
    Torn,
    /// The data does not fit together. Doing it again does not help.
    Unfit,
}
