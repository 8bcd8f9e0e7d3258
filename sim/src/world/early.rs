//! Processes that end before they join: then there is no job. Only in worlds where
//! [`Settings::early_ends`](crate::Settings::early_ends) names some.

use everfold_agent::Event as AgentEvent;
use everfold_protocol::{Path, ProcessId, Rank, message::Ending};

use super::World;
use crate::{
    agent::Agent,
    events::Happening,
    settings::{Settings, Stage},
};

/// How a process ends that was started for a job which does not begin.
const FAILED: Ending = Ending::Code(1);

/// The agent of a host whose parent has started all ranks there: some never come to it.
pub(super) fn agent(settings: &Settings, host: u64) -> Agent {
    let started = settings.ranks_on(host).map(ProcessId::first).collect::<Vec<_>>();
    let comes =
        |process: &ProcessId| !matches!(settings.early_ends.get(&process.rank), Some((_, Stage::Started)));
    Agent::with_parent(started.into_iter(), comes, settings.seeks_master(host))
}

impl World {
    /// Lets processes end before they join. Where rank 0 never comes there is no master, and those of other
    /// hosts look for it in vain.
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
        self.facts.end_master(now);
        self.driver.die();
        let given_up = now + self.settings.policy.join_timeout;
        for rank in (0..self.settings.ranks).map(Rank) {
            if !self.settings.early_ends.contains_key(&rank) {
                self.process_mut(rank).joins = false;
                self.schedule(given_up, Happening::EndsEarly(ProcessId::first(rank)));
            }
        }
    }

    /// Lets a process end that has not joined.
    pub(super) fn end_early(&mut self, process: ProcessId) {
        if self.process(process.rank).worker.is_none() {
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

    /// Lets the agent of a host hear that no process comes any more, once all ranks there have ended: their
    /// parent knows.
    pub(super) fn show_alone(&mut self, host: u64) {
        let lives = |rank: Rank| self.process(rank).worker.is_some();
        if !self.settings.early_ends.is_empty() && !self.settings.ranks_on(host).any(lives) {
            self.schedule(self.now(), Happening::AtAgent(host, AgentEvent::Alone));
        }
    }
}
