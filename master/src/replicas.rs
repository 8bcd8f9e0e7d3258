//! Which agents have replicas of which ranks' vaults.
//!
//! A rank keeps a replica of its vault with one agent of another host. The replica of an earlier process
//! stays until that of a later one is whole: if a host is lost in between, one of them is there.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use everfold_protocol::{AgentId, ProcessId, Rank};

/// Replicas by rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replicas(BTreeMap<Rank, Kept>);

/// A replica of the vault of this process, with this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    pub process: ProcessId,
    pub agent: AgentId,
}

/// The replicas of one rank.
#[derive(Clone, Debug, Default)]
struct Kept {
    /// One that has all that the master counts as noted.
    whole: Option<Replica>,
    /// The one that the latest process was told to keep.
    ordered: Option<Replica>,
    /// Agents that could not keep one since there was a whole one.
    refused: BTreeSet<AgentId>,
}

impl Replicas {
    /// Takes in that a process was told where to keep its replica. Returns one that is of no use any more.
    pub fn order(&mut self, process: ProcessId, agent: AgentId) -> Option<Replica> {
        let kept = self.0.entry(process.rank).or_default();
        let before = kept.ordered.replace(Replica { process, agent });
        before.filter(|before| kept.whole != Some(*before))
    }

    /// Takes in that the replica of a process is whole. Returns the one that it replaces.
    pub fn complete(&mut self, process: ProcessId, agent: AgentId) -> Option<Replica> {
        let replica = Replica { process, agent };
        let kept = self.0.get_mut(&process.rank).filter(|kept| kept.ordered == Some(replica))?;
        kept.refused.clear();
        kept.whole.replace(replica).filter(|before| *before != replica)
    }

    /// Takes in that a process has no replica with this agent. None of its rank is whole then. Returns those
    /// that are of no use any more; nothing if that is no news.
    pub fn lack(&mut self, process: ProcessId, agent: AgentId) -> Option<Vec<Replica>> {
        let replica = Replica { process, agent };
        let kept = self.0.get_mut(&process.rank).filter(|kept| kept.ordered == Some(replica))?;
        kept.refused.insert(agent);
        Some(kept.whole.take().into_iter().filter(|whole| *whole != replica).collect())
    }

    /// Whether this agent could not keep a replica of this rank.
    pub fn has_refused(&self, rank: Rank, agent: AgentId) -> bool {
        self.0.get(&rank).is_some_and(|kept| kept.refused.contains(&agent))
    }

    /// Takes in that an agent is lost. A rank whose latest replica was there may note outcomes without a
    /// replica until it keeps another one. Returns the replicas that are of no use any more.
    pub fn lose_agent(&mut self, agent: AgentId) -> Vec<Replica> {
        let mut useless = Vec::new();
        for kept in self.0.values_mut() {
            let is_there = |replica: &mut Replica| replica.agent == agent;
            kept.whole.take_if(is_there);
            if kept.ordered.take_if(is_there).is_some() {
                kept.refused.clear();
                useless.extend(kept.whole.take());
            }
        }
        useless
    }

    /// Takes in that this rank is never started again. Returns its replicas.
    pub fn depart(&mut self, rank: Rank) -> Vec<Replica> {
        let Kept { whole, ordered, .. } = self.0.remove(&rank).unwrap_or_default();
        ordered.into_iter().chain(whole.filter(|whole| ordered != Some(*whole))).collect()
    }

    /// Where there is a replica of this rank's vault that has all that counts as noted.
    pub fn whole(&self, rank: Rank) -> Option<Replica> {
        self.0.get(&rank)?.whole
    }

    /// Whether the latest process of a rank was told where to keep its replica.
    pub fn is_ordered(&self, process: ProcessId) -> bool {
        let ordered = self.0.get(&process.rank).and_then(|kept| kept.ordered);
        ordered.is_some_and(|ordered| ordered.process == process)
    }

    /// How many replicas an agent has, or is to have.
    pub fn count_at(&self, agent: AgentId) -> usize {
        let is_there = |replica: &&Replica| replica.agent == agent;
        self.0.values().filter_map(|kept| kept.ordered.as_ref()).filter(is_there).count()
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::Incarnation;

    use super::*;

    const A: AgentId = AgentId(7);
    const B: AgentId = AgentId(8);

    #[test]
    fn the_replica_of_an_earlier_process_stays_until_that_of_a_later_one_is_whole() {
        let mut replicas = Replicas::default();
        let first = ProcessId::first(1);
        let second = ProcessId { incarnation: Incarnation(1), ..first };
        assert_eq!(replicas.order(first, A), None);
        assert_eq!(replicas.whole(Rank(1)), None, "it is yet to be made");
        assert_eq!(replicas.complete(first, A), None);
        assert_eq!(replicas.order(second, A), None);
        let old = Replica { process: first, agent: A };
        assert_eq!(replicas.whole(Rank(1)), Some(old));
        assert_eq!(replicas.complete(second, A), Some(old));
        assert_eq!(replicas.complete(first, A), None, "that was another process");
        assert_eq!(replicas.whole(Rank(1)), Some(Replica { process: second, agent: A }));
    }

    #[test]
    fn the_earlier_replica_does_not_have_what_is_noted_when_the_later_one_is_lost() {
        let mut replicas = Replicas::default();
        let first = ProcessId::first(1);
        let second = ProcessId { incarnation: Incarnation(1), ..first };
        replicas.order(first, A);
        replicas.complete(first, A);
        replicas.order(second, B);
        assert_eq!(replicas.lose_agent(B), [Replica { process: first, agent: A }]);
        assert_eq!(replicas.whole(Rank(1)), None);
    }

    #[test]
    fn a_rank_without_a_replica_has_none_that_is_whole() {
        let mut replicas = Replicas::default();
        let process = ProcessId::first(1);
        replicas.order(process, A);
        replicas.complete(process, A);
        assert_eq!(replicas.lack(process, B), None, "it was not asked to");
        assert_eq!(replicas.lack(process, A), Some(Vec::new()));
        assert!(replicas.whole(Rank(1)).is_none() && replicas.has_refused(Rank(1), A));
        assert_eq!(replicas.order(process, B), Some(Replica { process, agent: A }));
        assert_eq!((replicas.count_at(A), replicas.count_at(B)), (0, 1));
        assert_eq!(replicas.lose_agent(B), []);
        assert!(!replicas.has_refused(Rank(1), A) && !replicas.is_ordered(process));
        assert_eq!(replicas.depart(Rank(1)), []);
    }
}
