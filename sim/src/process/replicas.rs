//! What a process keeps of others.

use std::collections::{BTreeMap, BTreeSet};

use everfold_protocol::{Rank, SegmentId};

/// Copies of other ranks' originals, by segment.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    /// Whose originals, and what of them; and whether it lies in the region, where it outlives the keeper. When
    /// the keeper has died, what it kept at that moment.
    kept: BTreeMap<(Rank, SegmentId), bool>,
    /// Those of them that are not what was copied any more.
    damaged: BTreeSet<(Rank, SegmentId)>,
    /// Those of them that have arrived damaged.
    doubtful: BTreeSet<(Rank, SegmentId)>,
}

impl Replicas {
    /// Makes a copy, which is whole.
    pub fn keep(&mut self, owner: Rank, segment: SegmentId, in_region: bool) {
        self.damaged.remove(&(owner, segment));
        self.doubtful.remove(&(owner, segment));
        self.kept.insert((owner, segment), in_region);
    }

    /// Whether there is a copy, whole or not.
    pub fn has(&self, owner: Rank, segment: SegmentId) -> bool {
        self.kept.contains_key(&(owner, segment))
    }

    /// Whether there is a copy that outlives the keeper, whole or not.
    pub fn outlives(&self, owner: Rank, segment: SegmentId) -> bool {
        self.kept.get(&(owner, segment)).is_some_and(|in_region| *in_region)
    }

    /// Whether there is a copy that is whole, as far as its readers know.
    pub fn has_whole(&self, owner: Rank, segment: SegmentId) -> bool {
        let is_doubtful = self.doubtful.contains(&(owner, segment));
        self.has(owner, segment) && !self.is_damaged(owner, segment) && !is_doubtful
    }

    /// Notes that a copy has arrived damaged.
    pub fn doubt(&mut self, owner: Rank, segment: SegmentId) {
        self.doubtful.insert((owner, segment));
    }

    /// Damages a copy.
    pub fn damage(&mut self, owner: Rank, segment: SegmentId) {
        self.damaged.insert((owner, segment));
    }

    /// Damages all copies that there are by now.
    pub fn damage_all(&mut self) {
        self.damaged = self.kept.keys().copied().collect();
    }

    /// Whether a copy is not what was copied any more.
    pub fn is_damaged(&self, owner: Rank, segment: SegmentId) -> bool {
        self.damaged.contains(&(owner, segment))
    }
}
