//! What the agents of hosts hear, see and say.

use std::time::Duration;

use everfold_agent::Event;
use everfold_protocol::{ProcessId, Rank, Timestamp, message::Ending};

use rand::Rng;

use super::World;
use crate::{
    agent::{self, Agent, Deed, Standing},
    events::{Happening, Place},
    process::Process,
};

/// How long an agent looks for the master on whose host nobody is left that needs it, as in real jobs.
pub(crate) const BRIEFLY: Duration = Duration::from_secs(10);

impl World {
    /// Lets all agents find the master.
    pub(super) fn join_agents(&mut self) {
        if !self.settings.agents {
            return;
        }
        for host in self.agents.keys().copied().collect::<Vec<_>>() {
            if !self.settings.seeks_master(host) {
                continue;
            }
            let (patience, most) = (self.settings.policy.join_timeout, self.settings.agents_join);
            let found = self.find_master(host, patience);
            // Some have come by an earlier connection, whose end is seen only now.
            let here = self.processes.iter().filter(|process| process.host == host).map(|process| process.id);
            let again: Vec<ProcessId> = here.filter(|process| process.rank.0.is_multiple_of(2)).collect();
            for process in again {
                let connection = agent::earlier_connection(process);
                self.schedule(found + most, Happening::AtAgent(host, Event::HungUp(connection)));
                self.schedule(found + most, Happening::AtAgent(host, Event::Vanished(connection)));
            }
        }
    }

    /// Lets agents hear only now of some processes that they were started.
    pub(super) fn tell_late_starts(&mut self) {
        if !self.settings.has_parents() || !self.settings.early_ends.is_empty() {
            return;
        }
        // Nobody can have heard from the master yet.
        let at = self.now() + self.settings.latency.0;
        for rank in (0..self.settings.ranks).map(Rank) {
            let process = ProcessId::first(rank);
            if agent::is_told_late(process) {
                self.schedule(at, Happening::AtAgent(self.home(rank), Event::Started(process)));
            }
        }
    }

    /// Lets an agent find the master after a while, or the place to which it is to come, or give up after its
    /// `patience` if there is none. Tells when.
    fn find_master(&mut self, host: u64, patience: Duration) -> Timestamp {
        if !self.settings.has_master() && !self.settings.has_several_hosts() {
            let at = self.now() + patience;
            self.schedule(at, Happening::AtAgent(host, Event::MasterLost));
            return at;
        }
        let most = self.settings.agents_join;
        let wait = match most.is_zero() {
            true => most,
            false => self.courier.random().random_range(Duration::ZERO..most),
        };
        let found = self.now() + wait;
        self.schedule(found, Happening::AtAgent(host, Event::MasterFound(self.lodging(host))));
        found
    }

    /// Lets an agent look for the master for a while and no longer.
    fn seek_master_briefly(&mut self, host: u64) {
        match self.settings.has_several_hosts() {
            // It has looked for it before.
            true => self.schedule(self.now() + BRIEFLY, Happening::GivesUp(host)),
            false => drop(self.find_master(host, BRIEFLY)),
        }
    }

    /// Lets an agent take in an event.
    pub(super) fn tell_agent(&mut self, host: u64, event: Event) {
        let Some(agent) = self.agents.get_mut(&host).filter(|agent| agent.lives()) else { return };
        let finds = matches!(event, Event::MasterFound(_));
        if finds && self.driver.is_lost() && !self.settings.early_ends.is_empty() {
            // It goes on looking.
            return;
        }
        let is_over = finds && (self.driver.is_done() || self.driver.is_lost());
        let event = if is_over { Event::MasterLost } else { event };
        for deed in agent.hear(event) {
            match deed {
                Deed::Tell(message) => self.courier.agent_tells(&mut self.agenda, host, message),
                Deed::Start(process, origin) => self.order_start(host, process, origin),
                Deed::StandBy(process, origin) => {
                    self.plan_standby(host, process);
                    self.order_start(host, process, origin);
                }
                Deed::Promote(process) => self.promote(process),
                Deed::End(process) => self.end_needless(process),
                Deed::DropReplica(process) => self.drop_replica(host, process),
                Deed::Release(process) => self.release_but_kept(host, process),
                Deed::Masterless => self.end_ranks_without_master(host),
                Deed::CallOff => self.call_off(),
                Deed::Finish => self.finish_agent(host),
                Deed::HangUp => self.end_those_who_look_for_the_master(host),
                Deed::SeekMasterBriefly => self.seek_master_briefly(host),
            }
        }
    }

    /// Lets an agent end that has nothing more to do. A job that goes on needs all of its agents.
    fn finish_agent(&mut self, host: u64) {
        let goes_on = self.settings.early_ends.is_empty() && !self.agents[&host].has_lost_master;
        assert!(!goes_on, "the agent of host {host} ends before the job does");
        self.hang_up_on_master_before_the_job(host);
    }

    /// Lets the agent of a process see that this is connected no longer. It may live on.
    pub(super) fn show_hang_up(&mut self, process: ProcessId) {
        self.show_agent_of(process, Event::HungUp(agent::connection(process)));
    }

    /// Lets the agent of a process see that this has ended: how, sees only its parent.
    pub(super) fn show_end(&mut self, process: ProcessId, ending: Ending) {
        let event = match self.settings.has_parents() {
            true => Event::Ended(process, ending),
            false => Event::Vanished(agent::connection(process)),
        };
        self.show_agent_of(process, event);
        self.show_alone(self.host_of(process));
    }

    fn show_agent_of(&mut self, process: ProcessId, event: Event) {
        if self.settings.agents {
            self.schedule(self.now(), Happening::AtAgent(self.host_of(process), event));
        }
    }

    /// Lets the agent of a host end: as it should, or with its host and without a word.
    pub(super) fn end_agent(&mut self, host: u64, standing: Standing) {
        let Some(agent) = self.agents.get_mut(&host).filter(|agent| agent.lives()) else { return };
        agent.standing = standing;
        let (now, is_masters) = (self.now(), host == self.settings.master_host());
        drop(self.thaw(Place::Agent(host)));
        self.facts.end_host(now, host);
        self.lose_logs(host);
        self.lose_replicas(host);
        self.lose_standbys(host);
        let is_early = !self.settings.early_ends.is_empty();
        if is_masters {
            self.facts.end_master(now);
            self.driver.die();
        }
        match standing {
            _ if is_early && is_masters => self.miss_master_before_the_job(standing),
            _ if is_early => self.miss_host_before_the_job(host, standing),
            Standing::Ended if is_masters => self.lose_master(),
            Standing::Vanished if is_masters && self.settings.agents => {
                // They wait in vain for a word of it.
                let given_up = now + self.settings.policy.limits.silence_max();
                for host in self.agents.keys() {
                    self.agenda.schedule(given_up, Happening::AtAgent(*host, Event::MasterLost));
                }
            }
            Standing::Ended if self.settings.agents => self.courier.lose_agent(&mut self.agenda, host),
            _ => {}
        }
    }

    /// Lets all agents see that their connection to the master breaks.
    pub(super) fn hang_up_agents(&mut self) {
        for host in self.agents.keys().filter(|_| self.settings.agents) {
            self.courier.tell_agent(&mut self.agenda, *host, Event::MasterLost);
        }
    }

    /// Hosts whose agents go on although all of their ranks have hung up.
    pub(crate) fn needless_agents(&self) -> impl Iterator<Item = u64> {
        let has_hung_up =
            |process: &Process| process.worker.is_none() || self.closed.contains(&process.id.rank);
        let goes_on = |agent: &Agent| self.settings.agents && agent.lives() && !agent.is_done();
        let is_needless = move |(host, agent): &(&u64, &Agent)| {
            goes_on(agent) && self.processes.iter().filter(|process| process.host == **host).all(has_hung_up)
        };
        self.agents.iter().filter(is_needless).map(|(host, _)| *host)
    }
}
