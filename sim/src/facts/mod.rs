//! What happened to the processes of a world, and when, apart from what the machines make of it.

mod silence;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use everfold_protocol::{Path, ProcessId, Rank, ReductionId, SegmentId, Timestamp, message::Evidence};

use crate::{events::Place, faults::Cut};

/// Something that lasts, from when on and until when, if it is over.
type Span = (Timestamp, Option<Timestamp>);

/// What happened to processes, and what reached the master.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Whose process ended, or left its job without a word.
    pub ended: BTreeMap<Rank, Timestamp>,
    /// The same of all processes, also of those in whose place others have come.
    pub ends: BTreeMap<ProcessId, Timestamp>,
    /// Who gave the master up.
    pub deserted: BTreeMap<Rank, Timestamp>,
    /// The same of all processes.
    pub deserters: BTreeMap<ProcessId, Timestamp>,
    /// Whom the master declared failed, and why.
    pub failed: BTreeMap<Rank, (Timestamp, Evidence)>,
    /// The same of all processes.
    pub failures: BTreeMap<ProcessId, (Timestamp, Evidence)>,
    /// The process that each rank has come back as last.
    returned: BTreeMap<Rank, ProcessId>,
    /// Whose agents have joined, as the master heard, by their hosts.
    agents: BTreeSet<u64>,
    /// Whose agent had joined when the master heard of their end.
    left_to_agents: BTreeSet<Rank>,
    /// Hosts whose agents have ended.
    pub hosts_ended: BTreeMap<u64, Timestamp>,
    /// Hosts whose agents the master gave up.
    pub hosts_lost: BTreeMap<u64, Timestamp>,
    /// Whose connection to the master broke although both lived.
    pub broken: BTreeMap<ProcessId, Timestamp>,
    /// When the master's process ended.
    pub master_ended: Option<Timestamp>,
    /// When a rank was first refused a reduction.
    pub refused: BTreeMap<(ReductionId, Rank), Timestamp>,
    /// Originals of which the master said that they have no replica, by the hash of the reduction's name.
    pub unprotected: BTreeSet<(Rank, u64)>,
    /// Contributions that the master took in, and whether they came inlined.
    heard: BTreeMap<(Rank, ReductionId), bool>,
    /// Processes from which the master took them in.
    callers: BTreeSet<(ProcessId, ReductionId)>,
    /// When the master heard which contributions.
    heard_at: BTreeMap<(ReductionId, Rank), Timestamp>,
    /// Ranks of which the master heard that they have a result.
    served: BTreeSet<(Rank, ReductionId)>,
    /// Ranks that were told to copy a result over their contributions.
    pub overwrites: BTreeSet<(Rank, ReductionId)>,
    /// Whose connection the master saw break, or whose end it was told of.
    hung_up: BTreeSet<Rank>,
    /// What the master was last told of partials before their owners hung up; nothing while they were to
    /// change.
    told: BTreeMap<(Rank, SegmentId), Path>,
    /// Originals of which somebody told the master that it has a copy, or a part of one.
    kept: BTreeSet<(Rank, ReductionId)>,
    /// When processes did not run.
    stops: BTreeMap<Place, Vec<Span>>,
    cuts: Vec<(Cut, Span)>,
    /// By how much a message of a rank, or to it, was late at most.
    late: BTreeMap<Rank, Duration>,
}

impl Facts {
    /// Ranks that the master has declared failed by `at`.
    pub fn failed_by(&self, at: Timestamp) -> Path {
        self.failed.iter().filter(|(_, (since, _))| *since <= at).map(|(rank, _)| *rank).collect()
    }

    /// Ranks whose process has ended, which have given the master up, or which it has declared failed by
    /// `at`.
    pub fn gone_by(&self, at: Timestamp) -> Path {
        let gone = self.ended.iter().chain(&self.deserted).filter(|(_, since)| **since <= at);
        gone.map(|(rank, _)| *rank).chain(self.failed_by(at).iter()).collect()
    }

    /// Ranks of which the master has declared a process failed by `at`, also those that came back.
    pub fn ever_failed_by(&self, at: Timestamp) -> Path {
        self.failures.iter().filter(|(_, (since, _))| *since <= at).map(|(process, _)| process.rank).collect()
    }

    /// Ranks of which the master has ever declared a process failed.
    pub fn ever_failed(&self) -> Path {
        self.failures.keys().map(|process| process.rank).collect()
    }

    /// Takes in that a rank has come back as this process: nothing is excused by its earlier ones from now on,
    /// but the time.
    pub fn come_back(&mut self, process: ProcessId) {
        let rank = process.rank;
        self.returned.insert(rank, process);
        self.failed.remove(&rank);
        match self.ends.get(&process) {
            Some(at) => drop(self.ended.insert(rank, *at)),
            None => drop(self.ended.remove(&rank)),
        }
        self.deserted.remove(&rank);
        self.hung_up.remove(&rank);
        self.left_to_agents.remove(&rank);
        self.told.retain(|(of, _), _| *of != rank);
    }

    /// The process that a rank has come back as last, or its first one.
    pub fn latest(&self, rank: Rank) -> ProcessId {
        self.returned.get(&rank).copied().unwrap_or(ProcessId::first(rank.0))
    }

    /// Whether a rank has ever come back.
    pub fn has_come_back(&self, rank: Rank) -> bool {
        self.returned.contains_key(&rank)
    }

    /// Whether all processes of `rank` that have ended or were declared failed have left their memory. A process
    /// that gives the master up closes its windows.
    pub fn have_all_left_memory(&self, rank: Rank) -> bool {
        let of_rank = |process: &ProcessId| process.rank == rank;
        let mut failures = self.failures.iter().filter(|(process, _)| of_rank(process));
        !self.deserters.keys().any(of_rank) && failures.all(|(_, (_, evidence))| evidence.leaves_memory())
    }

    /// Whether `rank` has died, as far as the master knows, and left its memory.
    pub fn has_left_memory(&self, rank: Rank) -> bool {
        self.failed.get(&rank).is_some_and(|(_, evidence)| evidence.leaves_memory())
    }

    /// Whether `process` was declared failed and nothing of it is read any more.
    pub fn has_taken_its_memory_along(&self, process: ProcessId) -> bool {
        self.failures.get(&process).is_some_and(|(_, evidence)| !evidence.leaves_memory())
    }

    /// Whether the agent of `host` holds what `rank` has left there, as far as the master can tell: it had
    /// joined before the master heard of the death, and was not given up since.
    pub fn is_held(&self, host: u64, rank: Rank) -> bool {
        let is_left = self.left_to_agents.contains(&rank) && self.has_left_memory(rank);
        is_left && !self.hosts_lost.contains_key(&host)
    }

    /// Takes in that the master hears an agent join.
    pub fn take_in_agent(&mut self, host: u64) {
        self.agents.insert(host);
    }

    /// Whether the agent of a host has joined, as the master heard.
    pub fn has_agent(&self, host: u64) -> bool {
        self.agents.contains(&host)
    }

    /// Takes in that the agent of a host has ended.
    pub fn end_host(&mut self, at: Timestamp, host: u64) {
        self.hosts_ended.entry(host).or_insert(at);
    }

    /// Takes in that the master gives the agent of a host up.
    pub fn lose_host(&mut self, at: Timestamp, host: u64) {
        self.hosts_lost.entry(host).or_insert(at);
    }

    /// Takes in that the connection between a rank and the master breaks.
    pub fn break_connection(&mut self, at: Timestamp, process: ProcessId) {
        self.broken.entry(process).or_insert(at);
    }

    /// Takes in that the master's process ends.
    pub fn end_master(&mut self, at: Timestamp) {
        self.master_ended.get_or_insert(at);
    }

    /// Whether a contribution reached the master in time, and if so, whether it came inlined.
    pub fn heard(&self, rank: Rank, reduction: ReductionId) -> Option<bool> {
        self.heard.get(&(rank, reduction)).copied()
    }

    /// Takes in that the master hears a call, and whether it has that reduction now.
    pub fn hear(&mut self, at: Timestamp, rank: Rank, reduction: ReductionId, is_open: bool) {
        if is_open || self.heard_first(reduction).is_some() {
            self.heard_at.entry((reduction, rank)).or_insert(at);
        }
    }

    /// Takes in that the master counts on a contribution, and whether that came inlined.
    pub fn count(&mut self, process: ProcessId, reduction: ReductionId, inline: bool) {
        self.heard.entry((process.rank, reduction)).or_insert(inline);
        self.callers.insert((process, reduction));
    }

    /// Whether the master has heard a contribution from this very process of its rank.
    pub fn heard_from(&self, process: ProcessId, reduction: ReductionId) -> bool {
        self.callers.contains(&(process, reduction))
    }

    /// Takes in that the master hears that a process has a result. Of one that it has given up it believes nothing.
    pub fn serve(&mut self, process: ProcessId, reduction: ReductionId) {
        if !self.failures.contains_key(&process) {
            self.served.insert((process.rank, reduction));
        }
    }

    /// Whether the master has heard that `rank` has a result.
    pub fn is_served(&self, rank: Rank, reduction: ReductionId) -> bool {
        self.served.contains(&(rank, reduction))
    }

    /// When the master heard the first contribution to a reduction that it took in.
    pub fn heard_first(&self, reduction: ReductionId) -> Option<Timestamp> {
        let of_it = self.heard_at.range((reduction, Rank(0))..=(reduction, Rank(u32::MAX)));
        of_it.map(|(_, at)| *at).min()
    }

    /// When the master heard `rank`'s contribution to a reduction.
    pub fn heard_at(&self, reduction: ReductionId, rank: Rank) -> Option<Timestamp> {
        self.heard_at.get(&(reduction, rank)).copied()
    }

    /// Takes in that the master is told what a partial holds.
    pub fn tell(&mut self, rank: Rank, segment: SegmentId, path: &Path) {
        // Nobody knows what was told by a process that has hung up.
        if !self.hung_up.contains(&rank) {
            self.told.insert((rank, segment), path.clone());
        }
    }

    /// What the master was last told of a partial.
    pub fn told(&self, rank: Rank, segment: SegmentId) -> Option<&Path> {
        self.told.get(&(rank, segment))
    }

    /// Takes in that a contribution was lost and has come again: partials that hold the lost one are of no use.
    pub fn replace(&mut self, rank: Rank, reduction: ReductionId) {
        self.told.retain(|(_, segment), path| segment.reduction != reduction || !path.contains(rank));
    }

    /// Takes in that a process is told to fold something into its partial.
    pub fn task(&mut self, rank: Rank, segment: SegmentId) {
        self.told.remove(&(rank, segment));
    }

    /// Takes in that somebody has a copy of an original, or a part of one.
    pub fn keep(&mut self, owner: Rank, reduction: ReductionId) {
        self.kept.insert((owner, reduction));
    }

    /// Whether there was a copy of an original, or a part of one.
    pub fn was_kept(&self, rank: Rank, reduction: ReductionId) -> bool {
        self.kept.contains(&(rank, reduction))
    }

    /// Takes in that a process has ended, or left its job without a word.
    pub fn end(&mut self, at: Timestamp, process: ProcessId) {
        self.ended.insert(process.rank, at);
        self.ends.insert(process, at);
    }

    /// Takes in that a process gives its master up.
    pub fn desert(&mut self, at: Timestamp, process: ProcessId) {
        self.deserted.entry(process.rank).or_insert(at);
        self.deserters.entry(process).or_insert(at);
    }

    /// Takes in that the connection of a process breaks before the master's eyes, or that it is told of its
    /// end.
    pub fn hang_up(&mut self, process: ProcessId, host: u64) {
        let rank = process.rank;
        if self.returned.get(&rank).is_some_and(|later| *later > process) {
            return;
        }
        if self.hung_up.insert(rank) && self.agents.contains(&host) {
            self.left_to_agents.insert(rank);
        }
    }

    /// Takes in that the master declares a process failed.
    pub fn fail(&mut self, at: Timestamp, process: ProcessId, evidence: Evidence) {
        self.failed.insert(process.rank, (at, evidence));
        self.failures.insert(process, (at, evidence));
    }

    /// Takes in that the master refuses a rank a reduction.
    pub fn refuse(&mut self, at: Timestamp, reduction: ReductionId, rank: Rank) {
        self.refused.entry((reduction, rank)).or_insert(at);
    }

    /// Takes in that the master says that an original has no replica.
    pub fn unprotect(&mut self, rank: Rank, name: &str) {
        self.unprotected.insert((rank, ReductionId::new(name, 0).name));
    }

    /// Takes in that a rank is told to copy a result over its contribution.
    pub fn overwrite(&mut self, rank: Rank, reduction: ReductionId) {
        self.overwrites.insert((rank, reduction));
    }

    /// Whether the master's process has ended by `at`.
    pub fn master_had_died(&self, at: Timestamp) -> bool {
        self.master_ended.is_some_and(|since| since <= at)
    }

    /// Takes in that a process does not run.
    pub fn stop(&mut self, at: Timestamp, place: Place) {
        self.stops.entry(place).or_default().push((at, None));
    }

    /// Takes in that a process runs again.
    pub fn thaw(&mut self, at: Timestamp, place: Place) {
        end(at, self.stops.get_mut(&place).and_then(|spans| spans.last_mut()));
    }

    /// Takes in that messages of a rank, and to it, are late by up to `time` from now on.
    pub fn delay(&mut self, rank: Rank, time: Duration) {
        let longest = self.late.entry(rank).or_default();
        *longest = time.max(*longest);
    }

    /// Takes in that a cut begins.
    pub fn cut(&mut self, at: Timestamp, cut: Cut) {
        self.cuts.push((cut, (at, None)));
    }

    /// Takes in that a cut ends.
    pub fn heal(&mut self, at: Timestamp, cut: &Cut) {
        let same = self.cuts.iter_mut().find(|(other, (_, until))| other == cut && until.is_none());
        end(at, same.map(|(_, span)| span));
    }

    /// When a process did not run, up to `by`.
    fn stops(&self, place: Place, by: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        self.stops.get(&place).into_iter().flatten().filter_map(move |span| clip(span, by))
    }

    /// When nothing or not everything got through between two hosts, up to `by`.
    fn cuts(&self, hosts: (u64, u64), by: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let (one, other) = hosts;
        let parts = move |cut: &Cut| cut.severs(one, other) || cut.severs(other, one);
        self.cuts.iter().filter(move |(cut, _)| parts(cut)).filter_map(move |(_, span)| clip(span, by))
    }
}

fn end(at: Timestamp, span: Option<&mut Span>) {
    if let Some((_, until @ None)) = span {
        *until = Some(at);
    }
}

fn clip((since, until): &Span, by: Timestamp) -> Option<(Timestamp, Timestamp)> {
    (*since < by).then(|| (*since, until.map_or(by, |until| until.min(by))))
}
