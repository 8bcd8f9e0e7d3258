//! The state of one reduction and its exactly-once bookkeeping.
//!
//! # Invariant I1
//! For each segment the paths of queued partials, of running tasks and of the finished result are disjoint,
//! and their union is what has arrived. [`Reduction::check`] verifies it; in between, every union of paths is
//! one that refuses overlap.
//!
//! | module | holds |
//! |---|---|
//! | `segment` | the state of one segment |
//! | `tasks` | tasks that are made of its partials, and their answers |
//! | `turn` | which workers can go on with a segment, and with which partials |
//! | `agreement` | disagreements between its callers |
//! | `reach` | how it goes on in spite of processes that do not reach each other |
//! | `result` | how its result reaches its receivers although processes die |
//! | `repair` | the consequences of a failure, and how lost partials are put together again |
//! | `failed` | tasks that came to nothing |
//! | `returning` | the part of a rank that comes back |
//! | `copying` | when an original gets its replica |
//! | `teams` | the differences of an attempt in teams |
//! | `pieces` | the differences where contributions are not folded |
//! | `pipelined` | the differences where a piece goes from host to host in a pipeline |
//! | `account` | its course, and its report once it is over |

mod account;
mod agreement;
mod copying;
mod failed;
mod pieces;
mod pipelined;
mod reach;
mod repair;
mod result;
mod returning;
mod segment;
mod tasks;
mod teams;
#[cfg(test)]
mod testing;
mod turn;

use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use core::ops::RangeInclusive;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, ReductionSpec, SegmentIndex, Timestamp,
    message::{ByteRange, Contribution, Data},
    spec::{Delivery, Protection},
};

pub use self::segment::{Segment, Segments};
use self::{account::Account, copying::Copying, pipelined::Pipelined};
pub(crate) use self::{result::Course, teams::Standing};
use crate::{
    apart::Apart,
    handout::Handout,
    lengths::{Cut, Ended},
    policy::Policy,
    queue::Ready,
    timers::Timer,
};

/// One reduction, from its first contribution to the release of its last window.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// Its name.
    name: String,
    /// What all agreed on; in the words of `first`.
    spec: ReductionSpec,
    /// Whose contributions it is made of: the group that all agreed on, less those that are missing.
    group: Path,
    /// Whose contributions are missing. The caller has allowed it.
    missing: Path,
    /// The rank that came first.
    first: Rank,
    /// Whose originals are here.
    arrived: Path,
    /// Its segments.
    segments: Segments,
    /// Segments without a result.
    unfinished: usize,
    /// How many partials one of its tasks folds.
    fan_in: RangeInclusive<usize>,
    /// How far its result is handed out.
    handout: Handout,
    /// How it goes from host to host, if it is handed out in a pipeline.
    pipelined: Option<Pipelined>,
    /// Readers and the owners that they did not reach.
    apart: Apart,
    /// Whether all processes of the group can read each other's memory.
    share_memory: bool,
    /// Whether all bodies came inlined so far.
    inline: bool,
    /// Whether tasks fold two partials each.
    in_pairs: bool,
    /// Whether ranks come back whose processes have died. Then each notes the result before it says that it
    /// has it, so that no other one can take its place.
    ranks_return: bool,
    /// Bytes of inlined bodies that wait for the rest of the group.
    held_bytes: u64,
    /// The original of each rank; it stays readable until the reduction ends, at its owner or here if it came
    /// inlined.
    originals: BTreeMap<Rank, Arc<Ready>>,
    /// Ranks that died after they had contributed.
    survived: Path,
    /// Ranks whose contributions are missing, and whose processes have died since they called. Later
    /// processes of theirs only listen, too.
    left_out: Path,
    /// The processes that have come in place of these and have called, too, and their bodies.
    again: BTreeMap<Rank, (ProcessId, Data)>,
    /// Originals of later processes that have died, too, in the order of their deaths. One of them counts if
    /// the original that counts now is lost.
    later_originals: Vec<LaterOriginal>,
    /// Ranks whose later processes call something else than these.
    diverged: Path,
    copying: Copying,
    cut: Cut,
    body_bytes: u64,
    /// How long the pieces are that have come.
    piece_bytes: BTreeMap<Rank, u64>,
    started: Timestamp,
    /// When the latest original or partial came.
    last_progress: Timestamp,
    account: Account,
}

/// All reductions that have not ended.
pub(crate) type Reductions = BTreeMap<ReductionId, Reduction>;

/// The name of a reduction, and its specification as a caller gives it.
#[derive(Clone, Copy)]
pub(crate) struct Called<'a> {
    pub name: &'a str,
    pub spec: &'a ReductionSpec,
}

/// What a process has left that had called in place of an earlier one of its rank.
#[derive(Clone, Debug)]
struct LaterOriginal {
    /// When that process was declared failed.
    died: Timestamp,
    original: Ready,
}

/// How a body is cut.
struct Sizes {
    /// Ranks whose partials meet in a segment.
    ranks: usize,
    cut: Cut,
}

impl Reduction {
    /// A reduction that `caller` is the first to contribute to.
    pub(crate) fn new(
        now: Timestamp,
        caller: Rank,
        Contribution { name, spec, .. }: &Contribution,
        cut: Cut,
        policy: &Policy,
        share_memory: bool,
    ) -> Self {
        let sizes = Sizes { ranks: spec.group.len(), cut };
        Self::begin(now, caller, Called { name, spec }, sizes, policy, share_memory)
    }

    /// What begins with the first that is heard of it.
    fn begin(
        now: Timestamp,
        caller: Rank,
        Called { name, spec }: Called,
        Sizes { ranks, cut }: Sizes,
        policy: &Policy,
        share_memory: bool,
    ) -> Self {
        let spec = spec.clone();
        let segment_bytes = cut.segment_bytes;
        let body_bytes = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let count = body_bytes.checked_div(segment_bytes).map_or(1, |_| body_bytes.div_ceil(segment_bytes));
        let segment = Segment::new(spec.order);
        Self {
            name: name.to_owned(),
            group: spec.group.clone(),
            missing: Path::empty(),
            first: caller,
            arrived: Path::empty(),
            segments: Segments::repeat(segment, count as u32),
            unfinished: count as usize,
            fan_in: match cut.in_one_go {
                true => ranks..=ranks,
                false => policy.fan_in(ranks, count as usize, segment_bytes, share_memory),
            },
            handout: Handout::default(),
            pipelined: None,
            apart: Apart::default(),
            share_memory,
            inline: true,
            in_pairs: false,
            ranks_return: policy.limits.ranks_return,
            held_bytes: 0,
            originals: BTreeMap::new(),
            survived: Path::empty(),
            left_out: Path::empty(),
            again: BTreeMap::new(),
            later_originals: Vec::new(),
            diverged: Path::empty(),
            copying: Copying::default(),
            cut,
            body_bytes,
            piece_bytes: BTreeMap::new(),
            started: now,
            last_progress: now,
            account: Account::default(),
            spec,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What all agreed on; in the words of the first.
    pub fn spec(&self) -> &ReductionSpec {
        &self.spec
    }

    /// Whose contributions it is made of: the group that all agreed on, less those that are missing.
    pub fn group(&self) -> &Path {
        &self.group
    }

    /// Whose contributions are missing.
    pub(crate) fn missing(&self) -> &Path {
        &self.missing
    }

    /// The rank that came first.
    pub(crate) fn first(&self) -> Rank {
        self.first
    }

    /// Whose originals are here.
    pub fn arrived(&self) -> &Path {
        &self.arrived
    }

    /// How many segments have no result.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// The indices of its segments.
    pub(crate) fn indices(&self) -> impl Iterator<Item = SegmentIndex> + use<> {
        self.segments.indices()
    }

    /// One of its segments.
    pub(crate) fn segment(&self, index: SegmentIndex) -> &Segment {
        &self.segments[index]
    }

    /// One of its segments.
    pub(crate) fn segment_mut(&mut self, index: SegmentIndex) -> &mut Segment {
        &mut self.segments[index]
    }

    /// Length of a segment in bytes; the last one may be shorter.
    pub fn segment_bytes(&self) -> u64 {
        self.cut.segment_bytes
    }

    /// Whether all processes of the group can read each other's memory.
    pub(crate) fn shares_memory(&self) -> bool {
        self.share_memory
    }

    /// Whether the first of several ranks that lives receives the result.
    pub(crate) fn is_for_first(&self) -> bool {
        matches!(self.spec.delivery, Delivery::FirstOf(_))
    }

    /// Most partials that one of its tasks folds, unless any number may.
    pub(crate) fn fan_in_max(&self) -> usize {
        *self.fan_in.end()
    }

    /// Its end `now`, for its ranks to tell their times, if these teach a lesson: bodies came as they were
    /// to, and no rank died.
    pub(crate) fn lesson(&self, id: ReductionId, now: Timestamp) -> Option<Ended> {
        let some_came_inlined = || self.originals.values().any(|original| original.is_inline());
        let came_as_told = if self.cut.inlined { self.inline } else { !some_came_inlined() };
        let is_quiet = self.missing.is_empty() && self.account.is_quiet();
        let since_call = |root| Some((root, now.since(self.account.called_at(root)?)));
        (self.cut.tells() && is_quiet && came_as_told).then(|| Ended {
            id,
            group: self.group.clone(),
            root: self.spec.delivery.root().and_then(since_call),
            before: self.account.before_latest(),
        })
    }

    /// How its bodies are cut.
    pub(crate) fn cut(&self) -> Cut {
        self.cut
    }

    /// When it was started.
    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    /// When something has come of it last.
    pub(crate) fn last_progress(&self) -> Timestamp {
        self.last_progress
    }

    /// When its deadline passes.
    pub fn due(&self) -> Option<Timestamp> {
        self.spec.deadline.map(|deadline| self.started + deadline)
    }

    /// Until when tasks wait for all partials that they can fold, unless it travels inlined: then they do so
    /// anyway.
    pub fn gathers_until(&self, policy: &Policy) -> Option<Timestamp> {
        let gathers = self.share_memory && self.body_bytes > policy.limits.inline_bytes_max;
        (gathers && !policy.gather_time.is_zero()).then(|| self.started + policy.gather_time)
    }

    /// Lets every task fold two partials, as soon as they are there, if bodies are in one piece: several at a
    /// time, as a tree.
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

    /// The timers that are set for it alone while it goes on.
    pub(crate) fn timers(
        &self,
        id: ReductionId,
        policy: &Policy,
    ) -> impl Iterator<Item = (Timestamp, Timer)> {
        let deadline = self.due().map(|due| (due, Timer::Deadline(id)));
        let gathered = self.gathers_until(policy).map(|end| (end, Timer::Gathered(id)));
        let keepers = self.copying.due().map(move |(due, owner)| (due, Timer::Keeper(id, owner)));
        let pipeline = self.pipeline_due().map(|due| (due, Timer::Pipeline(id)));
        deadline.into_iter().chain(gathered).chain(pipeline).chain(keepers)
    }

    /// Where segment `index` lies in the body.
    pub fn range(&self, index: SegmentIndex) -> ByteRange {
        let start = u64::from(index.0) * self.segment_bytes();
        ByteRange { start, len: self.segment_bytes().min(self.body_bytes - start) }
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
        if self.has_pieces() {
            self.piece_bytes.insert(process.rank, data.len());
        }
        let ready = Arc::new(Ready { process, path, data });
        if self.spec.protection > Protection::None && matches!(ready.data, Data::Window(_)) {
            self.copying.add(now, process.rank, self.segments.count());
        }
        self.originals.insert(process.rank, ready.clone());
        if self.spec.protection == Protection::CommitFirst && matches!(ready.data, Data::Window(_)) {
            self.copying.hold(ready);
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

    /// Puts a partial where it belongs: it waits for others, or it is the result. A piece is a part of that.
    pub(crate) fn put(&mut self, index: SegmentIndex, ready: Arc<Ready>) {
        let is_piece = self.has_pieces();
        let segment = &mut self.segments[index];
        if !is_piece && ready.path != self.group {
            return segment.queue.push(ready, &self.spec.group, &self.group);
        }
        segment.result.push(ready);
        segment.is_finished = !is_piece || segment.result.len() == self.group.len();
        self.unfinished -= usize::from(segment.is_finished);
    }

    /// The contributions that count in one of a segment's live partials.
    fn live(&self, index: SegmentIndex) -> Path {
        self.segments[index].live()
    }

    /// The contributions that have to count in every segment: those that came and may take part.
    pub(crate) fn committed(&self) -> Path {
        self.arrived.difference(&self.copying.all_held())
    }

    /// Verifies I1.
    ///
    /// # Panics
    /// If a contribution is missing or counted twice.
    pub fn check(&self) {
        let committed = self.committed();
        for index in self.segments.indices() {
            assert_eq!(self.live(index), committed, "I1: segment {index} lost or invented a contribution");
        }
        // One of them, as it takes long, and only where copies are wanted.
        self.segments.iter().take(usize::from(self.wants_copies())).for_each(Segment::check);
    }
}
