//! Processes that join the job, and processes that leave it in good order.

use alloc::{borrow::ToOwned, sync::Arc, vec::Vec};

use everfold_protocol::{
    Path, ProcessId,
    message::{Evidence, Peer, ToAgent, ToWorker},
};

use super::Master;
use crate::{
    agents::Custody,
    event::Notice,
    liveness::Watched,
    membership::{Entry, State},
    remains,
    timers::Timer,
};

/// Why a process is not taken in whose host was lost and has come back.
const COMES_AGAIN: &str = "the host on which this rank ran was lost, and the rank goes on elsewhere, or not at \
                           all. This host is a spare one from now on, and takes ranks that migrate";

impl Master {
    /// Takes a process in. Once all ranks are here, the job begins.
    pub(super) fn join(&mut self, sender: ProcessId, peer: Peer, size: u32) {
        let expected = self.desk.members.size();
        if size != expected {
            let reason = format!(
                "it was started for a job of {size}, and the master for one of {expected}; give all processes the same \
                 EVERFOLD_SIZE, or start as many by the same launcher"
            );
            self.desk.outbox.send(sender, ToWorker::Unwelcome { reason });
            self.desk.outbox.disconnect(sender);
            return;
        }
        let entry = if peer.process == sender { self.desk.members.join(peer) } else { Entry::Refused };
        if entry == Entry::Refused {
            self.desk.outbox.stale(sender, "join of a rank that is not expected");
            self.desk.outbox.disconnect(sender);
            return;
        }
        if self.desk.members.agents().custody(sender) == Custody::Gone {
            // It comes from a host that was lost meanwhile.
            self.fail(sender, Evidence::HostLost);
        }
        if entry == Entry::Return {
            self.take_back(sender);
        } else if !self.desk.members.lost().is_empty() {
            let missing = self.desk.members.lost().clone();
            self.desk.outbox.send(sender, ToWorker::Incomplete { missing });
        } else {
            self.begin_if_all_here();
        }
    }

    /// Turns a process away whose rank was given up before it came, or that has come back with its host.
    pub(super) fn turn_away(&mut self, sender: ProcessId, peer: &Peer) {
        if peer.agent.as_ref().is_some_and(|agent| self.has_come_back(sender, agent.id)) {
            self.desk.outbox.send(sender, ToWorker::Unwelcome { reason: COMES_AGAIN.to_owned() });
        }
        self.desk.outbox.disconnect(sender);
    }

    /// Begins the job if all ranks are here; where ranks come back, also the agents that start them again.
    pub(super) fn begin_if_all_here(&mut self) {
        let members = &self.desk.members;
        let returns_are_sure = !self.desk.policy.limits.ranks_return || members.agents().are_here();
        if members.is_joining() && members.everyone_here() && returns_are_sure {
            self.begin();
        }
    }

    /// Welcomes all ranks.
    pub(super) fn begin(&mut self) {
        self.desk.members.stop_joining();
        self.desk.timers.call_off_all(Timer::Join);
        let peers: Arc<[Peer]> = self.desk.members.peers().cloned().collect();
        for peer in peers.iter() {
            let welcome = ToWorker::Welcome { peers: peers.clone(), limits: self.desk.policy.limits };
            self.desk.outbox.send(peer.process, welcome);
        }
        self.start_watching();
        self.place_replicas();
        self.desk.outbox.notice(Notice::Complete { ranks: self.desk.members.size() });
    }

    /// Begins to ping, now that all ranks are here.
    fn start_watching(&mut self) {
        let interval = self.desk.policy.limits.ping_interval;
        if !interval.is_zero() {
            let members = &self.desk.members;
            let ranks = members.processes().map(|process| Watched::Rank(process.rank));
            let agents = members.agents().here().map(Watched::Agent);
            let first = self.liveness.begin(self.desk.now, interval, ranks.chain(agents));
            self.desk.timers.set(first, Timer::Alarm);
        }
    }

    /// Waits no longer for processes that have not joined.
    pub(super) fn stop_joining(&mut self) {
        if self.desk.members.everyone_here() {
            return self.begin();
        }
        self.desk.members.stop_joining();
        if self.desk.members.lost().is_empty() {
            self.call_off(&self.desk.members.ranks(|state| *state == State::Expected));
        }
        self.end_job();
    }

    /// Tells all processes that have joined that there will be no job.
    pub(super) fn call_off(&mut self, missing: &Path) {
        let told = ToWorker::Incomplete { missing: missing.clone() };
        self.desk.send_all(&told);
    }

    /// Takes in that processes have ended that were to join: there will be no job.
    pub(super) fn lose_expected(&mut self, processes: &[ProcessId]) {
        let (lost, known): (Vec<ProcessId>, Vec<ProcessId>) =
            processes.iter().partition(|process| self.desk.members.is_to_join(**process));
        for process in known {
            self.desk.outbox.stale(process, "end of a process that is not expected to join");
        }
        if lost.is_empty() {
            return;
        }
        let is_first = self.desk.members.lost().is_empty();
        self.desk.members.lose_expected(&lost);
        if is_first {
            self.call_off(&lost.iter().map(|process| process.rank).collect());
        }
        self.end_if_empty();
    }

    /// Takes in that a process calls nothing more.
    pub(super) fn close(&mut self, sender: ProcessId) {
        self.desk.members.close(sender.rank);
        self.refusals.depart(sender.rank);
        self.end_what_cannot_complete();
    }

    /// Takes in that a process leaves in good order.
    pub(super) fn leave(&mut self, sender: ProcessId) {
        if self.desk.members.alive(sender.rank).is_none() {
            self.desk.outbox.stale(sender, "leave of a process that has not joined");
            return;
        }
        self.desk.members.leave(sender.rank);
        self.refusals.depart(sender.rank);
        self.outcomes.depart(sender.rank);
        self.drop_replicas(sender.rank);
        self.liveness.forget(Watched::Rank(sender.rank));
        self.desk.outbox.notice(Notice::Left(sender));
        self.desk.outbox.send(sender, ToWorker::Farewell);
        self.end_what_cannot_complete();
        // All reductions in which it took part have ended.
        remains::forget(sender, &mut self.desk);
        self.end_if_empty();
    }

    /// Ends, if no member is left and none is to come.
    pub(super) fn end_if_empty(&mut self) {
        let expected = self.desk.members.ranks(|state| *state == State::Expected);
        let is_empty = self.desk.members.peers().next().is_none() && self.desk.members.away().is_empty();
        if is_empty && expected.is_empty() {
            self.end_job();
        }
    }

    fn end_job(&mut self) {
        self.desk.send_agents(ToAgent::Farewell);
        self.desk.outbox.done();
    }
}
