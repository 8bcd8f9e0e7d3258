//! Tasks: they are done exactly on the partial that the master believes is here (I1).

use everfold_protocol::{
    Path, ProcessId, ReductionId, SegmentIndex, TaskId,
    message::{Data, Fault, PartialReady, Task, TaskCounters, TaskFailed, ToMaster},
};

use super::{
    Action, End, ExecutionError, Worker,
    local::{Local, State},
};

impl Worker {
    pub(super) fn task(&mut self, task: Task, deputy: Option<ProcessId>) {
        let (reduction, index) = (task.segment.reduction, task.segment.index);
        let own = Path::single(self.process.rank);
        let held = match self.reductions.get(&reduction.called()) {
            Some(local) if !local.expects(reduction, deputy) => return,
            Some(Local { held, state: State::Running, .. }) => held.get(&index).unwrap_or(&own),
            // It ended here while the task was under way; the master hears the same.
            _ => return,
        };
        let fits = *held == task.own || task.own.is_empty();
        // A deputy is to be believed less than the master.
        let path = path_of(&task).filter(|_| fits && !self.tasks.contains_key(&task.task));
        let Some(path) = path.filter(|_| self.busy.insert((reduction, index))) else {
            let reason = format!("the task expects a partial of {}, this rank holds {held}", task.own);
            let culprit = self.process;
            self.answer(
                deputy,
                ToMaster::TaskFailed(TaskFailed {
                    task: task.task,
                    segment: task.segment,
                    culprit,
                    suspects: Path::empty(),
                    fault: Fault::Unfit,
                    reason,
                }),
            );
            return;
        };
        self.begin(task, path, deputy);
    }

    pub(super) fn begin(&mut self, task: Task, path: Path, deputy: Option<ProcessId>) {
        self.tasks.insert(task.task, (task.segment, path, deputy));
        self.actions.push_back(Action::Execute(task));
    }

    pub(super) fn executed(&mut self, id: TaskId, result: Result<(Data, TaskCounters), ExecutionError>) {
        let (segment, path, deputy) = self.tasks.remove(&id).expect("only tasks under way are executed");
        self.busy.remove(&(segment.reduction, segment.index));
        let reduction = segment.reduction.called();
        self.renew_if_idle(reduction);
        let goes_on = |local: &&mut Local| local.is_in_teams() == segment.reduction.is_in_teams();
        let Some(local) = self.reductions.get_mut(&reduction).filter(goes_on) else {
            return;
        };
        if let State::Folding { report } = &mut local.state {
            let report = core::mem::take(report);
            self.stop_clock(reduction);
            let end = result.map_or_else(End::ResultLost, |_| End::Received(*report));
            return self.end(reduction, end);
        }
        let message = match result {
            Ok((data, counters)) => {
                local.held.insert(segment.index, path.clone());
                ToMaster::PartialReady(PartialReady { task: id, segment, path, data, counters })
            }
            Err(ExecutionError { culprit, suspects, fault, reason }) => {
                ToMaster::TaskFailed(TaskFailed { task: id, segment, culprit, suspects, fault, reason })
            }
        };
        let awaited = local.awaited.take();
        self.answer(deputy, message);
        awaited.into_iter().for_each(|finished| self.finished(*finished));
    }

    pub(super) fn is_busy(&self, reduction: ReductionId) -> bool {
        let all = (reduction, SegmentIndex(0))..=(reduction, SegmentIndex(u32::MAX));
        self.busy.range(all).next().is_some()
    }
}

/// The path of the executor's partial once a task is done; `None` if a contribution would count twice in it.
pub(super) fn path_of(task: &Task) -> Option<Path> {
    Path::union_of(task.sources.iter().map(|source| &source.path).chain([&task.own])).ok()
}
