//! Why a checkpoint cannot be saved, or gone on from.

use everfold_runtime::{body::BodyError, rank::CallError, result_log::LogError};
use everfold_storage::directory::DirectoryError;

use super::hook::HookError;
use crate::error::ReduceError;

/// Why a checkpoint cannot be saved, or gone on from. The checkpoint before stays in force.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// This process has not asked whether there is a checkpoint to go on from.
    #[error(
        "this process saves a checkpoint without having called Session::resume: call it first, before any reduction"
    )]
    NotResumed,
    /// It asks for the checkpoint after it has begun to compute.
    #[error(
        "Session::resume was called after a reduction, or twice: call it once, before the first reduction, as the \
         checkpoint says which reductions are over"
    )]
    ResumedLate,
    /// The outcome of a reduction that was called before the checkpoint is yet to be taken. A process that
    /// comes back would not have its future.
    #[error(
        "the future of reduction {name:?} (call {sequence}) is still held: await it before the checkpoint, or drop it, and \
         call after the checkpoint what is to overlap it"
    )]
    StillHeld {
        /// Name of the reduction.
        name: String,
        /// How often that name was used before.
        sequence: u64,
    },
    /// Another task or thread has called a reduction after the state was read, and before the checkpoint could be
    /// in force. A process that comes back would not have its value.
    #[error(
        "a reduction was called while the checkpoint waited for earlier ones to end: its value is not in the state. Call it \
         before or after the checkpoint, from whatever task or thread"
    )]
    CalledMeanwhile,
    /// The state cannot be encoded, or would come back as another value.
    #[error("the state cannot be saved: {0}")]
    Unfit(#[source] BodyError),
    /// The checkpoint holds, or would hold, a state of another type than is asked for.
    #[error("the checkpoint holds a state of type {saved}, and {asked} was asked for")]
    OtherType {
        /// The type that was saved.
        saved: String,
        /// The type that was asked for.
        asked: &'static str,
    },
    /// The bytes that were saved are no state of this type.
    #[error("the saved bytes are no {type_name}: {source}")]
    Undecodable {
        /// The type that was asked for.
        type_name: &'static str,
        /// What the decoder said.
        source: BodyError,
    },
    /// A name was given to two arrays, or to two hooks.
    #[error("{what} {name:?} is there twice: give each a name of its own")]
    TwiceNamed {
        /// An array or a hook.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// What is asked for is not what was saved, or is about to be.
    #[error(
        "of {what} {name:?} the checkpoint has {saved}, and {asked} is asked for: save and resume the same, in the same order"
    )]
    Differs {
        /// An array or a hook.
        what: &'static str,
        /// Its name.
        name: String,
        /// What was saved.
        saved: String,
        /// What is asked for.
        asked: String,
    },
    /// A checkpoint of all ranks together was started, to be written later.
    #[error("ranks that save together have to agree first: await the checkpoint instead of starting it")]
    StartedTogether,
    /// A hook was registered after the process had asked for its checkpoint.
    #[error(
        "hook {name:?} is registered after Session::resume: register it before, so that it can restore what it has saved"
    )]
    HookLate {
        /// The hook.
        name: String,
    },
    /// A hook has failed.
    #[error("hook {name:?} could not {action}: {source}")]
    Hook {
        /// The hook.
        name: String,
        /// What it was to do.
        action: &'static str,
        /// What it said.
        source: HookError,
    },
    /// All ranks save together, and they do not do it at the same call, or have called different reductions before
    /// it. All of them hear it.
    #[error(
        "ranks do not save at the same call: where a job has a directory of checkpoints, all ranks call \
         Session::checkpoint as often, with the same `now` and `durable`, and between the same reductions of all ranks"
    )]
    NotTogether,
    /// As [`NotTogether`](Self::NotTogether), after the future of an earlier checkpoint of this rank was
    /// dropped before its end. Since then this rank counts other calls than the others.
    #[error(
        "ranks do not save at the same call, as the future of an earlier checkpoint of this rank was dropped \
         before its end: await each checkpoint to its end. This job saves no checkpoint of all ranks any more"
    )]
    Dropped,
    /// It is asked to be complete in a directory, and there is none.
    #[error(
        "the checkpoint is to be durable, but the job has no directory of checkpoints: name one by --checkpoints \
         (EVERFOLD_CHECKPOINTS), `checkpoint.directory` in the recovery file, or Config::checkpoint_directory"
    )]
    NoDirectory,
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The hosts have directories of their own, and these have no complete generation in common.
    #[error(
        "generation {generation} is complete here, but no generation is complete in the directories of all hosts: start \
         the job on the hosts that it was on, or copy their files"
    )]
    NothingElsewhere {
        /// The newest complete generation here.
        generation: u64,
    },
    /// All ranks have agreed on a generation, and this one does not find it in the directory any more.
    #[error(
        "all ranks go on from generation {generation}, and this one finds another one by now, generation \
         {found}: one job at a time may use a directory. See that no other one does, and start the job again"
    )]
    FoundOther {
        /// What they have agreed on.
        generation: u64,
        /// What this rank has found, perhaps of another job.
        found: u64,
    },
    /// It was to be complete in the directory, and is not. The checkpoint before stays there.
    #[error("generation {generation} is not complete in the directory of checkpoints{}", at(*rank))]
    NotDurable {
        /// Its number.
        generation: u64,
        /// Who could not write, if that was it. It has said why.
        rank: Option<u32>,
    },
    /// The system refuses, or what was saved is damaged.
    #[error(transparent)]
    Vault(#[from] LogError),
    /// This process takes part in its job no more.
    #[error(transparent)]
    Gone(ReduceError),
}

fn at(rank: Option<u32>) -> String {
    rank.map_or_else(String::new, |rank| format!(": rank {rank} could not write, and says why"))
}

impl From<CallError> for CheckpointError {
    fn from(error: CallError) -> Self {
        Self::Gone(error.into())
    }
}
