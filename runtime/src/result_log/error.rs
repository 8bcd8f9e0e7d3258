//! Why outcomes cannot be noted, or why noted ones cannot be read.

use std::io;

use everfold_protocol::codec::CodecError;
use everfold_storage::vault::VaultError;

/// Why outcomes cannot be noted, or why noted ones cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The agent of this host has no memory for it: an earlier process of this rank could note nothing.
    #[error(
        "this process comes in place of one that has died, but the agent of its host had no memory for the vault of that \
         process, so the rank cannot come back"
    )]
    Absent,
    /// The replica of the vault of an earlier process cannot be read.
    #[error("the replica of this rank's vault cannot be read from {agent}: {reason}")]
    Replica {
        /// Where it is.
        agent: String,
        /// Why not.
        reason: String,
    },
    /// This process has no descriptors left.
    #[error("the vault of this rank cannot be opened: {0}")]
    Io(#[source] io::Error),
    /// See [`VaultError`].
    #[error("the vault of this rank: {0}")]
    Vault(#[from] VaultError),
    /// The log is from another version of this program.
    #[error("the result log of this rank was written by another version of the program: {0}")]
    Codec(#[from] CodecError),
}
