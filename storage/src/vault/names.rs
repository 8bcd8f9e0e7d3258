//! Whose a vault is, which of its files is meant, and how generations are counted.

use std::fmt;

use everfold_protocol::{JobId, Rank};

/// Whose vault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Job of the rank.
    pub job: JobId,
    /// The rank, in whichever incarnation.
    pub rank: Rank,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, format_args!("{:?}", self.job))
    }
}

/// Number of a checkpoint. 0 is the beginning of the rank, before its first checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// Before the first checkpoint.
    pub const BEGINNING: Self = Self(0);

    /// The generation after this one.
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.0)
    }
}

/// The generation in force as bytes: its file from the beginning on, up to this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Which generation.
    pub generation: Generation,
    /// Up to and with the byte that says that its log ends.
    pub bytes: u64,
}

/// One of the two files of a vault. Each holds one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The first of the two.
    First,
    /// The second of the two.
    Second,
}

impl Half {
    /// Both, in order.
    pub(super) const BOTH: [Self; 2] = [Self::First, Self::Second];

    pub(super) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Second => "second",
        })
    }
}
