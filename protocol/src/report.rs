//! The report of a reduction that has ended well, and the refusal of one that has not.

use alloc::{borrow::ToOwned, format, string::String, vec::Vec};
use core::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    evidence::Evidence,
    id::{ByteRange, Rank, SegmentIndex},
    path::Path,
    spec::Aspect,
};

/// The account of a reduction that ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The ranks whose contributions are in the result.
    pub contributors: Path,
    /// Number of tasks of each rank that has executed any; told to the ranks that receive the result. If more
    /// than 64 receive it, only the first of them is told.
    pub tasks_per_worker: Vec<(Rank, u64)>,
    /// Ranks that died after they had contributed and before the result was handed out, and whose
    /// contributions count nevertheless.
    pub survived: Path,
    /// Folds of two partials that had to be done again because their result was lost: it went with a process
    /// that died, or was damaged, or its executor spoilt it.
    pub folds_redone: u64,
    /// Folds of two partials that a reduction without failures takes: one less than there are contributors,
    /// per segment.
    pub folds: u64,
    /// Ranks of the group whose contributions are missing in the result; empty unless the caller allowed it.
    pub missing: Path,
    /// Contributors whose contributions another process had copied or folded when the result was handed out,
    /// as far as the master was told.
    pub protected: Path,
    /// Tasks that were given to a second process because the first was late.
    pub tasks_doubled: u64,
    /// Bytes that executors read from other processes' data, or that came to them with their tasks.
    pub bytes_moved: u64,
    /// Where the time went.
    pub phases: Phases,
    /// When each rank's contribution came, counted from the first, if the caller asked for a trace.
    pub arrivals: Vec<(Rank, Duration)>,
    /// Every task in order of completion, if the caller asked for it.
    pub trace: Vec<TaskRecord>,
    /// Every death that the reduction met and survived, in the order in which the master learned of them.
    pub failures: Vec<FailureRecord>,
}

/// Where the time went, by the master's clock; of short contributions that the ranks of one host fold without
/// it, by that of the host, up to the fold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// From the first contribution to the last: how unevenly the ranks arrived.
    pub arriving: Duration,
    /// From the last contribution to the last fold. Folding starts with the second contribution already, so
    /// this is the rest.
    pub folding: Duration,
    /// The sum of the times of all tasks at their executors; over several processes it may exceed the wall
    /// clock.
    pub working: Duration,
    /// Of `working`, the time spent on reading peers.
    pub fetching: Duration,
}

/// One task, for timelines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The rank that executed it.
    pub executor: Rank,
    /// Which segment.
    pub segment: SegmentIndex,
    /// Which bytes of the body.
    pub range: ByteRange,
    /// The contributions in the executor's partial before.
    pub own: Path,
    /// The contributions that it read, and their owners.
    pub sources: Vec<(Rank, Path)>,
    /// Start, counted from the first contribution.
    pub start: Duration,
    /// End, counted from the first contribution.
    pub end: Duration,
}

/// A death in the middle of a reduction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// The rank that died.
    pub rank: Rank,
    /// When the master learned it, counted from the first contribution.
    pub at: Duration,
    /// The evidence of it: the process has ended, and how; it was silent; or it went with its host.
    pub evidence: Evidence,
    /// Parts of segments that no live partial held any more, if the caller asked for a trace.
    pub restored: Vec<Restored>,
}

/// A part of a segment that was put together again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Which segment.
    pub segment: SegmentIndex,
    /// The contributions that were lost with the dead process's partials.
    pub path: Path,
    /// The copies that were queued in their place, and their owners.
    pub copies: Vec<(Rank, Path)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks: u64 = self.tasks_per_worker.iter().map(|(_, tasks)| tasks).sum();
        write!(
            f,
            "{} contributors {}, {} bytes moved; arriving {:.1?}, folding {:.1?}",
            self.contributors.len(),
            self.contributors,
            self.bytes_moved,
            self.phases.arriving,
            self.phases.folding,
        )?;
        if !self.tasks_per_worker.is_empty() {
            write!(f, "; {tasks} tasks on {} workers", self.tasks_per_worker.len())?;
        }
        if !self.survived.is_empty() {
            let redone = 100.0 * self.fraction_redone();
            write!(f, "; survived the death of {}", self.survived)?;
            for (index, FailureRecord { rank, evidence, .. }) in self.failures.iter().enumerate() {
                let before = if index == 0 { " (" } else { "; " };
                write!(f, "{before}{rank}: {evidence}")?;
            }
            let end = if self.failures.is_empty() { "" } else { ")" };
            write!(f, "{end}, {redone:.1} % of the folds redone")?;
        }
        if !self.missing.is_empty() {
            write!(f, "; missing: {}", self.missing)?;
        }
        Ok(())
    }
}

impl Report {
    /// The report for ranks that do not receive the result: without tasks and their trace, which grow with
    /// the job.
    pub fn brief(&self) -> Self {
        let brief = |failure: &FailureRecord| FailureRecord { restored: Vec::new(), ..*failure };
        Self {
            contributors: self.contributors.clone(),
            tasks_per_worker: Vec::new(),
            survived: self.survived.clone(),
            missing: self.missing.clone(),
            protected: self.protected.clone(),
            arrivals: Vec::new(),
            trace: Vec::new(),
            failures: self.failures.iter().map(brief).collect(),
            ..*self
        }
    }

    /// The part of the folds that had to be done again because processes died: 0 without failures, 1 if
    /// everything was done twice.
    pub fn fraction_redone(&self) -> f64 {
        if self.folds == 0 { 0.0 } else { self.folds_redone as f64 / self.folds as f64 }
    }
}

impl Refusal {
    /// Ranks whose contributions did not come or are lost, if that is the reason.
    pub fn absent(&self) -> Option<&Path> {
        match self {
            Self::ProcessFailed { ranks } | Self::ContributionLost { ranks } | Self::RanksLeft { ranks } => {
                Some(ranks)
            }
            _ => None,
        }
    }

    /// The same where a rank has the result already, or may have: it must not be said then that contributions
    /// are lost, have not come, or cannot be folded.
    #[must_use]
    pub fn beside_a_result(self) -> Self {
        match self {
            Self::ProcessFailed { ranks } | Self::ContributionLost { ranks } | Self::RanksLeft { ranks } => {
                Self::ResultLost { ranks }
            }
            Self::FoldFailed { path, .. } => Self::ResultLost { ranks: path },
            Self::DeadlineExceeded { deadline, .. } => {
                Self::DeadlineExceeded { deadline, missing: Path::empty() }
            }
            other => other,
        }
    }
}

/// What a reduction was waiting for when its deadline passed.
fn waiting_for(missing: &Path) -> String {
    match missing.is_empty() {
        true => "while the result was folded or copied".to_owned(),
        false => format!("before ranks {missing} had contributed"),
    }
}

/// Why a reduction ended without a value. Nothing of it is counted anywhere, unless the result is lost, or
/// the deadline has passed while it was copied: then other ranks may have received it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Two ranks called the same reduction with different arguments. All ranks hear it.
    #[error(
        "ranks disagree on {aspect} of reduction {name:?} (call {sequence}): rank {first} says {first_says}, \
         rank {other} says {other_says}; give every rank the same arguments, and different reductions different names"
    )]
    Mismatch {
        /// Name of the reduction.
        name: String,
        /// How often that name was used before.
        sequence: u64,
        /// What differs.
        aspect: Aspect,
        /// The rank that came first.
        first: Rank,
        /// Its value.
        first_says: String,
        /// The rank that differs from it.
        other: Rank,
        /// Its value.
        other_says: String,
    },
    /// The root would never receive the result.
    #[error("root {root} is not in the group {group}: name a root that is")]
    RootOutsideGroup {
        /// The root.
        root: Rank,
        /// The group.
        group: Path,
    },
    /// The caller is not in the group.
    #[error(
        "rank {rank} calls a reduction of the group {group}, but is not in it: call it on ranks of the group only"
    )]
    CallerOutsideGroup {
        /// The caller.
        rank: Rank,
        /// The group.
        group: Path,
    },
    /// The group has ranks that this job does not have.
    #[error("the group {group} has ranks that this job does not have: name ranks below {size}")]
    UnknownRanks {
        /// The group.
        group: Path,
        /// Number of ranks in the job.
        size: u32,
    },
    /// Nobody would contribute.
    #[error("the group is empty: name at least one rank")]
    EmptyGroup,
    /// Nobody would receive the result.
    #[error("the list of roots is empty: name at least one rank of the group that is to receive the result")]
    NoRoots,
    /// The root has nothing to broadcast or to scatter.
    #[error("rank {root} is the root and gives nothing: give the pieces at the root, and none at the others")]
    NoPiece {
        /// The root.
        root: Rank,
    },
    /// A rank that is not the root has something to broadcast or to scatter.
    #[error("rank {rank} gives pieces, but the root is rank {root}: give none at the other ranks")]
    NotTheRoot {
        /// The rank.
        rank: Rank,
        /// The root.
        root: Rank,
    },
    /// There is not one piece for each rank of the group.
    #[error(
        "rank {rank} gives {pieces} pieces to a group of {ranks} ranks: give one for each, in their order"
    )]
    WrongPieces {
        /// Who gives them.
        rank: Rank,
        /// How many.
        pieces: u64,
        /// Ranks of the group.
        ranks: u64,
    },
    /// An array cannot be cut into pieces of the same length.
    #[error(
        "the array of rank {rank} has {length} elements, which cannot be cut evenly for {ranks} ranks: give a multiple, or \
         a piece for each rank"
    )]
    Uneven {
        /// Whose array.
        rank: Rank,
        /// Number of its elements.
        length: u64,
        /// Ranks of the group.
        ranks: u64,
    },
    /// There is nothing to reduce.
    #[error("the body of rank {rank} has no elements: give at least one")]
    EmptyBody {
        /// Whose body.
        rank: Rank,
    },
    /// The body is over the job's limit.
    #[error(
        "the body of rank {rank} has {bytes} bytes; the limit of this job is {limit} (Config::body_bytes_max)"
    )]
    BodyTooLarge {
        /// Whose body.
        rank: Rank,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The rank has too many reductions in flight.
    #[error("rank {rank} has {limit} reductions in flight, which is the limit; await some of them first")]
    TooManyReductions {
        /// Who.
        rank: Rank,
        /// The limit.
        limit: u64,
    },
    /// Processes of the group died before they contributed, or the root died. A group of the others can go
    /// on.
    #[error(
        "ranks {ranks} of the group died before they contributed, or before they received the result: call again with a \
         group of the others, or with allow_missing"
    )]
    ProcessFailed {
        /// Who.
        ranks: Path,
    },
    /// Processes died with the only copy of their contributions. Another call without these ranks can
    /// succeed.
    #[error(
        "no copy is left of the contributions of ranks {ranks}, which died: call again with the survivors, or with \
         allow_missing"
    )]
    ContributionLost {
        /// Who.
        ranks: Path,
    },
    /// The result was there, and went with the processes that held it before every rank had copied it. Others
    /// may have it.
    #[error("the result cannot be put together again without ranks {ranks}; others may have received it")]
    ResultLost {
        /// Whose contributions went with it, or who held it and cannot be reached.
        ranks: Path,
    },
    /// Ranks of the group closed their sessions without contributing.
    #[error(
        "ranks {ranks} closed their sessions without contributing: make each call on all ranks of its group, or name a \
         group without them"
    )]
    RanksLeft {
        /// Who.
        ranks: Path,
    },
    /// The deadline passed before this rank had the result. Ranks that had copied it by then have received
    /// it.
    #[error("the deadline of {deadline:?} passed {}", waiting_for(missing))]
    DeadlineExceeded {
        /// The deadline, from the first contribution.
        deadline: Duration,
        /// Who had not contributed; empty if all had, and folding or copying the result took too long.
        missing: Path,
    },
    /// A body could not be read or combined.
    #[error("rank {executor} could not fold the contribution of ranks {path}: {reason}")]
    FoldFailed {
        /// Who tried.
        executor: Rank,
        /// Whose contributions made it fail. If several were about to meet, all that may have; those that
        /// were combined well before are named only if there are no others.
        path: Path,
        /// What went wrong.
        reason: String,
    },
    /// This process has come in place of one that has called the same with other arguments.
    #[error(
        "rank {rank} has come back, and calls reduction {name:?} (call {sequence}) with other arguments than \
         before; between two checkpoints a program has to do the same again"
    )]
    Diverged {
        /// The rank.
        rank: Rank,
        /// Name of the reduction.
        name: String,
        /// How often that name was used before.
        sequence: u64,
    },
    /// It was refused before this rank called it, and the master has refused so many since that it only knows
    /// that.
    #[error(
        "this reduction ended in an error before this rank called it, so long ago that the master has forgotten which"
    )]
    Over,
}
