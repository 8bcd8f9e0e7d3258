//! Processes that are on their way in place of others.

use alloc::{collections::BTreeMap, vec::Vec};

use everfold_protocol::{AgentId, ProcessId, Rank};

use crate::replicas::Replica;

/// A process that an agent is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub process: ProcessId,
    pub agent: AgentId,
    /// Where its vault comes from, if that is not the one on its host.
    pub origin: Option<Replica>,
}

/// Of each rank that is away, the process that is on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts(BTreeMap<Rank, Start>);

impl Starts {
    /// Takes in that a process is to be started.
    pub fn order(&mut self, start: Start) {
        self.0.insert(start.process.rank, start);
    }

    /// The start of this rank, if it is on its way.
    pub fn of(&self, rank: Rank) -> Option<Start> {
        self.0.get(&rank).copied()
    }

    /// Takes in that a rank is there, or does not come.
    pub fn forget(&mut self, rank: Rank) {
        self.0.remove(&rank);
    }

    /// Processes that this agent is to start.
    pub fn at(&self, agent: AgentId) -> Vec<Start> {
        self.0.values().filter(|start| start.agent == agent).copied().collect()
    }
}
