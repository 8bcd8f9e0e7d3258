//! What a message costs the master's machine, however many ranks and open reductions there are.
//!
//! The master is alone here: in place of workers something answers that does nothing. So many more ranks and
//! reductions fit into a run than into a [`World`](crate::World), and only the master is timed. Ranks call in
//! random order over time, and what they answer comes in between.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    rc::Rc,
    time::Duration,
};

use everfold_master::{Action, Event, Master, Policy};
use everfold_protocol::{
    Epoch, Generation, JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec, RegionOffset, Timestamp,
    WindowId,
    message::{
        Contribution, Data, Finished, Header, Keep, Kept, PartialReady, Peer, Place, Prefetch, Prefetched,
        Task, TaskCounters, ToMaster, ToWorker, WindowRef,
    },
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection},
};
use rand::{
    Rng, SeedableRng,
    seq::{IndexedRandom, SliceRandom},
};
use rand_chacha::ChaCha8Rng;

const JOB: JobId = JobId(1);
/// Ranks of a small reduction.
const SMALL: usize = 16;
/// Ranks on each host.
const PER_HOST: u32 = 4;
/// Time between two calls, in nanoseconds.
const CALL_NS: u64 = 20_000;
/// How long an answer takes, in nanoseconds.
const ANSWER_NS: std::ops::Range<u64> = 20_000..200_000;
/// How long nothing happens but timers before a part is over: longer than any timer that a message of it has
/// set.
const QUIET: Duration = Duration::from_millis(600);

/// What the master has to do.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Ranks of the job.
    pub ranks: u32,
    /// Small reductions that are open all the time; each waits for one late rank.
    pub open: u32,
    /// Ranks that have died before.
    pub dead: u32,
    /// How contributions are protected.
    pub protection: Protection,
    /// Length of a body in bytes.
    pub bytes: u64,
    /// How the master schedules.
    pub policy: Policy,
    /// Decides who calls when.
    pub seed: u64,
    /// Time after which a part is broken off.
    pub part_max: Duration,
    /// Reads a clock, in nanoseconds.
    pub stopwatch: fn() -> u64,
}

/// What the messages of one part of a run cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// What the master was told and has said, but for pings.
    pub messages: u64,
    /// What that took, with timers, but without pings.
    pub time: Duration,
    /// The longest time in which it heard nobody.
    pub longest: Duration,
    /// Whether it took so long that it was broken off.
    pub broken_off: bool,
}

impl Cost {
    /// Mean cost of a message in microseconds.
    pub fn us(&self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.messages.max(1) as f64
    }
}

/// The parts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The small reductions are opened: all of their ranks call but one.
    Opening,
    /// One reduction of all ranks to one of them, from the first call to the end.
    ToOne,
    /// One reduction of all ranks to all of them.
    ToAll,
    /// The late ranks call, and the small reductions end.
    Closing,
}

impl Part {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Opening, Self::ToOne, Self::ToAll, Self::Closing];
}

impl Costs {
    /// Runs all parts; none that comes after one that was broken off.
    pub fn measure(&self) -> Vec<(Part, Cost)> {
        let mut run = Run::new(self);
        let mut costs = Vec::new();
        for part in Part::ALL {
            run.plan(part);
            let cost = run.go();
            costs.push((part, cost));
            if cost.broken_off {
                break;
            }
        }
        costs
    }
}

/// A reduction that ranks are to call.
struct Planned {
    name: String,
    delivery: Delivery,
    group: Path,
}

/// A call that is to come. What it says is made when it comes: what is decoded just then is in the caches.
struct Call {
    at: Timestamp,
    rank: Rank,
    reduction: Rc<Planned>,
}

/// Something that the master is about to hear.
struct Coming {
    at: Timestamp,
    number: u64,
    event: Box<Event>,
}

impl PartialEq for Coming {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Coming {}

impl PartialOrd for Coming {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Coming {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

fn is_pong(event: &Event) -> bool {
    matches!(event, Event::Message { message: ToMaster::Pong { .. }, .. })
}

struct Run<'a> {
    costs: &'a Costs,
    master: Master,
    random: ChaCha8Rng,
    now: Timestamp,
    /// In the order of their times.
    calls: VecDeque<Call>,
    coming: BinaryHeap<Reverse<Coming>>,
    number: u64,
    living: Vec<Rank>,
    /// The groups of the small reductions, the late rank last.
    small: Vec<Vec<Rank>>,
    cost: Cost,
}

impl<'a> Run<'a> {
    fn new(costs: &'a Costs) -> Self {
        let now = Timestamp::ZERO;
        let mut run = Self {
            costs,
            master: Master::new(now, JOB, costs.ranks, costs.policy.clone()),
            random: ChaCha8Rng::seed_from_u64(costs.seed),
            now,
            calls: VecDeque::new(),
            coming: BinaryHeap::new(),
            number: 0,
            living: (0..costs.ranks - costs.dead).map(Rank).collect(),
            small: Vec::new(),
            cost: Cost::default(),
        };
        for rank in (0..costs.ranks).map(Rank) {
            let peer = Peer {
                process: ProcessId::first(rank),
                host: (rank.0 / PER_HOST).into(),
                pid: 0,
                region: None,
                bell: None,
                board: None,
                address: String::new(),
                domain: None,
                agent: None,
            };
            run.tell(rank, ToMaster::Join { peer, size: costs.ranks });
        }
        for rank in (costs.ranks - costs.dead..costs.ranks).map(Rank) {
            run.come(Event::Disconnected(ProcessId::first(rank)), 0);
        }
        run.go();
        for _ in 0..costs.open {
            run.small.push(run.living.choose_multiple(&mut run.random, SMALL).copied().collect());
        }
        run
    }

    fn come(&mut self, event: Event, after_ns: u64) {
        let at = self.now + Duration::from_nanos(after_ns);
        self.number += 1;
        self.coming.push(Reverse(Coming { at, number: self.number, event: Box::new(event) }));
    }

    fn tell(&mut self, rank: Rank, message: ToMaster) {
        let header = Header { job: JOB, epoch: Epoch(0), sender: ProcessId::first(rank) };
        self.come(Event::Message { header, message }, 0);
    }

    fn answer(&mut self, rank: Rank, message: ToMaster) {
        let after_ns = self.random.random_range(ANSWER_NS);
        let header = Header { job: JOB, epoch: Epoch(0), sender: ProcessId::first(rank) };
        self.come(Event::Message { header, message }, after_ns);
    }

    /// Lets ranks call in random order.
    fn plan(&mut self, part: Part) {
        let mut calls: Vec<(Rank, Rc<Planned>)> = Vec::new();
        let of_small = |number: usize, group: &[Rank]| {
            let path: Path = group.iter().copied().collect();
            let delivery = if number.is_multiple_of(2) { Delivery::All } else { Delivery::Root(group[0]) };
            Rc::new(Planned { name: format!("small {number}"), delivery, group: path })
        };
        match part {
            Part::Opening | Part::Closing => {
                for (number, group) in self.small.iter().enumerate() {
                    let (early, late) = group.split_at(group.len() - 1);
                    let which = if part == Part::Opening { early } else { late };
                    let reduction = of_small(number, group);
                    calls.extend(which.iter().map(|rank| (*rank, reduction.clone())));
                }
            }
            Part::ToOne | Part::ToAll => {
                let group: Path = self.living.iter().copied().collect();
                let delivery = if part == Part::ToAll {
                    Delivery::All
                } else {
                    Delivery::Root(self.living[self.living.len() / 2])
                };
                let reduction = Rc::new(Planned { name: format!("{part:?}"), delivery, group });
                calls.extend(self.living.iter().map(|rank| (*rank, reduction.clone())));
            }
        }
        calls.shuffle(&mut self.random);
        let at = |number: u64| self.now + Duration::from_nanos(number * CALL_NS);
        self.calls =
            (0..).map(at).zip(calls).map(|(at, (rank, reduction))| Call { at, rank, reduction }).collect();
    }

    fn contribution(&self, rank: Rank, planned: &Planned) -> ToMaster {
        let (name, delivery, group) = (planned.name.clone(), planned.delivery.clone(), planned.group.clone());
        let length = self.costs.bytes.div_ceil(4);
        let is_root = delivery.root() == Some(rank);
        let spec = ReductionSpec {
            group,
            delivery,
            kind: BodyKind::Array { element: ElementType::F32, operation: Operation::Sum, length },
            order: Order::Arrival,
            deadline: None,
            protection: self.costs.protection,
            allow_missing: false,
            trace: false,
        };
        let data =
            if is_root && self.costs.protection == Protection::None { Data::Private } else { self.window() };
        let data = match data {
            _ if self.costs.bytes <= self.costs.policy.limits.inline_bytes_max => {
                Data::Inline(vec![0; self.costs.bytes as usize].into())
            }
            data => data,
        };
        let reduction = ReductionId::new(&name, 0);
        ToMaster::Contribute(Box::new(Contribution { reduction, name, spec, data }))
    }

    fn window(&self) -> Data {
        Data::Window(WindowRef {
            window: WindowId(1),
            generation: Generation(1),
            bytes: self.costs.bytes,
            checksum: None,
            place: Place::Region(RegionOffset(0)),
        })
    }

    /// Lets the master hear everything that comes, until there is nothing to be done for a while.
    fn go(&mut self) -> Cost {
        self.cost = Cost::default();
        let mut quiet_at = self.now;
        let comes = |run: &Self| !run.coming.is_empty() || !run.calls.is_empty();
        while comes(self) || self.master.poll_timeout().is_some_and(|due| due < quiet_at) {
            let event = self.next();
            let is_pong = event.as_ref().is_some_and(is_pong);
            let is_counted = event.is_some() && !is_pong;
            if is_counted {
                quiet_at = self.now + QUIET;
            }
            let started = (self.costs.stopwatch)();
            match event {
                Some(event) => self.master.handle_event(self.now, event),
                None => self.master.handle_timeout(self.now),
            }
            let actions: Vec<Action> = std::iter::from_fn(|| self.master.poll_action()).collect();
            let taken = Duration::from_nanos((self.costs.stopwatch)().saturating_sub(started));
            let is_ping =
                |action: &Action| matches!(action, Action::Send { message: ToWorker::Ping { .. }, .. });
            self.cost.messages += u64::from(is_counted);
            if !is_pong && !actions.iter().any(is_ping) {
                self.cost.time += taken;
            }
            self.cost.longest = self.cost.longest.max(taken);
            for action in actions {
                if let Action::Send { to, message } = action {
                    self.hear(to, message);
                }
            }
            if self.cost.time > self.costs.part_max {
                return Cost { broken_off: true, ..self.cost };
            }
        }
        self.cost
    }

    /// What comes next; nothing if that is a timeout.
    fn next(&mut self) -> Option<Event> {
        let called = self.calls.front().map(|call| call.at);
        let answered = self.coming.peek().map(|Reverse(coming)| coming.at);
        let is_before = |one: Option<Timestamp>, at| one.is_some_and(|one| one <= at);
        if let Some(due) =
            self.master.poll_timeout().filter(|due| !is_before(called, *due) && !is_before(answered, *due))
        {
            self.now = self.now.max(due);
            return None;
        }
        if called.is_some_and(|call| answered.is_none_or(|answer| call <= answer)) {
            let Call { at, rank, reduction } = self.calls.pop_front()?;
            self.now = at;
            let header = Header { job: JOB, epoch: Epoch(0), sender: ProcessId::first(rank) };
            return Some(Event::Message { header, message: self.contribution(rank, &reduction) });
        }
        let Reverse(Coming { at, event, .. }) = self.coming.pop()?;
        self.now = at;
        Some(*event)
    }

    /// Answers in place of a worker.
    fn hear(&mut self, to: ProcessId, message: ToWorker) {
        self.cost.messages += u64::from(!matches!(message, ToWorker::Ping { .. }));
        match message {
            ToWorker::Task(task) => {
                let done = self.done(&task);
                self.answer(to.rank, ToMaster::PartialReady(done));
            }
            ToWorker::Keep(Keep { reduction, source, segments, .. }) => {
                let (owner, result) = (source.process, Ok(self.window()));
                self.answer(to.rank, ToMaster::Kept(Kept { reduction, owner, segments, result }));
            }
            ToWorker::Finished(finished) => {
                let Finished { reduction, result, lend, .. } = *finished;
                if result.iter().any(|piece| matches!(piece.data, Data::Window(_))) {
                    let body = lend.then(|| self.window());
                    self.answer(to.rank, ToMaster::Collected { reduction, body });
                }
            }
            ToWorker::Prefetch(Prefetch { reduction, parts, .. }) => {
                for part in parts {
                    let (start, body) = (part.range.start, Some(self.window()));
                    self.answer(to.rank, ToMaster::Prefetched(Prefetched { reduction, start, body }));
                }
            }
            ToWorker::Ping { number } => self.answer(to.rank, ToMaster::Pong { number }),
            _ => {}
        }
    }

    /// What comes of a task.
    fn done(&self, task: &Task) -> PartialReady {
        let union = |path: Path, other: &Path| path.union(other).unwrap_or_default();
        let path = task.sources.iter().fold(task.own.clone(), |path, source| union(path, &source.path));
        let ns = task.range.len * task.sources.len() as u64;
        let last = task.sources.last().map(|source| source.process.rank);
        let counters = TaskCounters { task_ns: ns, fetch_ns: ns, fetched_bytes: ns, last, others_ns: ns };
        PartialReady { task: task.task, segment: task.segment, path, data: self.window(), counters }
    }
}
