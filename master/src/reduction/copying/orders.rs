//! Orders to keepers for replicas of originals, and their answers.

use alloc::{borrow::ToOwned, string::String, sync::Arc, vec::Vec};

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentIndex, Timestamp,
    message::{Data, Keep, KeepAs, Kept, News, NotKept, Source, ToWorker, Writing},
    spec::Protection,
};

use super::super::{Reduction, Segment};
use crate::{
    desk::Desk,
    keepers::{Candidates, Found, Next},
    membership::Membership,
    queue::Ready,
    timers::{Timer, Timers},
    tries::RETRY_PAUSE,
};

/// Owners whose originals no process can keep, and why.
type Unprotectable = Vec<(Rank, String)>;

impl Reduction {
    /// Whether copies are ordered now.
    fn orders_copies(&self) -> bool {
        !self.is_handed_out()
            && (self.copying.begun || self.copies_at_once())
            && self.wants_copies()
            && self.unfinished > 0
    }

    /// Orders the copies that are due. Returns whether contributions take part from now on that have waited
    /// for theirs.
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

    /// Orders those that are due because `rank` has called, where contributions count only when they are
    /// copied.
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
        let Desk { now, policy, members, timers, outbox, .. } = desk;
        let (how, can_copy) = (self.keep_as(), self.can_copy(owner, members));
        // A rank that has come back knows the reduction once it has called it, too. One that has noted the
        // outcome does not call.
        let unheard: Path = self.unheard().iter().filter(|rank| members.takes_part(*rank)).collect();
        let able = (!unheard.is_empty()).then(|| self.arrived.difference(&unheard));
        let silent = unheard.intersection(self.handout.have_it());
        let callers = (!silent.is_empty()).then(|| self.group.difference(&silent));
        let Self { segments, originals, copying, group, arrived, .. } = self;
        let is_readable = |original: &&Arc<Ready>| matches!(original.data, Data::Window(_));
        let Some(original) = originals.get(&owner).filter(is_readable) else { return };
        let is_uncommitted = copying.held(owner).is_some();
        let Some(charge) = copying.keepers.get_mut(owner).filter(|_| can_copy) else { return };
        // What does not count yet is in no partial.
        let is_kept = |index: u32| match &segments[SegmentIndex(index)] {
            segment if is_uncommitted => segment.replicas.contains_key(&owner),
            segment => is_safe(index, segment),
        };
        if !charge.is_wanted(is_kept) {
            return;
        }
        let patience = policy.copy_patience();
        let (group, arrived) = (callers.as_ref().unwrap_or(group), able.as_ref().unwrap_or(arrived));
        let candidates = Candidates { group, arrived, members };
        let keeper = match copying.keepers.find(*now, original.process, &candidates, &patience) {
            Found::Keeper(keeper) => keeper,
            found => return without.extend(self.without_keeper(id, owner, found, timers)),
        };
        let per_order = policy.copy_bytes.checked_div(self.cut.segment_bytes).unwrap_or(1).max(1) as u32;
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

    /// Whether the original of `owner` can be copied: it lives, or has left it to its agent. On one host
    /// that needs no copy: a keeper would be lost together with it.
    fn can_copy(&self, owner: Rank, members: &Membership) -> bool {
        let is_left =
            |original: &Arc<Ready>| !self.share_memory && members.readable(original, self.share_memory);
        let lives = |original: &Arc<Ready>| members.lives(original.process);
        self.originals.get(&owner).is_some_and(|original| lives(original) || is_left(original))
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

    /// Takes in that a process has copies, or cannot make them. Returns whether contributions take part from
    /// now on that have waited for theirs.
    pub(crate) fn hear_of_copies(
        &mut self,
        id: ReductionId,
        sender: ProcessId,
        kept: &Kept,
        desk: &mut Desk,
    ) -> bool {
        let (now, owner, patience) = (desk.now, kept.owner.rank, desk.policy.copy_patience());
        let is_another = |original: &Arc<Ready>| original.process != kept.owner;
        if !self.arrived.contains(owner) || self.originals.get(&owner).is_some_and(is_another) {
            // It was lost, and is to be contributed again, or was.
            return false;
        }
        let count = kept.segments.len() as u32;
        match &kept.result {
            Ok(data) => {
                let enters = self.kept(now, sender, kept, data);
                self.follow(id, owner, Next::Ask, desk) || enters
            }
            // Its memory is not there any more: it did not just die.
            Err(NotKept::Unreachable) if !self.can_copy(owner, &desk.members) => {
                self.leave_unprotected(vec![(owner, "its process is gone".to_owned())], desk)
            }
            // A keeper that is not asked any more may look too late, when the next one has a copy already.
            Err(NotKept::Gone)
                if !desk.members.lives(kept.owner) && self.copying.keepers.is_asked(sender, owner) =>
            {
                self.leave_unprotected(vec![(owner, "its process has left nothing".to_owned())], desk)
            }
            // Most likely the death of a process that shows nothing any more is about to be noticed.
            Err(NotKept::Unreachable | NotKept::Gone) => {
                let keepers = &mut self.copying.keepers;
                match keepers.not_reached(now, sender, owner, count, &patience) {
                    Next::Ask => {
                        let at = now + RETRY_PAUSE;
                        if keepers.look_at(at, owner) {
                            desk.timers.set(at, Timer::Keeper(id, owner));
                        }
                        false
                    }
                    next => self.follow(id, owner, next, desk),
                }
            }
            Err(NotKept::Impossible(reason)) => {
                let reason = format!("rank {}: {reason}", sender.rank);
                let is_late = self.has_kept(sender, kept);
                let keepers = &mut self.copying.keepers;
                let next = keepers.refused(now, sender, owner, count, reason.clone());
                if is_late {
                    // It is still there, though not where it was to be. The rest goes elsewhere.
                    self.tell_unprotected(owner, reason, desk);
                }
                self.follow(id, owner, next, desk)
            }
        }
    }

    /// Looks after the copy of `owner`'s original: a rank that can keep it may have called, or a keeper is
    /// silent. Returns whether its contribution takes part from now on.
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

    /// Lets contributions of dead processes count that wait for copies which nobody can make any more: on one
    /// host, where memory that has outlived its process is as safe as a copy.
    pub(crate) fn commit_what_cannot_be_copied(&mut self, members: &Membership) {
        for owner in self.copying.all_held().intersection(&self.survived).iter() {
            if !self.can_copy(owner, members) {
                self.commit(owner);
            }
        }
    }

    fn tell_unprotected(&self, rank: Rank, reason: String, desk: &mut Desk) {
        desk.tell(&self.spec.group, News::Unprotected { rank, name: self.name.clone(), reason });
    }

    fn keep_as(&self) -> KeepAs {
        KeepAs {
            segment_bytes: if self.body_bytes == 0 { 0 } else { self.segment_bytes() },
            writing: match self.spec.protection {
                Protection::None | Protection::Memory => Writing::Never,
                Protection::Disk => Writing::Behind,
                Protection::CommitFirst => Writing::Through,
            },
        }
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

    /// Whether `keeper` has acknowledged all these copies before.
    fn has_kept(&self, keeper: ProcessId, kept: &Kept) -> bool {
        let segments = || kept.segments.clone().map(|index| self.segments.get(SegmentIndex(index)));
        let rank = kept.owner.rank;
        let has = |segment: &Segment| {
            segment.replicas.get(&rank).is_some_and(|copies| copies.iter().any(|copy| copy.process == keeper))
        };
        segments().len() > 0 && segments().all(|segment| segment.is_some_and(has))
    }
}
