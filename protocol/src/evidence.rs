//! What speaks for the death of a process.

use core::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

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
