//! What a worker's work and its messages take in a modelled cluster.
//!
//! The steps are those of the real worker: a task asks all its sources at once, each peer sends from its
//! window, and the bytes are folded when all are there. Copies are read one request after the other, of
//! results some parts ahead. A copy counts when it is in memory or on disk, as the order says.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::{Range, Sub},
};

use everfold_protocol::{
    ProcessId, Rank, Timestamp,
    message::{ByteRange, Data, KeepAs, Source, Writing},
};

use crate::{
    events::{Happening, Tick},
    model::{Cluster, Link, Network, Nodes, Pumped, Resource, after},
    settings::Settings,
    work::{Spent, Work},
};

/// Bytes of the parts in which results are collected.
const PART_BYTES: u64 = 1 << 20;
/// So many of them, at most, are asked for ahead.
const PARTS_AHEAD: usize = 16;

/// The rank on whose node the master is.
const BESIDE_MASTER: Rank = Rank(0);

/// What the master was told and has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Messages received.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
    /// Bytes of the messages received, with their frames.
    pub received_bytes: u64,
    /// Bytes of the messages sent, with their frames.
    pub sent_bytes: u64,
}

impl Sub for Load {
    type Output = Self;

    /// What came after `before`.
    fn sub(self, before: Self) -> Self {
        Self {
            received: self.received - before.received,
            sent: self.sent - before.sent,
            received_bytes: self.received_bytes - before.received_bytes,
            sent_bytes: self.sent_bytes - before.sent_bytes,
        }
    }
}

/// The two directions between a process and the master.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    to_master: Direction,
    to_worker: Direction,
}

/// The last frame on its way.
#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    /// When the master's process turns to it.
    begins: Timestamp,
    arrives: Timestamp,
}

/// Work under way.
#[derive(Debug)]
struct Job {
    process: ProcessId,
    work: Work,
    started: Timestamp,
    /// What is to be asked for when the request under way is answered.
    later: VecDeque<(u32, u64)>,
    /// Requests under way.
    open: u32,
    /// Whose answer came last, and when, and when the one before it did.
    last: Option<u32>,
    last_at: Timestamp,
    others_at: Timestamp,
}

/// A modelled cluster.
#[derive(Debug)]
pub(crate) struct Modelled {
    link: Link,
    network: Network<(u32, u32)>,
    nodes: Nodes,
    jobs: Vec<Option<Job>>,
    free: Vec<u32>,
    /// What receiving or sending a frame costs the master's process, in nanoseconds.
    frame_ns: f64,
    /// What handling a message costs it.
    message_ns: f64,
    /// Of the master and of its deputies, by rank.
    desks: BTreeMap<Rank, Desk>,
    pub load: Load,
}

/// Where messages come in and go out, one after the other.
#[derive(Debug, Default)]
struct Desk {
    /// Until when it is busy with receiving, with handling and with sending.
    receiving_until: Timestamp,
    handling_until: Timestamp,
    sending_until: Timestamp,
    connections: BTreeMap<Rank, Connection>,
}

impl Modelled {
    pub fn new(settings: &Settings, cluster: &Cluster) -> Self {
        let ranks = settings.ranks;
        Self {
            link: cluster.link,
            network: Network::new(cluster, ranks),
            nodes: Nodes::new(cluster, ranks, settings.seed),
            jobs: Vec::new(),
            free: Vec::new(),
            frame_ns: cluster.master_frame_ns,
            message_ns: cluster.master_ns,
            desks: BTreeMap::new(),
            load: Load::default(),
        }
    }

    /// When a message of `process` is in the master's hands, and understood.
    pub fn tell_master(&mut self, now: Timestamp, process: ProcessId, bytes: u64) -> Timestamp {
        self.load.received += 1;
        self.load.received_bytes += bytes;
        self.tell(now, BESIDE_MASTER, process, bytes)
    }

    /// When a message of `process` is in the hands of the master or deputy at `desk`, and understood.
    pub fn tell(&mut self, now: Timestamp, desk: Rank, process: ProcessId, bytes: u64) -> Timestamp {
        let node = process.rank.0;
        let there = if process.rank == desk {
            now
        } else {
            let out = self.nodes.stretch(now, node, Resource::Processor, now, self.link.overhead_ns);
            self.network.control(out, node, desk.0, bytes)
        };
        let desk = self.desks.entry(desk).or_default();
        let last = &mut desk.connections.entry(process.rank).or_default().to_master;
        if there > last.begins {
            last.begins = desk.receiving_until.max(there);
            desk.receiving_until = after(last.begins, self.frame_ns);
            last.arrives = desk.receiving_until;
        }
        desk.handling_until = after(desk.handling_until.max(last.arrives), self.message_ns);
        desk.handling_until
    }

    /// When a message of the master is in `process`'s hands.
    pub fn tell_worker(&mut self, now: Timestamp, process: ProcessId, bytes: u64) -> Timestamp {
        self.load.sent += 1;
        self.load.sent_bytes += bytes;
        self.is_told(now, BESIDE_MASTER, process, bytes)
    }

    /// When a message of the master or deputy at `desk` is in `process`'s hands.
    pub fn is_told(&mut self, now: Timestamp, desk: Rank, process: ProcessId, bytes: u64) -> Timestamp {
        let node = process.rank.0;
        let from = desk.0;
        let desk = self.desks.entry(desk).or_default();
        let last = &mut desk.connections.entry(process.rank).or_default().to_worker;
        if last.arrives == Timestamp::ZERO || now > last.begins {
            last.begins = desk.sending_until.max(now);
            desk.sending_until = after(last.begins, self.frame_ns);
            let at = if node == from {
                desk.sending_until
            } else {
                let there = self.network.control(desk.sending_until, from, node, bytes);
                self.nodes.stretch(now, node, Resource::Processor, there, self.link.overhead_ns)
            };
            // Connections keep their order.
            last.arrives = last.arrives.max(at);
        }
        last.arrives
    }

    /// Lets `process` begin with `work`.
    pub fn begin(
        &mut self,
        now: Timestamp,
        process: ProcessId,
        work: Work,
        schedule: &mut impl FnMut(Timestamp, Happening),
    ) {
        let mut fetches = fetches(process, &work);
        let at_once = match work {
            Work::Execute(_) => fetches.len(),
            Work::Collect(..) => PARTS_AHEAD.min(fetches.len()),
            Work::Prefetch(..) | Work::Keep(_) => 1.min(fetches.len()),
        };
        let id = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() as u32 - 1
        });
        let asked: Vec<_> = fetches.drain(..at_once).collect();
        let open = asked.len() as u32;
        let job = Job {
            process,
            work,
            started: now,
            later: fetches,
            open,
            last: None,
            last_at: now,
            others_at: now,
        };
        self.jobs[id as usize] = Some(job);
        for (from, bytes) in asked {
            self.ask(now, id, (from, bytes), schedule);
        }
        if open == 0 {
            self.fetched(now, id, schedule);
        }
    }

    /// Takes in that something happens inside the cluster.
    pub fn happen(&mut self, now: Timestamp, tick: Tick, schedule: &mut impl FnMut(Timestamp, Happening)) {
        match tick {
            Tick::Request { job, from, bytes } => {
                let to = self.job(job).process.rank.0;
                if let Some(due) = self.network.send(now, from, to, bytes, (job, from)) {
                    schedule(due, Happening::Tick(Tick::Pump(from)));
                }
            }
            Tick::Pump(node) => {
                let Pumped { next, arrives } = self.network.pump(now, node, &mut self.nodes);
                if let Some(due) = next {
                    schedule(due, Happening::Tick(Tick::Pump(node)));
                }
                if let Some((at, (job, from))) = arrives {
                    schedule(at, Happening::Tick(Tick::Arrived { job, from }));
                }
            }
            Tick::Arrived { job: id, from } => {
                let job = self.job(id);
                job.last = Some(from);
                job.others_at = std::mem::replace(&mut job.last_at, now);
                match job.later.pop_front() {
                    Some(next) => self.ask(now, id, next, schedule),
                    None => {
                        job.open -= 1;
                        if job.open == 0 {
                            self.fetched(now, id, schedule);
                        }
                    }
                }
            }
        }
    }

    fn job(&mut self, id: u32) -> &mut Job {
        self.jobs[id as usize].as_mut().expect("what is asked for belongs to work under way")
    }

    fn ask(
        &mut self,
        now: Timestamp,
        job: u32,
        (from, bytes): (u32, u64),
        schedule: &mut impl FnMut(Timestamp, Happening),
    ) {
        let to = self.job(job).process.rank.0;
        let at = after(now, self.network.alpha_ns(to, from));
        schedule(at, Happening::Tick(Tick::Request { job, from, bytes }));
    }

    /// Goes on with work that has all its data.
    fn fetched(&mut self, now: Timestamp, id: u32, schedule: &mut impl FnMut(Timestamp, Happening)) {
        let job = self.jobs[id as usize].take().expect("it is under way");
        self.free.push(id);
        let node = job.process.rank.0;
        let done = match &job.work {
            Work::Execute(task) => {
                let bytes = task.sources.iter().map(|source| operand_bytes(source, task.range)).sum();
                self.nodes.fold(now, node, bytes)
            }
            Work::Prefetch(..) | Work::Collect(..) => now,
            Work::Keep(keep) => {
                let bytes =
                    segments(&keep.source.data, keep.how, &keep.segments).map(|range| range.len).sum();
                match keep.how.writing {
                    Writing::Never => now,
                    Writing::Behind => {
                        self.nodes.write(now, node, bytes);
                        now
                    }
                    Writing::Through => self.nodes.write(now, node, bytes),
                }
            }
        };
        let [all, fetching, others] = [done, now, job.others_at].map(|at| at.since(job.started));
        let last = job.last.map(Rank);
        let spent = Spent { all, fetching, last, others, ..Spent::default() };
        schedule(done, Happening::Done(job.process, Box::new((job.work, spent))));
    }
}

/// What has to be read from where, in order.
fn fetches(process: ProcessId, work: &Work) -> VecDeque<(u32, u64)> {
    let remote = |owner: ProcessId, data: &Data| owner != process && matches!(data, Data::Window(_));
    match work {
        Work::Execute(task) => task
            .sources
            .iter()
            .filter(|source| remote(source.process, &source.data))
            .map(|source| (source.process.rank.0, operand_bytes(source, task.range)))
            .collect(),
        Work::Collect(_, pieces, _) => pieces
            .iter()
            .filter(|piece| remote(piece.process, &piece.data))
            .flat_map(|piece| {
                let bytes = piece.data.len().min(piece.range.len.max(1));
                let parts = (0..bytes).step_by(PART_BYTES as usize);
                parts.map(move |start| (piece.process.rank.0, PART_BYTES.min(bytes - start)))
            })
            .collect(),
        Work::Prefetch(_, _, part) => VecDeque::from([(part.process.rank.0, part.range.len)]),
        Work::Keep(keep) => segments(&keep.source.data, keep.how, &keep.segments)
            .map(|range| (keep.source.process.rank.0, range.len))
            .collect(),
    }
}

/// Bytes of `source` that a task over `range` folds.
fn operand_bytes(source: &Source, range: ByteRange) -> u64 {
    if range.len == 0 { source.data.len() } else { range.len }
}

/// Where segments lie in an original.
fn segments(data: &Data, how: KeepAs, indices: &Range<u32>) -> impl Iterator<Item = ByteRange> {
    let bytes = data.len();
    indices.clone().map(move |index| {
        let start = u64::from(index) * how.segment_bytes;
        let len = if how.segment_bytes == 0 { bytes } else { how.segment_bytes.min(bytes - start) };
        ByteRange { start, len }
    })
}
