//! What a rank has in a reduction whose process has died, and which comes back.
//!
//! What its process has contributed counts as before, and the process that comes in its place adds nothing: it
//! hears the outcome. The two are told apart by their incarnations: what the earlier one has left is only
//! read. The later one begins afresh if nobody else can fold, once it has called.
//!
//! If the contribution is lost, the rank is waited for as if it had never called. It brings the contribution
//! along when it calls again: a program that comes back does again what it did before.

use alloc::vec::Vec;

use everfold_protocol::{Path, ProcessId, Rank, Timestamp, message::Data, report::Refusal};

use super::Reduction;
use crate::{membership::Membership, queue::Ready};

impl Reduction {
    /// Whether an earlier process of `rank` has contributed, so that a later one only hears the outcome.
    pub(crate) fn only_listens(&self, rank: Rank) -> bool {
        self.survived.contains(rank) || self.left_out.contains(rank)
    }

    /// Whether `rank` has called, and its contribution is missing all the same: it could not be read.
    pub(super) fn is_left_out(&self, rank: Rank) -> bool {
        self.missing.contains(rank) && self.account.has_called(rank)
    }

    /// Takes in that the process of `rank` has died, if its contribution is missing.
    pub(super) fn lose_left_out(&mut self, rank: Rank) {
        if self.is_left_out(rank) {
            self.left_out.insert(rank).ok();
        }
    }

    /// Takes in that `rank` has come back, maybe on another host.
    pub(crate) fn look_where(&mut self, rank: Rank, members: &Membership) {
        if self.group.contains(rank) {
            self.share_memory &= members.share_memory(&self.spec.group);
        }
    }

    /// Whether the process of `rank` that takes part now has called.
    pub(crate) fn has_caller(&self, rank: Rank) -> bool {
        match self.only_listens(rank) {
            true => self.again.contains_key(&rank),
            false => self.arrived.contains(rank) || self.missing.contains(rank),
        }
    }

    /// Whether this process can fold: it has called, and is not an earlier one of its rank.
    pub(crate) fn has_called(&self, process: ProcessId) -> bool {
        match self.only_listens(process.rank) {
            true => self.again.get(&process.rank).is_some_and(|(again, _)| *again == process),
            false => true,
        }
    }

    /// Ranks whose earlier processes have called, and whose later ones have not, if there are any.
    pub(crate) fn unheard(&self) -> Path {
        let listeners = self.survived.iter().chain(self.left_out.iter());
        listeners.filter(|rank| !self.again.contains_key(rank)).collect()
    }

    /// Ranks that have called in place of earlier processes.
    pub(super) fn called_again(&self) -> impl Iterator<Item = Rank> + '_ {
        self.again.keys().copied()
    }

    /// Whether the result waits for `rank` to come back.
    pub(crate) fn is_away(&self, rank: Rank) -> bool {
        self.handout.is_away(rank)
    }

    /// The only rank that is to receive the result, if it was told.
    pub(crate) fn receiver(&self) -> Option<Rank> {
        self.handout.receiver()
    }

    /// Whether a rank that comes back may have noted the result before its process died.
    pub(crate) fn may_be_noted(&self, members: &Membership) -> bool {
        self.handout.doubtful().iter().any(|rank| members.takes_part(rank))
    }

    /// Whether a rank has the result already, or may have noted it.
    pub(crate) fn may_be_known(&self, members: &Membership) -> bool {
        self.is_settled(members) || self.may_be_noted(members)
    }

    /// Takes in that the process that has come in place of one that had contributed calls, too, and with which
    /// body.
    pub(crate) fn call_again(&mut self, process: ProcessId, data: Data) {
        // This one begins afresh, and does not use partials of the earlier one.
        for segment in &mut self.segments {
            segment.spoilt.retain(|rank| *rank != process.rank);
        }
        self.again.insert(process.rank, (process, data));
        self.handout.come_back(process.rank);
        self.handout.ask_again(process.rank);
    }

    /// Takes in that `rank` calls something else than an earlier process of it, and hears no result.
    pub(crate) fn diverge(&mut self, rank: Rank) {
        self.diverged.insert(rank).ok();
    }

    /// Whether [it does](Self::diverge).
    pub(crate) fn has_diverged(&self, rank: Rank) -> bool {
        self.diverged.contains(rank)
    }

    /// Takes in that `rank` has the result, which was lost since.
    pub(crate) fn take_note(&mut self, rank: Rank) {
        self.handout.know(rank);
    }

    /// Waits again for the contributions that `refusal` calls lost, if they may come again, and makes it whole
    /// without them.
    ///
    /// # Errors
    /// Why it cannot complete.
    pub(crate) fn wait_again(
        &mut self,
        now: Timestamp,
        refusal: Refusal,
        members: &Membership,
    ) -> Result<(), Refusal> {
        match self.may_come_again(&refusal, members) {
            Some(ranks) => {
                self.expect_again(&ranks);
                self.repair_or_wait(now, members)
            }
            None => Err(refusal),
        }
    }

    /// Makes it whole again after a failure, and waits again for those contributions that are lost and may
    /// come again. Those that have come again take part.
    ///
    /// # Errors
    /// Why it cannot complete.
    pub(super) fn repair_or_wait(&mut self, now: Timestamp, members: &Membership) -> Result<(), Refusal> {
        while let Err(refusal) = self.repair_all(members) {
            let Some(ranks) = self.may_come_again(&refusal, members) else { return Err(refusal) };
            self.expect_again(&ranks);
        }
        let is_expected = |rank: &Rank| !self.only_listens(*rank);
        let come: Vec<Rank> = self.again.keys().copied().filter(is_expected).collect();
        for rank in come {
            let again = self.again.remove(&rank).filter(|(process, _)| members.lives(*process));
            if let Some((process, data)) = again {
                self.arrive(now, process, data, false);
            }
        }
        Ok(())
    }

    /// The ranks that come back, of those whose contributions `refusal` calls lost, if these can come again.
    /// The result is the same if a rank has it already.
    fn may_come_again(&self, refusal: &Refusal, members: &Membership) -> Option<Path> {
        let Refusal::ContributionLost { ranks } = refusal else { return None };
        if self.handout.has_overwritten() {
            return None;
        }
        let has_it = self.handout.have_it();
        let comes_back =
            |rank: &Rank| self.only_listens(*rank) && members.takes_part(*rank) && !has_it.contains(*rank);
        Some(ranks.iter().filter(comes_back).collect()).filter(|ranks: &Path| !ranks.is_empty())
    }

    /// Forgets the contributions of `ranks`. Partials that hold them count no longer.
    pub(super) fn expect_again(&mut self, ranks: &Path) {
        self.arrived = self.arrived.difference(ranks);
        self.survived = self.survived.difference(ranks);
        self.originals.retain(|rank, _| !ranks.contains(*rank));
        self.copying.go_without(ranks);
        self.account.forget(ranks);
        let again = &self.again;
        // Partials of a process that has come meanwhile stay as they are.
        let is_its =
            |held: &Ready| again.get(&held.process.rank).is_some_and(|(process, _)| *process == held.process);
        for segment in &mut self.segments {
            segment.replicas.retain(|owner, _| !ranks.contains(*owner));
            segment.held.retain(|rank, held| !ranks.contains(*rank) || is_its(held));
            segment.spoilt.retain(|rank| !ranks.contains(*rank) || again.contains_key(rank));
        }
    }
}
