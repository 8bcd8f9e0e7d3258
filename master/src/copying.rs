//! Which originals get their second copy when, and from whom (DR-9).
//!
//! A contribution is safe from its owner's death as soon as another process has folded it: a partial that holds it stays
//! where it is, also when others have read it. To copy it would take as long as to fold it. So copies are made of what
//! folding does not make safe in time: while a reduction waits for late ranks, when links have nothing else to carry, and
//! while nothing has come of it for long, unless it only waits for its turn. In its first moments nothing is copied: a short
//! one is over by then. What lies in memory that outlives its process waits longer; its copy is for the case that the
//! process freezes.
//!
//! Copies are ordered from each owner's keeper in small portions, the last segments first, as executors begin with the
//! first. Under [`Protection::CommitFirst`] the orders go out at once, and a contribution counts when all of it is
//! acknowledged.
//!
//! Keepers are processes of the group that have contributed themselves: they hear when the reduction ends. A copy counts
//! from its acknowledgement on (I5). If its keeper dies, the next keeper begins anew.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, Timestamp,
    message::{Data, Keep, KeepAs, Kept, Source, Writing},
    spec::Protection,
};

use crate::{
    machine::RETRY_PAUSE, membership::Membership, placement::Placement, policy::Policy, queue::Ready,
    reduction::Reduction,
};

/// The part of a ping interval that a reduction lasts before its originals are copied.
const COPY_WAIT: u32 = 20;

/// How far the copies of one reduction's originals are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copying {
    /// Whether it is time for copies.
    begun: bool,
    /// Who keeps whose copies among those who had arrived when it was made.
    placement: Option<(Path, Placement)>,
    owners: BTreeMap<Rank, Progress>,
    /// Owners whose originals nobody can keep.
    given_up: Path,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    keeper: ProcessId,
    /// Segments that may have to be ordered yet: those before this one.
    left: u32,
    /// Segments ordered and not yet acknowledged.
    ordered: u32,
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

    fn keep_as(&self) -> KeepAs {
        KeepAs {
            segment_bytes: if self.body_bytes == 0 { 0 } else { self.segment_bytes },
            writing: match self.spec.protection {
                Protection::None | Protection::Memory => Writing::Never,
                Protection::Disk => Writing::Behind,
                Protection::CommitFirst => Writing::Through,
            },
        }
    }

    /// Looks whether it is time for copies. Returns when to look again if it is not: something may come of it meanwhile, or
    /// it may wait until its workers, if they are `busy`, are done with older reductions.
    pub(crate) fn begin_copies(
        &mut self,
        now: Timestamp,
        ping_interval: Duration,
        busy: bool,
    ) -> Option<Timestamp> {
        let later = self.last_progress + ping_interval;
        let is_queued = busy
            && self.tasks().next().is_none()
            && self.segments.iter().all(|segment| segment.suspended.is_empty());
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

    /// The orders that are due now.
    pub(crate) fn order_copies(
        &mut self,
        id: ReductionId,
        policy: &Policy,
        members: &Membership,
    ) -> Vec<(ProcessId, Keep)> {
        let mut orders = Vec::new();
        if !self.copying.begun || !self.wants_copies() || self.unfinished == 0 {
            return orders;
        }
        let made = self.copying.placement.take().filter(|(arrived, _)| *arrived == self.arrived);
        let (_, placement) = made.unwrap_or_else(|| (Path::empty(), members.placement(&self.arrived)));
        let count = self.segments.len() as u32;
        let how = self.keep_as();
        let per_order = policy.copy_bytes.checked_div(self.segment_bytes).unwrap_or(1).max(1) as u32;
        for original in self.originals.values() {
            let owner = original.process;
            if !matches!(original.data, Data::Window(_))
                || self.copying.given_up.contains(owner.rank)
                || !members.readable(original, self.share_memory)
            {
                continue;
            }
            let progress = match self.copying.owners.entry(owner.rank) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let keeper = placement.replica_of(owner.rank).and_then(|rank| members.alive(rank));
                    let Some(keeper) = keeper.map(|peer| peer.process) else { continue };
                    entry.insert(Progress { keeper, left: count, ordered: 0 })
                }
            };
            let is_kept = |index: u32| self.segments[index as usize].is_safe(owner.rank);
            while progress.left > 0 && progress.ordered < per_order {
                let end = progress.left;
                if is_kept(end - 1) {
                    progress.left -= 1;
                    continue;
                }
                let first = end.saturating_sub(per_order - progress.ordered);
                let first = (first..end).rev().take_while(|index| !is_kept(*index)).last().unwrap_or(first);
                progress.ordered += end - first;
                progress.left = first;
                let Ready { process, path, data } = Ready::clone(original);
                let keep =
                    Keep { reduction: id, source: Source { process, path, data }, segments: first..end, how };
                orders.push((progress.keeper, keep));
            }
        }
        self.copying.placement = Some((self.arrived.clone(), placement));
        orders
    }

    /// Takes in that `keeper` has copies. Returns whether the owner's contribution takes part from now on.
    pub(crate) fn kept(&mut self, keeper: ProcessId, kept: &Kept, data: &Data) -> bool {
        let rank = kept.owner.rank;
        let copy = Arc::new(Ready { process: keeper, path: Path::single(rank), data: data.clone() });
        for index in kept.segments.clone() {
            if let Some(segment) = self.segments.get_mut(index as usize) {
                segment.replicas.insert(rank, copy.clone());
            }
        }
        self.answered(keeper, kept);
        self.segments.iter().all(|segment| segment.replicas.contains_key(&rank)) && self.commit(rank)
    }

    /// Takes in that `keeper` could not reach the owner: these copies are to be ordered again.
    pub(crate) fn not_reached(&mut self, keeper: ProcessId, kept: &Kept) {
        self.answered(keeper, kept);
        if let Some(progress) = self.copying.owners.get_mut(&kept.owner.rank) {
            progress.left = progress.left.max(kept.segments.end);
        }
    }

    /// Takes in that `keeper` cannot keep copies. Returns whether that is news.
    pub(crate) fn not_kept(&mut self, keeper: ProcessId, kept: &Kept) -> bool {
        self.answered(keeper, kept);
        let rank = kept.owner.rank;
        let is_news = !self.copying.given_up.contains(rank) && self.group.contains(rank);
        self.copying.given_up = self.copying.given_up.union(&Path::single(rank)).unwrap_or_default();
        is_news
    }

    fn answered(&mut self, keeper: ProcessId, kept: &Kept) {
        if let Some(progress) = self.copying.owners.get_mut(&kept.owner.rank)
            && progress.keeper == keeper
        {
            progress.ordered = progress.ordered.saturating_sub(kept.segments.len() as u32);
        }
    }

    /// Lets a contribution take part that waited for its copy. Returns whether it did wait.
    pub(crate) fn commit(&mut self, rank: Rank) -> bool {
        let Some(original) = self.uncommitted.remove(&rank) else { return false };
        self.enter(&original);
        true
    }

    /// Contributions that wait for copies which nobody can make.
    pub(crate) fn unprotectable(&self, members: &Membership) -> Vec<Rank> {
        let alone = |rank: Rank| {
            let others = self.group.iter().filter(|other| *other != rank);
            self.arrived == self.group && others.filter(|other| members.alive(*other).is_some()).count() == 0
        };
        let hopeless = |rank: &Rank| self.copying.given_up.contains(*rank) || alone(*rank);
        self.uncommitted.keys().copied().filter(hopeless).collect()
    }

    /// Starts copying anew from other keepers where a keeper has died.
    pub(crate) fn lose_keeper(&mut self, dead: ProcessId) {
        self.copying.placement = None;
        self.copying.owners.retain(|_, progress| progress.keeper != dead);
    }

    fn is_protected(&self, rank: Rank) -> bool {
        self.segments.iter().all(|segment| segment.is_safe(rank))
    }

    /// Contributors whose contributions are in another process's hands, too.
    pub(crate) fn protected(&self) -> Path {
        let inlined = |rank: &Rank| self.originals.get(rank).is_some_and(|original| original.is_inline());
        self.group.iter().filter(|rank| inlined(rank) || self.is_protected(*rank)).collect()
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        Generation, ReductionSpec, RegionOffset, SegmentId, SegmentIndex, TaskId, WindowId,
        message::{Contribution, PartialReady, Place, TaskCounters, WindowRef},
        spec::{BodyKind, Delivery, ElementType, Operation},
    };

    use super::*;
    use crate::lane::Load;

    fn window() -> Data {
        let place = Place::Region(RegionOffset(0));
        let (window, generation) = (WindowId(0), Generation(1));
        Data::Window(WindowRef { window, generation, bytes: 1 << 20, checksum: None, place })
    }

    #[test]
    fn what_goes_on_is_not_copied() {
        let interval = Duration::from_millis(500);
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        let spec = ReductionSpec {
            group: Path::range(0, 2),
            delivery: Delivery::All,
            kind: BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length: 1 << 20 },
            order: everfold_protocol::spec::Order::Arrival,
            deadline: None,
            protection: Protection::Disk,
            allow_missing: false,
            trace: false,
        };
        let id = ReductionId::new("x", 0);
        let contribution = Contribution { reduction: id, name: "x".into(), spec, data: window() };
        let policy = Policy { segment_bytes: 1 << 19, ..Policy::default() };
        let mut reduction = Reduction::new(at(0), Rank(0), &contribution, &policy, true);
        for rank in [0, 1] {
            reduction.arrive(at(0), ProcessId::first(rank), window(), false);
        }
        assert_eq!(reduction.begin_copies(at(100), interval, false), Some(at(500)));
        assert_eq!(reduction.begin_copies(at(500), interval, true), Some(at(1000)), "others go on");
        assert_eq!(
            reduction.begin_copies(at(500), Duration::ZERO, true),
            Some(at(520)),
            "without pings, too"
        );
        assert_eq!(reduction.begin_copies(at(500), interval, false), None, "it has stood still");
        let (index, task) = (SegmentIndex(0), TaskId(0));
        let partials = reduction.take_partners(index, None, |_| crate::queue::Access::Near).unwrap();
        let executor = partials[0].process;
        let (own, sources) = (Some(&partials[0]), &partials[1..]);
        reduction.start(index, task, executor, own, sources, (Load::default(), at(9000)));
        let segment = SegmentId { reduction: id, index };
        let (path, counters) = (Path::range(0, 2), TaskCounters::default());
        let done = PartialReady { task, segment, path, data: window(), counters };
        assert!(reduction.complete(at(600), executor, done).is_some());
        assert!(reduction.pause_copies());
        assert!(!reduction.pause_copies(), "it pauses once");
        assert_eq!(reduction.begin_copies(at(700), interval, false), Some(at(1100)));
        assert_eq!(reduction.begin_copies(at(1100), interval, false), None, "it stands still again");
    }
}
