//! Ranks that come back on other hosts.
//!
//! Each rank keeps a replica of its vault with the agent of another host. When its own host is lost, an agent
//! starts it again from there: a spare one, or the one with the fewest ranks.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    AgentId, Path, ProcessId, Rank,
    message::{News, NoReturn, Origin, ToAgent, ToWorker},
};

use super::Master;
use crate::{
    recovery::{Judgement, Sign, Start, Verdict},
    replicas::Replica,
    timers::Timer,
};

impl Master {
    /// Takes in the offer of a host that joins, and places replicas there of ranks that have none.
    pub(super) fn welcome_agent(&mut self, agent: AgentId) {
        let limits = self.desk.policy.limits;
        if limits.replica_bytes_max == 0 {
            return;
        }
        self.desk.outbox.send_agent(agent, ToAgent::Welcome { limits });
        for process in self.without_replica() {
            self.place_replica(process);
        }
    }

    /// Lets all ranks that keep no replica keep one, once the job has begun, or tells them that there is no
    /// place.
    pub(super) fn place_replicas(&mut self) {
        for process in self.without_replica() {
            if !self.place_replica(process) {
                // What an earlier process has left gets old.
                self.drop_replicas(process.rank);
                self.tell_unreplicated(process.rank, "no other host can keep one".into());
            }
        }
    }

    fn without_replica(&self) -> Vec<ProcessId> {
        if self.desk.policy.limits.replica_bytes_max == 0 || self.desk.members.is_joining() {
            return Vec::new();
        }
        self.desk.members.processes().filter(|process| !self.replicas.is_ordered(*process)).collect()
    }

    fn tell_unreplicated(&mut self, rank: Rank, reason: String) {
        self.tell_no_standby(rank, reason.clone());
        self.desk.tell(&Path::single(rank), News::Unreplicated { rank, reason });
    }

    /// Tells a process where to keep its replica, if there is a place: in another domain if there is one, and
    /// where the fewest are. Where its standby is to be with it, hosts with faults come after all others.
    /// Returns whether there is.
    fn place_replica(&mut self, process: ProcessId) -> bool {
        let agents = self.desk.members.agents();
        let Some(own) = agents.of(process) else { return false };
        let is_near =
            |agent: AgentId| agents.domain(own).is_some() && agents.domain(agent) == agents.domain(own);
        let fits = |agent: &AgentId| *agent != own && !self.replicas.has_refused(process.rank, *agent);
        let recoveries = &self.desk.policy.recoveries;
        let is_bad = |agent: AgentId| {
            recoveries.ranks_stand_by() && self.detectors.is_bad(self.desk.now, agent, recoveries)
        };
        let order =
            |agent: &AgentId| (is_bad(*agent), is_near(*agent), self.replicas.count_at(*agent), *agent);
        let place = agents.lodgings().filter(fits).min_by_key(order);
        let Some(to) = place.and_then(|agent| agents.lodging(agent)) else { return false };
        if let Some(useless) = self.replicas.order(process, to.id) {
            self.drop_replica(useless);
        }
        self.desk.outbox.send(process, ToWorker::Replicate { to });
        true
    }

    /// Takes in that an agent is lost, with all replicas there.
    pub(super) fn lose_replicas(&mut self, agent: AgentId) {
        let useless = self.replicas.lose_agent(agent);
        useless.into_iter().for_each(|replica| self.drop_replica(replica));
    }

    pub(super) fn hear_replicated(&mut self, sender: ProcessId, agent: AgentId) {
        if let Some(before) = self.replicas.complete(sender, agent) {
            self.drop_replica(before);
        }
        self.stand_by(sender.rank);
    }

    /// Takes in that a process keeps no replica with an agent, and lets it try another one.
    pub(super) fn hear_not_replicated(&mut self, sender: ProcessId, agent: AgentId, reason: String) {
        let is_news = self.replicas.lack(sender, agent);
        // From now on no process is started from its earlier notes.
        self.desk.outbox.send(sender, ToWorker::Unreplicated { agent });
        let Some(useless) = is_news else { return };
        self.stand_down(sender.rank);
        useless.into_iter().for_each(|replica| self.drop_replica(replica));
        self.tell_unreplicated(sender.rank, reason);
        self.place_replica(sender);
    }

    /// This rank is never started again.
    pub(super) fn drop_replicas(&mut self, rank: Rank) {
        let replicas = self.replicas.depart(rank);
        replicas.into_iter().for_each(|replica| self.drop_replica(replica));
    }

    fn drop_replica(&mut self, replica: Replica) {
        let Replica { process, agent } = replica;
        if self.standbys.of(process.rank).is_some_and(|standby| standby.follows == replica) {
            self.stand_down(process.rank);
        }
        if self.desk.members.agents().here().any(|here| here == agent) {
            self.desk.outbox.send_agent(agent, ToAgent::DropReplica { process });
        }
    }

    /// Whether a host is lost, or takes no rank, as it is in the domain of `from`, which is lost.
    pub(super) fn is_lost_with(&self, agent: AgentId, from: AgentId, sign: Sign) -> bool {
        let agents = self.desk.members.agents();
        agents.is_lost(agent) || (sign == Sign::Domain && agents.domain(agent) == agents.domain(from))
    }

    /// Has a rank started on another host than that of `from`, in place of `dead`.
    pub(super) fn migrate(&mut self, dead: ProcessId, from: AgentId, sign: Sign) {
        let replica = self.replicas.whole(dead.rank);
        let (Some(replica), Some(agent)) = (replica, self.find_host(dead, from, sign)) else {
            // It was looked for when it was judged; a host that was lost since is judged by itself.
            return self.give_up(dead.rank, NoReturn::NoHost);
        };
        let to = self.desk.members.agents().lodging(agent).map(|to| to.address).unwrap_or_default();
        self.desk.tell_all(News::Migrates { rank: dead.rank, to });
        if self.desk.members.agents().here().any(|here| here == from) {
            self.desk.outbox.send_agent(from, ToAgent::Moved { process: dead });
        }
        self.start_after(Duration::ZERO, dead, agent, Some(replica));
    }

    /// Takes in that the host is lost on which a process was to be started, or one stood by that was to take a
    /// place. The host where that one had died may be well.
    pub(super) fn redirect(&mut self, Start { process, agent, is_promotion, .. }: Start) {
        let dead = self.desk.members.away_since(process.rank).filter(|_| is_promotion);
        let home = dead.and_then(|dead| self.desk.members.agents().holder(dead));
        self.desk.timers.call_off_all(Timer::Return(process));
        self.desk.timers.call_off_all(Timer::Start(agent, process));
        self.starts.forget(process.rank);
        // It may have been started: its messages are stale.
        self.desk.members.miss(process);
        let (sign, at) = match home {
            Some(home) => (Sign::Process(home), home),
            None => (self.sign_of_loss(agent), agent),
        };
        let judged = self.detect(process, sign, at, None);
        self.tell_passed(process.rank, &judged);
        match judged.verdict {
            Verdict::Migrate => self.migrate(process, at, sign),
            Verdict::Promote => self.promote(process, at),
            Verdict::Ignore(reason) => self.give_up(process.rank, reason),
            Verdict::Restart(pause) => self.start_after(pause, process, at, None),
        }
    }

    /// Tells which recoveries could not be done.
    pub(super) fn tell_passed(&mut self, rank: Rank, judged: &Judgement) {
        for &(recovery, reason) in &judged.passed {
            self.desk.tell_all(News::Passed { rank, recovery, reason });
        }
    }

    /// Where a process finds its vault.
    pub(super) fn origin(&self, replica: Replica) -> Option<Origin> {
        let agent = self.desk.members.agents().lodging(replica.agent)?;
        Some(Origin { process: replica.process, agent })
    }
}
