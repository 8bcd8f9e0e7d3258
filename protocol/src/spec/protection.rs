//! What of an original outlives its owner's host.

use alloc::{borrow::ToOwned, string::String};
use core::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What of an original outlives its owner's host, and from when on (DR-9, DR-12).
///
/// | level | replica | a contribution outlives its owner's host | costs |
/// |---|---|---|---|
/// | `None` | none | once a survivor has folded it, unless the group works in [`team`](crate::team)s | nothing |
/// | `Memory` | in another process's memory | once a survivor has folded it, or that process has copied it | while others are late: its bytes once over the link, and in memory |
/// | `Disk` | as `Memory`, and then in that process's store on its local disk | as `Memory` | as `Memory`, and a write; the memory is free again after it |
/// | `CommitFirst` | in another process's store on its local disk | from the start: it enters the reduction when the copy is acknowledged | as `Disk`, before folding begins |
///
/// The other process is one on another host, if there is one, and in another failure domain, if there is one.
/// To copy a contribution takes as long as to fold it. So `Memory` and `Disk` make copies while a reduction
/// waits for ranks that are late or do not answer, and leave the links to folding while it goes on.
/// `CommitFirst` lets a contribution in without a copy if none can be made, and says so. Bodies that travel
/// inside messages are kept by the master, and short ones on one host lie where all its processes have them,
/// but for groups that work in teams: there a process that dies takes its contribution along. What lies in
/// shared memory outlives its process at every level: arrays of `Session::array`, objects, and each `Vec`, but
/// with `None` on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protection {
    /// No copies.
    None,
    /// A copy in the memory of another process.
    Memory,
    /// A copy on another process's disk.
    #[default]
    Disk,
    /// A copy on another process's disk before the contribution counts.
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
