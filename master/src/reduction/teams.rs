//! A reduction as an attempt in teams.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentIndex, TaskId, Timestamp,
    message::{Effort, Part},
};

use super::{Called, Reduction, Sizes};
use crate::{lane::Load, lengths::Cut, membership::Membership, policy::Policy, queue::Ready, task::Running};

/// Whether anything comes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// All that could be done is done.
    IsDone,
    /// Nothing has come of it for too long.
    StandsStill,
    /// Something may come of it yet; it is to be looked at again then.
    GoesOn(Timestamp),
}

/// The task of a team as a whole.
const OF_TEAM: TaskId = TaskId(u64::MAX);

impl Reduction {
    /// What begins with the first that is heard of an attempt. `team`: whose, at a deputy.
    pub(crate) fn attempt(
        now: Timestamp,
        caller: Rank,
        called: Called,
        team: Option<Path>,
        policy: &Policy,
    ) -> Self {
        let spec = called.spec;
        let sizes =
            Sizes { ranks: policy.ranks_in_teams(spec), cut: Cut::fixed(policy.segment_len_in_teams(spec)) };
        let mut reduction = Self::begin(now, caller, called, sizes, policy, false);
        reduction.group = team.unwrap_or(reduction.group);
        reduction.inline = reduction.body_bytes <= policy.limits.inline_bytes_max;
        reduction
    }

    /// Whether it comes to nothing because of `comers`: they disagree with earlier callers, or have called
    /// before, or a rank of the group is gone.
    pub(crate) fn hinders(
        &self,
        id: ReductionId,
        comers: &Path,
        called: Called,
        members: &Membership,
    ) -> bool {
        let first = comers.first().expect("somebody comes");
        self.disagreement(id, first, called).is_some()
            || !comers.is_subset(&self.group.difference(&self.arrived))
            || members.absent(&called.spec.group, &self.arrived).is_some()
    }

    /// Whether anything has come of it, if it may stand still for as long as `patience`.
    pub(crate) fn standing(&self, now: Timestamp, patience: Duration) -> Standing {
        let later = self.last_progress + patience;
        match () {
            () if self.unfinished == 0 => Standing::IsDone,
            () if later <= now => Standing::StandsStill,
            () => Standing::GoesOn(later),
        }
    }

    /// What its deputy tells of a finished segment, and with the last one what all of them took.
    pub(crate) fn told(&self, index: SegmentIndex) -> Option<(Part, Option<Effort>)> {
        let part = self.part(index)?;
        Some((part, (self.unfinished == 0).then(|| self.account.effort().clone())))
    }

    /// Adds the effort of a team's tasks.
    pub(crate) fn add_effort(&mut self, effort: Effort) {
        self.account.add(effort);
    }

    /// Takes in that a whole team has contributed, and works on all segments.
    pub(crate) fn open(&mut self, now: Timestamp, deputy: ProcessId, team: &Path) {
        self.arrive_together(now, team);
        for segment in &mut self.segments {
            let running = Running {
                task: OF_TEAM,
                executor: deputy,
                own: Path::empty(),
                sources: Vec::new(),
                path: team.clone(),
                load: Load::default(),
                late: Timestamp::from_nanos(u64::MAX),
            };
            segment.running.insert(deputy.rank, running);
        }
    }

    /// Takes in a segment of a team. Returns false if that has told of it before, or of nothing yet.
    pub(crate) fn take_part(&mut self, now: Timestamp, deputy: ProcessId, part: Part) -> bool {
        let Some(running) = self.take_running(part.index, OF_TEAM, deputy) else { return false };
        let ready = Arc::new(Ready { process: part.process, path: running.path, data: part.data });
        self.segments[part.index].hold(ready.clone());
        self.put(part.index, ready);
        self.last_progress = now;
        true
    }

    /// Whether a team has not folded this segment yet.
    pub(super) fn awaits_part(&self, index: SegmentIndex) -> bool {
        self.segments[index].running.values().any(|running| running.task == OF_TEAM)
    }

    /// Where a team's finished segment lies.
    fn part(&self, index: SegmentIndex) -> Option<Part> {
        let result = self.segments[index].result.first()?;
        Some(Part { index, process: result.process, data: result.data.clone() })
    }
}
