//! Events that go into the master, actions that come out, and notices for watchers.

use everfold_protocol::{
    AgentId, Path, ProcessId, ReductionId,
    message::{Evidence, FromAgent, Header, News, ToAgent, ToMaster, ToWorker},
    report::Refusal,
};

use crate::located::Fault;

/// Something happened. There are few at a time.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Event {
    /// A worker said something.
    Message {
        /// The sender, and its epoch.
        header: Header,
        /// What.
        message: ToMaster,
    },
    /// A worker's connection broke. After it left this is expected; before, it is evidence of its death.
    Disconnected(ProcessId),
    /// An agent said something.
    Agent(AgentId, FromAgent),
    /// An agent's connection broke: its host is lost, or will soon be.
    AgentLost(AgentId),
    /// The root of those that locate faults has located one that is about hosts or a link, or says that one
    /// is over.
    Located {
        /// Which.
        fault: Fault,
        /// Whether it is over.
        over: bool,
    },
}

/// Something is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Tell a worker.
    Send {
        /// Whom.
        to: ProcessId,
        /// What.
        message: ToWorker,
    },
    /// Tell an agent.
    SendAgent {
        /// Which.
        to: AgentId,
        /// What.
        message: ToAgent,
    },
    /// Close the connection to an agent that has no business here any more.
    DisconnectAgent(AgentId),
    /// At a deputy: tell the master.
    Report(ToMaster),
    /// Close the connection to a process that has no business here any more.
    Disconnect(ProcessId),
    /// Tell the watchers.
    Notice(Notice),
    /// All members have left or failed: the master is no longer needed.
    Done,
}

/// An event for watchers. Logs, metrics and test assertions all come from these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// All expected processes are in the job.
    Complete {
        /// How many.
        ranks: u32,
    },
    /// A process was declared failed.
    Failed {
        /// Which.
        process: ProcessId,
        /// What spoke for it.
        evidence: Evidence,
    },
    /// The group of a reduction was told something.
    News(News),
    /// A rank whose process had failed has come back as this one.
    Returned(ProcessId),
    /// A process left the job in good order.
    Left(ProcessId),
    /// A message was dropped because its sender, task or reduction is no longer current.
    Stale {
        /// Its sender.
        sender: ProcessId,
        /// Its kind.
        what: &'static str,
    },
    /// A reduction ended in an error for these ranks.
    Refused {
        /// Which.
        reduction: ReductionId,
        /// The ranks that heard it.
        ranks: Path,
        /// Why.
        refusal: Refusal,
    },
    /// An attempt in teams was dissolved; its group contributes as usual.
    Dissolved(ReductionId),
    /// A reduction ended well.
    Finished(ReductionId),
}
