//! What becomes of a task that came to nothing.
//!
//! Its executor could not reach an owner, read damaged bytes, or spoilt its own partial. Living owners that
//! could not be reached are tried again, damaged data is doubted, and lost partials are put together again,
//! as after a death: see `repair`.

use alloc::{borrow::ToOwned, string::String, sync::Arc, vec::Vec};

use everfold_protocol::{
    Path, ProcessId, SegmentId, SegmentIndex,
    message::{Fault, TaskFailed},
    report::Refusal,
};

use super::Reduction;
use crate::{desk::Desk, membership::Membership, queue::Ready, task::Running};

impl Reduction {
    /// Takes in that a task came to nothing. Returns whether something begins to wait.
    ///
    /// # Errors
    /// Why the reduction cannot complete as it is.
    pub(crate) fn fail(
        &mut self,
        running: Running,
        failed: TaskFailed,
        desk: &Desk,
    ) -> Result<bool, Refusal> {
        let TaskFailed { segment: SegmentId { index, .. }, culprit, suspects, fault, reason, .. } = failed;
        let (executor, members) = (running.executor.rank, &desk.members);
        match fault {
            Fault::Gone if !desk.members.lives(culprit) => {
                self.damaged(index, &running, (culprit, fault), members).map(|()| false)
            }
            // Most likely the death of a process that shows nothing any more is about to be noticed.
            Fault::Unreachable | Fault::Gone => self.unreachable(index, running, culprit, reason, desk),
            Fault::Damaged => self.damaged(index, &running, (culprit, fault), members).map(|()| false),
            Fault::Torn if self.spec.delivery.root() != Some(executor) => {
                self.torn(index, &running, members).map(|()| false)
            }
            Fault::Torn | Fault::Unfit => {
                let path = if suspects.is_empty() { running.held_by(culprit) } else { suspects };
                Err(Refusal::FoldFailed { executor, path, reason })
            }
        }
    }

    /// The same of a task that was given up before.
    ///
    /// # Errors
    /// It was tried for too long.
    pub(crate) fn fail_in_vain(
        &mut self,
        running: Running,
        failed: TaskFailed,
        desk: &Desk,
    ) -> Result<bool, Refusal> {
        let TaskFailed { segment: SegmentId { index, .. }, culprit, fault, reason, .. } = failed;
        self.segments[index].spoil(running.executor.rank);
        // What the dead have left does not change any more: the next task would fail, too, and be late, too.
        let is_final = matches!(fault, Fault::Gone | Fault::Damaged) && !desk.members.lives(culprit);
        if is_final && !self.is_handed_out() {
            self.suspect(index, &running, (culprit, fault), &desk.members)?;
            self.repair(index, None, &desk.members)?;
        }
        let is_apart = fault == Fault::Unreachable && desk.members.is_answered_for(culprit);
        let is_over = is_apart && self.did_not_reach(index, running.executor, culprit, desk);
        match is_over && self.stands_still(index) {
            true => Err(running.not_folded(culprit, reason)),
            false => Ok(false),
        }
    }

    /// Takes in that a task came to nothing because its executor could not reach `culprit`. If that process
    /// lives, or its agent does, its partials are left alone for a while: most likely a death is about to be
    /// noticed. Otherwise others are to read them. Returns whether something begins to wait.
    ///
    /// # Errors
    /// A contribution is lost, or it was tried for too long.
    fn unreachable(
        &mut self,
        index: SegmentIndex,
        running: Running,
        culprit: ProcessId,
        reason: String,
        desk: &Desk,
    ) -> Result<bool, Refusal> {
        let members = &desk.members;
        if !members.is_answered_for(culprit) || self.has_lost_to(index, &running, culprit, members) {
            // Its memory is not there any more: it did not just die.
            return self.damaged(index, &running, (culprit, Fault::Unreachable), members).map(|()| false);
        }
        if self.did_not_reach(index, running.executor, culprit, desk) {
            return Err(running.not_folded(culprit, reason));
        }
        self.repair(index, Some(&running), members)?;
        let segment = &mut self.segments[index];
        // What waits already is about to be tried again, and this together with it.
        let begins = segment.suspended.is_empty();
        while let Some(ready) = segment.queue.remove(|ready| ready.process == culprit && !ready.is_inline()) {
            segment.suspended.push(ready);
        }
        Ok(begins && !segment.suspended.is_empty())
    }

    /// Takes in that a task came to nothing because it met a damaged copy at `culprit`.
    ///
    /// # Errors
    /// A contribution is lost.
    fn damaged(
        &mut self,
        index: SegmentIndex,
        running: &Running,
        found: (ProcessId, Fault),
        members: &Membership,
    ) -> Result<(), Refusal> {
        self.suspect(index, running, found, members)?;
        self.repair(index, Some(running), members)
    }

    /// Forgets what a task has found damaged at `culprit`, or gone.
    ///
    /// The error names the process, not which of its data is damaged. Replicas are suspected first, which may
    /// lie on a disk. Data that was read there beside a replica is not suspected yet: the next try without
    /// the replica tells. Data of a process that lives, or whose agent lives, is read again a few times: the
    /// damage may have come on the way.
    ///
    /// # Errors
    /// It stays damaged.
    fn suspect(
        &mut self,
        index: SegmentIndex,
        running: &Running,
        (culprit, fault): (ProcessId, Fault),
        members: &Membership,
    ) -> Result<(), Refusal> {
        if self.has_lost_to(index, running, culprit, members) {
            return Ok(());
        }
        let segment = &mut self.segments[index];
        let may_pass = fault != Fault::Gone && members.is_answered_for(culprit);
        let there = running.sources.iter().filter(|(process, _)| *process == culprit).map(|(_, path)| path);
        let (replicas, others): (Vec<&Path>, Vec<&Path>) =
            there.partition(|path| segment.is_replica(culprit, path));
        let suspects = if replicas.is_empty() { others } else { replicas };
        // All of these are counted: none of them is above suspicion.
        let is_believed = |path: &&Path| !(may_pass && segment.reads_again(culprit.rank, path));
        let damaged: Vec<&Path> = suspects.into_iter().filter(is_believed).collect();
        if segment.stays_damaged(culprit.rank) {
            // Its owner would fold it anew, and no other rank could read it.
            return Err(running.not_folded(culprit, "it stays damaged".to_owned()));
        }
        // Inlined bodies were not read there.
        let is_damaged =
            |copy: &Arc<Ready>| copy.process == culprit && !copy.is_inline() && damaged.contains(&&copy.path);
        if !damaged.is_empty() && segment.keep_replicas(|copy| !is_damaged(copy)) == 0 {
            let held = segment.held.len();
            segment.held.retain(|_, copy| !is_damaged(copy));
            if segment.held.len() < held {
                segment.spoil(culprit.rank);
            }
            if self.originals.get(&culprit.rank).is_some_and(is_damaged) {
                self.originals.remove(&culprit.rank);
            }
            self.handout.drop_body_of(culprit);
        }
        Ok(())
    }

    /// Whether some of the data that a task was to read at `culprit` has died with that process: then nothing
    /// else there is suspected.
    fn has_lost_to(
        &self,
        index: SegmentIndex,
        running: &Running,
        culprit: ProcessId,
        members: &Membership,
    ) -> bool {
        let segment = &self.segments[index];
        let half_filled: Vec<Arc<Ready>> = self.half_filled(index).collect();
        let copies = || segment.held.values().chain(&half_filled).chain(self.originals.values());
        let known = || copies().chain(segment.replicas.values().flatten());
        let is_left = |path: &Path| {
            let mut those = known().filter(|copy| copy.process == culprit && copy.path == *path);
            those.any(|copy| members.readable(copy, self.share_memory))
        };
        let mut sources = running.sources.iter().filter(|(process, _)| *process == culprit);
        !members.lives(culprit) && sources.any(|(_, path)| !is_left(path))
    }

    /// Takes in that a task came to nothing and spoilt its executor's partial.
    ///
    /// # Errors
    /// A contribution is lost.
    fn torn(&mut self, index: SegmentIndex, running: &Running, members: &Membership) -> Result<(), Refusal> {
        let segment = &mut self.segments[index];
        segment.held.remove(&running.executor.rank);
        segment.spoil(running.executor.rank);
        self.repair(index, Some(running), members)
    }

    /// Lets partials that could not be reached take part again.
    pub fn resume(&mut self, index: SegmentIndex) {
        self.segments[index].tries.go_on();
        for ready in core::mem::take(&mut self.segments[index].suspended) {
            self.put(index, ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        Incarnation, Rank, ReductionSpec, TaskId, Timestamp,
        message::{Data, Place},
        spec::Protection,
    };

    use super::{super::segment::DAMAGED_MOST, *};
    use crate::{
        lane::Load,
        lengths::Cut,
        reduction::testing::{self, process},
    };

    const SEGMENT: SegmentIndex = SegmentIndex(0);
    /// Whose data arrives damaged.
    const CULPRIT: ProcessId = ProcessId { rank: Rank(0), incarnation: Incarnation(0) };

    fn window() -> Data {
        testing::window(Place::Served)
    }

    fn path(ranks: &[u32]) -> Path {
        ranks.iter().copied().map(Rank).collect()
    }

    /// What lies at the culprit.
    fn ready(ranks: &[u32]) -> Arc<Ready> {
        Arc::new(Ready { process: CULPRIT, path: path(ranks), data: window() })
    }

    /// A reduction of an object to which ranks 0 to 2 have contributed, the first in this way.
    fn reduction(first: Data) -> (Reduction, Membership) {
        let spec = ReductionSpec { protection: Protection::Disk, ..testing::spec(3, testing::object()) };
        let mut reduction = testing::reduction(spec, window(), Cut::fixed(0), false);
        for (rank, data) in (0..).zip([first, window(), window()]) {
            reduction.arrive(Timestamp::ZERO, process(rank), data, false);
        }
        (reduction, testing::job(&[0, 1, 2]))
    }

    /// A task that reads these at the culprit comes to nothing: something there is damaged.
    fn meets_damage(reduction: &mut Reduction, members: &Membership, read: &[&[u32]]) -> Result<(), Refusal> {
        let queue = &mut reduction.segments[SEGMENT].queue;
        while queue.remove(|_| true).is_some() {}
        let (task, executor) = (TaskId(0), process(2));
        let sources = read.iter().map(|ranks| (CULPRIT, path(ranks))).collect();
        let (own, load, late) = (path(&[2]), Load::default(), Timestamp::ZERO);
        let running = Running { task, executor, own, sources, path: Path::range(0, 3), load, late };
        reduction.damaged(SEGMENT, &running, (CULPRIT, Fault::Damaged), members)
    }

    #[test]
    fn what_lies_beside_damaged_replicas_is_not_suspected() {
        let (mut reduction, members) = reduction(window());
        for owner in [1, 2] {
            reduction.segments[SEGMENT].add_replica(Rank(owner), ready(&[owner]));
        }
        for owner in [1, 2] {
            for is_kept in [true, true, true, false] {
                meets_damage(&mut reduction, &members, &[&[0], &[owner]]).unwrap();
                assert_eq!(reduction.segments[SEGMENT].replicas.contains_key(&Rank(owner)), is_kept);
            }
        }
        for _ in 0..3 {
            meets_damage(&mut reduction, &members, &[&[0]]).unwrap();
        }
        let lost = Refusal::ContributionLost { ranks: path(&[0]) };
        assert_eq!(meets_damage(&mut reduction, &members, &[&[0]]), Err(lost), "it is damaged by itself");
    }

    #[test]
    fn what_came_inlined_does_not_go_with_a_damaged_partial() {
        let (mut reduction, members) = reduction(Data::Inline(b"0".as_slice().into()));
        reduction.segments[SEGMENT].hold(ready(&[1, 2]));
        for is_held in [true, true, true, false] {
            meets_damage(&mut reduction, &members, &[&[0], &[1, 2]]).unwrap();
            assert_eq!(reduction.segments[SEGMENT].held.contains_key(&Rank(0)), is_held);
        }
    }

    #[test]
    fn a_process_does_not_fold_anew_for_ever_what_nobody_can_read() {
        let (mut reduction, members) = reduction(window());
        let mut fold_and_read = || {
            reduction.segments[SEGMENT].hold(ready(&[0, 1]));
            meets_damage(&mut reduction, &members, &[&[0, 1]])
        };
        let failed = (0..100)
            .map(|_| fold_and_read())
            .position(|read| matches!(read, Err(Refusal::FoldFailed { .. })));
        assert_eq!(failed, Some(DAMAGED_MOST as usize));
    }
}
