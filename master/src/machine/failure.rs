//! Who is dead, silent or slow, and what follows for the job (DR-8, DR-10, DR-11).

use alloc::vec::Vec;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId,
    message::{Evidence, News, ToWorker},
    report::Refusal,
};

use super::Master;
use crate::{event::Notice, liveness::Ring, timers::Timer};

impl Master {
    /// Pings, and looks for silence and late tasks.
    pub(super) fn ring(&mut self) {
        let Some(Ring { next, ping, silent }) = self.liveness.ring(self.desk.now) else { return };
        self.desk.timers.set(next, Timer::Alarm);
        if let Some(number) = ping {
            self.desk.send_all(&ToWorker::Ping { number });
        }
        for (rank, silence) in silent {
            if let Some(process) = self.desk.members.alive(rank).map(|peer| peer.process) {
                self.fail(process, Evidence::Silent(silence));
            }
        }
        self.overtake();
    }

    /// Has tasks that are late done by others, too. Slow is not dead.
    fn overtake(&mut self) {
        for ((id, rank), name) in self.scheduler.overtake(&mut self.reductions, &self.desk) {
            self.tell(id, News::Slow { rank, name });
            self.proceed(id);
        }
    }

    /// Declares a process failed, tells everyone, and repairs what it took part in.
    pub(super) fn fail(&mut self, process: ProcessId, evidence: Evidence) {
        if !self.desk.members.fail(process, evidence) {
            return;
        }
        self.liveness.forget(process.rank);
        self.refusals.depart(process.rank);
        self.desk.outbox.notice(Notice::Failed { process, evidence });
        if matches!(evidence, Evidence::Silent(_)) {
            // If it lives, this is the last thing it hears.
            self.desk.outbox.send(process, ToWorker::Fenced);
            self.desk.outbox.disconnect(process);
        }
        if self.desk.members.is_joining() {
            // Those who come later hear it when they join.
            let lost = Path::single(process.rank);
            if *self.desk.members.lost() == lost {
                self.call_off(&lost);
            }
            return;
        }
        self.desk.send_all(&ToWorker::Departed { process, evidence });
        self.bereave(process);
        self.end_what_cannot_complete();
        // What was only silent is not read any more at once.
        if evidence == Evidence::Disconnected {
            self.remains.keep(process, &self.reductions, &mut self.desk);
        }
        self.end_if_empty();
    }

    /// Repairs all reductions that `dead` took part in, or ends them.
    fn bereave(&mut self, dead: ProcessId) {
        self.scheduler.bury(dead, &self.reductions);
        self.scheduler.forget_teams_of(dead.rank, &mut self.reductions, &self.desk.members);
        let members = &self.desk.members;
        let (mut repaired, mut hopeless, mut collecting) = (Vec::new(), Vec::new(), Vec::new());
        for (&id, reduction) in &mut self.reductions {
            let counts = reduction.group().contains(dead.rank);
            reduction.lose_keeper(dead);
            if reduction.lose_collector(dead.rank, members) {
                if counts {
                    reduction.mourn(self.desk.now, dead);
                }
                collecting.push(id);
                continue;
            }
            if !counts {
                continue;
            }
            match reduction.bereave(self.desk.now, dead, members) {
                Ok(()) => repaired.push(id),
                Err(refusal) => hopeless.push((id, refusal)),
            }
        }
        for id in collecting {
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
            if let Some(ranks) = refusal.absent() {
                // Some ranks may have all of the result. Or parts of it with these contributions lie where
                // others have lain.
                let is_settled = reduction.is_settled(&self.desk.members);
                let is_overwritten = reduction.is_overwritten();
                // A rank that lives has lost its contribution to a part of the result.
                let is_lost = is_overwritten
                    && matches!(refusal, Refusal::ContributionLost { .. })
                    && ranks.iter().any(|rank| self.desk.is_alive(rank));
                if is_settled || is_lost {
                    let ranks = ranks.clone();
                    return self.refuse(id, Refusal::ResultLost { ranks });
                } else if is_overwritten {
                    return self.refuse(id, refusal);
                }
            }
            let callers = reduction.callers();
            let members = &self.desk.members;
            let receives = |rank: &Rank| {
                members.alive(*rank).is_some() && (callers.contains(*rank) || !members.is_closing(*rank))
            };
            let candidates = reduction.spec().delivery.candidates();
            let receives = candidates.is_empty() || candidates.iter().any(receives);
            let done = match refusal.absent().filter(|_| receives) {
                Some(ranks) => reduction.do_without(ranks, &self.desk.members),
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

    /// Goes on without those who will not come, or refuses every reduction that waits for them.
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
