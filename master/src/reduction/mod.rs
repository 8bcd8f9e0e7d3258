//! The state of one reduction and its exactly-once bookkeeping.
//!
//! # Invariant I1
//! For each segment the paths of queued partials, of running tasks and of the finished result are
//! disjoint, and their union is what has arrived. [`Reduction::check`] verifies it; in between, every union of
//! paths is one that refuses overlap.
//!
//! | module | holds |
//! |---|---|
//! | `turn` | who can go on with a segment, and with which partials |
//! | `agreement` | on what those who call it disagree |
//! | `reach` | how it goes on in spite of processes that do not reach each other |
//! | `result` | how its result reaches those who are to have it, whoever dies meanwhile |
//! | `recovery` | what a failure does to it, and how what was lost is put together again |
//! | `copying` | when an original gets its replica |
//! | `teams` | what is different about an attempt in teams |
//! | `account` | what is told about it once it is over |

mod account;
mod agreement;
mod copying;
mod reach;
mod recovery;
mod result;
mod teams;
mod turn;

use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use core::ops::RangeInclusive;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, ReductionSpec, SegmentId, SegmentIndex, TaskId, Timestamp,
    message::{ByteRange, Contribution, Data, PartialReady, Source, Task},
    spec::Protection,
};
use smallvec::SmallVec;

use self::{account::Account, copying::Copying};
pub(crate) use self::{result::Course, teams::Standing};
use crate::{
    apart::{Apart, Tries},
    handout::Handout,
    listing::Listing,
    policy::Policy,
    queue::{Queue, Ready},
    segment::{Abandoned, Completed, Grant, Running, Segment, Segments},
    timers::Timer,
};

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
    pub segments: Segments,
    /// Segments without a result.
    pub unfinished: usize,
    /// How many partials one of its tasks folds.
    pub(crate) fan_in: RangeInclusive<usize>,
    /// How far its result is handed out.
    handout: Handout,
    /// Who did not reach whom.
    apart: Apart,
    /// Whether all processes of the group can read each other's memory.
    pub share_memory: bool,
    /// Whether all bodies came inlined so far.
    pub inline: bool,
    /// Whether tasks fold two partials each.
    in_pairs: bool,
    /// Bytes of inlined bodies that wait for the rest of the group.
    pub held_bytes: u64,
    /// Everyone's original; it stays readable until the reduction ends, at its owner or here if it came inlined.
    pub(crate) originals: BTreeMap<Rank, Arc<Ready>>,
    /// Ranks that died after they had contributed.
    pub(crate) survived: Path,
    /// Originals that wait for their replica before they count.
    pub(crate) uncommitted: BTreeMap<Rank, Arc<Ready>>,
    pub(crate) copying: Copying,
    pub(crate) segment_bytes: u64,
    pub(crate) body_bytes: u64,
    pub(crate) started: Timestamp,
    /// When the latest original or partial came.
    pub(crate) last_progress: Timestamp,
    pub(crate) account: Account,
}

/// What a reduction is called, and what its first caller says of it.
#[derive(Clone, Copy)]
pub(crate) struct Called<'a> {
    pub name: &'a str,
    pub spec: &'a ReductionSpec,
}

/// How a body is cut.
struct Sizes {
    /// Ranks whose partials meet in a segment.
    ranks: usize,
    segment_bytes: u64,
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
        let Contribution { name, spec, .. } = contribution;
        let ranks = spec.group.len();
        let sizes = Sizes { ranks, segment_bytes: policy.segment_len(&spec.kind, ranks, share_memory) };
        Self::cut(now, caller, Called { name, spec }, sizes, policy, share_memory)
    }

    /// The same, in segments of a given length.
    fn cut(
        now: Timestamp,
        caller: Rank,
        Called { name, spec }: Called,
        Sizes { ranks, segment_bytes }: Sizes,
        policy: &Policy,
        share_memory: bool,
    ) -> Self {
        let spec = spec.clone();
        let body_bytes = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let count = body_bytes.checked_div(segment_bytes).map_or(1, |_| body_bytes.div_ceil(segment_bytes));
        let segment = Segment {
            queue: Queue::new(spec.order),
            held_root: None,
            turn: None,
            listing: Listing::default(),
            unbounded: false,
            running: BTreeMap::new(),
            result: None,
            suspended: SmallVec::new(),
            held: BTreeMap::new(),
            abandoned: SmallVec::new(),
            spoilt: SmallVec::new(),
            replicas: BTreeMap::new(),
            damaged: Vec::new(),
            tries: Tries::default(),
        };
        Self {
            name: name.to_owned(),
            group: spec.group.clone(),
            missing: Path::empty(),
            first: caller,
            arrived: Path::empty(),
            segments: Segments::repeat(segment, count as u32),
            unfinished: count as usize,
            fan_in: policy.fan_in(ranks, count as usize, segment_bytes, share_memory),
            handout: Handout::default(),
            apart: Apart::default(),
            share_memory,
            inline: true,
            in_pairs: false,
            held_bytes: 0,
            originals: BTreeMap::new(),
            survived: Path::empty(),
            uncommitted: BTreeMap::new(),
            copying: Copying::default(),
            segment_bytes,
            body_bytes,
            started: now,
            last_progress: now,
            account: Account::default(),
            spec,
        }
    }

    /// When its deadline passes.
    pub fn due(&self) -> Option<Timestamp> {
        self.spec.deadline.map(|deadline| self.started + deadline)
    }

    /// Until when tasks wait for all partials that they can fold, unless it travels inlined: then they do so anyway.
    pub fn gathers_until(&self, policy: &Policy) -> Option<Timestamp> {
        let gathers = self.share_memory && self.body_bytes > policy.limits.inline_bytes_max;
        (gathers && !policy.gather_time.is_zero()).then(|| self.started + policy.gather_time)
    }

    /// Lets every task fold two partials, as soon as they are there, if bodies are in one piece: several at a time, as a
    /// tree.
    pub(crate) fn fold_in_pairs(&mut self) {
        if self.segments.count() == 1 {
            self.fan_in = 2..=2;
            self.in_pairs = true;
        }
    }

    /// Lets tasks begin with any two partials.
    pub fn gather_no_more(&mut self) {
        self.fan_in = 2..=(*self.fan_in.end());
    }

    /// What is due for it alone while it goes on.
    pub(crate) fn timers(
        &self,
        id: ReductionId,
        policy: &Policy,
    ) -> impl Iterator<Item = (Timestamp, Timer)> {
        let deadline = self.due().map(|due| (due, Timer::Deadline(id)));
        let gathered = self.gathers_until(policy).map(|end| (end, Timer::Gathered(id)));
        let keepers = self.copying.keepers.due().map(move |(due, owner)| (due, Timer::Keeper(id, owner)));
        deadline.into_iter().chain(gathered).chain(keepers)
    }

    /// Where segment `index` lies in the body.
    pub fn range(&self, index: SegmentIndex) -> ByteRange {
        let start = u64::from(index.0) * self.segment_bytes;
        ByteRange { start, len: self.segment_bytes.min(self.body_bytes - start) }
    }

    /// Makes a running task of partials that have left the queue: `own` is the executor's, `sources` are the others.
    /// Without an own one it begins afresh, over what it held; that stays as it is if nothing comes of the task.
    pub fn start(
        &mut self,
        index: SegmentIndex,
        grant: Grant,
        own: Option<&Arc<Ready>>,
        sources: &[Arc<Ready>],
    ) {
        let Grant { task, executor, load, late } = grant;
        let sources_path = union(sources);
        let own_path = own.map_or_else(Path::empty, |own| own.path.clone());
        let path = own_path.union(&sources_path).expect("I1: partials of one segment are disjoint");
        let is_steady = self.inline || self.spec.kind.array_bytes().is_none();
        let segment = &mut self.segments[index];
        // From now on an array may change under a task that was given up and reads it: a partial, not its owner's original.
        let original = Path::single(executor.rank);
        let changes = |read: &(ProcessId, Path)| !is_steady && read.0 == executor && read.1 != original;
        for abandoned in &mut segment.abandoned {
            abandoned.counts &= !abandoned.running.sources.iter().any(changes);
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

    /// Takes in `process`'s original.
    ///
    /// # Panics
    /// If that rank has arrived before; the caller has refused it.
    pub fn arrive(&mut self, now: Timestamp, process: ProcessId, data: Data, trace: bool) {
        let path = Path::single(process.rank);
        self.arrived.insert(process.rank).expect("I1: a rank arrives once");
        self.last_progress = now;
        self.account.arrive(now, process.rank, trace);
        self.pause_copies();
        self.inline &= !matches!(data, Data::Window(_));
        if let Data::Inline(bytes) = &data {
            self.held_bytes += bytes.len() as u64;
        }
        if self.arrived == self.group {
            self.account.close();
        }
        let ready = Arc::new(Ready { process, path, data });
        if self.spec.protection > Protection::None && matches!(ready.data, Data::Window(_)) {
            self.copying.keepers.add(now, process.rank, self.segments.count());
        }
        self.originals.insert(process.rank, ready.clone());
        if self.spec.protection == Protection::CommitFirst && matches!(ready.data, Data::Window(_)) {
            self.uncommitted.insert(process.rank, ready);
        } else {
            self.enter(&ready);
        }
    }

    /// Takes in that all of `team` have contributed elsewhere.
    pub(crate) fn arrive_together(&mut self, now: Timestamp, team: &Path) {
        self.arrived = self.arrived.union(team).expect("I1: a rank arrives once");
        self.last_progress = now;
        team.iter().for_each(|rank| self.account.arrive(now, rank, false));
        if self.arrived == self.group {
            self.account.close();
        }
    }

    /// Lets an original take part in all segments.
    pub(crate) fn enter(&mut self, ready: &Arc<Ready>) {
        let hold = self.holds_root() && self.spec.delivery.root() == Some(ready.process.rank);
        for index in self.segments.indices() {
            if hold && ready.path != self.group {
                self.segments[index].held_root = Some(ready.clone());
            } else {
                self.put(index, ready.clone());
            }
        }
    }

    /// Puts a partial where it belongs: it waits for others, or it is the result.
    pub(crate) fn put(&mut self, index: SegmentIndex, ready: Arc<Ready>) {
        let segment = &mut self.segments[index];
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

    /// Takes all tasks off it that may still be under way.
    pub(crate) fn take_tasks(&mut self) -> Vec<Running> {
        let mut tasks = Vec::new();
        for segment in &mut self.segments {
            let given_up = segment.abandoned.drain(..).map(|abandoned| abandoned.running);
            tasks.extend(core::mem::take(&mut segment.running).into_values().chain(given_up));
        }
        tasks
    }

    /// Takes a task out of `running`, if `executor` works on it.
    pub fn take_running(
        &mut self,
        index: SegmentIndex,
        task: TaskId,
        executor: ProcessId,
    ) -> Option<Running> {
        let segment = self.segments.get_mut(index)?;
        let is_it = |running: &&Running| running.task == task && running.executor == executor;
        segment.running.get(&executor.rank).filter(is_it)?;
        segment.running.remove(&executor.rank)
    }

    /// Takes a task off it that came to nothing. Returns it, and whether it was given up before.
    pub(crate) fn take_failed(
        &mut self,
        index: SegmentIndex,
        task: TaskId,
        executor: ProcessId,
    ) -> Option<(Running, bool)> {
        let abandoned = |abandoned: Abandoned| (abandoned.running, true);
        match self.take_running(index, task, executor) {
            Some(running) => Some((running, false)),
            None => self.take_abandoned(index, task, executor).map(abandoned),
        }
    }

    /// Takes a task out of those that were given up, if `executor` works on it.
    pub fn take_abandoned(
        &mut self,
        index: SegmentIndex,
        task: TaskId,
        executor: ProcessId,
    ) -> Option<Abandoned> {
        let abandoned = &mut self.segments.get_mut(index)?.abandoned;
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
                    self.segments[index].spoil(sender.rank);
                    let partials = running.partials();
                    return Some(Completed { load: running.load, partials, counts: false });
                }
                running
            }
        };
        debug_assert_eq!(running.path, path, "a worker does what its task says");
        let ready = Arc::new(Ready { process: sender, path, data });
        self.segments[index].hold(ready.clone());
        self.put(index, ready);
        self.last_progress = now;
        let (load, partials) = (running.load.clone(), running.partials());
        self.account.complete(now, index, running, counters, self.arrived != self.group);
        Some(Completed { load, partials, counts: true })
    }

    /// Takes what together holds `path` off the segment, the partials that wait and the tasks under way, if nobody folds
    /// any of it with something else.
    fn withdraw(&mut self, index: SegmentIndex, path: &Path) -> bool {
        let segment = &mut self.segments[index];
        let within = |ready: &Ready| ready.path.is_subset(path);
        let waiting = segment.queue.iter().filter(|ready| within(ready)).map(|ready| ready.path.len());
        let tasks = segment.running.values().filter(|running| running.path.is_subset(path));
        let count: usize = waiting.chain(tasks.map(|running| running.path.len())).sum();
        if count != path.len() {
            return false;
        }
        while segment.queue.remove(within).is_some() {}
        let (done, running) =
            core::mem::take(&mut segment.running).into_iter().partition(|(_, it)| it.path.is_subset(path));
        segment.running = running;
        for (rank, running) in BTreeMap::into_iter(done) {
            // It goes on writing its partial.
            segment.held.remove(&rank);
            segment.abandoned.push(Abandoned { running, counts: false });
        }
        true
    }

    /// The contributions that count in one of a segment's live partials.
    pub(crate) fn live(&self, index: SegmentIndex) -> Path {
        let segment = &self.segments[index];
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
        for index in self.segments.indices() {
            assert_eq!(self.live(index), committed, "I1: segment {index} lost or invented a contribution");
            self.segments[index].check();
        }
    }
}

pub(crate) fn union(partials: &[Arc<Ready>]) -> Path {
    partials.iter().fold(Path::empty(), |all, ready| {
        all.union(&ready.path).expect("I1: partials of one segment are disjoint")
    })
}
