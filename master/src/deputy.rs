//! The master of a team, in an attempt in teams (see [`team`]).
//!
//! A deputy schedules like the master of the job; its reductions end where those of the master begin: it
//! tells where the team's partials lie. It repairs nothing: on any death or error it asks the master to
//! dissolve the attempt.

use alloc::{collections::BTreeMap, sync::Arc};

use everfold_protocol::{
    JobId, Path, ProcessId, Rank, ReductionId, SegmentId, Timestamp,
    message::{Contribution, Evidence, Opened, PartialReady, Peer, TaskFailed, ToMaster},
    report::Refusal,
    team,
};

use crate::{
    desk::Desk,
    dissolved::join,
    event::Action,
    membership::{Membership, Prospect},
    policy::Policy,
    reduction::{Called, Reduction, Reductions, Standing},
    scheduler::{Scheduler, Step},
    timers::Timer,
};

/// Queues a team's reduction messages and makes tasks of them.
///
/// # Use
/// As that of a [`Master`](crate::Master): give it an event, then call [`poll_action`](Self::poll_action)
/// until it returns `None`. Its actions are tasks, and reports to the master.
#[derive(Clone, Debug)]
pub struct Deputy {
    /// Its members are those it had to do with.
    desk: Desk,
    reductions: Reductions,
    scheduler: Scheduler,
    /// All processes of the job, by rank.
    job: Arc<[Peer]>,
}

impl Deputy {
    /// The deputy of a team that `rank` belongs to; `peers` are all processes of the job.
    pub fn new(now: Timestamp, job: JobId, rank: Rank, peers: Arc<[Peer]>, policy: Policy) -> Self {
        let members = Membership::elsewhere(job, peers.len() as u32);
        Self {
            desk: Desk::new(now, policy, members),
            reductions: BTreeMap::new(),
            // A worker has tasks of several masters.
            scheduler: Scheduler::numbering_from(u64::from(rank.0 + 1) << 40),
            job: peers,
        }
    }

    /// Attempts that have not ended.
    pub fn reductions(&self) -> impl Iterator<Item = (&ReductionId, &Reduction)> {
        self.reductions.iter()
    }

    /// Verifies the invariants that need a look at everything; the simulator does after each event.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        self.reductions.values().for_each(Reduction::check);
        self.scheduler.check(&self.reductions, &self.desk);
    }

    /// Takes in what `sender` says. It knows the others' epochs as little as they know its.
    pub fn hear(&mut self, now: Timestamp, sender: ProcessId, message: ToMaster) {
        self.desk.now = now;
        let attempt = match &message {
            ToMaster::Contribute(contribution) => contribution.reduction,
            ToMaster::PartialReady(done) => done.segment.reduction,
            ToMaster::TaskFailed(failed) => failed.segment.reduction,
            _ => return,
        };
        if !attempt.is_in_teams() {
            return;
        }
        self.meet(&Path::single(sender.rank));
        if !self.desk.members.lives(sender) {
            return;
        }
        match message {
            ToMaster::Contribute(contribution) => self.contribute(sender, *contribution),
            ToMaster::PartialReady(done) => self.partial_ready(sender, done),
            ToMaster::TaskFailed(failed) => self.task_failed(sender, &failed),
            _ => {}
        }
    }

    /// Takes in that the master has declared a process failed.
    pub fn depart(&mut self, now: Timestamp, process: ProcessId, evidence: Evidence) {
        self.desk.now = now;
        self.meet(&Path::single(process.rank));
        if !self.desk.members.fail(&[process], evidence, Prospect::Gone).is_empty() {
            self.scheduler.bury(process, &self.reductions);
            self.scheduler.forget_teams_of(process.rank, &mut self.reductions, &self.desk.members);
        }
    }

    /// Takes in that the master has finished or dissolved an attempt.
    pub fn forget(&mut self, now: Timestamp, attempt: ReductionId) {
        self.desk.now = now;
        self.scheduler.forget(attempt, &mut self.reductions, &self.desk.members);
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.desk.now = now;
        for _ in 0..self.desk.timers.count_due(now) {
            if let Some(Timer::Dissolve(id)) = self.desk.timers.take_due(now) {
                self.lose_patience(id);
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.desk.timers.next()
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        while self.desk.outbox.is_empty()
            && let Some(step) = self.scheduler.step(&mut self.reductions, &mut self.desk)
        {
            assert!(matches!(step, Step::Done), "the result is the root's, which is in no team");
        }
        self.desk.outbox.take()
    }

    /// Takes processes in that it may not have had to do with yet.
    fn meet(&mut self, ranks: &Path) {
        let peers = ranks.iter().filter_map(|rank| self.job.get(rank.index()));
        peers.for_each(|peer| self.desk.members.take_in(peer.clone()));
    }

    fn contribute(&mut self, sender: ProcessId, contribution: Contribution) {
        let Contribution { reduction: id, name, spec, data } = contribution;
        let Some(team) = team::of(&spec, sender.rank) else { return };
        if self.hinders(id, sender.rank, Called { name: &name, spec: &spec }, team) {
            return;
        }
        let reduction = self.reductions.get_mut(&id).expect("it has begun");
        reduction.arrive(self.desk.now, sender, data, false);
        if reduction.arrived() == reduction.group() {
            let segment_bytes = reduction.segment_bytes();
            let segments = reduction.indices();
            self.desk.outbox.report_open(Opened { reduction: id, name, spec, segment_bytes });
            // Of one rank.
            segments.for_each(|index| self.tell_part(SegmentId { reduction: id, index }));
        }
        let reduction = &self.reductions[&id];
        if reduction.unfinished() > 0 {
            self.scheduler.change_all(id, reduction);
        }
    }

    /// Whether the attempt that `caller` enters comes to nothing. If not, it has begun.
    fn hinders(&mut self, id: ReductionId, caller: Rank, called: Called, team: Path) -> bool {
        if !self.desk.policy.tries_in_teams(called.spec, self.desk.members.size()) {
            return true;
        }
        self.meet(&team);
        let Self { desk, reductions, .. } = self;
        if let Some(Refusal::ProcessFailed { .. }) = desk.members.absent(&called.spec.group, &Path::empty()) {
            // Living ranks have heard of it, or are about to, and contribute as usual.
            return true;
        }
        let reduction = reductions.entry(id).or_insert_with(|| {
            desk.timers.set(desk.now + patience(&desk.policy), Timer::Dissolve(id));
            Reduction::attempt(desk.now, caller, called, Some(team), &desk.policy)
        });
        let hinders = reduction.hinders(id, &Path::single(caller), called, &desk.members);
        if hinders {
            self.dissolve(id, &called.spec.group);
        }
        hinders
    }

    fn partial_ready(&mut self, sender: ProcessId, done: PartialReady) {
        let (segment, counters) = (done.segment, done.counters);
        let reduction = self.reductions.get_mut(&segment.reduction);
        let completed = reduction.and_then(|reduction| reduction.complete(self.desk.now, sender, done));
        let Some(completed) = completed else { return };
        self.tell_part(segment);
        let reduction = &self.reductions[&segment.reduction];
        self.scheduler.complete(self.desk.now, sender.rank, &reduction.spec().kind, &completed, &counters);
        if reduction.unfinished() > 0 {
            self.scheduler.change(segment);
        }
    }

    fn task_failed(&mut self, sender: ProcessId, failed: &TaskFailed) {
        let SegmentId { reduction: id, index } = failed.segment;
        let reduction = self.reductions.get_mut(&id);
        let undone = reduction.and_then(|reduction| reduction.take_failed(index, failed.task, sender));
        if let Some(undone) = undone {
            self.scheduler.vacate(sender.rank, &undone.running().load);
            self.dissolve(id, &Path::empty());
        }
    }

    /// Tells the master where a finished segment of the team lies.
    fn tell_part(&mut self, id: SegmentId) {
        let told = self.reductions.get(&id.reduction).and_then(|reduction| reduction.told(id.index));
        if let Some((part, effort)) = told {
            self.desk.outbox.report_part(id.reduction, part, effort);
        }
    }

    /// Ends an attempt, and asks the master to dissolve it, at the ranks that take part in it and at the
    /// `others`, which may believe in another group.
    fn dissolve(&mut self, id: ReductionId, others: &Path) {
        let group = self.reductions.get(&id).map(|reduction| join(&reduction.spec().group, others));
        self.scheduler.forget(id, &mut self.reductions, &self.desk.members);
        self.desk.outbox.ask_to_dissolve(id, group.unwrap_or_else(|| others.clone()));
    }

    /// Looks whether anything comes of an attempt.
    fn lose_patience(&mut self, id: ReductionId) {
        let Some(reduction) = self.reductions.get(&id) else { return };
        match reduction.standing(self.desk.now, patience(&self.desk.policy)) {
            // The team has done all it can.
            Standing::IsDone => {}
            Standing::StandsStill => self.dissolve(id, &Path::empty()),
            Standing::GoesOn(later) => self.desk.timers.set(later, Timer::Dissolve(id)),
        }
    }
}

/// How long a deputy lets an attempt stand still.
fn patience(policy: &Policy) -> core::time::Duration {
    policy.attempt_patience() * 2
}
