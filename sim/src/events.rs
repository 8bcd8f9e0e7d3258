//! What happens in a world.

use everfold_agent::Event as AgentEvent;
use everfold_master::located::Fault;
use everfold_protocol::{
    Epoch, ProcessId, Rank, ReductionId, ReductionSpec,
    message::{FromAgent, Task, ToAgent, ToMaster, ToWorker},
};
use serde::Serialize;

use crate::{
    faults::{Cut, Damage, Disk, Gap, Limp},
    work::{Spent, Work},
};

/// Where something happens, comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Place {
    /// At this rank.
    Rank(Rank),
    /// At the agent of this host.
    Agent(u64),
    /// At the master, which is in the agent of its host.
    Master,
}

/// Where something comes from or goes to over a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The host of this process.
    Process(ProcessId),
    /// The host of the latest process of this rank.
    Rank(Rank),
    Host(u64),
    /// The host of the master.
    Master,
}

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
    /// The connection between a process and the master breaks, and both live.
    Break(ProcessId),
    /// A host goes without a word: no connection of its processes breaks.
    LoseHost(u64),
    /// The agent of a host dies, and the ranks there with it.
    EndHost(u64),
    Freeze(Place),
    Thaw(Place),
    /// What the agent of this host says reaches the master.
    FromAgent(u64, FromAgent),
    /// The agent of this host takes something in.
    AtAgent(u64, AgentEvent),
    /// The master sees its connection to the agent of this host break.
    AgentLost(u64),
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
    /// The agent of this host has started this process, in place of one that has ended.
    Start(u64, ProcessId),
    /// A process joins that has hailed its agent.
    Joins(ProcessId),
    /// A process that has come back makes those calls again that it has missed.
    Replay(ProcessId),
    /// The program of a process ends that takes part no more.
    Exit(ProcessId),
    /// How a call has ended gets into the result log.
    Note(ProcessId, ReductionId),
    /// A process hears that it is there.
    Noted(ProcessId, ReductionId),
    /// The program of a process saves a checkpoint, if no call of its is open.
    Saves(ProcessId),
    /// This copy of a process's vault is over.
    Copied(ProcessId, u64),
    /// A process that was started to stand by follows the first one of its rank.
    Follows(ProcessId),
    /// It dies.
    Falls(ProcessId),
    /// It takes the place of the first one.
    Takes(ProcessId),
    /// The master hears that a fault was located, or is over.
    Located(Box<Fault>, bool),
    /// The program of a rank comes to this recovery segment.
    Begins(Rank, u32),
    /// A process goes on with this recovery segment.
    Compute(ProcessId, u32),
    /// A process ends that has not joined.
    EndsEarly(ProcessId),
    /// What this rank holds, or keeps of others, arrives damaged from now on.
    Damage(Rank, Damage),
    /// It does so no longer.
    Mend(Rank, Damage),
    /// The agent of this host looks no longer for a master that it has not found.
    GivesUp(u64),
}

impl Happening {
    /// Whether it happens only because time passes.
    pub fn is_idle(&self) -> bool {
        match self {
            Self::Timeout | Self::WorkerTimeout(_) | Self::DeputyTimeout(_) | Self::Look => true,
            Self::ToMaster(.., message) => matches!(**message, ToMaster::Pong { .. }),
            Self::ToWorker(.., message) => matches!(**message, ToWorker::Ping { .. }),
            Self::FromAgent(_, said) => matches!(said, FromAgent::Pong { .. }),
            Self::AtAgent(_, event) => matches!(event, AgentEvent::Master(ToAgent::Ping { .. })),
            _ => false,
        }
    }

    /// In whose process it happens; frozen processes do nothing.
    pub fn place(&self) -> Option<Place> {
        let at = |rank: &Rank| Some(Place::Rank(*rank));
        match self {
            Self::Call(call) => at(&call.rank),
            Self::ToWorker(process, ..) | Self::Done(process, _) | Self::MasterLost(process) => {
                at(&process.rank)
            }
            Self::Joins(process)
            | Self::Replay(process)
            | Self::Exit(process)
            | Self::Note(process, _)
            | Self::Copied(process, _)
            | Self::Saves(process)
            | Self::Noted(process, _)
            | Self::Compute(process, _) => at(&process.rank),
            Self::Start(host, _) => Some(Place::Agent(*host)),
            Self::Close(rank) | Self::WorkerTimeout(rank) | Self::DeputyTimeout(rank) => at(rank),
            Self::Begins(rank, _) => at(rank),
            Self::ToDeputy(rank, ..) | Self::OfDeputy(rank, ..) | Self::DeputyLost(rank, _) => at(rank),
            Self::Renew(process, _) | Self::Abandon(process) => at(&process.rank),
            Self::Ring(rank, _) | Self::Bell(rank) => at(rank),
            Self::ToMaster(..) | Self::Disconnected(_) | Self::FromAgent(..) | Self::AgentLost(_) => {
                Some(Place::Master)
            }
            Self::Timeout | Self::Look | Self::Turn | Self::Located(..) => Some(Place::Master),
            Self::AtAgent(host, _) => Some(Place::Agent(*host)),
            Self::Spoil(_) | Self::Tick(_) | Self::Die(_) | Self::Crash(..) | Self::LetGo(_) => None,
            Self::LoseHost(_) | Self::EndHost(_) | Self::Break(_) | Self::Freeze(_) => None,
            Self::Thaw(_) | Self::Cut(_) | Self::Heal(_) | Self::Limp(..) | Self::Disk(..) => None,
            Self::Part(_) | Self::Meet(_) | Self::Garble(..) | Self::Damage(..) | Self::Mend(..) => None,
            Self::Follows(_) | Self::Falls(_) | Self::Takes(_) | Self::EndsEarly(_) => None,
            Self::GivesUp(_) => None,
        }
    }

    /// Where it comes from and where it goes, if it travels over a network.
    pub fn way(&self) -> Option<(End, End)> {
        match self {
            Self::ToMaster(from, ..) | Self::Disconnected(from) => Some((End::Process(*from), End::Master)),
            Self::ToWorker(to, ..) | Self::MasterLost(to) => Some((End::Master, End::Process(*to))),
            Self::FromAgent(host, _) | Self::AgentLost(host) => Some((End::Host(*host), End::Master)),
            Self::AtAgent(host, AgentEvent::Master(_) | AgentEvent::MasterLost) => {
                Some((End::Master, End::Host(*host)))
            }
            Self::ToDeputy(to, from, _) | Self::OfDeputy(to, from, _) => {
                Some((End::Process(*from), End::Rank(*to)))
            }
            _ => None,
        }
    }

    /// Whether the master hears it.
    pub fn is_for_master(&self) -> bool {
        matches!(self, Self::ToMaster(..) | Self::Disconnected(_) | Self::FromAgent(..) | Self::AgentLost(_))
            || matches!(self, Self::Located(..))
    }

    /// Whether it comes from the process's own clock.
    pub fn is_alarm(&self) -> bool {
        matches!(self, Self::Timeout | Self::WorkerTimeout(_) | Self::DeputyTimeout(_) | Self::Look)
    }
}
