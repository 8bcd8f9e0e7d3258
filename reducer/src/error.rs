//! What can go wrong, for the application.

use std::{fmt, io};

use everfold_protocol::{report::Refusal, spec::Protection};
use everfold_runtime::{
    executor::ShareError,
    launch::{EnvironmentError, LocalError, UnknownDetector},
    rank::{CallError, JoinError},
    transport::control::AddressError,
};
use everfold_storage::directory::DirectoryError;

use crate::{
    checkpoint::{CheckpointError, UnknownPace},
    config::ConfigError,
    kept::StateError,
    plan::PlanError,
    recovery::RecoveryError,
    segment::SegmentError,
};

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Anything that ends an everfold program early.
///
/// `Debug` prints the message of `Display`, so that `fn main() -> everfold::Result<()>` shows it to people.
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
    /// A recovery segment ended without a value.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A checkpoint could not be saved, or gone on from.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A state was not kept, or could not be read.
    #[error(transparent)]
    State(#[from] StateError),
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
    /// The reduction, or this rank's part in it, was refused. No rank has a result, but after a
    /// [deadline](Refusal::DeadlineExceeded): then some ranks may have received it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The body cannot be serialised, or there is no window left for it. No other rank has heard of the call.
    #[error(transparent)]
    Body(ShareError),
    /// The level of protection keeps copies on disk, and this program was built without the feature `disk`.
    /// No other rank has heard of the call.
    #[error(
        "protection {protection} keeps copies on disk, but this program was built without everfold's feature `disk`: add the \
         feature, or choose none or memory"
    )]
    NoDisk {
        /// The level that was asked for.
        protection: Protection,
    },
    /// The host of the master is lost, and with it all reductions under way.
    #[error(
        "the agent that hosts the master, on the host of rank 0, is gone, and the job with it: start the job again, with \
         --resume DIR if it has a directory of checkpoints"
    )]
    MasterLost,
    /// This process was declared failed because it was silent for too long: frozen, or cut off. Its
    /// contributions may count or not; the others go on without it.
    #[error(
        "this process was declared failed, because it was silent for too long; the others go on without it, or with a later process of its rank: end it"
    )]
    Fenced,
    /// This process has come in place of one that has saved a checkpoint, and begins anew instead of going on
    /// from it. No other rank has heard of the call.
    #[error(
        "reduction {name:?} is called before Session::resume, but an earlier process of this rank has saved a checkpoint: \
         call resume before the first reduction, and go on from what it gives"
    )]
    NotResumed {
        /// Name of the reduction.
        name: String,
    },
    /// The session was closed before the call.
    #[error("the session was closed before this call: make all calls before Session::close")]
    SessionClosed,
    /// The result was there, but this rank could not receive it: it was lost with the processes that held it,
    /// or does not fit. Other ranks may have received it.
    #[error(
        "the result is lost for this rank: {reason}. Fill the body again and call once more, with the survivors"
    )]
    ResultLost {
        /// The error, and the process at which it happened.
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

/// Why a job could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The environment describes a job that makes no sense.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A knob of the configuration is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file that chooses recoveries cannot be used.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// A detector of the program's own is chosen that the program has not [added](crate::Launch::detector).
    #[error(transparent)]
    UnknownDetector(#[from] UnknownDetector),
    /// A pace of checkpoints is chosen that the program has not [added](crate::Launch::checkpoint_pace).
    #[error(transparent)]
    UnknownPace(#[from] UnknownPace),
    /// The plan of checkpoints cannot be followed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The profile that is recorded cannot be written.
    #[error("cannot write the profile {}: {source}", path.display())]
    Record {
        /// Its path.
        path: std::path::PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory of checkpoints cannot be used.
    #[error(transparent)]
    Checkpoints(#[from] DirectoryError),
    /// All ranks are to go back to the last checkpoint together, and there is no directory of checkpoints.
    #[error(
        "a rollback goes back to checkpoints in a directory: name one by --checkpoints (EVERFOLD_CHECKPOINTS), \
         `checkpoint.directory` in the recovery file, or Config::checkpoint_directory"
    )]
    RollbackToNowhere,
    /// All ranks are to go back to the last checkpoint together, and no process starts them again.
    #[error(
        "a rollback needs somebody who starts the processes again: start the job by `everfold run --recovery FILE`, where \
         the file chooses it, or start the program alone"
    )]
    NobodyRollsBack,
    /// A second process of each rank is to stand by, and there is a directory of checkpoints, where both would write.
    #[error(
        "with a directory of checkpoints no rank is promoted, as its standby would save there, too: choose other recoveries \
         than \"promote\", or no directory (--checkpoints, EVERFOLD_CHECKPOINTS, `checkpoint.directory`, \
         Config::checkpoint_directory)"
    )]
    StandbysSave,
    /// All ranks are to save checkpoints at the same call, and there is no directory of checkpoints.
    #[error(
        "the recovery file has all ranks save at the same call (`checkpoint.protocol` is \"coordinated\"), which needs a \
         directory: name one by --checkpoints (EVERFOLD_CHECKPOINTS), `checkpoint.directory` or \
         Config::checkpoint_directory, or choose \"independent\""
    )]
    CoordinatedNowhere,
    /// Each rank is to save checkpoints for itself, and there is a directory of checkpoints, where they are
    /// those of all.
    #[error(
        "the recovery file has each rank save for itself (`checkpoint.protocol` is \"independent\"), but checkpoints in a \
         directory are those of all ranks together: choose \"coordinated\", or no directory (--checkpoints, \
         EVERFOLD_CHECKPOINTS, Config::checkpoint_directory)"
    )]
    IndependentInDirectory,
    /// The rendezvous is no address.
    #[error("EVERFOLD_RENDEZVOUS: {0}")]
    Rendezvous(#[from] AddressError),
    /// The workers could not be started.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The caller is inside an asynchronous runtime.
    #[error(
        "launch blocks its thread, which the asynchronous runtime around it needs: call it outside, first thing in main, \
         or join a job that is there with Session::join"
    )]
    InsideRuntime,
    /// A process that has started this one has joined the job under this rank.
    #[error(
        "rank {rank} of this job is process {ancestor}, which has started this one; its variables EVERFOLD_RENDEZVOUS, \
         EVERFOLD_RANK and EVERFOLD_SIZE are not meant for this process: unset them, or call launch, which starts a job of \
         its own"
    )]
    Inherited {
        /// The rank.
        rank: everfold_protocol::Rank,
        /// Id of the process that has it.
        ancestor: u32,
    },
    /// Rank 0 cannot listen at the rendezvous.
    #[error("the agent of rank 0 cannot listen at {address}: {source}{}", advice(source))]
    Listen {
        /// The rendezvous.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// This process cannot find the data that it has to tell over MPI.
    #[cfg(feature = "mpi")]
    #[error("cannot start beside MPI: {0}")]
    Mpi(std::io::Error),
    /// This program does not know its own path.
    #[error("this program cannot find itself to start copies: {0}")]
    NoProgram(std::io::Error),
}

/// What to do if the rendezvous is taken.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            ". Give each job a rendezvous of its own, and rank 0 (EVERFOLD_RANK) to one process. If this one was started \
             by another program, it may have inherited EVERFOLD_RENDEZVOUS, EVERFOLD_RANK and EVERFOLD_SIZE: unset them \
             to start a job of its own"
        }
        _ => "",
    }
}
