//! Which processes stand by: each follows the process of its rank that takes part, on the host of its replica.

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use everfold_protocol::{AgentId, ProcessId, Rank, Timestamp, message::NoReturn};

use crate::{recovery::Restart, replicas::Replica};

/// A process that stands by, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standby {
    pub process: ProcessId,
    /// The replica that it follows; its host is that of the replica.
    pub follows: Replica,
    /// How far it is.
    pub stage: Stage,
}

/// How far a process is that is to stand by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is started after a pause.
    Paused,
    /// Its agent was told to start it.
    Ordered,
    /// It has followed since then.
    Ready(Timestamp),
}

/// Standbys by rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standbys {
    standing: BTreeMap<Rank, Standby>,
    starts: BTreeMap<Rank, Starts>,
}

/// How often standbys of a rank were started.
#[derive(Clone, Copy, Debug, Default)]
struct Starts {
    all: u32,
    /// In a row, of those that did not last.
    fruitless: u32,
}

impl Standbys {
    /// The pause before a standby of this rank is started.
    ///
    /// # Errors
    /// There were too many.
    pub fn pause(&mut self, rank: Rank, limits: &Restart) -> Result<Duration, NoReturn> {
        let starts = self.starts.entry(rank).or_default();
        if starts.all >= limits.starts_max {
            return Err(NoReturn::Starts(starts.all));
        }
        if starts.fruitless > limits.fruitless_max {
            return Err(NoReturn::Fruitless(starts.fruitless));
        }
        let pause = limits.pause_after(starts.fruitless);
        *starts = Starts { all: starts.all + 1, fruitless: starts.fruitless + 1 };
        Ok(pause)
    }

    /// Takes in that a process is to stand by.
    pub fn put(&mut self, standby: Standby) {
        self.standing.insert(standby.process.rank, standby);
    }

    /// The standby of this rank, also one that has yet to be started.
    pub fn of(&self, rank: Rank) -> Option<Standby> {
        self.standing.get(&rank).copied()
    }

    /// Whether this process is one.
    pub fn has(&self, process: ProcessId) -> bool {
        self.of(process.rank).is_some_and(|standby| standby.process == process)
    }

    /// Takes in how far a process is.
    pub fn advance(&mut self, process: ProcessId, stage: Stage) {
        let standby = self.standing.get_mut(&process.rank).filter(|standby| standby.process == process);
        standby.into_iter().for_each(|standby| standby.stage = stage);
    }

    /// Takes in that this rank has no standby any more, on the master's own order: no start of it has been in
    /// vain.
    pub fn take(&mut self, rank: Rank) -> Option<Standby> {
        self.starts.entry(rank).or_default().fruitless = 0;
        self.standing.remove(&rank)
    }

    /// Takes in that the standby of a rank has ended. If it has lasted for the longest pause, its start was not in
    /// vain.
    pub fn lose(&mut self, now: Timestamp, rank: Rank, limits: &Restart) -> Option<Standby> {
        let lost = self.standing.remove(&rank)?;
        if let Stage::Ready(since) = lost.stage
            && now.since(since) >= limits.pause_max
        {
            self.starts.entry(rank).or_default().fruitless = 0;
        }
        Some(lost)
    }

    /// Takes in that an agent is lost, with all standbys there. Returns their ranks.
    pub fn lose_agent(&mut self, agent: AgentId) -> Vec<Rank> {
        let there = self.standing.values().filter(|standby| standby.follows.agent == agent);
        let there: Vec<Rank> = there.map(|standby| standby.process.rank).collect();
        there.into_iter().filter(|rank| self.take(*rank).is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::Incarnation;

    use super::*;

    const LIMITS: Restart = Restart { starts_max: 6, fruitless_max: 2, ..Restart::USUAL };

    fn standby(agent: u64) -> Standby {
        let process = ProcessId { rank: Rank(1), incarnation: Incarnation(1) };
        let follows = Replica { process: ProcessId::first(1), agent: AgentId(agent) };
        Standby { process, follows, stage: Stage::Ordered }
    }

    #[test]
    fn a_standby_that_does_not_last_is_started_after_pauses_and_then_no_more() {
        let (mut standbys, now) = (Standbys::default(), Timestamp::default());
        let mut start = |lasts| {
            let pause = standbys.pause(Rank(1), &LIMITS)?;
            standbys.put(standby(7));
            standbys.advance(standby(7).process, Stage::Ready(now));
            assert_eq!(
                standbys.lose(now + lasts, Rank(1), &LIMITS).map(|it| it.process),
                Some(standby(7).process)
            );
            Ok(pause.as_millis())
        };
        let short = Duration::from_secs(1);
        assert_eq!([(); 4].map(|()| start(short)), [Ok(0), Ok(100), Ok(200), Err(NoReturn::Fruitless(3))]);
        let mut standbys = Standbys::default();
        let mut start = || {
            let pause = standbys.pause(Rank(1), &LIMITS)?;
            standbys.put(Standby { stage: Stage::Ready(now), ..standby(7) });
            standbys.lose(now + LIMITS.pause_max, Rank(1), &LIMITS);
            Ok(pause)
        };
        let nothing = Ok(Duration::ZERO);
        assert_eq!([(); 6].map(|()| start()), [nothing; 6], "each of them has lasted");
        assert_eq!(start(), Err(NoReturn::Starts(6)));
    }

    #[test]
    fn standbys_go_with_their_host() {
        let mut standbys = Standbys::default();
        standbys.put(standby(7));
        assert!(standbys.has(standby(7).process) && !standbys.has(ProcessId::first(1)));
        assert!(standbys.lose_agent(AgentId(8)).is_empty());
        assert_eq!(standbys.lose_agent(AgentId(7)), [standby(7).process.rank]);
        assert_eq!(standbys.of(Rank(1)), None);
    }
}
