//! What a world is made of.

use std::{collections::BTreeMap, time::Duration};

use everfold_master as master;
use everfold_protocol::{
    AgentId, JobId, Rank, ReductionId, ReductionSpec, SegmentIndex,
    message::{AgentRef, ByteRange},
    spec::Limits,
};
use serde::{Deserialize, Serialize};

use crate::model::Cluster;

/// The job of every world.
pub(crate) const JOB: JobId = JobId(1);

/// What a process does first when it runs again after a time in which it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wakes {
    /// Everything in the order in which it came, acting upon each.
    #[default]
    InOrder,
    /// It takes in everything that came, and only then acts.
    InOneGo,
    /// It looks at its clock before it reads what came.
    ByItsClock,
}

/// How far a process comes that ends before it joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is started.
    #[default]
    Started,
    /// It comes to its agent.
    Hailed,
    /// It has a connection to the master, and says nothing.
    Connected,
}

/// How ranks come back whose processes have died.
#[derive(Clone, Copy, Debug)]
pub struct Returns {
    /// Longest time that a process takes to start, or to end after its program has failed.
    pub start_time: Duration,
    /// How often, in percent, it cannot be started.
    pub start_failures: u32,
    /// How often, in percent, a process lives on after its program has failed.
    pub hang: u32,
    /// Longest time that a process takes to note something, and then to hear that it is noted.
    pub note_time: Duration,
    /// How often, in percent, the log has no room for an outcome.
    pub note_failures: u32,
    /// How often, in percent, a program is about to save a checkpoint when a call has ended.
    pub checkpoints: u32,
    /// Whether detectors of a programmer's own have a say, whose choices are drawn.
    pub own_detectors: bool,
    /// How ranks come back on other hosts, if they do.
    pub migrates: Option<Migrates>,
}

/// How ranks come back on other hosts.
#[derive(Clone, Copy, Debug)]
pub struct Migrates {
    /// Hosts without ranks.
    pub spares: u32,
    /// Longest time that a copy of a vault takes, or of what is new in it.
    pub copy_time: Duration,
    /// How often, in percent, a copy fails.
    pub copy_failures: u32,
    /// How processes stand by, if they do.
    pub standbys: Option<Standbys>,
}

/// What becomes of processes that stand by.
#[derive(Clone, Copy, Debug)]
pub struct Standbys {
    /// How often, in percent, one dies some time after its start.
    pub deaths: u32,
    /// How often, in percent, one does nothing when it is to take a place.
    pub frozen: u32,
}

/// The first of the hosts without ranks.
pub(crate) const FIRST_SPARE: u32 = 1 << 20;

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of ranks.
    pub ranks: u32,
    /// Host of each rank; ranks of one host share memory. Empty: each its own. The master is on that of rank
    /// 0.
    pub hosts: Vec<u64>,
    /// In how many domains the hosts are, in turn; 0 if they have no labels.
    pub domains: u64,
    /// Whether each host has an agent that holds the memory of its ranks.
    pub agents: bool,
    /// Whether the process in which an agent is has started the ranks of its host, tells it how they end and
    /// when none is left. It has where ranks come back.
    pub parents: bool,
    /// Within which time agents join.
    pub agents_join: Duration,
    /// How ranks come back whose processes have died, if they do: there are agents then.
    pub returns: Option<Returns>,
    /// Ranks whose processes end before they join, when, and how far they come. There are agents then, whose
    /// parents have started all processes, and no job.
    pub early_ends: BTreeMap<Rank, (Duration, Stage)>,
    /// Whether ranks that are all on one host put short contributions on a board.
    pub board: bool,
    /// Ranks that cannot map the board.
    pub boardless: Vec<Rank>,
    /// Ranks whose bodies lie in memory of their own, which goes with their process, and not in shared
    /// memory.
    pub private: Vec<Rank>,
    /// Ranks whose shared memory has no room for partials: these lie in memory of their own.
    pub full: Vec<Rank>,
    /// Ranks that can open no windows but those on their bodies: they fold nothing that others are to read,
    /// and keep no copies.
    pub windowless: Vec<Rank>,
    /// How long the segments are of the reductions that the master has begun: it learns that as it goes.
    pub(crate) cuts: BTreeMap<ReductionId, u64>,
    /// Decides everything that is drawn.
    pub seed: u64,
    /// Shortest and longest time a message takes.
    pub latency: (Duration, Duration),
    /// Time that a rank takes for a task; the default for those not listed is 100 µs.
    pub task_time: BTreeMap<Rank, Duration>,
    /// Time that each fold of two partials takes besides, at any rank, in the reductions of these names.
    pub fold_time: BTreeMap<String, Duration>,
    /// Longest time that a rank takes to copy a result, besides that of a message.
    pub collect_time: Duration,
    /// Segments of a result that a rank copies at a time; 0 if it copies all at once.
    pub collect_segments: usize,
    /// Whether a copy of a result that fails may leave a segment half overwritten.
    pub halves: bool,
    /// Ranks that have no room for a result when they first copy it.
    pub crowded: Vec<Rank>,
    /// The cluster that tells how long everything takes; without one, `latency` and `task_time` do. Each rank
    /// then has a node of its own.
    pub cluster: Option<Cluster>,
    /// How often, in percent, a process fails to keep a copy.
    pub keep_failures: u32,
    /// How often, in percent, a copy turns out to be damaged when it is read, and a fold spoils its
    /// executor's partial.
    pub damage: u32,
    /// How long messages wait for the master, which then takes in all that have come in one go; zero if it
    /// takes each by itself.
    pub batch: Duration,
    /// What a process does first when it runs again after a time in which it did not.
    pub wakes: Wakes,
    /// How the master schedules.
    pub policy: master::Policy,
    /// Whether every event is followed: the invariants are checked after it, decisions are recorded as steps,
    /// and the trace is hashed. It takes time that grows with the number of ranks.
    pub follow: bool,
    /// Reads a clock in nanoseconds, to measure what the master's machine really takes. Nothing else depends
    /// on it.
    pub stopwatch: Option<fn() -> u64>,
}

impl Settings {
    /// `ranks` ranks on hosts of their own, with delays drawn from `seed`.
    pub fn new(ranks: u32, seed: u64) -> Self {
        Self {
            ranks,
            hosts: Vec::new(),
            domains: 0,
            agents: false,
            parents: false,
            agents_join: Duration::ZERO,
            returns: None,
            early_ends: BTreeMap::new(),
            board: false,
            boardless: Vec::new(),
            private: Vec::new(),
            full: Vec::new(),
            windowless: Vec::new(),
            cuts: BTreeMap::new(),
            seed,
            latency: (Duration::from_micros(1), Duration::from_micros(50)),
            task_time: BTreeMap::new(),
            fold_time: BTreeMap::new(),
            collect_time: Duration::ZERO,
            collect_segments: 0,
            halves: false,
            crowded: Vec::new(),
            cluster: None,
            keep_failures: 0,
            damage: 0,
            batch: Duration::ZERO,
            wakes: Wakes::default(),
            policy: master::Policy {
                // Deaths are seen from broken connections; worlds with freezes switch pings on.
                limits: Limits { ping_interval: Duration::ZERO, ..Limits::default() },
                ..master::Policy::default()
            },
            follow: true,
            stopwatch: None,
        }
    }

    /// Whether detectors of a programmer's own have a say in what is done about deaths.
    pub(crate) fn has_own_detectors(&self) -> bool {
        self.returns.is_some_and(|returns| returns.own_detectors)
    }

    pub(crate) fn host(&self, rank: Rank) -> u64 {
        self.hosts.get(rank.index()).copied().unwrap_or(u64::from(rank) | 1 << 63)
    }

    /// The host of the master.
    pub(crate) fn master_host(&self) -> u64 {
        self.host(Rank(0))
    }

    /// Whether rank 0 comes so far that there is a master from the beginning.
    pub(crate) fn has_master(&self) -> bool {
        !matches!(self.early_ends.get(&Rank(0)), Some((_, Stage::Started)))
    }

    /// Whether the agent of a host looks for the master from the beginning: because there are other hosts,
    /// because a process has come that goes on, or because it is a spare host.
    pub(crate) fn seeks_master(&self, host: u64) -> bool {
        let mut ranks = self.ranks_on(host).peekable();
        self.has_several_hosts()
            || ranks.peek().is_none()
            || ranks.any(|rank| !self.early_ends.contains_key(&rank))
    }

    /// Whether ranks are on several hosts, or may come to others.
    pub(crate) fn has_several_hosts(&self) -> bool {
        let is_elsewhere = |rank| self.host(rank) != self.master_host();
        (0..self.ranks).map(Rank).any(is_elsewhere) || self.spares().next().is_some()
    }

    /// The label of a host.
    pub(crate) fn domain(&self, host: u64) -> Option<String> {
        host.checked_rem(self.domains).map(|number| format!("domain {number}"))
    }

    /// Whether the agent of each host is in the process that has started the ranks there.
    pub(crate) fn has_parents(&self) -> bool {
        self.agents && (self.parents || self.returns.is_some() || !self.early_ends.is_empty())
    }

    /// The ranks on a host.
    pub(crate) fn ranks_on(&self, host: u64) -> impl Iterator<Item = Rank> + Clone {
        (0..self.ranks).map(Rank).filter(move |rank| self.host(*rank) == host)
    }

    /// The agent of a host, if there are agents.
    pub(crate) fn agent_at(&self, host: u64) -> Option<AgentRef> {
        self.agents.then(|| AgentRef { id: AgentId(host), address: String::new() })
    }

    /// Hosts that have no ranks, and can take some.
    pub(crate) fn spares(&self) -> impl Iterator<Item = u64> + use<> {
        let spares = self.returns.and_then(|returns| returns.migrates).map_or(0, |migrates| migrates.spares);
        (0..u64::from(spares)).map(|number| u64::from(FIRST_SPARE) + number)
    }

    /// The segments of a body, and where they lie.
    pub(crate) fn segments(
        &self,
        id: ReductionId,
        spec: &ReductionSpec,
    ) -> impl Iterator<Item = (SegmentIndex, ByteRange)> + use<> {
        let mut hosts = spec.group.iter().map(|rank| self.host(rank));
        let first = hosts.next();
        let share_memory = hosts.all(|host| Some(host) == first);
        let len = match id.is_in_teams() {
            true => self.policy.segment_len_in_teams(spec),
            false => match self.cuts.get(&id) {
                Some(len) => *len,
                None => self.policy.segment_len(&spec.kind, spec.group.len(), share_memory),
            },
        };
        let bytes = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let count = if len == 0 { 1 } else { bytes.div_ceil(len) };
        (0..count).map(move |index| {
            let start = index * len;
            (SegmentIndex(index as u32), ByteRange { start, len: len.min(bytes - start) })
        })
    }
}
