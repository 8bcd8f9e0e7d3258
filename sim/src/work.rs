//! What processes take time for, and the time that it takes them.

use std::time::Duration;

use everfold_protocol::{
    ProcessId, Rank, ReductionId, TaskId,
    message::{Data, Keep, Piece, Source, Task, TaskCounters, WindowRef},
};
use everfold_worker::machine::Collecting;
use serde::Serialize;

/// Something that takes a process time, and that it does at the end of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum Work {
    Execute(Task),
    Prefetch(ReductionId, u64, Piece),
    Collect(ReductionId, Vec<Piece>, #[serde(skip)] Collecting),
    Keep(Keep),
}

impl Work {
    /// What it is done for.
    pub fn reduction(&self) -> ReductionId {
        match self {
            Self::Execute(task) => task.segment.reduction,
            Self::Prefetch(reduction, ..) | Self::Collect(reduction, ..) => *reduction,
            Self::Keep(keep) => keep.reduction,
        }
    }

    /// What it reads for.
    pub fn purpose(&self) -> Purpose {
        match self {
            Self::Execute(task) => Purpose::Task(task.segment.reduction, task.task),
            Self::Prefetch(reduction, _, part) => Purpose::Part(*reduction, part.range.start),
            Self::Collect(reduction, ..) => Purpose::Result(*reduction),
            Self::Keep(keep) => Purpose::Copy(keep.reduction, keep.source.process.rank, keep.segments.start),
        }
    }

    /// What it reads, and whose that is.
    pub fn reads(&self) -> Vec<(ProcessId, &WindowRef)> {
        let (sources, pieces): (&[Source], &[Piece]) = match self {
            Self::Execute(task) => (&task.sources, &[]),
            Self::Prefetch(_, _, part) => (&[], std::slice::from_ref(part)),
            Self::Collect(_, pieces, _) => (&[], pieces),
            Self::Keep(keep) => (std::slice::from_ref(&keep.source), &[]),
        };
        let sources = sources.iter().map(|source| (source.process, &source.data));
        let all = sources.chain(pieces.iter().map(|piece| (piece.process, &piece.data)));
        all.filter_map(|(process, data)| Some((process, window_of(data)?))).collect()
    }
}

/// What something is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Task(ReductionId, TaskId),
    Part(ReductionId, u64),
    Result(ReductionId),
    Copy(ReductionId, Rank, u32),
}

/// What a piece of work took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Spent {
    /// From taking it up to its end.
    pub all: Duration,
    /// Of these, spent on reading peers.
    pub fetching: Duration,
    /// Whose bytes were there last.
    pub last: Option<Rank>,
    /// When those of all others were there.
    pub others: Duration,
    /// How long the rank has last waited for readers of its body.
    #[serde(skip)]
    pub waited: Duration,
    /// For how long nothing has answered a read, up to now.
    #[serde(skip)]
    pub unanswered: Duration,
}

impl Spent {
    /// What a worker observes of a task for which it read `fetched_bytes`.
    pub fn counters(self, fetched_bytes: u64) -> TaskCounters {
        let [task_ns, fetch_ns, others_ns] =
            [self.all, self.fetching, self.others].map(|time| time.as_nanos() as u64);
        TaskCounters { task_ns, fetch_ns, fetched_bytes, last: self.last, others_ns }
    }
}

/// Whether a piece is here already, or came with the message: `process` copies it over no link.
pub(crate) fn is_at_hand(piece: &Piece, process: ProcessId) -> bool {
    piece.process == process || matches!(piece.data, Data::Inline(_))
}

/// Folds of two partials that a task takes.
pub(crate) fn folds(task: &Task) -> u32 {
    task.sources.len() as u32 - u32::from(task.own.is_empty())
}

fn window_of(data: &Data) -> Option<&WindowRef> {
    match data {
        Data::Window(window) => Some(window),
        Data::Inline(_) | Data::Private => None,
    }
}
