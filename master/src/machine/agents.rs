//! What agents say, and what follows when one is lost.

use alloc::vec::Vec;

use everfold_protocol::{
    AgentId, Path, ProcessId,
    message::{Ending, Evidence, FromAgent, Lodging, News, ToAgent, ToWorker},
};

use super::Master;
use crate::{liveness::Watched, recovery::Seen};

impl Master {
    /// Takes in what an agent says. One whose host was given up is not heard any more.
    pub(super) fn hear_agent(&mut self, agent: AgentId, said: FromAgent) {
        if self.desk.members.agents().is_lost(agent) {
            return self.desk.outbox.disconnect_agent(agent);
        }
        self.liveness.hear(self.desk.now, Watched::Agent(agent));
        self.own.see(self.desk.now, Seen::AgentSaid { agent, message: &said });
        match said {
            FromAgent::Join(lodging) => self.take_in_agent(agent, lodging),
            FromAgent::Ended { process, ending } => self.take_in_end(agent, process, ending),
            FromAgent::NeverCame { process, .. } => self.lose_expected(&[process]),
            FromAgent::Expects { ranks } => self.expect_at(agent, &ranks),
            // What locates faults is beside the master.
            FromAgent::Pong { .. } | FromAgent::Locating(_) => {}
        }
    }

    fn take_in_agent(&mut self, agent: AgentId, lodging: Lodging) {
        if !self.desk.members.take_in_agent(agent, lodging) {
            return;
        }
        self.liveness.watch(self.desk.now, Watched::Agent(agent));
        let domain = self.desk.members.agents().domain(agent);
        self.own.see(self.desk.now, Seen::HostCame { agent, domain });
        if !self.desk.members.is_joining() && self.desk.members.peers().next().is_none() {
            // The job was over before it came.
            self.desk.outbox.send_agent(agent, ToAgent::Farewell);
        }
        self.welcome_agent(agent);
        self.begin_if_all_here();
    }

    /// Takes in that the first processes of `ranks` were started on the host of an agent.
    fn expect_at(&mut self, agent: AgentId, ranks: &Path) {
        self.desk.members.expect_at(agent, ranks);
        self.take_back_host(agent);
    }

    /// Takes in that the host of an agent may be one that was lost and has come back: then it has started the
    /// first processes of its ranks in vain, and it does not matter how they end.
    fn take_back_host(&mut self, agent: AgentId) {
        let agents = self.desk.members.agents();
        let expected = agents.expected(agent).map(ProcessId::first);
        let in_vain: Vec<ProcessId> =
            expected.filter(|process| self.has_come_back(*process, agent)).collect();
        for process in in_vain {
            self.desk.members.replace_host_of(process);
            self.desk.outbox.send_agent(agent, ToAgent::Moved { process });
        }
    }

    /// Whether the host of `agent` is that of a process which was lost with it, and takes ranks from now on.
    pub(super) fn has_come_back(&self, process: ProcessId, agent: AgentId) -> bool {
        let ranks_migrate = self.desk.policy.limits.replica_bytes_max > 0;
        let members = &self.desk.members;
        ranks_migrate && !members.is_joining() && members.agents().was_lost_before(process, agent)
    }

    /// Takes in that an agent has seen a process end. Of one that has left in good order that is no news.
    fn take_in_end(&mut self, agent: AgentId, process: ProcessId, ending: Ending) {
        if self.standbys.has(process) {
            return self.lose_standby(process, ending);
        }
        let members = &self.desk.members;
        let is_awaited = self.starts.of(process.rank).is_some_and(|start| start.process == process);
        if is_awaited && members.away_since(process.rank).is_some() {
            return self.miss(process, agent);
        }
        if members.is_to_join(process) && ending != Ending::Unknown {
            // One that was started by hand ends unseen, and may be started again.
            return self.lose_expected(&[process]);
        }
        if members.agents().of(process) != Some(agent) {
            return self.desk.outbox.stale(process, "end of a process that has not joined from there");
        }
        if self.is_member(process) {
            return self.fail(process, Evidence::Ended(ending));
        }
        let rank = process.rank;
        let is_known = |known: Evidence| match known {
            Evidence::Ended(_) => true,
            // Its agent has ended it, so that its rank can come back.
            Evidence::Silent(_) => members.takes_part(rank),
            Evidence::Disconnected | Evidence::HostLost => false,
        };
        if members.evidence(process).is_some_and(|known| !is_known(known)) {
            if let Some(evidence) = self.desk.members.learn_end(process, ending) {
                self.reductions.values_mut().for_each(|reduction| reduction.learn(rank, evidence));
            }
            // How it has ended is no news where it was ended on purpose.
            if !self.desk.members.was_ended(process) {
                self.desk.tell_all(News::Ended { rank, ending });
            }
        }
    }

    /// Takes in that an agent is gone: its host is lost, with all processes there, and with all that others
    /// had left there before.
    pub(super) fn lose_agent(&mut self, agent: AgentId) {
        let expected = self.desk.members.expected_at(agent);
        let Some((living, dead)) = self.desk.members.lose_agent(agent) else { return };
        self.liveness.forget(Watched::Agent(agent));
        let domain = self.desk.members.agents().domain(agent);
        self.own.see(self.desk.now, Seen::HostLost { agent, domain });
        self.desk.outbox.disconnect_agent(agent);
        self.desk.send_all(&ToWorker::AgentLost { agent });
        self.lose_standbys(agent);
        self.lose_replicas(agent);
        // First those that were to be started there: what is put together again then knows who does not come.
        self.starts.at(agent).into_iter().for_each(|start| self.redirect(start));
        self.fail_all(&living, Evidence::HostLost, &dead);
        // Those that were yet to join from there do so no more.
        self.lose_expected(&expected);
        // Its host may be back, and may have been faster than the news of its loss.
        let here: Vec<AgentId> = self.desk.members.agents().here().collect();
        here.into_iter().for_each(|agent| self.take_back_host(agent));
        self.place_replicas();
        if self.desk.members.is_joining() {
            return;
        }
        let agents = self.desk.members.agents();
        let (ranks, domain) =
            (agents.processes(agent).map(|process| process.rank).collect(), agents.lost_domain(agent));
        self.desk.tell_all(News::HostLost { ranks });
        if let Some((domain, ranks)) = domain {
            self.desk.tell_all(News::DomainLost { domain, ranks });
        }
    }
}
