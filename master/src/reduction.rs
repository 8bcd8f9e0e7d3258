//! The state of one reduction and its exactly-once bookkeeping.
//!
//! # Invariant I1
//! For each segment the paths of queued partials, of running tasks and of the finished result are
//! disjoint, and their union is what has arrived. [`Reduction::check`] verifies it; in between, every union of
//! paths is one that refuses overlap.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionSpec, SegmentId, SegmentIndex, TaskId, Timestamp,
    message::{ByteRange, Contribution, Data, HalfBody, PartialReady, Piece, Source, Task},
    report::{FailureRecord, Phases, Report, TaskRecord},
    spec::{Delivery, Order, Protection},
};
use smallvec::SmallVec;

use crate::{
    copying::Copying,
    lane::Load,
    policy::Policy,
    queue::{Access, Queue, Ready},
    schedule::Turn,
    segment::{Abandoned, Completed, Running, Segment},
};

/// A task that is done.
#[derive(Clone, Debug)]
struct Done {
    index: SegmentIndex,
    running: Running,
    at: Timestamp,
    work: Duration,
}

/// One reduction, from its first contribution to the release of its last window.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// What it was called.
    pub name: String,
    /// What all agreed on; in the words of `first`.
    pub spec: ReductionSpec,
    /// Whose contributions it is made of: the group that all agreed on, less those that are missing.
    pub group: Path,
    /// Whose contributions are missing. The caller has allowed it.
    pub missing: Path,
    /// Who came first.
    pub first: Rank,
    /// Whose originals are here.
    pub arrived: Path,
    /// Its segments.
    pub segments: Vec<Segment>,
    /// Segments without a result.
    pub unfinished: usize,
    /// How many partials one of its tasks folds.
    pub(crate) fan_in: RangeInclusive<usize>,
    /// Ranks that still copy the result out of other ranks' windows.
    pub collecting: Option<Path>,
    /// Of these, those that could not reach all of it and wait to be told more.
    pub(crate) returned: Path,
    /// Ranks that have the result. They fold nothing any more.
    pub(crate) collected: Path,
    /// Dead ranks whose memory did not outlive them, although it could have.
    pub(crate) gone: Path,
    /// How often ranks could not reach all of the result.
    pub(crate) returns: u32,
    /// What the bodies of ranks hold that could not copy the whole result.
    pub(crate) half_bodies: BTreeMap<Rank, (ProcessId, HalfBody)>,
    /// Whether all processes of the group can read each other's memory.
    pub share_memory: bool,
    /// Whether all bodies came inlined so far.
    pub inline: bool,
    /// Bytes of inlined bodies that wait for the rest of the group.
    pub held_bytes: u64,
    /// Everyone's original; it stays readable until the reduction ends, at its owner or here if it came inlined.
    pub(crate) originals: BTreeMap<Rank, Arc<Ready>>,
    /// Ranks that died after they had contributed.
    pub(crate) survived: Path,
    pub(crate) folds_redone: u64,
    pub(crate) tasks_doubled: u64,
    /// Originals that wait for their second copy before they count.
    pub(crate) uncommitted: BTreeMap<Rank, Arc<Ready>>,
    pub(crate) copying: Copying,
    pub(crate) segment_bytes: u64,
    pub(crate) body_bytes: u64,
    pub(crate) started: Timestamp,
    last_arrival: Timestamp,
    /// When the latest original or partial came.
    pub(crate) last_progress: Timestamp,
    arrivals: Vec<(Rank, Timestamp)>,
    tasks_per_worker: BTreeMap<Rank, u64>,
    bytes_moved: u64,
    working: Duration,
    fetching: Duration,
    /// Every task, as long as a rank has asked for it or may still come and ask.
    history: Vec<Done>,
    pub(crate) failures: Vec<(Timestamp, FailureRecord)>,
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
        let segment_bytes = policy.segment_len(&spec.kind, spec.group.len(), share_memory);
        let body_bytes = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let count = body_bytes.checked_div(segment_bytes).map_or(1, |_| body_bytes.div_ceil(segment_bytes));
        let segment = Segment {
            queue: Queue::new(spec.order),
            held_root: None,
            turn: None,
            unbounded: false,
            running: BTreeMap::new(),
            result: None,
            suspended: SmallVec::new(),
            held: BTreeMap::new(),
            abandoned: SmallVec::new(),
            spoilt: SmallVec::new(),
            replicas: BTreeMap::new(),
            attempts: 0,
        };
        Self {
            name: contribution.name.clone(),
            group: spec.group.clone(),
            missing: Path::empty(),
            first: caller,
            arrived: Path::empty(),
            segments: vec![segment; count as usize],
            unfinished: count as usize,
            fan_in: policy.fan_in(spec.group.len(), count as usize, segment_bytes, share_memory),
            collecting: None,
            returned: Path::empty(),
            gone: Path::empty(),
            returns: 0,
            collected: Path::empty(),
            half_bodies: BTreeMap::new(),
            share_memory,
            inline: true,
            held_bytes: 0,
            originals: BTreeMap::new(),
            survived: Path::empty(),
            folds_redone: 0,
            tasks_doubled: 0,
            uncommitted: BTreeMap::new(),
            copying: Copying::default(),
            segment_bytes,
            body_bytes,
            started: now,
            last_arrival: now,
            last_progress: now,
            arrivals: Vec::new(),
            tasks_per_worker: BTreeMap::new(),
            bytes_moved: 0,
            working: Duration::ZERO,
            fetching: Duration::ZERO,
            history: Vec::new(),
            failures: Vec::new(),
            tell_trace: false,
            spec,
        }
    }

    /// Ranks that have called it, whether their contributions count or not.
    pub(crate) fn callers(&self) -> Path {
        self.arrivals.iter().map(|(rank, _)| *rank).collect()
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
        self.segments.len() > 1 && !self.share_memory
    }

    /// Whether partials wait for more: what travels inlined is folded in one go when all are here, or in a few goes
    /// if that would be too much to keep.
    fn holds_inline(&self, policy: &Policy) -> bool {
        self.inline && self.arrived != self.group && self.held_bytes < policy.hold_bytes
    }

    /// Whether a segment waits until there are enough partials for a task.
    fn waits_for_more(&self, index: SegmentIndex) -> bool {
        let segment = &self.segments[index.0 as usize];
        let more_come =
            || !segment.running.is_empty() || !self.uncommitted.is_empty() || self.arrived != self.group;
        segment.queue.len() < *self.fan_in.start() && more_come()
    }

    /// Whether a segment waits as it did before, so that nobody has to be found who could go on with it.
    pub(crate) fn rests(&self, index: SegmentIndex) -> bool {
        self.segments[index.0 as usize].turn.is_none() && self.waits_for_more(index)
    }

    /// Who can go on with a segment as it is now, if partials that may meet wait there.
    pub(crate) fn whose_turn(&mut self, index: SegmentIndex, policy: &Policy) -> Option<Turn> {
        if self.collecting.is_some() || self.holds_inline(policy) || self.waits_for_more(index) {
            return None;
        }
        let most = self.most(index);
        let segment = &mut self.segments[index.0 as usize];
        if !segment.queue.has_partners() {
            let queue = &segment.queue;
            let root = segment.held_root.take_if(|_| queue.contributions() + 1 == self.group.len())?;
            segment.queue.push(root, &self.spec.group, &self.group);
        }
        // Nobody but the root holds the root's contribution.
        let queue = &segment.queue;
        let has_own =
            |root: &Rank| queue.of(*root).any(|ready| ready.path.contains(*root) && queue.meets(ready, most));
        Some(self.spec.delivery.root().filter(has_own).map_or(Turn::Owners, Turn::Root))
    }

    /// Most partials that one task of a segment folds.
    fn most(&self, index: SegmentIndex) -> usize {
        let unbounded = self.inline || self.segments[index.0 as usize].unbounded;
        if unbounded { usize::MAX } else { *self.fan_in.end() }
    }

    /// The partials that wait in a segment and whose owners can fold others into them.
    pub(crate) fn executors<'a>(
        &'a self,
        index: SegmentIndex,
        is_alive: &'a impl Fn(Rank) -> bool,
    ) -> impl Iterator<Item = &'a Arc<Ready>> {
        let meeting = self.segments[index.0 as usize].queue.meeting(self.most(index));
        meeting.filter(move |ready| self.can_execute(index, ready, is_alive))
    }

    /// The partial that waits in a segment and that `rank` can fold others into.
    pub(crate) fn own_of(
        &self,
        index: SegmentIndex,
        rank: Rank,
        is_alive: &impl Fn(Rank) -> bool,
    ) -> Option<&Arc<Ready>> {
        let queue = &self.segments[index.0 as usize].queue;
        let able = queue.of(rank).find(|ready| self.can_execute(index, ready, is_alive))?;
        queue.meets(able, self.most(index)).then_some(able)
    }

    /// Takes partials of a segment that are to meet now, `own` among them, in the order of their operands.
    pub(crate) fn take_partners(
        &mut self,
        index: SegmentIndex,
        own: Option<&Arc<Ready>>,
        access: impl Fn(&Ready) -> Access,
    ) -> Option<Vec<Arc<Ready>>> {
        let most = self.most(index);
        let partials = self.segments[index.0 as usize].queue.take(own, most, access)?;
        if self.inline {
            self.held_bytes = 0;
        }
        Some(partials)
    }

    /// Helps a segment that nobody can go on with, if nobody works on it: first the root's own partial takes part at once;
    /// then tasks of any size are made, as who is left may have no place for a bracket without its own contribution.
    /// Returns whether anything changes.
    pub(crate) fn rouse(&mut self, index: SegmentIndex) -> bool {
        let segment = &mut self.segments[index.0 as usize];
        if !(segment.running.is_empty() && self.arrived == self.group) {
            return false;
        }
        match segment.held_root.take() {
            Some(root) => {
                segment.queue.push(root, &self.spec.group, &self.group);
                true
            }
            None => self.spec.order == Order::Fixed && !std::mem::replace(&mut segment.unbounded, true),
        }
    }

    /// Whether `ready` is what its process holds as its own partial: others can be folded into it.
    pub fn is_own(&self, index: SegmentIndex, ready: &Ready) -> bool {
        let segment = &self.segments[index.0 as usize];
        let rank = ready.process.rank;
        let holds = match segment.held.get(&rank) {
            Some(held) => held.path == ready.path,
            None => ready.path == Path::single(rank),
        };
        holds && !segment.spoilt.contains(&rank)
    }

    /// Whether the process of `ready` can fold others into it now.
    pub fn can_execute(&self, index: SegmentIndex, ready: &Ready, is_alive: &impl Fn(Rank) -> bool) -> bool {
        let rank = ready.process.rank;
        let segment = &self.segments[index.0 as usize];
        is_alive(rank)
            && !self.collected.contains(rank)
            && self.is_own(index, ready)
            && !segment.is_busy(rank)
    }

    /// Whether `rank` can begin afresh: it has called the reduction, and nothing that is still needed lies in its own
    /// partial.
    pub fn can_begin_afresh(&self, index: SegmentIndex, rank: Rank) -> bool {
        let segment = &self.segments[index.0 as usize];
        let takes_part = self.arrived.contains(rank)
            && !self.collected.contains(rank)
            && self.spec.delivery.root() != Some(rank);
        let needed = segment.held.get(&rank).is_some_and(|held| {
            let is_it = |process: ProcessId, path: &Path| process == held.process && *path == held.path;
            let waiting = segment.queue.iter().chain(&segment.suspended).chain(&segment.result);
            let mut sources = segment.running.values().flat_map(|running| &running.sources);
            waiting.into_iter().any(|ready| is_it(ready.process, &ready.path))
                || sources.any(|(process, path)| is_it(*process, path))
        });
        takes_part && !needed && !segment.is_busy(rank)
    }

    /// Makes a running task of partials that have left the queue: `own` is the executor's, `sources` are the others.
    /// Without an own one it begins afresh, over what it held; that stays as it is if nothing comes of the task.
    pub fn start(
        &mut self,
        index: SegmentIndex,
        task: TaskId,
        executor: ProcessId,
        own: Option<&Arc<Ready>>,
        sources: &[Arc<Ready>],
        (load, late): (Load, Timestamp),
    ) {
        let sources_path = union(sources);
        let own_path = own.map_or_else(Path::empty, |own| own.path.clone());
        let path = own_path.union(&sources_path).expect("I1: partials of one segment are disjoint");
        let segment = &mut self.segments[index.0 as usize];
        // From now on a partial that a task which was given up reads may change under it.
        for abandoned in &mut segment.abandoned {
            abandoned.counts &= abandoned.running.path.is_disjoint(&path);
        }
        let sources = sources.iter().map(|ready| (ready.process, ready.path.clone())).collect();
        let running = Running { task, executor, own: own_path, sources, path, load, late };
        let before = segment.running.insert(executor.rank, running);
        assert!(before.is_none(), "who is busy is given no other task of the segment");
    }

    /// What a worker is told of a task.
    pub(crate) fn task(
        &self,
        task: TaskId,
        segment: SegmentId,
        own: Option<&Arc<Ready>>,
        sources: Vec<Arc<Ready>>,
    ) -> Task {
        let source = |ready: Arc<Ready>| {
            let Ready { process, path, data } = Arc::unwrap_or_clone(ready);
            Source { process, path, data }
        };
        Task {
            task,
            segment,
            range: self.range(segment.index),
            own: own.map_or_else(Path::empty, |own| own.path.clone()),
            sources: sources.into_iter().map(source).collect(),
        }
    }

    /// Whether those who are to have the result can do the task in which `partials` meet themselves, and nobody needs to hear
    /// what comes of it: nothing is left to be folded after it, all of it travels inlined, and folding cannot fail.
    pub(crate) fn is_last(&self, index: SegmentIndex, partials: &[Arc<Ready>], policy: &Policy) -> bool {
        let contributions: usize = partials.iter().map(|ready| ready.path.len()).sum();
        let bytes: u64 = partials.iter().map(|ready| ready.data.len()).sum();
        let reaches_all = || match self.spec.delivery {
            Delivery::Root(_) => true,
            Delivery::FirstOf(_) => false,
            // Whoever works on a task that was given up could not begin with another one.
            Delivery::All => {
                bytes <= policy.spread_bytes && self.segments[index.0 as usize].abandoned.is_empty()
            }
        };
        self.inline
            && contributions == self.group.len()
            && self.spec.kind.folds_surely()
            && !self.tell_trace
            && reaches_all()
    }

    /// Counts the last task for all who are to do it: each reads what is not its own.
    pub(crate) fn count_last(&mut self, last: &Task) {
        for rank in self.spec.delivery.root().map_or_else(|| self.callers(), Path::single).iter() {
            *self.tasks_per_worker.entry(rank).or_default() += 1;
            let others = last.sources.iter().filter(|source| source.process.rank != rank);
            self.bytes_moved += others.map(|source| source.data.len()).sum::<u64>();
        }
    }

    /// Takes in `process`'s original.
    ///
    /// # Panics
    /// If that rank has arrived before; the caller has refused it.
    pub fn arrive(&mut self, now: Timestamp, process: ProcessId, data: Data, trace: bool) {
        let path = Path::single(process.rank);
        self.arrived = self.arrived.union(&path).expect("I1: a rank arrives once");
        self.last_arrival = now;
        self.last_progress = now;
        self.arrivals.push((process.rank, now));
        self.pause_copies();
        self.inline &= !matches!(data, Data::Window(_));
        if let Data::Inline(bytes) = &data {
            self.held_bytes += bytes.len() as u64;
        }
        self.tell_trace |= trace;
        if !self.keeps_history() {
            self.history = Vec::new();
        }
        let ready = Arc::new(Ready { process, path, data });
        self.originals.insert(process.rank, ready.clone());
        if self.spec.protection == Protection::CommitFirst && matches!(ready.data, Data::Window(_)) {
            self.uncommitted.insert(process.rank, ready);
        } else {
            self.enter(&ready);
        }
    }

    /// Lets an original take part in all segments.
    pub(crate) fn enter(&mut self, ready: &Arc<Ready>) {
        let hold = self.holds_root() && self.spec.delivery.root() == Some(ready.process.rank);
        for index in (0..self.segments.len() as u32).map(SegmentIndex) {
            if hold && ready.path != self.group {
                self.segments[index.0 as usize].held_root = Some(ready.clone());
            } else {
                self.put(index, ready.clone());
            }
        }
    }

    /// Puts a partial where it belongs: it waits for others, or it is the result.
    pub(crate) fn put(&mut self, index: SegmentIndex, ready: Arc<Ready>) {
        let segment = &mut self.segments[index.0 as usize];
        if ready.path == self.group {
            segment.result = Some(ready);
            self.unfinished -= 1;
        } else {
            segment.queue.push(ready, &self.spec.group, &self.group);
        }
    }

    /// Bytes that a task over `partials` counts as in a lane: what its executor has to touch.
    pub fn task_bytes(&self, index: SegmentIndex, partials: &[Arc<Ready>]) -> u64 {
        match self.spec.kind.array_bytes() {
            Some(_) => self.range(index).len * partials.len() as u64,
            None => partials.iter().map(|ready| ready.data.len()).sum(),
        }
    }

    /// All tasks that may still be under way.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Running> {
        self.segments.iter().flat_map(|segment| {
            let given_up = segment.abandoned.iter().map(|abandoned| &abandoned.running);
            segment.running.values().chain(given_up)
        })
    }

    /// Takes a task out of `running`, if `executor` works on it.
    pub fn take_running(
        &mut self,
        index: SegmentIndex,
        task: TaskId,
        executor: ProcessId,
    ) -> Option<Running> {
        let segment = self.segments.get_mut(index.0 as usize)?;
        let is_it = |running: &&Running| running.task == task && running.executor == executor;
        segment.running.get(&executor.rank).filter(is_it)?;
        segment.running.remove(&executor.rank)
    }

    /// Takes a task out of those that were given up, if `executor` works on it.
    pub fn take_abandoned(
        &mut self,
        index: SegmentIndex,
        task: TaskId,
        executor: ProcessId,
    ) -> Option<Abandoned> {
        let abandoned = &mut self.segments.get_mut(index.0 as usize)?.abandoned;
        let is_it = |a: &Abandoned| a.running.task == task && a.running.executor == executor;
        let position = abandoned.iter().position(is_it)?;
        Some(abandoned.remove(position))
    }

    /// Takes in a finished task and puts its partial where it belongs.
    ///
    /// Returns `None` if no such task runs there: the message is stale.
    pub fn complete(&mut self, now: Timestamp, sender: ProcessId, done: PartialReady) -> Option<Completed> {
        let PartialReady { task, segment: SegmentId { index, .. }, path, data, counters } = done;
        let running = match self.take_running(index, task, sender) {
            Some(running) => running,
            None => {
                let Abandoned { running, counts } = self.take_abandoned(index, task, sender)?;
                if !(counts && self.withdraw(index, &path)) {
                    // What it read may have changed under it.
                    self.segments[index.0 as usize].spoil(sender.rank);
                    return Some(Completed { load: running.load, counts: false });
                }
                running
            }
        };
        debug_assert_eq!(running.path, path, "a worker does what its task says");
        let ready = Arc::new(Ready { process: sender, path, data });
        self.segments[index.0 as usize].hold(ready.clone());
        self.put(index, ready);
        self.last_progress = now;
        *self.tasks_per_worker.entry(sender.rank).or_default() += 1;
        self.bytes_moved += counters.fetched_bytes;
        self.working += Duration::from_nanos(counters.task_ns);
        self.fetching += Duration::from_nanos(counters.fetch_ns);
        let load = running.load.clone();
        if self.keeps_history() {
            let work = Duration::from_nanos(counters.task_ns);
            self.history.push(Done { index, running, at: now, work });
        }
        Some(Completed { load, counts: true })
    }

    fn keeps_history(&self) -> bool {
        self.tell_trace || self.arrived != self.group
    }

    /// Takes the partials out of the queue that together hold `path`, if nobody has begun to use them.
    fn withdraw(&mut self, index: SegmentIndex, path: &Path) -> bool {
        let segment = &mut self.segments[index.0 as usize];
        let within = |ready: &Ready| ready.path.is_subset(path);
        let waiting: usize = segment.queue.iter().filter(|r| within(r)).map(|ready| ready.path.len()).sum();
        if waiting == path.len() {
            while segment.queue.remove(within).is_some() {}
        }
        waiting == path.len()
    }

    /// What is told about the reduction once it is over.
    pub fn report(&self, now: Timestamp) -> Report {
        Report {
            contributors: self.group.clone(),
            tasks_per_worker: self.tasks_per_worker.iter().map(|(&rank, &tasks)| (rank, tasks)).collect(),
            survived: self.survived.clone(),
            folds_redone: self.folds_redone,
            folds: (self.group.len() as u64).saturating_sub(1) * self.segments.len() as u64,
            missing: self.missing.clone(),
            protected: self.protected(),
            tasks_doubled: self.tasks_doubled,
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
            failures: match self.tell_trace {
                true => {
                    let told = |(at, failure): &(Timestamp, FailureRecord)| FailureRecord {
                        at: at.since(self.started),
                        ..failure.clone()
                    };
                    self.failures.iter().map(told).collect()
                }
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

    /// The contributions that count in one of a segment's live partials.
    pub(crate) fn live(&self, index: SegmentIndex) -> Path {
        let segment = &self.segments[index.0 as usize];
        let parts = segment
            .queue
            .iter()
            .chain(&segment.held_root)
            .chain(&segment.result)
            .chain(&segment.suspended)
            .map(|ready| &ready.path)
            .chain(segment.running.values().map(|running| &running.path));
        parts.fold(Path::empty(), |all, path| {
            all.union(path).unwrap_or_else(|overlap| panic!("I1: segment {index}: {overlap}"))
        })
    }

    /// The contributions that have to count in every segment: those that came and may take part.
    pub(crate) fn committed(&self) -> Path {
        self.arrived.difference(&self.uncommitted.keys().copied().collect())
    }

    /// Verifies I1.
    ///
    /// # Panics
    /// If a contribution is missing or counted twice.
    pub fn check(&self) {
        let committed = self.committed();
        for index in (0..self.segments.len() as u32).map(SegmentIndex) {
            assert_eq!(self.live(index), committed, "I1: segment {index} lost or invented a contribution");
        }
    }
}

pub(crate) fn union(partials: &[Arc<Ready>]) -> Path {
    partials.iter().fold(Path::empty(), |all, ready| {
        all.union(&ready.path).expect("I1: partials of one segment are disjoint")
    })
}
