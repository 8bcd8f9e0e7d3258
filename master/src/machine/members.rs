//! Who joins the job, and who leaves it in good order.

use alloc::sync::Arc;

use everfold_protocol::{
    Path, ProcessId,
    message::{MASTER_RANK, Peer, ToWorker},
};

use super::Master;
use crate::{event::Notice, membership::State, remains, timers::Timer};

impl Master {
    /// Takes a process in. Once everyone is here, the job begins.
    pub(super) fn join(&mut self, sender: ProcessId, peer: Peer, size: u32) {
        let expected = self.desk.members.size();
        if size != expected {
            let reason = format!(
                "it was started for a job of {size}, and rank 0 for one of {expected}; give all processes the same \
                 EVERFOLD_SIZE, or start as many by the same launcher"
            );
            self.desk.outbox.send(sender, ToWorker::Unwelcome { reason });
            self.desk.outbox.disconnect(sender);
            return;
        }
        if peer.process != sender || !self.desk.members.join(peer) {
            self.desk.outbox.stale(sender, "join of a rank that is not expected");
            self.desk.outbox.disconnect(sender);
            return;
        }
        if !self.desk.members.lost().is_empty() {
            let missing = self.desk.members.lost().clone();
            self.desk.outbox.send(sender, ToWorker::Incomplete { missing });
        } else if self.desk.members.everyone_here() {
            self.desk.members.stop_joining();
            self.desk.timers.call_off_all(Timer::Join);
            let peers: Arc<[Peer]> = self.desk.members.peers().cloned().collect();
            for peer in peers.iter() {
                let welcome = ToWorker::Welcome { peers: peers.clone(), limits: self.desk.policy.limits };
                self.desk.outbox.send(peer.process, welcome);
            }
            self.start_watching();
            self.desk.outbox.notice(Notice::Complete { ranks: self.desk.members.size() });
        }
    }

    /// Begins to ping, now that everyone is here.
    fn start_watching(&mut self) {
        let interval = self.desk.policy.limits.ping_interval;
        if !interval.is_zero() {
            let ranks = self.desk.members.processes().map(|process| process.rank);
            let first = self.liveness.begin(self.desk.now, interval, ranks);
            self.desk.timers.set(first, Timer::Alarm);
        }
    }

    /// Waits no longer for processes that have not joined.
    pub(super) fn stop_joining(&mut self) {
        self.desk.members.stop_joining();
        if self.desk.members.lost().is_empty() {
            self.call_off(&self.desk.members.ranks(|state| *state == State::Expected));
        }
        self.desk.outbox.done();
    }

    /// Tells everyone who has joined that there will be no job.
    pub(super) fn call_off(&mut self, missing: &Path) {
        let told = ToWorker::Incomplete { missing: missing.clone() };
        self.desk.send_all(&told);
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
        self.liveness.forget(sender.rank);
        self.desk.outbox.notice(Notice::Left(sender));
        if sender.rank != MASTER_RANK {
            self.desk.outbox.send(sender, ToWorker::Farewell);
        }
        self.end_what_cannot_complete();
        // What it had to do with has ended.
        remains::forget(sender, &mut self.desk);
        self.end_if_empty();
    }

    /// Ends, if nobody is left and nobody is to come.
    pub(super) fn end_if_empty(&mut self) {
        let others = self.desk.members.peers().count();
        let expected = self.desk.members.ranks(|state| *state == State::Expected);
        if others == 0 && expected.is_empty() {
            if self.desk.members.ranks(|state| *state == State::Left).contains(MASTER_RANK) {
                self.desk.outbox.send(ProcessId::first(MASTER_RANK), ToWorker::Farewell);
            }
            self.desk.outbox.done();
        }
    }
}
