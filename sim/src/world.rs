//! One master, some workers, and the messages between them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    time::Duration,
};

use everfold_master as master;
use everfold_protocol::{
    Generation, JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec, RegionOffset, SegmentId,
    SegmentIndex, Timestamp, WindowId,
    message::{
        ByteRange, Contribution, Data, Fault, Header, Keep, Kept, MASTER_RANK, News, NotKept, Peer, Piece,
        Place, Source, Task, TaskCounters, ToMaster, ToWorker, WindowRef,
    },
    report::Refusal,
    spec::Limits,
};
use everfold_worker::machine::{Action, End, Event, ExecutionError, Gone, Worker};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const JOB: JobId = JobId(1);
const MASTER: ProcessId = ProcessId { rank: MASTER_RANK, incarnation: everfold_protocol::Incarnation(0) };

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of ranks.
    pub ranks: u32,
    /// Host of each rank; ranks of one host share memory. Empty: each its own.
    pub hosts: Vec<u64>,
    /// Decides every delay.
    pub seed: u64,
    /// Shortest and longest time a message takes.
    pub latency: (Duration, Duration),
    /// Time that a rank takes for a task; the default for those not listed is 100 µs.
    pub task_time: BTreeMap<Rank, Duration>,
    /// How often, in percent, a process fails to keep a copy.
    pub keep_failures: u32,
    /// How often, in percent, a copy turns out to be damaged when it is read, and a fold spoils its executor's partial.
    pub damage: u32,
    /// How the master schedules.
    pub policy: master::Policy,
}

impl Settings {
    /// `ranks` ranks on hosts of their own, with delays drawn from `seed`.
    pub fn new(ranks: u32, seed: u64) -> Self {
        Self {
            ranks,
            hosts: Vec::new(),
            seed,
            latency: (Duration::from_micros(1), Duration::from_micros(50)),
            task_time: BTreeMap::new(),
            keep_failures: 0,
            damage: 0,
            policy: master::Policy {
                // Deaths are seen from broken connections; worlds with freezes switch pings on.
                limits: Limits { ping_interval: Duration::ZERO, ..Limits::default() },
                ..master::Policy::default()
            },
        }
    }
}

/// A rank's call of a reduction.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who calls.
    pub rank: Rank,
    /// The reduction's name.
    pub name: String,
    /// How often the rank called that name before.
    pub sequence: u64,
    /// What it believes that all agreed on.
    pub spec: ReductionSpec,
    /// Whether the body travels in the message.
    pub inline: bool,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// How.
    pub end: End,
    /// The ranks folded into each segment, in order of folding, where this rank was to have the result.
    pub value: Option<Vec<Vec<Rank>>>,
}

/// Something that was decided, for tests that follow a run step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The master queued a reduction message of this rank with this path.
    Message(Rank, Path),
    /// The master gave `executor` the task to fold the paths of `sources` into its own.
    Task {
        /// Who folds.
        executor: Rank,
        /// What it holds.
        own: Path,
        /// What it reads, and from whom.
        sources: Vec<(Rank, Path)>,
    },
    /// The master broadcast the end.
    End,
}

#[derive(Debug)]
enum Happening {
    Call(Box<Call>),
    ToMaster(Header, Box<ToMaster>),
    ToWorker(ProcessId, Header, Box<ToWorker>),
    Execute(ProcessId, Box<Task>),
    Collect(ProcessId, ReductionId, Vec<Piece>),
    Keep(ProcessId, Box<Keep>),
    Die(ProcessId),
    Freeze(Rank),
    Thaw(Rank),
    Disconnected(ProcessId),
    Close(Rank),
    Timeout,
    WorkerTimeout(Rank),
}

impl Happening {
    /// Whether it happens only because time passes.
    fn is_idle(&self) -> bool {
        match self {
            Self::Timeout | Self::WorkerTimeout(_) => true,
            Self::ToMaster(_, message) => matches!(**message, ToMaster::Pong { .. }),
            Self::ToWorker(_, _, message) => matches!(**message, ToWorker::Ping { .. }),
            _ => false,
        }
    }

    /// Whose process it happens in; frozen processes do nothing.
    fn place(&self) -> Option<Rank> {
        match self {
            Self::Call(call) => Some(call.rank),
            Self::ToWorker(process, ..)
            | Self::Execute(process, _)
            | Self::Collect(process, ..)
            | Self::Keep(process, _) => Some(process.rank),
            Self::Close(rank) | Self::WorkerTimeout(rank) => Some(*rank),
            // The master and its worker share a process.
            Self::ToMaster(..) | Self::Disconnected(_) | Self::Timeout => Some(MASTER_RANK),
            Self::Die(_) | Self::Freeze(_) | Self::Thaw(_) => None,
        }
    }
}

struct Due {
    at: Timestamp,
    order: u64,
    what: Happening,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

type PartialKey = (Rank, SegmentId);

/// A deterministic job.
pub struct World {
    now: Timestamp,
    heap: BinaryHeap<Reverse<Due>>,
    order: u64,
    random: ChaCha8Rng,
    settings: Settings,
    master: master::Master,
    workers: BTreeMap<Rank, Worker>,
    /// When the last message on a connection arrives: connections keep their order.
    arrivals: BTreeMap<(ProcessId, ProcessId), Timestamp>,
    /// What each rank's partial holds, in order of folding, where it is more than its own original.
    partials: BTreeMap<PartialKey, Vec<Rank>>,
    /// Partials that are being written, or were when their process died.
    torn: BTreeSet<PartialKey>,
    /// Copies of originals: keeper, owner, reduction.
    copies: BTreeSet<(Rank, Rank, ReductionId)>,
    /// Whose windows of which reduction are closed.
    released: BTreeSet<(Rank, ReductionId)>,
    /// What frozen processes will do when they thaw.
    frozen: BTreeMap<Rank, Vec<Happening>>,
    /// Whom each rank knows to be failed.
    departed: BTreeSet<(Rank, Rank)>,
    /// Happenings under way that are not idle.
    busy: usize,
    progress: Timestamp,
    master_due: Option<Timestamp>,
    worker_due: BTreeMap<Rank, Timestamp>,
    specs: BTreeMap<(Rank, ReductionId), ReductionSpec>,
    inlines: BTreeSet<(Rank, ReductionId)>,
    results: BTreeMap<(Rank, ReductionId), Vec<Vec<Rank>>>,
    ended: BTreeMap<(Rank, ReductionId), Ended>,
    met: Vec<Rank>,
    incomplete: BTreeMap<Rank, Path>,
    closed: Vec<Rank>,
    done: bool,
    steps: Vec<Step>,
    notices: Vec<master::Notice>,
}

impl World {
    /// A job whose processes are about to join.
    pub fn new(settings: Settings) -> Self {
        let now = Timestamp::ZERO;
        let mut world = Self {
            now,
            heap: BinaryHeap::new(),
            order: 0,
            random: ChaCha8Rng::seed_from_u64(settings.seed),
            master: master::Master::new(now, JOB, settings.ranks, settings.policy),
            workers: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            partials: BTreeMap::new(),
            torn: BTreeSet::new(),
            copies: BTreeSet::new(),
            released: BTreeSet::new(),
            frozen: BTreeMap::new(),
            departed: BTreeSet::new(),
            busy: 0,
            progress: now,
            master_due: None,
            worker_due: BTreeMap::new(),
            specs: BTreeMap::new(),
            inlines: BTreeSet::new(),
            results: BTreeMap::new(),
            ended: BTreeMap::new(),
            met: Vec::new(),
            incomplete: BTreeMap::new(),
            closed: Vec::new(),
            done: false,
            steps: Vec::new(),
            notices: Vec::new(),
            settings,
        };
        for rank in (0..world.settings.ranks).map(Rank) {
            let peer = Peer {
                process: ProcessId::first(rank),
                host: world.host(rank),
                pid: rank.0 + 1,
                region: None,
                address: String::new(),
                domain: None,
            };
            world.workers.insert(rank, Worker::new(peer));
        }
        world.run_workers();
        world
    }

    /// Virtual time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The master, to look at.
    pub fn master(&self) -> &master::Master {
        &self.master
    }

    /// What was decided so far.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What the master told its watchers.
    pub fn notices(&self) -> &[master::Notice] {
        &self.notices
    }

    /// How `rank`'s call ended, if it has.
    pub fn ended(&self, rank: Rank, name: &str, sequence: u64) -> Option<&Ended> {
        self.ended.get(&(rank, ReductionId::new(name, sequence)))
    }

    /// Whether the master has nothing more to do.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Ranks for which the job has begun.
    pub fn met(&self) -> &[Rank] {
        &self.met
    }

    /// Ranks that were told that there is no job, and who is missing.
    pub fn incomplete(&self) -> &BTreeMap<Rank, Path> {
        &self.incomplete
    }

    /// Ranks that have left in good order.
    pub fn closed(&self) -> &[Rank] {
        &self.closed
    }

    /// Lets a rank call a reduction `after` now.
    pub fn call(&mut self, after: Duration, call: Call) {
        self.schedule(self.now + after, Happening::Call(Box::new(call)));
    }

    /// Lets a rank close its session `after` now.
    pub fn close(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now + after, Happening::Close(rank));
    }

    /// Kills a process `after` now; the master sees its connection break.
    pub fn kill(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now + after, Happening::Die(ProcessId::first(rank)));
    }

    /// Stops a process `after` now, for `time`; messages to it wait.
    pub fn freeze(&mut self, after: Duration, rank: Rank, time: Duration) {
        self.schedule(self.now + after, Happening::Freeze(rank));
        self.schedule(self.now + after + time, Happening::Thaw(rank));
    }

    /// Runs until nothing is under way any more. Checks the invariants after every event.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Lets the next thing happen. Returns false if nothing more will, except that time passes.
    pub fn step(&mut self) -> bool {
        let waiting = self.busy > 0 || !self.frozen.is_empty();
        if !waiting && self.now.since(self.progress) > QUIET {
            return false;
        }
        let Some(Reverse(due)) = self.heap.pop() else { return false };
        assert!(due.at >= self.now, "time never runs back");
        self.now = due.at;
        if !due.what.is_idle() {
            self.busy -= 1;
            self.progress = self.now;
        }
        match due.what.place().and_then(|rank| self.frozen.get_mut(&rank)) {
            Some(waiting) => waiting.push(due.what),
            None => self.happen(due.what),
        }
        self.run_master();
        self.run_workers();
        self.master.check();
        true
    }

    fn schedule(&mut self, at: Timestamp, what: Happening) {
        self.order += 1;
        self.busy += usize::from(!what.is_idle());
        self.heap.push(Reverse(Due { at, order: self.order, what }));
    }

    fn host(&self, rank: Rank) -> u64 {
        self.settings.hosts.get(rank.index()).copied().unwrap_or(u64::from(rank) | 1 << 63)
    }

    fn latency(&mut self) -> Duration {
        let (shortest, longest) = self.settings.latency;
        let range = shortest.as_nanos() as u64..=longest.as_nanos() as u64;
        Duration::from_nanos(self.random.random_range(range))
    }

    /// When a message sent now on this connection arrives.
    fn arrival(&mut self, from: ProcessId, to: ProcessId) -> Timestamp {
        let at = self.now + self.latency();
        let last = self.arrivals.entry((from, to)).or_default();
        *last = at.max(*last);
        *last
    }

    fn happen(&mut self, what: Happening) {
        if !what.is_idle() {
            tracing::trace!(now = ?self.now, ?what);
        }
        match what {
            Happening::Call(call) => self.happen_call(*call),
            Happening::ToMaster(header, message) => {
                self.record(&header, &message);
                let event = master::Event::Message { header, message: *message };
                self.master.handle_event(self.now, event);
            }
            Happening::ToWorker(to, header, message) => {
                self.tell_worker(to.rank, Event::Master { header, message: *message });
            }
            // What a process was about to do when it died is not done.
            Happening::Execute(process, _)
            | Happening::Collect(process, ..)
            | Happening::Keep(process, _)
                if !self.workers.contains_key(&process.rank) => {}
            Happening::Keep(process, keep) => self.keep(process, *keep),
            Happening::Freeze(rank) => drop(self.frozen.entry(rank).or_default()),
            Happening::Thaw(rank) => {
                for what in self.frozen.remove(&rank).into_iter().flatten() {
                    self.schedule(self.now, what);
                }
            }
            Happening::Execute(process, task) => self.execute(process, *task),
            Happening::Collect(process, reduction, pieces) => self.collect(process, reduction, &pieces),
            Happening::Die(process) => {
                self.workers.remove(&process.rank);
                self.frozen.remove(&process.rank);
                self.copies.retain(|(keeper, ..)| *keeper != process.rank);
                // What it had sent still arrives, and then the end of the connection.
                let at = self.arrival(process, MASTER);
                self.schedule(at, Happening::Disconnected(process));
            }
            Happening::Disconnected(process) => {
                self.master.handle_event(self.now, master::Event::Disconnected(process));
            }
            Happening::Close(rank) => self.tell_worker(rank, Event::Close),
            Happening::Timeout => {
                self.master_due = None;
                self.master.handle_timeout(self.now);
            }
            Happening::WorkerTimeout(rank) => {
                self.worker_due.remove(&rank);
                if let Some(worker) = self.workers.get_mut(&rank) {
                    worker.handle_timeout(self.now);
                }
            }
        }
    }

    fn tell_worker(&mut self, rank: Rank, event: Event) {
        if let Some(worker) = self.workers.get_mut(&rank) {
            worker.handle_event(self.now, event);
        }
    }

    fn record(&mut self, header: &Header, message: &ToMaster) {
        let path = match message {
            ToMaster::Contribute(_) => Path::single(header.sender.rank),
            ToMaster::PartialReady(done) => done.path.clone(),
            _ => return,
        };
        self.steps.push(Step::Message(header.sender.rank, path));
    }

    fn happen_call(&mut self, call: Call) {
        let Call { rank, name, sequence, spec, inline } = call;
        let reduction = ReductionId::new(&name, sequence);
        let process = ProcessId::first(rank);
        let data = if spec.delivery.root() == Some(rank) {
            Data::Private
        } else if inline {
            inlined(&[rank])
        } else {
            window(process, Shown::Original, spec.kind.array_bytes().map_or(100_000, |(bytes, _)| bytes))
        };
        self.specs.insert((rank, reduction), spec.clone());
        if inline {
            self.inlines.insert((rank, reduction));
        }
        self.tell_worker(rank, Event::Call(Contribution { reduction, name, spec, data }));
    }

    fn run_master(&mut self) {
        while let Some(action) = self.master.poll_action() {
            match action {
                master::Action::Send { to, message } => {
                    match &message {
                        ToWorker::Task(task) => self.steps.push(Step::Task {
                            executor: to.rank,
                            own: task.own.clone(),
                            sources: task.sources.iter().map(|s| (s.process.rank, s.path.clone())).collect(),
                        }),
                        ToWorker::Finished(_) if self.steps.last() != Some(&Step::End) => {
                            self.steps.push(Step::End)
                        }
                        _ => {}
                    }
                    let header = Header { job: JOB, epoch: self.master.epoch(), sender: MASTER };
                    let at = self.arrival(MASTER, to);
                    self.schedule(at, Happening::ToWorker(to, header, Box::new(message)));
                }
                master::Action::Disconnect(_) => {}
                master::Action::Notice(notice) => {
                    self.check_loss(&notice);
                    self.notices.push(notice);
                }
                master::Action::Done => self.done = true,
            }
        }
        if let Some(due) = self.master.poll_timeout()
            && !self.done
            && self.master_due.is_none_or(|scheduled| due < scheduled)
        {
            // An early wake-up is harmless.
            self.master_due = Some(due);
            self.schedule(due.max(self.now), Happening::Timeout);
        }
    }

    /// A contribution that is called lost is in no survivor's hands.
    fn check_loss(&self, notice: &master::Notice) {
        let master::Notice::Refused { reduction, refusal: Refusal::ContributionLost { ranks }, .. } = notice
        else {
            return;
        };
        let fenced = |rank: Rank| {
            let failed = |notice: &master::Notice| matches!(notice, master::Notice::Failed { process, .. } if process.rank == rank);
            self.notices.iter().any(failed)
        };
        for lost in ranks.iter().filter(|rank| !fenced(*rank)) {
            assert!(!self.workers.contains_key(&lost), "rank {lost} lives and has its own contribution");
            assert!(!self.inlines.contains(&(lost, *reduction)), "the master has rank {lost}'s contribution");
        }
        let of_segment = |index: SegmentIndex| {
            let partials = self.partials.iter().filter(move |((_, segment), _)| segment.index == index);
            let of_survivors = partials.filter(|((rank, segment), _)| {
                let whole = !self.torn.contains(&(*rank, *segment));
                segment.reduction == *reduction && whole && self.workers.contains_key(rank) && !fenced(*rank)
            });
            let held: BTreeSet<Rank> = of_survivors.flat_map(|(_, folded)| folded.iter().copied()).collect();
            ranks.iter().all(|rank| !held.contains(&rank))
        };
        let segments = self.specs.iter().find(|((_, id), _)| id == reduction).map_or(1, |(_, spec)| {
            let len = self.settings.policy.segment_len(&spec.kind).max(1);
            spec.kind.array_bytes().map_or(1, |(bytes, _)| bytes.div_ceil(len))
        });
        let lost = (0..segments as u32).map(SegmentIndex).any(of_segment);
        // A task that was doubled leaves partials behind that overlap; not every cover is found among them.
        let is_slow = |notice: &master::Notice| matches!(notice, master::Notice::News(News::Slow { name, .. }) if ReductionId::new(name, reduction.sequence) == *reduction);
        let lost = lost || self.notices.iter().any(is_slow);
        assert!(lost, "a survivor holds what is called lost: {ranks}");
    }

    fn run_workers(&mut self) {
        for rank in (0..self.settings.ranks).map(Rank) {
            while let Some(action) = self.workers.get_mut(&rank).and_then(Worker::poll_action) {
                self.act(rank, action);
            }
            if let Some(due) = self.workers.get(&rank).and_then(Worker::poll_timeout)
                && self.worker_due.get(&rank).is_none_or(|scheduled| due < *scheduled)
            {
                self.worker_due.insert(rank, due);
                self.schedule(due.max(self.now), Happening::WorkerTimeout(rank));
            }
        }
    }

    fn act(&mut self, rank: Rank, action: Action) {
        let process = ProcessId::first(rank);
        match action {
            Action::Send(message) => {
                let epoch = self.workers[&rank].epoch();
                let at = self.arrival(process, MASTER);
                self.schedule(
                    at,
                    Happening::ToMaster(Header { job: JOB, epoch, sender: process }, Box::new(message)),
                );
            }
            Action::Execute(task) => {
                // An array's first fold leaves the original alone; later ones grow the partial where it is.
                self.torn.insert((rank, task.segment));
                let at = self.now + self.task_time(rank);
                self.schedule(at, Happening::Execute(process, Box::new(task)));
            }
            Action::Collect { reduction, pieces } => {
                let at = self.now + self.latency();
                self.schedule(at, Happening::Collect(process, reduction, pieces));
            }
            Action::Resolve { reduction, end } => self.resolve(rank, reduction, end),
            Action::Closed => {
                self.closed.push(rank);
                if self.workers[&rank].gone() != Some(Gone::Left) {
                    // It hangs up.
                    let at = self.arrival(process, MASTER);
                    self.schedule(at, Happening::Disconnected(process));
                }
            }
            Action::Meet { .. } => self.met.push(rank),
            Action::Incomplete { missing } => drop(self.incomplete.insert(rank, missing)),
            Action::Departed { process, .. } => drop(self.departed.insert((rank, process.rank))),
            Action::Keep(keep) => {
                let at = self.now + self.latency();
                self.schedule(at, Happening::Keep(process, Box::new(keep)));
            }
            Action::Release(reduction) => drop(self.released.insert((rank, reduction))),
            Action::News(_) | Action::Unwelcome(_) => {}
        }
    }

    fn task_time(&self, rank: Rank) -> Duration {
        self.settings.task_time.get(&rank).copied().unwrap_or(Duration::from_micros(100))
    }

    /// What `rank`'s partial holds, in order of folding.
    fn partial(&self, rank: Rank, segment: SegmentId) -> Vec<Rank> {
        self.partials.get(&(rank, segment)).cloned().unwrap_or_else(|| vec![rank])
    }

    /// Whether `reader` gets at data of `owner`: it lives, or it died and shares memory.
    fn reaches(&self, reader: Rank, owner: ProcessId, data: &Data, reduction: ReductionId) -> Reach {
        let Data::Window(window) = data else { return Reach::Now };
        let shares = self.host(reader) == self.host(owner.rank) && window.window.0 < COPIES;
        match () {
            () if self.released.contains(&(owner.rank, reduction)) => Reach::Never,
            () if shares => Reach::Now,
            () if self.departed.contains(&(reader, owner.rank)) => Reach::Never,
            () if !self.workers.contains_key(&owner.rank) => Reach::Never,
            () if self.frozen.contains_key(&owner.rank) => Reach::Later,
            () => Reach::Now,
        }
    }

    /// What a reader finds: the ranks folded into it, with a nonsense rank among them where bytes are not what they
    /// should be.
    fn read(&self, source: &Source, segment: SegmentId) -> Vec<Rank> {
        let rank = source.process.rank;
        let window = match &source.data {
            Data::Inline(bytes) => return ranks_in(bytes),
            Data::Window(window) => window.window.0,
            Data::Private => return vec![NONSENSE],
        };
        if window >= COPIES {
            let owner = Rank((window - COPIES) as u32);
            let there = self.copies.contains(&(rank, owner, segment.reduction));
            return vec![if there { owner } else { NONSENSE }];
        }
        if window == Shown::Original as u64 {
            return vec![rank];
        }
        let torn = self.torn.contains(&(rank, segment));
        let held = self.partials.get(&(rank, segment)).filter(|_| !torn);
        held.cloned().unwrap_or_else(|| vec![NONSENSE])
    }

    fn execute(&mut self, process: ProcessId, task: Task) {
        let rank = process.rank;
        let Some(spec) = self.specs.get(&(rank, task.segment.reduction)).cloned() else {
            return;
        };
        let reduction = task.segment.reduction;
        let reach = task
            .sources
            .iter()
            .map(|source| (self.reaches(rank, source.process, &source.data, reduction), source.process));
        match reach.max() {
            Some((Reach::Never, culprit)) => {
                self.torn.remove(&(rank, task.segment));
                let reason = "it is dead".to_owned();
                let result = Err(ExecutionError { culprit, fault: Fault::Unreachable, reason });
                return self.tell_worker(rank, Event::Executed { task: task.task, result });
            }
            Some((Reach::Later, _)) => {
                let at = self.now + RETRY;
                return self.schedule(at, Happening::Execute(process, Box::new(task)));
            }
            _ => {}
        }
        if let Some(result) = self.mishap(&spec, rank, &task) {
            return self.tell_worker(rank, Event::Executed { task: task.task, result: Err(result) });
        }
        let own = (!task.own.is_empty()).then(|| (task.own.clone(), self.partial(rank, task.segment)));
        let mut operands: Vec<_> = own.into_iter().collect();
        let sources = task.sources.iter();
        operands.extend(sources.map(|source| (source.path.clone(), self.read(source, task.segment))));
        if !spec.commutative {
            operands.sort_by_key(|(path, _)| path.first());
        }
        let mut folded = Vec::new();
        for (path, held) in operands {
            let set: Path = held.iter().copied().collect();
            if set != path || set.len() != held.len() {
                tracing::trace!(now = ?self.now, %rank, ?task, %path, ?held, "nonsense");
                folded.push(NONSENSE);
            }
            folded.extend(held);
        }
        // Objects grow when they are folded; arrays do not.
        let grown = spec.kind.array_bytes().is_none() && folded.len() > 3;
        let inline = self.inlines.contains(&(rank, task.segment.reduction)) && !grown;
        let data = match () {
            () if spec.delivery.root() == Some(rank) => Data::Private,
            () if inline => inlined(&folded),
            () => window(process, Shown::Partial, task.range.len.max(100_000)),
        };
        self.torn.remove(&(rank, task.segment));
        self.partials.insert((rank, task.segment), folded);
        let counters = TaskCounters {
            task_ns: self.task_time(rank).as_nanos() as u64,
            fetch_ns: 0,
            fetched_bytes: task.range.len * task.sources.len() as u64,
        };
        self.tell_worker(rank, Event::Executed { task: task.task, result: Ok((data, counters)) });
    }

    /// What goes wrong with a task although everybody lives.
    fn mishap(&mut self, spec: &ReductionSpec, rank: Rank, task: &Task) -> Option<ExecutionError> {
        if self.settings.damage == 0 || !self.random.random_ratio(self.settings.damage, 100) {
            return None;
        }
        let is_copy =
            |source: &&Source| matches!(&source.data, Data::Window(window) if window.window.0 >= COPIES);
        let key = (rank, task.segment);
        if let Some(copy) = task.sources.iter().find(is_copy) {
            self.torn.remove(&key);
            let reason = "it is damaged".to_owned();
            return Some(ExecutionError { culprit: copy.process, fault: Fault::Damaged, reason });
        }
        // What the root and inlined bodies spoil is in place of the original, and ends the reduction.
        let in_place =
            spec.delivery.root() == Some(rank) || self.inlines.contains(&(rank, task.segment.reduction));
        let source = task.sources.first().filter(|_| !in_place && self.partials.contains_key(&key))?;
        // The partial stays torn.
        let reason = "it changed".to_owned();
        Some(ExecutionError { culprit: source.process, fault: Fault::Torn, reason })
    }

    /// Makes a copy of an original, or fails to.
    fn keep(&mut self, process: ProcessId, keep: Keep) {
        let (rank, owner) = (process.rank, keep.source.process);
        let fails = self.random.random_ratio(self.settings.keep_failures, 100);
        let result = match self.reaches(rank, owner, &keep.source.data, keep.reduction) {
            Reach::Later => {
                let at = self.now + RETRY;
                return self.schedule(at, Happening::Keep(process, Box::new(keep)));
            }
            Reach::Never => Err(NotKept::Unreachable),
            Reach::Now if fails => Err(NotKept::Impossible("the disk is full".to_owned())),
            Reach::Now => {
                self.copies.insert((rank, owner.rank, keep.reduction));
                let place = WindowId(COPIES + u64::from(owner.rank));
                let Data::Window(original) = &keep.source.data else {
                    unreachable!("only windows are copied")
                };
                Ok(Data::Window(WindowRef { window: place, place: Place::Served, ..original.clone() }))
            }
        };
        let Keep { reduction, segments, .. } = keep;
        self.tell_worker(rank, Event::Kept(Kept { reduction, owner, segments, result }));
    }

    fn collect(&mut self, process: ProcessId, reduction: ReductionId, pieces: &[Piece]) {
        let mut at = 0;
        for piece in pieces {
            assert_eq!(piece.range.start, at, "the pieces of a result lie end to end");
            at = piece.range.end();
        }
        let mut reach = pieces
            .iter()
            .map(|piece| (self.reaches(process.rank, piece.process, &piece.data, reduction), piece.process));
        if let Some((_, culprit)) = reach.find(|(reach, _)| *reach == Reach::Never) {
            let reason = "its window is closed".to_owned();
            let result = Err(ExecutionError { culprit, fault: Fault::Unreachable, reason });
            return self.tell_worker(process.rank, Event::Collected { reduction, result });
        }
        let segments = self.segments(process.rank, reduction);
        let value = segments.map(|index| {
            let range = self.segment_range(process.rank, reduction, index);
            let piece =
                pieces.iter().find(|piece| contains(piece.range, range)).expect("each segment has its piece");
            let source = Source { process: piece.process, path: Path::empty(), data: piece.data.clone() };
            self.read(&source, SegmentId { reduction, index })
        });
        let value = value.collect();
        self.results.insert((process.rank, reduction), value);
        self.tell_worker(process.rank, Event::Collected { reduction, result: Ok(()) });
    }

    fn segment_range(&self, rank: Rank, reduction: ReductionId, index: SegmentIndex) -> ByteRange {
        let spec = &self.specs[&(rank, reduction)];
        let len = self.settings.policy.segment_len(&spec.kind);
        let bytes = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let start = u64::from(index.0) * len;
        ByteRange { start, len: len.min(bytes - start) }
    }

    fn segments(&self, rank: Rank, reduction: ReductionId) -> impl Iterator<Item = SegmentIndex> + use<> {
        let spec = &self.specs[&(rank, reduction)];
        let segment_bytes = self.settings.policy.segment_len(&spec.kind);
        let bytes = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let count = if segment_bytes == 0 { 1 } else { bytes.div_ceil(segment_bytes) };
        (0..count as u32).map(SegmentIndex)
    }

    fn value(&self, reduction: ReductionId, rank: Rank) -> Vec<Vec<Rank>> {
        let segments = self.segments(rank, reduction);
        segments.map(|index| self.partial(rank, SegmentId { reduction, index })).collect()
    }

    fn resolve(&mut self, rank: Rank, reduction: ReductionId, end: End) {
        let root = self.specs[&(rank, reduction)].delivery.root();
        let value = match end {
            End::Received(_) if root == Some(rank) => Some(self.value(reduction, rank)),
            End::Received(_) => self.results.get(&(rank, reduction)).cloned(),
            _ => None,
        };
        let before = self.ended.insert((rank, reduction), Ended { end, value });
        assert!(before.is_none(), "a future ends once");
    }
}

fn contains(outer: ByteRange, inner: ByteRange) -> bool {
    outer.start <= inner.start && inner.end() <= outer.end()
}

/// Which of a rank's windows it is.
#[derive(Clone, Copy)]
enum Shown {
    Original = 0,
    Partial = 1,
}

/// Windows from this one on show copies of other ranks' originals.
const COPIES: u64 = 1000;
/// Stands for bytes that are not what they should be.
const NONSENSE: Rank = Rank(u32::MAX - 1);
/// How often a reader looks whether a frozen process is back.
const RETRY: Duration = Duration::from_millis(20);
/// When nothing has happened for this long, nothing will: longer than any silence that is waited for.
const QUIET: Duration = Duration::from_secs(30);

/// Whether memory can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Now,
    Later,
    Never,
}

fn window(process: ProcessId, shown: Shown, bytes: u64) -> Data {
    Data::Window(WindowRef {
        window: WindowId(shown as u64),
        generation: Generation(1),
        bytes,
        checksum: None,
        place: Place::Region(RegionOffset(u64::from(process.rank))),
    })
}

/// Evidence that travels in a message: the ranks that are folded, in order.
fn inlined(ranks: &[Rank]) -> Data {
    Data::Inline(ranks.iter().flat_map(|rank| rank.0.to_le_bytes()).collect())
}

fn ranks_in(bytes: &[u8]) -> Vec<Rank> {
    bytes.as_chunks().0.iter().map(|rank| Rank(u32::from_le_bytes(*rank))).collect()
}
