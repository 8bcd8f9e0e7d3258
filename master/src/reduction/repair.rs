//! The consequences of a failure for a reduction, and how lost partials are put together again (DR §3,
//! DR-10).
//!
//! A process takes with it the partials that wait at it, the tasks it works on, and the finished segments it
//! holds. Contributions that no live partial holds any more are covered again by the cheapest copies that are
//! left:
//!
//! 1. partials that can still be read because a process that died or was slow had only read them; the largest
//!    first, so that as few folds as possible are done again;
//! 2. originals: at their owners, in memory that outlived its process, or at the master if they came inlined;
//! 3. replicas of originals (DR-9).
//!
//! Paths of partials form a forest: of two that share ranks one contains the other. Hence taking the largest
//! first gives the cover with the fewest pieces. A contribution of which no copy is left is lost
//! ([`Refusal::ContributionLost`]).
//!
//! A task that *reads from* the dead process goes on: with memory that is mapped or bytes that have arrived
//! it may well succeed, and it has read the published bytes. If it fails, its partials come back: see
//! `failed`.
//!
//! A late task is treated in the same way: its path is put together again for others, and the first result
//! counts. All of this is re-entrant (I7): a second failure finds the same tables.

use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};
use core::{cmp::Reverse, time::Duration};

use everfold_protocol::{
    Path, ProcessId, Rank, SegmentIndex, Timestamp,
    message::Evidence,
    pieces::Pattern,
    report::{FailureRecord, Refusal, Restored},
};

use super::Reduction;
use crate::{
    membership::Membership,
    queue::{Queue, Ready},
    task::Abandoned,
};

impl Reduction {
    /// Takes in that all of the `dead`, who are of the group, died at once. Contributions that went with the
    /// memory of processes that had died before are looked after, too.
    ///
    /// # Errors
    /// Why the reduction cannot complete as it is.
    pub fn bereave(
        &mut self,
        now: Timestamp,
        dead: &[ProcessId],
        members: &Membership,
    ) -> Result<(), Refusal> {
        self.somebody_is_left(members)?;
        let gone = self.uncommitted_and_gone(members);
        let has_not_arrived = |rank: &Rank| !self.arrived.contains(*rank);
        let not_arrived = dead.iter().map(|process| process.rank).filter(has_not_arrived);
        let comes_again = |rank: &Rank| self.can_come_again(*rank, members);
        let absent: Path = not_arrived.chain(gone.iter()).filter(|rank| !comes_again(rank)).collect();
        let lost: Path = gone.iter().filter(comes_again).collect();
        for process in dead {
            self.apart.forget(process.rank);
            if self.arrived.contains(process.rank) && !gone.contains(process.rank) {
                self.mourn(now, *process, members);
            }
        }
        // The reduction waits for these again, whether it goes on without the others or not.
        if !lost.is_empty() {
            self.expect_again(&lost);
        }
        self.commit_what_cannot_be_copied(members);
        if !absent.is_empty() {
            return Err(Refusal::ProcessFailed { ranks: absent });
        }
        self.repair_or_wait(now, members)?;
        self.somebody_folds(members)
    }

    /// Ranks whose contributions wait for their copies, and cannot be read any more.
    fn uncommitted_and_gone(&self, members: &Membership) -> Path {
        let is_gone = |rank: &Rank| {
            self.copying.held(*rank).is_some_and(|original| !self.is_readable(original, members))
        };
        self.copying.all_held().iter().filter(is_gone).collect()
    }

    /// Notes that `dead`, whose contribution counts, died.
    pub(crate) fn mourn(&mut self, now: Timestamp, dead: ProcessId, members: &Membership) {
        let rank = dead.rank;
        if self.survived.insert(rank).is_err() {
            // It was one that had come back, and had only listened.
            return;
        }
        let evidence = members.evidence(dead).expect("it was declared failed");
        self.account.mourn(now, FailureRecord { rank, at: Duration::ZERO, evidence, restored: Vec::new() });
    }

    /// Takes in how a process has ended that was declared failed before.
    pub(crate) fn learn(&mut self, dead: Rank, evidence: Evidence) {
        self.account.learn(dead, evidence);
    }

    /// Takes the reduction up again, after any deaths meanwhile.
    ///
    /// # Errors
    /// Why the reduction cannot complete as it is.
    pub(crate) fn restore(&mut self, now: Timestamp, members: &Membership) -> Result<(), Refusal> {
        self.somebody_is_left(members)?;
        self.repair_or_wait(now, members)?;
        self.somebody_folds(members)
    }

    /// Whether a rank lives that could receive the result. Ranks that give nothing any more, as it goes on
    /// without them, receive it, too.
    fn somebody_is_left(&self, members: &Membership) -> Result<(), Refusal> {
        let is_dead = |rank: Rank| !members.takes_part(rank);
        let candidates = self.spec.delivery.candidates();
        if !candidates.is_empty() && candidates.iter().copied().all(is_dead) {
            return Err(Refusal::ProcessFailed { ranks: candidates.iter().copied().collect() });
        }
        let callers = self.callers();
        if !self.spec.group.iter().any(|rank| members.receives(rank, &callers)) {
            return Err(Refusal::ProcessFailed { ranks: self.group.clone() });
        }
        Ok(())
    }

    /// Whether a rank lives that could fold, if there is anything left to fold.
    pub(super) fn somebody_folds(&self, members: &Membership) -> Result<(), Refusal> {
        if self.unfinished() > 0 && !self.group.iter().any(|rank| members.takes_part(rank)) {
            return Err(Refusal::ContributionLost { ranks: self.group.clone() });
        }
        Ok(())
    }

    /// Goes on without the contributions of `ranks`. Returns false if that is not allowed, or if no rank
    /// would be left.
    ///
    /// # Errors
    /// More contributions are lost.
    pub fn do_without(
        &mut self,
        now: Timestamp,
        ranks: &Path,
        members: &Membership,
    ) -> Result<bool, Refusal> {
        let group = self.group.difference(ranks);
        // Without the rank that gives the only piece, nothing is left.
        let has_source =
            self.spec.kind.pattern().and_then(Pattern::source).is_none_or(|it| group.contains(it));
        let somebody = group.iter().any(|rank| members.takes_part(rank));
        if !self.spec.allow_missing || !somebody || !has_source || group == self.group {
            return Ok(false);
        }
        let missing = self.group.difference(&group);
        self.missing = self.missing.union(&missing).expect("a rank is missed once");
        self.group = group;
        self.survived = self.survived.difference(ranks);
        self.again.retain(|rank, _| !ranks.contains(*rank));
        self.later_originals.retain(|later| !ranks.contains(later.original.process.rank));
        self.arrived = self.arrived.difference(ranks);
        self.originals.retain(|rank, _| !ranks.contains(*rank));
        self.copying.go_without(ranks);
        // Copied parts of a result with them are of no use any more.
        self.handout.start_over();
        for segment in &mut self.segments {
            segment.replicas.retain(|owner, _| !ranks.contains(*owner));
        }
        self.repair_or_wait(now, members)?;
        Ok(true)
    }

    pub(super) fn repair_all(&mut self, members: &Membership) -> Result<(), Refusal> {
        self.segments.indices().try_for_each(|index| self.repair(index, 0, members))
    }

    /// Makes a segment whole again: drops partials that cannot be read or do not belong to the group, and
    /// covers the contributions that are then missing. The caller has taken `loose` partials that were to be
    /// folded out of the tables. May be called at any time; if nothing is missing, it changes nothing.
    ///
    /// # Errors
    /// A contribution is lost.
    pub(super) fn repair(
        &mut self,
        index: SegmentIndex,
        mut loose: usize,
        members: &Membership,
    ) -> Result<(), Refusal> {
        // A contribution that is to come again counts no longer.
        let (arrived, gone) = (self.arrived.clone(), self.handout.gone().clone());
        // Partials that are gone, or that no task folds any more.
        loose += self.drop_tasks(index, &arrived, members);
        loose += self.drop_partials(index, &arrived, &gone, members);
        let missing = self.committed().difference(&self.live(index));
        if missing.is_empty() {
            return Ok(());
        }
        let cover = self.cover(index, &missing, members)?;
        // Both hold the same contributions: each partial more is a fold less that is done.
        self.account.redo(cover.len().saturating_sub(loose) as u64);
        self.account.restore(|| {
            let copies = cover.iter().map(|ready| (ready.process.rank, ready.path.clone())).collect();
            Restored { segment: index, path: missing, copies }
        });
        cover.into_iter().for_each(|ready| self.put(index, ready));
        Ok(())
    }

    /// Drops the tasks of a segment whose executor is dead, or that fold contributions which have not
    /// `arrived`. Returns the number of partials in them.
    fn drop_tasks(&mut self, index: SegmentIndex, arrived: &Path, members: &Membership) -> usize {
        let belongs = |path: &Path| path.is_subset(arrived);
        let is_alive = |process: ProcessId| members.lives(process);
        let segment = &mut self.segments[index];
        segment.abandoned.retain(|abandoned| is_alive(abandoned.running.executor));
        let mut loose = 0;
        for (rank, running) in core::mem::take(&mut segment.running) {
            let executor = running.executor;
            if is_alive(executor) && belongs(&running.path) {
                segment.running.insert(rank, running);
                continue;
            }
            loose += running.partials();
            // It is writing its partial, or died doing so.
            segment.held.remove(&executor.rank);
            if is_alive(executor) {
                segment.spoil(executor.rank);
                segment.abandoned.push(Abandoned { running, counts: false });
            }
        }
        for abandoned in &mut segment.abandoned {
            abandoned.counts &= belongs(&abandoned.running.path);
        }
        loose
    }

    /// Drops the partials and replicas of a segment that cannot be read, that went with processes which are
    /// `gone`, or that hold contributions which have not `arrived`. Returns the number of partials that were
    /// to be folded.
    fn drop_partials(
        &mut self,
        index: SegmentIndex,
        arrived: &Path,
        gone: &BTreeSet<ProcessId>,
        members: &Membership,
    ) -> usize {
        let share_memory = self.share_memory;
        let usable = |ready: &Ready| {
            ready.path.is_subset(arrived) && members.readable(ready, share_memory) && ready.outlasts(gone)
        };
        self.segments[index].keep_replicas(|copy| members.readable(copy, share_memory));
        for (rank, ready) in core::mem::take(&mut self.segments[index].held) {
            if usable(&ready) {
                self.segments[index].held.insert(rank, ready);
            } else if self.has_called(ready.process) {
                // What an earlier process of the rank held is no partial of the later one.
                self.segments[index].spoil(rank);
            }
        }
        let segment = &mut self.segments[index];
        let waiting = core::mem::replace(&mut segment.queue, Queue::new(self.spec.order));
        let suspended = core::mem::take(&mut segment.suspended);
        let mut loose = suspended.len();
        segment.suspended = suspended.into_iter().filter(|ready| usable(ready)).collect();
        loose -= segment.suspended.len();
        self.unfinished += usize::from(core::mem::take(&mut segment.is_finished));
        let result = core::mem::take(&mut segment.result);
        for ready in waiting.into_vec().into_iter().chain(result) {
            if usable(&ready) {
                self.put(index, ready);
            } else {
                loose += 1;
            }
        }
        loose
    }

    /// Gives up the task of `executor`, which is late, and lets others do it; its result still counts
    /// if it comes before theirs. Returns false if others could not do it.
    pub fn overtake(&mut self, index: SegmentIndex, executor: Rank, members: &Membership) -> bool {
        let segment = &self.segments[index];
        let Some(path) = segment.running.get(&executor).map(|running| running.path.clone()) else {
            return false;
        };
        let can_help = |rank: Rank| {
            let works = members.alive(rank).is_some() && self.has_caller(rank);
            rank != executor && works && !segment.is_busy_in_vain(rank)
        };
        let somebody = self.arrived.difference(self.handout.have_it()).iter().any(can_help);
        // The slow process writes into its partial: the contributions in it have to come from others.
        let own = self.segments[index].held.remove(&executor);
        let somebody = somebody && !self.awaits_last_try(index);
        let Some(cover) = self.cover(index, &path, members).ok().filter(|_| somebody) else {
            self.segments[index].held.extend(own.map(|own| (executor, own)));
            return false;
        };
        let segment = &mut self.segments[index];
        let running = segment.running.remove(&executor);
        segment.abandoned.extend(running.map(|running| Abandoned { running, counts: true }));
        self.account.double();
        cover.into_iter().for_each(|ready| self.put(index, ready));
        true
    }

    /// The fewest readable copies that together hold `lost`.
    fn cover(
        &self,
        index: SegmentIndex,
        lost: &Path,
        members: &Membership,
    ) -> Result<Vec<Arc<Ready>>, Refusal> {
        let segment = &self.segments[index];
        let originals = lost.iter().filter_map(|rank| self.originals.get(&rank));
        let replicas = lost.iter().filter_map(|rank| segment.replicas.get(&rank)).flatten();
        let half_filled: Vec<Arc<Ready>> = self.half_filled(index).collect();
        let copies = segment.folded().chain(&half_filled).chain(originals).chain(replicas);
        let usable = |ready: &&Arc<Ready>| {
            let is_there = self.is_readable(ready, members);
            is_there && ready.path.is_subset(lost)
        };
        let mut copies: Vec<&Arc<Ready>> = copies.filter(usable).collect();
        copies.sort_by_key(|ready| Reverse(ready.path.len()));
        let mut missing = lost.clone();
        let mut cover = Vec::new();
        for copy in copies {
            if copy.path.is_subset(&missing) {
                missing = missing.difference(&copy.path);
                cover.push(copy.clone());
            }
        }
        if missing.is_empty() { Ok(cover) } else { Err(Refusal::ContributionLost { ranks: missing }) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use everfold_protocol::{
        ReductionSpec, RegionOffset,
        message::{Data, Ending, Place},
    };

    use super::*;
    use crate::{
        lengths::Cut,
        membership::Prospect,
        reduction::testing::{self, process},
    };

    fn window() -> Data {
        testing::window(Place::Region(RegionOffset(0)))
    }

    /// A reduction of three ranks on one host that goes on without rank 0, and their job.
    fn reduction() -> (Reduction, Membership) {
        let spec = ReductionSpec { allow_missing: true, ..testing::spec(3, testing::object()) };
        let (now, members) = (Timestamp::ZERO, testing::job(&[0; 3]));
        let mut reduction = testing::reduction(spec, window(), Cut::fixed(0), true);
        for rank in 0..3 {
            reduction.arrive(now, process(rank), window(), false);
        }
        assert_eq!(reduction.do_without(now, &Path::single(Rank(0)), &members), Ok(true));
        (reduction, members)
    }

    /// Lets all that contribute die. Their memory stays.
    fn lose_contributors(reduction: &mut Reduction, members: &mut Membership) -> Result<(), Refusal> {
        let dead = [process(1), process(2)];
        members.fail(&dead, Evidence::Ended(Ending::Code(1)), Prospect::Gone);
        reduction.bereave(Timestamp::ZERO, &dead, members)
    }

    #[test]
    fn a_result_outlives_all_contributors_for_a_rank_that_was_missed() {
        let (mut reduction, mut members) = reduction();
        let queue = &mut reduction.segments[SegmentIndex(0)].queue;
        while queue.remove(|_| true).is_some() {}
        let result = Ready { process: process(2), path: Path::range(1, 3), data: window() };
        reduction.put(SegmentIndex(0), Arc::new(result));
        assert_eq!(lose_contributors(&mut reduction, &mut members), Ok(()));
        assert_eq!(reduction.unfinished(), 0);
    }

    #[test]
    fn without_a_result_nobody_is_left_who_folds_when_all_contributors_are_dead() {
        let (mut reduction, mut members) = reduction();
        let lost = Refusal::ContributionLost { ranks: Path::range(1, 3) };
        assert_eq!(lose_contributors(&mut reduction, &mut members), Err(lost));
    }
}
