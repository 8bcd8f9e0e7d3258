//! What the master says to a worker.

use alloc::{boxed::Box, string::String, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    keep::Keep,
    news::News,
    peer::{AgentRef, Peer},
    result::{Finished, Prefetch},
    task::Task,
};
use crate::{
    evidence::Evidence,
    id::{AgentId, ProcessId, ReductionId},
    path::Path,
    report::Refusal,
    spec::Limits,
};

/// What the master says to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Are you there?
    Ping {
        /// Comes back in the answer.
        number: u64,
    },
    /// The receiver was declared failed, wrongly as it turns out. Nothing it says counts any more.
    Fenced,
    /// Make a copy of an original while its owner lives.
    Keep(Keep),
    /// Something happened that the application may want to know.
    News(News),
    /// Everybody is here.
    Welcome {
        /// All processes of the job, by rank.
        peers: Arc<[Peer]>,
        /// What holds in this job.
        limits: Limits,
    },
    /// The receiver cannot be taken into the job.
    Unwelcome {
        /// Why, for people.
        reason: String,
    },
    /// Not everybody came in time; there will be no job.
    Incomplete {
        /// Who is missing.
        missing: Path,
    },
    /// Read those partials and fold them into yours.
    Task(Task),
    /// Copy parts of a result before it is handed out.
    Prefetch(Prefetch),
    /// The reduction ended well.
    Finished(Box<Finished>),
    /// The reduction ended in an error, or this rank's part in it was refused.
    Refused {
        /// Which reduction.
        reduction: ReductionId,
        /// Why.
        refusal: Refusal,
    },
    /// Others lend the result: the receiver's application may have the body.
    HandOver {
        /// Of which reduction.
        reduction: ReductionId,
    },
    /// Everyone has collected the result: windows may go.
    Release {
        /// Of which reduction.
        reduction: ReductionId,
    },
    /// An attempt in teams is over without a result: contribute as usual.
    Dissolved {
        /// Which.
        reduction: ReductionId,
    },
    /// A process was declared failed: it is fenced from now on. The frame's epoch is the new one.
    Departed {
        /// Which.
        process: ProcessId,
        /// What spoke for it.
        evidence: Evidence,
    },
    /// A rank whose process was declared failed has come back. The frame's epoch is the new one.
    Returned {
        /// Its process from now on.
        peer: Peer,
    },
    /// No reduction needs the memory of this process any more, which was declared failed.
    Forget {
        /// Which.
        process: ProcessId,
    },
    /// An agent is gone, and with it the memory of all processes of its host, also of those that had failed
    /// before. Those that lived are declared failed, each by itself.
    AgentLost {
        /// Which.
        agent: AgentId,
    },
    /// The sender may disconnect.
    Farewell,
    /// Keep a replica of your vault with this agent, of another host, and none elsewhere.
    Replicate {
        /// Which.
        to: AgentRef,
    },
    /// The sender knows that this agent has no replica of your vault: what you note counts without one.
    Unreplicated {
        /// Which.
        agent: AgentId,
    },
}
