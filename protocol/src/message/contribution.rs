//! How a rank or a team enters a reduction, and what comes of a team.

use alloc::{collections::BTreeMap, string::String};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::data::Data;
use crate::{
    id::{ProcessId, Rank, ReductionId, SegmentIndex},
    spec::ReductionSpec,
};

/// One rank's entry into a reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contribution {
    /// Which reduction.
    pub reduction: ReductionId,
    /// The name behind the id.
    pub name: String,
    /// What the caller believes that all agreed on.
    pub spec: ReductionSpec,
    /// Where the original is readable.
    pub data: Data,
}

/// A team's entry into a reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Which attempt.
    pub reduction: ReductionId,
    /// The name behind the id.
    pub name: String,
    /// What the team agrees on.
    pub spec: ReductionSpec,
    /// Length of its segments in bytes.
    pub segment_bytes: u64,
}

/// A segment that holds the contributions of a whole team.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Which.
    pub index: SegmentIndex,
    /// Who holds it.
    pub process: ProcessId,
    /// Where it is readable.
    pub data: Data,
}

/// What a team's tasks have taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// Tasks done by each rank.
    pub tasks_per_worker: BTreeMap<Rank, u64>,
    /// Bytes read from peers.
    pub bytes_moved: u64,
    /// Time spent on tasks, and of that on reading peers, summed over the ranks.
    pub working: Duration,
    #[allow(missing_docs)]
    pub fetching: Duration,
}
