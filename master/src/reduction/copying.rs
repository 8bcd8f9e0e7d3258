//! When an original gets its replica, which keeper is asked for it, and what comes of the answer (DR-9).
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
//! A copy counts from its acknowledgement on (I5). Who keeps it, and who does if that one cannot, says `keepers`. All that an
//! acknowledgement asks for takes as long however large the group is.

use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentIndex, Timestamp,
    message::{Data, Keep, KeepAs, Kept, News, NotKept, Source, ToWorker, Writing},
    spec::Protection,
};

use super::{Reduction, Segment};
use crate::{
    desk::Desk,
    keepers::{Candidates, Found, Keepers, Next},
    policy::COPY_WAIT,
    queue::Ready,
    timers::{Timer, Timers},
    tries::RETRY_PAUSE,
};

/// How far the copies of one reduction's originals are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copying {
    /// Whether it is time for copies.
    begun: bool,
    /// When it is looked next whether copies are to be ordered: once for all who contribute meanwhile.
    look: Option<Timestamp>,
    keepers: Keepers,
    /// Originals that wait for their replica before they count.
    uncommitted: BTreeMap<Rank, Arc<Ready>>,
}

impl Copying {
    /// Takes in that `owner` has contributed what may need a copy, in so many segments.
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

/// Owners whose originals nobody can keep, and why.
type Unprotectable = Vec<(Rank, String)>;

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

    /// Lets it be looked `at` that time whether copies are to be ordered. Returns whether that is not to be done before anyway:
    /// each look takes as long as there are originals.
    pub(crate) fn look_for_copies(&mut self, at: Timestamp) -> bool {
        let is_new = self.copying.look.is_none_or(|look| at < look);
        self.copying.look = self.copying.look.filter(|_| !is_new).or(Some(at));
        is_new
    }

    /// Looks whether it is time for copies. Returns when to look again if it is not: something may come of it meanwhile, or
    /// it may wait until its workers, if they are `busy`, are done with older reductions.
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

    /// Whether copies are ordered as soon as somebody has contributed.
    pub(crate) fn copies_at_once(&self) -> bool {
        self.spec.protection == Protection::CommitFirst
    }

    /// Whether copies are ordered now.
    fn orders_copies(&self) -> bool {
        !self.is_handed_out()
            && (self.copying.begun || self.copies_at_once())
            && self.wants_copies()
            && self.unfinished > 0
    }

    /// Orders the copies that are due. Returns whether contributions take part from now on that have waited for theirs.
    pub(crate) fn order_copies(&mut self, id: ReductionId, desk: &mut Desk) -> bool {
        if !self.orders_copies() {
            return false;
        }
        let owners: Path = self.originals.keys().copied().collect();
        // All at once: otherwise each owner would be looked for in all partials.
        let safe: Vec<Path> = self.segments.iter().map(Segment::safe).collect();
        let all_safe = safe.iter().fold(owners.clone(), |all, safe| all.intersection(safe));
        let mut without = Vec::new();
        for owner in owners.difference(&all_safe).iter() {
            let is_safe = |index: u32, _: &Segment| safe[index as usize].contains(owner);
            self.order_unless(id, owner, is_safe, desk, &mut without);
        }
        self.leave_unprotected(without, desk)
    }

    /// Orders those that are due because `rank` has called, where contributions count only when they are copied.
    pub(crate) fn order_copies_for(&mut self, id: ReductionId, rank: Rank, desk: &mut Desk) -> bool {
        if self.is_handed_out() {
            return false;
        }
        let (group, arrived, members) = (&self.group, &self.arrived, &desk.members);
        let concerned = self.copying.keepers.concerned(rank, &Candidates { group, arrived, members });
        let mut without = Vec::new();
        concerned.into_iter().for_each(|owner| self.order_copies_of(id, owner, desk, &mut without));
        self.leave_unprotected(without, desk)
    }

    /// Orders those that are due of the original of `owner`.
    fn order_copies_of(
        &mut self,
        id: ReductionId,
        owner: Rank,
        desk: &mut Desk,
        without: &mut Unprotectable,
    ) {
        if self.orders_copies() {
            self.order_unless(id, owner, |_, segment| segment.is_safe(owner), desk, without);
        }
    }

    /// Orders copies of the segments of `owner`'s original, unless they are safe.
    fn order_unless(
        &mut self,
        id: ReductionId,
        owner: Rank,
        is_safe: impl Fn(u32, &Segment) -> bool,
        desk: &mut Desk,
        without: &mut Unprotectable,
    ) {
        let Desk { now, policy, members, timers, outbox } = desk;
        let how = self.keep_as();
        let Self { segments, originals, copying, group, arrived, .. } = self;
        let is_readable = |original: &&Arc<Ready>| matches!(original.data, Data::Window(_));
        let Some(original) = originals.get(&owner).filter(is_readable) else { return };
        let is_uncommitted = copying.held(owner).is_some();
        let Some(charge) = copying.keepers.get_mut(owner).filter(|_| members.alive(owner).is_some()) else {
            return;
        };
        // What does not count yet is in no partial.
        let is_kept = |index: u32| match &segments[SegmentIndex(index)] {
            segment if is_uncommitted => segment.replicas.contains_key(&owner),
            segment => is_safe(index, segment),
        };
        if !charge.is_wanted(is_kept) {
            return;
        }
        let patience = policy.copy_patience();
        let candidates = Candidates { group, arrived, members };
        let keeper = match copying.keepers.find(*now, owner, &candidates, &patience) {
            Found::Keeper(keeper) => keeper,
            found => return without.extend(self.without_keeper(id, owner, found, timers)),
        };
        let per_order = policy.copy_bytes.checked_div(self.segment_bytes).unwrap_or(1).max(1) as u32;
        let charge = copying.keepers.get_mut(owner).expect("it has a keeper");
        while let Some(segments) = charge.next_order(per_order, is_kept) {
            charge.order(*now, &segments);
            let Ready { process, path, data } = Ready::clone(original);
            let source = Source { process, path, data };
            outbox.send(keeper, ToWorker::Keep(Keep { reduction: id, source, segments, how }));
        }
        if let Some(at) = copying.keepers.watch(owner, &patience) {
            timers.set(at, Timer::Keeper(id, owner));
        }
    }

    /// Waits for a keeper of `owner`'s copy, or says why there is none.
    fn without_keeper(
        &mut self,
        id: ReductionId,
        owner: Rank,
        found: Found,
        timers: &mut Timers,
    ) -> Option<(Rank, String)> {
        let waits = matches!(found, Found::Later(_)) && self.copies_at_once();
        let reason = self.copying.keepers.refusal(owner).map(str::to_owned);
        match (found, reason) {
            (Found::Later(Some(at)), _) => {
                if self.copying.keepers.look_at(at, owner) {
                    timers.set(at, Timer::Keeper(id, owner));
                }
                None
            }
            (Found::GivenUp, _) => None,
            (_, Some(reason)) if !waits => Some((owner, reason)),
            (Found::Nobody, _) if self.copying.held(owner).is_some() => {
                Some((owner, "there is no other process to keep it".to_owned()))
            }
            _ => None,
        }
    }

    /// Takes in that a process has copies, or cannot make them. Returns whether contributions take part from now on that have
    /// waited for theirs.
    pub(crate) fn hear_of_copies(
        &mut self,
        id: ReductionId,
        sender: ProcessId,
        kept: &Kept,
        desk: &mut Desk,
    ) -> bool {
        let (now, owner, patience) = (desk.now, kept.owner.rank, desk.policy.copy_patience());
        let count = kept.segments.len() as u32;
        let keepers = &mut self.copying.keepers;
        match &kept.result {
            Ok(data) => {
                let enters = self.kept(now, sender, kept, data);
                self.follow(id, owner, Next::Ask, desk) || enters
            }
            // Its memory is not there any more: it did not just die.
            Err(NotKept::Unreachable) if !desk.is_alive(owner) => {
                self.leave_unprotected(vec![(owner, "its process is gone".to_owned())], desk)
            }
            Err(NotKept::Unreachable) => match keepers.not_reached(now, sender, owner, count, &patience) {
                Next::Ask => {
                    // Most likely the owner's death is about to be noticed.
                    let at = now + RETRY_PAUSE;
                    if keepers.look_at(at, owner) {
                        desk.timers.set(at, Timer::Keeper(id, owner));
                    }
                    false
                }
                next => self.follow(id, owner, next, desk),
            },
            Err(NotKept::Impossible(reason)) => {
                let reason = format!("rank {}: {reason}", sender.rank);
                let is_late = self.has_kept(sender, kept);
                let keepers = &mut self.copying.keepers;
                let next = keepers.refused(now, sender, owner, count, reason.clone());
                if is_late {
                    // It is still there, though not where it was to be. What is left goes elsewhere.
                    self.tell_unprotected(owner, reason, desk);
                }
                self.follow(id, owner, next, desk)
            }
        }
    }

    /// Looks after the copy of `owner`'s original: somebody may have called who can keep it, or a keeper is silent. Returns
    /// whether its contribution takes part from now on.
    pub(crate) fn look_after(&mut self, id: ReductionId, owner: Rank, desk: &mut Desk) -> bool {
        let patience = desk.policy.copy_patience();
        let keepers = &mut self.copying.keepers;
        let next = keepers.look(desk.now, owner, &patience);
        if let Some(at) = keepers.watch(owner, &patience).filter(|_| next == Next::Nothing) {
            desk.timers.set(at, Timer::Keeper(id, owner));
        }
        self.follow(id, owner, next, desk)
    }

    fn follow(&mut self, id: ReductionId, owner: Rank, next: Next, desk: &mut Desk) -> bool {
        let mut without = Vec::new();
        match next {
            Next::Nothing => {}
            Next::Ask => self.order_copies_of(id, owner, desk, &mut without),
            Next::GiveUp => {
                let reason = self.copying.keepers.refusal(owner);
                let reason = reason.unwrap_or("no process that could keep it has reached it").to_owned();
                without.push((owner, reason));
            }
        }
        self.leave_unprotected(without, desk)
    }

    /// Lets contributions count without a replica, and says so. Returns whether some have waited for theirs.
    fn leave_unprotected(&mut self, without: Unprotectable, desk: &mut Desk) -> bool {
        let mut waited = false;
        for (owner, reason) in without {
            if self.copying.keepers.give_up(owner) && self.group.contains(owner) {
                waited |= self.commit(owner);
                self.tell_unprotected(owner, reason, desk);
            }
        }
        waited
    }

    fn tell_unprotected(&self, rank: Rank, reason: String, desk: &mut Desk) {
        desk.tell(&self.spec.group, News::Unprotected { rank, name: self.name.clone(), reason });
    }

    /// Takes in that `keeper` has copies. Returns whether the owner's contribution takes part from now on.
    fn kept(&mut self, now: Timestamp, keeper: ProcessId, kept: &Kept, data: &Data) -> bool {
        let rank = kept.owner.rank;
        let copy = Arc::new(Ready { process: keeper, path: Path::single(rank), data: data.clone() });
        let mut new = 0;
        for index in kept.segments.clone() {
            if let Some(segment) = self.segments.get_mut(SegmentIndex(index)) {
                new += u32::from(segment.add_replica(rank, copy.clone()));
            }
        }
        self.copying.keepers.kept(now, keeper, rank, kept.segments.len() as u32, new);
        // Counted one by one, as the others are not looked through each time.
        let Some(charge) = self.copying.keepers.get_mut(rank) else { return false };
        if charge.kept() < self.segments.count() {
            return false;
        }
        let kept = self.segments.iter().filter(|segment| segment.replicas.contains_key(&rank)).count() as u32;
        charge.recount(kept);
        kept == self.segments.count() && self.commit(rank)
    }

    /// Takes in that `dead` keeps no copies any more, nor what it has folded, unless its memory outlives it.
    pub(crate) fn lose_keeper(&mut self, dead: ProcessId) {
        self.copying.keepers.lose(dead);
        for segment in &mut self.segments {
            segment.keep_replicas(|copy| copy.process != dead);
            let is_gone = |held: &Arc<Ready>| !self.share_memory && !held.is_inline();
            if segment.held.get(&dead.rank).is_some_and(is_gone) {
                segment.held.remove(&dead.rank);
            }
        }
    }

    /// Whether `keeper` has acknowledged all these copies before.
    fn has_kept(&self, keeper: ProcessId, kept: &Kept) -> bool {
        let segments = || kept.segments.clone().map(|index| self.segments.get(SegmentIndex(index)));
        let rank = kept.owner.rank;
        let has = |segment: &Segment| {
            segment.replicas.get(&rank).is_some_and(|copies| copies.iter().any(|copy| copy.process == keeper))
        };
        segments().len() > 0 && segments().all(|segment| segment.is_some_and(has))
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
        Generation, ReductionSpec, RegionOffset, SegmentId, SegmentIndex, TaskId, WindowId,
        message::{Contribution, PartialReady, Place, TaskCounters, WindowRef},
        spec::{BodyKind, Delivery, ElementType, Operation},
    };

    use super::*;
    use crate::{lane::Load, policy::Policy, task::Grant};

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
        let segment = SegmentId { reduction: id, index };
        let (path, counters) = (Path::range(0, 2), TaskCounters::default());
        let done = PartialReady { task, segment, path, data: window(), counters };
        assert!(reduction.complete(at(600), executor, done).is_some());
        assert!(reduction.pause_copies());
        assert!(!reduction.pause_copies(), "it pauses once");
        assert_eq!(reduction.begin_copies(at(700), interval, |_| false), Some(at(1100)));
        assert_eq!(reduction.begin_copies(at(1100), interval, |_| false), None, "it stands still again");
    }
}
