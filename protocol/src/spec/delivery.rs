//! Who receives the result.

use alloc::{string::ToString, vec::Vec};
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::id::Rank;

/// Who receives the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// One rank (`MPI_Reduce`), which folds the others' contributions into its own. If it dies, nobody
    /// receives the result.
    Root(Rank),
    /// The first of these ranks that lives when the result is there. It is folded anywhere and copied to that
    /// rank.
    FirstOf(Vec<Rank>),
    /// Every rank of the group (`MPI_Allreduce`).
    All,
}

impl Delivery {
    /// The rank in whose hands the result arises, if that is decided beforehand.
    pub fn root(&self) -> Option<Rank> {
        match self {
            Self::Root(rank) => Some(*rank),
            Self::FirstOf(_) | Self::All => None,
        }
    }

    /// The only rank that can receive the result, if there is one.
    pub fn receiver(&self) -> Option<Rank> {
        match self.candidates() {
            [rank] => Some(*rank),
            _ => None,
        }
    }

    /// The ranks that may come to receive the result, where not all do.
    pub fn candidates(&self) -> &[Rank] {
        match self {
            Self::Root(rank) => core::slice::from_ref(rank),
            Self::FirstOf(ranks) => ranks,
            Self::All => &[],
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(rank) => write!(f, "root {rank}"),
            Self::FirstOf(ranks) => {
                let ranks: Vec<_> = ranks.iter().map(Rank::to_string).collect();
                write!(f, "the first living of {}", ranks.join(", "))
            }
            Self::All => f.write_str("all ranks"),
        }
    }
}
