//! What lies in a vault: what stands before the parts of a checkpoint, and how calls have ended.

use everfold_protocol::{
    ProcessId, ReductionId, ReductionSpec, codec,
    report::{Refusal, Report},
};
use everfold_storage::vault::Checkpoint;
use everfold_worker::machine::{End, ExecutionError};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// How often each name was called, by the part of a reduction's id that stands for it.
pub type Calls = Vec<(u64, u64)>;

/// A checkpoint that earlier processes of this rank have left.
#[derive(Clone, Debug)]
pub struct Saved {
    /// How often each name was called before it.
    pub calls: Calls,
    /// What was saved beside its parts.
    pub contents: Vec<u8>,
    /// Lengths of its parts in bytes.
    pub parts: Vec<u64>,
    /// Whether it comes from a directory of checkpoints, where an earlier job has saved it.
    pub is_adopted: bool,
    /// Whether all ranks had agreed on it: it is on its way to the directory.
    pub is_agreed: bool,
    /// Whether all ranks waited behind it until it was durable.
    pub is_durable: bool,
}

/// What stands before the parts of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub calls: Calls,
    pub contents: Vec<u8>,
    /// The latest calls that have been noted before it: the master may not know that.
    pub latest: Vec<ReductionId>,
    /// Whether an earlier job has saved it.
    pub is_adopted: bool,
    /// Whether all ranks have agreed on it.
    pub is_agreed: bool,
    /// Whether all ranks wait behind it until it is durable.
    pub is_durable: bool,
}

impl Header {
    /// What a process goes on from that has found this header.
    pub fn saved(self, found: &Checkpoint) -> Saved {
        let Self { calls, contents, is_adopted, is_agreed, is_durable, .. } = self;
        let parts = found.parts().iter().map(|part| part.bytes()).collect();
        Saved { calls, contents, parts, is_adopted, is_agreed, is_durable }
    }
}

/// How a call has ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub reduction: ReductionId,
    /// Digest of what it was called with.
    pub spec: u64,
    pub noted: Noted,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Noted {
    Finished(Report),
    /// The value is noted beside it.
    Received(Report),
    Refused(Refusal),
    ResultLost {
        culprit: ProcessId,
        reason: String,
    },
}

impl Noted {
    /// What is noted of an end, unless the call is not over for this rank.
    pub fn of(end: &End) -> Option<Self> {
        match end {
            End::Finished(report) => Some(Self::Finished(report.clone())),
            End::Received(report) => Some(Self::Received(report.clone())),
            End::Refused(refusal) => Some(Self::Refused(refusal.clone())),
            End::ResultLost(ExecutionError { culprit, reason, .. }) => {
                Some(Self::ResultLost { culprit: *culprit, reason: reason.clone() })
            }
            End::MasterLost | End::Fenced | End::Closed => None,
        }
    }
}

/// Stands for what a reduction was called with.
pub(crate) fn digest(spec: &ReductionSpec) -> u64 {
    codec::encode(spec).map(|bytes| xxh3_64(&bytes)).unwrap_or_default()
}
