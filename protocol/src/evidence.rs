//! What speaks for the death of a process.

use core::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::units::Times;

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It ended with this exit code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// The system killed it because memory was short.
    OutOfMemory,
    /// It has ended; the agent is not its parent, and does not hear how.
    Unknown,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "it ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal} killed it"),
            Self::OutOfMemory => f.write_str("it was killed, most likely because memory was short"),
            Self::Unknown => f.write_str("it ended"),
        }
    }
}

/// What spoke for a process's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// Its connection broke: the process has ended, or its host has.
    Disconnected,
    /// It answered no ping for this long. It may be frozen, cut off, or dead.
    Silent(Duration),
    /// Its agent has seen it end.
    Ended(Ending),
    /// The agent of its host is gone, and with it the host.
    HostLost,
}

impl Evidence {
    /// Whether what the process has in its region stays as it is from then on. Of one that was only silent
    /// that is not known, and with its host all is gone.
    pub fn leaves_memory(self) -> bool {
        matches!(self, Self::Disconnected | Self::Ended(_))
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected => f.write_str("its connection broke"),
            Self::Silent(time) => write!(f, "it was silent for {time:.1?}"),
            Self::Ended(ending) => write!(f, "{ending}"),
            Self::HostLost => f.write_str("its host is lost"),
        }
    }
}

/// The reaction to a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// The job goes on without the rank.
    Ignore,
    /// The agent of its host starts the rank again.
    Restart,
    /// The agent of another host starts the rank again, from the replica of its vault.
    Migrate,
    /// A process of the rank that stands by on another host takes its place.
    Promote,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ignore => "ignore",
            Self::Restart => "restart",
            Self::Migrate => "migrate",
            Self::Promote => "promote",
        })
    }
}

/// Why a recovery is not done, or why a rank does not come back in a job whose ranks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoReturn {
    /// Its host is lost.
    HostLost,
    /// Its process was only silent, and no agent holds what it has: it may live on.
    Silent,
    /// The agent of its host was not there yet, and holds nothing of what it has left.
    NotHeld,
    /// That is what was chosen.
    Ignored,
    /// It was started again as often as is allowed.
    Starts(u32),
    /// It was started again so often in a row without progress.
    Fruitless(u32),
    /// There were too many process faults on its host.
    Repeated {
        /// Their number, without this one ...
        faults: u32,
        /// ... within this time.
        within: Duration,
    },
    /// No process of it has joined in this time.
    Late(Duration),
    /// No other host has a replica of its vault.
    NoReplica,
    /// No other host can take it.
    NoHost,
    /// No process of it stands by.
    NoStandby,
    /// Its host has a fault that was located.
    Located,
}

impl fmt::Display for NoReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostLost => f.write_str("its host is lost"),
            Self::Silent => f.write_str("it was silent, and may live on"),
            Self::NotHeld => f.write_str("no agent holds the memory of its process"),
            Self::Ignored => f.write_str("process faults are ignored"),
            Self::Starts(starts) => {
                write!(f, "it was started again {}, the most that is allowed", Times(*starts))
            }
            Self::Fruitless(starts) => {
                write!(f, "it was started again {} in a row and made no progress", Times(*starts))
            }
            Self::Repeated { faults, within } => {
                write!(f, "{faults} other processes of its host had died within {within:?}")
            }
            Self::Late(time) => write!(f, "no process of it has joined within {time:?}"),
            Self::NoReplica => f.write_str("no other host has a replica of its checkpoint and outcomes"),
            Self::NoHost => f.write_str("no other host can start it"),
            Self::NoStandby => f.write_str("no process of it stands by"),
            Self::Located => f.write_str("its host has a fault that was located"),
        }
    }
}
