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
use crate::{
    desk::Desk,
    membership::Membership,
    queue::Ready,
    task::{Abandoned, Running},
};

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
    /// It was tried for too long, or what it has read is lost.
    pub(crate) fn fail_in_vain(
        &mut self,
        Abandoned { running, counts }: Abandoned,
        failed: TaskFailed,
        desk: &Desk,
    ) -> Result<bool, Refusal> {
        let TaskFailed { segment: SegmentId { index, .. }, culprit, fault, reason, .. } = failed;
        self.segments[index].spoil(running.executor.rank);
        // What lies at a dead process does not change: the task that does it now would find the same. That
        // task may be given up before it finds out, too, and so may the next one.
        let is_lost = match fault {
            Fault::Gone | Fault::Damaged => !desk.members.lives(culprit),
            Fault::Unreachable => !desk.members.is_answered_for(culprit),
            Fault::Torn | Fault::Unfit => false,
        };
        if counts && is_lost {
            let waiting = self.suspect(index, &running, (culprit, fault), &desk.members)?;
            self.repair(index, waiting, &desk.members)?;
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
        self.repair(index, running.partials(), members)?;
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
    /// A contribution is lost, or stays damaged.
    fn damaged(
        &mut self,
        index: SegmentIndex,
        running: &Running,
        found: (ProcessId, Fault),
        members: &Membership,
    ) -> Result<(), Refusal> {
        let waiting = self.suspect(index, running, found, members)?;
        self.repair(index, running.partials() + waiting, members)
    }

    /// Forgets what a task has found damaged or gone at `culprit`. Returns how many of the forgotten partials
    /// waited to be folded.
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
    ) -> Result<usize, Refusal> {
        if self.has_lost_to(index, running, culprit, members) {
            return Ok(0);
        }
        let can_fold = self.has_called(culprit);
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
            |copy: &Ready| copy.process == culprit && !copy.is_inline() && damaged.contains(&&copy.path);
        let mut waiting = 0;
        if !damaged.is_empty() && segment.keep_replicas(|copy| !is_damaged(copy)) == 0 {
            let held = segment.held.len();
            segment.held.retain(|_, copy| !is_damaged(copy));
            if segment.held.len() < held && can_fold {
                segment.spoil(culprit.rank);
            }
            waiting = segment.drop_waiting(is_damaged);
            if self.originals.get(&culprit.rank).is_some_and(|copy| is_damaged(copy)) {
                self.originals.remove(&culprit.rank);
            }
            self.handout.drop_body_of(culprit);
        }
        Ok(waiting)
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
        self.repair(index, running.partials(), members)
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
        Incarnation, Rank, ReductionId, ReductionSpec, RegionOffset, TaskId, Timestamp,
        message::{Data, Ending, Evidence, Place},
        spec::Protection,
    };

    use super::{super::segment::DAMAGED_MOST, *};
    use crate::{
        lane::Load,
        lengths::Cut,
        membership::Prospect,
        policy::Policy,
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
        reduction.damaged(SEGMENT, &reads(read), (CULPRIT, Fault::Damaged), members)
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

    /// A reduction of an object on one host whose ranks come back. The process of rank 0 has died, and its
    /// memory is there.
    fn bereft() -> (Reduction, Desk) {
        let window = || testing::window(Place::Region(RegionOffset(0)));
        let mut reduction =
            testing::reduction(testing::spec(3, testing::object()), window(), Cut::fixed(0), true);
        reduction.ranks_return = true;
        (0..3).for_each(|rank| reduction.arrive(Timestamp::ZERO, process(rank), window(), false));
        let mut members = testing::job(&[0; 3]);
        members.fail(&[CULPRIT], Evidence::Ended(Ending::Code(1)), Prospect::Returns);
        reduction.bereave(Timestamp::ZERO, &[CULPRIT], &members).unwrap();
        (reduction, Desk::new(Timestamp::ZERO, Policy::default(), members))
    }

    fn reads(paths: &[&[u32]]) -> Running {
        let (task, executor) = (TaskId(0), process(2));
        let sources = paths.iter().map(|ranks| (CULPRIT, path(ranks))).collect();
        let (own, load, late) = (path(&[2]), Load::default(), Timestamp::ZERO);
        Running { task, executor, own, sources, path: Path::range(0, 3), load, late }
    }

    fn gone() -> TaskFailed {
        TaskFailed {
            task: TaskId(0),
            segment: SegmentId { reduction: ReductionId::new("x", 0), index: SEGMENT },
            culprit: CULPRIT,
            suspects: Path::empty(),
            fault: Fault::Gone,
            reason: String::new(),
        }
    }

    #[test]
    fn a_task_that_was_given_up_is_believed_if_its_sources_are_what_they_were() {
        for counts in [false, true] {
            let (mut reduction, desk) = bereft();
            let abandoned = Abandoned { running: reads(&[&[0]]), counts };
            let lost = Refusal::ContributionLost { ranks: path(&[0]) };
            let expected = if counts { Err(lost) } else { Ok(false) };
            assert_eq!(reduction.fail_in_vain(abandoned, gone(), &desk), expected);
        }
    }

    #[test]
    fn what_an_earlier_process_held_does_not_spoil_what_the_later_one_has() {
        let (mut reduction, desk) = bereft();
        let later = ProcessId { incarnation: Incarnation(1), ..CULPRIT };
        reduction.call_again(later, testing::window(Place::Region(RegionOffset(1))));
        let held = Ready { process: CULPRIT, path: path(&[0, 1]), data: window() };
        reduction.segments[SEGMENT].hold(Arc::new(held));
        reduction.suspect(SEGMENT, &reads(&[&[0, 1]]), (CULPRIT, Fault::Gone), &desk.members).unwrap();
        assert!(!reduction.segments[SEGMENT].spoilt.contains(&Rank(0)));
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
