//! Symptoms of hosts, ranks and links in the master's messages.
//!
//! The observer stands beside the master and hears the same messages. It changes nothing there, and costs a
//! look-up per message.
//!
//! | module | observes |
//! |---|---|
//! | `arrivals` | ranks that keep others waiting, that have not called, or whose calls differ |
//! | `reads` | pairs of hosts between which reads are slow, or fail |
//!
//! Deliberately absent: what ranks of one host fold on their board, and what deputies decide. The master
//! hears of neither.

mod arrivals;
mod reads;

use alloc::{collections::BTreeMap, collections::VecDeque, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    AgentId, Path, ProcessId, Rank, ReductionId,
    locating::HostRef,
    message::{Ending, Evidence, Task, ToMaster},
    report::Refusal,
    time::Timestamp,
};

use self::{arrivals::Arrivals, reads::Reads};
use crate::{
    peers,
    place::{Host, Place},
    symptom::{Kind, Symptom},
};

/// How often is looked at what has come.
const LOOK: Duration = Duration::from_millis(500);
/// Ranks that wait for a core for this share of the time in which they want one are starved ...
const STARVED_LEAST: f64 = 0.25;
/// ... if that makes them this many times slower than those of the median host.
const STARVED_RATIO: f64 = 2.0;
/// Where there are too few hosts to compare, this share alone is a symptom.
const STARVED_ALONE: f64 = 0.5;

/// The master's host observes, and it is the root.
const ME: Host = Host(0);

/// What is observed of a job.
#[derive(Debug)]
pub struct Observer {
    homes: BTreeMap<Rank, Host>,
    agents: BTreeMap<AgentId, Host>,
    /// Hosts and ranks that were given up: nobody waits for them.
    lost: Path,
    arrivals: Arrivals,
    reads: Reads,
    starved: BTreeMap<Host, f64>,
    next: Timestamp,
    outbox: VecDeque<Symptom>,
}

impl Observer {
    /// Observes a job on these hosts, which begins now.
    pub fn new(now: Timestamp, hosts: &[HostRef]) -> Self {
        let numbered = || (0..).map(Host).zip(hosts);
        let ranks =
            |(host, it): (Host, &HostRef)| it.ranks.iter().map(move |rank| (rank, host)).collect::<Vec<_>>();
        Self {
            homes: numbered().flat_map(ranks).collect(),
            agents: numbered().map(|(host, it)| (it.agent.id, host)).collect(),
            lost: Path::empty(),
            arrivals: Arrivals::new(now),
            reads: Reads::default(),
            starved: BTreeMap::new(),
            next: now + LOOK,
            outbox: VecDeque::new(),
        }
    }

    /// A rank has said something to the master.
    pub fn handle_message(&mut self, now: Timestamp, sender: ProcessId, message: &ToMaster) {
        match message {
            ToMaster::Contribute(call) => self.arrivals.handle_call(now, sender, call),
            ToMaster::PartialReady(done) => self.reads.handle_done(now, sender, done.task, &done.counters),
            ToMaster::TaskFailed(failed) => {
                self.reads.forget(sender, failed.task);
                let kind = reads::symptom_of(failed.fault);
                self.observe_read(kind, failed.culprit.rank, sender.rank);
            }
            ToMaster::NotCollected(part) => {
                self.observe_read(reads::symptom_of(part.fault), part.culprit.rank, sender.rank);
            }
            ToMaster::Closing | ToMaster::Leave => self.give_up(sender.rank),
            _ => {}
        }
    }

    /// The master has given a rank a task.
    pub fn handle_task(&mut self, to: ProcessId, task: &Task) {
        self.reads.handle_task(to, task, &self.homes);
    }

    /// A reduction has ended, or is refused.
    pub fn handle_over(&mut self, now: Timestamp, reduction: ReductionId, refusal: Option<&Refusal>) {
        match refusal {
            Some(Refusal::Mismatch { .. }) => self.arrivals.disagree(now, reduction),
            Some(Refusal::Diverged { rank, .. }) => self.observe_rank(Kind::Diverging, *rank, 1.0),
            _ => self.arrivals.forget(reduction),
        }
    }

    /// The master has declared a process failed. The loss of its host is told by itself.
    pub fn handle_failed(&mut self, rank: Rank, evidence: Evidence) {
        self.give_up(rank);
        match evidence {
            Evidence::Silent(time) => self.observe_rank(Kind::Silence, rank, time.as_secs_f64()),
            Evidence::Ended(ending) => self.handle_ended(rank, ending),
            Evidence::Disconnected | Evidence::HostLost => {}
        }
    }

    /// It is known how a process has ended that had not left the job.
    pub fn handle_ended(&mut self, rank: Rank, ending: Ending) {
        self.observe_rank(Kind::Ended, rank, 1.0);
        if ending == Ending::OutOfMemory {
            self.observe_rank(Kind::OutOfMemory, rank, 1.0);
        }
    }

    /// A rank whose process had failed has come back, on the host of this agent.
    pub fn handle_returned(&mut self, rank: Rank, agent: Option<AgentId>) {
        self.lost.remove(rank);
        match agent.and_then(|agent| self.agents.get(&agent)) {
            Some(&host) => drop(self.homes.insert(rank, host)),
            None => drop(self.homes.remove(&rank)),
        }
    }

    /// An agent is gone: its connection broke, or it was silent for this long.
    pub fn handle_agent_gone(&mut self, agent: AgentId, silence: Option<Duration>) {
        let Some(&host) = self.agents.get(&agent) else { return };
        self.starved.remove(&host);
        let (kind, value) = match silence {
            Some(time) => (Kind::Silence, time.as_secs_f64()),
            None => (Kind::Broken, 1.0),
        };
        self.observe(kind, Place::Host(host), value, 1.0);
    }

    /// An agent says for which share of the time its ranks wait for a core.
    pub fn handle_starved(&mut self, agent: AgentId, share: f64) {
        if let Some(&host) = self.agents.get(&agent) {
            self.starved.insert(host, share);
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK;
        let ranks: Vec<Rank> = self.homes.keys().copied().filter(|rank| !self.lost.contains(*rank)).collect();
        let found = self.arrivals.look(now, &ranks);
        for (kind, rank, value, threshold) in found {
            if let Some(&host) = self.homes.get(&rank) {
                self.observe(kind, Place::Rank { rank, host }, value, threshold);
            }
        }
        let starving = self.starving();
        let starves = |host: Host| starving.iter().any(|(other, ..)| *other == host);
        for (place, ratio) in self.reads.look(now) {
            let is_explained = match place {
                Place::Link { from, to } => starves(from) || starves(to),
                _ => place.host().is_some_and(starves),
            };
            if !is_explained {
                self.observe(Kind::SlowRead, place, ratio, reads::SLOW);
            }
        }
        for (host, share, threshold) in starving {
            self.observe(Kind::CpuPressure, Place::Host(host), share, threshold);
        }
    }

    /// When to call [`Observer::handle_timeout`] next.
    pub fn next_timeout(&self) -> Timestamp {
        self.next
    }

    /// The next symptom.
    pub fn poll_symptom(&mut self) -> Option<Symptom> {
        self.outbox.pop_front()
    }

    /// Hosts whose ranks wait for cores more than those of others, and from which share on that is so.
    fn starving(&self) -> Vec<(Host, f64, f64)> {
        let hosts: Vec<Host> = self.agents.values().copied().collect();
        let shares: Vec<f64> =
            hosts.iter().map(|host| self.starved.get(host).copied().unwrap_or(0.0)).collect();
        let limit = match peers::median(&shares) {
            // Who runs in a part r of the time is 1 / r times slower than who never waits.
            Some(median) => (1.0 - (1.0 - median) / STARVED_RATIO).max(STARVED_LEAST),
            None => STARVED_ALONE,
        };
        hosts
            .into_iter()
            .zip(shares)
            .filter(|(_, share)| *share > limit)
            .map(|(host, share)| (host, share, limit))
            .collect()
    }

    fn give_up(&mut self, rank: Rank) {
        let _ = self.lost.insert(rank);
    }

    fn observe_read(&mut self, kind: Kind, owner: Rank, reader: Rank) {
        let (Some(&from), Some(&to)) = (self.homes.get(&owner), self.homes.get(&reader)) else { return };
        let place =
            if from == to { Place::Rank { rank: owner, host: from } } else { Place::Link { from, to } };
        self.observe(kind, place, 1.0, 1.0);
    }

    fn observe_rank(&mut self, kind: Kind, rank: Rank, value: f64) {
        if let Some(&host) = self.homes.get(&rank) {
            self.observe(kind, Place::Rank { rank, host }, value, 1.0);
        }
    }

    fn observe(&mut self, kind: Kind, suspect: Place, value: f64, threshold: f64) {
        self.outbox.push_back(Symptom { kind, suspect, witness: ME, ago: Duration::ZERO, value, threshold });
    }
}

#[cfg(test)]
mod tests;
