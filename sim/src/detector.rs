//! Detectors as a programmer may add them, whose choices are drawn.

use std::time::Duration;

use everfold_master::recovery::{Candidate, Chain, Death, Detector, Recovery, Seen};
use everfold_protocol::{AgentId, ProcessId, Timestamp};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// How often a detector wants to be woken.
const WAKES: u32 = 8;
/// Longest time from one wake-up to the next, in microseconds.
const WAKE_US: u64 = 20_000;

/// Draws what it chooses, for no reason.
#[derive(Debug)]
struct Drawn {
    random: ChaCha8Rng,
    wakes: u32,
    due: Option<Timestamp>,
    seen: Timestamp,
}

/// The detectors of a world, decided by its seed.
pub(crate) fn drawn(seed: u64) -> Vec<Box<dyn Detector>> {
    let detector = |stream| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        let due = random.random_bool(0.5).then_some(Timestamp::ZERO);
        Box::new(Drawn { random, wakes: 0, due, seen: Timestamp::ZERO }) as Box<dyn Detector>
    };
    [18, 19].map(detector).into()
}

impl Drawn {
    /// Time does not run back, whatever it is told.
    fn note(&mut self, now: Timestamp) {
        assert!(self.seen <= now, "time runs back");
        self.seen = now;
    }
}

impl Detector for Drawn {
    fn judge(&mut self, now: Timestamp, _: &Death) -> Option<Chain> {
        self.note(now);
        if self.random.random_bool(0.4) {
            return None;
        }
        let mut recoveries = [Recovery::Restart, Recovery::Migrate, Recovery::Promote];
        recoveries.shuffle(&mut self.random);
        let count = if self.random.random_bool(0.8) { 3 } else { self.random.random_range(1..=2) };
        let mut recoveries = recoveries[..count].to_vec();
        if self.random.random_bool(0.1) {
            recoveries.insert(self.random.random_range(0..=count), Recovery::Ignore);
        }
        Chain::new(&recoveries)
    }

    fn choose_host(
        &mut self,
        now: Timestamp,
        _: ProcessId,
        _: AgentId,
        hosts: &[Candidate<'_>],
    ) -> Option<AgentId> {
        self.note(now);
        match self.random.random_range(0..10) {
            0..4 => None,
            // None of them.
            4 => Some(AgentId(u64::MAX)),
            _ if hosts.is_empty() => None,
            _ => Some(hosts[self.random.random_range(0..hosts.len())].agent),
        }
    }

    fn see(&mut self, now: Timestamp, _: Seen<'_>) {
        self.note(now);
    }

    fn wake_at(&self) -> Option<Timestamp> {
        self.due
    }

    fn wake(&mut self, now: Timestamp) {
        self.note(now);
        assert!(self.due.is_some_and(|due| due <= now), "nobody is woken too early");
        self.wakes += 1;
        let pause = Duration::from_micros(self.random.random_range(0..WAKE_US));
        self.due = (self.wakes < WAKES).then(|| now + pause);
    }
}
