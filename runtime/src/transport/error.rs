//! Why two processes do not talk to each other.

use std::{fmt, io, time::Duration};

use everfold_protocol::{JobId, frame::FrameError};
use serde::{Deserialize, Serialize};

/// How long a stranger may take.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// In which order a process keeps the bytes of a number. Arrays travel as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByteOrder {
    /// The lowest first.
    LittleEndian,
    /// The highest first.
    BigEndian,
}

impl ByteOrder {
    /// That of this process.
    pub const OURS: Self = if cfg!(target_endian = "little") { Self::LittleEndian } else { Self::BigEndian };
}

impl fmt::Display for ByteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LittleEndian => "little-endian",
            Self::BigEndian => "big-endian",
        })
    }
}

/// Why two processes do not talk to each other.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection broke, or the other side hung up.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// The other side does not speak this protocol, or another version of it.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The other side belongs to another job.
    #[error(
        "the other side belongs to {theirs:?}, this process to {ours:?}; check EVERFOLD_JOB and the address"
    )]
    ForeignJob {
        /// Its job.
        theirs: JobId,
        /// Ours.
        ours: JobId,
    },
    /// The other side runs on a machine of another kind.
    #[error(
        "the other side runs on a {theirs} machine, this process on a {ours} one, and arrays are not converted on the way; \
         run all ranks of a job on machines of one byte order"
    )]
    OtherByteOrder {
        /// How it keeps numbers.
        theirs: ByteOrder,
        /// How this process does.
        ours: ByteOrder,
    },
    /// The two sides have different secrets.
    #[error("the other side does not know this job's secret; check EVERFOLD_SECRET on both")]
    WrongSecret,
    /// The other side was silent for too long.
    #[error("the other side did not finish the handshake in {TIMEOUT:?}")]
    TimedOut,
}
