//! News of the job for the application.

use alloc::{string::String, sync::Arc};
use core::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::to_master::Comeback;
use crate::{
    evidence::{Ending, Evidence, NoReturn, Recovery},
    id::{Incarnation, Rank},
    locating::Located,
    path::Path,
};

/// An event of the job for the application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum News {
    /// A process was declared failed and is fenced.
    Failed {
        /// Which rank.
        rank: Rank,
        /// The evidence of its death.
        evidence: Evidence,
    },
    /// A host is lost, with all of its processes. Each of them that took part [fails](News::Failed), too.
    HostLost {
        /// The ranks that lived there.
        ranks: Path,
    },
    /// All hosts of a domain are lost, one after the other, and there were several: most likely they live on
    /// and cannot be reached.
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
        /// The number of its process, above that of each earlier one: how often it has come back, if none of them
        /// stood by.
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
        /// The ranks that died.
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
        /// The keeper that could not keep it, and why, for people.
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
    /// A rank that has come back has repeated all calls that its earlier processes had noted: it is where its
    /// process died.
    CaughtUp {
        /// Which rank.
        rank: Rank,
        /// How long ago that process was declared failed, or the first of those that have died since the rank was
        /// here last.
        lost: Duration,
        /// The time that the process which has come back has spent.
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
    /// A checkpoint that was being written while the program went on could not be written. The one before stays in
    /// force, and the rank tries again at its next one.
    CheckpointUnwritten {
        /// Of which rank: the one that hears it.
        rank: Rank,
        /// Its number.
        generation: u64,
        /// Why not, for people.
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
        /// The rank that could not write.
        rank: Rank,
        /// Why not, for people.
        reason: String,
    },
    /// A process follows this rank on another host, and takes its place if its own one dies.
    StandsBy {
        /// Which rank.
        rank: Rank,
        /// Where the agent of that host serves, `host:port`.
        at: String,
    },
    /// No process follows this rank, although one was asked for, or none does any more.
    NoStandby {
        /// Which rank.
        rank: Rank,
        /// Why not, for people.
        reason: String,
    },
    /// The process that has followed a rank takes its place, as its own one has failed.
    Promoted {
        /// Which rank.
        rank: Rank,
        /// Where the agent of its host serves, `host:port`.
        at: String,
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
            Self::CheckpointUnwritten { rank, generation, reason } => {
                write!(f, "generation {generation} of rank {rank} could not be written: {reason}")
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
            Self::StandsBy { rank, at } => {
                write!(f, "a standby of rank {rank} follows it on the host of {at}")
            }
            Self::NoStandby { rank, reason } => write!(f, "rank {rank} has no standby: {reason}"),
            Self::Promoted { rank, at } => {
                write!(f, "the standby of rank {rank} takes its place, on the host of {at}")
            }
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
