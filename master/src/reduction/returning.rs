//! What a rank has in a reduction whose process has died, and which comes back.
//!
//! What its process has contributed counts as before, and the process that comes in its place adds nothing: it
//! hears the outcome. The two are told apart by their incarnations: what the earlier one has left is only
//! read. The later one begins afresh if nobody else can fold, once it has called.
//!
//! If the contribution is lost, the rank is waited for as if it had never called. It brings the contribution
//! along when it calls again: a program that comes back does again what it did before. If a later process of
//! the rank has called by then, the contribution of that process counts, even if the process has died, as
//! long as it can be read.

use alloc::vec::Vec;

use everfold_protocol::{Path, ProcessId, Rank, Timestamp, message::Data, report::Refusal};

use super::{LaterOriginal, Reduction};
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

    /// Takes in that the process of `rank` has died. If it had called in place of an earlier one, what it has
    /// left may count, unless that is an array over which it may have copied the result.
    pub(super) fn keep_later_original(&mut self, died: Timestamp, rank: Rank, members: &Membership) {
        let Some((process, data)) = self.again.remove(&rank) else { return };
        let original = Ready { process, path: Path::single(rank), data };
        let is_array = self.spec.kind.array_bytes().is_some();
        let may_be_overwritten = is_array && (self.copies_or_has_it(rank) || self.handout.keeps(rank));
        if self.group.contains(rank) && !may_be_overwritten && self.is_readable(&original, members) {
            self.later_originals.push(LaterOriginal { died, original });
        }
    }

    fn find_later_original(&self, rank: Rank, members: &Membership) -> Option<usize> {
        self.later_originals.iter().position(|LaterOriginal { original, .. }| {
            original.process.rank == rank && self.is_readable(original, members)
        })
    }

    /// Whether a contribution of `rank` can come again: the rank takes part and lacks the result, or a later
    /// process has left one that can be read.
    pub(super) fn can_come_again(&self, rank: Rank, members: &Membership) -> bool {
        let is_left = || self.find_later_original(rank, members).is_some();
        !self.have_it().contains(rank) && (members.takes_part(rank) || is_left())
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
                self.repair_or_wait(now, members)?;
                self.somebody_folds(members)
            }
            None => Err(refusal),
        }
    }

    /// Makes it whole again after a failure, and waits again for those contributions that are lost and may
    /// come again. Those that have come again take part, and so do those that later processes have left.
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
        self.use_later_originals(now, members);
        Ok(())
    }

    /// For each rank whose contribution is not here, lets one count that a later process has left, if it can
    /// be read.
    fn use_later_originals(&mut self, now: Timestamp, members: &Membership) {
        let absent: Vec<Rank> = self.group.difference(&self.arrived).iter().collect();
        for rank in absent {
            let Some(found) = self.find_later_original(rank, members) else { continue };
            let LaterOriginal { died, original } = self.later_originals.remove(found);
            let Ready { process, data, .. } = original;
            self.arrive(now, process, data, false);
            self.mourn(died, process, members);
            self.commit_what_cannot_be_copied(members);
        }
    }

    /// The ranks whose contributions `refusal` calls lost and that can bring them again: each takes part, or
    /// a later process of it has left its contribution. A rank that has the result brings nothing again.
    fn may_come_again(&self, refusal: &Refusal, members: &Membership) -> Option<Path> {
        let Refusal::ContributionLost { ranks } = refusal else { return None };
        if self.handout.has_overwritten() {
            return None;
        }
        let comes_again = |rank: &Rank| self.only_listens(*rank) && self.can_come_again(*rank, members);
        Some(ranks.iter().filter(comes_again).collect()).filter(|ranks: &Path| !ranks.is_empty())
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

#[cfg(test)]
mod tests {
    use alloc::{sync::Arc, vec};
    use core::time::Duration;

    use everfold_protocol::{
        Incarnation, ReductionSpec, RegionOffset,
        message::{Ending, Evidence, Place},
        spec::{BodyKind, ElementType, Operation},
    };

    use super::*;
    use crate::{
        lengths::Cut,
        membership::Prospect,
        reduction::testing::{self, process},
    };

    const NOW: Timestamp = Timestamp::ZERO;
    /// A death that leaves memory which can be read.
    const ENDED: Evidence = Evidence::Ended(Ending::Code(1));
    /// A death that leaves none: the process may write there still.
    const SILENT: Evidence = Evidence::Silent(Duration::ZERO);

    /// A reduction on one host whose ranks come back, and its job.
    struct World {
        reduction: Reduction,
        members: Membership,
    }

    impl World {
        /// One to which all have contributed.
        fn new(spec: ReductionSpec, cut: Cut) -> Self {
            let ranks = spec.group.len() as u32;
            let mut reduction = testing::reduction(spec, window(), cut, true);
            reduction.ranks_return = true;
            for rank in 0..ranks {
                reduction.arrive(NOW, process(rank), window(), false);
            }
            Self { reduction, members: testing::job(&vec![0; ranks as usize]) }
        }

        fn call_again(&mut self, process: ProcessId) {
            self.members.join(testing::peer(process, 0));
            self.reduction.call_again(process, window());
        }

        /// Lets a process die, as [`Master`](crate::Master) does.
        fn lose(&mut self, dead: ProcessId, evidence: Evidence, prospect: Prospect) -> Result<(), Refusal> {
            let Self { reduction, members } = self;
            members.fail(&[dead], evidence, prospect);
            match reduction.lose_collectors(NOW, &[dead], members) {
                true => reduction.mourn(NOW, dead, members),
                false => reduction.bereave(NOW, &[dead], members)?,
            }
            Ok(())
        }

        /// Takes in that what the process has left that has contributed for `rank` is gone.
        fn lose_original(&mut self, rank: Rank) -> Result<(), Refusal> {
            let Self { reduction, members } = self;
            reduction.originals.remove(&rank);
            for index in reduction.segments.indices() {
                reduction.segments[index].queue.remove(|ready| ready.process.rank == rank);
            }
            reduction.restore(NOW, members)
        }
    }

    fn window() -> Data {
        testing::window(Place::Region(RegionOffset(0)))
    }

    fn later(rank: u32, incarnation: u32) -> ProcessId {
        ProcessId { rank: Rank(rank), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn what_any_later_process_has_left_counts_if_it_can_be_read() {
        let mut world = World::new(testing::spec(2, testing::object()), Cut::fixed(0));
        world.lose(process(1), ENDED, Prospect::Returns).unwrap();
        world.call_again(later(1, 1));
        world.lose(later(1, 1), ENDED, Prospect::Returns).unwrap();
        world.call_again(later(1, 2));
        world.lose(later(1, 2), SILENT, Prospect::Gone).unwrap();
        world.lose_original(Rank(1)).unwrap();
        assert_eq!(world.reduction.originals[&Rank(1)].process, later(1, 1));
        assert!(world.reduction.survived.contains(Rank(1)));
        let lost = Refusal::ContributionLost { ranks: Path::single(Rank(1)) };
        assert_eq!(world.lose_original(Rank(1)), Err(lost), "no other process has left one");
    }

    #[test]
    fn what_a_process_has_left_that_was_told_the_result_does_not_count() {
        let kind = BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length: 2 };
        let mut world = World::new(testing::spec(2, kind), Cut::fixed(1));
        world.lose(process(1), SILENT, Prospect::Returns).unwrap();
        world.call_again(later(1, 1));
        let group = Path::range(0, 2);
        for index in world.reduction.segments.indices() {
            while world.reduction.segments[index].queue.remove(|_| true).is_some() {}
            let result = Ready { process: process(0), path: group.clone(), data: window() };
            world.reduction.put(index, Arc::new(result));
        }
        world.reduction.hand_out(group, &world.members);
        world.lose(later(1, 1), ENDED, Prospect::Returns).unwrap();
        world.lose(process(0), SILENT, Prospect::Returns).unwrap();
        world.reduction.take_up_again();
        world.reduction.restore(NOW, &world.members).unwrap();
        assert_eq!(world.reduction.arrived, Path::empty(), "it may have copied a part of the result over it");
    }

    #[test]
    fn what_the_dead_have_left_does_not_hold_a_reduction_up_that_nobody_folds() {
        let spec = ReductionSpec { allow_missing: true, ..testing::spec(3, testing::object()) };
        let mut world = World::new(spec, Cut::fixed(0));
        let missing = Path::single(Rank(0));
        assert_eq!(world.reduction.do_without(NOW, &missing, &world.members), Ok(true));
        world.lose(process(2), ENDED, Prospect::Returns).unwrap();
        world.call_again(later(2, 1));
        world.lose(later(2, 1), ENDED, Prospect::Gone).unwrap();
        let refusal = world.lose(process(1), ENDED, Prospect::Gone).unwrap_err();
        assert!(world.reduction.wait_again(NOW, refusal, &world.members).is_err());
    }
}
