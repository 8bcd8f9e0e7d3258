//! What is going to happen, in the order of time.

use std::{cmp::Reverse, collections::BinaryHeap};

use everfold_protocol::{
    Epoch, ProcessId, Rank, ReductionId, Timestamp,
    message::{Keep, MASTER_RANK, Piece, Task, ToMaster, ToWorker},
};
use serde::Serialize;

use crate::{
    faults::{Cut, Disk, Limp},
    timing::{Spent, Tick},
    world::Call,
};

/// Something that happens at one moment.
#[derive(Debug, Serialize)]
pub(crate) enum Happening {
    Call(Box<Call>),
    /// A message of this process, sent at this epoch, reaches the master.
    ToMaster(ProcessId, Epoch, Box<ToMaster>),
    /// A message that the master sent at this epoch reaches this process.
    ToWorker(ProcessId, Epoch, Box<ToWorker>),
    /// The time that this process takes for it has passed.
    Done(ProcessId, Box<(Work, Spent)>),
    /// Something happens inside of a modelled cluster.
    Tick(Tick),
    Die(ProcessId),
    /// A process on the master's host dies, and the master hears that before anything that it had sent.
    LetGo(ProcessId),
    /// A host goes without a word: no connection of its processes breaks.
    LoseHost(u64),
    Freeze(Rank),
    Thaw(Rank),
    Cut(Box<Cut>),
    Heal(Box<Cut>),
    Limp(Rank, Limp),
    Disk(Rank, Disk),
    Disconnected(ProcessId),
    /// This process's connection to the master breaks.
    MasterLost(ProcessId),
    Close(Rank),
    Timeout,
    WorkerTimeout(Rank),
}

/// Something that takes a process time, and that it does at the end of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum Work {
    Execute(Task),
    Collect(ReductionId, Vec<Piece>),
    Keep(Keep),
}

impl Work {
    /// What it is done for.
    pub fn reduction(&self) -> ReductionId {
        match self {
            Self::Execute(task) => task.segment.reduction,
            Self::Collect(reduction, _) => *reduction,
            Self::Keep(keep) => keep.reduction,
        }
    }
}

impl Happening {
    /// Whether it happens only because time passes.
    pub fn is_idle(&self) -> bool {
        match self {
            Self::Timeout | Self::WorkerTimeout(_) => true,
            Self::ToMaster(.., message) => matches!(**message, ToMaster::Pong { .. }),
            Self::ToWorker(.., message) => matches!(**message, ToWorker::Ping { .. }),
            _ => false,
        }
    }

    /// Whose process it happens in; frozen processes do nothing.
    pub fn place(&self) -> Option<Rank> {
        match self {
            Self::Call(call) => Some(call.rank),
            Self::ToWorker(process, ..) | Self::Done(process, _) | Self::MasterLost(process) => {
                Some(process.rank)
            }
            Self::Close(rank) | Self::WorkerTimeout(rank) => Some(*rank),
            // The master and its worker share a process.
            Self::ToMaster(..) | Self::Disconnected(_) | Self::Timeout => Some(MASTER_RANK),
            Self::Tick(_) | Self::Die(_) | Self::LetGo(_) | Self::LoseHost(_) => None,
            Self::Freeze(_)
            | Self::Thaw(_)
            | Self::Cut(_)
            | Self::Heal(_)
            | Self::Limp(..)
            | Self::Disk(..) => None,
        }
    }

    /// Whose process it comes from and whose it goes to, if it travels over a network.
    pub fn way(&self) -> Option<(Rank, Rank)> {
        match self {
            Self::ToMaster(from, ..) | Self::Disconnected(from) => Some((from.rank, MASTER_RANK)),
            Self::ToWorker(to, ..) | Self::MasterLost(to) => Some((MASTER_RANK, to.rank)),
            _ => None,
        }
    }

    /// Whether it comes from the process's own clock.
    pub fn is_alarm(&self) -> bool {
        matches!(self, Self::Timeout | Self::WorkerTimeout(_))
    }
}

/// All that is going to happen, by due time and then in the order in which it was made.
#[derive(Debug)]
pub(crate) struct Heap<T> {
    heap: BinaryHeap<Reverse<Due<T>>>,
    made: u64,
}

#[derive(Debug)]
struct Due<T> {
    at: Timestamp,
    order: u64,
    what: T,
}

impl<T> Heap<T> {
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), made: 0 }
    }

    pub fn push(&mut self, at: Timestamp, what: T) {
        self.made += 1;
        self.heap.push(Reverse(Due { at, order: self.made, what }));
    }

    pub fn pop(&mut self) -> Option<(Timestamp, T)> {
        self.heap.pop().map(|Reverse(due)| (due.at, due.what))
    }
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<T> Eq for Due<T> {}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
