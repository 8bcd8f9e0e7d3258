//! Dead, silent and slow processes, and the consequences for the job (DR-8, DR-10, DR-11).

use alloc::vec::Vec;

use everfold_protocol::{
    AgentId, Path, ProcessId, ReductionId,
    message::{Evidence, News, ToAgent, ToWorker},
    report::Refusal,
};

use super::Master;
use crate::{
    event::Notice,
    liveness::{Ring, Watched},
    membership::Prospect,
    recovery::{Judgement, Seen, Verdict},
    remains,
    timers::Timer,
};

impl Master {
    /// Pings, and looks for silence and late tasks.
    pub(super) fn ring(&mut self) {
        let Some(Ring { next, ping, silent }) = self.liveness.ring(self.desk.now) else { return };
        self.desk.timers.set(next, Timer::Alarm);
        if let Some(number) = ping {
            self.desk.send_all(&ToWorker::Ping { number });
            self.desk.send_agents(ToAgent::Ping { number });
        }
        for (who, silence) in silent {
            match who {
                Watched::Agent(agent) => self.lose_agent(agent),
                Watched::Rank(rank) => {
                    if let Some(process) = self.desk.members.alive(rank).map(|peer| peer.process) {
                        match self.silent_host(process) {
                            Some(agent) => self.lose_agent(agent),
                            None => self.fail(process, Evidence::Silent(silence)),
                        }
                    }
                }
            }
        }
        self.overtake();
    }

    /// The agent of a silent process, if its host seems to be lost: where ranks migrate, it is not waited for
    /// longer, as for an agent that was late before.
    fn silent_host(&self, process: ProcessId) -> Option<AgentId> {
        let agent = self.desk.members.agents().holder(process);
        let is_silent = |agent: &AgentId| self.liveness.misses_pings(self.desk.now, Watched::Agent(*agent));
        agent.filter(|_| self.desk.policy.limits.replica_bytes_max > 0).filter(is_silent)
    }

    /// Has tasks that are late done by others, too. Slow is not dead.
    fn overtake(&mut self) {
        for ((id, rank), name) in self.scheduler.overtake(&mut self.reductions, &self.desk) {
            self.tell(id, News::Slow { rank, name });
            self.proceed(id);
        }
    }

    /// Declares a process failed, tells all members, and repairs the reductions in which it took part.
    pub(super) fn fail(&mut self, process: ProcessId, evidence: Evidence) {
        self.fail_all(&[process], evidence, &[]);
    }

    /// The same of several processes at once. The `robbed` had died before; now their memory is gone, too.
    pub(super) fn fail_all(&mut self, processes: &[ProcessId], evidence: Evidence, robbed: &[ProcessId]) {
        let judged = self.judge_all(processes, evidence);
        let returns = |process: &ProcessId| {
            judged.iter().any(|(it, judged)| it == process && !matches!(judged.verdict, Verdict::Ignore(_)))
        };
        let (returning, gone): (Vec<_>, Vec<_>) = processes.iter().copied().partition(returns);
        let mut failed = self.desk.members.fail(&returning, evidence, Prospect::Returns);
        failed.extend(self.desk.members.fail(&gone, evidence, Prospect::Gone));
        if failed.is_empty() && robbed.is_empty() {
            return;
        }
        for &process in &failed {
            self.liveness.forget(Watched::Rank(process.rank));
            if !returning.contains(&process) {
                self.refusals.depart(process.rank);
                self.outcomes.depart(process.rank);
                self.drop_replicas(process.rank);
            }
            self.own.see(self.desk.now, Seen::Died { process, evidence });
            self.desk.outbox.notice(Notice::Failed { process, evidence });
            if !evidence.leaves_memory() {
                // If it lives, this is the last thing it hears.
                self.desk.outbox.send(process, ToWorker::Fenced);
                self.desk.outbox.disconnect(process);
            }
        }
        if self.desk.members.is_joining() {
            // Processes that come later hear it when they join.
            let lost: Path = failed.iter().map(|process| process.rank).collect();
            if *self.desk.members.lost() == lost {
                self.call_off(&lost);
            }
            return self.end_if_empty();
        }
        for &process in &failed {
            self.desk.send_all(&ToWorker::Departed { process, evidence });
        }
        for (process, judged) in &judged {
            self.tell_passed(process.rank, judged);
            if let Verdict::Ignore(reason) = judged.verdict {
                self.desk.tell_all(News::NotReturned { rank: process.rank, reason });
            }
        }
        self.bereave(&failed, robbed);
        self.end_what_cannot_complete();
        for &process in &failed {
            match evidence.leaves_memory() {
                true => self.remains.keep(process, &self.reductions, &mut self.desk),
                // The memory of a process that was only silent is not read any more from now on.
                false => remains::let_agent_forget(process, &mut self.desk),
            }
        }
        for (process, judged) in judged {
            self.call_back(process, judged.verdict, evidence);
        }
        self.end_if_empty();
    }

    /// The judgements of processes that die together, where ranks come back and the job has begun.
    fn judge_all(&mut self, processes: &[ProcessId], evidence: Evidence) -> Vec<(ProcessId, Judgement)> {
        if !self.desk.policy.limits.ranks_return || self.desk.members.is_joining() {
            return Vec::new();
        }
        let living = processes.iter().copied().filter(|process| self.desk.members.lives(*process));
        let living: Vec<_> = living.collect();
        living.into_iter().map(|process| (process, self.judge(process, evidence))).collect()
    }

    /// Repairs all reductions in which the `dead` took part, or ends them; also those that were to read the
    /// memory of the `robbed`.
    fn bereave(&mut self, dead: &[ProcessId], robbed: &[ProcessId]) {
        // All lanes first: tasks that are forgotten later leave the lanes of the dead as they are.
        dead.iter().for_each(|process| self.scheduler.bury(*process, &self.reductions));
        for process in dead {
            self.scheduler.forget_teams_of(process.rank, &mut self.reductions, &self.desk.members);
        }
        let members = &self.desk.members;
        let (mut repaired, mut hopeless, mut collecting) = (Vec::new(), Vec::new(), Vec::new());
        for (&id, reduction) in &mut self.reductions {
            let lost = dead.iter().copied().filter(|it| reduction.group().contains(it.rank));
            let lost: Vec<ProcessId> = lost.collect();
            // A rank whose contribution is missing folds those of others all the same, and holds some.
            let agreed = &reduction.spec().group;
            let is_hit = dead.iter().chain(robbed).any(|it| agreed.contains(it.rank));
            dead.iter().chain(robbed).for_each(|process| reduction.lose_keeper(*process, members));
            if reduction.lose_collectors(self.desk.now, dead, members) {
                lost.into_iter().for_each(|process| reduction.mourn(self.desk.now, process, members));
                collecting.push(id);
                continue;
            }
            if !is_hit {
                continue;
            }
            match reduction.bereave(self.desk.now, &lost, members) {
                Ok(()) => repaired.push(id),
                Err(refusal) => hopeless.push((id, refusal)),
            }
        }
        for id in collecting {
            if let Some(reduction) = self.reductions.get_mut(&id).filter(|it| it.has_in_pipeline(dead)) {
                dead.iter().for_each(|process| reduction.stop_prefetching(id, *process, &mut self.desk));
                self.give_up_pipeline(id);
            }
            self.go_on_collecting(id);
        }
        for (id, refusal) in hopeless {
            self.do_without(id, refusal);
        }
        for id in repaired {
            self.proceed(id);
            self.order_copies(id);
        }
    }

    /// Goes on without the ranks that `refusal` names, if the caller has allowed that; refuses the reduction
    /// if not.
    pub(super) fn do_without(&mut self, id: ReductionId, mut refusal: Refusal) {
        loop {
            let Some(reduction) = self.reductions.get_mut(&id) else { return };
            refusal = match reduction.wait_again(self.desk.now, refusal, &self.desk.members) {
                Ok(()) => {
                    self.proceed(id);
                    return self.order_copies(id);
                }
                Err(refusal) => refusal,
            };
            // Some ranks may have the result, or have noted it before they come back. Or parts of it with
            // these contributions lie where others have lain.
            let is_overwritten = reduction.is_overwritten();
            if is_overwritten || reduction.may_be_known(&self.desk.members) {
                // A rank that lives has lost its contribution to a part of the result.
                let takes_part = |ranks: &Path| ranks.iter().any(|rank| self.desk.members.takes_part(rank));
                let is_lost = matches!(&refusal, Refusal::ContributionLost { ranks } if takes_part(ranks));
                let refusal = if is_overwritten && is_lost { refusal.beside_a_result() } else { refusal };
                return self.refuse(id, refusal);
            }
            let callers = reduction.callers();
            let members = &self.desk.members;
            let candidates = reduction.spec().delivery.candidates();
            let receives =
                candidates.is_empty() || candidates.iter().any(|rank| members.receives(*rank, &callers));
            let done = match refusal.absent().filter(|_| receives) {
                Some(ranks) => reduction.do_without(self.desk.now, ranks, &self.desk.members),
                None => Ok(false),
            };
            let (group, arrived) = (reduction.group().clone(), reduction.arrived().clone());
            match done {
                Ok(true) => match self.desk.members.absent(&group, &arrived) {
                    Some(more) => refusal = more,
                    None => {
                        self.proceed(id);
                        return self.order_copies(id);
                    }
                },
                Ok(false) => return self.refuse(id, refusal),
                Err(more) => refusal = more,
            }
        }
    }

    /// Goes on without ranks that will not come, or refuses every reduction that waits for them.
    pub(super) fn end_what_cannot_complete(&mut self) {
        let running = self.reductions.iter().filter(|(_, reduction)| !reduction.is_handed_out());
        let waiting = running.filter_map(|(&id, reduction)| {
            Some((id, self.desk.members.absent(reduction.group(), reduction.arrived())?))
        });
        let waiting: Vec<_> = waiting.collect();
        for (id, refusal) in waiting {
            self.do_without(id, refusal);
        }
    }

    /// Tells the processes of a reduction's group.
    pub(super) fn tell(&mut self, id: ReductionId, news: News) {
        if let Some(reduction) = self.reductions.get(&id) {
            self.desk.tell(&reduction.spec().group, news);
        }
    }
}
