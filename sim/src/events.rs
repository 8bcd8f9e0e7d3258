//! What is going to happen, in the order of time.

use std::collections::VecDeque;

use everfold_protocol::{
    Epoch, ProcessId, Rank, ReductionId, Timestamp,
    message::{Keep, MASTER_RANK, Piece, Task, ToMaster, ToWorker},
};
use everfold_worker::machine::Collecting;
use serde::Serialize;

use crate::{
    faults::{Cut, Disk, Gap, Limp},
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
    /// A message to a deputy, and of whom.
    ToDeputy(Rank, ProcessId, Box<ToMaster>),
    /// A task of a deputy, and whose.
    OfDeputy(Rank, ProcessId, Box<Task>),
    /// A rank sees its connection to a deputy break.
    DeputyLost(Rank, ProcessId),
    /// A rank makes a body an original again, once it does nothing more with it.
    Renew(ProcessId, ReductionId),
    /// The time that this process takes for it has passed.
    Done(ProcessId, Box<(Work, Spent)>),
    /// Something happens inside of a modelled cluster.
    Tick(Tick),
    Die(ProcessId),
    /// A process dies, and so many of its messages that are under way to the master still arrive.
    Crash(ProcessId, u64),
    /// A process on the master's host dies, and the master hears that before anything that it had sent.
    LetGo(ProcessId),
    /// A process leaves its job without a word, and lives on.
    Abandon(ProcessId),
    /// A host goes without a word: no connection of its processes breaks.
    LoseHost(u64),
    Freeze(Rank),
    Thaw(Rank),
    Cut(Box<Cut>),
    Heal(Box<Cut>),
    /// Two hosts do not reach each other's memory any more.
    Part(Gap),
    /// They do again.
    Meet(Gap),
    /// So many reads of what this rank holds arrive damaged.
    Garble(Rank, u32),
    Limp(Rank, Limp),
    Disk(Rank, Disk),
    /// What a rank keeps of others is damaged.
    Spoil(Rank),
    Disconnected(ProcessId),
    /// The master takes in what has come to it, in one go.
    Turn,
    /// This process's connection to the master breaks.
    MasterLost(ProcessId),
    Close(Rank),
    /// A rank that has completed a round on the board wakes up this one, and then the next.
    Ring(Rank, Rank),
    /// A rank is woken up for what is on the board.
    Bell(Rank),
    /// The master looks at the board.
    Look,
    Timeout,
    WorkerTimeout(Rank),
    DeputyTimeout(Rank),
}

/// Something that takes a process time, and that it does at the end of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum Work {
    Execute(Task),
    Collect(ReductionId, Vec<Piece>, #[serde(skip)] Collecting),
    Keep(Keep),
}

impl Work {
    /// What it is done for.
    pub fn reduction(&self) -> ReductionId {
        match self {
            Self::Execute(task) => task.segment.reduction,
            Self::Collect(reduction, ..) => *reduction,
            Self::Keep(keep) => keep.reduction,
        }
    }
}

impl Happening {
    /// Whether it happens only because time passes.
    pub fn is_idle(&self) -> bool {
        match self {
            Self::Timeout | Self::WorkerTimeout(_) | Self::DeputyTimeout(_) | Self::Look => true,
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
            Self::Close(rank) | Self::WorkerTimeout(rank) | Self::DeputyTimeout(rank) => Some(*rank),
            Self::ToDeputy(rank, ..) | Self::OfDeputy(rank, ..) | Self::DeputyLost(rank, _) => Some(*rank),
            Self::Renew(process, _) | Self::Abandon(process) => Some(process.rank),
            Self::Ring(rank, _) | Self::Bell(rank) => Some(*rank),
            // The master and its worker share a process.
            Self::ToMaster(..) | Self::Disconnected(_) | Self::Timeout | Self::Look | Self::Turn => {
                Some(MASTER_RANK)
            }
            Self::Spoil(_) | Self::Tick(_) | Self::Die(_) | Self::Crash(..) | Self::LetGo(_) => None,
            Self::LoseHost(_) | Self::Freeze(_) => None,
            Self::Thaw(_) | Self::Cut(_) | Self::Heal(_) | Self::Limp(..) | Self::Disk(..) => None,
            Self::Part(_) | Self::Meet(_) | Self::Garble(..) => None,
        }
    }

    /// Whose process it comes from and whose it goes to, if it travels over a network.
    pub fn way(&self) -> Option<(Rank, Rank)> {
        match self {
            Self::ToMaster(from, ..) | Self::Disconnected(from) => Some((from.rank, MASTER_RANK)),
            Self::ToWorker(to, ..) | Self::MasterLost(to) => Some((MASTER_RANK, to.rank)),
            Self::ToDeputy(to, from, _) | Self::OfDeputy(to, from, _) => Some((from.rank, *to)),
            _ => None,
        }
    }

    /// Whether it comes from the process's own clock.
    pub fn is_alarm(&self) -> bool {
        matches!(self, Self::Timeout | Self::WorkerTimeout(_) | Self::DeputyTimeout(_) | Self::Look)
    }
}

/// All that is going to happen, by due time and then in the order in which it was made.
///
/// A radix heap: nothing is due before what was taken last. An event lies in the bucket of the highest bit in which its
/// time differs from that one's, and moves down as time comes closer.
#[derive(Debug)]
pub(crate) struct Heap<T> {
    /// Those that are due at `last`.
    now: VecDeque<T>,
    /// By highest differing bit, each in the order in which they were made.
    later: [Vec<(Timestamp, T)>; 64],
    /// Bit by bit, whether there are some.
    filled: u64,
    last: Timestamp,
}

impl<T> Heap<T> {
    pub fn new() -> Self {
        Self { now: VecDeque::new(), later: [const { Vec::new() }; 64], filled: 0, last: Timestamp::ZERO }
    }

    /// Adds what happens `at` a time that is not before what was taken last.
    pub fn push(&mut self, at: Timestamp, what: T) {
        assert!(at >= self.last, "time never runs back");
        match (at.as_nanos() ^ self.last.as_nanos()).checked_ilog2() {
            None => self.now.push_back(what),
            Some(bit) => {
                self.later[bit as usize].push((at, what));
                self.filled |= 1 << bit;
            }
        }
    }

    pub fn pop(&mut self) -> Option<(Timestamp, T)> {
        if self.now.is_empty() {
            if self.filled == 0 {
                return None;
            }
            // All buckets below are empty: what moves there comes before what will be made.
            let lowest = self.filled.trailing_zeros();
            self.filled &= self.filled - 1;
            let mut nearest = std::mem::take(&mut self.later[lowest as usize]);
            self.last = nearest.iter().map(|(at, _)| *at).min()?;
            for (at, what) in nearest.drain(..) {
                self.push(at, what);
            }
            // Its memory is used again.
            self.later[lowest as usize] = nearest;
        }
        self.now.pop_front().map(|what| (self.last, what))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_in_which_they_were_made() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let (mut heap, mut sorted) = (Heap::new(), BTreeSet::new());
        let (mut made, mut now) = (0u64, 0);
        for _ in 0..10_000 {
            let far = random.random_range(0..63);
            for _ in 0..random.random_range(0..3) {
                let at = now + random.random_range(0..=u64::MAX >> (1 + far)) / 1000;
                heap.push(Timestamp::from_nanos(at), made);
                sorted.insert((at, made));
                made += 1;
            }
            let taken = heap.pop().map(|(at, what)| (at.as_nanos(), what));
            assert_eq!(taken, sorted.pop_first());
            now = taken.map_or(now, |(at, _)| at);
        }
        while let Some((at, what)) = heap.pop() {
            assert_eq!(Some((at.as_nanos(), what)), sorted.pop_first());
        }
        assert!(sorted.is_empty() && made > 5_000);
    }
}
