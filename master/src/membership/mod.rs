//! The ranks in the job, and which messages are stale.

mod state;

use alloc::{collections::BTreeMap, vec::Vec};

use everfold_protocol::{
    AgentId, Epoch, JobId, Path, ProcessId, Rank,
    message::{Data, Ending, Evidence, Header, Lodging, Peer, ToWorker},
    report::Refusal,
};

use crate::{
    agents::{Agents, Custody},
    by_rank::ByRank,
    placement::{Member, Placement},
    queue::Ready,
};

pub use self::state::{Entry, Freshness, Prospect, State};

/// A process that was declared failed.
#[derive(Clone, Debug)]
struct Dead {
    peer: Peer,
    evidence: Evidence,
    /// Whether its agent was to end it, so that its rank can come back.
    is_ended: bool,
}

/// The view of the job at the current epoch.
#[derive(Clone, Debug)]
pub struct Membership {
    job: JobId,
    epoch: Epoch,
    size: u32,
    /// Of all ranks; at a deputy of those that it had to do with.
    states: ByRank<State>,
    /// Where their processes run or ran.
    hosts: ByRank<Option<u64>>,
    /// The agents that hold their memory.
    agents: Agents,
    /// How many are in [`State::Alive`].
    open: u32,
    /// The ranks in [`State::Failed`].
    failed: Path,
    /// The ranks in [`State::Away`].
    away: Path,
    /// What spoke for the deaths of processes that were declared failed.
    dead: BTreeMap<ProcessId, Dead>,
    /// The ranks in [`State::Left`] or [`State::Closing`].
    leaving: Path,
    /// Whether processes are still expected to join.
    is_joining: bool,
    /// The ranks that died before the job was complete; there will be no job.
    lost: Path,
}

impl Membership {
    /// A job of `size` ranks, all still expected.
    pub fn new(job: JobId, size: u32) -> Self {
        let states = ByRank::All(vec![State::Expected; size as usize]);
        let hosts = ByRank::All(vec![None; size as usize]);
        Self { states, hosts, is_joining: true, ..Self::elsewhere(job, size) }
    }

    /// A job of `size` ranks, none of which is known here before it is taken in.
    pub fn elsewhere(job: JobId, size: u32) -> Self {
        Self {
            job,
            epoch: Epoch(0),
            size,
            states: ByRank::Few(BTreeMap::new()),
            hosts: ByRank::Few(BTreeMap::new()),
            agents: Agents::default(),
            open: 0,
            failed: Path::empty(),
            away: Path::empty(),
            dead: BTreeMap::new(),
            leaving: Path::empty(),
            is_joining: false,
            lost: Path::empty(),
        }
    }

    /// Number of the current view.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Number of ranks in the job, in any state.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Sorts a message by its sender and epoch.
    pub fn classify(&self, header: &Header) -> Freshness {
        if header.job != self.job || header.epoch > self.epoch {
            return Freshness::Impossible;
        }
        match self.states.get(header.sender.rank) {
            None => Freshness::Impossible,
            Some(State::Alive(peer) | State::Closing(peer)) if peer.process == header.sender => {
                Freshness::Current
            }
            Some(State::Expected) => Freshness::Current,
            Some(State::Away(last)) if header.sender.incarnation > last.incarnation => Freshness::Current,
            Some(_) => Freshness::Stale,
        }
    }

    /// Takes `peer` in, if its rank is expected. With one that returns a new epoch begins.
    pub fn join(&mut self, peer: Peer) -> Entry {
        match self.states.get(peer.process.rank) {
            Some(State::Expected) => {
                self.take_in(peer);
                Entry::First
            }
            Some(State::Away(last)) if peer.process.incarnation > last.incarnation => {
                self.away.remove(peer.process.rank);
                self.enter(peer);
                self.epoch = self.epoch.next();
                Entry::Return
            }
            _ => Entry::Refused,
        }
    }

    /// Whether processes are still expected to join.
    pub fn is_joining(&self) -> bool {
        self.is_joining
    }

    /// Expects no process to join any more.
    pub fn stop_joining(&mut self) {
        self.is_joining = false;
    }

    /// The ranks that died before the job was complete, without those that left because of that.
    pub fn lost(&self) -> &Path {
        &self.lost
    }

    /// Takes `peer` in, unless it was heard of before.
    pub fn take_in(&mut self, peer: Peer) {
        if matches!(self.states.get(peer.process.rank), None | Some(State::Expected)) {
            self.enter(peer);
        }
    }

    fn enter(&mut self, peer: Peer) {
        let (process, domain) = (peer.process, peer.domain.as_deref());
        self.hosts.insert(process.rank, Some(peer.host));
        peer.agent.iter().for_each(|agent| self.agents.assign(process, agent.id, domain));
        self.states.insert(process.rank, State::Alive(peer));
        self.open += 1;
    }

    /// The host of a rank, once it has joined, although it may have died since.
    pub fn host(&self, rank: Rank) -> Option<u64> {
        self.hosts.get(rank).copied().flatten()
    }

    /// Whether every rank takes part: none is missing yet, none has failed, left or closed its session.
    pub fn everyone_here(&self) -> bool {
        self.open == self.size()
    }

    /// Whether all processes of `group` can read each other's memory.
    pub fn share_memory(&self, group: &Path) -> bool {
        let mut hosts = group.iter().map(|rank| self.host(rank));
        let first = hosts.next().flatten();
        first.is_some() && hosts.all(|host| host == first)
    }

    /// Declares those of `processes` failed that take part, and starts a new epoch with each. Returns which.
    pub fn fail(
        &mut self,
        processes: &[ProcessId],
        evidence: Evidence,
        prospect: Prospect,
    ) -> Vec<ProcessId> {
        let takes_part = |it: &ProcessId| self.lives(*it);
        let failed: Vec<ProcessId> = processes.iter().copied().filter(takes_part).collect();
        for process in &failed {
            let peer = self.alive(process.rank).expect("it takes part").clone();
            self.dead.insert(*process, Dead { peer, evidence, is_ended: false });
            let state = match prospect {
                Prospect::Returns if !self.is_joining => State::Away,
                Prospect::Returns | Prospect::Gone => State::Failed,
            };
            self.change(process.rank, state(*process));
            self.epoch = self.epoch.next();
        }
        if self.is_joining && self.lost.is_empty() {
            self.lost = failed.iter().map(|process| process.rank).collect();
        }
        failed
    }

    /// Whether this process is still expected to join.
    pub(crate) fn is_to_join(&self, process: ProcessId) -> bool {
        let is_expected = matches!(self.states.get(process.rank), Some(State::Expected));
        self.is_joining && is_expected && process == ProcessId::first(process.rank)
    }

    /// Takes in that processes have ended that were expected to join.
    pub(crate) fn lose_expected(&mut self, processes: &[ProcessId]) {
        processes.iter().for_each(|process| self.change(process.rank, State::Failed(*process)));
        if self.lost.is_empty() {
            self.lost = processes.iter().map(|process| process.rank).collect();
        }
    }

    /// Takes in from whose host the first processes of `ranks` are to join.
    pub(crate) fn expect_at(&mut self, agent: AgentId, ranks: &Path) {
        self.agents.expect(agent, &ranks.intersection(&Path::range(0, self.size)));
    }

    /// The processes that are yet to join from the host of this agent.
    pub(crate) fn expected_at(&self, agent: AgentId) -> Vec<ProcessId> {
        let first = self.agents.expected(agent).map(ProcessId::first);
        first.filter(|process| self.is_to_join(*process)).collect()
    }

    /// Takes in that the host is back with which this first process was lost, and has another agent now.
    pub(crate) fn replace_host_of(&mut self, process: ProcessId) {
        self.agents.replace_host_of(process);
    }

    /// Agents, and whose memory they hold.
    pub(crate) fn agents(&self) -> &Agents {
        &self.agents
    }

    /// Takes in that an agent joins. Returns false if it is here already, or was lost before.
    pub(crate) fn take_in_agent(&mut self, agent: AgentId, lodging: Lodging) -> bool {
        let is_new = self.agents.join(agent);
        if is_new {
            self.agents.lodge(agent, lodging);
        }
        is_new
    }

    /// How many ranks take part whose processes are on the host of this agent.
    pub(crate) fn count_at(&self, agent: AgentId) -> usize {
        self.processes().filter(|process| self.agents.of(*process) == Some(agent)).count()
    }

    /// The host on which this process runs or ran, if that is known.
    pub(crate) fn host_of(&self, process: ProcessId) -> Option<u64> {
        let dead = self.dead.get(&process).map(|dead| dead.peer.host);
        dead.or_else(|| self.host(process.rank))
    }

    /// Takes in that an agent is gone. Returns the processes that lived on its host, and those that had died
    /// there and had left their memory; nothing if that is known.
    pub(crate) fn lose_agent(&mut self, agent: AgentId) -> Option<(Vec<ProcessId>, Vec<ProcessId>)> {
        if !self.agents.lose(agent) {
            return None;
        }
        let there = || self.agents.processes(agent);
        let living = there().filter(|process| self.lives(*process)).collect();
        Some((living, there().filter(|process| self.has_left_memory(*process)).collect()))
    }

    /// What spoke for the death of a process, if it was declared failed.
    pub(crate) fn evidence(&self, process: ProcessId) -> Option<Evidence> {
        self.dead.get(&process).map(|dead| dead.evidence)
    }

    /// Expects a rank back no longer whose process was declared failed. Returns whether it did.
    pub(crate) fn give_up(&mut self, rank: Rank) -> bool {
        let Some(State::Away(last)) = self.states.get(rank) else { return false };
        let last = *last;
        self.change(rank, State::Failed(last));
        true
    }

    /// Takes in that a process has ended that was to come. Its messages are stale.
    pub(crate) fn miss(&mut self, missed: ProcessId) {
        if let Some(State::Away(_)) = self.states.get(missed.rank) {
            self.states.insert(missed.rank, State::Away(missed));
        }
    }

    /// Ranks whose processes were declared failed, and that are to come back.
    pub(crate) fn away(&self) -> &Path {
        &self.away
    }

    /// The process in whose place another one is to come.
    pub(crate) fn away_since(&self, rank: Rank) -> Option<ProcessId> {
        match self.states.get(rank) {
            Some(State::Away(last)) => Some(*last),
            _ => None,
        }
    }

    /// The first process of each rank that is known, by rank.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = &Peer> {
        self.states.iter().filter_map(|(rank, state)| {
            let first = self.dead.range(ProcessId::first(rank)..).next();
            let first = first.filter(|(process, _)| process.rank == rank).map(|(_, dead)| &dead.peer);
            first.or(match state {
                State::Alive(peer) | State::Closing(peer) | State::Left(peer) => Some(peer),
                State::Expected | State::Away(_) | State::Failed(_) => None,
            })
        })
    }

    /// The messages by which all ranks were told of changes since [these](Self::firsts).
    pub(crate) fn history(&self) -> Vec<ToWorker> {
        let mut told = Vec::new();
        for (process, dead) in &self.dead {
            if self.dead.range(ProcessId::first(process.rank)..*process).next().is_some() {
                told.push(ToWorker::Returned { peer: dead.peer.clone() });
            }
            told.push(ToWorker::Departed { process: *process, evidence: dead.evidence });
        }
        let returned = self.peers().filter(|peer| self.failed_before(peer.process));
        told.extend(returned.map(|peer| ToWorker::Returned { peer: peer.clone() }));
        told.extend(self.agents.lost().map(|agent| ToWorker::AgentLost { agent }));
        told
    }

    fn failed_before(&self, process: ProcessId) -> bool {
        self.dead.range(ProcessId::first(process.rank)..process).next().is_some()
    }

    /// Whether a rank takes part, or is to come back.
    pub(crate) fn takes_part(&self, rank: Rank) -> bool {
        self.alive(rank).is_some() || self.away.contains(rank)
    }

    /// Takes in how a process has ended whose connection has broken before. Returns what speaks for its death
    /// from now on. Of one that was silent nothing is read all the same.
    pub(crate) fn learn_end(&mut self, process: ProcessId, ending: Ending) -> Option<Evidence> {
        let dead = self.dead.get_mut(&process)?;
        if dead.evidence != Evidence::Disconnected {
            return None;
        }
        dead.evidence = Evidence::Ended(ending);
        Some(dead.evidence)
    }

    /// Notes that the agent of a dead process is to end it, so that its rank can come back.
    pub(crate) fn note_ended(&mut self, process: ProcessId) {
        self.dead.get_mut(&process).into_iter().for_each(|dead| dead.is_ended = true);
    }

    /// Whether the agent of a dead process was to end it.
    pub(crate) fn was_ended(&self, process: ProcessId) -> bool {
        self.dead.get(&process).is_some_and(|dead| dead.is_ended)
    }

    /// Expects no more calls of `rank`.
    pub fn close(&mut self, rank: Rank) {
        if let Some(State::Alive(peer)) = self.states.get(rank) {
            self.change(rank, State::Closing(peer.clone()));
        }
    }

    /// Whether `rank` takes part, but calls nothing more.
    pub fn is_closing(&self, rank: Rank) -> bool {
        matches!(self.states.get(rank), Some(State::Closing(_)))
    }

    /// Whether `rank` can receive the result of what `callers` have called: it takes part, and is one of them
    /// or may still be.
    pub(crate) fn receives(&self, rank: Rank, callers: &Path) -> bool {
        self.takes_part(rank) && (callers.contains(rank) || !self.is_closing(rank))
    }

    /// Whether `rank` may yet call something.
    pub fn may_call(&self, rank: Rank) -> bool {
        matches!(self.states.get(rank), Some(State::Alive(_) | State::Expected | State::Away(_)))
    }

    /// Lets `rank`, which takes part, go.
    pub fn leave(&mut self, rank: Rank) {
        if let Some(peer) = self.alive(rank).cloned() {
            self.change(rank, State::Left(peer));
        }
    }

    /// Why a reduction of `group` cannot complete, given the ranks that have `arrived`.
    pub(crate) fn absent(&self, group: &Path, arrived: &Path) -> Option<Refusal> {
        if self.everyone_here() {
            return None;
        }
        // Few are gone, many may have arrived.
        let of_group = |gone: &Path| -> Path {
            gone.intersection(group).iter().filter(|rank| !arrived.contains(*rank)).collect()
        };
        let failed = of_group(&self.failed);
        if !failed.is_empty() {
            return Some(Refusal::ProcessFailed { ranks: failed });
        }
        let left = of_group(&self.leaving);
        (!left.is_empty()).then_some(Refusal::RanksLeft { ranks: left })
    }

    fn change(&mut self, rank: Rank, state: State) {
        self.leaving.remove(rank);
        self.away.remove(rank);
        let now_in = match &state {
            State::Failed(_) => Some(&mut self.failed),
            State::Away(_) => Some(&mut self.away),
            State::Left(_) | State::Closing(_) => Some(&mut self.leaving),
            State::Expected | State::Alive(_) => None,
        };
        if let Some(ranks) = now_in {
            ranks.insert(rank).expect("nobody fails twice");
        }
        let before = self.states.insert(rank, state);
        self.open -= u32::from(matches!(before, Some(State::Alive(_))));
    }

    /// The process of `rank`, if it takes part.
    pub fn alive(&self, rank: Rank) -> Option<&Peer> {
        match self.states.get(rank) {
            Some(State::Alive(peer) | State::Closing(peer)) => Some(peer),
            _ => None,
        }
    }

    /// All processes that take part, by rank.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.states.iter().filter_map(|(_, state)| match state {
            State::Alive(peer) | State::Closing(peer) => Some(peer),
            _ => None,
        })
    }

    /// The processes that take part, by rank.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.peers().map(|peer| peer.process)
    }

    /// The processes of `group` that take part.
    pub fn processes_of(&self, group: &Path) -> impl Iterator<Item = ProcessId> {
        group.iter().filter_map(|rank| self.alive(rank)).map(|peer| peer.process)
    }

    /// Whether the bytes of `ready` can be read.
    ///
    /// What a process that has died has left in its region does not change any more. Its agent holds it for
    /// everybody; without an agent it stays mapped at the peers of its host. Of a process that was only
    /// silent nothing is read (I2): it may wake up and go on writing.
    pub fn readable(&self, ready: &Ready, share_memory: bool) -> bool {
        let process = ready.process;
        match &ready.data {
            Data::Inline(_) => true,
            _ if self.lives(process) => true,
            Data::Window(window) => {
                let is_held = match self.agents.custody(process) {
                    Custody::Agent => true,
                    Custody::Gone => false,
                    Custody::Nobody => share_memory,
                };
                is_held && self.has_left_memory(process) && window.place.outlives_its_process()
            }
            Data::Private => false,
        }
    }

    /// Whether somebody answers for what lies in the region of `process`: itself, or its agent. Then a read
    /// that fails does not prove that it is gone.
    pub(crate) fn is_answered_for(&self, process: ProcessId) -> bool {
        let is_held = || self.agents.custody(process) == Custody::Agent;
        self.lives(process) || (self.has_left_memory(process) && is_held())
    }

    /// Whether this process takes part: it was neither declared failed nor has it left.
    pub fn lives(&self, process: ProcessId) -> bool {
        self.alive(process.rank).is_some_and(|peer| peer.process == process)
    }

    fn has_left_memory(&self, process: ProcessId) -> bool {
        self.evidence(process).is_some_and(Evidence::leaves_memory)
    }

    /// Who keeps the replicas of whose originals, among the living of `group`.
    pub fn placement(&self, group: &Path) -> Placement {
        let members = group.iter().filter_map(|rank| self.alive(rank)).map(|peer| Member {
            rank: peer.process.rank,
            host: peer.host,
            domain: peer.domain.clone(),
        });
        Placement::of(&members.collect::<Vec<_>>())
    }

    /// Ranks in the state that `which` accepts.
    pub fn ranks(&self, which: impl Fn(&State) -> bool) -> Path {
        self.states.iter().filter(|(_, state)| which(state)).map(|(rank, _)| rank).collect()
    }
}
