//! The worker's bookkeeping as a pure machine: this rank's bodies and partials, its tasks, and the outcomes
//! that it waits for.
//!
//! Bodies and bytes stand behind the driver (a thread of `everfold-runtime`, or the simulator); this machine
//! knows them by reduction and segment only. It answers for two things: that a task is done exactly on the
//! partial the master believes is here (I1), and that every call of the application ends (I6).
//!
//! | module | holds |
//! |---|---|
//! | `event` | events that go in, and actions that come out |
//! | `local` | a rank's knowledge of one reduction |
//! | `hearing` | messages of the master |
//! | `task` | tasks |
//! | `result` | how a reduction ends here |
//! | `attempt` | attempts in teams |
//! | `learnt` | whether a body comes inlined |
//! | `noting`, `mirror` | outcomes that are noted before they count, and their replica |

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet, VecDeque},
    string::String,
    sync::Arc,
    vec::Vec,
};

use everfold_protocol::{
    Epoch, Path, ProcessId, ReductionId, SegmentId, SegmentIndex, TaskId, Timestamp,
    message::{Contribution, News, Peer, ToMaster},
    spec::{Limits, ReductionSpec},
    watch::{Alarm, Watch},
};

mod attempt;
mod event;
mod hearing;
mod learnt;
mod local;
mod mirror;
mod noting;
mod result;
mod task;

pub use self::event::{Action, Collected, Collecting, End, Event, ExecutionError, Gone};
use self::{
    attempt::Way,
    learnt::Learnt,
    local::{Local, State},
    mirror::{Copy, Mirror, Note},
};

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
    /// The peers that were declared failed and have not come back.
    failed: Path,
    /// Which processes were.
    dead: BTreeSet<ProcessId>,
    learnt: Learnt,
    /// Attempts in teams that were dissolved before this rank has called them.
    dissolved: VecDeque<ReductionId>,
    /// Tasks under way: the segment, the path of its partial once the task is done, and the deputy that hears
    /// so, if any.
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
            Event::CaughtUp(comeback) => self.send(ToMaster::CaughtUp(comeback)),
            Event::Saved => {
                let copy = self.mirror.save();
                self.copy(copy);
            }
            Event::Unnoted { reason } => {
                let said = self.mirror.lack_outcome(reason);
                said.into_iter().for_each(|message| self.send(message));
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
        if self.reductions.is_empty() && !self.mirror.holds_some() {
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

    /// Whether this rank has as many reductions in flight as it may have, if `placed` more are on the board. To be
    /// asked before a call is made: one that is refused does not count, or else the others would wait for its
    /// number.
    pub fn is_full(&self, placed: usize) -> bool {
        self.phase == Phase::Open && (self.reductions.len() + placed) as u64 >= self.limits.reductions_max
    }

    /// The most bytes of a body that comes inlined in this call. Long bodies come inlined only if the rank
    /// has no other call under way, so the master holds one long body of each rank at most.
    pub fn inline_bytes_max(&self, spec: &ReductionSpec) -> u64 {
        let is_open = |local: &Local| !matches!(local.state, State::Serving);
        match self.learnt.inlines(spec) && !self.reductions.values().any(is_open) {
            true => u64::MAX,
            false => self.limits.inline_bytes_max,
        }
    }

    /// Whether outcomes are noted before the application hears of them.
    pub fn notes(&self) -> bool {
        self.limits.ranks_return
    }

    /// Whether what an earlier process has noted of this call does not count yet, so that the application
    /// must not be answered from the result log: this host may be lost, and a later process would begin
    /// without it.
    pub fn recalls(&self, reduction: ReductionId) -> bool {
        self.mirror.recalls(reduction)
    }

    /// Whether a call may be put on the board instead: the master hears those of one name in order.
    pub fn may_place(&self, id: ReductionId) -> bool {
        let first = ReductionId { sequence: 0, ..id };
        let has_ended = |local: &Local| matches!(local.state, State::Serving);
        self.phase == Phase::Open
            && self.reductions.range(first..id).all(|(_, local)| has_ended(local))
            && !self.mirror.recalls_name_of(id)
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

    /// The path of this rank's partial of a segment; the simulator compares it with the master's belief.
    pub fn held(&self, reduction: ReductionId, index: SegmentIndex) -> Option<Path> {
        let local = self.reductions.get(&reduction.called())?;
        Some(local.held.get(&index).cloned().unwrap_or_else(|| Path::single(self.process.rank)))
    }
}
