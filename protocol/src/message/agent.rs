//! What an agent and the master say to each other.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::peer::AgentRef;
use crate::{
    evidence::Ending,
    id::ProcessId,
    locating::{FromLocator, ToLocator},
    path::Path,
    spec::Limits,
};

/// What an agent says to the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    /// The agent holds the memory of its host's processes from now on.
    Join(Lodging),
    /// A process on its host has ended.
    Ended {
        /// Which.
        process: ProcessId,
        /// How.
        ending: Ending,
    },
    /// Answers a ping.
    Pong {
        /// Which.
        number: u64,
    },
    /// Something about faults that are located.
    Locating(FromLocator),
    /// The first process of a rank was started on its host, and has ended before it came to the agent.
    NeverCame {
        /// Which.
        process: ProcessId,
        /// How.
        ending: Ending,
    },
    /// The first processes of these ranks were started on its host: while the job has not begun, they are lost
    /// with it.
    Expects {
        /// Which.
        ranks: Path,
    },
}

/// What a host offers to ranks of other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lodging {
    /// Where its agent serves, `host:port`, if it can start ranks.
    pub address: Option<String>,
    /// Label of what the host shares with others.
    pub domain: Option<String>,
}

/// What the master says to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Are you there?
    Ping {
        /// Comes back in the answer.
        number: u64,
    },
    /// No reduction needs the memory of this process any more, which has ended or was declared failed.
    Forget {
        /// Which.
        process: ProcessId,
    },
    /// Start this process: its rank is to come back.
    Start {
        /// Which.
        process: ProcessId,
        /// Where its vault comes from, if that is not the one on this host.
        origin: Option<Origin>,
    },
    /// The rank of this process, which has died here, is started on another host, or was before this host came
    /// back. How it has ended does not count.
    Moved {
        /// Which.
        process: ProcessId,
    },
    /// The job is over.
    Farewell,
    /// The agent is taken in.
    Welcome {
        /// What holds in this job.
        limits: Limits,
    },
    /// Nobody needs the replica of this process's vault any more.
    DropReplica {
        /// Which.
        process: ProcessId,
    },
    /// Something about faults that are located.
    Locating(ToLocator),
    /// Start this process, which stands by: it follows an earlier one of its rank by the replica of that
    /// one's vault, which this agent has.
    StandBy {
        /// Which.
        process: ProcessId,
        /// Where the replica is: here.
        origin: Origin,
    },
    /// The process that this one has followed has died: the replica is what it is, and this process takes its
    /// place.
    Promote {
        /// Which.
        process: ProcessId,
    },
    /// Nobody needs this process any more, which was to stand by or to take a place, or is to be replaced and
    /// may live on: end it, or do not start it.
    End {
        /// Which.
        process: ProcessId,
    },
}

/// Where a process finds what an earlier one of its rank has left: a replica of that one's vault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Whose vault.
    pub process: ProcessId,
    /// Who has the replica.
    pub agent: AgentRef,
}
