//! What is measured: the cases, and what physics allows in each.

use clap::{ValueEnum, builder::PossibleValue};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::{
    place::{Disturbance, Place, SLOWER},
    team::Repetition,
};
use crate::{bench::bound, cluster::BURST_BYTES};

/// Below this, one host is bound by latency: peers are the only measure.
const TRAFFIC_COUNTS: u64 = 64 << 10;
/// How late a rank may come.
const LATE_US: u64 = 1_000_000;

/// A case of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    Quiet,
    SlowLink,
    Throttled,
    MovingLoad,
    Late,
    Concurrent,
    Overlap,
}

impl Case {
    /// Its letter, and what it is called.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Quiet => ("a", "nobody disturbed"),
            Self::SlowLink => ("b", "one host's link 10 times slower"),
            Self::Throttled => ("c", "every other rank limited to 25 % of a core"),
            Self::MovingLoad => ("d", "a load that moves from rank to rank every second"),
            Self::Late => ("e", "ranks that come up to 1 s late: time from the last one's call"),
            Self::Concurrent => ("f", "many reductions at once"),
            Self::Overlap => ("g", "ranks that compute meanwhile"),
        }
    }

    /// What disturbs it.
    pub fn disturbance(self) -> Disturbance {
        match self {
            Self::SlowLink => Disturbance::SlowLink,
            Self::Throttled => Disturbance::Throttled,
            Self::MovingLoad => Disturbance::Moving,
            Self::Quiet | Self::Late | Self::Concurrent | Self::Overlap => Disturbance::None,
        }
    }
}

impl ValueEnum for Case {
    fn value_variants<'a>() -> &'a [Self] {
        use Case::*;
        &[Quiet, SlowLink, Throttled, MovingLoad, Late, Concurrent, Overlap]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (letter, help) = self.words();
        Some(PossibleValue::new(letter).help(help))
    }
}

/// What the ranks do in each repetition.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Exercise {
    /// The case.
    pub case: Case,
    /// Size of a body.
    pub bytes: u64,
    /// Reductions at once.
    pub count: u32,
    /// Whether each of them goes to another rank.
    pub rotate: bool,
    /// How long every rank computes meanwhile, in microseconds.
    pub compute_us: u64,
}

impl Exercise {
    /// One reduction after the other.
    pub fn single(case: Case, bytes: u64) -> Self {
        Self { case, bytes, count: 1, rotate: false, compute_us: 0 }
    }

    /// How late `ranks` ranks come in a repetition; the same for all who are compared.
    pub fn delays_us(&self, ranks: u32, round: u64, seed: u64) -> Vec<u64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(round);
        let is_late = self.case == Case::Late;
        (0..ranks).map(|_| if is_late { random.random_range(0..LATE_US) } else { 0 }).collect()
    }

    /// What counts of a repetition, in seconds.
    pub fn seconds(&self, repetition: &Repetition) -> f64 {
        match self.case {
            Case::Late => repetition.since_last_s(),
            _ => repetition.slowest_s(),
        }
    }

    /// What it takes at least in `place`, in seconds, if there is a bound. A repetition under a moving load has one of
    /// its own: it began at `started_ns`, and `moves` tells where the load was.
    ///
    /// Links: what enters or leaves each host, over the rate of its link, plus one message; the message alone if so
    /// little passes that the bucket lets it through at once. One host: the time in
    /// which all cores do nothing but read the bodies and write the results.
    pub fn bound_s(&self, place: &Place, moving: Option<(u64, &[(u64, u32)])>) -> Option<f64> {
        let reduce_s = match place.link_bytes_per_s() {
            None if self.bytes < TRAFFIC_COUNTS => None,
            // Whoever came in time has been folded; the last body meets what is there.
            None if self.case == Case::Late => Some(bound::memory_traffic(2, self.bytes).as_secs_f64()),
            None => {
                Some(f64::from(self.count) * bound::memory_traffic(place.ranks, self.bytes).as_secs_f64())
            }
            Some(rate) => {
                let last_s = (0..place.ranks).map(|rank| {
                    let bytes = self.link_bytes(place, rank);
                    match (self.case, moving) {
                        (Case::SlowLink, _) if rank == place.slow_rank() => bytes / rate * SLOWER as f64,
                        (Case::MovingLoad, Some((started_ns, moves))) => {
                            transfer_s(bytes, rate, started_ns, rank, moves)
                        }
                        _ if bytes <= BURST_BYTES as f64 => 0.0,
                        _ => bytes / rate,
                    }
                });
                Some(last_s.fold(0.0, f64::max) + place.message_s().unwrap_or(0.0))
            }
        };
        reduce_s.map(|reduce_s| reduce_s.max(self.compute_us as f64 / 1e6))
    }

    /// What has to pass the busier direction of a rank's link.
    fn link_bytes(&self, place: &Place, rank: u32) -> f64 {
        let is_root = |number: &u32| rank == if self.rotate { number % place.ranks } else { 0 };
        let received = (0..self.count).filter(is_root).count() as u64;
        (received.max(u64::from(self.count) - received) * self.bytes) as f64
    }
}

/// How long `bytes` take over the link of `rank`, whose rate is `rate` but while the load is there.
fn transfer_s(bytes: f64, rate: f64, started_ns: u64, rank: u32, moves: &[(u64, u32)]) -> f64 {
    let first = moves.partition_point(|(since, _)| *since <= started_ns).saturating_sub(1);
    let (mut left, mut at_ns) = (bytes, started_ns);
    for (index, (_, loaded)) in moves.iter().enumerate().skip(first) {
        let rate = if *loaded == rank { rate / SLOWER as f64 } else { rate };
        let end_ns = moves.get(index + 1).map_or(u64::MAX, |(since, _)| *since);
        let passed = rate * end_ns.saturating_sub(at_ns) as f64 / 1e9;
        if passed >= left {
            return (at_ns - started_ns) as f64 / 1e9 + left / rate;
        }
        (left, at_ns) = (left - passed, end_ns);
    }
    left / rate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_slows_a_link_only_while_it_is_there() {
        let moves = [(0, 0), (1_000_000_000, 1), (2_000_000_000, 0), (3_000_000_000, 1)];
        let about = |bytes: f64, started_ns, rank| {
            (transfer_s(bytes, 100.0, started_ns, rank, &moves) * 1000.0).round()
        };
        assert_eq!(about(50.0, 0, 1), 500.0, "not there");
        assert_eq!(about(50.0, 0, 0), 1400.0, "10 bytes in the first second, 40 in the next");
        assert_eq!(about(5.0, 500_000_000, 0), 500.0, "there all the time");
        assert_eq!(about(105.0, 500_000_000, 0), 1500.0 + 0.0, "slow, fast, done");
    }
}
