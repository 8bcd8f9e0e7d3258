//! What is measured: the cases, and what counts in each.

use clap::{ValueEnum, builder::PossibleValue};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

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
    Allreduce,
    Allgather,
    Exchange,
    Broadcast,
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
            Self::Allreduce => ("h", "allreduce"),
            Self::Allgather => ("i", "allgather, of so much in all"),
            Self::Exchange => ("j", "exchange of even pieces, so much of each rank"),
            Self::Broadcast => ("k", "broadcast"),
        }
    }

    /// Whether nothing is folded.
    pub fn has_pieces(self) -> bool {
        matches!(self, Self::Allgather | Self::Exchange | Self::Broadcast)
    }

    /// What disturbs it.
    pub fn disturbance(self) -> Disturbance {
        match self {
            Self::SlowLink => Disturbance::SlowLink,
            Self::Throttled => Disturbance::Throttled,
            Self::MovingLoad => Disturbance::Moving,
            _ => Disturbance::None,
        }
    }
}

impl ValueEnum for Case {
    fn value_variants<'a>() -> &'a [Self] {
        use Case::*;
        &[
            Quiet, SlowLink, Throttled, MovingLoad, Late, Concurrent, Overlap, Allreduce, Allgather,
            Exchange, Broadcast,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (letter, help) = self.words();
        Some(PossibleValue::new(letter).help(help))
    }
}

/// What disturbs the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing.
    None,
    /// The link of a host in the middle is slower.
    SlowLink,
    /// Every other rank, not the root, has only a part of a core.
    Throttled,
    /// A load that stays with each rank for a second, then moves on to the next.
    Moving,
}

/// What goes to whom. Its number is what ranks are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Roots {
    /// Sums to rank 0.
    One,
    /// Of many sums, each to another rank.
    Rotating,
    /// Sums to every rank.
    All,
    /// Every rank's piece to every rank.
    Allgather,
    /// A piece of every rank to every rank.
    Exchange,
    /// What rank 0 has to every rank.
    Broadcast,
}

impl Roots {
    /// All of them, by number.
    pub const ALL: [Self; 6] =
        [Self::One, Self::Rotating, Self::All, Self::Allgather, Self::Exchange, Self::Broadcast];
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
    /// Where they go.
    pub roots: Roots,
    /// How long every rank computes meanwhile, in microseconds.
    pub compute_us: u64,
}

impl Exercise {
    /// One reduction after the other.
    pub fn single(case: Case, bytes: u64) -> Self {
        let roots = match case {
            Case::Allreduce => Roots::All,
            Case::Allgather => Roots::Allgather,
            Case::Exchange => Roots::Exchange,
            Case::Broadcast => Roots::Broadcast,
            _ => Roots::One,
        };
        Self { case, bytes, count: 1, roots, compute_us: 0 }
    }

    /// A name for files.
    pub fn file_name(&self) -> String {
        let roots = if self.roots == Roots::Rotating { "-all-roots" } else { "" };
        format!("{}-{}x{}{roots}", self.case.words().0, self.count, self.bytes)
    }

    /// How late `ranks` ranks come in a repetition; the same for all who are compared. The root is in time:
    /// were it the last, some would have sent it everything before.
    pub fn delays_us(&self, ranks: u32, round: u64, seed: u64) -> Vec<u64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(round);
        let is_late = self.case == Case::Late;
        let delay_us = |rank| if is_late && rank > 0 { random.random_range(0..LATE_US) } else { 0 };
        (0..ranks).map(delay_us).collect()
    }

    /// What has to pass the busier direction of a rank's link, in bytes.
    pub fn link_bytes(&self, ranks: u32, rank: u32) -> u64 {
        let count = u64::from(self.count);
        let received = match self.roots {
            Roots::One if rank == 0 => count,
            Roots::One => 0,
            Roots::Rotating => (0..self.count).filter(|number| number % ranks == rank).count() as u64,
            // Each sends all but its share for folding, and its share of the result to all others.
            Roots::All => return count * self.bytes * 2 * u64::from(ranks - 1) / u64::from(ranks),
            // Each receives all but what it has, and sends as much.
            Roots::Allgather | Roots::Exchange => {
                return count * self.bytes * u64::from(ranks - 1) / u64::from(ranks);
            }
            Roots::Broadcast => return count * self.bytes,
        };
        received.max(count - received) * self.bytes
    }
}
