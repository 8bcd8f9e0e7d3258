//! A task, from its grant to its answer.

use alloc::{string::String, vec::Vec};

use everfold_protocol::{Path, ProcessId, TaskId, Timestamp, report::Refusal};

use crate::lane::Load;

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
    /// Whether its result still counts if it comes first: what it reads is as it was, and nobody folds a part
    /// of what was put in its place with something else.
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
