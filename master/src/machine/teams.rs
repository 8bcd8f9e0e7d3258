//! Attempts in teams: the master's part (see [`team`](everfold_protocol::team)).
//!
//! To the master a team is a process that works on all segments: from the moment when all of it have
//! contributed there is a running task of the deputy's for each, and it is done when the deputy tells where
//! the team's partial lies. All else is as in any reduction.
//!
//! Nothing is repaired. Any death or error dissolves the attempt, and the master alone decides that: its
//! messages reach all ranks in order, so that no rank is left with an attempt that others have finished.

use alloc::vec::Vec;

use everfold_protocol::{
    Path, ProcessId, ReductionId, SegmentId,
    message::{Contribution, Effort, Opened, Part, ToWorker},
    report::Refusal,
    team,
};

use super::Master;
use crate::{
    dissolved::{News, join},
    event::Notice,
    reduction::{Called, Reduction, Standing},
    timers::Timer,
};

impl Master {
    /// Takes in the root's contribution to an attempt. A member of a team tells its deputy.
    pub(super) fn contribute_in_teams(&mut self, sender: ProcessId, contribution: Contribution) {
        let Contribution { reduction: id, name, spec, data } = contribution;
        let called = Called { name: &name, spec: &spec };
        if team::of(&spec, sender.rank).is_some() || self.hinders(id, &Path::single(sender.rank), called) {
            return;
        }
        let reduction = self.reductions.get_mut(&id).expect("it has begun");
        reduction.arrive(self.desk.now, sender, data, false);
        self.proceed(id);
    }

    /// Takes in that a team has contributed.
    pub(super) fn open(&mut self, sender: ProcessId, opened: Opened) {
        let Opened { reduction: id, name, spec, segment_bytes } = opened;
        let team = team::of(&spec, sender.rank).filter(|team| team.first() == Some(sender.rank));
        let Some(team) = team.filter(|_| id.is_in_teams()) else {
            return self.desk.outbox.stale(sender, "team that it is no deputy of");
        };
        if self.hinders(id, &team, Called { name: &name, spec: &spec }) {
            return;
        }
        let reduction = self.reductions.get_mut(&id).expect("it has begun");
        if reduction.segment_bytes() != segment_bytes {
            return self.dissolve(id, &spec.group);
        }
        reduction.open(self.desk.now, sender, &team);
        self.proceed(id);
    }

    /// Whether the attempt that `comers` enter comes to nothing. If not, it has begun.
    fn hinders(&mut self, id: ReductionId, comers: &Path, called: Called) -> bool {
        let Self { desk, reductions, .. } = self;
        let is_tried = desk.policy.tries_in_teams(called.spec, desk.members.size());
        let Some(first) = comers.first().filter(|_| is_tried) else { return true };
        let group = &called.spec.group;
        if let Some(Refusal::ProcessFailed { .. }) = desk.members.absent(group, &Path::empty()) {
            // Living ranks have heard of it, or are about to, and contribute as usual.
            return true;
        }
        let usual = id.called();
        if reductions.contains_key(&usual) || self.refusals.contain(usual) || self.dissolved.contain(id) {
            self.tell_dissolved(id, group);
            return true;
        }
        let reduction = reductions.entry(id).or_insert_with(|| {
            desk.timers.set(desk.now + desk.policy.attempt_patience(), Timer::Dissolve(id));
            Reduction::attempt(desk.now, first, called, None, &desk.policy)
        });
        let hinders = reduction.hinders(id, comers, called, &desk.members);
        if hinders {
            self.dissolve(id, group);
        }
        hinders
    }

    /// Takes in the segments that a team has folded.
    pub(super) fn take_parts(
        &mut self,
        sender: ProcessId,
        id: ReductionId,
        parts: Vec<Part>,
        mut effort: Option<Effort>,
    ) {
        for part in parts {
            let Some(reduction) = self.reductions.get_mut(&id) else {
                return self.desk.outbox.stale(sender, "part of an attempt that is over");
            };
            let index = part.index;
            if !reduction.take_part(self.desk.now, sender, part) {
                return self.desk.outbox.stale(sender, "part of a team that nobody waits for");
            }
            effort.take().into_iter().for_each(|effort| reduction.add_effort(effort));
            match reduction.unfinished() {
                0 => self.finish(id, None),
                _ => self.scheduler.change(SegmentId { reduction: id, index }),
            }
        }
    }

    /// Ends an attempt, at the ranks that take part in it, and at `others`, which may believe in another
    /// group.
    pub(super) fn dissolve(&mut self, id: ReductionId, others: &Path) {
        let group = self.reductions.get(&id).map(|reduction| join(&reduction.spec().group, others));
        self.scheduler.forget(id, &mut self.reductions, &self.desk.members);
        self.tell_dissolved(id, group.as_ref().unwrap_or(others));
    }

    /// Tells the ranks of a group that have not been told that their attempt is over. A rank that has heard
    /// its result ignores that.
    fn tell_dissolved(&mut self, id: ReductionId, group: &Path) {
        let News { is_first, untold } = self.dissolved.tell(id, group);
        if is_first {
            self.desk.outbox.notice(Notice::Dissolved(id));
        }
        self.desk.send_each(&untold, &ToWorker::Dissolved { reduction: id });
    }

    /// Looks whether anything comes of an attempt.
    pub(super) fn lose_patience(&mut self, id: ReductionId) {
        let Some(reduction) = self.reductions.get(&id) else { return };
        match reduction.standing(self.desk.now, self.desk.policy.attempt_patience()) {
            Standing::IsDone => {}
            Standing::StandsStill => self.dissolve(id, &Path::empty()),
            Standing::GoesOn(later) => self.desk.timers.set(later, Timer::Dissolve(id)),
        }
    }
}
