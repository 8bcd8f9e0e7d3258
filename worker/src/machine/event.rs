//! The events that a rank's machine takes in, and the actions that it wants done.

use alloc::{
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

use everfold_protocol::{
    AgentId, Path, ProcessId, ReductionId, TaskId,
    message::{
        AgentRef, Comeback, Contribution, Data, Evidence, Fault, HalfBody, Header, Keep, Kept, News, Peer,
        Piece, Task, TaskCounters, ToMaster, ToWorker,
    },
    report::{Refusal, Report},
    spec::Limits,
};

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// The application calls a reduction; its original is readable.
    Call(Contribution),
    /// The master said something.
    Master {
        /// The sender, and its epoch.
        header: Header,
        /// What.
        message: ToWorker,
    },
    /// A deputy of the master has a task.
    Deputy(ProcessId, Task),
    /// The body of this call, which was tried in teams, is the original again that it was.
    Renewed(ReductionId),
    /// The connection to a deputy broke.
    DeputyLost(ProcessId),
    /// A task is done; the partial is readable as `Data`.
    Executed {
        /// Which task.
        task: TaskId,
        /// Where the partial is readable, and what doing it cost.
        result: Result<(Data, TaskCounters), ExecutionError>,
    },
    /// A part of a result was copied here beforehand, or could not be.
    Prefetched {
        /// Of which reduction.
        reduction: ReductionId,
        /// Where the part begins.
        start: u64,
        /// Where the copied part of the result is readable, if it is.
        body: Option<Data>,
    },
    /// The result of a reduction was copied here, or could not be.
    Collected {
        /// Which reduction.
        reduction: ReductionId,
        /// Whether it worked.
        result: Result<Collected, ExecutionError>,
    },
    /// A call that was on the board is for the master, which has taken it from there, or is to be told.
    OffBoard {
        /// The contribution.
        contribution: Contribution,
        /// Whether the master has it.
        taken: bool,
    },
    /// A copy of an original is there, or cannot be made.
    Kept(Kept),
    /// How this reduction has ended is in the result log.
    Noted(ReductionId),
    /// How this reduction has ended is in the result log since an earlier process of this rank was here: it
    /// may have died before it could say so. To be told of all that is in the log, before the first call.
    Recalled(ReductionId),
    /// All that earlier processes of this rank have noted is done again.
    CaughtUp(Comeback),
    /// A checkpoint is in force.
    Saved,
    /// The vault lacks an outcome that could not be noted: no later process can go on from it until the next
    /// checkpoint.
    Unnoted {
        /// Why, for people.
        reason: String,
    },
    /// All that was in the vault when a [copy](Action::Copy) was asked for is in its replica, or why there is
    /// none.
    Copied {
        /// Who has it.
        agent: AgentId,
        /// Number of the copy.
        number: u64,
        /// Whether the copy is there, or why not.
        result: Result<(), String>,
    },
    /// The application calls no more reductions.
    Close,
    /// The connection to the master broke.
    MasterLost,
}

/// Why a task was not done. The partial it was to grow is as it was (I4), unless the fault is `Torn`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("data of {culprit}: {reason}")]
pub struct ExecutionError {
    /// Whose data could not be read or combined.
    pub culprit: ProcessId,
    /// The ranks with the suspected contributions, if they are not simply those that the culprit held; else
    /// empty.
    pub suspects: Path,
    /// What kind of failure it is.
    pub fault: Fault,
    /// What went wrong.
    pub reason: String,
}

impl ExecutionError {
    /// Whether another attempt may succeed: the bytes could not be reached, perhaps at this place only, or
    /// were damaged when they were read.
    fn may_pass(&self) -> bool {
        matches!(self.fault, Fault::Unreachable | Fault::Gone | Fault::Damaged)
    }

    /// The outcome of copying a result that met this error: a part of it, which `body` shows, if another try
    /// may succeed.
    ///
    /// # Errors
    /// The error itself, if it will not pass.
    pub fn into_collected(self, body: impl FnOnce() -> Option<HalfBody>) -> Result<Collected, Self> {
        match self.may_pass() {
            true => Ok(Collected::Part { body: body(), error: self }),
            false => Err(self),
        }
    }

    /// Data of `culprit` does not fit.
    pub fn blame(culprit: ProcessId, reason: impl core::fmt::Display) -> Self {
        Self { culprit, suspects: Path::empty(), fault: Fault::Unfit, reason: reason.to_string() }
    }
}

/// How much of a result was copied here.
#[derive(Debug)]
pub enum Collected {
    /// All of it. Where others can read it here, if they may have to.
    Whole(Option<Data>),
    /// What could be reached.
    Part {
        /// What became of this rank's body, if it is an array.
        body: Option<HalfBody>,
        /// What could not be reached.
        error: ExecutionError,
    },
}

/// How a result is copied here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collecting {
    /// Whether it is copied over this rank's partial, and its contribution stays as it is until the result
    /// goes to the application.
    pub beside: bool,
    /// Whether the bytes that were copied before are of another result.
    pub afresh: bool,
}

/// Something is to be done.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Tell the master.
    Send(ToMaster),
    /// Tell a deputy.
    Tell(ProcessId, ToMaster),
    /// Wait no longer for what tasks of this call read for an attempt in teams.
    GiveUp(ReductionId),
    /// Make the body of this call an original again, as it was when it was called; answer with
    /// [`Event::Renewed`].
    Renew(ReductionId),
    /// An attempt in teams is over: tell the deputy here, if there is one.
    Over(ReductionId),
    /// All ranks have joined: connect to them.
    Meet {
        /// All processes of the job, by rank.
        peers: Arc<[Peer]>,
        /// What holds in this job.
        limits: Limits,
    },
    /// The master does not take this process into the job.
    Unwelcome(String),
    /// The job did not come about.
    Incomplete {
        /// The ranks that did not come.
        missing: Path,
    },
    /// Read the sources and fold them into this rank's partial; answer with [`Event::Executed`].
    Execute(Task),
    /// Copy this part of a result here, and lend it; answer with [`Event::Prefetched`].
    Prefetch {
        /// Of which reduction.
        reduction: ReductionId,
        /// Length of the whole result in bytes.
        bytes: u64,
        /// The part.
        part: Piece,
    },
    /// Copy these pieces here; answer with [`Event::Collected`].
    Collect {
        /// Of which reduction.
        reduction: ReductionId,
        /// The pieces, and where they lie.
        pieces: Vec<Piece>,
        /// How.
        how: Collecting,
    },
    /// The application's future ends.
    Resolve {
        /// Which call.
        reduction: ReductionId,
        /// How.
        end: End,
    },
    /// Note in the result log how this call has ended; answer with [`Event::Noted`]. Only then does its future
    /// end.
    Note {
        /// Which call.
        reduction: ReductionId,
        /// How.
        end: End,
    },
    /// What an earlier process has noted of this call counts: the application may be answered from the result
    /// log.
    Counts(ReductionId),
    /// From now on copies go to this agent, which has nothing yet.
    Replicate(AgentRef),
    /// Bring the replica of this rank's vault up to date; answer with [`Event::Copied`].
    Copy {
        /// Who has it.
        agent: AgentId,
        /// Which of the copies it is. What answers a later one answers the earlier ones, too.
        number: u64,
    },
    /// No process reads this reduction's windows any more.
    Release(ReductionId),
    /// Make these copies; answer with [`Event::Kept`].
    Keep(Keep),
    /// A process was declared failed.
    Departed {
        /// Which.
        process: ProcessId,
        /// What spoke for it.
        evidence: Evidence,
    },
    /// A rank whose process was declared failed has come back as this one.
    Returned(Peer),
    /// Unmap the memory of this process, which was declared failed: no reduction needs it any more.
    Forget(ProcessId),
    /// Read no more memory of this agent's host: it is gone.
    AgentLost(AgentId),
    /// Something that the application may want to know.
    News(News),
    /// This rank takes part no more; [`Worker::gone`](super::Worker::gone) tells why.
    Closed,
}

/// Why a worker takes part no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It left in good order.
    Left,
    /// The agent that hosts the master is gone, or was silent for too long.
    MasterLost,
    /// It was declared failed.
    Fenced,
}

/// How a reduction ended for this rank.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// Well; others have the result.
    Finished(Report),
    /// Well; this rank's body is the result.
    Received(Report),
    /// Refused.
    Refused(Refusal),
    /// The agent that hosts the master is gone, or was silent for too long.
    MasterLost,
    /// This process was declared failed: it, or the agent of its host, was silent for too long.
    Fenced,
    /// The session was closed before.
    Closed,
    /// The result exists, but could not be copied here.
    ResultLost(ExecutionError),
}

impl From<Gone> for End {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Left => Self::Closed,
            Gone::MasterLost => Self::MasterLost,
            Gone::Fenced => Self::Fenced,
        }
    }
}

impl End {
    /// Whether it is noted where ranks come back: a later process of this rank would hear the same.
    pub(super) fn is_noted(&self) -> bool {
        matches!(self, Self::Finished(_) | Self::Received(_) | Self::Refused(_))
    }
}
