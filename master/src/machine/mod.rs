//! Which event means what.
//!
//! # Use
//! Feed [`Master::handle_event`] (and [`Master::handle_timeout`] once [`Master::poll_timeout`] is due) as
//! many events as there are, then call [`Master::poll_action`] until it returns `None`: grants come out in
//! batches, because a batch of events went in. Time never runs back.
//!
//! | module | holds |
//! |---|---|
//! | `admission` | whether a contribution may take part |
//! | `agents` | messages of agents, and the loss of one |
//! | `detecting` | which detector is asked about a death: own ones first, then the built-in ones |
//! | `ending` | how a reduction ends: well, or refused |
//! | `failure` | dead, silent and slow processes, and the consequences for the job |
//! | `members` | processes that join the job, and processes that leave it in good order |
//! | `migrating` | ranks that come back on other hosts, and their replicas there |
//! | `promoting` | ranks of which a second process stands by on another host |
//! | `returning` | ranks whose processes have died, and that come back |
//! | `teams` | attempts in teams: the master's part |

mod admission;
mod agents;
mod detecting;
mod ending;
mod failure;
mod members;
mod migrating;
mod promoting;
mod returning;
mod teams;

use alloc::collections::BTreeMap;

use everfold_protocol::{
    Epoch, JobId, Path, ProcessId, Rank, ReductionId, Timestamp,
    message::{Contribution, Evidence, PartialReady, TaskFailed, ToMaster},
};

use crate::{
    condense::Fold,
    desk::Desk,
    dissolved::Dissolved,
    event::{Action, Event},
    lengths::Lengths,
    liveness::{Liveness, Watched},
    membership::{Freshness, Membership},
    outcomes::Outcomes,
    policy::Policy,
    recovery::{Detectors, Own, Seen, Starts},
    reduction::{Reduction, Reductions},
    refusals::Refusals,
    remains::Remains,
    replicas::Replicas,
    scheduler::{Scheduler, Step},
    standbys::Standbys,
    task::Undone,
    timers::Timer,
    tries::RETRY_PAUSE,
};

/// Queues reduction messages and makes tasks of them (DR §2).
///
/// A copy, from which its size can be told, asks no detectors of a programmer's own: these cannot be copied.
#[derive(Clone, Debug)]
pub struct Master {
    desk: Desk,
    reductions: Reductions,
    refusals: Refusals,
    outcomes: Outcomes,
    dissolved: Dissolved,
    remains: Remains,
    liveness: Liveness,
    detectors: Detectors,
    /// Those that are asked first.
    own: Own,
    replicas: Replicas,
    starts: Starts,
    standbys: Standbys,
    scheduler: Scheduler,
    lengths: Lengths,
}

impl Master {
    /// A master for a job of `size` ranks that have yet to join.
    pub fn new(now: Timestamp, job: JobId, size: u32, policy: Policy) -> Self {
        let join_timeout = policy.join_timeout;
        let mut desk = Desk::new(now, policy, Membership::new(job, size));
        desk.timers.set(now + join_timeout, Timer::Join);
        Self {
            desk,
            reductions: BTreeMap::new(),
            scheduler: Scheduler::default(),
            lengths: Lengths::default(),
            refusals: Refusals::default(),
            outcomes: Outcomes::default(),
            dissolved: Dissolved::default(),
            remains: Remains::default(),
            liveness: Liveness::default(),
            detectors: Detectors::default(),
            own: Own::default(),
            replicas: Replicas::default(),
            starts: Starts::default(),
            standbys: Standbys::default(),
        }
    }

    /// The same, if inlined bodies can be folded at the master.
    pub fn with_fold(mut self, fold: Fold) -> Self {
        self.desk.fold = Some(fold);
        self
    }

    /// Number of the current membership view; goes into the header of everything sent.
    pub fn epoch(&self) -> Epoch {
        self.desk.members.epoch()
    }

    /// Whether a process takes part: it has joined, and was neither declared failed nor has it left.
    pub fn is_member(&self, process: ProcessId) -> bool {
        self.desk.members.lives(process)
    }

    /// Whether a process of this rank has died, and another one is to come in its place.
    pub fn awaits(&self, rank: Rank) -> bool {
        self.desk.members.away().contains(rank)
    }

    /// Reductions that have not ended.
    pub fn reductions(&self) -> impl Iterator<Item = (&ReductionId, &Reduction)> {
        self.reductions.iter()
    }

    /// Verifies the invariants that need a look at everything; the simulator does after each event.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        for reduction in self.reductions.values() {
            reduction.check();
        }
        self.scheduler.check(&self.reductions, &self.desk);
        let mut peers = self.desk.members.peers();
        let all_close = peers.all(|peer| self.desk.members.is_closing(peer.process.rank));
        if all_close && self.desk.members.away().is_empty() {
            assert!(self.refusals.is_empty(), "nobody is to hear anything who calls nothing more");
        }
        if self.reductions.is_empty() {
            assert!(self.remains.is_empty(), "nobody reads the memory of the dead");
        }
        if self.desk.members.peers().next().is_none() && self.desk.members.away().is_empty() {
            assert!(self.outcomes.is_empty(), "nobody notes anything any more");
        }
    }

    /// Ranks that are here and have yet to note how a reduction has ended.
    pub fn has_yet_to_note(&self) -> Path {
        self.outcomes.awaited().iter().filter(|rank| self.desk.members.alive(*rank).is_some()).collect()
    }

    /// Takes in one event.
    pub fn handle_event(&mut self, now: Timestamp, event: Event) {
        self.desk.now = now;
        match event {
            // Its rank has another process, or had one until now.
            Event::Message { header, message: ToMaster::StandsBy } => self.hear_stands_by(header.sender),
            Event::Message { header, message } => match self.desk.members.classify(&header) {
                Freshness::Current => {
                    self.liveness.hear(now, Watched::Rank(header.sender.rank));
                    self.own.see(now, Seen::Message { from: header.sender, message: &message });
                    self.handle_message(header.sender, message);
                }
                Freshness::Stale => {
                    self.desk
                        .outbox
                        .stale(header.sender, "message of a process that is no longer in the job");
                    if let ToMaster::Join { peer, .. } = message {
                        self.turn_away(header.sender, &peer);
                    }
                }
                Freshness::Impossible => {
                    self.desk.outbox.stale(header.sender, "message of another job or a future epoch");
                    self.desk.outbox.disconnect(header.sender);
                }
            },
            Event::Disconnected(process) => self.fail(process, Evidence::Disconnected),
            Event::Agent(agent, said) => self.hear_agent(agent, said),
            Event::AgentLost(agent) => self.lose_agent(agent),
            Event::Located { fault, over } => self.see_located(&fault, over),
        }
        self.look_when_own_are_due();
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.desk.now = now;
        // Not more than are due now: if each sets another, the caller has a turn in between.
        for _ in 0..self.desk.timers.count_due(now) {
            let Some(timer) = self.desk.timers.take_due(now) else { break };
            match timer {
                Timer::Join => self.stop_joining(),
                Timer::Deadline(id) => self.pass_deadline(id),
                Timer::Gathered(id) => {
                    if let Some(reduction) = self.reductions.get_mut(&id) {
                        reduction.gather_no_more();
                        self.proceed(id);
                    }
                }
                Timer::Retry(id) => {
                    if let Some(reduction) = self.reductions.get_mut(&id.reduction) {
                        reduction.resume(id.index);
                        self.proceed(id.reduction);
                    }
                }
                Timer::Collect(id) => self.collect_again(id),
                Timer::Pipeline(id) => self.look_after_pipeline(id),
                Timer::Copy(id) => {
                    let interval = self.desk.policy.limits.ping_interval;
                    let busy = |group: &Path| group.iter().any(|rank| self.scheduler.is_occupied(rank));
                    let look = |reduction: &mut Reduction| reduction.begin_copies(now, interval, busy);
                    match self.reductions.get_mut(&id).and_then(look) {
                        Some(later) => self.look_for_copies(later, id),
                        None => self.order_copies(id),
                    }
                }
                Timer::Keeper(id, owner) => {
                    self.copies(id, |reduction, desk| reduction.look_after(id, owner, desk));
                }
                Timer::Dissolve(id) => self.lose_patience(id),
                Timer::Start(agent, process) => self.start(agent, process),
                Timer::Return(process) => self.miss_return(process),
                Timer::End(process) => self.end_disconnected(process),
                Timer::StandBy(process) => self.start_standby(process),
                Timer::Alarm => self.ring(),
                Timer::Own => self.own.wake(now),
            }
        }
        self.look_when_own_are_due();
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.desk.timers.next()
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        while self.desk.outbox.is_empty() && self.schedule() {}
        self.desk.outbox.take()
    }

    /// Makes some of the tasks that can be made now. Returns false if there are none.
    fn schedule(&mut self) -> bool {
        loop {
            match self.scheduler.step(&mut self.reductions, &mut self.desk) {
                None => return false,
                Some(Step::Done) => return true,
                Some(Step::Last(id, last)) => self.finish(id, Some(last)),
            }
        }
    }

    fn handle_message(&mut self, sender: ProcessId, message: ToMaster) {
        match message {
            ToMaster::Join { peer, size } => self.join(sender, peer, size),
            ToMaster::Contribute(contribution) => self.contribute(sender, *contribution),
            ToMaster::PartialReady(done) => self.partial_ready(sender, done),
            ToMaster::TaskFailed(failed) => self.task_failed(sender, failed),
            ToMaster::Collected { reduction, body } => self.collected(sender, reduction, body),
            ToMaster::Prefetched(part) => self.prefetched(sender, part),
            ToMaster::NotCollected(part) => self.not_collected(sender, part),
            ToMaster::Noted { reduction } => self.take_note(sender, reduction),
            ToMaster::Kept(kept) => {
                let id = kept.reduction;
                self.copies(id, |reduction, desk| reduction.hear_of_copies(id, sender, &kept, desk));
            }
            ToMaster::Pong { .. } => {}
            ToMaster::Took { reduction, took } => {
                if !self.lengths.hear(reduction, sender.rank, took) {
                    self.desk.outbox.stale(sender, "time that nobody wants to know");
                }
            }
            ToMaster::Opened(opened) => self.open(sender, *opened),
            ToMaster::Parts { reduction, parts, effort } => {
                self.take_parts(sender, reduction, parts, effort);
            }
            ToMaster::Dissolve { reduction, group } if reduction.is_in_teams() => {
                self.dissolve(reduction, &group);
            }
            ToMaster::Dissolve { .. } => self.desk.outbox.stale(sender, "no attempt in teams"),
            ToMaster::Closing => self.close(sender),
            ToMaster::Leave => self.leave(sender),
            ToMaster::StandsBy => self.hear_stands_by(sender),
            ToMaster::CaughtUp(comeback) => self.hear_caught_up(sender, comeback),
            ToMaster::Replicated { agent } => self.hear_replicated(sender, agent),
            ToMaster::NotReplicated { agent, reason } => self.hear_not_replicated(sender, agent, reason),
        }
    }

    /// Takes in a contribution, if it may take part.
    fn contribute(&mut self, sender: ProcessId, contribution: Contribution) {
        let id = contribution.reduction;
        if id.is_in_teams() {
            return self.contribute_in_teams(sender, contribution);
        }
        if self.answer_again(sender, &contribution) || !self.admit(sender, &contribution) {
            return;
        }
        let passed_by = self.application(sender, &contribution).passed_by();
        let now = self.desk.now;
        let reduction = self.reduction_for(sender, &contribution);
        reduction.arrive(now, sender, contribution.data, contribution.spec.trace);
        self.detectors.see_progress(sender.rank);
        if let Some(refusal) = passed_by {
            self.refuse(id, refusal);
            return;
        }
        let reduction = &self.reductions[&id];
        let at_once = reduction.wants_copies() && reduction.copies_at_once();
        if reduction.wants_copies() && !at_once {
            let wait = reduction.copy_wait(sender.rank, self.desk.policy.limits.ping_interval);
            self.look_for_copies(self.desk.now + wait, id);
        }
        let reduction = &self.reductions[&id];
        match self.desk.members.absent(reduction.group(), reduction.arrived()) {
            Some(refusal) => self.do_without(id, refusal),
            None => self.proceed(id),
        }
        if at_once {
            self.copies(id, |reduction, desk| reduction.order_copies_for(id, sender.rank, desk));
        }
    }

    /// The reduction of a contribution, which begins with its first one.
    fn reduction_for(&mut self, sender: ProcessId, contribution: &Contribution) -> &mut Reduction {
        let id = contribution.reduction;
        self.reductions.entry(id).or_insert_with(|| {
            if let Some(deadline) = contribution.spec.deadline {
                self.desk.timers.set(self.desk.now + deadline, Timer::Deadline(id));
            }
            let share_memory = self.desk.members.share_memory(&contribution.spec.group);
            let Desk { now, policy, .. } = &self.desk;
            let cut = self.lengths.cut(&contribution.spec, policy, share_memory);
            let mut reduction = Reduction::new(*now, sender.rank, contribution, cut, policy, share_memory);
            if self.scheduler.folds_in_pairs(&contribution.spec.kind, &self.desk.policy) {
                reduction.fold_in_pairs();
            }
            if let Some(end) = reduction.gathers_until(&self.desk.policy) {
                self.desk.timers.set(end, Timer::Gathered(id));
            }
            reduction
        })
    }

    fn partial_ready(&mut self, sender: ProcessId, done: PartialReady) {
        let (segment, counters) = (done.segment, done.counters);
        let id = segment.reduction;
        let completed = self
            .reductions
            .get_mut(&id)
            .and_then(|reduction| reduction.complete(self.desk.now, sender, done));
        let Some(completed) = completed else {
            self.desk.outbox.stale(sender, "result of a task that nobody waits for");
            return;
        };
        let reduction = self.reductions.get_mut(&id).expect("it has completed a task");
        self.scheduler.complete(self.desk.now, sender.rank, &reduction.spec().kind, &completed, &counters);
        if reduction.is_handed_out() {
            return;
        }
        if reduction.unfinished() == 0 {
            return self.finish(id, None);
        }
        if completed.counts && reduction.pause_copies() {
            self.look_for_copies(self.desk.now + self.desk.policy.limits.ping_interval, id);
        }
        self.scheduler.change(segment);
    }

    fn task_failed(&mut self, sender: ProcessId, failed: TaskFailed) {
        let id = failed.segment;
        let reduction = self.reductions.get_mut(&id.reduction);
        let taken = reduction.and_then(|reduction| reduction.take_failed(id.index, failed.task, sender));
        let Some(undone) = taken else {
            return self.desk.outbox.stale(sender, "failure of a task that nobody waits for");
        };
        self.scheduler.vacate(sender.rank, &undone.running().load);
        if id.reduction.is_in_teams() {
            return self.dissolve(id.reduction, &Path::empty());
        }
        let Some(reduction) = self.reductions.get_mut(&id.reduction) else { return };
        let result = match undone {
            Undone::Awaited(running) => reduction.fail(running, failed, &self.desk),
            Undone::GivenUp(abandoned) => reduction.fail_in_vain(abandoned, failed, &self.desk),
        };
        match result {
            Ok(suspended) => {
                if suspended && reduction.pause_tries(id.index) {
                    self.desk.timers.set(self.desk.now + RETRY_PAUSE, Timer::Retry(id));
                }
                self.proceed(id.reduction);
            }
            Err(refusal) => self.do_without(id.reduction, refusal),
        }
    }

    /// Goes on with a reduction whose partials have changed.
    pub(super) fn proceed(&mut self, id: ReductionId) {
        let Some(reduction) = self.reductions.get(&id).filter(|reduction| !reduction.is_handed_out()) else {
            return;
        };
        if reduction.unfinished() == 0 {
            return self.finish(id, None);
        }
        self.scheduler.change_all(id, reduction);
    }

    /// Orders the copies of originals that are due.
    pub(super) fn order_copies(&mut self, id: ReductionId) {
        self.copies(id, |reduction, desk| reduction.order_copies(id, desk));
    }

    /// Does something about the copies of a reduction's originals, and goes on if contributions take part
    /// because of that.
    pub(super) fn copies(
        &mut self,
        id: ReductionId,
        something: impl FnOnce(&mut Reduction, &mut Desk) -> bool,
    ) {
        if let Some(reduction) = self.reductions.get_mut(&id)
            && something(reduction, &mut self.desk)
        {
            self.proceed(id);
        }
    }

    /// Looks `at` that time whether originals of a reduction are to be copied.
    pub(super) fn look_for_copies(&mut self, at: Timestamp, id: ReductionId) {
        if self.reductions.get_mut(&id).is_some_and(|reduction| reduction.look_for_copies(at)) {
            self.desk.timers.set(at, Timer::Copy(id));
        }
    }
}
