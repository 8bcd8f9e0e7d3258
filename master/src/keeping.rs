//! What the master says to keepers of copies, and makes of their answers.

use alloc::{borrow::ToOwned, string::String};
use everfold_protocol::{
    ProcessId, Rank, ReductionId, Timestamp,
    message::{Kept, News, NotKept, ToWorker},
};

use crate::{
    copying::{Desk, Orders},
    keepers::Next,
    machine::Master,
    reduction::Reduction,
    timers::Timer,
    tries::RETRY_PAUSE,
};

impl Master {
    /// Orders the copies of originals that are due.
    pub(crate) fn order_copies(&mut self, now: Timestamp, id: ReductionId) {
        self.order(now, id, |reduction, desk| reduction.order_copies(now, desk));
    }

    /// Orders those that are due because `rank` has called, where contributions count only when they are copied.
    pub(crate) fn order_copies_for(&mut self, now: Timestamp, id: ReductionId, rank: Rank) {
        self.order(now, id, |reduction, desk| reduction.order_copies_for(now, rank, desk));
    }

    fn order_copies_of(&mut self, now: Timestamp, id: ReductionId, owner: Rank) {
        self.order(now, id, |reduction, desk| {
            let mut orders = Orders::default();
            reduction.order_copies_of(now, owner, desk, &mut orders);
            orders
        });
    }

    fn order(
        &mut self,
        now: Timestamp,
        id: ReductionId,
        which: impl FnOnce(&mut Reduction, &Desk) -> Orders,
    ) {
        let Self { reductions, policy, membership: members, .. } = self;
        let Some(reduction) = reductions.get_mut(&id).filter(|reduction| reduction.collecting.is_none())
        else {
            return;
        };
        let Orders { keeps, looks, unprotectable } = which(reduction, &Desk { id, policy, members });
        for (to, keep) in keeps {
            self.outbox.send(to, ToWorker::Keep(keep));
        }
        looks.into_iter().for_each(|(at, owner)| self.timers.set(at, Timer::Keeper(id, owner)));
        for (rank, reason) in unprotectable {
            self.unprotected(now, id, rank, reason);
        }
    }

    /// Takes in that a process has copies, or cannot make them.
    pub(crate) fn kept(&mut self, now: Timestamp, sender: ProcessId, kept: Kept) {
        let (id, owner) = (kept.reduction, kept.owner.rank);
        let is_owner_alive = self.membership.alive(owner).is_some();
        let patience = self.policy.copy_patience();
        let Some(reduction) = self.reductions.get_mut(&id) else { return };
        let count = kept.segments.len() as u32;
        let next = match &kept.result {
            Ok(data) => {
                if reduction.kept(now, sender, &kept, data) {
                    self.proceed(now, id);
                }
                Next::Ask
            }
            // Its memory is not there any more: it did not just die.
            Err(NotKept::Unreachable) if !is_owner_alive => {
                return self.unprotected(now, id, owner, "its process is gone".to_owned());
            }
            Err(NotKept::Unreachable) => {
                let keepers = &mut reduction.copying.keepers;
                let next = keepers.not_reached(now, sender, owner, count, &patience);
                if next == Next::Ask {
                    // Most likely the owner's death is about to be noticed.
                    let at = now + RETRY_PAUSE;
                    if keepers.look_at(at, owner) {
                        self.timers.set(at, Timer::Keeper(id, owner));
                    }
                    return;
                }
                next
            }
            Err(NotKept::Impossible(reason)) => {
                let reason = format!("rank {}: {reason}", sender.rank);
                let is_late = reduction.has_kept(sender, &kept);
                let next = reduction.copying.keepers.refused(now, sender, owner, (count, reason.clone()));
                if is_late {
                    // It is still there, though not where it was to be. What is left goes elsewhere.
                    self.tell_unprotected(id, owner, reason);
                }
                next
            }
        };
        self.follow(now, id, owner, next);
    }

    /// Looks after the copy of `owner`'s original: somebody may have called who can keep it, or a keeper is silent.
    pub(crate) fn look_after(&mut self, now: Timestamp, id: ReductionId, owner: Rank) {
        let patience = self.policy.copy_patience();
        let Some(reduction) = self.reductions.get_mut(&id) else { return };
        let keepers = &mut reduction.copying.keepers;
        let next = keepers.look(now, owner, &patience);
        let watched = keepers.watch(owner, &patience).filter(|_| next == Next::Nothing);
        watched.into_iter().for_each(|at| self.timers.set(at, Timer::Keeper(id, owner)));
        self.follow(now, id, owner, next);
    }

    fn follow(&mut self, now: Timestamp, id: ReductionId, owner: Rank, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Ask => self.order_copies_of(now, id, owner),
            Next::GiveUp => {
                let reason = self.reductions.get(&id).and_then(|it| it.copying.keepers.refusal(owner));
                let reason = reason.unwrap_or("no process that could keep it has reached it").to_owned();
                self.unprotected(now, id, owner, reason);
            }
        }
    }

    /// Lets a contribution count without a replica, and says so.
    fn unprotected(&mut self, now: Timestamp, id: ReductionId, rank: Rank, reason: String) {
        let Some(reduction) = self.reductions.get_mut(&id) else { return };
        if !reduction.copying.keepers.give_up(rank) || !reduction.group.contains(rank) {
            return;
        }
        let waited = reduction.commit(rank);
        self.tell_unprotected(id, rank, reason);
        if waited {
            self.proceed(now, id);
        }
    }

    fn tell_unprotected(&mut self, id: ReductionId, rank: Rank, reason: String) {
        let Some(reduction) = self.reductions.get(&id) else { return };
        let name = reduction.name.clone();
        self.tell(id, News::Unprotected { rank, name, reason });
    }
}
