//! Everything that travels between workers, the master and its deputies.
//!
//! Each frame carries one [`Header`] and a batch of messages of one direction. Every message is idempotent or
//! is recognised as stale by its header, its task or its path: the table is in `docs/protocol.md`.

use alloc::{boxed::Box, collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use core::{fmt, ops::Range, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use crate::{
    evidence::{Ending, Evidence, NoReturn, Recovery},
    id::ByteRange,
};
use crate::{
    id::{
        AgentId, Epoch, Generation, Incarnation, JobId, ProcessId, Rank, ReductionId, RegionOffset,
        SegmentId, SegmentIndex, TaskId, WindowId,
    },
    locating::{FromLocator, Located, ToLocator},
    path::Path,
    report::{Refusal, Report},
    spec::{Limits, ReductionSpec},
};

/// Who speaks, in which job, and what membership it knew when it spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// A frame of another job is refused.
    pub job: JobId,
    /// The sender's epoch.
    pub epoch: Epoch,
    /// The sender and its life.
    pub sender: ProcessId,
}

/// Where bytes can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Data {
    /// Right here: the body was small enough to travel.
    Inline(Bytes),
    /// In a window of the process that sent this.
    Window(WindowRef),
    /// Nowhere but at its owner, which folds it itself: the root's own contribution.
    Private,
}

impl Data {
    /// Bytes that can be read here, if any can.
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Window(window) => window.bytes,
            Self::Private => 0,
        }
    }

    /// Whether nothing can be read here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory that peers may read one-sidedly, as its owner published it.
///
/// The bytes do not change until the owner releases the window; `generation` tells a reader that it came too
/// late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowRef {
    /// The window at its owner.
    pub window: WindowId,
    /// Value of the owner's generation counter while the window is valid.
    pub generation: Generation,
    /// Length in bytes.
    pub bytes: u64,
    /// xxh3 of the whole window, where the publisher held the bytes in cache anyway (encoded objects). Arrays
    /// have none: a pass over them to make it would cost as much as folding them.
    pub checksum: Option<u64>,
    /// How a process on the same host reaches it without asking.
    pub place: Place,
}

/// How a process on the same host reaches a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// In the owner's region of shared memory, which peers map.
    Region(RegionOffset),
    /// At this address of the owner's private memory, which peers read with `process_vm_readv`.
    Memory(u64),
    /// Only the owner's server hands it out.
    Served,
}

impl Place {
    /// Whether the bytes stay as they are, and readable on the same host, when their process ends or leaves.
    ///
    /// A region's blocks are not given back then; private memory is.
    pub fn outlives_its_process(self) -> bool {
        matches!(self, Self::Region(_))
    }
}

/// A process's region of shared memory, for peers on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionRef {
    /// File descriptor in that process.
    pub descriptor: i32,
    /// Length in bytes.
    pub bytes: u64,
    /// Where it begins in that process's address space.
    pub address: u64,
    /// Stands at its beginning. Process ids, descriptors and lengths come again; this number does not.
    pub nonce: u128,
}

/// What peers must know of a process to read from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Which process.
    pub process: ProcessId,
    /// Equal for processes that can share memory: same machine, same namespace of process ids, same user.
    pub host: u64,
    /// Process id on that host.
    pub pid: u32,
    /// Its region of shared memory.
    pub region: Option<RegionRef>,
    /// What wakes it up for what is on the board: file descriptor of a pipe in that process.
    pub bell: Option<i32>,
    /// Where the ranks of one host put short contributions, if this process has made one: file descriptor in
    /// it.
    pub board: Option<i32>,
    /// Where its server listens, `host:port`.
    pub address: String,
    /// Label of what its host shares with others, such as a switch: hosts with one label may fail together.
    pub domain: Option<String>,
    /// The agent that holds its region, too, so that the region outlives the process.
    pub agent: Option<AgentRef>,
}

/// How the memory of a process is reached that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRef {
    /// Which agent.
    pub id: AgentId,
    /// Where it serves the regions of its host's processes, `host:port`.
    pub address: String,
}

/// What a worker says to the master.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToMaster {
    /// Takes the sender into the job.
    Join {
        /// How to reach it.
        peer: Peer,
        /// Number of processes in the job, as the sender was told.
        size: u32,
    },
    /// The sender's original is readable: the first reduction message of a reduction (DR §2 def. 4).
    Contribute(Box<Contribution>),
    /// A task is done: the executor's partial with the larger path is readable.
    PartialReady(PartialReady),
    /// A task could not be done; the executor's partial is as it was.
    TaskFailed(TaskFailed),
    /// Answers a ping.
    Pong {
        /// Which.
        number: u64,
    },
    /// The sender has a copy of an original, or can no longer make one.
    Kept(Kept),
    /// The sender has copied the whole result out of the others' windows.
    Collected {
        /// Of which reduction.
        reduction: ReductionId,
        /// Where it is readable at the sender, if it was asked to lend it.
        body: Option<Data>,
    },
    /// The sender could not copy the whole result.
    NotCollected(NotCollected),
    /// How long a reduction took at the sender, from its call to its outcome. It is said before the next call
    /// of that class.
    Took {
        /// Which.
        reduction: ReductionId,
        /// How long.
        took: Duration,
    },
    /// How a reduction has ended is in the sender's result log, which outlives its process. A process that has
    /// come in place of another one says so of all that it finds there.
    Noted {
        /// Which reduction.
        reduction: ReductionId,
    },
    /// The sender is a deputy, and all of its team have contributed.
    Opened(Box<Opened>),
    /// The sender is a deputy, and these segments of its team are folded.
    Parts {
        /// Of which attempt.
        reduction: ReductionId,
        /// What lies where.
        parts: Vec<Part>,
        /// What all of it has taken, with the last of them.
        effort: Option<Effort>,
    },
    /// An attempt in teams gets nowhere, as far as the sender can tell.
    Dissolve {
        /// Which.
        reduction: ReductionId,
        /// Who takes part in it.
        group: Path,
    },
    /// The sender starts no more reductions. It goes on with those that it has called.
    Closing,
    /// The sender's reductions have ended; it no longer serves windows.
    Leave,
    /// This agent has a replica of the sender's vault. From now on, what the sender says that it has noted is
    /// there, too.
    Replicated {
        /// Which.
        agent: AgentId,
    },
    /// This agent has no replica of the sender's vault, or has none any more. What the sender says from now on
    /// that it has noted is in no replica.
    NotReplicated {
        /// Which.
        agent: AgentId,
        /// Why not, for people.
        reason: String,
    },
    /// The sender, which has come in place of another process, has done again all that this one had noted.
    CaughtUp(Comeback),
}

/// What it has cost a process to be where an earlier one of its rank was when it died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comeback {
    /// To get what the earlier one has left from another host; nothing on the same one.
    pub transfer: Duration,
    /// To read the checkpoint.
    pub load: Duration,
    /// To do again what the earlier one had done since that checkpoint.
    pub again: Duration,
}

/// One rank's entry into a reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contribution {
    /// Which reduction.
    pub reduction: ReductionId,
    /// The name behind the id.
    pub name: String,
    /// What the caller believes that all agreed on.
    pub spec: ReductionSpec,
    /// Where the original is readable.
    pub data: Data,
}

/// A team's entry into a reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Which attempt.
    pub reduction: ReductionId,
    /// The name behind the id.
    pub name: String,
    /// What the team agrees on.
    pub spec: ReductionSpec,
    /// Length of its segments in bytes.
    pub segment_bytes: u64,
}

/// A segment that holds the contributions of a whole team.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Which.
    pub index: SegmentIndex,
    /// Who holds it.
    pub process: ProcessId,
    /// Where it is readable.
    pub data: Data,
}

/// What a team's tasks have taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// Tasks done by each rank.
    pub tasks_per_worker: BTreeMap<Rank, u64>,
    /// Bytes read from peers.
    pub bytes_moved: u64,
    /// Time spent on tasks, and of that on reading peers, summed over the ranks.
    pub working: Duration,
    #[allow(missing_docs)]
    pub fetching: Duration,
}

/// A task is done and its result readable.
///
/// `process`'s window keeps unchanged until the reduction ends. Duplicates are harmless: a task is completed
/// once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartialReady {
    /// The task that made it.
    pub task: TaskId,
    /// Of which segment.
    pub segment: SegmentId,
    /// What is folded into it.
    pub path: Path,
    /// Where it is readable.
    pub data: Data,
    /// Perf counters of the task.
    pub counters: TaskCounters,
}

/// What became of a copy of an original.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Of which reduction.
    pub reduction: ReductionId,
    /// Whose original.
    pub owner: ProcessId,
    /// Which of its segments.
    pub segments: Range<u32>,
    /// Where the copy is readable, or why there is none.
    pub result: Result<Data, NotKept>,
}

/// The result of a reduction could not be copied as a whole: the process that holds a piece of it could not
/// be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotCollected {
    /// Which reduction.
    pub reduction: ReductionId,
    /// Who could not be reached.
    pub culprit: ProcessId,
    /// What kind of failure it is.
    pub fault: Fault,
    /// What went wrong, for people.
    pub reason: String,
    /// What the sender has instead, if it is an array.
    pub body: Option<HalfBody>,
}

/// An array into which a part of the result was copied: the sender's contribution, or its partial where the
/// result is copied beside that. It is readable until the reduction ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HalfBody {
    /// Where it is readable.
    pub data: Data,
    /// The bytes before this one are the result.
    pub collected: u64,
    /// The bytes from this one on are as they were before.
    pub untouched: u64,
}

/// Why there is no copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotKept {
    /// The owner could not be reached: another attempt may succeed, or its death explains it.
    Unreachable,
    /// It cannot be kept here; the reason is for people.
    Impossible(String),
}

impl From<String> for NotKept {
    fn from(reason: String) -> Self {
        Self::Impossible(reason)
    }
}

/// What a worker observed while it did a task (DR §1, performance counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounters {
    /// From taking the task up to having its data ready, in nanoseconds.
    pub task_ns: u64,
    /// Of these, spent on reading peers.
    pub fetch_ns: u64,
    /// Bytes read from peers.
    pub fetched_bytes: u64,
    /// Whose bytes were the last to be there.
    pub last: Option<Rank>,
    /// When those of all others were, counted from the start.
    pub others_ns: u64,
}

/// A task could not be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailed {
    /// Which task.
    pub task: TaskId,
    /// Of which segment.
    pub segment: SegmentId,
    /// Whose data could not be read or combined.
    pub culprit: ProcessId,
    /// Whose contributions these were, if that is known better than by who held them; else empty.
    pub suspects: Path,
    /// What kind of failure it is.
    pub fault: Fault,
    /// What went wrong, for people.
    pub reason: String,
}

/// Why a task could not be done, as far as that decides what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The culprit could not be reached: another attempt may succeed, or its death explains it.
    Unreachable,
    /// Who holds the culprit's memory, which is the culprit or its agent, says that this is there no more.
    Gone,
    /// The culprit's copy is damaged; another one may do.
    Damaged,
    /// Bytes changed while they were folded, and spoilt the executor's own partial: it is to be put together
    /// again.
    Torn,
    /// The data does not fit together. Doing it again does not help.
    Unfit,
}

/// What the master says to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Are you there?
    Ping {
        /// Comes back in the answer.
        number: u64,
    },
    /// The receiver was declared failed, wrongly as it turns out. Nothing it says counts any more.
    Fenced,
    /// Make a copy of an original while its owner lives.
    Keep(Keep),
    /// Something happened that the application may want to know.
    News(News),
    /// Everybody is here.
    Welcome {
        /// All processes of the job, by rank.
        peers: Arc<[Peer]>,
        /// What holds in this job.
        limits: Limits,
    },
    /// The receiver cannot be taken into the job.
    Unwelcome {
        /// Why, for people.
        reason: String,
    },
    /// Not everybody came in time; there will be no job.
    Incomplete {
        /// Who is missing.
        missing: Path,
    },
    /// Read those partials and fold them into yours.
    Task(Task),
    /// The reduction ended well.
    Finished(Box<Finished>),
    /// The reduction ended in an error, or this rank's part in it was refused.
    Refused {
        /// Which reduction.
        reduction: ReductionId,
        /// Why.
        refusal: Refusal,
    },
    /// Others lend the result: the receiver's application may have the body.
    HandOver {
        /// Of which reduction.
        reduction: ReductionId,
    },
    /// Everyone has collected the result: windows may go.
    Release {
        /// Of which reduction.
        reduction: ReductionId,
    },
    /// An attempt in teams is over without a result: contribute as usual.
    Dissolved {
        /// Which.
        reduction: ReductionId,
    },
    /// A process was declared failed: it is fenced from now on. The frame's epoch is the new one.
    Departed {
        /// Which.
        process: ProcessId,
        /// What spoke for it.
        evidence: Evidence,
    },
    /// A rank whose process was declared failed has come back. The frame's epoch is the new one.
    Returned {
        /// Its process from now on.
        peer: Peer,
    },
    /// No reduction needs the memory of this process any more, which was declared failed.
    Forget {
        /// Which.
        process: ProcessId,
    },
    /// An agent is gone, and with it the memory of all processes of its host, also of those that had failed
    /// before. Those that lived are declared failed, each by itself.
    AgentLost {
        /// Which.
        agent: AgentId,
    },
    /// The sender may disconnect.
    Farewell,
    /// Keep a replica of your vault with this agent, of another host, and none elsewhere.
    Replicate {
        /// Which.
        to: AgentRef,
    },
}

/// Where a process finds what an earlier one of its rank has left: a replica of that one's vault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Whose vault.
    pub process: ProcessId,
    /// Who has the replica.
    pub agent: AgentRef,
}

/// What an agent says to the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    /// The agent holds the memory of its host's processes from now on.
    Join(Lodging),
    /// A process on its host has ended.
    Ended {
        /// Which.
        process: ProcessId,
        /// How.
        ending: Ending,
    },
    /// Answers a ping.
    Pong {
        /// Which.
        number: u64,
    },
    /// Something about faults that are located.
    Locating(FromLocator),
}

/// What a host offers to ranks of other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lodging {
    /// Where its agent serves, `host:port`, if it can start ranks.
    pub address: Option<String>,
    /// Label of what the host shares with others.
    pub domain: Option<String>,
}

/// What the master says to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Are you there?
    Ping {
        /// Comes back in the answer.
        number: u64,
    },
    /// No reduction needs the memory of this process any more, which has ended or was declared failed.
    Forget {
        /// Which.
        process: ProcessId,
    },
    /// Start this process: its rank is to come back.
    Start {
        /// Which.
        process: ProcessId,
        /// Where its vault comes from, if that is not the one on this host.
        origin: Option<Origin>,
    },
    /// The rank of this process, which has died here, is started on another host. How it has ended does not count.
    Moved {
        /// Which.
        process: ProcessId,
    },
    /// The job is over.
    Farewell,
    /// The agent is taken in.
    Welcome {
        /// What holds in this job.
        limits: Limits,
    },
    /// Nobody needs the replica of this process's vault any more.
    DropReplica {
        /// Which.
        process: ProcessId,
    },
    /// Something about faults that are located.
    Locating(ToLocator),
}

/// Make a copy of an original while its owner lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Keep {
    /// Of which reduction.
    pub reduction: ReductionId,
    /// Whose original, and where it is readable.
    pub source: Source,
    /// Which of its segments.
    pub segments: Range<u32>,
    /// How the copy is kept.
    pub how: KeepAs,
}

/// Something happened in the job that the application may want to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum News {
    /// A process was declared failed and is fenced.
    Failed {
        /// Which rank.
        rank: Rank,
        /// What spoke for it.
        evidence: Evidence,
    },
    /// A host is lost, with all of its processes. Each of them that took part [fails](News::Failed), too.
    HostLost {
        /// The ranks that lived there.
        ranks: Path,
    },
    /// All hosts of a domain are lost, one after the other, and there were several: most likely they can only
    /// not be reached.
    DomainLost {
        /// Its label.
        domain: String,
        /// The ranks that lived there.
        ranks: Path,
    },
    /// A rank whose process had failed has come back.
    Returned {
        /// Which rank.
        rank: Rank,
        /// How often it has come back.
        incarnation: Incarnation,
    },
    /// A rank whose process has failed does not come back, in a job whose ranks do.
    NotReturned {
        /// Which rank.
        rank: Rank,
        /// Why not.
        reason: NoReturn,
    },
    /// It is known how a process has ended that was declared failed before.
    Ended {
        /// Which rank.
        rank: Rank,
        /// How.
        ending: Ending,
    },
    /// A reduction ended well although processes died that had contributed to it.
    Recovered {
        /// Name of the reduction.
        name: String,
        /// Who died.
        ranks: Path,
        /// The part of its folds that had to be done again, 0 if none.
        redone: u64,
    },
    /// A process is much slower with a task than its counters said, or than others with such a task; it is
    /// done elsewhere, too.
    Slow {
        /// Which rank.
        rank: Rank,
        /// Name of the reduction.
        name: String,
    },
    /// An original has no replica although one was asked for.
    Unprotected {
        /// Whose original.
        rank: Rank,
        /// Name of the reduction.
        name: String,
        /// Who could not keep it, and why, for people.
        reason: String,
    },
    /// A fault was located, or something of the application that looks like one.
    Located(Arc<Located>),
    /// An outcome of this rank could not be noted. If its process dies before its next checkpoint, it does not
    /// come back.
    CannotReturn {
        /// Which rank: the one that hears it.
        rank: Rank,
        /// Why not.
        reason: String,
    },
    /// A rank that has come back is where it was when its process died.
    CaughtUp {
        /// Which rank.
        rank: Rank,
        /// How long ago that process was declared failed, or the first of those that have died since the rank was
        /// here last.
        lost: Duration,
        /// What it has cost the process that has come back.
        comeback: Comeback,
    },
    /// A rank whose process has failed is started on another host.
    Migrates {
        /// Which rank.
        rank: Rank,
        /// Where the agent of that host serves, `host:port`.
        to: String,
    },
    /// A recovery cannot be done; the next one in the list is tried.
    Passed {
        /// Of which rank.
        rank: Rank,
        /// Which recovery.
        recovery: Recovery,
        /// Why not.
        reason: NoReturn,
    },
    /// No other host has a replica of the vault of this rank. If its host is lost before there is one again, the
    /// rank does not come back.
    Unreplicated {
        /// Which rank: the one that hears it.
        rank: Rank,
        /// Why not, for people.
        reason: String,
    },
    /// The plan of checkpoints does not fit the program. From now on this rank saves at its interval, and it
    /// saves at once.
    PlanMisfit {
        /// Which rank: the one that hears it.
        rank: Rank,
        /// Why not.
        reason: String,
    },
    /// A checkpoint of all ranks is complete in the directory of checkpoints.
    CheckpointComplete {
        /// Its number.
        generation: u64,
    },
    /// A checkpoint of all ranks is not in the directory of checkpoints. The one before stays there.
    CheckpointIncomplete {
        /// Its number.
        generation: u64,
        /// Who could not write.
        rank: Rank,
        /// Why not, for people.
        reason: String,
    },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { rank, evidence } => write!(f, "rank {rank} failed: {evidence}"),
            Self::HostLost { ranks } => write!(f, "the host of ranks {ranks} is lost"),
            Self::DomainLost { domain, ranks } => {
                write!(f, "all hosts of domain {domain:?} are lost: those of ranks {ranks}")
            }
            Self::Returned { rank, incarnation } => write!(f, "rank {rank} has come back ({incarnation})"),
            Self::CaughtUp { rank, lost, comeback: Comeback { transfer, load, again } } => write!(
                f,
                "rank {rank} is where it was, {lost:.1?} after its death: transfer {transfer:.1?}, load {load:.1?}, done again \
                 {again:.1?}"
            ),
            Self::NotReturned { rank, reason } => write!(f, "rank {rank} does not come back: {reason}"),
            Self::CannotReturn { rank, reason } => {
                write!(f, "rank {rank} cannot come back before its next checkpoint: {reason}")
            }
            Self::PlanMisfit { rank, reason } => {
                write!(f, "the plan of checkpoints does not fit the program of rank {rank}: {reason}")
            }
            Self::CheckpointComplete { generation } => {
                write!(f, "generation {generation} is complete in the directory of checkpoints")
            }
            Self::CheckpointIncomplete { generation, rank, reason } => write!(
                f,
                "generation {generation} is not in the directory of checkpoints, as rank {rank} could not write: {reason}"
            ),
            Self::Ended { rank, ending } => write!(f, "of rank {rank}, which failed: {ending}"),
            Self::Migrates { rank, to } => write!(f, "rank {rank} is started on another host, that of {to}"),
            Self::Passed { rank, recovery, reason } => {
                write!(
                    f,
                    "recovery {recovery} of rank {rank} cannot be done: {reason}; the next one is tried"
                )
            }
            Self::Unreplicated { rank, reason } => {
                write!(f, "rank {rank} has no replica on another host: {reason}")
            }
            Self::Recovered { name, ranks, redone } => {
                write!(f, "reduction {name:?} survived the death of ranks {ranks}; {redone} folds redone")
            }
            Self::Slow { rank, name } => {
                write!(f, "rank {rank} is slow with reduction {name:?}; its task is done elsewhere, too")
            }
            Self::Located(located) => located.fmt(f),
            Self::Unprotected { rank, name, reason } => {
                write!(f, "the contribution of rank {rank} to {name:?} has no replica: {reason}")
            }
        }
    }
}

/// Read those partials and fold them into yours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Identifies the task in its answer.
    pub task: TaskId,
    /// Which segment of which reduction.
    pub segment: SegmentId,
    /// Where the segment lies in the body; meaningless for objects, which are one piece.
    pub range: ByteRange,
    /// What the executor's own partial is believed to hold. Empty: its bytes are of no use any more, and the
    /// sources alone become its partial.
    pub own: Path,
    /// What to fold into it.
    pub sources: Vec<Source>,
}

/// How copies of originals are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepAs {
    /// Length of each segment of the original in bytes, of the last one at most; 0 for objects, which are one
    /// piece.
    pub segment_bytes: u64,
    /// When it is written to the keeper's disk.
    pub writing: Writing,
}

/// When a copy is written to its keeper's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Writing {
    /// Not at all: it stays in memory.
    Never,
    /// After it was acknowledged.
    Behind,
    /// Before it is acknowledged.
    Through,
}

/// A partial to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Whose.
    pub process: ProcessId,
    /// What it holds.
    pub path: Path,
    /// Where it is readable.
    pub data: Data,
}

/// The reduction ended well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Which reduction.
    pub reduction: ReductionId,
    /// Where the result lies, segment by segment: for those who are to have it and do not hold it.
    pub result: Vec<Piece>,
    /// What makes the result of the receiver's partial: for those who are to have it, if all that is left to
    /// be folded travels inlined. Nobody waits for an answer.
    pub last: Option<Task>,
    /// Whether those who have copied it lend it to others until they are told otherwise.
    pub lend: bool,
    /// Whether they copy it beside their contributions, which stay readable until all have it. If pieces are
    /// lost before, the contributions of those who live can be folded once more, without what is lost.
    pub beside: bool,
    /// What the master has learnt from such reductions, and wants to learn.
    pub learning: Learning,
    /// What happened.
    pub report: Report,
}

/// How the next reduction of a [class](crate::class::Class) is to be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learning {
    /// Whether bodies are to come inlined, however long they are.
    pub inlines: bool,
    /// Whether the caller is to tell how long this reduction took.
    pub asks: bool,
}

/// A finished segment of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// Where it belongs in the body, and lies in what can be read; of a contribution that is not folded, only the
    /// latter.
    pub range: ByteRange,
    /// Who holds it.
    pub process: ProcessId,
    /// Where it is readable.
    pub data: Data,
}

/// Whom the master's messages name as their sender: it is no rank's process.
pub const MASTER: ProcessId = ProcessId { rank: Rank(u32::MAX), incarnation: Incarnation(u32::MAX) };
