//! Why a recovery segment ended without a value.

use std::ops::Range;

use everfold_protocol::Path;
use everfold_segment::{grains::GrainsError, indices::Indices, ledger::LedgerError};

use crate::error::ReduceError;

/// Why a recovery segment ended without a value at this rank.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// There is nothing to compute. Nobody else has heard of the call.
    #[error("a recovery segment needs indices, and {}..{} has none", indices.start, indices.end)]
    NoIndices {
        /// What was given.
        indices: Range<u64>,
    },
    /// Grains have no indices. Nobody else has heard of the call.
    #[error("a grain of a recovery segment needs at least one index: give `grain` a number from 1 on")]
    NoGrain,
    /// One of the reductions at the end of the segment's rounds ended without a value.
    #[error(transparent)]
    Reduce(#[from] ReduceError),
    /// Two ranks have computed the same indices, so there is no value in which each counts once.
    #[error(
        "indices from {index} on were computed by two ranks of one recovery segment; ranks have to agree \
         on the group (`among`) and on the calls before it"
    )]
    Twice {
        /// The first such index.
        index: u64,
    },
    /// Nobody is left who could compute the rest: the contributions of all ranks that live could not be read.
    #[error("indices {indices} of the recovery segment are missing, and no rank is left to compute them")]
    Incomplete {
        /// What is missing.
        indices: Indices,
    },
    /// Of the ranks that have computed a serial recovery segment, no more than half have found the same.
    #[error(
        "ranks have computed different values in a serial recovery segment, and none of them has a majority: {}",
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" against ")
    )]
    NoMajority {
        /// The ranks that have found the same, for each value.
        found: Vec<Path>,
    },
}

impl From<GrainsError> for SegmentError {
    fn from(error: GrainsError) -> Self {
        match error {
            GrainsError::NoIndices { indices } => Self::NoIndices { indices },
            GrainsError::NoGrain => Self::NoGrain,
        }
    }
}

impl From<LedgerError> for SegmentError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Twice { index } => Self::Twice { index },
            LedgerError::Incomplete { indices } => Self::Incomplete { indices },
        }
    }
}
