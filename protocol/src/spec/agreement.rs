//! What each rank sends, and the master compares.

use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    aspect::Aspect, body::BodyKind, delivery::Delivery, limits::Limits, order::Order, protection::Protection,
};
use crate::{id::Rank, path::Path, pieces::Pattern};

/// The agreement behind one reduction. Each rank sends its own; the master compares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReductionSpec {
    /// Who takes part.
    pub group: Path,
    /// Who receives the result.
    pub delivery: Delivery,
    /// What is reduced, and how.
    pub kind: BodyKind,
    /// Which operands meet.
    pub order: Order,
    /// How long the reduction may take, counted from its first contribution. Without one it waits for every
    /// rank that lives.
    pub deadline: Option<Duration>,
    /// What of an original outlives its owner.
    pub protection: Protection,
    /// Whether the reduction goes on without contributions that are lost, and says whose they are.
    pub allow_missing: bool,
    /// Whether the report lists every task.
    pub trace: bool,
}

impl ReductionSpec {
    /// The first aspect on which `self` and `other` differ, with both values as text.
    ///
    /// `trace` is no such aspect: a rank that asks for the list of tasks asks for itself.
    pub fn disagreement(&self, other: &Self) -> Option<(Aspect, String, String)> {
        fn differ<T: PartialEq>(
            aspect: Aspect,
            a: &T,
            b: &T,
            show: impl Fn(&T) -> String,
        ) -> Option<(Aspect, String, String)> {
            (a != b).then(|| (aspect, show(a), show(b)))
        }
        let deadline = |d: &Option<Duration>| d.map_or("none".to_owned(), |d| format!("{d:?}"));
        differ(Aspect::Group, &self.group, &other.group, Path::to_string)
            .or_else(|| differ(Aspect::Order, &self.order, &other.order, Order::to_string))
            .or_else(|| differ(Aspect::Delivery, &self.delivery, &other.delivery, Delivery::to_string))
            .or_else(|| self.kind.disagreement(&other.kind))
            .or_else(|| differ(Aspect::Deadline, &self.deadline, &other.deadline, deadline))
            .or_else(|| {
                differ(Aspect::Protection, &self.protection, &other.protection, Protection::to_string)
            })
            .or_else(|| {
                differ(Aspect::AllowMissing, &self.allow_missing, &other.allow_missing, bool::to_string)
            })
    }
}

impl ReductionSpec {
    /// Ranks that are named as receivers of the result, or as its source.
    pub fn named_roots(&self) -> impl Iterator<Item = Rank> + '_ {
        let source = self.kind.pattern().and_then(Pattern::source);
        self.delivery.candidates().iter().copied().chain(source)
    }

    /// Largest contribution that travels inside messages, in bytes. Of pieces that each rank is told, all
    /// together are as long as one body may be.
    pub fn inline_bytes_max(&self, limits: &Limits) -> u64 {
        match self.kind.pattern() {
            Some(Pattern::Gather | Pattern::Scatter(..) | Pattern::Exchange(_)) => {
                limits.inline_bytes_max / (self.group.len() as u64).max(1)
            }
            Some(Pattern::Broadcast(_)) | None => limits.inline_bytes_max,
        }
    }
}
