//! Levels of protection: when and where an original has a replica.

use alloc::{borrow::ToOwned, string::String};
use core::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// When and where an original has a replica, so that it outlives its owner's host (DR-9, DR-12).
///
/// | level | replica | a contribution outlives its owner's host | costs |
/// |---|---|---|---|
/// | `None` | none | once a survivor has folded it, unless the group works in [`team`](crate::team)s | nothing |
/// | `Memory` | in the memory of another process, its *keeper* | once a survivor has folded it, or the keeper has copied it | while others are late: its bytes once over the link, and in the keeper's memory |
/// | `Disk` | as `Memory`, and then in the keeper's store on its local disk | as `Memory` | as `Memory`, and a write; the memory is free again after it |
/// | `CommitFirst` | in the keeper's store on its local disk | from the start: it enters the reduction when the replica is acknowledged | as `Disk`, before folding begins |
///
/// The keeper is on another host, if there is one, and in another failure domain, if there is one.
///
/// - To copy a contribution takes as long as to fold it. So `Memory` and `Disk` make replicas while a reduction
///   waits for ranks that are late or do not answer, and leave the links to folding while it goes on.
/// - `CommitFirst` lets a contribution in without a replica if none can be made, and says so. On one host it
///   lets in that of a dead process at once: its replica would be lost together with it.
/// - The master keeps bodies that travel inside messages. Short bodies on one host lie in memory that all its
///   processes share.
/// - Shared memory outlives its process at every level: arrays of `Session::array`, objects, and each `Vec`
///   except with `None` on one host.
/// - Groups that work in teams are the exception: a process that dies there takes its contribution along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protection {
    /// No replicas.
    None,
    /// A replica in the memory of another process.
    Memory,
    /// A replica on another process's disk.
    #[default]
    Disk,
    /// A replica on another process's disk before the contribution counts.
    CommitFirst,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::CommitFirst => "commit-first",
        })
    }
}

impl FromStr for Protection {
    type Err = ProtectionError;

    fn from_str(text: &str) -> Result<Self, ProtectionError> {
        match text {
            "none" => Ok(Self::None),
            "memory" => Ok(Self::Memory),
            "disk" => Ok(Self::Disk),
            "commit-first" => Ok(Self::CommitFirst),
            _ => Err(ProtectionError(text.to_owned())),
        }
    }
}

/// The text names no level of protection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no level of protection; there are none, memory, disk and commit-first")]
pub struct ProtectionError(String);
