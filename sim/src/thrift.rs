//! Copies that are ordered, and which of them nobody needed.

use std::collections::BTreeMap;

use everfold_protocol::{
    Path, Rank, ReductionId, SegmentId, SegmentIndex,
    message::{Keep, PartialReady, ToMaster, ToWorker},
};

/// Copies of originals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    /// By segment, whose contributions others hold, as far as the master has heard, or have been told to
    /// copy.
    safe: BTreeMap<SegmentId, Path>,
    /// Segments of originals that were to be copied, and of these those that were in other hands before.
    ordered: BTreeMap<ReductionId, (u64, u64)>,
}

impl Copies {
    /// Takes in what the master hears.
    pub fn hear(&mut self, sender: Rank, message: &ToMaster) {
        if let ToMaster::PartialReady(PartialReady { segment, path, .. }) = message {
            path.iter().filter(|rank| *rank != sender).for_each(|rank| _ = self.add(*segment, rank));
        }
    }

    /// Takes in what the master says.
    pub fn order(&mut self, message: &ToWorker) {
        let ToWorker::Keep(Keep { reduction, source, segments, .. }) = message else { return };
        for index in segments.clone().map(SegmentIndex) {
            let is_new = self.add(SegmentId { reduction: *reduction, index }, source.process.rank);
            let (ordered, in_vain) = self.ordered.entry(*reduction).or_default();
            *ordered += 1;
            *in_vain += u64::from(!is_new);
        }
    }

    /// Returns whether it is new that somebody else holds it.
    fn add(&mut self, segment: SegmentId, owner: Rank) -> bool {
        self.safe.entry(segment).or_default().insert(owner).is_ok()
    }

    /// Segments of originals that were to be copied, and of these those that were in other hands before.
    pub fn of(&self, reduction: ReductionId) -> (u64, u64) {
        self.ordered.get(&reduction).copied().unwrap_or_default()
    }
}
