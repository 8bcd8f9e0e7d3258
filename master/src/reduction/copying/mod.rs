//! When an original gets its replica (DR-9). Which keeper is asked for it is in `orders`.
//!
//! A contribution is safe from its owner's death as soon as another process has folded it: a partial that
//! holds it stays where it is, also when others have read it. To copy it would take as long as to fold it. So
//! copies are made where folding does not make contributions safe in time: while a reduction waits for late
//! ranks, when links have nothing else to carry, and while it has made no progress for long, although it is
//! its turn. In its first moments nothing is copied: a short reduction is over by then. If all ranks are on
//! one host, contributions in memory that outlives its process wait longer: their copies only help if the
//! process freezes. Between hosts they also help if the host is lost.
//!
//! Copies are ordered from each owner's keeper in small portions, the last segments first, as executors begin
//! with the first. Under [`Protection::CommitFirst`] the orders go out at once, and a contribution counts
//! when all of it is acknowledged. If its process dies before, the keeper copies what its agent holds.
//!
//! A copy counts from its acknowledgement on (I5). `keepers` chooses its keeper, and the next one if that one
//! cannot. Taking in an acknowledgement takes the same time however large the group is.

mod orders;

use alloc::{collections::BTreeMap, sync::Arc};
use core::time::Duration;

use everfold_protocol::{Path, ProcessId, Rank, Timestamp, message::Data, spec::Protection};

use super::Reduction;
use crate::{keepers::Keepers, membership::Membership, policy::COPY_WAIT, queue::Ready, tries::RETRY_PAUSE};

/// How far the copies of one reduction's originals are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copying {
    /// Whether it is time for copies.
    begun: bool,
    /// The time of the next look whether copies are to be ordered: one look for all contributions until then.
    look: Option<Timestamp>,
    keepers: Keepers,
    /// Originals that wait for their replica before they count.
    uncommitted: BTreeMap<Rank, Arc<Ready>>,
}

impl Copying {
    /// Takes in that `owner` has contributed an original that may need a copy, in this many segments.
    pub(super) fn add(&mut self, now: Timestamp, owner: Rank, segments: u32) {
        self.keepers.add(now, owner, segments);
    }

    /// Lets an original wait for its replica before it counts.
    pub(super) fn hold(&mut self, original: Arc<Ready>) {
        self.uncommitted.insert(original.process.rank, original);
    }

    /// The original of `owner`, if it waits for its replica.
    pub(super) fn held(&self, owner: Rank) -> Option<&Arc<Ready>> {
        self.uncommitted.get(&owner)
    }

    /// Whether originals wait for their replicas.
    pub(super) fn holds_some(&self) -> bool {
        !self.uncommitted.is_empty()
    }

    /// Whose originals wait for their replicas.
    pub(super) fn all_held(&self) -> Path {
        self.uncommitted.keys().copied().collect()
    }

    /// Takes in that the group goes on without `ranks`.
    pub(super) fn go_without(&mut self, ranks: &Path) {
        self.uncommitted.retain(|rank, _| !ranks.contains(*rank));
        self.keepers.place_anew();
    }

    /// When owners are looked after next.
    pub(super) fn due(&self) -> impl Iterator<Item = (Timestamp, Rank)> + '_ {
        self.keepers.due()
    }
}

impl Reduction {
    /// Whether originals are to be copied at all.
    pub(crate) fn wants_copies(&self) -> bool {
        self.spec.protection > Protection::None && !self.inline
    }

    /// How long the copy of `owner`'s original can wait.
    pub(crate) fn copy_wait(&self, owner: Rank, ping_interval: Duration) -> Duration {
        let outlives = |original: &Arc<Ready>| {
            let window = match &original.data {
                Data::Window(window) => Some(window),
                _ => None,
            };
            self.share_memory && window.is_some_and(|window| window.place.outlives_its_process())
        };
        match self.spec.protection {
            Protection::CommitFirst => Duration::ZERO,
            _ if self.originals.get(&owner).is_some_and(outlives) => ping_interval,
            _ => ping_interval / COPY_WAIT,
        }
    }

    /// Lets it be looked `at` that time whether copies are to be ordered. Returns whether that is not to be
    /// done before anyway: each look takes as long as there are originals.
    pub(crate) fn look_for_copies(&mut self, at: Timestamp) -> bool {
        let is_new = self.copying.look.is_none_or(|look| at < look);
        self.copying.look = self.copying.look.filter(|_| !is_new).or(Some(at));
        is_new
    }

    /// Looks whether it is time for copies. Returns when to look again if it is not: something may come of it
    /// meanwhile, or it may wait until its workers, if they are `busy`, are done with older reductions.
    pub(crate) fn begin_copies(
        &mut self,
        now: Timestamp,
        ping_interval: Duration,
        busy: impl FnOnce(&Path) -> bool,
    ) -> Option<Timestamp> {
        self.copying.look.take_if(|look| *look <= now);
        let later = self.last_progress + ping_interval;
        let is_queued = self.is_folding()
            && self.tasks().next().is_none()
            && self.segments.iter().all(|segment| segment.suspended.is_empty())
            && busy(&self.group);
        self.copying.begun = !self.is_folding() || (now >= later && !is_queued);
        (!self.copying.begun).then(|| if now < later { later } else { now + ping_interval.max(RETRY_PAUSE) })
    }

    /// Orders no more copies for the time being if folding goes on. Returns whether it did before.
    pub(crate) fn pause_copies(&mut self) -> bool {
        let pauses = self.copying.begun && self.is_folding();
        self.copying.begun &= !pauses;
        pauses
    }

    /// Whether links have better to carry than copies.
    fn is_folding(&self) -> bool {
        self.arrived == self.group && self.spec.protection != Protection::CommitFirst
    }

    /// Whether copies are ordered as soon as a rank has contributed.
    pub(crate) fn copies_at_once(&self) -> bool {
        self.spec.protection == Protection::CommitFirst
    }

    /// Takes in that `dead` makes no copies any more. Its copies and folds stay as long as they can be read.
    pub(crate) fn lose_keeper(&mut self, dead: ProcessId, members: &Membership) {
        self.copying.keepers.lose(dead);
        for segment in &mut self.segments {
            segment.keep_replicas(|copy| copy.process != dead || members.readable(copy, self.share_memory));
            let is_gone = |held: &Arc<Ready>| !members.readable(held, self.share_memory);
            if segment.held.get(&dead.rank).is_some_and(is_gone) {
                segment.held.remove(&dead.rank);
            }
        }
    }

    /// Lets a contribution take part that waited for its copy. Returns whether it did wait.
    pub(crate) fn commit(&mut self, rank: Rank) -> bool {
        let Some(original) = self.copying.uncommitted.remove(&rank) else { return false };
        self.enter(&original);
        true
    }

    /// Contributors whose contributions are in another process's hands, too.
    pub(crate) fn protected(&self) -> Path {
        let is_inlined = |rank: &Rank| self.originals.get(rank).is_some_and(|original| original.is_inline());
        let kept =
            self.segments.iter().fold(self.group.clone(), |kept, segment| kept.intersection(&segment.safe()));
        self.group.iter().filter(|rank| is_inlined(rank) || kept.contains(*rank)).collect()
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        Generation, ReductionId, ReductionSpec, RegionOffset, SegmentId, SegmentIndex, TaskId, WindowId,
        message::{PartialReady, Place, TaskCounters, WindowRef},
        spec::{BodyKind, ElementType, Operation},
    };

    use super::*;
    use crate::{
        lane::Load,
        lengths::Cut,
        reduction::testing::{self, process},
        task::Grant,
    };

    fn window() -> Data {
        let place = Place::Region(RegionOffset(0));
        let (window, generation) = (WindowId(0), Generation(1));
        Data::Window(WindowRef { window, generation, bytes: 1 << 20, checksum: None, place })
    }

    #[test]
    fn what_goes_on_is_not_copied() {
        let interval = Duration::from_millis(500);
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        let (element, operation) = (ElementType::U8, Operation::Sum);
        let kind = BodyKind::Array { element, operation, length: 1 << 20 };
        let spec = ReductionSpec { protection: Protection::Disk, ..testing::spec(2, kind) };
        let mut reduction = testing::reduction(spec, window(), Cut::fixed(1 << 19), true);
        for rank in [0, 1] {
            reduction.arrive(at(0), process(rank), window(), false);
        }
        assert_eq!(reduction.begin_copies(at(100), interval, |_| false), Some(at(500)));
        assert_eq!(reduction.begin_copies(at(500), interval, |_| true), Some(at(1000)), "others go on");
        assert_eq!(
            reduction.begin_copies(at(500), Duration::ZERO, |_| true),
            Some(at(520)),
            "without pings, too"
        );
        assert_eq!(reduction.begin_copies(at(500), interval, |_| false), None, "it has stood still");
        let (index, task) = (SegmentIndex(0), TaskId(0));
        let partials = reduction.take_partners(index, None, |_| crate::queue::Access::Near).unwrap();
        let executor = partials[0].process;
        let (own, sources) = (Some(&partials[0]), &partials[1..]);
        let grant = Grant { task, executor, load: Load::default(), late: at(9000) };
        reduction.start(index, grant, own, sources);
        let segment = SegmentId { reduction: ReductionId::new("x", 0), index };
        let (path, counters) = (Path::range(0, 2), TaskCounters::default());
        let done = PartialReady { task, segment, path, data: window(), counters };
        assert!(reduction.complete(at(600), executor, done).is_some());
        assert!(reduction.pause_copies());
        assert!(!reduction.pause_copies(), "it pauses once");
        assert_eq!(reduction.begin_copies(at(700), interval, |_| false), Some(at(1100)));
        assert_eq!(reduction.begin_copies(at(1100), interval, |_| false), None, "it stands still again");
    }
}
