//! Ranks whose processes have died, and that come back.
//!
//! The agent of its host starts a process anew. As long as that process is not here, reductions wait for the
//! contributions that it has yet to make, and keep the outcomes that it has yet to hear.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    AgentId, Path, ProcessId, Rank, ReductionId,
    message::{
        Comeback, Contribution, Evidence, Finished, Learning, News, NoReturn, Peer, ToAgent, ToWorker,
    },
    report::Refusal,
    spec::Delivery,
};

use super::Master;
use crate::{
    event::Notice,
    liveness::Watched,
    outcomes::Outcome,
    recovery::{Judgement, Seen, Sign, Start, Verdict},
    reduction::{Called, Reduction},
    replicas::Replica,
    timers::Timer,
};

/// The part of `join_timeout` in which a process ends by itself whose connection has broken. The next one of
/// its rank has the rest.
const END_SHARE: u32 = 4;

impl Master {
    /// Judges the death of a member. Its rank comes back if the memory of the process is held where the rank
    /// is started again.
    pub(super) fn judge(&mut self, process: ProcessId, evidence: Evidence) -> Judgement {
        let agents = self.desk.members.agents();
        let ignored = |reason| Judgement { verdict: Verdict::Ignore(reason), passed: Vec::new() };
        match (evidence, agents.of(process), agents.holder(process)) {
            (Evidence::HostLost, None, _) => ignored(NoReturn::HostLost),
            (Evidence::HostLost, Some(agent), _) => {
                self.detect(process, self.sign_of_loss(agent), agent, Some(evidence))
            }
            (Evidence::Silent(_), _, None) => ignored(NoReturn::Silent),
            (Evidence::Disconnected | Evidence::Ended(_), _, None) => ignored(NoReturn::NotHeld),
            (_, _, Some(agent)) => self.detect(process, Sign::Process(agent), agent, Some(evidence)),
        }
    }

    /// Takes in that a process was to be started in place of one of this host that has ended before it was
    /// here, or that could not be started.
    pub(super) fn miss(&mut self, missed: ProcessId, agent: AgentId) {
        let origin = self.starts.of(missed.rank).and_then(|start| start.origin);
        self.desk.timers.call_off_all(Timer::Return(missed));
        self.starts.forget(missed.rank);
        self.desk.members.miss(missed);
        if origin.is_some_and(|origin| self.replicas.whole(missed.rank) != Some(origin)) {
            // It was lost before the process had it.
            return self.give_up(missed.rank, NoReturn::NoReplica);
        }
        let sign = Sign::Process(agent);
        let judged = self.detect(missed, sign, agent, None);
        self.tell_passed(missed.rank, &judged);
        match judged.verdict {
            Verdict::Restart(pause) => self.start_after(pause, missed, agent, origin),
            Verdict::Migrate => self.migrate(missed, agent, sign),
            Verdict::Promote => self.promote(missed, agent),
            Verdict::Ignore(reason) => self.give_up(missed.rank, reason),
        }
    }

    /// Has a process started in place of `dead`, as it was judged. If `dead` was only silent, it may live on:
    /// its agent ends it first. If only its connection has broken, it most likely ends by itself, and has
    /// some time for that: so it is seen how, and its last output is not lost.
    pub(super) fn call_back(&mut self, dead: ProcessId, verdict: Verdict, evidence: Evidence) {
        let Some(agent) = self.desk.members.agents().of(dead) else { return };
        if matches!(evidence, Evidence::Silent(_)) && !matches!(verdict, Verdict::Ignore(_)) {
            self.desk.outbox.send_agent(agent, ToAgent::End { process: dead });
        }
        if evidence == Evidence::Disconnected && !matches!(verdict, Verdict::Ignore(_)) {
            let patience = self.desk.policy.recoveries.restart.join_timeout / END_SHARE;
            self.desk.timers.set(self.desk.now + patience, Timer::End(dead));
        }
        match verdict {
            Verdict::Restart(pause) => self.start_after(pause, dead, agent, None),
            Verdict::Migrate if evidence == Evidence::HostLost => {
                self.migrate(dead, agent, self.sign_of_loss(agent));
            }
            Verdict::Migrate => self.migrate(dead, agent, Sign::Process(agent)),
            Verdict::Promote => self.promote(dead, agent),
            Verdict::Ignore(_) => {}
        }
    }

    /// Has a process ended whose connection has broken, unless it was seen to end since, or its rank does not
    /// come back any more.
    pub(super) fn end_disconnected(&mut self, dead: ProcessId) {
        let members = &mut self.desk.members;
        if members.evidence(dead) == Some(Evidence::Disconnected)
            && members.takes_part(dead.rank)
            && let Some(agent) = members.agents().holder(dead)
        {
            members.note_ended(dead);
            self.desk.outbox.send_agent(agent, ToAgent::End { process: dead });
        }
    }

    /// Has an agent start a process in place of `dead` after a pause.
    pub(super) fn start_after(
        &mut self,
        pause: Duration,
        dead: ProcessId,
        agent: AgentId,
        origin: Option<Replica>,
    ) {
        // A standby that follows an earlier process does not follow this one.
        self.stand_down(dead.rank);
        let next = self.starts.name(dead);
        self.starts.order(self.desk.now, Start { process: next, agent, origin, is_promotion: false });
        match pause.is_zero() {
            true => self.start(agent, next),
            false => self.desk.timers.set(self.desk.now + pause, Timer::Start(agent, next)),
        }
    }

    /// Has a process started, unless its rank was given up meanwhile.
    pub(super) fn start(&mut self, agent: AgentId, process: ProcessId) {
        let Some(start) = self.starts.of(process.rank).filter(|start| start.process == process) else {
            return;
        };
        if self.desk.members.away_since(process.rank).is_some() {
            let origin = start.origin.and_then(|replica| self.origin(replica));
            self.desk.outbox.send_agent(agent, ToAgent::Start { process, origin });
            let timeout = self.desk.policy.recoveries.restart.join_timeout;
            self.desk.timers.set(self.desk.now + timeout, Timer::Return(process));
        }
    }

    /// Takes in that a process that was to come has not come in time.
    pub(super) fn miss_return(&mut self, missed: ProcessId) {
        let last = self.desk.members.away_since(missed.rank);
        if last.is_some_and(|last| last.incarnation < missed.incarnation) {
            if let Some(Start { agent, is_promotion: true, .. }) = self.starts.of(missed.rank) {
                // It is frozen. Others can do it.
                self.end_start(missed.rank);
                return self.miss(missed, agent);
            }
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
        self.end_start(rank);
        self.starts.give_up(rank);
        self.drop_replicas(rank);
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

    /// Takes in that a rank has come back as this process. It hears everything that the others have heard
    /// before.
    pub(super) fn take_back(&mut self, process: ProcessId) {
        self.desk.timers.call_off_all(Timer::Return(process));
        self.starts.forget(process.rank);
        let members = &self.desk.members;
        self.reductions.values_mut().for_each(|reduction| reduction.look_where(process.rank, members));
        self.liveness.watch(self.desk.now, Watched::Rank(process.rank));
        let Some(peer) = self.desk.members.alive(process.rank).cloned() else { return };
        // Before it says what earlier processes have noted: that has to be in its replica, too.
        self.place_replicas();
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

    /// Takes in that a process that has come back is where the earlier one was.
    pub(super) fn hear_caught_up(&mut self, sender: ProcessId, comeback: Comeback) {
        if let Some(lost) = self.starts.catch_up(self.desk.now, sender.rank) {
            self.own.see(self.desk.now, Seen::CameBack { process: sender, lost, comeback });
            self.desk.tell_all(News::CaughtUp { rank: sender.rank, lost, comeback });
        }
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
            // It has noted a refusal.
            return;
        }
        // The result that it has was lost meanwhile.
        reduction.take_note(sender.rank);
        let is_for_one = matches!(reduction.spec().delivery, Delivery::FirstOf(_));
        if is_for_one || reduction.all_have_it(&self.desk.members) {
            // No other rank is to have it.
            self.release(id);
        } else if !reduction.arrived().contains(sender.rank) && !reduction.missing().contains(sender.rank) {
            // The contribution that is to come again does not come.
            self.refuse(id, Refusal::ResultLost { ranks: Path::single(sender.rank) });
        } else {
            // It was waited for: it might have kept copies.
            self.order_copies(id);
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
