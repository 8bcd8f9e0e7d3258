//! Recovery segments in a schedule, as plain data.

use everfold_protocol::{Path, Rank, spec::Protection};
use everfold_segment::grains::Grains;
use serde::{Deserialize, Serialize};

use super::{CallAt, is_default};

/// A recovery segment, and when each rank calls it for the first time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedSegment {
    /// Its name.
    pub name: String,
    /// How many indices there are.
    pub indices: u64,
    /// How many of them are folded in one go.
    pub grain: u64,
    /// Whether grains meet as a tree says.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fixed: bool,
    /// Whether slow ranks are relieved.
    #[serde(default, skip_serializing_if = "is_default")]
    pub balance: bool,
    /// After how many grains each rank leaves its progress.
    #[serde(default, skip_serializing_if = "is_default")]
    pub progress: Option<u64>,
    /// How often it is called in a row; the dead leave the group.
    pub times: u64,
    /// Time that a rank takes for a grain.
    pub grain_us: u64,
    /// Ranks that take eight times as long in every other 10 ms.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slow: Vec<u32>,
    /// What of a contribution outlives its owner.
    pub protection: Protection,
    /// How long a round may take from its first call on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deadline_us: Option<u64>,
    /// Whether bodies travel in messages.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inline: bool,
    /// Who calls it, and when.
    pub calls: Vec<CallAt>,
}

impl PlannedSegment {
    /// Who takes part.
    pub fn group(&self) -> Path {
        self.calls.iter().map(|call| Rank(call.rank)).collect()
    }

    /// How the indices are cut.
    pub(crate) fn grains(&self) -> Grains {
        Grains::new(0..self.indices, Some(self.grain))
            .expect("a schedule that is executed has indices and grains")
    }
}
