//! The course of a reduction, and its report once it is over.

use alloc::vec::Vec;
use core::time::Duration;

use everfold_protocol::{
    Path, ProcessId, Rank, SegmentIndex, Timestamp,
    message::{Effort, Evidence, Task, TaskCounters},
    report::{FailureRecord, Phases, Report, Restored, TaskRecord},
};

use super::Reduction;
use crate::task::Running;

/// Ranks up to which it is looked up how long each has waited for the latest.
const FEW_RANKS: usize = 64;

/// The course of a reduction so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// The ranks that have called it, whether their contributions count or not.
    arrivals: Vec<(Rank, Timestamp)>,
    effort: Effort,
    tasks_doubled: u64,
    folds_redone: u64,
    /// Every task, as long as a rank has asked for it or may still come and ask.
    history: Vec<Done>,
    failures: Vec<(Timestamp, FailureRecord)>,
    tells_trace: bool,
}

/// A task that is done.
#[derive(Clone, Debug)]
struct Done {
    index: SegmentIndex,
    running: Running,
    at: Timestamp,
    work: Duration,
}

impl Account {
    /// Notes a call.
    pub(super) fn arrive(&mut self, now: Timestamp, rank: Rank, trace: bool) {
        self.arrivals.push((rank, now));
        self.tells_trace |= trace;
    }

    /// Notes that no other rank will call.
    pub(super) fn close(&mut self) {
        if !self.tells_trace {
            self.history = Vec::new();
        }
    }

    /// Whether no rank has died in it.
    pub(super) fn is_quiet(&self) -> bool {
        self.failures.is_empty()
    }

    /// When a rank has called it.
    pub(super) fn called_at(&self, rank: Rank) -> Option<Timestamp> {
        self.arrivals.iter().find(|(caller, _)| *caller == rank).map(|(_, at)| *at)
    }

    /// How long before the latest call each rank has called, if they are few.
    pub(super) fn before_latest(&self) -> Vec<(Rank, Duration)> {
        if self.arrivals.len() > FEW_RANKS {
            return Vec::new();
        }
        let latest = self.arrivals.iter().map(|(_, at)| *at).max().unwrap_or_default();
        self.arrivals.iter().map(|(rank, at)| (*rank, latest.since(*at))).collect()
    }

    /// Whether a rank has asked for all that was done.
    pub(super) fn tells_trace(&self) -> bool {
        self.tells_trace
    }

    /// Notes that others do a task, too.
    pub(super) fn double(&mut self) {
        self.tasks_doubled += 1;
    }

    /// Notes folds that are done again.
    pub(super) fn redo(&mut self, folds: u64) {
        self.folds_redone += folds;
    }

    /// Notes a death.
    pub(super) fn mourn(&mut self, at: Timestamp, failure: FailureRecord) {
        let earlier = self.failures.partition_point(|(other, _)| *other <= at);
        self.failures.insert(earlier, (at, failure));
    }

    /// Takes in better evidence of a death.
    pub(super) fn learn(&mut self, dead: Rank, evidence: Evidence) {
        let failures = self.failures.iter_mut().map(|(_, failure)| failure);
        failures.filter(|it| it.rank == dead).for_each(|it| it.evidence = evidence);
    }

    /// Notes a path that was put together again after the latest death.
    pub(super) fn restore(&mut self, restored: impl FnOnce() -> Restored) {
        if let Some((_, failure)) = self.failures.last_mut() {
            failure.restored.push(restored());
        }
    }

    /// Takes in that `ranks` are to call again.
    pub(super) fn forget(&mut self, ranks: &Path) {
        self.arrivals.retain(|(rank, _)| !ranks.contains(*rank));
        self.failures.retain(|(_, failure)| !ranks.contains(failure.rank));
    }

    /// Whether `rank` has called.
    pub(super) fn has_called(&self, rank: Rank) -> bool {
        self.arrivals.iter().any(|(caller, _)| *caller == rank)
    }

    /// Ranks that have called.
    pub(super) fn callers(&self) -> Path {
        self.arrivals.iter().map(|(rank, _)| *rank).collect()
    }

    /// Notes a task that is done. `may_be_told`: a rank that asks for the trace may still come.
    pub(super) fn complete(
        &mut self,
        at: Timestamp,
        index: SegmentIndex,
        running: Running,
        counters: TaskCounters,
        may_be_told: bool,
    ) {
        let [work, fetching] = [counters.task_ns, counters.fetch_ns].map(Duration::from_nanos);
        *self.effort.tasks_per_worker.entry(running.executor.rank).or_default() += 1;
        self.effort.bytes_moved += counters.fetched_bytes;
        self.effort.working += work;
        self.effort.fetching += fetching;
        if self.tells_trace || may_be_told {
            self.history.push(Done { index, running, at, work });
        }
    }

    /// The ranks that have done a task.
    fn executors(&self) -> impl Iterator<Item = Rank> {
        self.effort.tasks_per_worker.keys().copied()
    }

    /// What tasks have taken.
    pub(super) fn effort(&self) -> &Effort {
        &self.effort
    }

    /// Adds the effort of a team's tasks.
    pub(super) fn add(&mut self, effort: Effort) {
        let Effort { tasks_per_worker, bytes_moved, working, fetching } = effort;
        for (rank, tasks) in tasks_per_worker {
            let mine = self.effort.tasks_per_worker.entry(rank).or_default();
            *mine = mine.saturating_add(tasks);
        }
        let mine = &mut self.effort;
        mine.bytes_moved = mine.bytes_moved.saturating_add(bytes_moved);
        mine.working = mine.working.saturating_add(working);
        mine.fetching = mine.fetching.saturating_add(fetching);
    }

    /// Notes a task that each of `executors` is about to do; each reads all sources but its own contribution.
    fn leave_to(&mut self, executors: &Path, task: &Task) {
        for rank in executors.iter() {
            *self.effort.tasks_per_worker.entry(rank).or_default() += 1;
            let own = Path::single(rank);
            let others = task.sources.iter().filter(|source| source.path != own);
            self.effort.bytes_moved += others.map(|source| source.data.len()).sum::<u64>();
        }
    }
}

impl Reduction {
    /// Ranks that have called it, whether their contributions count or not.
    pub(crate) fn callers(&self) -> Path {
        self.account.callers().iter().chain(self.called_again()).collect()
    }

    /// The ranks that have done a task of it.
    pub(crate) fn have_done_tasks(&self) -> impl Iterator<Item = Rank> {
        self.account.executors()
    }

    /// Counts the last task for all ranks that are to do it.
    pub(crate) fn count_last(&mut self, last: &Task) {
        let executors = self.spec.delivery.root().map_or_else(|| self.callers(), Path::single);
        self.account.leave_to(&executors, last);
    }

    /// The report of the reduction once it is over.
    pub fn report(&self, now: Timestamp) -> Report {
        let Account { arrivals, effort, history, failures, .. } = &self.account;
        let last_arrival = arrivals.last().map_or(self.started, |(_, at)| *at);
        let since = |at: &Timestamp| at.since(self.started);
        let (mut trace, mut told_arrivals) = (Vec::new(), Vec::new());
        if self.account.tells_trace {
            told_arrivals.extend(arrivals.iter().map(|(rank, at)| (*rank, since(at))));
            trace.extend(history.iter().map(|done| self.record(done)));
        }
        let told = |(at, it): &(Timestamp, FailureRecord)| {
            let restored = if self.account.tells_trace { it.restored.clone() } else { Vec::new() };
            FailureRecord { at: since(at), restored, ..*it }
        };
        Report {
            contributors: self.group.clone(),
            tasks_per_worker: effort.tasks_per_worker.iter().map(|(&rank, &n)| (rank, n)).collect(),
            survived: self.survived.clone(),
            folds_redone: self.account.folds_redone,
            folds: match self.has_pieces() {
                true => 0,
                false => (self.group.len() as u64).saturating_sub(1) * u64::from(self.segments.count()),
            },
            missing: self.missing.clone(),
            protected: self.protected(),
            tasks_doubled: self.account.tasks_doubled,
            bytes_moved: effort.bytes_moved,
            phases: Phases {
                arriving: last_arrival.since(self.started),
                folding: now.since(last_arrival),
                working: effort.working,
                fetching: effort.fetching,
            },
            arrivals: told_arrivals,
            trace,
            failures: failures.iter().map(told).collect(),
        }
    }

    fn record(&self, done: &Done) -> TaskRecord {
        let end = done.at.since(self.started);
        let source = |(process, path): &(ProcessId, Path)| (process.rank, path.clone());
        TaskRecord {
            executor: done.running.executor.rank,
            segment: done.index,
            range: self.range(done.index),
            own: done.running.own.clone(),
            sources: done.running.sources.iter().map(source).collect(),
            start: end.saturating_sub(done.work),
            end,
        }
    }
}
