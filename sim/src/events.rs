//! What happens in a world.

use everfold_protocol::{
    Epoch, ProcessId, Rank, ReductionId, ReductionSpec,
    message::{MASTER_RANK, Task, ToMaster, ToWorker},
};
use serde::Serialize;

use crate::{
    faults::{Cut, Disk, Gap, Limp},
    work::{Spent, Work},
};

/// A rank's call of a reduction.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// Who calls.
    pub rank: Rank,
    /// The reduction's name.
    pub name: String,
    /// How often the rank called that name before.
    pub sequence: u64,
    /// What it believes that all agreed on.
    pub spec: ReductionSpec,
    /// Whether the body travels in the message.
    pub inline: bool,
}

/// Something that happens inside a modelled cluster.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Tick {
    /// A request for bytes reaches the node that has them.
    Request { job: u32, from: u32, bytes: u64 },
    /// A node's port can send its next chunk.
    Pump(u32),
    /// What was asked for at a node has arrived.
    Arrived { job: u32, from: u32 },
}

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
