//! What the agents of hosts hear, see and say.

use std::time::Duration;

use everfold_protocol::{
    ProcessId,
    message::{Ending, FromAgent, ToAgent},
};

use rand::Rng;

use super::World;
use crate::{
    agent::Standing,
    events::{Happening, Place},
};

/// How the system ends what a schedule kills.
const KILLED: Ending = Ending::Signal(9);

impl World {
    /// Lets all agents join.
    pub(super) fn join_agents(&mut self) {
        if !self.settings.agents {
            return;
        }
        for host in self.agents.keys().copied().collect::<Vec<_>>() {
            let most = self.settings.agents_join;
            let wait = match most.is_zero() {
                true => most,
                false => self.courier.random().random_range(Duration::ZERO..most),
            };
            self.schedule(self.now() + wait, Happening::JoinAgent(host));
        }
    }

    /// Lets an agent join.
    pub(super) fn join_agent(&mut self, host: u64) {
        let Some(agent) = self.agents.get_mut(&host).filter(|agent| agent.lives()) else { return };
        let early = agent.early.take().unwrap_or_default();
        self.courier.agent_tells(&mut self.agenda, host, FromAgent::Join);
        early.into_iter().for_each(|process| self.see_end(host, process));
    }

    /// Lets an agent hear what the master says.
    pub(super) fn tell_agent(&mut self, host: u64, said: ToAgent) {
        let Some(agent) = self.agents.get_mut(&host).filter(|agent| agent.lives()) else { return };
        match said {
            ToAgent::Ping { number } => {
                self.courier.agent_tells(&mut self.agenda, host, FromAgent::Pong { number });
            }
            ToAgent::Forget { process } => agent.forget(process),
            ToAgent::Farewell => {}
        }
    }

    /// Lets the agent of a process see that this has ended, or is about to.
    pub(super) fn show_end(&mut self, process: ProcessId) {
        let host = self.settings.host(process.rank);
        if self.settings.agents {
            self.schedule(self.now(), Happening::SeeEnd(process, host));
        }
    }

    /// Lets an agent tell the master of a process that has ended.
    pub(super) fn see_end(&mut self, host: u64, process: ProcessId) {
        let Some(agent) = self.agents.get_mut(&host).filter(|agent| agent.lives()) else { return };
        if let Some(early) = &mut agent.early {
            early.push(process);
        } else {
            let has_left = self.process(process.rank).worker.is_some();
            let ending = if has_left { Ending::Code(0) } else { KILLED };
            self.courier.agent_tells(&mut self.agenda, host, FromAgent::Ended { process, ending });
        }
    }

    /// Lets the agent of a host end: as it should, or with its host and without a word.
    pub(super) fn end_agent(&mut self, host: u64, standing: Standing) {
        let Some(agent) = self.agents.get_mut(&host).filter(|agent| agent.lives()) else { return };
        agent.standing = standing;
        let (now, is_masters) = (self.now(), host == self.settings.master_host());
        drop(self.thaw(Place::Agent(host)));
        self.facts.end_host(now, host);
        if is_masters {
            self.facts.end_master(now);
            self.driver.die();
        }
        match standing {
            Standing::Ended if is_masters => self.lose_master(),
            Standing::Ended if self.settings.agents => self.courier.lose_agent(&mut self.agenda, host),
            _ => {}
        }
    }
}
