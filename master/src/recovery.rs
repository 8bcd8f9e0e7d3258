//! What a death does to a reduction, and how what was lost is put together again (DR §3, DR-10).
//!
//! A process takes with it the partials that wait at it, the tasks it works on, and the finished segments it holds.
//! The path of each such partial is covered again by the cheapest copies that are left:
//!
//! 1. partials that survivors still hold because the dead process had only read them; the largest first, so that as
//!    few folds as possible are done again;
//! 2. originals: at their owners, or in the master's hands where they came inlined.
//!
//! Paths of partials form a forest: of two that share ranks one contains the other. Hence taking the largest first
//! gives the cover with the fewest pieces. What no copy is left of is lost, and says so.
//!
//! A task that *reads from* the dead process goes on: with memory that is mapped or bytes that have arrived it may well
//! succeed, and what it read is what was published. If it fails, its partials come back here.
//!
//! All of this is re-entrant (I7): a second death finds the same tables.

use std::cmp::Reverse;

use everfold_protocol::{Path, ProcessId, Rank, SegmentIndex, report::Refusal};

use crate::{
    queue::Ready,
    reduction::{Reduction, Running},
};

/// Attempts to reach a process that lives, over all segments of a reduction, before the reduction gives up.
const ATTEMPTS_MAX: u32 = 20;

impl Reduction {
    /// Takes in that `dead` died. Its plans have been taken back with [`take_back`](Self::take_back).
    ///
    /// # Errors
    /// Why the reduction cannot complete.
    pub fn bereave(&mut self, dead: ProcessId, is_alive: &impl Fn(Rank) -> bool) -> Result<(), Refusal> {
        let path = Path::single(dead.rank);
        if !self.arrived.contains(dead.rank) || self.spec.delivery.root() == Some(dead.rank) {
            return Err(Refusal::ProcessFailed { ranks: path });
        }
        self.survived = self.survived.union(&path).expect("a process dies once");
        let gone = |ready: &Ready| ready.process == dead && !ready.is_inline();
        for index in (0..self.segments.len() as u32).map(SegmentIndex) {
            let segment = &mut self.segments[index.0 as usize];
            let mut lost = Vec::new();
            segment.held.retain(|_, ready| !gone(ready));
            while let Some(ready) = segment.queue.remove(gone) {
                lost.push(ready.path);
            }
            segment.suspended.retain(|ready| {
                if gone(ready) {
                    lost.push(ready.path.clone());
                }
                !gone(ready)
            });
            if let Some(result) = segment.result.take_if(|ready| gone(ready)) {
                lost.push(result.path);
                self.unfinished += 1;
            }
            let (ended, running): (Vec<_>, Vec<_>) =
                segment.running.drain(..).partition(|running| running.executor == dead);
            segment.running = running.into();
            for path in lost {
                self.restore(index, &path, is_alive)?;
            }
            for running in ended {
                self.give_back(index, running, is_alive)?;
            }
        }
        Ok(())
    }

    /// Puts the partials of a plan back into the queue, and restores those that died with their processes.
    ///
    /// # Errors
    /// A contribution is lost.
    pub fn take_back(
        &mut self,
        index: SegmentIndex,
        partials: Vec<Ready>,
        is_alive: &impl Fn(Rank) -> bool,
    ) -> Result<(), Refusal> {
        let planned = super::reduction::union(&partials);
        let segment = &mut self.segments[index.0 as usize];
        segment.planned.retain(|path| *path != planned);
        for ready in partials {
            self.requeue(index, ready, is_alive)?;
        }
        Ok(())
    }

    /// Puts the partials of a plan back that only processes which died could execute, and takes those apart that hold
    /// contributions of survivors: one of them can then execute. Returns whether there were any; if not, whoever
    /// contributes next will execute.
    ///
    /// # Errors
    /// A contribution is lost.
    pub fn take_apart(
        &mut self,
        index: SegmentIndex,
        partials: Vec<Ready>,
        is_alive: &impl Fn(Rank) -> bool,
    ) -> Result<bool, Refusal> {
        let planned = super::reduction::union(&partials);
        let group = &self.spec.group;
        let segment = &mut self.segments[index.0 as usize];
        segment.planned.retain(|path| *path != planned);
        let (with_survivors, without): (Vec<_>, Vec<_>) =
            partials.into_iter().partition(|ready| ready.path.iter().any(is_alive));
        for ready in without {
            segment.queue.push(ready, group);
        }
        for ready in &with_survivors {
            self.segments[index.0 as usize].held.retain(|_, held| held.path != ready.path);
            self.restore(index, &ready.path, is_alive)?;
        }
        Ok(!with_survivors.is_empty())
    }

    /// Takes back what a task that came to nothing was to fold.
    fn give_back(
        &mut self,
        index: SegmentIndex,
        running: Running,
        is_alive: &impl Fn(Rank) -> bool,
    ) -> Result<(), Refusal> {
        let Running { executor, own, sources, .. } = running;
        for (process, path) in std::iter::once((executor, own)).chain(sources) {
            match self.readable(index, process, &path) {
                Some(ready) => self.requeue(index, ready, is_alive)?,
                None => self.restore(index, &path, is_alive)?,
            }
        }
        Ok(())
    }

    /// Takes back a task whose executor could not reach `culprit`. If that process lives, its partial is left alone for
    /// a while: most likely its death is about to be noticed. Returns whether something waits for that.
    ///
    /// # Errors
    /// A contribution is lost, or it was tried too often.
    pub fn unreachable(
        &mut self,
        index: SegmentIndex,
        running: Running,
        culprit: ProcessId,
        reason: String,
        is_alive: &impl Fn(Rank) -> bool,
    ) -> Result<bool, Refusal> {
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            let of_culprit = running.sources.into_iter().find(|(process, _)| *process == culprit);
            let path = of_culprit.map_or(running.own, |(_, path)| path);
            return Err(Refusal::FoldFailed { executor: running.executor.rank, path, reason });
        }
        let (unreached, reached) = running.sources.into_iter().partition(|(process, _)| *process == culprit);
        self.give_back(index, Running { sources: reached, ..running }, is_alive)?;
        let unreached: Vec<_> = unreached;
        for (process, path) in unreached {
            match self.readable(index, process, &path).filter(|ready| is_alive(ready.process.rank)) {
                Some(ready) => self.segments[index.0 as usize].suspended.push(ready),
                None => self.restore(index, &path, is_alive)?,
            }
        }
        Ok(!self.segments[index.0 as usize].suspended.is_empty())
    }

    /// Lets partials that could not be reached take part again.
    pub fn resume(&mut self, index: SegmentIndex) {
        let segment = &mut self.segments[index.0 as usize];
        for ready in segment.suspended.drain(..) {
            segment.queue.push(ready, &self.spec.group);
        }
    }

    fn requeue(
        &mut self,
        index: SegmentIndex,
        ready: Ready,
        is_alive: &impl Fn(Rank) -> bool,
    ) -> Result<(), Refusal> {
        if ready.is_inline() || is_alive(ready.process.rank) {
            self.segments[index.0 as usize].queue.push(ready, &self.spec.group);
            Ok(())
        } else {
            self.restore(index, &ready.path, is_alive)
        }
    }

    /// Where the partial of `process` with `path` is readable, if it still is.
    fn readable(&self, index: SegmentIndex, process: ProcessId, path: &Path) -> Option<Ready> {
        let held = self.segments[index.0 as usize].held.get(&process.rank);
        let copies = held.into_iter().chain(self.originals.get(&process.rank));
        copies.into_iter().find(|ready| ready.process == process && ready.path == *path).cloned()
    }

    /// Queues the fewest copies that together hold `lost`.
    fn restore(
        &mut self,
        index: SegmentIndex,
        lost: &Path,
        is_alive: &impl Fn(Rank) -> bool,
    ) -> Result<(), Refusal> {
        let segment = &mut self.segments[index.0 as usize];
        let originals = lost.iter().filter_map(|rank| self.originals.get(&rank));
        let mut copies: Vec<&Ready> = segment
            .held
            .values()
            .chain(originals)
            .filter(|ready| ready.path.is_subset(lost) && (ready.is_inline() || is_alive(ready.process.rank)))
            .collect();
        copies.sort_by_key(|ready| Reverse(ready.path.len()));
        let mut missing = lost.clone();
        let mut cover = Vec::new();
        for copy in copies {
            if copy.path.is_subset(&missing) {
                missing = missing.difference(&copy.path);
                cover.push(copy.clone());
            }
        }
        if !missing.is_empty() {
            return Err(Refusal::ContributionLost { ranks: missing });
        }
        self.folds_redone += cover.len() as u64 - 1;
        for ready in cover {
            segment.queue.push(ready, &self.spec.group);
        }
        Ok(())
    }
}
