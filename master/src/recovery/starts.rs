//! Processes that are on their way in place of others, and since when.

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use everfold_protocol::{AgentId, Incarnation, ProcessId, Rank, Timestamp};

use crate::replicas::Replica;

/// A process that an agent is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub process: ProcessId,
    pub agent: AgentId,
    /// Where its vault comes from, if that is not the one on its host.
    pub origin: Option<Replica>,
    /// Whether it stood by before.
    pub is_promotion: bool,
}

/// The ranks that are not where they were when their processes died.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts {
    /// Of each rank that is away, the process that is on its way.
    on_their_way: BTreeMap<Rank, Start>,
    /// When the first process of each was declared failed that has died since it was here last.
    lost_since: BTreeMap<Rank, Timestamp>,
    /// The latest process of each rank that was given its number here.
    named: BTreeMap<Rank, Incarnation>,
}

impl Starts {
    /// The next process of the rank of `last`: its number was given to no other one.
    pub fn name(&mut self, last: ProcessId) -> ProcessId {
        let named = self.named.entry(last.rank).or_default();
        *named = Incarnation(last.incarnation.max(*named).0 + 1);
        ProcessId { incarnation: *named, ..last }
    }

    /// Takes in that a process is to be started.
    pub fn order(&mut self, now: Timestamp, start: Start) {
        self.lost_since.entry(start.process.rank).or_insert(now);
        self.on_their_way.insert(start.process.rank, start);
    }

    /// The start of this rank, if it is on its way.
    pub fn of(&self, rank: Rank) -> Option<Start> {
        self.on_their_way.get(&rank).copied()
    }

    /// Takes in that no process of this rank is on its way any more: it is there, or another one is to be started.
    pub fn forget(&mut self, rank: Rank) {
        self.on_their_way.remove(&rank);
    }

    /// Takes in that this rank is never started again.
    pub fn give_up(&mut self, rank: Rank) {
        self.forget(rank);
        self.lost_since.remove(&rank);
    }

    /// Takes in that a rank is where it was. Says how long it was not, unless that is known.
    pub fn catch_up(&mut self, now: Timestamp, rank: Rank) -> Option<Duration> {
        self.lost_since.remove(&rank).map(|since| now.since(since))
    }

    /// Processes that this agent is to start.
    pub fn at(&self, agent: AgentId) -> Vec<Start> {
        self.on_their_way.values().filter(|start| start.agent == agent).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_lost_from_the_first_death_until_it_is_where_it_was() {
        let mut starts = Starts::default();
        let at = |ms| Timestamp::default() + Duration::from_millis(ms);
        let start =
            Start { process: ProcessId::first(1), agent: AgentId(7), origin: None, is_promotion: false };
        starts.order(at(10), start);
        starts.forget(Rank(1));
        starts.order(at(30), start);
        starts.forget(Rank(1));
        assert_eq!(starts.catch_up(at(50), Rank(1)), Some(Duration::from_millis(40)));
        assert_eq!(starts.catch_up(at(60), Rank(1)), None, "that is known");
        starts.order(at(70), start);
        starts.give_up(Rank(1));
        assert_eq!((starts.of(Rank(1)), starts.catch_up(at(80), Rank(1))), (None, None));
    }

    #[test]
    fn no_two_processes_have_one_number() {
        let mut starts = Starts::default();
        let first = ProcessId::first(1);
        let standby = starts.name(first);
        assert_eq!(standby.incarnation, Incarnation(1));
        assert_eq!(starts.name(first).incarnation, Incarnation(2), "the standby has died");
        assert_eq!(starts.name(standby).incarnation, Incarnation(3));
        assert_eq!(starts.name(ProcessId::first(2)).incarnation, Incarnation(1), "that is another rank");
    }
}
