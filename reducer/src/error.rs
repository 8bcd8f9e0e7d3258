//! What can go wrong, for the application.

use std::{fmt, io};

use everfold_protocol::{report::Refusal, spec::Protection};
use everfold_runtime::{
    executor::ShareError,
    rank::{CallError, JoinError},
};

use crate::launch::LaunchError;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Anything that ends an everfold program early.
///
/// `Debug` prints the message, so that `fn main() -> everfold::Result<()>` shows people what `Display` would.
#[derive(thiserror::Error)]
pub enum Error {
    /// The processes of the job could not be started, or the environment describes no job.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// This process could not join its job.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A reduction ended without a value.
    #[error(transparent)]
    Reduce(#[from] ReduceError),
    /// Input or output of the application failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The application's own error.
    #[error(transparent)]
    Application(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// An error of the application's own, from an error or a message.
    pub fn application(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Application(error.into())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a reduction ended without a value at this rank.
#[derive(Debug, thiserror::Error)]
pub enum ReduceError {
    /// The reduction, or this rank's part in it, was refused. Nothing of it was counted anywhere.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The body cannot be serialised, or there is no window left for it. Nobody else has heard of the call.
    #[error(transparent)]
    Body(ShareError),
    /// The level of protection keeps copies on disk, and this program was built without the feature `disk`. Nobody else has
    /// heard of the call.
    #[error(
        "protection {protection} keeps copies on disk, but this program was built without everfold's feature `disk`: add the \
         feature, or choose none or memory"
    )]
    NoDisk {
        /// The level that was asked for.
        protection: Protection,
    },
    /// The process that hosts the master is gone: what was under way is lost.
    #[error("the process that hosts the master (rank 0) is gone")]
    MasterLost,
    /// This process was declared failed because it was silent for too long: frozen, or cut off. Its contributions may
    /// count or not; the others go on without it.
    #[error(
        "this process was declared failed, because it was silent for too long; the others go on without it"
    )]
    Fenced,
    /// The session was closed before the call.
    #[error("the session was closed before this call")]
    SessionClosed,
    /// The result was there, but this rank could not have it: it went with those who held it, or does not fit. Others may
    /// have received it.
    #[error("the result could not be read: {reason}")]
    ResultLost {
        /// What went wrong, and at whom.
        reason: String,
    },
}

impl From<CallError> for ReduceError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refusal @ Refusal::ResultLost { .. }) => {
                Self::ResultLost { reason: refusal.to_string() }
            }
            CallError::Refused(refusal) => Self::Refused(refusal),
            CallError::Share(error) => Self::Body(error),
            CallError::MasterLost => Self::MasterLost,
            CallError::Fenced => Self::Fenced,
            CallError::Closed => Self::SessionClosed,
            CallError::ResultLost(error) => Self::ResultLost { reason: error.to_string() },
        }
    }
}
