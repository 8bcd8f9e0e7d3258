//! The worker's bookkeeping as a pure machine: what this rank holds, works on and waits for.
//!
//! Bodies and bytes stand behind the driver (a thread of `everfold-runtime`, or the simulator); this machine
//! knows them by reduction and segment only. It answers for two things: that a task is done exactly on the
//! partial the master believes is here (I1), and that every call of the application ends (I6).

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet, VecDeque},
    string::String,
    sync::Arc,
    vec::Vec,
};

use everfold_protocol::{
    Epoch, Path, ProcessId, ReductionId, SegmentId, SegmentIndex, TaskId, Timestamp,
    message::{
        Contribution, Data, Fault, Finished, News, NotCollected, PartialReady, Peer, Prefetch, Prefetched,
        Task, TaskCounters, TaskFailed, ToMaster, ToWorker,
    },
    report::Report,
    spec::{Delivery, Limits, ReductionSpec},
    watch::{Alarm, Watch},
};

mod attempt;
mod event;
mod learnt;
mod mirror;

pub use self::event::{Action, Collected, Collecting, End, Event, ExecutionError, Gone};
use self::{
    attempt::Way,
    learnt::Learnt,
    mirror::{Copy, Followed, Mirror, Note},
};

/// How often a rank tries to make room for a result beside its contribution. The master has it wait before
/// each.
const CROWDED_MAX: u32 = 50;

/// What this rank knows of one of its reductions.
#[derive(Debug)]
struct Local {
    name: String,
    spec: ReductionSpec,
    called: Timestamp,
    /// Whether the master wants to know how long it took.
    is_timed: bool,
    /// What this rank's partial holds, where that is more than its own original.
    held: BTreeMap<SegmentIndex, Path>,
    /// Whether others may have to copy the result from here, too.
    lends: bool,
    /// Whether the result that was told last is copied beside this rank's contribution.
    beside: bool,
    /// How often there was no room for the result here.
    crowded: u32,
    /// Whose contributions are in the result that was told last.
    contributors: Option<Path>,
    /// A result that is to be copied over partials on which tasks that were given up still work, or of which parts
    /// are still copied beforehand.
    awaited: Option<Box<Finished>>,
    /// How many parts of the result are copied beforehand.
    prefetches: usize,
    way: Way,
    state: State,
}

impl Local {
    /// Whether there is still no room for the result at `me`, after it was tried often enough: the others get
    /// theirs without this rank.
    fn has_no_room(&mut self, error: &ExecutionError, me: ProcessId) -> bool {
        // Of one that is the only one to have it, the master has to hear that it has not.
        if !matches!(self.spec.delivery, Delivery::All) {
            return false;
        }
        self.crowded += u32::from(error.culprit == me);
        self.crowded > CROWDED_MAX
    }
}

/// How a call has ended, and what the master is to hear of it once that is noted.
#[derive(Debug)]
struct Noting {
    end: End,
    said: Option<ToMaster>,
}

#[derive(Debug)]
enum State {
    /// The future is open.
    Running,
    /// This rank's partial is the result as soon as its last task is done.
    Folding { report: Box<Report> },
    /// The result is being copied here; tell the master afterwards if peers' windows wait for it.
    Collecting { report: Box<Report>, announce: bool },
    /// How it has ended is being noted; then the future ends, and this is said. Nothing is said if the master
    /// waits for it no longer.
    Noting(Box<Noting>),
    /// The result is here, and stays until nobody copies it any more.
    Lending { report: Box<Report> },
    /// The future has ended; peers may still read this rank's windows.
    Serving,
}

/// One rank's bookkeeping.
#[derive(Debug)]
pub struct Worker {
    process: ProcessId,
    now: Timestamp,
    epoch: Epoch,
    limits: Limits,
    reductions: BTreeMap<ReductionId, Local>,
    /// All processes of the job, by rank, if they are on several hosts.
    peers: Option<Arc<[Peer]>>,
    /// Who of them was declared failed, and has not come back.
    failed: Path,
    /// Which processes were.
    dead: BTreeSet<ProcessId>,
    learnt: Learnt,
    /// Attempts in teams that were dissolved before this rank has called them.
    dissolved: VecDeque<ReductionId>,
    /// Tasks under way: of which segment, what its partial holds once it is done, and the deputy who hears
    /// that.
    tasks: BTreeMap<TaskId, (SegmentId, Path, Option<ProcessId>)>,
    busy: BTreeSet<(ReductionId, SegmentIndex)>,
    phase: Phase,
    /// Whether the master knows that this rank calls nothing more.
    has_told: bool,
    /// Silence of the master, from the beginning of the job on.
    watch: Option<(Watch, Alarm)>,
    mirror: Mirror,
    actions: VecDeque<Action>,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Starts no more reductions, and leaves once its own have ended.
    Closing,
    /// Waits for the master's farewell.
    Leaving,
    Closed(Gone),
}

impl Worker {
    /// A worker that says hello as `peer`, for a job of `size` processes.
    pub fn new(peer: Peer, size: u32) -> Self {
        let mut worker = Self {
            process: peer.process,
            now: Timestamp::ZERO,
            epoch: Epoch(0),
            limits: Limits::default(),
            peers: None,
            failed: Path::empty(),
            dead: BTreeSet::new(),
            learnt: Learnt::default(),
            dissolved: VecDeque::new(),
            reductions: BTreeMap::new(),
            tasks: BTreeMap::new(),
            busy: BTreeSet::new(),
            phase: Phase::Open,
            has_told: false,
            watch: None,
            mirror: Mirror::default(),
            actions: VecDeque::new(),
        };
        worker.send(ToMaster::Join { peer, size });
        worker
    }

    /// The membership view this worker knows; goes into the header of everything sent.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Why this rank takes part no more, if so.
    pub fn gone(&self) -> Option<Gone> {
        match self.phase {
            Phase::Closed(gone) => Some(gone),
            _ => None,
        }
    }

    /// Whether it has not begun to leave yet, in good order or otherwise. Until then it can host a deputy.
    pub fn takes_part(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Closing)
    }

    /// Takes in one event.
    pub fn handle_event(&mut self, now: Timestamp, event: Event) {
        self.now = now;
        match event {
            Event::Call(contribution) => self.call(contribution),
            Event::Master { header, message } => {
                self.epoch = self.epoch.max(header.epoch);
                if let Some((watch, _)) = &mut self.watch {
                    watch.hear(now);
                }
                self.hear(now, message);
            }
            Event::Deputy(deputy, task) => self.task(task, Some(deputy)),
            Event::Renewed(reduction) => self.renewed(reduction),
            Event::DeputyLost(deputy) => self.lose_deputy(deputy),
            Event::OffBoard { contribution, taken } => self.take_off_board(contribution, taken),
            Event::Kept(kept) => {
                if self.reductions.contains_key(&kept.reduction) {
                    self.send(ToMaster::Kept(kept));
                }
            }
            Event::Executed { task, result } => self.executed(task, result),
            Event::Prefetched { reduction, start, body } => self.prefetched(reduction, start, body),
            Event::Collected { reduction, result } => self.collected(reduction, result),
            Event::Noted(reduction) => self.wait_for_copy(Note::Noted(reduction)),
            Event::Recalled(reduction) => self.wait_for_copy(Note::Recalled(reduction)),
            Event::Saved => {
                let copy = self.mirror.save();
                self.copy(copy);
            }
            Event::Unnoted { reason } => {
                let followed = self.mirror.lack_outcome(reason);
                self.follow(followed);
            }
            Event::Copied { agent, number, result } => {
                let followed = self.mirror.copied(Copy { agent, number }, result);
                self.follow(followed);
            }
            Event::Close if self.phase == Phase::Open => self.phase = Phase::Closing,
            Event::Close => {}
            Event::MasterLost => self.end_all(Gone::MasterLost),
        }
        if self.phase != Phase::Closing {
            return;
        }
        if self.reductions.is_empty() {
            self.phase = Phase::Leaving;
            self.send(ToMaster::Leave);
        } else if !self.has_told && self.reductions.values().all(|local| matches!(local.way, Way::Master)) {
            // Ranks that wait for a call that will not come hear it: this rank may be waiting for them. It
            // hears of those that have come before.
            self.has_told = true;
            self.send(ToMaster::Closing);
        }
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        let Some((watch, alarm)) = &mut self.watch else { return };
        let Some(asleep) = alarm.ring(now) else { return };
        watch.forgive(now, asleep);
        if watch.due() <= now {
            self.end_all(Gone::MasterLost);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.watch.as_ref().filter(|_| self.gone().is_none()).map(|(_, alarm)| alarm.due())
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn call(&mut self, contribution: Contribution) {
        let reduction = contribution.reduction;
        if self.phase != Phase::Open {
            let end = self.gone().map_or(End::Closed, End::from);
            self.refuse_call(reduction, end);
        } else {
            let Contribution { name, spec, .. } = contribution.clone();
            let took = self.learnt.tell(&spec);
            took.into_iter().for_each(|took| self.send(took));
            let way = self.set_out(contribution);
            self.open(reduction, name, spec, way);
        }
    }

    fn open(&mut self, reduction: ReductionId, name: String, spec: ReductionSpec, way: Way) {
        let (held, state) = (BTreeMap::new(), State::Running);
        let local = Local {
            name,
            spec,
            called: self.now,
            is_timed: false,
            held,
            lends: false,
            beside: false,
            crowded: 0,
            contributors: None,
            awaited: None,
            prefetches: 0,
            way,
            state,
        };
        let before = self.reductions.insert(reduction, local);
        assert!(before.is_none(), "each call has its own sequence number");
    }

    /// Whether this rank has as many reductions in flight as it may have. To be asked before a call is made:
    /// one that is refused does not count, or else the others would wait for its number.
    pub fn is_full(&self) -> bool {
        self.phase == Phase::Open && self.reductions.len() as u64 >= self.limits.reductions_max
    }

    /// Up to how many bytes the body of a call comes inlined. What the master has learnt holds for calls that
    /// have it to themselves, so the master holds one long body of each rank at most.
    pub fn inline_bytes_max(&self, spec: &ReductionSpec) -> u64 {
        let is_open = |local: &Local| !matches!(local.state, State::Serving);
        match self.learnt.inlines(spec) && !self.reductions.values().any(is_open) {
            true => u64::MAX,
            false => self.limits.inline_bytes_max,
        }
    }

    /// Whether a call may be put on the board instead: the master hears those of one name in order.
    pub fn may_place(&self, id: ReductionId) -> bool {
        let first = ReductionId { sequence: 0, ..id };
        self.phase == Phase::Open
            && (self.reductions.len() as u64) < self.limits.reductions_max
            && self.reductions.range(first..id).next().is_none()
    }

    fn take_off_board(&mut self, contribution: Contribution, taken: bool) {
        if let Some(gone) = self.gone() {
            return self.refuse_call(contribution.reduction, gone.into());
        }
        if !taken {
            self.send(ToMaster::Contribute(Box::new(contribution.clone())));
        }
        let Contribution { reduction, name, spec, .. } = contribution;
        self.open(reduction, name, spec, Way::Master);
    }

    fn refuse_call(&mut self, reduction: ReductionId, end: End) {
        self.actions.push_back(Action::Resolve { reduction, end });
        self.actions.push_back(Action::Release(reduction));
    }

    fn hear(&mut self, now: Timestamp, message: ToWorker) {
        match message {
            ToWorker::Ping { number } => self.send(ToMaster::Pong { number }),
            ToWorker::Fenced => self.end_all(Gone::Fenced),
            ToWorker::Keep(keep) => {
                if self.reductions.contains_key(&keep.reduction) {
                    self.actions.push_back(Action::Keep(keep));
                }
            }
            ToWorker::News(news) => self.actions.push_back(Action::News(news)),
            ToWorker::Forget { process } => self.actions.push_back(Action::Forget(process)),
            ToWorker::Welcome { peers, limits } => {
                self.limits = limits;
                let apart = peers.iter().any(|peer| peer.host != peers[0].host);
                self.peers = apart.then(|| peers.clone());
                let interval = limits.ping_interval;
                self.watch =
                    (!interval.is_zero()).then(|| (Watch::new(now, interval), Alarm::new(now, interval / 4)));
                self.actions.push_back(Action::Meet { peers, limits });
            }
            ToWorker::Unwelcome { reason } => self.actions.push_back(Action::Unwelcome(reason)),
            ToWorker::Incomplete { missing } => self.actions.push_back(Action::Incomplete { missing }),
            ToWorker::Task(task) => self.task(task, None),
            ToWorker::Dissolved { reduction } => {
                self.actions.push_back(Action::Over(reduction));
                self.dissolve(reduction.called());
            }
            ToWorker::Prefetch(prefetch) => self.prefetch(prefetch),
            ToWorker::Finished(finished) => self.finished(*finished),
            ToWorker::Refused { reduction, refusal } => self.end(reduction, End::Refused(refusal)),
            ToWorker::HandOver { reduction } => {
                if let Some(local) = self.reductions.get_mut(&reduction)
                    && let State::Lending { report } = &mut local.state
                {
                    let end = End::Received(*core::mem::take(report));
                    local.state = State::Serving;
                    self.actions.push_back(Action::Resolve { reduction, end });
                }
            }
            ToWorker::Release { reduction } => {
                let local = self.reductions.get(&reduction);
                if local.is_some_and(|local| matches!(local.state, State::Lending { .. } | State::Serving)) {
                    self.end(reduction, End::Closed);
                }
            }
            ToWorker::Departed { process, evidence } => {
                let rank = process.rank;
                if !self.dead.insert(process) {
                    // It was said before.
                    return;
                }
                self.failed.insert(rank).ok();
                self.go_back_without(rank);
                let news = News::Failed { rank, evidence };
                self.actions.extend([Action::Departed { process, evidence }, Action::News(news)]);
            }
            ToWorker::Returned { peer } => self.take_back(peer),
            ToWorker::AgentLost { agent } => {
                self.actions.push_back(Action::AgentLost(agent));
                let followed = self.mirror.lose(agent);
                self.follow(followed);
            }
            ToWorker::Replicate { to } => {
                let copy = self.mirror.order(to.id);
                self.actions.push_back(Action::Replicate(to));
                self.copy(copy);
            }
            ToWorker::Farewell => {
                self.phase = Phase::Closed(Gone::Left);
                self.actions.push_back(Action::Closed);
            }
        }
    }

    fn task(&mut self, task: Task, deputy: Option<ProcessId>) {
        let (reduction, index) = (task.segment.reduction, task.segment.index);
        let own = Path::single(self.process.rank);
        let held = match self.reductions.get(&reduction.called()) {
            Some(local) if !local.expects(reduction, deputy) => return,
            Some(Local { held, state: State::Running, .. }) => held.get(&index).unwrap_or(&own),
            // It ended here while the task was under way; the master hears the same.
            _ => return,
        };
        let fits = *held == task.own || task.own.is_empty();
        // A deputy is to be believed less than the master.
        let path = path_of(&task).filter(|_| fits && !self.tasks.contains_key(&task.task));
        let Some(path) = path.filter(|_| self.busy.insert((reduction, index))) else {
            let reason = format!("the task expects a partial of {}, this rank holds {held}", task.own);
            let culprit = self.process;
            self.answer(
                deputy,
                ToMaster::TaskFailed(TaskFailed {
                    task: task.task,
                    segment: task.segment,
                    culprit,
                    suspects: Path::empty(),
                    fault: Fault::Unfit,
                    reason,
                }),
            );
            return;
        };
        self.begin(task, path, deputy);
    }

    fn begin(&mut self, task: Task, path: Path, deputy: Option<ProcessId>) {
        self.tasks.insert(task.task, (task.segment, path, deputy));
        self.actions.push_back(Action::Execute(task));
    }

    fn executed(&mut self, id: TaskId, result: Result<(Data, TaskCounters), ExecutionError>) {
        let (segment, path, deputy) = self.tasks.remove(&id).expect("only tasks under way are executed");
        self.busy.remove(&(segment.reduction, segment.index));
        let reduction = segment.reduction.called();
        self.renew_if_idle(reduction);
        let goes_on = |local: &&mut Local| local.is_in_teams() == segment.reduction.is_in_teams();
        let Some(local) = self.reductions.get_mut(&reduction).filter(goes_on) else {
            return;
        };
        if let State::Folding { report } = &mut local.state {
            let report = core::mem::take(report);
            self.stop_clock(reduction);
            let end = result.map_or_else(End::ResultLost, |_| End::Received(*report));
            return self.end(reduction, end);
        }
        let message = match result {
            Ok((data, counters)) => {
                local.held.insert(segment.index, path.clone());
                ToMaster::PartialReady(PartialReady { task: id, segment, path, data, counters })
            }
            Err(ExecutionError { culprit, suspects, fault, reason }) => {
                ToMaster::TaskFailed(TaskFailed { task: id, segment, culprit, suspects, fault, reason })
            }
        };
        let awaited = local.awaited.take();
        self.answer(deputy, message);
        awaited.into_iter().for_each(|finished| self.finished(*finished));
    }

    fn is_busy(&self, reduction: ReductionId) -> bool {
        let all = (reduction, SegmentIndex(0))..=(reduction, SegmentIndex(u32::MAX));
        self.busy.range(all).next().is_some()
    }

    /// Has parts of a result copied before it is handed out.
    fn prefetch(&mut self, Prefetch { reduction, bytes, parts }: Prefetch) {
        let Some(local) = self.reductions.get_mut(&reduction) else { return };
        if matches!(local.state, State::Running) {
            local.prefetches += parts.len();
            let copy = |part| Action::Prefetch { reduction, bytes, part };
            self.actions.extend(parts.into_iter().map(copy));
        }
    }

    fn prefetched(&mut self, reduction: ReductionId, start: u64, body: Option<Data>) {
        let Some(local) = self.reductions.get_mut(&reduction) else { return };
        local.prefetches -= 1;
        if !matches!(local.state, State::Running) {
            // It was refused meanwhile.
            return;
        }
        let awaited = local.awaited.take_if(|_| local.prefetches == 0);
        self.send(ToMaster::Prefetched(Prefetched { reduction, start, body }));
        awaited.into_iter().for_each(|finished| self.finished(*finished));
    }

    fn finished(&mut self, finished: Finished) {
        let is_busy = finished.beside && self.is_busy(finished.reduction);
        if let Some(local) = self.reductions.get_mut(&finished.reduction)
            && (is_busy || local.prefetches > 0)
        {
            local.awaited = Some(Box::new(finished));
            return;
        }
        let Finished { reduction, result, last, lend, beside, learning, report } = finished;
        if reduction.is_in_teams() {
            self.actions.push_back(Action::Over(reduction));
        }
        let in_teams = reduction.is_in_teams();
        let reduction = reduction.called();
        let is_open = |local: &&mut Local| local.is_in_teams() == in_teams;
        let Some(local) = self.reductions.get_mut(&reduction).filter(is_open) else {
            return;
        };
        self.learnt.hear(&local.spec, learning);
        local.is_timed = learning.asks;
        if !report.survived.is_empty() && matches!(local.state, State::Running) {
            let (ranks, redone) = (report.survived.clone(), report.folds_redone);
            self.actions.push_back(Action::News(News::Recovered { name: local.name.clone(), ranks, redone }));
        }
        if let Some(task) = last {
            local.state = State::Folding { report: Box::new(report) };
            self.busy.insert((task.segment.reduction, task.segment.index));
            let path = path_of(&task).expect("I1: the paths of a task are disjoint");
            return self.begin(task, path, None);
        }
        if result.is_empty() {
            self.stop_clock(reduction);
            let Some(local) = self.reductions.get(&reduction) else { return };
            let is_root = local.spec.delivery.root() == Some(self.process.rank);
            self.end(reduction, if is_root { End::Received(report) } else { End::Finished(report) });
            return;
        }
        let in_windows = result.iter().any(|piece| matches!(piece.data, Data::Window(_)));
        // Where one rank receives, the others wait until it has the result.
        let announce = match local.spec.delivery {
            Delivery::FirstOf(_) => true,
            _ => self.limits.ranks_return || (in_windows && local.spec.group.len() > 1),
        };
        // Of what came in messages nothing is read here, and nobody would release it.
        local.lends = announce && (local.lends || lend);
        local.beside = beside;
        let before = local.contributors.replace(report.contributors.clone());
        let afresh = before.is_some_and(|before| before != report.contributors);
        local.state = State::Collecting { report: Box::new(report), announce };
        self.actions.push_back(Action::Collect {
            reduction,
            pieces: result,
            how: Collecting { beside, afresh },
        });
    }

    fn collected(&mut self, reduction: ReductionId, result: Result<Collected, ExecutionError>) {
        self.stop_clock(reduction);
        let Some(local) = self.reductions.get_mut(&reduction) else {
            return;
        };
        if matches!(local.state, State::Noting(_)) {
            // It was refused meanwhile.
            return;
        }
        let State::Collecting { report, announce } = core::mem::replace(&mut local.state, State::Serving)
        else {
            unreachable!("only a reduction that is being collected is collected");
        };
        let end = match result {
            Ok(Collected::Whole(body)) if local.lends => {
                let collected = ToMaster::Collected { reduction, body };
                if self.limits.ranks_return {
                    return self.note(reduction, End::Received(*report), Some(collected));
                }
                local.state = State::Lending { report };
                return self.send(collected);
            }
            Ok(Collected::Whole(_)) => End::Received(*report),
            Ok(Collected::Part { error, .. }) if announce && local.has_no_room(&error, self.process) => {
                End::ResultLost(error)
            }
            Ok(Collected::Part { body, error: ExecutionError { culprit, fault, reason, .. } })
                if announce =>
            {
                local.state = State::Running;
                local.lends |= body.is_some();
                let part = NotCollected { reduction, culprit, fault, reason, body };
                return self.send(ToMaster::NotCollected(part));
            }
            Ok(Collected::Part { error, .. }) | Err(error) => End::ResultLost(error),
        };
        let collected = ToMaster::Collected { reduction, body: None };
        if self.limits.ranks_return && announce {
            return self.note(reduction, end, Some(collected));
        }
        self.actions.push_back(Action::Resolve { reduction, end });
        if announce {
            self.send(collected);
        } else {
            self.release(reduction);
        }
    }

    /// Ends the application's future, if it is still open, and releases the windows. A rank that has the
    /// result keeps it, unless others may have another one by now: a rank that takes part no more does not
    /// hear whether they have folded it anew without what went with others.
    fn end(&mut self, reduction: ReductionId, end: End) {
        let Some(local) = self.reductions.get_mut(&reduction) else { return };
        let is_cut_off = local.beside && matches!(end, End::Fenced | End::MasterLost);
        if self.limits.ranks_return && end.is_noted() {
            if let State::Noting(noting) = &mut local.state {
                // What is noted counts.
                noting.said = None;
                return;
            }
            if !matches!(local.state, State::Serving | State::Lending { .. }) {
                return self.note(reduction, end, Some(ToMaster::Noted { reduction }));
            }
        }
        let end = match &mut local.state {
            State::Serving => None,
            State::Lending { report } if !is_cut_off => Some(End::Received(*core::mem::take(report))),
            _ => Some(end),
        };
        self.actions.extend(end.map(|end| Action::Resolve { reduction, end }));
        self.release(reduction);
    }

    /// Notes that an outcome is here, if the master wants to know how long that took.
    fn stop_clock(&mut self, reduction: ReductionId) {
        if let Some(local) = self.reductions.get_mut(&reduction)
            && core::mem::take(&mut local.is_timed)
        {
            self.learnt.note(&local.spec, reduction, self.now.since(local.called));
        }
    }

    /// Has it noted how a call has ended before the application hears that.
    fn note(&mut self, reduction: ReductionId, end: End, said: Option<ToMaster>) {
        let Some(local) = self.reductions.get_mut(&reduction) else { return };
        local.state = State::Noting(Box::new(Noting { end: end.clone(), said }));
        self.actions.push_back(Action::Note { reduction, end });
    }

    /// Takes in that it is noted how a call has ended.
    fn noted(&mut self, reduction: ReductionId) {
        let Some(local) = self.reductions.get_mut(&reduction) else { return };
        let State::Noting(noting) = core::mem::replace(&mut local.state, State::Serving) else {
            unreachable!("only what ends is noted");
        };
        let Noting { end, said } = *noting;
        let is_served = matches!(said, Some(ToMaster::Collected { .. }));
        match end {
            End::Received(report) if is_served && local.lends => {
                local.state = State::Lending { report: Box::new(report) };
            }
            end => self.actions.push_back(Action::Resolve { reduction, end }),
        }
        said.into_iter().for_each(|message| self.send(message));
        if !is_served {
            self.release(reduction);
        }
    }

    /// Takes in that something is in the vault. It counts once it is in the replica, too, if there is one.
    fn wait_for_copy(&mut self, note: Note) {
        match self.mirror.note(note) {
            Ok(copy) => self.copy(copy),
            Err(note) => self.count(note),
        }
    }

    fn copy(&mut self, copy: Option<Copy>) {
        self.actions.extend(copy.map(|Copy { agent, number }| Action::Copy { agent, number }));
    }

    fn follow(&mut self, Followed { said, notes }: Followed) {
        said.into_iter().for_each(|message| self.send(message));
        notes.into_iter().for_each(|note| self.count(note));
    }

    fn count(&mut self, note: Note) {
        match note {
            Note::Noted(reduction) => self.noted(reduction),
            Note::Recalled(reduction) => self.send(ToMaster::Noted { reduction }),
        }
    }

    /// Takes in that a rank has come back.
    fn take_back(&mut self, peer: Peer) {
        let process = peer.process;
        self.failed.remove(process.rank);
        if let Some(peers) = &mut self.peers {
            let mut all = peers.to_vec();
            all[process.rank.index()] = peer.clone();
            *peers = all.into();
        }
        let news = News::Returned { rank: process.rank, incarnation: process.incarnation };
        self.actions.extend([Action::Returned(peer), Action::News(news)]);
    }

    fn release(&mut self, reduction: ReductionId) {
        let released = self.reductions.remove(&reduction);
        self.actions.push_back(Action::Release(reduction));
        // Others may have waited for it.
        if self.gone().is_none() && released.is_some_and(|local| !matches!(local.way, Way::Master)) {
            self.contribute_in_order(reduction);
        }
    }

    fn end_all(&mut self, gone: Gone) {
        let lasted = self.gone().is_none();
        if lasted {
            self.phase = Phase::Closed(gone);
        }
        let reductions: Vec<_> = self.reductions.keys().copied().collect();
        for reduction in reductions {
            self.end(reduction, End::from(gone));
        }
        if lasted {
            self.actions.push_back(Action::Closed);
        }
    }

    fn send(&mut self, message: ToMaster) {
        self.actions.push_back(Action::Send(message));
    }

    /// Tells a deputy, or the master.
    fn answer(&mut self, deputy: Option<ProcessId>, message: ToMaster) {
        self.actions.push_back(match deputy {
            Some(deputy) => Action::Tell(deputy, message),
            None => Action::Send(message),
        });
    }

    /// What this rank's partial of a segment holds; the simulator compares it with the master's belief.
    pub fn held(&self, reduction: ReductionId, index: SegmentIndex) -> Option<Path> {
        let local = self.reductions.get(&reduction.called())?;
        Some(local.held.get(&index).cloned().unwrap_or_else(|| Path::single(self.process.rank)))
    }
}

/// What the executor's partial holds once a task is done, if nothing is counted twice in it.
fn path_of(task: &Task) -> Option<Path> {
    Path::union_of(task.sources.iter().map(|source| &source.path).chain([&task.own])).ok()
}
