//! The state of one segment: which partials wait, which are worked on, which copies there are.

use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use core::ops::{Index, IndexMut};

use everfold_protocol::{Path, ProcessId, Rank, SegmentIndex, TaskId, Timestamp, report::Refusal};
use smallvec::SmallVec;

use crate::{
    apart::Tries,
    lane::Load,
    listing::{Listing, Turn},
    queue::{Queue, Ready},
};

/// How often what lies at a living process is read again that was damaged when it was read, before that is believed of what
/// lies there.
const READ_AGAIN: u32 = 3;

/// A task as it is granted.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Which task.
    pub task: TaskId,
    /// To whom.
    pub executor: ProcessId,
    /// What it takes of its executor and of those it reads from.
    pub load: Load,
    /// From when on it may be late.
    pub late: Timestamp,
}

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
    /// What it takes of its executor and of those it reads from.
    pub load: Load,
    /// From when on it may be late.
    pub late: Timestamp,
}

impl Running {
    /// Number of partials that meet in it.
    pub(crate) fn partials(&self) -> usize {
        self.sources.len() + usize::from(!self.own.is_empty())
    }

    /// Whose contributions it reads from `process`; all that meet in it, if it reads nothing there.
    pub(crate) fn held_by(&self, process: ProcessId) -> Path {
        let sources = self.sources.iter().filter(|(owner, _)| *owner == process);
        let held: Path = sources.flat_map(|(_, path)| path.iter()).collect();
        if held.is_empty() { self.path.clone() } else { held }
    }
}

impl Running {
    /// What its reduction ends in if it cannot be done because of `culprit`.
    pub(crate) fn not_folded(&self, culprit: ProcessId, reason: String) -> Refusal {
        Refusal::FoldFailed { executor: self.executor.rank, path: self.held_by(culprit), reason }
    }
}

/// A task that was given up while its executor may still work on it.
#[derive(Clone, Debug)]
pub struct Abandoned {
    /// The task.
    pub running: Running,
    /// Whether its result still counts if it comes first: what it reads is as it was, and nobody folds a part of what was put in
    /// its place with something else.
    pub counts: bool,
}

/// What becomes of the result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// What the task took.
    pub load: Load,
    /// Number of partials that have met in it.
    pub partials: usize,
    /// Whether it counts: nobody else was faster, and it is still of use.
    pub counts: bool,
}

/// All segments of a body, by their index.
#[derive(Clone, Debug)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// `count` segments, each a clone of `first`.
    pub(crate) fn repeat(first: Segment, count: u32) -> Self {
        Self(vec![first; count as usize])
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Their indices.
    pub(crate) fn indices(&self) -> impl Iterator<Item = SegmentIndex> + use<> {
        (0..self.count()).map(SegmentIndex)
    }

    /// One of them, if it exists.
    pub(crate) fn get(&self, index: SegmentIndex) -> Option<&Segment> {
        self.0.get(index.0 as usize)
    }

    /// One of them, if it exists.
    pub(crate) fn get_mut(&mut self, index: SegmentIndex) -> Option<&mut Segment> {
        self.0.get_mut(index.0 as usize)
    }

    /// All of them, in order.
    pub fn iter(&self) -> core::slice::Iter<'_, Segment> {
        self.0.iter()
    }

    /// All of them, in order.
    pub(crate) fn iter_mut(&mut self) -> core::slice::IterMut<'_, Segment> {
        self.0.iter_mut()
    }
}

impl Index<SegmentIndex> for Segments {
    type Output = Segment;

    fn index(&self, index: SegmentIndex) -> &Segment {
        &self.0[index.0 as usize]
    }
}

impl IndexMut<SegmentIndex> for Segments {
    fn index_mut(&mut self, index: SegmentIndex) -> &mut Segment {
        &mut self.0[index.0 as usize]
    }
}

impl<'a> IntoIterator for &'a Segments {
    type Item = &'a Segment;
    type IntoIter = core::slice::Iter<'a, Segment>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Segments {
    type Item = &'a mut Segment;
    type IntoIter = core::slice::IterMut<'a, Segment>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// One segment's state.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Partials without a partner.
    pub queue: Queue,
    /// The root's own partial, kept back until the rest of the group is one partial.
    pub held_root: Option<Arc<Ready>>,
    /// Who is known to be able to go on with it.
    pub(crate) turn: Option<Turn>,
    /// Where it is listed as one that waits.
    pub(crate) listing: Listing,
    /// Whether tasks may have any number of partials.
    pub(crate) unbounded: bool,
    /// Tasks that are being worked on, by executor: each has one at most.
    pub running: BTreeMap<Rank, Running>,
    /// The finished segment.
    pub result: Option<Arc<Ready>>,
    /// Partials of processes that could not be reached and have not been declared failed.
    pub suspended: SmallVec<[Arc<Ready>; 1]>,
    /// The latest partial of each rank that has executed a task, whether it was read since or not. It stays as it is
    /// until that rank executes another one.
    pub held: BTreeMap<Rank, Arc<Ready>>,
    /// Tasks that were given up.
    pub abandoned: SmallVec<[Abandoned; 1]>,
    /// Ranks whose own partial is of no use any more. They can only begin afresh.
    pub spoilt: SmallVec<[Rank; 1]>,
    /// Replicas of originals, by owner. There may be several: a keeper that was not waited for has answered.
    pub replicas: BTreeMap<Rank, SmallVec<[Arc<Ready>; 1]>>,
    /// How often the partial, original or replica with this path at this rank was damaged when it was read.
    pub(crate) damaged: Vec<(Rank, Path, u32)>,
    /// How those go on who cannot reach what waits here, if nobody else can.
    pub(crate) tries: Tries,
}

impl Segment {
    /// Whether `rank` works here.
    pub(crate) fn is_busy(&self, rank: Rank) -> bool {
        self.running.contains_key(&rank) || self.is_busy_in_vain(rank)
    }

    /// Whether `rank` may still work on a task that was given up, and writes its partial.
    pub(crate) fn is_busy_in_vain(&self, rank: Rank) -> bool {
        self.abandoned.iter().any(|abandoned| abandoned.running.executor.rank == rank)
    }

    /// The partials that can still be read because nobody has begun to write over them.
    pub(crate) fn folded(&self) -> impl Iterator<Item = &Arc<Ready>> {
        let begins_afresh = |rank| self.running.get(rank).is_some_and(|running| running.own.is_empty());
        self.held.iter().filter(move |(rank, _)| !begins_afresh(rank)).map(|(_, held)| held)
    }

    /// Whether `rank`'s contribution is in another process's hands: copied, or folded into a partial.
    pub(crate) fn is_safe(&self, rank: Rank) -> bool {
        let folded = || self.folded().any(|held| held.process.rank != rank && held.path.contains(rank));
        self.replicas.contains_key(&rank) || folded()
    }

    /// Remembers a copy of an original. Returns whether it is the first of it.
    pub(crate) fn add_replica(&mut self, owner: Rank, copy: Arc<Ready>) -> bool {
        let copies = self.replicas.entry(owner).or_default();
        copies.retain(|other| other.process != copy.process);
        copies.push(copy);
        copies.len() == 1
    }

    /// Forgets all copies of originals but those that are `good`. Returns how many.
    pub(crate) fn keep_replicas(&mut self, good: impl Fn(&Arc<Ready>) -> bool) -> usize {
        let mut forgotten = 0;
        self.replicas.retain(|_, copies| {
            let before = copies.len();
            copies.retain(|copy| good(copy));
            forgotten += before - copies.len();
            !copies.is_empty()
        });
        forgotten
    }

    /// The ranks whose contributions are in another process's hands, as [`is_safe`](Self::is_safe) says of one.
    pub(crate) fn safe(&self) -> Path {
        let folded = Path::any_of_others(self.folded().map(|held| (&held.path, held.process.rank)));
        match self.replicas.is_empty() {
            true => folded,
            false => folded.iter().chain(self.replicas.keys().copied()).collect(),
        }
    }

    /// Checks what is said of one rank against what is said of all.
    pub(crate) fn check(&self) {
        let safe = self.safe();
        let ranks = self.held.values().flat_map(|held| held.path.iter()).chain(self.replicas.keys().copied());
        ranks.for_each(|rank| assert_eq!(self.is_safe(rank), safe.contains(rank), "{rank} of {safe}"));
    }

    /// Takes in that the bytes with this path at `owner` were damaged when they were read. Returns whether to read them again.
    pub(crate) fn reads_again(&mut self, owner: Rank, path: &Path) -> bool {
        let times = match self.damaged.iter_mut().find(|(rank, other, _)| *rank == owner && other == path) {
            Some((_, _, times)) => times,
            None => {
                self.damaged.push((owner, path.clone(), 0));
                &mut self.damaged.last_mut().expect("it was pushed").2
            }
        };
        *times += 1;
        *times <= READ_AGAIN
    }

    /// Remembers what a process's own partial is now.
    pub(crate) fn hold(&mut self, ready: Arc<Ready>) {
        self.spoilt.retain(|rank| *rank != ready.process.rank);
        self.held.insert(ready.process.rank, ready);
    }

    /// Remembers that `rank`'s own partial is of no use any more.
    pub(crate) fn spoil(&mut self, rank: Rank) {
        if !self.spoilt.contains(&rank) {
            self.spoilt.push(rank);
        }
    }
}
