//! What it takes at least: the physical lower bound of an exercise.
//!
//! - Links: what enters or leaves each host, over the rate of its link, plus one message. A link that has
//!   been idle lets more pass at once, its bucket; repetitions follow each other, so that counts only if
//!   ranks are late.
//! - One host: the time in which all cores do nothing but read the bodies and write the results.
//!
//! Under a moving load, each repetition has a bound of its own: it depends on the moment.

use super::{
    case::{Case, Exercise},
    place::{Moves, Place, SLOWER},
    team::Repetition,
};
use crate::{bench::bound::memory_traffic, cluster::BURST_BYTES};

/// Below this, one host is bound by latency: peers are the only measure.
const TRAFFIC_COUNTS: u64 = 64 << 10;

/// The bound of an exercise in a place.
#[derive(Debug)]
pub struct Bound<'a> {
    /// What is measured.
    pub exercise: &'a Exercise,
    /// Where the load is meanwhile, if there is one that moves.
    pub moves: &'a Moves,
    kind: Kind<'a>,
}

#[derive(Debug)]
enum Kind<'a> {
    Links { place: &'a Place, bytes_per_s: f64 },
    Memory { traffic_s: Option<f64> },
}

impl<'a> Bound<'a> {
    /// Measures what the machine can do, if that is what counts.
    pub fn new(exercise: &'a Exercise, place: &'a Place, moves: &'a Moves) -> Self {
        let kind = match place.link_bytes_per_s() {
            Some(bytes_per_s) => Kind::Links { place, bytes_per_s },
            None => {
                // If some are late, the others have been folded; the last body meets what is there.
                let bodies = match exercise.case {
                    Case::Late => 2,
                    // Each writes the result, too; writing a body takes as long as reading one, at least.
                    Case::Allreduce | Case::Allgather | Case::Exchange | Case::Broadcast => {
                        2 * place.ranks - 1
                    }
                    _ => place.ranks,
                };
                let traffic_s =
                    || memory_traffic(bodies, exercise.bytes).as_secs_f64() * f64::from(exercise.count);
                Kind::Memory { traffic_s: (exercise.bytes >= TRAFFIC_COUNTS).then(traffic_s) }
            }
        };
        Self { exercise, moves, kind }
    }

    /// The bound of a repetition, in seconds, if there is one.
    pub fn of(&self, repetition: &Repetition) -> Option<f64> {
        let reduce_s = match self.kind {
            Kind::Memory { traffic_s } => traffic_s,
            Kind::Links { place, bytes_per_s } => {
                let needed = (0..place.ranks).map(|rank| self.link_s(place, rank, bytes_per_s, repetition));
                Some(needed.fold(0.0, f64::max) + place.message_s())
            }
        };
        reduce_s.map(|reduce_s| reduce_s.max(self.exercise.compute_us as f64 / 1e6))
    }

    /// How long the link of a rank is busy, in seconds.
    fn link_s(&self, place: &Place, rank: u32, bytes_per_s: f64, repetition: &Repetition) -> f64 {
        let bytes = self.exercise.link_bytes(place.ranks, rank);
        match self.exercise.case {
            Case::SlowLink if rank == place.slow_rank() => bytes as f64 / bytes_per_s * SLOWER as f64,
            Case::MovingLoad => {
                transfer_s(bytes as f64, bytes_per_s, repetition.started_ns(), rank, &self.moves.all())
            }
            Case::Late => bytes.saturating_sub(BURST_BYTES) as f64 / bytes_per_s,
            _ => bytes as f64 / bytes_per_s,
        }
    }
}

/// How long `bytes` take over the link of `rank`, whose rate is `bytes_per_s` but while the load is there.
fn transfer_s(bytes: f64, bytes_per_s: f64, started_ns: u64, rank: u32, moves: &[(u64, u32)]) -> f64 {
    let first = moves.partition_point(|(since, _)| *since <= started_ns).saturating_sub(1);
    let (mut left, mut at_ns) = (bytes, started_ns);
    for (index, (_, loaded)) in moves.iter().enumerate().skip(first) {
        let bytes_per_s = if *loaded == rank { bytes_per_s / SLOWER as f64 } else { bytes_per_s };
        let end_ns = moves.get(index + 1).map_or(u64::MAX, |(since, _)| *since);
        let passed = bytes_per_s * end_ns.saturating_sub(at_ns) as f64 / 1e9;
        if passed >= left {
            return (at_ns - started_ns) as f64 / 1e9 + left / bytes_per_s;
        }
        (left, at_ns) = (left - passed, end_ns);
    }
    left / bytes_per_s
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
