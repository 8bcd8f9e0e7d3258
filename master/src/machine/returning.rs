//! Ranks whose processes have died, and that come back.
//!
//! The agent of its host starts a process anew. As long as that is not here, reductions wait for what it has
//! yet to contribute, and keep what it has yet to hear.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    AgentId, Incarnation, Path, ProcessId, Rank, ReductionId,
    message::{Contribution, Evidence, Finished, Learning, News, NoReturn, Peer, ToAgent, ToWorker},
    report::Refusal,
    spec::Delivery,
};

use super::Master;
use crate::{
    event::Notice,
    liveness::Watched,
    outcomes::Outcome,
    recovery::Verdict,
    reduction::{Called, Reduction},
    timers::Timer,
};

impl Master {
    /// What is done about a process that takes part and has died in this way. Its rank comes back if what it
    /// has left is held where it is started again.
    pub(super) fn judge(&mut self, process: ProcessId, evidence: Evidence) -> Verdict {
        let Self { desk, detectors, .. } = self;
        match (evidence, desk.members.agents().holder(process)) {
            (Evidence::HostLost, _) => Verdict::Ignore(NoReturn::HostLost),
            (Evidence::Silent(_), _) => Verdict::Ignore(NoReturn::Silent),
            (Evidence::Disconnected | Evidence::Ended(_), None) => Verdict::Ignore(NoReturn::NotHeld),
            (Evidence::Disconnected | Evidence::Ended(_), Some(agent)) => {
                detectors.judge(desk.now, process.rank, agent, &desk.policy.recoveries)
            }
        }
    }

    /// Takes in that a process was to be started in place of one of this host that has ended before it was
    /// here, or that could not be started.
    pub(super) fn miss(&mut self, missed: ProcessId, agent: AgentId) {
        self.desk.timers.call_off_all(Timer::Return(missed));
        self.desk.members.miss(missed);
        match self.detectors.judge(self.desk.now, missed.rank, agent, &self.desk.policy.recoveries) {
            Verdict::Restart(pause) => self.start_after(pause, missed, agent),
            Verdict::Ignore(reason) => self.give_up(missed.rank, reason),
        }
    }

    /// Has a process started in place of `dead`, after a pause.
    pub(super) fn call_back(&mut self, pause: Duration, dead: ProcessId) {
        if let Some(agent) = self.desk.members.agents().holder(dead) {
            self.start_after(pause, dead, agent);
        }
    }

    fn start_after(&mut self, pause: Duration, dead: ProcessId, agent: AgentId) {
        let next = ProcessId { incarnation: Incarnation(dead.incarnation.0 + 1), ..dead };
        match pause.is_zero() {
            true => self.start(agent, next),
            false => self.desk.timers.set(self.desk.now + pause, Timer::Start(agent, next)),
        }
    }

    /// Has a process started, unless its rank was given up meanwhile.
    pub(super) fn start(&mut self, agent: AgentId, process: ProcessId) {
        if self.desk.members.away_since(process.rank).is_some() {
            self.desk.outbox.send_agent(agent, ToAgent::Start { process });
            let timeout = self.desk.policy.recoveries.restart.join_timeout;
            self.desk.timers.set(self.desk.now + timeout, Timer::Return(process));
        }
    }

    /// Takes in that a process that was to come has not come in time.
    pub(super) fn miss_return(&mut self, missed: ProcessId) {
        let last = self.desk.members.away_since(missed.rank);
        if last.is_some_and(|last| last.incarnation < missed.incarnation) {
            let timeout = self.desk.policy.recoveries.restart.join_timeout;
            self.give_up(missed.rank, NoReturn::Late(timeout));
        }
    }

    /// Waits no longer for a rank to come back.
    pub(super) fn give_up(&mut self, rank: Rank, reason: NoReturn) {
        if !self.desk.members.give_up(rank) {
            return;
        }
        self.refusals.depart(rank);
        self.outcomes.depart(rank);
        self.desk.tell_all(News::NotReturned { rank, reason });
        let waiting: Vec<ReductionId> = self
            .reductions
            .iter_mut()
            .filter_map(|(id, reduction)| reduction.expect_never(rank, &self.desk.members).then_some(*id))
            .collect();
        waiting.into_iter().for_each(|id| self.go_on_collecting(id));
        self.go_on_without(rank);
        self.end_what_cannot_complete();
        self.end_if_empty();
    }

    /// Goes on with what `rank` could have taken part in yet, or ends it.
    fn go_on_without(&mut self, rank: Rank) {
        let is_hit = |reduction: &Reduction| reduction.spec().group.contains(rank);
        let hit: Vec<ReductionId> = self
            .reductions
            .iter()
            .filter(|(_, reduction)| is_hit(reduction) && !reduction.is_handed_out())
            .map(|(id, _)| *id)
            .collect();
        for id in hit {
            let Some(reduction) = self.reductions.get_mut(&id) else { continue };
            match reduction.restore(self.desk.now, &self.desk.members) {
                Ok(()) => {
                    self.proceed(id);
                    self.order_copies(id);
                }
                Err(refusal) => self.do_without(id, refusal),
            }
        }
    }

    /// Takes in that a rank has come back as this process. It hears what the others have heard before.
    pub(super) fn take_back(&mut self, process: ProcessId) {
        self.desk.timers.call_off_all(Timer::Return(process));
        self.liveness.watch(self.desk.now, Watched::Rank(process.rank));
        let Some(peer) = self.desk.members.alive(process.rank).cloned() else { return };
        let peers: Arc<[Peer]> = self.desk.members.firsts().cloned().collect();
        let limits = self.desk.policy.limits;
        self.desk.outbox.send(process, ToWorker::Welcome { peers, limits });
        for message in self.desk.members.history() {
            self.desk.outbox.send(process, message);
        }
        let returned = ToWorker::Returned { peer };
        let others = self.desk.members.processes().filter(|other| *other != process);
        self.desk.outbox.send_each(others, &returned);
        self.desk.outbox.notice(Notice::Returned(process));
    }

    /// Answers a call that an earlier process of the caller has made before. Returns whether it did.
    pub(super) fn answer_again(&mut self, sender: ProcessId, contribution: &Contribution) -> bool {
        let Contribution { reduction: id, name, spec, data } = contribution;
        let (id, called) = (*id, Called { name, spec });
        let diverged = || Refusal::Diverged { rank: sender.rank, name: name.clone(), sequence: id.sequence };
        if let Some(outcome) = self.outcomes.tell(id, sender.rank).cloned() {
            if outcome.answers(called) {
                self.tell_outcome(sender, id, outcome);
            } else {
                self.outcomes.note(id, sender.rank);
                self.tell_refused(id, Path::single(sender.rank), diverged());
            }
            return true;
        }
        let Some(reduction) = self.reductions.get_mut(&id) else { return false };
        if !reduction.only_listens(sender.rank) {
            return false;
        }
        if reduction.disagreement(id, sender.rank, called).is_some() {
            if reduction.is_handed_out() {
                // The others have the result, or are about to.
                reduction.diverge(sender.rank);
                self.tell_refused(id, Path::single(sender.rank), diverged());
            } else {
                self.refuse(id, diverged());
            }
            return true;
        }
        reduction.call_again(sender, data.clone());
        self.collect_again(id);
        self.proceed(id);
        self.order_copies(id);
        true
    }

    /// Takes in that `sender` has noted how a reduction has ended. If that is handed out still, an earlier
    /// process of its rank had copied the result and has died before it could say so.
    pub(super) fn take_note(&mut self, sender: ProcessId, id: ReductionId) {
        self.outcomes.note(id, sender.rank);
        let Some(reduction) = self.reductions.get_mut(&id) else { return };
        if reduction.awaits_collector(sender.rank) {
            return self.collected(sender, id, None);
        }
        if reduction.has_diverged(sender.rank) {
            // What it has noted is a refusal.
            return;
        }
        // The result that it has was lost meanwhile.
        reduction.take_note(sender.rank);
        let is_for_one = matches!(reduction.spec().delivery, Delivery::FirstOf(_));
        if is_for_one || reduction.all_have_it(&self.desk.members) {
            // Nobody else is to have it.
            self.release(id);
        } else if !reduction.arrived().contains(sender.rank) && !reduction.missing().contains(sender.rank) {
            // What is to be contributed again does not come.
            self.refuse(id, Refusal::ResultLost { ranks: Path::single(sender.rank) });
        }
    }

    fn tell_outcome(&mut self, to: ProcessId, id: ReductionId, outcome: Outcome) {
        let message = match outcome {
            Outcome::Finished(completed) => ToWorker::Finished(Box::new(Finished {
                reduction: id,
                result: Vec::new(),
                last: None,
                lend: false,
                beside: false,
                learning: Learning::default(),
                report: completed.report,
            })),
            Outcome::Refused(refusal) => ToWorker::Refused { reduction: id, refusal },
        };
        self.desk.outbox.send(to, message);
    }
}
