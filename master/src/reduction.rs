//! The state of one reduction and its exactly-once bookkeeping.
//!
//! # Invariant I1
//! For each segment the paths of queued partials, of planned and running tasks and of the finished result are
//! disjoint, and their union is what has arrived. [`Reduction::check`] verifies it; in between, every union of
//! paths is one that refuses overlap.

use std::{collections::BTreeMap, time::Duration};

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionSpec, SegmentId, SegmentIndex, TaskId, Timestamp,
    message::{ByteRange, Contribution, Data, PartialReady, Piece},
    report::{Phases, Report, TaskRecord},
};
use smallvec::SmallVec;

use crate::{
    policy::Policy,
    queue::{Queue, Ready},
};

/// A task that its executor works on.
#[derive(Clone, Debug)]
pub struct Running {
    /// Which task.
    pub task: TaskId,
    /// Who works on it.
    pub executor: ProcessId,
    /// What the executor held before.
    pub own: Path,
    /// What it reads, and from whom.
    pub sources: Vec<(ProcessId, Path)>,
    /// What its result will hold.
    pub path: Path,
    /// What it counts as in the executor's lane.
    pub bytes: u64,
}

/// A task that is done.
#[derive(Clone, Debug)]
struct Done {
    index: SegmentIndex,
    running: Running,
    at: Timestamp,
    work: Duration,
}

/// One segment's state.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Partials without a partner.
    pub queue: Queue,
    /// The root's own partial, kept back until the rest of the group is one partial.
    pub held_root: Option<Ready>,
    /// Paths that wait in lanes as plans.
    pub planned: SmallVec<[Path; 2]>,
    /// Tasks that are being worked on.
    pub running: SmallVec<[Running; 2]>,
    /// The finished segment.
    pub result: Option<Ready>,
    /// Partials of processes that could not be reached and have not been declared failed.
    pub suspended: SmallVec<[Ready; 1]>,
    /// The latest partial of each rank that has executed a task, whether it was read since or not. It stays as it is
    /// until that rank executes another one.
    pub held: BTreeMap<Rank, Ready>,
}

/// One reduction, from its first contribution to the release of its last window.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// What it was called.
    pub name: String,
    /// What all agreed on; in the words of `first`.
    pub spec: ReductionSpec,
    /// Who came first.
    pub first: Rank,
    /// Whose originals are here.
    pub arrived: Path,
    /// Its segments.
    pub segments: Vec<Segment>,
    /// Segments without a result.
    pub unfinished: usize,
    /// Ranks that still copy the result out of other ranks' windows.
    pub collecting: Option<Path>,
    /// Whether all processes of the group can read each other's memory.
    pub share_memory: bool,
    /// Whether all bodies came inlined so far.
    pub inline: bool,
    /// Bytes of inlined bodies that wait for the rest of the group.
    pub held_bytes: u64,
    /// Everyone's original; it stays readable until the reduction ends, at its owner or here if it came inlined.
    pub(crate) originals: BTreeMap<Rank, Ready>,
    /// Ranks that died after they had contributed.
    pub(crate) survived: Path,
    pub(crate) folds_redone: u64,
    pub(crate) attempts: u32,
    segment_bytes: u64,
    body_bytes: u64,
    started: Timestamp,
    last_arrival: Timestamp,
    arrivals: Vec<(Rank, Timestamp)>,
    tasks_per_worker: BTreeMap<Rank, u64>,
    bytes_moved: u64,
    working: Duration,
    fetching: Duration,
    /// Every task; told only if a rank asked for it.
    history: Vec<Done>,
    tell_trace: bool,
}

impl Reduction {
    /// A reduction that `caller` is the first to contribute to.
    pub fn new(
        now: Timestamp,
        caller: Rank,
        contribution: &Contribution,
        policy: &Policy,
        share_memory: bool,
    ) -> Self {
        let spec = contribution.spec.clone();
        let segment_bytes = policy.segment_len(&spec.kind);
        let body_bytes = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let count = body_bytes.checked_div(segment_bytes).map_or(1, |_| body_bytes.div_ceil(segment_bytes));
        let segment = Segment {
            queue: Queue::new(spec.commutative),
            held_root: None,
            planned: SmallVec::new(),
            running: SmallVec::new(),
            result: None,
            suspended: SmallVec::new(),
            held: BTreeMap::new(),
        };
        Self {
            name: contribution.name.clone(),
            first: caller,
            arrived: Path::empty(),
            segments: vec![segment; count as usize],
            unfinished: count as usize,
            collecting: None,
            share_memory,
            inline: true,
            held_bytes: 0,
            originals: BTreeMap::new(),
            survived: Path::empty(),
            folds_redone: 0,
            attempts: 0,
            segment_bytes,
            body_bytes,
            started: now,
            last_arrival: now,
            arrivals: Vec::new(),
            tasks_per_worker: BTreeMap::new(),
            bytes_moved: 0,
            working: Duration::ZERO,
            fetching: Duration::ZERO,
            history: Vec::new(),
            tell_trace: false,
            spec,
        }
    }

    /// When its deadline passes.
    pub fn due(&self) -> Option<Timestamp> {
        self.spec.deadline.map(|deadline| self.started + deadline)
    }

    /// Where segment `index` lies in the body.
    pub fn range(&self, index: SegmentIndex) -> ByteRange {
        let start = u64::from(index.0) * self.segment_bytes;
        ByteRange { start, len: self.segment_bytes.min(self.body_bytes - start) }
    }

    /// Whether the root's own partial waits for the rest of the group: long bodies between hosts. The root's link
    /// then carries each finished segment once instead of taking part in every level of the tree.
    pub fn holds_root(&self) -> bool {
        self.segments.len() > 1 && !self.share_memory && self.spec.commutative
    }

    /// Whether partials wait for more: what travels inlined is folded in one go when all are here, or in a few goes
    /// if that would be too much to keep.
    fn holds_inline(&self, policy: &Policy) -> bool {
        self.inline && self.arrived != self.spec.group && self.held_bytes < policy.hold_bytes
    }

    /// Takes partials of a segment that are to meet now, in the order of their operands.
    pub fn take_partners(&mut self, index: SegmentIndex, policy: &Policy) -> Option<Vec<Ready>> {
        if self.holds_inline(policy) {
            return None;
        }
        let group = &self.spec.group;
        let segment = &mut self.segments[index.0 as usize];
        // With shared memory one plan at a time: what comes until it is granted joins it.
        if self.share_memory && !segment.planned.is_empty() {
            return None;
        }
        if segment.held_root.is_some() && segment.queue.len() == 1 {
            let waiting: usize = segment.queue.iter().map(|ready| ready.path.len()).sum();
            if waiting + 1 == group.len() {
                let root = segment.held_root.take().expect("just seen");
                segment.queue.push(root, group);
            }
        }
        let partials = segment.queue.take(if self.inline { usize::MAX } else { 2 })?;
        segment.planned.push(union(&partials));
        if self.inline {
            self.held_bytes = 0;
        }
        Some(partials)
    }

    /// Adds to the partials of a plan what has come since it was made.
    pub fn top_up(&mut self, index: SegmentIndex, partials: &mut Vec<Ready>, policy: &Policy) {
        if self.share_memory {
            let segment = &mut self.segments[index.0 as usize];
            let before = union(partials);
            segment.queue.top_up(partials, policy.fan_in_max, &self.spec.group);
            let planned = segment.planned.iter_mut().find(|path| **path == before);
            *planned.expect("a plan is listed until it starts") = union(partials);
        }
    }

    /// Makes a running task of a plan: `own` is the executor's partial, `sources` are the others.
    pub fn start(&mut self, index: SegmentIndex, task: TaskId, own: &Ready, sources: &[Ready], bytes: u64) {
        let path = own.path.union(&union(sources)).expect("I1: partials of one segment are disjoint");
        let segment = &mut self.segments[index.0 as usize];
        let planned = segment.planned.iter().position(|planned| *planned == path);
        segment.planned.remove(planned.expect("a plan is listed until it starts"));
        segment.running.push(Running {
            task,
            executor: own.process,
            own: own.path.clone(),
            sources: sources.iter().map(|ready| (ready.process, ready.path.clone())).collect(),
            path,
            bytes,
        });
    }

    /// Takes in `process`'s original for all segments.
    ///
    /// # Panics
    /// If that rank has arrived before; the caller has refused it.
    pub fn arrive(&mut self, now: Timestamp, process: ProcessId, data: Data, trace: bool) {
        let path = Path::single(process.rank);
        self.arrived = self.arrived.union(&path).expect("I1: a rank arrives once");
        self.last_arrival = now;
        self.arrivals.push((process.rank, now));
        self.inline &= !matches!(data, Data::Window(_));
        if let Data::Inline(bytes) = &data {
            self.held_bytes += bytes.len() as u64;
        }
        self.tell_trace |= trace;
        let ready = Ready { process, path, data };
        self.originals.insert(process.rank, ready.clone());
        let hold = self.holds_root() && self.spec.delivery.root() == Some(process.rank);
        for segment in &mut self.segments {
            if ready.path == self.spec.group {
                segment.result = Some(ready.clone());
                self.unfinished -= 1;
            } else if hold {
                segment.held_root = Some(ready.clone());
            } else {
                segment.queue.push(ready.clone(), &self.spec.group);
            }
        }
    }

    /// Bytes that a task over `partials` counts as in a lane: what its executor has to touch.
    pub fn task_bytes(&self, index: SegmentIndex, partials: &[Ready]) -> u64 {
        match self.spec.kind.array_bytes() {
            Some(_) => self.range(index).len * partials.len() as u64,
            None => partials.iter().map(|ready| ready.data.len()).sum(),
        }
    }

    /// Takes a task out of `running`, if `executor` works on it.
    pub fn take_running(
        &mut self,
        index: SegmentIndex,
        task: TaskId,
        executor: ProcessId,
    ) -> Option<Running> {
        let segment = self.segments.get_mut(index.0 as usize)?;
        let position = segment.running.iter().position(|r| r.task == task && r.executor == executor)?;
        Some(segment.running.remove(position))
    }

    /// Takes a finished task out of `running` and puts its partial where it belongs.
    ///
    /// Returns what the task counted as in its executor's lane, or `None` if no such task runs there: the message is
    /// stale.
    pub fn complete(&mut self, now: Timestamp, sender: ProcessId, done: PartialReady) -> Option<u64> {
        let PartialReady { task, segment: SegmentId { index, .. }, path, data, counters } = done;
        let group = &self.spec.group;
        let segment = self.segments.get_mut(index.0 as usize)?;
        let position = segment.running.iter().position(|r| r.task == task && r.executor == sender)?;
        if segment.running[position].path != path {
            return None;
        }
        let running = segment.running.remove(position);
        let ready = Ready { process: sender, path, data };
        segment.held.insert(sender.rank, ready.clone());
        if ready.path == *group {
            segment.result = Some(ready);
            self.unfinished -= 1;
        } else {
            segment.queue.push(ready, group);
        }
        *self.tasks_per_worker.entry(sender.rank).or_default() += 1;
        self.bytes_moved += counters.fetched_bytes;
        self.working += Duration::from_nanos(counters.task_ns);
        self.fetching += Duration::from_nanos(counters.fetch_ns);
        let bytes = running.bytes;
        self.history.push(Done { index, running, at: now, work: Duration::from_nanos(counters.task_ns) });
        Some(bytes)
    }

    /// What is told about the reduction once it is over.
    pub fn report(&self, now: Timestamp) -> Report {
        Report {
            contributors: self.arrived.clone(),
            tasks_per_worker: self.tasks_per_worker.iter().map(|(&rank, &tasks)| (rank, tasks)).collect(),
            survived: self.survived.clone(),
            folds_redone: self.folds_redone,
            bytes_moved: self.bytes_moved,
            phases: Phases {
                arriving: self.last_arrival.since(self.started),
                folding: now.since(self.last_arrival),
                working: self.working,
                fetching: self.fetching,
            },
            arrivals: match self.tell_trace {
                true => self.arrivals.iter().map(|(rank, at)| (*rank, at.since(self.started))).collect(),
                false => Vec::new(),
            },
            trace: match self.tell_trace {
                true => self.history.iter().map(|done| self.record(done)).collect(),
                false => Vec::new(),
            },
        }
    }

    fn record(&self, done: &Done) -> TaskRecord {
        let end = done.at.since(self.started);
        TaskRecord {
            executor: done.running.executor.rank,
            segment: done.index,
            range: self.range(done.index),
            own: done.running.own.clone(),
            sources: done
                .running
                .sources
                .iter()
                .map(|(process, path)| (process.rank, path.clone()))
                .collect(),
            start: end.saturating_sub(done.work),
            end,
        }
    }

    /// Where the finished segments lie; neighbouring ones in one window are one piece.
    pub fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (index, segment) in (0..).map(SegmentIndex).zip(&self.segments) {
            let Some(result) = &segment.result else { continue };
            let range = self.range(index);
            match pieces.last_mut() {
                Some(last) if last.process == result.process && last.data == result.data => {
                    last.range.len += range.len;
                }
                _ => pieces.push(Piece { range, process: result.process, data: result.data.clone() }),
            }
        }
        pieces
    }

    /// Verifies I1.
    ///
    /// # Panics
    /// If a contribution is missing or counted twice.
    pub fn check(&self) {
        for (index, segment) in self.segments.iter().enumerate() {
            let parts = segment
                .queue
                .iter()
                .chain(&segment.held_root)
                .chain(&segment.result)
                .chain(&segment.suspended)
                .map(|ready| &ready.path)
                .chain(&segment.planned)
                .chain(segment.running.iter().map(|running| &running.path));
            let whole = parts.fold(Path::empty(), |all, path| {
                all.union(path).unwrap_or_else(|overlap| panic!("I1: segment {index}: {overlap}"))
            });
            assert_eq!(whole, self.arrived, "I1: segment {index} lost or invented a contribution");
        }
    }
}

pub(crate) fn union(partials: &[Ready]) -> Path {
    partials.iter().fold(Path::empty(), |all, ready| {
        all.union(&ready.path).expect("I1: partials of one segment are disjoint")
    })
}
