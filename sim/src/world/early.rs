//! Processes that end before they join: then there is no job. Only in worlds where
//! [`Settings::early_ends`](crate::Settings::early_ends) names some.

use everfold_agent::Event as AgentEvent;
use everfold_protocol::{Path, ProcessId, Rank, message::Ending};

use super::World;
use crate::{
    agent::{Agent, Standing},
    events::Happening,
    settings::{Settings, Stage},
};

/// How a process ends that was started for a job which does not begin.
const FAILED: Ending = Ending::Code(1);

/// Whether there is a master yet, and what waits for it until then.
#[derive(Debug)]
pub(super) struct Early {
    is_led: bool,
    /// What has come to the place of the master.
    waiting: Vec<Happening>,
}

impl Early {
    pub(super) fn new(is_led: bool) -> Self {
        Self { is_led, waiting: Vec::new() }
    }

    /// Keeps what is for the master until there is one.
    pub(super) fn hold(&mut self, what: Happening) -> Option<Happening> {
        if self.is_led {
            return Some(what);
        }
        self.waiting.push(what);
        None
    }
}

/// The agent of a host whose parent has started all ranks there: some never come to it.
pub(super) fn agent(settings: &Settings, host: u64) -> Agent {
    let started = settings.ranks_on(host).map(ProcessId::first).collect::<Vec<_>>();
    let comes =
        |process: &ProcessId| !matches!(settings.early_ends.get(&process.rank), Some((_, Stage::Started)));
    let has_others = settings.has_several_hosts();
    Agent::with_parent(started.into_iter(), comes, has_others, settings.seeks_master(host))
}

impl World {
    /// Lets processes end before they join. Where rank 0 does not come to its agent there is no master, until
    /// that agent hosts one, if there are other hosts.
    pub(super) fn plan_early_ends(&mut self) {
        let now = self.now();
        for (rank, (after, stage)) in self.settings.early_ends.clone() {
            let process = ProcessId::first(rank);
            self.process_mut(rank).joins = false;
            if stage == Stage::Connected {
                self.driver.connect(process);
            }
            self.schedule(now + after, Happening::EndsEarly(process));
        }
        if self.settings.has_master() {
            return;
        }
        if !self.settings.has_several_hosts() {
            self.facts.end_master(now);
            self.driver.die();
        }
        let given_up = now + self.settings.policy.join_timeout;
        for rank in (0..self.settings.ranks).map(Rank) {
            if !self.settings.early_ends.contains_key(&rank) {
                self.process_mut(rank).joins = self.settings.has_several_hosts();
                self.schedule(given_up, Happening::EndsEarly(ProcessId::first(rank)));
            }
        }
    }

    /// Lets there be a master, in the agent of rank 0's host.
    pub(super) fn call_off(&mut self) {
        self.early.is_led = true;
        for what in std::mem::take(&mut self.early.waiting) {
            if let Some(what) = self.put_off(what) {
                self.hear(what);
            }
        }
    }

    /// Lets the agent of a host give up that has not found the master so far.
    pub(super) fn give_up_seeking(&mut self, host: u64) {
        if self.agents.get(&host).is_some_and(|agent| !agent.has_joined) {
            self.schedule(self.now(), Happening::AtAgent(host, AgentEvent::MasterLost));
        }
    }

    /// Ends ranks of a host whose agent has lost the master before they have found that.
    pub(super) fn end_those_who_look_for_the_master(&mut self, host: u64) {
        for rank in self.ranks_at(host) {
            if !self.early.is_led && self.process(rank).joins {
                self.end_early(self.process(rank).id);
            }
        }
    }

    /// Lets the master see the connection of an agent break that has ended as it should, although there is a
    /// master.
    pub(super) fn hang_up_on_master_before_the_job(&mut self, host: u64) {
        if !self.settings.early_ends.is_empty() && host != self.settings.master_host() {
            self.miss_host_before_the_job(host, Standing::Ended);
        }
    }

    /// Lets all that have a connection to the master see that break before the job has begun: at once, or, if
    /// its host says nothing any more, when that has lasted too long.
    pub(super) fn miss_master_before_the_job(&mut self, standing: Standing) {
        let silent_until =
            (standing == Standing::Vanished).then(|| self.now() + self.settings.policy.limits.silence_max());
        let Self { agenda, courier, .. } = self;
        for (host, _) in self.agents.iter().filter(|(_, agent)| agent.has_joined) {
            match silent_until {
                Some(at) => agenda.schedule(at, Happening::AtAgent(*host, AgentEvent::MasterLost)),
                None => courier.tell_agent(agenda, *host, AgentEvent::MasterLost),
            }
        }
        for process in self.processes.iter().filter(|process| process.joins && self.early.is_led) {
            match silent_until {
                Some(at) => agenda.schedule(at, Happening::MasterLost(process.id)),
                None => courier.lose_master(agenda, process.id),
            }
        }
    }

    /// Lets the master see its connection to the agent of a host break before the job has begun, if there is
    /// one: at once, or, if the host says nothing any more, when that has lasted too long.
    pub(super) fn miss_host_before_the_job(&mut self, host: u64, standing: Standing) {
        if !self.agents.get(&host).is_some_and(|agent| agent.has_joined) {
            return;
        }
        if standing == Standing::Vanished {
            let at = self.now() + self.settings.policy.limits.silence_max();
            self.schedule(at, Happening::AgentLost(host));
        } else {
            self.courier.lose_agent(&mut self.agenda, host);
        }
    }

    /// Lets a process end that has not joined.
    pub(super) fn end_early(&mut self, process: ProcessId) {
        let is_early = self.settings.early_ends.contains_key(&process.rank);
        let has_joined = !is_early && self.early.is_led && self.process(process.rank).joins;
        if self.process(process.rank).worker.is_none() || has_joined {
            return;
        }
        self.end_process(process);
        let stage = self.settings.early_ends.get(&process.rank).map_or(Stage::Hailed, |(_, stage)| *stage);
        if stage == Stage::Connected {
            self.hang_up(process);
        }
        if stage != Stage::Started {
            self.show_hang_up(process);
        }
        self.show_end(process, FAILED);
    }

    /// Lets a process end that was told that there is no job.
    pub(super) fn end_without_job(&mut self, process: ProcessId, missing: Path) {
        self.incomplete.insert(process.rank, missing);
        self.end_process(process);
        self.hang_up(process);
        self.show_hang_up(process);
        self.show_end(process, FAILED);
    }

    /// Lets all processes of a host end to which the master was to come.
    pub(super) fn end_ranks_without_master(&mut self, host: u64) {
        for rank in self.ranks_at(host) {
            self.end_early(self.process(rank).id);
        }
    }

    /// Lets the agent of a host hear that none of the processes that were started there is left, once all
    /// have ended: their parent knows. The parent of a spare host does not say so.
    pub(super) fn show_alone(&mut self, host: u64) {
        let has_parent = self.settings.has_parents();
        let is_spare = self.settings.ranks_on(host).next().is_none();
        let lives = |rank: Rank| self.process(rank).worker.is_some() || self.process(rank).lives_on;
        if has_parent && !is_spare && !self.ranks_at(host).into_iter().any(lives) {
            self.schedule(self.now(), Happening::AtAgent(host, AgentEvent::Alone));
        }
    }
}
