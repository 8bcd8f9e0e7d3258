//! Which ranks and agents are heard, and which are silent (DR-8).

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    AgentId, Rank, Timestamp,
    watch::{Alarm, Watch},
};

/// How often in a ping interval silence and late tasks are looked for.
const LOOKS_PER_PING: u32 = 4;

/// A rank or an agent that is watched. Agents come first: the loss of a host explains the silence of its
/// ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watched {
    Agent(AgentId),
    Rank(Rank),
}

/// Signs of life of all members, from the moment when all ranks are here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Liveness {
    agents: BTreeMap<AgentId, Watch>,
    /// By rank: of none that is not watched.
    ranks: Vec<Option<Watch>>,
    ping_interval: Duration,
    alarm: Option<Alarm>,
    rings: u64,
}

/// What follows when the alarm rings.
#[derive(Debug)]
pub(crate) struct Ring {
    /// When it rings next.
    pub next: Timestamp,
    /// The number of the ping that all are sent.
    pub ping: Option<u64>,
    /// The silent ones, and for how long they are.
    pub silent: Vec<(Watched, Duration)>,
}

impl Liveness {
    /// Begins to watch these. Returns when the alarm rings first.
    pub fn begin(
        &mut self,
        now: Timestamp,
        ping_interval: Duration,
        all: impl Iterator<Item = Watched>,
    ) -> Timestamp {
        self.ping_interval = ping_interval;
        let alarm = Alarm::new(now, ping_interval / LOOKS_PER_PING);
        self.alarm = Some(alarm);
        all.for_each(|who| self.watch(now, who));
        alarm.due()
    }

    /// Watches another rank or agent, too, if watching has begun.
    pub fn watch(&mut self, now: Timestamp, who: Watched) {
        if self.alarm.is_none() {
            return;
        }
        let watch = Watch::new(now, self.ping_interval);
        match who {
            Watched::Agent(agent) => drop(self.agents.insert(agent, watch)),
            Watched::Rank(rank) => {
                self.ranks.resize(self.ranks.len().max(rank.index() + 1), None);
                self.ranks[rank.index()] = Some(watch);
            }
        }
    }

    /// Takes in a sign of life.
    pub fn hear(&mut self, now: Timestamp, who: Watched) {
        let watch = match who {
            Watched::Agent(agent) => self.agents.get_mut(&agent),
            Watched::Rank(rank) => self.ranks.get_mut(rank.index()).and_then(Option::as_mut),
        };
        if let Some(watch) = watch {
            watch.hear(now);
        }
    }

    /// Whether this rank or agent has answered none of the last two pings.
    pub fn misses_pings(&self, now: Timestamp, who: Watched) -> bool {
        let watch = match who {
            Watched::Agent(agent) => self.agents.get(&agent),
            Watched::Rank(rank) => self.ranks.get(rank.index()).and_then(Option::as_ref),
        };
        watch.is_some_and(|watch| watch.silence(now) > self.ping_interval * 2)
    }

    /// Watches this rank or agent no longer.
    pub fn forget(&mut self, who: Watched) {
        match who {
            Watched::Agent(agent) => drop(self.agents.remove(&agent)),
            Watched::Rank(rank) => {
                self.ranks.get_mut(rank.index()).into_iter().for_each(|watch| *watch = None)
            }
        }
    }

    /// Takes in that the alarm rings. Time that the master slept through is subtracted from every silence.
    pub fn ring(&mut self, now: Timestamp) -> Option<Ring> {
        let alarm = self.alarm.as_mut()?;
        let asleep = alarm.ring(now).unwrap_or_default();
        let next = alarm.due();
        if !asleep.is_zero() {
            let ranks = self.ranks.iter_mut().flatten();
            self.agents.values_mut().chain(ranks).for_each(|watch| watch.forgive(now, asleep));
        }
        let looks = u64::from(LOOKS_PER_PING);
        let ping = self.rings.is_multiple_of(looks).then_some(self.rings / looks);
        self.rings += 1;
        let silent = self.all().filter(|(_, watch)| watch.due() <= now);
        let silent = silent.map(|(who, watch)| (who, watch.silence(now))).collect();
        Some(Ring { next, ping, silent })
    }

    fn all(&self) -> impl Iterator<Item = (Watched, &Watch)> {
        let agents = self.agents.iter().map(|(agent, watch)| (Watched::Agent(*agent), watch));
        let ranks = (0..).map(Rank).zip(&self.ranks);
        agents.chain(ranks.filter_map(|(rank, watch)| Some((Watched::Rank(rank), watch.as_ref()?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: Duration = Duration::from_millis(400);

    /// Rings on time for ten ping intervals, in which only rank 2 is heard. Tells the pings and who is silent
    /// at the end.
    fn ten_intervals(liveness: &mut Liveness, mut next: Timestamp) -> (Vec<u64>, Vec<Watched>) {
        let (end, mut pings) = (next + PING * 10, Vec::new());
        loop {
            liveness.hear(next, Watched::Rank(Rank(2)));
            let ring = liveness.ring(next).expect("it has begun");
            pings.extend(ring.ping);
            if ring.next > end {
                return (pings, ring.silent.into_iter().map(|(who, _)| who).collect());
            }
            next = ring.next;
        }
    }

    #[test]
    fn who_is_not_heard_is_silent_agents_first() {
        let mut liveness = Liveness::default();
        assert!(liveness.ring(Timestamp::ZERO).is_none(), "not everyone is here");
        let [early, late] = [AgentId(1), AgentId(2)].map(Watched::Agent);
        liveness.watch(Timestamp::ZERO, early);
        let ranks = || (0..4).map(Rank).map(Watched::Rank);
        let first = liveness.begin(Timestamp::ZERO, PING, ranks());
        liveness.watch(Timestamp::ZERO, late);
        liveness.forget(Watched::Rank(Rank(3)));
        let (pings, silent) = ten_intervals(&mut liveness, first);
        assert_eq!(silent, [late, Watched::Rank(Rank(0)), Watched::Rank(Rank(1))]);
        assert_eq!(pings, (0..=10).collect::<Vec<_>>(), "one for each interval");
    }
}
