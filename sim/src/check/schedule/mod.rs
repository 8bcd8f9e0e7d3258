//! What a run does, as plain data.
//!
//! Times are in microseconds from the moment when all have joined. A schedule can be printed, edited and
//! executed again; only delays and chance mishaps still come from its seed. What goes wrong is in `trouble`,
//! how ranks come back in `returning`, and recovery segments in `segments`.

mod returning;
mod segments;
mod trouble;

use std::time::Duration;

use everfold_protocol::{
    Path, Rank, ReductionSpec,
    pieces::{Cut, Pattern},
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection},
};
use serde::{Deserialize, Serialize};

pub use self::{
    returning::{Migrating, Remedy, Returning, Standing},
    segments::PlannedSegment,
    trouble::{Fault, Trouble},
};
use crate::settings::{Stage, Wakes};

/// Everything that a run does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// What delays and chance mishaps are drawn from.
    pub seed: u64,
    /// Host of each rank; ranks of one host share memory. The master is on that of rank 0.
    pub hosts: Vec<u32>,
    /// In how many domains the hosts are, in turn; 0 if they have no labels.
    #[serde(default, skip_serializing_if = "is_default")]
    pub domains: u32,
    /// Whether each host has an agent that holds the memory of its ranks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub agents: bool,
    /// Whether agents are in the processes that have started the ranks of their hosts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parents: bool,
    /// Within which time from the very beginning agents join.
    #[serde(default, skip_serializing_if = "is_default")]
    pub agents_join_us: u64,
    /// How ranks come back whose processes have died, if they do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub returns: Option<Returning>,
    /// Processes that end before they join. Then there is no job: nothing is called, and only deaths of others
    /// and of hosts happen besides.
    #[serde(default, skip_serializing_if = "is_default")]
    pub early_ends: Vec<EarlyEnd>,
    /// Whether ranks that are all on one host put short contributions on a board.
    #[serde(default, skip_serializing_if = "is_default")]
    pub board: bool,
    /// Ranks that cannot map it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub boardless: Vec<u32>,
    /// Ranks whose bodies lie in memory of their own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub private: Vec<u32>,
    /// Ranks whose shared memory has no room for partials.
    #[serde(default, skip_serializing_if = "is_default")]
    pub full: Vec<u32>,
    /// Ranks that can open no windows but those on their bodies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub windowless: Vec<u32>,
    /// Longest body that may lie on the board.
    #[serde(default = "board_bytes", skip_serializing_if = "is_usual")]
    pub board_bytes: u64,
    /// Time that each rank takes for a task.
    pub task_us: Vec<u64>,
    /// How often the master pings; 0 if it does not.
    pub ping_interval_us: u64,
    /// Shortest and longest time of a message.
    pub latency_us: (u64, u64),
    /// Longest time that a rank takes to copy a result, besides that of a message.
    #[serde(default, skip_serializing_if = "is_default")]
    pub collect_us: u64,
    /// Segments of a result that a rank copies at a time; 0 if it copies all at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub collect_segments: u32,
    /// Whether a copy that fails may leave a segment half overwritten.
    #[serde(default, skip_serializing_if = "is_default")]
    pub halves: bool,
    /// Ranks that have no room for a result when they first copy it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub crowded: Vec<u32>,
    /// How often a process fails to keep a copy.
    #[serde(default, skip_serializing_if = "is_default")]
    pub keep_failures_percent: u32,
    /// How often a copy is damaged when it is read, and a fold spoils its executor's partial.
    #[serde(default, skip_serializing_if = "is_default")]
    pub damage_percent: u32,
    /// How long messages wait for the master, which then takes in all that have come.
    #[serde(default, skip_serializing_if = "is_default")]
    pub batch_us: u64,
    /// What a process does first after a time in which it did not run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wakes: Wakes,
    /// How the master cuts, batches and waits.
    pub pacing: Pacing,
    /// What is reduced.
    #[serde(default)]
    pub reductions: Vec<Planned>,
    /// Recovery segments.
    #[serde(default, skip_serializing_if = "is_default")]
    pub segments: Vec<PlannedSegment>,
    /// Who closes its session before all have called everything.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leaves: Vec<Leave>,
    /// What goes wrong.
    #[serde(default, skip_serializing_if = "is_default")]
    pub faults: Vec<Fault>,
}

/// The parts of [`Policy`](everfold_master::Policy) that schedules vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Pacing {
    pub segment_bytes: u64,
    pub fan_in_max: usize,
    pub copy_bytes: u64,
    pub lane_reads_min: u32,
    pub lane_bytes: u64,
    pub hold_bytes: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub task_bytes_per_rank: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub gather_us: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub spread_bytes: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub teams_from: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub crowd_from: Option<usize>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub refusals_max: Option<usize>,
}

/// A reduction, and when each rank calls it. Its group are those who call it and those who do not come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// How often the ranks called that name before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sequence: u64,
    /// Who receives the result.
    pub receiver: Receiver,
    /// What is reduced.
    pub body: Body,
    /// Time that each fold of two partials takes besides, at any rank; where it is given, the operation is
    /// the application's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fold_us: u64,
    /// Which operands meet.
    pub order: Order,
    /// Whether bodies travel in messages.
    pub inline: bool,
    /// Ranks whose bodies do not, all the same: objects differ in length, and not all ranks have heard that
    /// arrays are to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub long: Vec<u32>,
    /// What of an original outlives its owner.
    pub protection: Protection,
    /// Whether it goes on without lost contributions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_missing: bool,
    /// Whether its report lists every task.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trace: bool,
    /// How long it may take from the first call on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deadline_us: Option<u64>,
    /// A rank that believes in another level of protection than the others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disagrees: Option<u32>,
    /// Ranks of the group that never call it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub absent: Vec<u32>,
    /// Who calls it, and when.
    pub calls: Vec<CallAt>,
}

/// Who receives a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receiver {
    /// This rank, which folds the others' contributions into its own.
    Root(u32),
    /// The first of these that lives.
    FirstOf(Vec<u32>),
    /// Everyone.
    All,
}

/// What is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Body {
    /// So many `f64`.
    Array(u64),
    /// A serialised value.
    Object,
    /// Pieces that are not folded.
    Pieces(Pieces),
}

/// Whose pieces go to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pieces {
    /// All to all that receive.
    Gather,
    /// That of one rank to all.
    Broadcast(u32),
    /// Of that of one rank, its own to each.
    Scatter(u32),
    /// Of each, its own to each.
    Exchange,
}

/// A rank's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct CallAt {
    pub rank: u32,
    pub at_us: u64,
}

/// A rank closes its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Leave {
    pub rank: u32,
    pub at_us: u64,
}

/// A process ends before it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyEnd {
    /// Its rank.
    pub rank: u32,
    /// When, from the very beginning.
    pub at_us: u64,
    /// How far it comes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stage: Stage,
}

/// Bodies that travel in messages may lie on the board, unless a schedule says otherwise.
pub(super) const BOARD_BYTES: u64 = 16 << 10;

fn board_bytes() -> u64 {
    BOARD_BYTES
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_usual(board_bytes: &u64) -> bool {
    *board_bytes == BOARD_BYTES
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Schedule {
    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// Whether no reduction is of more than four of many ranks.
    pub(crate) fn has_small_groups(&self) -> bool {
        let len = |planned: &Planned| planned.calls.len() + planned.absent.len();
        self.ranks() > 16 && self.reductions.iter().all(|planned| len(planned) <= 4)
    }

    /// Why it cannot be executed, if so.
    pub fn flaw(&self) -> Option<String> {
        let ranks = self.ranks();
        let called = self.reductions.iter().flat_map(|planned| {
            planned.calls.iter().map(|call| call.rank).chain(planned.absent.iter().copied())
        });
        let in_segments = self.segments.iter().flat_map(|segment| {
            segment.calls.iter().map(|call| call.rank).chain(segment.slow.iter().copied())
        });
        let of_faults = self.faults.iter().filter_map(|fault| fault.what.rank());
        let leaving = self.leaves.iter().map(|leave| leave.rank);
        let leaving = leaving.chain(self.early_ends.iter().map(|early| early.rank));
        let listed = [&self.private, &self.boardless, &self.full, &self.windowless, &self.crowded];
        let leaving = leaving.chain(listed.into_iter().flatten().copied());
        let readers = self.faults.iter().filter_map(|fault| match fault.what {
            Trouble::Damage { reader, .. } => reader,
            _ => None,
        });
        let strange = called
            .chain(in_segments)
            .chain(of_faults)
            .chain(readers)
            .chain(leaving)
            .find(|rank| *rank >= ranks);
        let silent = |fault: &&Fault| {
            let is_death = matches!(fault.what, Trouble::Kill(_) | Trouble::LetGo(_) | Trouble::Abandon(_))
                || matches!(fault.what, Trouble::EndHost(_) | Trouble::Break(_));
            let is_seen = is_death || matches!(fault.what, Trouble::Crash { .. });
            let is_told =
                matches!(fault.what, Trouble::Unreachable { at_once: true, .. } | Trouble::SpoilCopies(_));
            let is_slow = matches!(fault.what, Trouble::Slow { .. } | Trouble::Late { .. });
            let is_told = is_told || fault.what.is_only_told();
            !is_seen
                && !is_told
                && !is_slow
                && !matches!(fault.what, Trouble::Garble { .. } | Trouble::Damage { .. })
        };
        let is_beside_master = |rank: u32| self.hosts[rank as usize] == self.hosts[0];
        let far = |fault: &&Fault| matches!(fault.what, Trouble::LetGo(rank) if !is_beside_master(rank));
        let alone = |fault: &&Fault| matches!(fault.what, Trouble::Unreachable { a, b, .. } if a == b);
        let too_late = |fault: &Fault| matches!(fault.what, Trouble::Late { by_us, .. } if self.ping_interval_us > 0 && by_us > self.ping_interval_us / 2);
        let of_nobody = |fault: &Fault| {
            let agent = match &fault.what {
                Trouble::FreezeAgent(host) | Trouble::StarveAgent { host, .. } => Some(*host),
                _ => None,
            };
            agent.is_some_and(|host| host != self.hosts[0] && !(self.agents && self.hosts.contains(&host)))
        };
        let is_empty = self.reductions.is_empty()
            && self.segments.is_empty()
            && self.leaves.is_empty()
            && self.faults.iter().all(|fault| fault.what.is_end());
        let is_for_root = |planned: &Planned| matches!(planned.receiver, Receiver::Root(_));
        match () {
            () if ranks == 0 => Some("there are no ranks: hosts is empty".to_owned()),
            () if self.task_us.len() != self.hosts.len() => {
                Some(format!("task_us has {} entries for {ranks} ranks", self.task_us.len()))
            }
            () if self.latency_us.0 > self.latency_us.1 => Some("latency_us runs backwards".to_owned()),
            () if self.keep_failures_percent.max(self.damage_percent) > 100 => {
                Some("keep_failures_percent or damage_percent is over 100".to_owned())
            }
            () if strange.is_some() => strange.map(|rank| format!("rank {rank} is not one of {ranks}")),
            () if self.returns.is_some() && (!self.agents || self.pacing.teams_from > 0) => {
                Some("ranks come back only where there are agents, and no teams".to_owned())
            }
            () if self.returns.is_some_and(|it| it.migrates.is_some()) && self.board => {
                Some("where ranks migrate, there is no board".to_owned())
            }
            () if self.returns.is_some_and(|it| it.start_failures_percent.max(it.hang_percent) > 100) => {
                Some("start_failures_percent or hang_percent is over 100".to_owned())
            }
            () if self
                .returns
                .is_some_and(|it| it.note_failures_percent.max(it.checkpoints_percent) > 100) =>
            {
                Some("note_failures_percent or checkpoints_percent is over 100".to_owned())
            }
            () if self.returns.is_some_and(|it| it.checkpoints_percent > 0) && !self.segments.is_empty() => {
                Some("programs save no checkpoints where there are recovery segments".to_owned())
            }
            () if self.returns.is_some() && self.reductions.iter().any(is_for_root) => Some(
                "where ranks come back, nothing is folded at a root: first-of names receivers".to_owned(),
            ),
            () if !self.early_ends.is_empty() && !self.agents => {
                Some("who ends before it joins is noticed by an agent only: agents is false".to_owned())
            }
            () if !self.early_ends.is_empty() && !is_empty => {
                Some("where a process ends before it joins, there is no job".to_owned())
            }
            () if self.segments.iter().any(|it| it.indices == 0 || it.grain == 0 || it.calls.is_empty()) => {
                Some("a recovery segment needs indices, a grain and somebody who calls it".to_owned())
            }
            () if !self.segments.is_empty() && self.returns.is_some_and(|it| it.migrates.is_some()) => {
                Some("recovery segments are not simulated where ranks migrate".to_owned())
            }
            () if self.faults.iter().any(of_nobody) => Some(
                "an agent that does not run has to be there: agents is false, or its host has no rank"
                    .to_owned(),
            ),
            () if self.faults.iter().any(too_late) => Some(
                "whose messages are late by more than half of ping_interval_us may seem silent".to_owned(),
            ),
            () if self.faults.iter().any(|fault| alone(&fault)) => {
                Some("a host always reaches its own memory: two are to be named".to_owned())
            }
            () if self.faults.iter().any(|fault| far(&fault)) => {
                Some("only processes of its host let the master hear of their lifelines".to_owned())
            }
            () if self.ping_interval_us == 0 && self.faults.iter().any(|fault| silent(&fault)) => {
                Some("without pings nobody notices who is silent: ping_interval_us is 0".to_owned())
            }
            () => None,
        }
    }
}

impl Planned {
    /// Who takes part.
    pub fn group(&self) -> Path {
        let calling = self.calls.iter().map(|call| call.rank);
        calling.chain(self.absent.iter().copied()).map(Rank).collect()
    }

    /// Whether all that receive the result receive the same.
    pub fn is_one_for_all(&self) -> bool {
        !matches!(self.body, Body::Pieces(Pieces::Exchange | Pieces::Scatter(_)))
    }

    /// What `rank` believes that all agreed on.
    pub fn spec(&self, rank: Rank) -> ReductionSpec {
        let protection = match (self.disagrees == Some(rank.0), self.protection) {
            (false, protection) => protection,
            (true, Protection::None) => Protection::Memory,
            (true, _) => Protection::None,
        };
        ReductionSpec {
            group: self.group(),
            delivery: self.receiver.delivery(),
            kind: match self.body {
                Body::Array(length) => {
                    let operation = match self.fold_us {
                        0 => Operation::Sum,
                        fold_us => Operation::Custom(format!("evidence in {fold_us} µs")),
                    };
                    BodyKind::Array { element: ElementType::F64, operation, length }
                }
                Body::Object if self.fold_us == 0 => BodyKind::Object { type_name: "evidence".to_owned() },
                Body::Object => BodyKind::Object { type_name: format!("evidence in {} µs", self.fold_us) },
                Body::Pieces(pieces) => {
                    BodyKind::Pieces { of: "evidence".to_owned(), pattern: pieces.pattern(), length: None }
                }
            },
            order: self.order,
            deadline: self.deadline_us.map(Duration::from_micros),
            protection,
            allow_missing: self.allow_missing,
            trace: self.trace,
        }
    }
}

impl Pieces {
    fn pattern(self) -> Pattern {
        match self {
            Self::Gather => Pattern::Gather,
            Self::Broadcast(rank) => Pattern::Broadcast(Rank(rank)),
            Self::Scatter(rank) => Pattern::Scatter(Rank(rank), Cut::Even),
            Self::Exchange => Pattern::Exchange(Cut::Even),
        }
    }
}

impl Receiver {
    fn delivery(&self) -> Delivery {
        match self {
            Self::Root(rank) => Delivery::Root(Rank(*rank)),
            Self::FirstOf(ranks) => Delivery::FirstOf(ranks.iter().copied().map(Rank).collect()),
            Self::All => Delivery::All,
        }
    }

    /// Those it names.
    pub fn ranks_mut(&mut self) -> &mut [u32] {
        match self {
            Self::Root(rank) => std::slice::from_mut(rank),
            Self::FirstOf(ranks) => ranks,
            Self::All => &mut [],
        }
    }
}
