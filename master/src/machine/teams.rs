//! Attempts in teams: what a deputy does for its team, and what the master makes of that (see
//! [`team`](everfold_protocol::team)).
//!
//! To the master a team is a process that works on all segments: from the moment when all of it have contributed there is
//! a running task of the deputy's for each, and it is done when the deputy tells where the team's partial lies. All else is
//! as in any reduction. A deputy is this same machine; its reductions end where those of the master begin.
//!
//! Neither repairs anything. Whatever comes in between dissolves the attempt, and the master alone decides that: its word
//! reaches everyone in order with all else that it says, so that nobody is left with an attempt that others have finished.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    JobId, Path, ProcessId, Rank, ReductionId, SegmentId, SegmentIndex, Timestamp,
    message::{Contribution, Effort, Evidence, Opened, Part, Peer, ToWorker},
    report::Refusal,
    spec::Limits,
    team,
};

use super::{Master, admission::disagreement};
use crate::{
    desk::Desk,
    dissolved::{News, join},
    event::Notice,
    membership::Membership,
    policy::Policy,
    reduction::{Called, Reduction},
    scheduler::Scheduler,
    timers::Timer,
};

/// Least time in which nothing comes of an attempt before it is dissolved.
const PATIENCE_MIN: Duration = Duration::from_millis(100);

impl Master {
    /// The master of a team that `rank` belongs to; `peers` are all processes of the job.
    pub fn deputy(now: Timestamp, job: JobId, rank: Rank, peers: Arc<[Peer]>, policy: Policy) -> Self {
        let desk = Desk::new(now, policy, Membership::elsewhere(job, peers.len() as u32));
        // A worker has tasks of several masters.
        let scheduler = Scheduler::numbering_from(u64::from(rank.0 + 1) << 40);
        Self { scheduler, job: Some(peers), ..Self::at(desk) }
    }

    pub(super) fn is_deputy(&self) -> bool {
        self.job.is_some()
    }

    /// Takes processes in that a deputy may not have had to do with yet.
    pub(super) fn meet(&mut self, ranks: &Path) {
        let Some(job) = &self.job else { return };
        let peers = ranks.iter().filter_map(|rank| job.get(rank.index()));
        peers.for_each(|peer| self.desk.members.take_in(peer.clone()));
    }

    /// Takes in a contribution to an attempt: at a deputy one of its team's, at the master the root's.
    pub(super) fn contribute_in_teams(&mut self, sender: ProcessId, contribution: Contribution) {
        let Contribution { reduction: id, name, spec, data } = contribution;
        let deputy = self.is_deputy();
        let team = team::of(&spec, sender.rank);
        // A member tells its deputy, the root the master.
        if team.is_some() != deputy
            || self.hinders(id, &Path::single(sender.rank), Called { name: &name, spec: &spec }, team)
        {
            return;
        }
        let reduction = self.reductions.get_mut(&id).expect("it has begun");
        reduction.arrive(self.desk.now, sender, data, false);
        if deputy && reduction.arrived == reduction.group {
            let (segment_bytes, count) = (reduction.segment_bytes, reduction.segments.count());
            let opened = Opened { reduction: id, name, spec, segment_bytes };
            self.desk.outbox.report_open(opened);
            // Of one rank.
            (0..count)
                .for_each(|index| self.tell_part(SegmentId { reduction: id, index: SegmentIndex(index) }));
        }
        self.proceed(id);
    }

    /// Takes in that a team has contributed.
    pub(super) fn open(&mut self, sender: ProcessId, opened: Opened) {
        let Opened { reduction: id, name, spec, segment_bytes } = opened;
        let team = team::of(&spec, sender.rank).filter(|team| team.first() == Some(sender.rank));
        let Some(team) = team.filter(|_| id.is_in_teams()) else {
            return self.desk.outbox.stale(sender, "team that it is no deputy of");
        };
        if self.hinders(id, &team, Called { name: &name, spec: &spec }, None) {
            return;
        }
        let reduction = self.reductions.get_mut(&id).expect("it has begun");
        if reduction.segment_bytes != segment_bytes {
            return self.dissolve(id, &spec.group);
        }
        reduction.open(self.desk.now, sender, &team);
        self.proceed(id);
    }

    /// Whether the attempt that `comers` enter comes to nothing. If not, it has begun.
    fn hinders(&mut self, id: ReductionId, comers: &Path, called: Called, team: Option<Path>) -> bool {
        let Called { name, spec } = called;
        let Limits { teams_from, body_bytes_max, .. } = self.desk.policy.limits;
        let is_known = spec.group.last().is_some_and(|last| last.0 < self.desk.members.size());
        let is_sound = is_known && team::is_sound(spec, body_bytes_max) && team::suits(spec, teams_from);
        let Some(first) = comers.first().filter(|_| is_sound) else { return true };
        self.meet(team.as_ref().unwrap_or(&Path::empty()));
        if let Some(Refusal::ProcessFailed { .. }) = self.desk.members.absent(&spec.group, &Path::empty()) {
            // Who lives has heard of it, or is about to, and contributes as usual.
            return true;
        }
        let usual = id.called();
        if self.reductions.contains_key(&usual) || self.refusals.contain(usual) || self.dissolved.contain(id)
        {
            self.tell_dissolved(id, &spec.group);
            return true;
        }
        let patience = self.patience();
        let reduction = self.reductions.entry(id).or_insert_with(|| {
            self.desk.timers.set(self.desk.now + patience, Timer::Dissolve(id));
            Reduction::attempt(self.desk.now, first, called, team, &self.desk.policy)
        });
        let hinders = disagreement(reduction, first, id, name, spec).is_some()
            || !comers.is_subset(&reduction.group.difference(&reduction.arrived))
            || self.desk.members.absent(&spec.group, &self.reductions[&id].arrived).is_some();
        if hinders {
            self.dissolve(id, &spec.group);
        }
        hinders
    }

    /// Takes in what a team has folded.
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
            effort.take().into_iter().for_each(|effort| reduction.account.add(effort));
            match reduction.unfinished {
                0 => self.finish(id, None),
                _ => self.scheduler.change(SegmentId { reduction: id, index }),
            }
        }
    }

    /// Tells the master where a finished segment of the team lies.
    pub(super) fn tell_part(&mut self, id: SegmentId) {
        let Some(reduction) = self.reductions.get(&id.reduction) else { return };
        let Some(part) = reduction.part(id.index) else { return };
        let effort = (reduction.unfinished == 0).then(|| reduction.account.effort().clone());
        self.desk.outbox.report_part(id.reduction, part, effort);
    }

    /// Ends an attempt, at whoever takes part in it, and at `others`, who may believe in another group. A deputy asks for that.
    pub(super) fn dissolve(&mut self, id: ReductionId, others: &Path) {
        let reduction = self.reductions.get(&id);
        let group = reduction.map_or_else(|| others.clone(), |reduction| join(&reduction.spec.group, others));
        self.forget(id);
        match self.is_deputy() {
            true => self.desk.outbox.ask_to_dissolve(id, group),
            false => self.tell_dissolved(id, &group),
        }
    }

    /// Tells those of a group who have not been told that their attempt is over. Who has heard its result takes no notice.
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
        let later = reduction.last_progress + self.patience();
        match (reduction.unfinished, later <= self.desk.now) {
            // The team has done all it can.
            (0, _) => {}
            (_, true) => self.dissolve(id, &Path::empty()),
            (_, false) => self.desk.timers.set(later, Timer::Dissolve(id)),
        }
    }

    /// How long an attempt may stand still. Deputies wait longer: one word of the master's spares them theirs.
    fn patience(&self) -> Duration {
        let patience = self.desk.policy.limits.ping_interval.max(PATIENCE_MIN);
        if self.is_deputy() { patience * 2 } else { patience }
    }

    /// Forgets an attempt that the master has ended.
    pub(super) fn forget(&mut self, id: ReductionId) {
        if let Some(mut reduction) = self.reductions.remove(&id) {
            self.scheduler.let_go(id, &mut reduction, &self.desk.members);
        }
    }

    /// Forgets the attempts that `dead` takes part in: whoever lives hears of its death, and contributes as usual.
    pub(super) fn forget_teams_of(&mut self, dead: Rank) {
        let is_hit = |(id, reduction): &(&ReductionId, &Reduction)| {
            id.is_in_teams() && reduction.spec.group.contains(dead)
        };
        let hit: Vec<ReductionId> = self.reductions.iter().filter(is_hit).map(|(id, _)| *id).collect();
        hit.into_iter().for_each(|id| self.forget(id));
    }

    /// Takes in at a deputy that the master has declared a process failed.
    pub(super) fn depart(&mut self, process: ProcessId, evidence: Evidence) {
        self.meet(&Path::single(process.rank));
        if self.desk.members.fail(process, evidence) {
            self.scheduler.bury(process, &self.reductions);
            self.forget_teams_of(process.rank);
        }
    }
}
