//! Processes that stand by: each follows the first of its rank by the replica of that one's vault, and takes its
//! place when it is promoted.
//!
//! What a standby does until then nobody sees but its agent. So its program begins when it takes the place, and
//! is answered from the replica, as that of a process which was started on another host.

use everfold_agent::Event as AgentEvent;
use everfold_protocol::{
    Epoch, ProcessId,
    message::{Ending, Header, ToMaster, ToWorker},
};
use rand::Rng;

use super::World;
use crate::{agent, events::Happening, settings::JOB};

/// A process that stands by, or is about to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standby {
    host: u64,
    is_up: bool,
    /// Whether it knows who is in the job.
    is_introduced: bool,
    is_promoted: bool,
    /// Whether it does nothing any more.
    is_frozen: bool,
    /// Whether it was ended before it was up.
    is_ended: bool,
}

/// How often a standby has taken a place.
pub(crate) const PROMOTIONS: &str = "standbys that have taken a place";

/// How often one was to, and did nothing.
pub(super) const FROZEN: &str = "standbys that were frozen when they were to take a place";

impl World {
    /// Takes in that a process which an agent is about to start is to stand by.
    pub(super) fn plan_standby(&mut self, host: u64, process: ProcessId) {
        let standing = self.settings.returns.and_then(|returns| returns.migrates).and_then(|it| it.standbys);
        let frozen = standing.map_or(0, |standing| standing.frozen);
        let is_frozen = self.courier.random().random_ratio(frozen, 100);
        let standby = Standby {
            host,
            is_up: false,
            is_introduced: false,
            is_promoted: false,
            is_frozen,
            is_ended: false,
        };
        self.comebacks.standbys.insert(process, standby);
    }

    /// Whether a process stands by, or has ended as a standby.
    pub(super) fn stands_by(&self, process: ProcessId) -> bool {
        self.comebacks.standbys.contains_key(&process)
    }

    /// Where a process stands by, or has.
    pub(super) fn standby_host(&self, process: ProcessId) -> Option<u64> {
        self.comebacks.standbys.get(&process).map(|standby| standby.host)
    }

    /// Starts a process that is to stand by. It finds what the first one has noted so far.
    pub(super) fn start_standby(&mut self, host: u64, process: ProcessId) {
        let Some(standby) = self.comebacks.standbys.get(&process).filter(|it| !it.is_ended) else { return };
        let replica = self.comebacks.origins.get(&process).copied().flatten();
        let is_there = replica.is_some_and(|(of, at)| self.comebacks.replicas.contains_key(&(at, of)));
        let is_over = self.driver.is_done() || self.driver.is_lost();
        if !is_there || is_over {
            return self.end_as_standby(process, Ending::Code(1));
        }
        self.comebacks.standbys.insert(process, Standby { is_up: true, ..*standby });
        self.tell_agent(host, AgentEvent::Hailed(agent::connection(process)));
        let returns = self.settings.returns.expect("only where ranks come back do others stand by");
        let at = self.now() + self.some_time(returns.start_time / 4);
        self.schedule(at, Happening::Follows(process));
        let standing = returns.migrates.and_then(|it| it.standbys);
        let deaths = standing.map_or(0, |standing| standing.deaths);
        if self.courier.random().random_ratio(deaths, 100) {
            let at = self.now() + self.some_time(returns.start_time * 4);
            self.schedule(at, Happening::Falls(process));
        }
    }

    /// Lets a process say that it stands by.
    pub(super) fn follow(&mut self, process: ProcessId) {
        if self.comebacks.standbys.get(&process).is_some_and(|standby| !standby.is_ended) {
            *self.seen.entry("processes that stood by").or_default() += 1;
            let header = Header { job: JOB, epoch: Epoch(0), sender: process };
            self.courier.tell_master(&mut self.agenda, &header, ToMaster::StandsBy);
        }
    }

    /// Takes in what the master tells a process that stands by.
    pub(super) fn tell_standby(&mut self, process: ProcessId, message: &ToWorker) {
        if let Some(standby) = self.comebacks.standbys.get_mut(&process)
            && matches!(message, ToWorker::Welcome { .. })
        {
            standby.is_introduced = true;
            self.take_place_later(process);
        }
    }

    /// Lets a standby take the place of the process that it has followed, once it can.
    pub(super) fn promote(&mut self, process: ProcessId) {
        if let Some(standby) = self.comebacks.standbys.get_mut(&process) {
            standby.is_promoted = true;
            *self.seen.entry(FROZEN).or_default() += u64::from(standby.is_frozen);
            self.take_place_later(process);
        }
    }

    fn take_place_later(&mut self, process: ProcessId) {
        let Some(standby) = self.comebacks.standbys.get(&process) else { return };
        if standby.is_introduced && standby.is_promoted && !standby.is_frozen && !standby.is_ended {
            let returns = self.settings.returns.expect("only where ranks come back do others stand by");
            let at = self.now() + self.some_time(returns.note_time);
            self.schedule(at, Happening::Takes(process));
        }
    }

    /// Lets a process that has stood by take the place of the first one: it joins.
    pub(super) fn take_place(&mut self, process: ProcessId) {
        let Some(standby) = self.comebacks.standbys.get(&process).filter(|standby| !standby.is_ended) else {
            return;
        };
        let host = standby.host;
        let lives = self.agents.get(&host).is_some_and(|agent| agent.lives() && !agent.is_done());
        if !lives || self.process(process.rank).id > process {
            // Another one was started meanwhile; this one is about to be ended.
            return;
        }
        self.comebacks.standbys.remove(&process);
        if let Some(vault) = self.comebacks.vaults.get(&process.rank) {
            self.comebacks.left.insert((self.home(process.rank), process.rank), vault.clone());
        }
        if self.replace(host, process) {
            *self.seen.entry(PROMOTIONS).or_default() += 1;
            self.schedule(self.now(), Happening::Joins(process));
        } else {
            self.end_without_vault(host, process);
        }
    }

    /// Ends a process that nobody needs: it stands by, has taken a place, has come too late, or is
    /// to be replaced and may live on.
    pub(super) fn end_needless(&mut self, process: ProcessId) {
        if self.stands_by(process) {
            self.end_as_standby(process, Ending::Signal(9));
        } else if self.process(process.rank).id == process && self.process(process.rank).worker.is_some() {
            *self.seen.entry("processes that lived on and were ended").or_default() += 1;
            self.die(process);
        } else if self.of(process).id == process {
            self.exit(process);
        }
    }

    /// Lets a standby die.
    pub(super) fn fall(&mut self, process: ProcessId) {
        if self.stands_by(process) {
            *self.seen.entry("standbys that have died").or_default() += 1;
            self.end_as_standby(process, Ending::Signal(11));
        }
    }

    fn end_as_standby(&mut self, process: ProcessId, ending: Ending) {
        let Some(standby) = self.comebacks.standbys.get_mut(&process).filter(|it| !it.is_ended) else {
            return;
        };
        standby.is_ended = true;
        let (host, is_up) = (standby.host, standby.is_up);
        if is_up {
            self.schedule(
                self.now(),
                Happening::AtAgent(host, AgentEvent::HungUp(agent::connection(process))),
            );
        }
        self.schedule(self.now(), Happening::AtAgent(host, AgentEvent::Ended(process, ending)));
    }

    /// Lets a standby end that finds its connection to the master broken.
    pub(super) fn turn_standby_away(&mut self, process: ProcessId) {
        if self.comebacks.standbys.get(&process).is_some_and(|standby| standby.is_up) {
            self.end_as_standby(process, Ending::Code(1));
        }
    }

    /// Lets all standbys end that are up.
    pub(super) fn turn_standbys_away(&mut self) {
        let all: Vec<ProcessId> = self.comebacks.standbys.keys().copied().collect();
        all.into_iter().for_each(|process| self.turn_standby_away(process));
    }

    /// Takes the standbys away that went with a host.
    pub(super) fn lose_standbys(&mut self, host: u64) {
        let there = self.comebacks.standbys.values_mut().filter(|standby| standby.host == host);
        there.for_each(|standby| standby.is_ended = true);
    }
}
