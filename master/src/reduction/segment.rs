//! The state of one segment: which partials wait, which are worked on, which copies there are.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::ops::{Index, IndexMut};

use everfold_protocol::{Path, ProcessId, Rank, SegmentId, SegmentIndex, TaskId, Timestamp, spec::Order};
use smallvec::SmallVec;

use crate::{
    apart::Tries,
    listing::{Listing, Turn, Waiting},
    queue::{Queue, Ready},
    task::{Abandoned, Running},
};

/// How often data of a living process is read again after a damaged read, before the data itself is taken for
/// damaged.
const READ_AGAIN: u32 = 3;
/// Reads of one partial that may find it damaged, also when its executor has folded it anew, before the
/// reduction is given up.
pub(super) const DAMAGED_MOST: u32 = 32;

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
    pub(super) queue: Queue,
    /// The root's own partial, kept back until the rest of the group is one partial.
    pub(super) held_root: Option<Arc<Ready>>,
    /// The workers that are known to be able to go on with it.
    pub(super) turn: Option<Turn>,
    /// Where it is listed as one that waits.
    pub(super) listing: Listing,
    /// Whether tasks may have any number of partials.
    pub(super) unbounded: bool,
    /// Tasks that are being worked on, by executor: each has one at most.
    pub(super) running: BTreeMap<Rank, Running>,
    /// Its result: one partial of all contributions, or the pieces that are here.
    pub(super) result: SmallVec<[Arc<Ready>; 1]>,
    /// Whether nothing is missing there.
    pub(super) is_finished: bool,
    /// Partials of processes that could not be reached and have not been declared failed.
    pub(super) suspended: SmallVec<[Arc<Ready>; 1]>,
    /// The latest partial of each rank that has executed a task, whether it was read since or not. It stays
    /// as it is until that rank executes another one.
    pub(super) held: BTreeMap<Rank, Arc<Ready>>,
    /// Tasks that were given up.
    pub(super) abandoned: SmallVec<[Abandoned; 1]>,
    /// Ranks whose own partial is of no use any more. They can only begin afresh.
    pub(super) spoilt: SmallVec<[Rank; 1]>,
    /// Replicas of originals, by owner. There may be several: a keeper that was not waited for has answered.
    pub(super) replicas: BTreeMap<Rank, SmallVec<[Arc<Ready>; 1]>>,
    /// How often the partial, original or replica with this path at this rank was damaged when it was read.
    pub(super) damaged: Vec<(Rank, Path, u32)>,
    /// The tries of readers that cannot reach the partials that wait here, if no other process can.
    pub(super) tries: Tries,
}

impl Segment {
    /// A segment to which nothing has come.
    pub(super) fn new(order: Order) -> Self {
        Self {
            queue: Queue::new(order),
            held_root: None,
            turn: None,
            listing: Listing::default(),
            unbounded: false,
            running: BTreeMap::new(),
            result: SmallVec::new(),
            is_finished: false,
            suspended: SmallVec::new(),
            held: BTreeMap::new(),
            abandoned: SmallVec::new(),
            spoilt: SmallVec::new(),
            replicas: BTreeMap::new(),
            damaged: Vec::new(),
            tries: Tries::default(),
        }
    }

    /// Partials without a partner.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The workers that are known to be able to go on with it.
    pub(crate) fn turn(&self) -> Option<Turn> {
        self.turn
    }

    /// Notes the workers that can go on with it.
    pub(crate) fn set_turn(&mut self, turn: Option<Turn>) {
        self.turn = turn;
    }

    /// Where it is listed as one that waits.
    pub(crate) fn listing(&self) -> &Listing {
        &self.listing
    }

    /// Its entry for the listings.
    pub(crate) fn waiting(&mut self, id: SegmentId, started: Timestamp) -> Waiting<'_> {
        Waiting { id, started, queue: &mut self.queue, listing: &mut self.listing }
    }

    /// Tasks that are being worked on, by executor.
    pub(crate) fn running(&self) -> &BTreeMap<Rank, Running> {
        &self.running
    }

    /// Lets the task of `executor` be late not before that time.
    pub(crate) fn put_off(&mut self, executor: Rank, late: Timestamp) {
        if let Some(running) = self.running.get_mut(&executor) {
            running.late = late;
        }
    }

    /// Tasks that were given up.
    pub(crate) fn given_up(&self) -> impl Iterator<Item = &Running> {
        self.abandoned.iter().map(|abandoned| &abandoned.running)
    }

    /// All tasks that may still be under way.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Running> {
        self.running.values().chain(self.given_up())
    }

    /// Takes all of them off it.
    pub(crate) fn take_tasks(&mut self) -> impl Iterator<Item = Running> {
        let given_up = self.abandoned.drain(..).map(|abandoned| abandoned.running);
        core::mem::take(&mut self.running).into_values().chain(given_up)
    }

    /// Takes a task out of those that are being worked on, if `executor` does.
    pub(super) fn take_running(&mut self, task: TaskId, executor: ProcessId) -> Option<Running> {
        let is_it = |running: &&Running| running.task == task && running.executor == executor;
        self.running.get(&executor.rank).filter(is_it)?;
        self.running.remove(&executor.rank)
    }

    /// Takes a task out of those that were given up, if `executor` works on it.
    pub(super) fn take_abandoned(&mut self, task: TaskId, executor: ProcessId) -> Option<Abandoned> {
        let is_it = |a: &Abandoned| a.running.task == task && a.running.executor == executor;
        let position = self.abandoned.iter().position(is_it)?;
        Some(self.abandoned.remove(position))
    }

    /// Removes the waiting partials and the tasks under way that together hold `path`, if no task folds any
    /// of them with something else.
    pub(super) fn withdraw(&mut self, path: &Path) -> bool {
        let within = |ready: &Ready| ready.path.is_subset(path);
        let waiting = self.queue.iter().filter(|ready| within(ready)).map(|ready| ready.path.len());
        let tasks = self.running.values().filter(|running| running.path.is_subset(path));
        let count: usize = waiting.chain(tasks.map(|running| running.path.len())).sum();
        if count != path.len() {
            return false;
        }
        while self.queue.remove(within).is_some() {}
        let (done, running) =
            core::mem::take(&mut self.running).into_iter().partition(|(_, it)| it.path.is_subset(path));
        self.running = running;
        for (rank, running) in BTreeMap::into_iter(done) {
            // It goes on writing its partial.
            self.held.remove(&rank);
            self.abandoned.push(Abandoned { running, counts: false });
        }
        true
    }

    /// The contributions in its live partials.
    ///
    /// # Panics
    /// If one is in two of them.
    pub(super) fn live(&self) -> Path {
        let parts = self
            .queue
            .iter()
            .chain(&self.held_root)
            .chain(&self.result)
            .chain(&self.suspended)
            .map(|ready| &ready.path)
            .chain(self.running.values().map(|running| &running.path));
        Path::union_of(parts).unwrap_or_else(|overlap| panic!("I1: a contribution counts twice: {overlap}"))
    }

    /// Whether `rank` works here.
    pub(crate) fn is_busy(&self, rank: Rank) -> bool {
        self.running.contains_key(&rank) || self.is_busy_in_vain(rank)
    }

    /// Whether `rank` may still work on a task that was given up, and writes its partial.
    pub(crate) fn is_busy_in_vain(&self, rank: Rank) -> bool {
        self.abandoned.iter().any(|abandoned| abandoned.running.executor.rank == rank)
    }

    /// The partials that can still be read because no task has begun to write over them.
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

    /// Whether `keeper` keeps a copy of the original with this path.
    pub(super) fn is_replica(&self, keeper: ProcessId, path: &Path) -> bool {
        self.replicas.values().flatten().any(|copy| copy.process == keeper && copy.path == *path)
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

    /// The ranks whose contributions are in another process's hands, as [`is_safe`](Self::is_safe) says of
    /// one.
    pub(crate) fn safe(&self) -> Path {
        let folded = Path::any_of_others(self.folded().map(|held| (&held.path, held.process.rank)));
        match self.replicas.is_empty() {
            true => folded,
            false => folded.iter().chain(self.replicas.keys().copied()).collect(),
        }
    }

    /// Checks the tables of single ranks against those of all.
    pub(crate) fn check(&self) {
        let safe = self.safe();
        let ranks = self.held.values().flat_map(|held| held.path.iter()).chain(self.replicas.keys().copied());
        ranks.for_each(|rank| assert_eq!(self.is_safe(rank), safe.contains(rank), "{rank} of {safe}"));
    }

    /// Takes in that the bytes with this path at `owner` were damaged when they were read. Returns whether to
    /// read them again.
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

    /// Whether a partial of `owner` was damaged again and again, also when that rank had folded it anew.
    pub(crate) fn stays_damaged(&self, owner: Rank) -> bool {
        self.damaged.iter().any(|(rank, _, times)| *rank == owner && *times > DAMAGED_MOST)
    }

    /// Notes a process's own partial.
    pub(crate) fn hold(&mut self, ready: Arc<Ready>) {
        self.spoilt.retain(|rank| *rank != ready.process.rank);
        self.held.insert(ready.process.rank, ready);
    }

    /// Forgets the partials that wait and are bad. Returns how many.
    pub(super) fn drop_waiting(&mut self, is_bad: impl Fn(&Ready) -> bool) -> usize {
        let queued = core::iter::from_fn(|| self.queue.remove(&is_bad)).count();
        let suspended = self.suspended.len();
        self.suspended.retain(|ready| !is_bad(ready));
        queued + suspended - self.suspended.len()
    }

    /// Remembers that `rank`'s own partial is of no use any more.
    pub(crate) fn spoil(&mut self, rank: Rank) {
        if !self.spoilt.contains(&rank) {
            self.spoilt.push(rank);
        }
    }
}
