//! Which detector is asked about a death, and which about the host that takes a rank: those of a programmer's
//! own first, then the built-in ones.

use alloc::{boxed::Box, vec::Vec};

use everfold_protocol::{
    AgentId, ProcessId,
    message::{Evidence, NoReturn},
};

use super::Master;
use crate::{
    located::Fault,
    recovery::{Candidate, Death, Detector, Elsewhere, Judgement, Own, Sign},
    timers::Timer,
};

impl Master {
    /// The same, with detectors that are asked in this order about each death, before the built-in ones.
    pub fn with_detectors(self, own: Vec<Box<dyn Detector>>) -> Self {
        Self { own: Own::new(own), ..self }
    }

    /// Takes in that a fault was located, or is over.
    pub(super) fn see_located(&mut self, fault: &Fault, over: bool) {
        self.detectors.see_located(fault, over);
        self.scheduler.see_located(fault, over);
    }

    /// Whether the loss of a host is a sign of a lost host or of a lost domain.
    pub(super) fn sign_of_loss(&self, agent: AgentId) -> Sign {
        let (lost, all) = self.desk.members.agents().losses_around(agent);
        Sign::of_loss(&self.desk.policy.recoveries, lost, all)
    }

    /// Lets the detectors judge that a rank has lost this process, which was on the host of `agent`: own
    /// ones, and if none of them makes a choice, the built-in ones.
    pub(super) fn detect(
        &mut self,
        process: ProcessId,
        sign: Sign,
        agent: AgentId,
        evidence: Option<Evidence>,
    ) -> Judgement {
        let rank = process.rank;
        let migrate = match (self.replicas.whole(rank), self.hosts(agent, sign).next()) {
            (None, _) => Err(NoReturn::NoReplica),
            (Some(_), None) => Err(NoReturn::NoHost),
            (Some(_), Some(_)) => Ok(()),
        };
        let elsewhere = Elsewhere { migrate, promote: self.can_promote(rank, agent, sign) };
        let (now, choice) = (self.desk.now, &self.desk.policy.recoveries);
        match self.own.judge(now, &Death { process, agent, sign, evidence, elsewhere }) {
            Some(chosen) => self.detectors.judge_chosen(chosen, now, rank, sign, choice, elsewhere),
            None => self.detectors.judge(now, rank, sign, choice, elsewhere),
        }
    }

    /// Hosts that can take a rank of the host of `from`: those of other domains, if its domain is lost.
    fn hosts(&self, from: AgentId, sign: Sign) -> impl Iterator<Item = AgentId> {
        let fits = move |agent: &AgentId| *agent != from && !self.is_lost_with(*agent, from, sign);
        self.desk.members.agents().lodgings().filter(fits)
    }

    /// Where a rank of the host of `from` is started in place of `dead`: where an own detector wants it, or
    /// else where processes do not fail again and again and the fewest ranks are.
    pub(super) fn find_host(&mut self, dead: ProcessId, from: AgentId, sign: Sign) -> Option<AgentId> {
        let mut own = core::mem::take(&mut self.own);
        let agents = self.desk.members.agents();
        let load = |agent: AgentId| self.desk.members.count_at(agent) + self.starts.at(agent).len();
        let candidate = |agent| Candidate { agent, ranks: load(agent), domain: agents.domain(agent) };
        let hosts = || self.hosts(from, sign).map(candidate);
        let chosen = own.choose_host(self.desk.now, dead, from, hosts());
        let hosts = hosts().map(|host| (host.agent, host.ranks));
        let choose = || self.detectors.choose_host(self.desk.now, &self.desk.policy.recoveries, hosts);
        let chosen = chosen.or_else(choose);
        self.own = own;
        chosen
    }

    /// Sets the timer of own detectors, if they want to be woken at another time than before.
    pub(super) fn look_when_own_are_due(&mut self) {
        if let Some(due) = self.own.poll_wake(self.desk.now) {
            self.desk.timers.call_off_all(Timer::Own);
            due.into_iter().for_each(|at| self.desk.timers.set(at, Timer::Own));
        }
    }
}
