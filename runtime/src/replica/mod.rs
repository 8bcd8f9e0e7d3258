//! Replicas of vaults: how a rank keeps one with the agent of another host, and how a later process takes it.
//!
//! A replica is the generation in force as it lies in the rank's vault, byte by byte, in one of two files. A
//! newer generation goes into the other file, and its mark is written together with the end of the old one: a
//! replica is whole at any moment, or it has not begun.
//!
//! | module | holds |
//! |---|---|
//! | `keeping` | the process whose vault it is |
//! | [`holding`], `front` | the agent |
//! | `taking` | the process that goes on from there |
//! | `following` | the process that stands by, and follows the one whose vault it is |

#[cfg(test)]
mod cuts;
mod following;
mod front;
pub mod holding;
mod keeping;
mod taking;

use bytes::Bytes;
use everfold_protocol::{ProcessId, seal::Seal};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::transport::{
    control::{BoxStream, read_frame, write_frame},
    handshake::{HandshakeError, Seals},
};

pub(crate) use self::{
    following::{Followed, Next, follow},
    keeping::{Mirror, Partner},
    taking::take,
};

/// So many bytes of a vault go into one frame.
const CHUNK_BYTES: usize = 1 << 20;
/// Largest frame, in bytes.
const FRAME_BYTES_MAX: u64 = CHUNK_BYTES as u64 + (4 << 10);

/// What a process says to an agent that has a replica.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Hold one of this process, which is empty so far.
    Begin,
    /// Write this, all of it or nothing.
    Write(Vec<Patch>),
    /// Say when all that was said before is done.
    Confirm,
    /// Send the replica of this process, an earlier one of the same rank.
    Take(ProcessId),
    /// Send the replica of this process, an earlier one of the same rank that lives, as it is now, and from then on
    /// the outcomes that it notes.
    Follow(ProcessId),
}

/// Bytes of a replica.
#[derive(Debug, Serialize, Deserialize)]
pub struct Patch {
    /// Which of the two files.
    pub half: u8,
    /// Where in it.
    pub offset: u64,
    /// What.
    pub bytes: Bytes,
}

/// What the agent answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// All is done. Who follows takes the place of the process that it has followed.
    Done,
    /// Why not, for people. Nothing follows.
    Refused(String),
    /// A piece of the replica.
    Piece(Patch),
    /// All that there is so far was sent.
    Level,
    /// Bytes of the log of the generation with this mark: records, which may go on in the next bytes.
    Log {
        /// The mark, as it lies in a file.
        mark: Bytes,
        /// Where in that file they are.
        at: u64,
        /// They.
        bytes: Bytes,
    },
}

/// One end of a connection.
struct Line {
    stream: BoxStream,
    outward: Seal,
    inward: Seal,
}

impl Line {
    /// Over `stream`, which has passed the handshake.
    fn new(stream: BoxStream, Seals { outward, inward }: Seals) -> Self {
        Self { stream, outward, inward }
    }

    async fn tell<T: Serialize>(&mut self, what: &T) -> Result<(), HandshakeError> {
        write_frame(&mut self.stream, what, FRAME_BYTES_MAX, &mut self.outward).await
    }

    async fn hear<T: DeserializeOwned>(&mut self) -> Result<T, HandshakeError> {
        read_frame(&mut self.stream, FRAME_BYTES_MAX, &mut self.inward).await
    }
}
