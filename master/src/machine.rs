//! Which event means what.
//!
//! # Use
//! Feed [`Master::handle_event`] (and [`Master::handle_timeout`] once [`Master::poll_timeout`] is due) as many
//! events as there are, then call [`Master::poll_action`] until it returns `None`: grants come out in batches,
//! because a batch of events went in. Time never runs back.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use everfold_protocol::{
    Epoch, JobId, Path, ProcessId, Rank, ReductionId, SegmentId, SegmentIndex, TaskId, Timestamp,
    message::{Evidence, Fault, PartialReady, Peer, Source, Task, TaskFailed, ToMaster, ToWorker},
    report::Refusal,
    watch::{Alarm, Watch},
};

use crate::{
    event::{Action, Event, Notice},
    lane::{Lane, Plan},
    membership::{Freshness, Membership},
    pairing,
    policy::Policy,
    queue::Ready,
    reduction::Reduction,
    segment::Completed,
};

/// How long a process that could not be reached is left alone. The end of its connection, if it died, comes within
/// milliseconds.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How many times longer than by the counters a task may take before others do it, too.
const LATE_FACTOR: u32 = 8;

/// Something that is due at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The job waits no longer for its processes.
    Join,
    /// A reduction's deadline passes.
    Deadline(ReductionId),
    /// Partials that could not be reached are tried again.
    Retry(SegmentId),
    /// A reduction has lasted so long that its originals are worth a copy.
    Copy(ReductionId),
    /// Pings are sent, silence and late tasks are looked for.
    Alarm,
}

/// Queues reduction messages and makes tasks of them (DR §2).
#[derive(Clone, Debug)]
pub struct Master {
    pub(crate) policy: Policy,
    pub(crate) membership: Membership,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) reductions: BTreeMap<ReductionId, Reduction>,
    pub(crate) refused: BTreeMap<ReductionId, Refusal>,
    pub(crate) refused_order: VecDeque<ReductionId>,
    pub(crate) timers: BTreeSet<(Timestamp, Timer)>,
    /// Silence of those who take part.
    pub(crate) watches: BTreeMap<Rank, Watch>,
    pub(crate) alarm: Option<Alarm>,
    pub(crate) rings: u64,
    /// Whether processes are still expected to join.
    pub(crate) joining: bool,
    /// Who died before the job was complete; there will be no job.
    pub(crate) lost: Path,
    /// Lanes that may have something to grant.
    pub(crate) touched: BTreeSet<Rank>,
    pub(crate) next_task: u64,
    /// When the latest event came.
    pub(crate) now: Timestamp,
    pub(crate) actions: VecDeque<Action>,
}

impl Master {
    /// A master for a job of `size` ranks that have yet to join.
    pub fn new(now: Timestamp, job: JobId, size: u32, policy: Policy) -> Self {
        Self {
            membership: Membership::new(job, size),
            lanes: vec![Lane::default(); size as usize],
            reductions: BTreeMap::new(),
            refused: BTreeMap::new(),
            refused_order: VecDeque::new(),
            timers: BTreeSet::from([(now + policy.join_timeout, Timer::Join)]),
            watches: BTreeMap::new(),
            alarm: None,
            rings: 0,
            joining: true,
            lost: Path::empty(),
            touched: BTreeSet::new(),
            next_task: 0,
            now,
            actions: VecDeque::new(),
            policy,
        }
    }

    /// Number of the current membership view; goes into the header of everything sent.
    pub fn epoch(&self) -> Epoch {
        self.membership.epoch()
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
        let planned: usize = self.lanes.iter().map(|lane| lane.plans().count()).sum();
        let known: usize =
            self.reductions.values().flat_map(|r| &r.segments).map(|segment| segment.planned.len()).sum();
        assert_eq!(planned, known, "every plan belongs to a live segment");
    }

    /// Takes in one event.
    pub fn handle_event(&mut self, now: Timestamp, event: Event) {
        self.now = now;
        match event {
            Event::Message { header, message } => match self.membership.classify(&header) {
                Freshness::Current => {
                    if let Some(watch) = self.watches.get_mut(&header.sender.rank) {
                        watch.hear(now);
                    }
                    self.handle_message(now, header.sender, message);
                }
                Freshness::Stale => {
                    self.stale(header.sender, "message of a process that is no longer in the job")
                }
                Freshness::Impossible => {
                    self.stale(header.sender, "message of another job or a future epoch");
                    self.actions.push_back(Action::Disconnect(header.sender));
                }
            },
            Event::Disconnected(process) => self.fail(now, process, Evidence::Disconnected),
        }
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.now = now;
        while let Some(&(due, timer)) = self.timers.first()
            && due <= now
        {
            self.timers.pop_first();
            match timer {
                Timer::Join => self.stop_joining(),
                Timer::Deadline(id) => self.pass_deadline(id),
                Timer::Retry(id) => {
                    if let Some(reduction) = self.reductions.get_mut(&id.reduction) {
                        reduction.resume(id.index);
                        self.proceed(now, id.reduction);
                    }
                }
                Timer::Copy(id) => {
                    if let Some(reduction) = self.reductions.get_mut(&id) {
                        reduction.begin_copies();
                        self.order_copies(now, id);
                    }
                }
                Timer::Alarm => self.ring(now),
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.first().map(|&(due, _)| due)
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        while self.actions.is_empty() {
            let rank = self.touched.pop_first()?;
            self.grant(rank);
        }
        self.actions.pop_front()
    }

    fn handle_message(&mut self, now: Timestamp, sender: ProcessId, message: ToMaster) {
        match message {
            ToMaster::Join(peer) => self.join(sender, peer),
            ToMaster::Contribute(contribution) => self.contribute(now, sender, *contribution),
            ToMaster::PartialReady(done) => self.partial_ready(now, sender, done),
            ToMaster::TaskFailed(failed) => self.task_failed(now, sender, failed),
            ToMaster::Collected { reduction } => self.collected(sender, reduction),
            ToMaster::Kept(kept) => self.kept(now, sender, kept),
            ToMaster::Pong { .. } => {}
            ToMaster::Leave => self.leave(now, sender),
        }
    }

    fn join(&mut self, sender: ProcessId, peer: Peer) {
        if peer.process != sender || !self.membership.join(peer) {
            self.stale(sender, "join of a rank that is not expected");
            self.actions.push_back(Action::Disconnect(sender));
            return;
        }
        if !self.lost.is_empty() {
            self.send(sender, ToWorker::Incomplete { missing: self.lost.clone() });
        } else if self.membership.everyone_here() {
            self.joining = false;
            self.timers.retain(|(_, timer)| *timer != Timer::Join);
            let peers: Vec<Peer> = self.membership.peers().cloned().collect();
            for peer in &peers {
                let welcome = ToWorker::Welcome { peers: peers.clone(), limits: self.policy.limits };
                self.send(peer.process, welcome);
            }
            self.start_watching();
            self.notice(Notice::Complete { ranks: self.membership.size() });
        }
    }

    fn partial_ready(&mut self, now: Timestamp, sender: ProcessId, done: PartialReady) {
        let (segment, counters) = (done.segment, done.counters);
        let id = segment.reduction;
        let completed =
            self.reductions.get_mut(&id).and_then(|reduction| reduction.complete(now, sender, done));
        let Some(Completed::Counts(bytes) | Completed::TooLate(bytes)) = completed else {
            self.stale(sender, "result of a task that nobody waits for");
            return;
        };
        let lane = &mut self.lanes[sender.rank.index()];
        lane.complete(bytes);
        lane.observe(bytes, &counters);
        self.touched.insert(sender.rank);
        if self.reductions[&id].unfinished == 0 {
            self.finish(now, id);
        } else {
            self.plan(segment);
        }
    }

    fn task_failed(&mut self, now: Timestamp, sender: ProcessId, failed: TaskFailed) {
        let TaskFailed { task, segment: id, culprit, fault, reason } = failed;
        let Some(reduction) = self.reductions.get_mut(&id.reduction) else {
            return self.stale(sender, "failure of a task that nobody waits for");
        };
        let running = reduction.take_running(id.index, task, sender);
        let in_vain = running.is_none();
        let abandoned =
            || reduction.take_abandoned(id.index, task, sender).map(|abandoned| abandoned.running);
        let Some(running) = running.or_else(abandoned) else {
            return self.stale(sender, "failure of a task that nobody waits for");
        };
        self.lanes[sender.rank.index()].complete(running.bytes);
        self.touched.insert(sender.rank);
        let members = &self.membership;
        let result = match fault {
            _ if in_vain => {
                reduction.segments[id.index.0 as usize].spoil(sender.rank);
                Ok(false)
            }
            Fault::Unreachable => reduction.unreachable(id.index, running, culprit, reason, members),
            Fault::Damaged => reduction.damaged(id.index, &running, culprit, members).map(|()| false),
            Fault::Torn if reduction.spec.delivery.root() != Some(sender.rank) => {
                reduction.torn(id.index, &running, members).map(|()| false)
            }
            Fault::Torn | Fault::Unfit => {
                let of_culprit = running.sources.into_iter().find(|(process, _)| *process == culprit);
                let path = of_culprit.map_or(running.own, |(_, path)| path);
                Err(Refusal::FoldFailed { executor: sender.rank, path, reason })
            }
        };
        match result {
            Ok(suspended) => {
                if suspended {
                    self.timers.insert((now + RETRY_PAUSE, Timer::Retry(id)));
                }
                self.proceed(now, id.reduction);
            }
            Err(refusal) => self.do_without(now, id.reduction, refusal),
        }
    }

    /// Goes on with a reduction whose partials have changed.
    pub(crate) fn proceed(&mut self, now: Timestamp, id: ReductionId) {
        let Some(reduction) = self.reductions.get(&id).filter(|reduction| reduction.collecting.is_none())
        else {
            return;
        };
        if reduction.unfinished == 0 {
            return self.finish(now, id);
        }
        for index in 0..reduction.segments.len() as u32 {
            self.plan(SegmentId { reduction: id, index: SegmentIndex(index) });
        }
    }

    /// Makes plans of what waits in one segment, as long as it has partners and somebody who can fold them.
    fn plan(&mut self, id: SegmentId) {
        let Some(reduction) = self.reductions.get_mut(&id.reduction) else { return };
        let root = reduction.spec.delivery.root();
        let is_alive = |rank| self.membership.alive(rank).is_some();
        let mut attempts = reduction.segments[id.index.0 as usize].queue.len();
        while attempts > 0
            && let Some(partials) = reduction.take_partners(id.index, &self.policy)
        {
            let bytes = reduction.task_bytes(id.index, &partials);
            let can_execute = |ready: &Ready| reduction.can_execute(id.index, ready, &is_alive);
            let executor = pairing::executor(&partials, root, bytes, &self.lanes, can_execute);
            let executor = executor.map(|index| partials[index].process.rank).or_else(|| {
                // They lie in dead processes' memory, or in copies: somebody whose partial is not needed takes them.
                let group = reduction.group.iter().filter(|rank| is_alive(*rank));
                let free = group.filter(|rank| reduction.can_begin_afresh(id.index, *rank));
                free.min_by_key(|rank| self.lanes[rank.index()].expected_ns(bytes))
            });
            match executor {
                Some(executor) => {
                    reduction.plan(id.index, &partials, executor);
                    self.lanes[executor.index()].plan(Plan { segment: id, partials, bytes });
                    self.touched.insert(executor);
                }
                None => {
                    attempts -= 1;
                    partials.into_iter().for_each(|ready| reduction.put(id.index, ready));
                    // If nobody else is left to fold them, the root does.
                    if attempts == 0 && reduction.rouse_root(id.index) {
                        attempts = reduction.segments[id.index.0 as usize].queue.len();
                    }
                }
            }
        }
    }

    /// Gives `rank` what it may be given.
    fn grant(&mut self, rank: Rank) {
        while let Some(plan) = self.lanes[rank.index()].next(&self.policy) {
            self.grant_plan(rank, plan);
        }
    }

    /// Makes a task of `plan`, or passes it on to the root, which may have come while the plan waited.
    fn grant_plan(&mut self, rank: Rank, plan: Plan) {
        let Plan { segment: id, mut partials, .. } = plan;
        let reduction =
            self.reductions.get_mut(&id.reduction).expect("plans of ended reductions are dropped");
        reduction.top_up(id.index, &mut partials, &self.policy);
        let bytes = reduction.task_bytes(id.index, &partials);
        let root = reduction.spec.delivery.root();
        let is_roots = |root: &Rank| *root != rank && partials.iter().any(|ready| ready.path.contains(*root));
        if let Some(root) = root.filter(is_roots) {
            reduction.pass_on(id.index, &partials, root);
            self.lanes[root.index()].plan(Plan { segment: id, partials, bytes });
            self.touched.insert(root);
            return;
        }
        let task = TaskId(self.next_task);
        self.next_task += 1;
        let is_own = |ready: &Ready| ready.process.rank == rank && reduction.is_own(id.index, ready);
        let own = partials.iter().position(is_own).map(|position| partials.remove(position));
        let executor = self.membership.alive(rank).expect("a lane of a process that failed is empty");
        let executor = executor.process;
        let expected = Duration::from_nanos(self.lanes[rank.index()].expected_ns(bytes));
        let late = self.now + (expected * LATE_FACTOR).max(self.policy.limits.ping_interval / 2);
        let keep = reduction.keep_fetched();
        reduction.start(id.index, task, executor, own.as_ref(), &partials, (bytes, late));
        let sources =
            partials.into_iter().map(|Ready { process, path, data }| Source { process, path, data });
        let message = Task {
            task,
            segment: id,
            range: reduction.range(id.index),
            own: own.map_or_else(Path::empty, |own| own.path),
            sources: sources.collect(),
            keep,
        };
        self.lanes[rank.index()].grant(bytes);
        self.send(executor, ToWorker::Task(message));
    }

    pub(crate) fn peers_of(&self, group: &Path) -> Vec<ProcessId> {
        group.iter().filter_map(|rank| self.membership.alive(rank)).map(|peer| peer.process).collect()
    }

    pub(crate) fn send(&mut self, to: ProcessId, message: ToWorker) {
        self.actions.push_back(Action::Send { to, message });
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.actions.push_back(Action::Notice(notice));
    }

    pub(crate) fn stale(&mut self, sender: ProcessId, what: &'static str) {
        self.notice(Notice::Stale { sender, what });
    }
}
