//! What a process keeps of others.

use std::collections::BTreeSet;

use everfold_protocol::{Rank, SegmentId};

/// Copies of other ranks' originals, by segment.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    /// Whose originals, and what of them. When the keeper has died, what it kept at that moment.
    kept: BTreeSet<(Rank, SegmentId)>,
    /// Those of them that are not what was copied any more.
    damaged: BTreeSet<(Rank, SegmentId)>,
}

impl Replicas {
    /// Makes a copy, which is whole.
    pub fn keep(&mut self, owner: Rank, segment: SegmentId) {
        self.damaged.remove(&(owner, segment));
        self.kept.insert((owner, segment));
    }

    /// Whether there is a copy, whole or not.
    pub fn has(&self, owner: Rank, segment: SegmentId) -> bool {
        self.kept.contains(&(owner, segment))
    }

    /// Whether there is a copy that is whole.
    pub fn has_whole(&self, owner: Rank, segment: SegmentId) -> bool {
        self.has(owner, segment) && !self.is_damaged(owner, segment)
    }

    /// Damages a copy.
    pub fn damage(&mut self, owner: Rank, segment: SegmentId) {
        self.damaged.insert((owner, segment));
    }

    /// Damages all copies that there are by now.
    pub fn damage_all(&mut self) {
        self.damaged.clone_from(&self.kept);
    }

    /// Whether a copy is not what was copied any more.
    pub fn is_damaged(&self, owner: Rank, segment: SegmentId) -> bool {
        self.damaged.contains(&(owner, segment))
    }
}
