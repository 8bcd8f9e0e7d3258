//! How processes reach each other: one-sided reads of windows, and connections for control messages.
//!
//! | module | holds |
//! |---|---|
//! | [`control`] | connections for control messages: addresses, frames, over Unix sockets and TCP |
//! | [`mod@line`] | such a connection in the steady state: any thread sends and hears, and none waits |
//! | `error` | why two processes do not talk to each other |
//! | [`handshake`] | proof that both ends of a connection know the job's secret |
//! | [`lobby`] | where connections wait until they have passed the handshake |
//! | [`shm`] | one-sided reads on the same host |
//! | [`tcp`] | one-sided reads from anywhere, and the server that answers them |
//! | [`second`] | a second way to other hosts, where that is quicker |
//! | `mpi` | such a way: one-sided reads by MPI, with the feature `mpi` |
//! | [`conformance`] | what every implementation has to pass |

use std::{fmt, io, ops::Deref, sync::Arc};

use bytes::Bytes;
use everfold_protocol::message::{ByteRange, Peer, WindowRef};
use futures::future::BoxFuture;

use crate::memory::{
    peer_region::{PeerRegion, View},
    window::{Held, WindowError},
};

pub mod conformance;
pub mod control;
mod error;
pub mod handshake;
pub mod line;
pub mod lobby;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod second;
pub mod shm;
pub mod staging;
pub mod tcp;

/// Reads windows of peers, whose application is not involved (DR-4).
pub trait OneSidedRead: Send + Sync {
    /// Reads `range` of `window`, which belongs to `peer`.
    ///
    /// The result is only what was published: a read that meets a release, a crash or a damaged byte ends in
    /// an error (I3, I4).
    fn read<'a>(
        &'a self,
        peer: &'a Peer,
        window: &'a WindowRef,
        range: ByteRange,
    ) -> BoxFuture<'a, Result<Fetched, ReadError>>;
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The owner has released the window, or started anew.
    #[error("the window was released")]
    Released,
    /// The range is outside the window.
    #[error("bytes {start}..{end} are outside the window")]
    Range {
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
    },
    /// The owner cannot read what it kept for this window, or finds it damaged. Another copy is needed.
    #[error("the replica that the owner keeps cannot be read, or is damaged")]
    Damaged,
    /// Whoever serves the window lacks memory or address space. Its bytes are what they were.
    #[error(
        "the host of the owner has no room to show the window: {0}. Give its agent more address space (ulimit -v), \
         mappings (vm.max_map_count) or memory"
    )]
    NoRoom(String),
    /// The bytes were damaged on the way.
    #[error("the bytes have arrived damaged")]
    Checksum,
    /// The owner cannot be reached this way.
    #[error("the owner cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
    /// The owner is not who it should be, or does not speak this protocol.
    #[error(transparent)]
    Handshake(#[from] handshake::HandshakeError),
}

impl From<WindowError> for ReadError {
    fn from(error: WindowError) -> Self {
        match error {
            WindowError::Released => Self::Released,
            WindowError::Range { start, end } => Self::Range { start, end },
            WindowError::Damaged => Self::Damaged,
            WindowError::NoRoom(reason) => Self::NoRoom(reason),
        }
    }
}

/// Bytes of a partial, wherever they are.
pub enum Fetched {
    /// They came in the message.
    Inline(Bytes),
    /// They are this process's own.
    Own(Held),
    /// They lie in the peer's memory.
    Mapped(Mapped),
    /// They were copied here.
    Staged(staging::Staging),
}

/// Bytes in a peer's memory.
pub struct Mapped {
    region: Arc<PeerRegion>,
    view: View,
    slot: usize,
    generation: u64,
}

impl Fetched {
    /// What of it lies in `range` of a body of `body_bytes` bytes. The master does not cut inlined bodies up.
    pub fn part(self, range: ByteRange, body_bytes: usize) -> Self {
        match self {
            Self::Inline(bytes) if bytes.len() == body_bytes && range.end() <= body_bytes as u64 => {
                Self::Inline(bytes.slice(range.start as usize..range.end() as usize))
            }
            other => other,
        }
    }

    /// Whether the bytes were valid all the time from the read until now.
    ///
    /// Only bytes that still lie at the peer can have become invalid.
    pub fn is_still_valid(&self) -> bool {
        match self {
            Self::Mapped(mapped) => mapped.region.is_still_open(mapped.slot, mapped.generation),
            _ => true,
        }
    }
}

impl AsRef<[u8]> for Fetched {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for Fetched {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline(bytes) => bytes,
            Self::Own(held) => held,
            Self::Mapped(mapped) => mapped.view.bytes(),
            Self::Staged(staging) => staging,
        }
    }
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Inline(_) => "inline",
            Self::Own(_) => "own",
            Self::Mapped(_) => "mapped",
            Self::Staged(_) => "staged",
        };
        write!(f, "{} bytes, {kind}", self.len())
    }
}

/// Refuses a range that is not inside `window`.
fn check_range(window: &WindowRef, range: ByteRange) -> Result<(), ReadError> {
    let end = range.start.saturating_add(range.len);
    if end <= window.bytes { Ok(()) } else { Err(ReadError::Range { start: range.start, end }) }
}
