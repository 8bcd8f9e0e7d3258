//! What a worker says to the master.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    contribution::{Contribution, Effort, Opened, Part},
    data::Data,
    keep::Kept,
    peer::Peer,
    result::{NotCollected, Prefetched},
    task::{PartialReady, TaskFailed},
};
use crate::{
    id::{AgentId, ReductionId},
    path::Path,
};

/// What a worker says to the master.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToMaster {
    /// Takes the sender into the job.
    Join {
        /// How to reach it.
        peer: Peer,
        /// Number of processes in the job, as the sender was told.
        size: u32,
    },
    /// The sender's original is readable: the first reduction message of a reduction (DR §2 def. 4).
    Contribute(Box<Contribution>),
    /// A task is done: the executor's partial with the larger path is readable.
    PartialReady(PartialReady),
    /// A task could not be done; the executor's partial is as it was.
    TaskFailed(TaskFailed),
    /// Answers a ping.
    Pong {
        /// Which.
        number: u64,
    },
    /// The sender has a copy of an original, or can no longer make one.
    Kept(Kept),
    /// The sender has copied a part of a result beforehand, and lends it, or could not have it.
    Prefetched(Prefetched),
    /// The sender has copied the whole result out of the others' windows.
    Collected {
        /// Of which reduction.
        reduction: ReductionId,
        /// Where it is readable at the sender, if it was asked to lend it.
        body: Option<Data>,
    },
    /// The sender could not copy the whole result.
    NotCollected(NotCollected),
    /// How long a reduction took at the sender, from its call to its outcome. It is said before the next call
    /// of that class.
    Took {
        /// Which.
        reduction: ReductionId,
        /// How long.
        took: Duration,
    },
    /// How a reduction has ended is in the sender's result log, which outlives its process. A process that has
    /// come in place of another one says so of all that it finds there.
    Noted {
        /// Which reduction.
        reduction: ReductionId,
    },
    /// The sender is a deputy, and all of its team have contributed.
    Opened(Box<Opened>),
    /// The sender is a deputy, and these segments of its team are folded.
    Parts {
        /// Of which attempt.
        reduction: ReductionId,
        /// What lies where.
        parts: Vec<Part>,
        /// What all of it has taken, with the last of them.
        effort: Option<Effort>,
    },
    /// An attempt in teams gets nowhere, as far as the sender can tell.
    Dissolve {
        /// Which.
        reduction: ReductionId,
        /// Who takes part in it.
        group: Path,
    },
    /// The sender starts no more reductions. It goes on with those that it has called.
    Closing,
    /// The sender's reductions have ended; it no longer serves windows.
    Leave,
    /// This agent has a replica of the sender's vault. From now on, what the sender says that it has noted is
    /// there, too.
    Replicated {
        /// Which.
        agent: AgentId,
    },
    /// This agent has no replica of the sender's vault, or has none any more. Once the master has said that
    /// it knows, the sender says also of what is in no replica that it has noted it.
    NotReplicated {
        /// Which.
        agent: AgentId,
        /// Why not, for people.
        reason: String,
    },
    /// The sender, which has come in place of another process, has done again all that this one had noted.
    CaughtUp(Comeback),
    /// The sender stands by: it has what the process of its rank that takes part has noted so far, and follows
    /// that. It is no member of the job.
    StandsBy,
}

/// What it has cost a process to be where an earlier one of its rank was when it died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comeback {
    /// To get what the earlier one has left from another host; nothing on the same one.
    pub transfer: Duration,
    /// To read the checkpoint.
    pub load: Duration,
    /// To do again what the earlier one had done since that checkpoint.
    pub again: Duration,
}
