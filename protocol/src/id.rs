//! Names of things. Each is its own type, so that a rank is never taken for a count.

use core::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

number!(
    /// Index of a process in the job, `0..p`.
    Rank(u32), "r{}"
);
number!(
    /// How often a rank has been started again.
    Incarnation(u32), "i{}"
);
number!(
    /// Number of the membership view: grows with every process that is declared failed.
    Epoch(u64), "e{}"
);
number!(
    /// Distinguishes jobs that share a machine or a network.
    JobId(u64), "job-{:016x}"
);
number!(
    /// An agent of the job, drawn at random when it starts.
    AgentId(u64), "agent-{:016x}"
);
number!(
    /// Position of a segment in its body, `0..segments`.
    SegmentIndex(u32), "s{}"
);
number!(
    /// A task of one master, never reused.
    TaskId(u64), "t{}"
);
number!(
    /// A window of one process. Released ones are used again, told apart by their generation.
    WindowId(u64), "w{}"
);
number!(
    /// Which publication of its process a window belongs to; a reader compares it before and after reading.
    Generation(u64), "g{}"
);
number!(
    /// Offset in bytes into a process's region of shared memory.
    RegionOffset(u64), "+{}"
);

impl Rank {
    /// The rank as an index into per-rank tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<Rank> for u32 {
    fn from(rank: Rank) -> Self {
        rank.0
    }
}

impl From<Rank> for u64 {
    fn from(rank: Rank) -> Self {
        rank.0.into()
    }
}

impl From<Rank> for f64 {
    fn from(rank: Rank) -> Self {
        rank.0.into()
    }
}

impl PartialEq<u32> for Rank {
    fn eq(&self, other: &u32) -> bool {
        self.0 == *other
    }
}

impl Epoch {
    /// The epoch after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A rank in one of its lives. This, and never the rank alone, names a sender on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ProcessId {
    /// Index in the job.
    pub rank: Rank,
    /// Which life of that rank.
    pub incarnation: Incarnation,
}

impl ProcessId {
    /// The first life of `rank`.
    pub fn first(rank: impl Into<Rank>) -> Self {
        Self { rank: rank.into(), incarnation: Incarnation(0) }
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{}", self.rank, self.incarnation)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}.{}", self.rank, self.incarnation)
    }
}

/// A reduction: the hash of its name and how often that name was used before.
///
/// All ranks compute the same value without asking anyone. The name itself travels once, with the
/// contribution, so that two names with one hash are found out instead of being mixed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReductionId {
    /// xxh3 of the name.
    pub name: u64,
    /// Automatic sequence number of that name on the calling rank, from 0.
    pub sequence: u64,
}

impl ReductionId {
    /// The `sequence`-th reduction called `name`.
    pub fn new(name: &str, sequence: u64) -> Self {
        Self { name: xxhash_rust::xxh3::xxh3_64(name.as_bytes()), sequence }
    }

    /// The id under which teams try to do it; see [`crate::team`].
    pub fn in_teams(self) -> Self {
        Self { sequence: self.sequence | IN_TEAMS, ..self }
    }

    /// Whether it is the id of an attempt in teams.
    pub fn is_in_teams(self) -> bool {
        self.sequence & IN_TEAMS != 0
    }

    /// The id under which the application knows it.
    pub fn called(self) -> Self {
        Self { sequence: self.sequence & !IN_TEAMS, ..self }
    }
}

/// Marks the sequence numbers of attempts in teams.
const IN_TEAMS: u64 = 1 << 63;

impl fmt::Debug for ReductionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let teams = if self.is_in_teams() { " in teams" } else { "" };
        write!(f, "{:08x}#{}{teams}", self.name >> 32, self.called().sequence)
    }
}

/// The unit of scheduling: one segment of one reduction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentId {
    /// Whose segment.
    pub reduction: ReductionId,
    /// Which one.
    pub index: SegmentIndex,
}

impl SegmentId {
    /// Comes before all others.
    pub const LEAST: Self = Self { reduction: ReductionId { name: 0, sequence: 0 }, index: SegmentIndex(0) };
}

impl fmt::Debug for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}", self.reduction, self.index)
    }
}

/// A contiguous part of a body, in bytes; whole elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// Number of bytes.
    pub len: u64,
}

impl ByteRange {
    /// The byte after the last, or as far as numbers go.
    pub fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_others_name_ends_where_numbers_end() {
        assert_eq!(ByteRange { start: 3, len: 4 }.end(), 7);
        assert_eq!(ByteRange { start: u64::MAX, len: 4 }.end(), u64::MAX);
    }
}
