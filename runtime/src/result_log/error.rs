//! Why nothing can be noted, or what was noted cannot be had.

use std::io;

use everfold_protocol::codec::CodecError;
use everfold_storage::vault::VaultError;

/// Why nothing can be noted, or what was noted cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The agent of this host has no memory for it: an earlier process of this rank could note nothing.
    #[error(
        "this process comes in place of one that has died, but the agent of its host had no memory to keep what that one \
         has noted"
    )]
    Absent,
    /// The replica of what earlier processes have left cannot be had.
    #[error("what earlier processes of this rank have left cannot be had from {agent}: {reason}")]
    Replica {
        /// Where it is.
        agent: String,
        /// Why not.
        reason: String,
    },
    /// This process has no descriptors left.
    #[error("what this rank has noted for its later processes cannot be opened: {0}")]
    Io(#[source] io::Error),
    /// See [`VaultError`].
    #[error("what this rank has noted for its later processes: {0}")]
    Vault(#[from] VaultError),
    /// What is noted is of another version of this program.
    #[error("what earlier processes of this rank have noted cannot be read: {0}")]
    Codec(#[from] CodecError),
}
