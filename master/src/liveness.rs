//! Who is heard, and who is silent (DR-8).

use alloc::vec::Vec;
use core::time::Duration;

use everfold_protocol::{
    Rank, Timestamp,
    message::MASTER_RANK,
    watch::{Alarm, Watch},
};

/// How often in a ping interval silence and late tasks are looked for.
const LOOKS_PER_PING: u32 = 4;

/// Signs of life of those who take part, from when all are here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Liveness {
    /// By rank: of none that is not watched.
    watches: Vec<Option<Watch>>,
    alarm: Option<Alarm>,
    rings: u64,
}

/// What follows when the alarm rings.
#[derive(Debug)]
pub(crate) struct Ring {
    /// When it rings next.
    pub next: Timestamp,
    /// The number of the ping that everyone is sent.
    pub ping: Option<u64>,
    /// Who is silent, and for how long.
    pub silent: Vec<(Rank, Duration)>,
}

impl Liveness {
    /// Begins to watch `ranks`, but for the one that hosts the master. Returns when the alarm rings first.
    pub fn begin(
        &mut self,
        now: Timestamp,
        ping_interval: Duration,
        ranks: impl Iterator<Item = Rank>,
    ) -> Timestamp {
        let watch = Watch::new(now, ping_interval);
        for rank in ranks.filter(|rank| *rank != MASTER_RANK) {
            self.watches.resize(self.watches.len().max(rank.index() + 1), None);
            self.watches[rank.index()] = Some(watch.clone());
        }
        self.alarm.insert(Alarm::new(now, ping_interval / LOOKS_PER_PING)).due()
    }

    /// Takes in a sign of life.
    pub fn hear(&mut self, now: Timestamp, rank: Rank) {
        if let Some(Some(watch)) = self.watches.get_mut(rank.index()) {
            watch.hear(now);
        }
    }

    /// Watches `rank` no longer.
    pub fn forget(&mut self, rank: Rank) {
        if let Some(watch) = self.watches.get_mut(rank.index()) {
            *watch = None;
        }
    }

    /// Takes in that the alarm rings. What the master slept through is forgiven to everyone.
    pub fn ring(&mut self, now: Timestamp) -> Option<Ring> {
        let alarm = self.alarm.as_mut()?;
        let asleep = alarm.ring(now).unwrap_or_default();
        let next = alarm.due();
        if !asleep.is_zero() {
            self.watches.iter_mut().flatten().for_each(|watch| watch.forgive(now, asleep));
        }
        let looks = u64::from(LOOKS_PER_PING);
        let ping = self.rings.is_multiple_of(looks).then_some(self.rings / looks);
        self.rings += 1;
        let watched = (0..).map(Rank).zip(&self.watches);
        let watched = watched.filter_map(|(rank, watch)| Some((rank, watch.as_ref()?)));
        let silent = watched.filter(|(_, watch)| watch.due() <= now);
        let silent = silent.map(|(rank, watch)| (rank, watch.silence(now))).collect();
        Some(Ring { next, ping, silent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: Duration = Duration::from_millis(400);

    /// Rings on time for ten ping intervals, in which only rank 2 is heard. Tells the pings and who is silent
    /// at the end.
    fn ten_intervals(liveness: &mut Liveness, mut next: Timestamp) -> (Vec<u64>, Vec<Rank>) {
        let (end, mut pings) = (next + PING * 10, Vec::new());
        loop {
            liveness.hear(next, Rank(2));
            let ring = liveness.ring(next).expect("it has begun");
            pings.extend(ring.ping);
            if ring.next > end {
                return (pings, ring.silent.into_iter().map(|(rank, _)| rank).collect());
            }
            next = ring.next;
        }
    }

    #[test]
    fn who_is_not_heard_is_silent_but_for_the_rank_of_the_master() {
        let mut liveness = Liveness::default();
        assert!(liveness.ring(Timestamp::ZERO).is_none(), "not everyone is here");
        let first = liveness.begin(Timestamp::ZERO, PING, (0..4).map(Rank));
        liveness.forget(Rank(3));
        let (pings, silent) = ten_intervals(&mut liveness, first);
        assert_eq!(silent, [Rank(1)]);
        assert_eq!(pings, (0..=10).collect::<Vec<_>>(), "one for each interval");
    }
}
