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
    /// The load on its executor and on the owners from which it reads.
    pub load: Load,
    /// From when on it may be late.
    pub late: Timestamp,
}

/// A task that its executor works on.
#[derive(Clone, Debug)]
pub struct Running {
    /// Which task.
    pub task: TaskId,
    /// The process that works on it.
    pub executor: ProcessId,
    /// The path of the executor's partial before.
    pub own: Path,
    /// The paths that it reads, and their owners.
    pub sources: Vec<(ProcessId, Path)>,
    /// What its result will hold.
    pub path: Path,
    /// The load on its executor and on the owners from which it reads.
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
    /// Whether its result still counts if it comes first: its sources are unchanged, and no task folds a part
    /// of the partials put in its place with others.
    pub counts: bool,
}

/// A task that came to nothing.
#[derive(Clone, Debug)]
pub(crate) enum Undone {
    /// Its result was waited for.
    Awaited(Running),
    /// It was given up before.
    GivenUp(Abandoned),
}

impl Undone {
    /// The task.
    pub fn running(&self) -> &Running {
        match self {
            Self::Awaited(running) | Self::GivenUp(Abandoned { running, .. }) => running,
        }
    }
}

/// What becomes of the result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The load of the task.
    pub load: Load,
    /// Number of partials that have met in it.
    pub partials: usize,
    /// Whether it counts: no other process was faster, and it is still of use.
    pub counts: bool,
}
