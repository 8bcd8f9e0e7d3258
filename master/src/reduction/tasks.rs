//! Tasks that are made of a reduction's partials, and their answers.

use alloc::{sync::Arc, vec::Vec};

use everfold_protocol::{
    Path, ProcessId, SegmentId, SegmentIndex, TaskId, Timestamp,
    message::{PartialReady, Source, Task},
};

use super::Reduction;
use crate::{
    queue::Ready,
    task::{Abandoned, Completed, Grant, Running, Undone},
};

impl Reduction {
    /// Makes a running task of partials that have left the queue: `own` is the executor's, `sources` are the
    /// others. Without an own partial it begins afresh, over the partial that it held; that stays as it is if
    /// the task fails.
    pub fn start(
        &mut self,
        index: SegmentIndex,
        grant: Grant,
        own: Option<&Arc<Ready>>,
        sources: &[Arc<Ready>],
    ) {
        let Grant { task, executor, load, late } = grant;
        let path = union(sources.iter().chain(own));
        let own_path = own.map_or_else(Path::empty, |own| own.path.clone());
        let is_steady = self.inline || self.spec.kind.array_bytes().is_none();
        let segment = &mut self.segments[index];
        // From now on an array may change under a task that was given up and reads it: a partial, not its
        // owner's original.
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

    /// The message of a task to its worker.
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

    /// Bytes that a task over `partials` counts as in a lane: what its executor has to touch.
    pub fn task_bytes(&self, index: SegmentIndex, partials: &[Arc<Ready>]) -> u64 {
        match self.spec.kind.array_bytes() {
            Some(_) => self.range(index).len * partials.len() as u64,
            None => partials.iter().map(|ready| ready.data.len()).sum(),
        }
    }

    /// All tasks that may still be under way.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Running> {
        self.segments.iter().flat_map(|segment| segment.tasks())
    }

    /// Takes all of them off it.
    pub(crate) fn take_tasks(&mut self) -> Vec<Running> {
        self.segments.iter_mut().flat_map(|segment| segment.take_tasks()).collect()
    }

    /// Takes a task out of those that are being worked on, if `executor` does.
    pub(super) fn take_running(
        &mut self,
        index: SegmentIndex,
        task: TaskId,
        executor: ProcessId,
    ) -> Option<Running> {
        self.segments.get_mut(index)?.take_running(task, executor)
    }

    /// Takes a task off it that came to nothing.
    pub(crate) fn take_failed(
        &mut self,
        index: SegmentIndex,
        task: TaskId,
        executor: ProcessId,
    ) -> Option<Undone> {
        let segment = self.segments.get_mut(index)?;
        match segment.take_running(task, executor) {
            Some(running) => Some(Undone::Awaited(running)),
            None => segment.take_abandoned(task, executor).map(Undone::GivenUp),
        }
    }

    /// Takes in a finished task and puts its partial where it belongs.
    ///
    /// Returns `None` if no such task runs there: the message is stale.
    pub fn complete(&mut self, now: Timestamp, sender: ProcessId, done: PartialReady) -> Option<Completed> {
        let PartialReady { task, segment: SegmentId { index, .. }, path, data, counters } = done;
        let running = match self.take_running(index, task, sender) {
            Some(running) => running,
            None => {
                let Abandoned { running, counts } =
                    self.segments.get_mut(index)?.take_abandoned(task, sender)?;
                if !(counts && self.segments[index].withdraw(&path)) {
                    // Its sources may have changed while it read them.
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
}

fn union<'a>(partials: impl Iterator<Item = &'a Arc<Ready>>) -> Path {
    let paths = partials.map(|ready| &ready.path);
    Path::union_of(paths).expect("I1: partials of one segment are disjoint")
}
