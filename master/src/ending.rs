//! How a reduction ends: well, or refused.

use alloc::vec::Vec;
use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, Timestamp,
    message::{Data, Finished, Task, ToWorker},
    report::Refusal,
    spec::Delivery,
};

use crate::{event::Notice, machine::Master, timers::Timer};

/// Ranks to which a result goes up to which each of them is told how many tasks each worker did. Of more only the first is: all
/// these lists together would grow with the square of the group.
const TASKS_TOLD_MAX: usize = 64;

impl Master {
    /// Tells the group that its reduction is over, but for the `last` task, which is up to those who are to have the result.
    pub(crate) fn finish(&mut self, now: Timestamp, id: ReductionId, last: Option<Task>) {
        if self.is_deputy() {
            // The master hears of each segment, and tells when all is over.
            return;
        }
        let reduction = self.reductions.get_mut(&id).expect("only live reductions finish");
        self.scheduler.strike_off(id, reduction);
        if let Some(end) = reduction.gathers_until(&self.desk.policy) {
            self.desk.timers.call_off(end, Timer::Gathered(id));
        }
        if let Delivery::FirstOf(candidates) = &reduction.spec.delivery {
            let candidates = candidates.clone();
            return self.deliver(id, &candidates);
        }
        let root = reduction.spec.delivery.root();
        let result = if root.is_none() { reduction.pieces() } else { Vec::new() };
        last.iter().for_each(|last| reduction.count_last(last));
        let mut report = reduction.report_of_result(now);
        let (group, have_it) = (reduction.spec.group.clone(), reduction.collected.clone());
        let in_windows = group.len() > 1 && result.iter().any(|piece| matches!(piece.data, Data::Window(_)));
        let lend = in_windows && reduction.lends(&result);
        let beside = in_windows && reduction.copies_beside();
        if in_windows {
            let is_alive = |rank: &Rank| self.desk.is_alive(*rank);
            reduction.hand_out(reduction.callers().difference(&have_it).iter().filter(is_alive).collect());
        } else {
            self.let_go(id);
            self.end_timers(id);
            self.reductions.remove(&id);
        }
        self.desk.outbox.notice(Notice::Finished(id));
        let receives = |peer: ProcessId| root.is_none_or(|root| root == peer.rank);
        let brief = report.brief();
        let peers: Vec<_> = self.desk.members.processes_of(&group.difference(&have_it)).collect();
        let to_many = root.is_none() && peers.len() > TASKS_TOLD_MAX;
        for peer in peers {
            let (told, last) = match receives(peer) {
                true => (report.clone(), last.clone()),
                false => (brief.clone(), None),
            };
            if to_many {
                report.tasks_per_worker = Vec::new();
            }
            let finished =
                Finished { reduction: id, result: result.clone(), last, lend, beside, report: told };
            self.send_result(peer, finished);
        }
        if !in_windows {
            self.desk
                .outbox
                .send_each(self.desk.members.processes_of(&have_it), &ToWorker::Release { reduction: id });
            self.end_remains(id);
        }
    }

    /// Ends a reduction in an error for everyone who has called it, and for those who will.
    pub(crate) fn refuse(&mut self, id: ReductionId, refusal: Refusal) {
        self.end_refused(id, refusal, None);
    }

    /// The same because of a caller who believes in another group, or in something else. It hears that by itself.
    pub(crate) fn refuse_also(&mut self, id: ReductionId, refusal: Refusal, caller: (Rank, &Path)) {
        self.end_refused(id, refusal, Some(caller));
    }

    fn end_refused(&mut self, id: ReductionId, refusal: Refusal, caller: Option<(Rank, &Path)>) {
        if id.is_in_teams() {
            return self.dissolve(id, &Path::empty());
        }
        self.let_go(id);
        self.end_timers(id);
        let Some(reduction) = self.reductions.remove(&id) else {
            return;
        };
        let callers = reduction.callers();
        let (also, theirs) = caller.unzip();
        let theirs = theirs.cloned().unwrap_or_default();
        let group: Path = reduction.spec.group.iter().chain(theirs.iter()).collect();
        let has_heard = |rank: Rank| callers.contains(rank) || also == Some(rank);
        self.remember_refusal(id, &refusal, &group, has_heard);
        self.tell_refused(id, callers, refusal);
        self.end_remains(id);
    }

    /// Keeps for those of `group` who call a reduction later why it was refused.
    pub(crate) fn remember_refusal(
        &mut self,
        id: ReductionId,
        refusal: &Refusal,
        group: &Path,
        has_heard: impl Fn(Rank) -> bool,
    ) {
        let Self { refusals, desk, .. } = self;
        let awaited = group.iter().filter(|rank| !has_heard(*rank) && desk.members.may_call(*rank)).collect();
        refusals.add(id, refusal.clone(), group, awaited);
        refusals.limit(desk.policy.refusals_max);
    }

    /// Sets aside what was due for a reduction that is over.
    pub(crate) fn end_timers(&mut self, id: ReductionId) {
        let Some(reduction) = self.reductions.get(&id) else { return };
        for (at, timer) in reduction.timers(id, &self.desk.policy) {
            self.desk.timers.call_off(at, timer);
        }
    }

    pub(crate) fn tell_refused(&mut self, id: ReductionId, ranks: Path, refusal: Refusal) {
        let told = ToWorker::Refused { reduction: id, refusal: refusal.clone() };
        self.desk.send_each(&ranks, &told);
        self.desk.outbox.notice(Notice::Refused { reduction: id, ranks, refusal });
    }

    /// Frees the lanes of those who work on a reduction that is over, and takes it off the schedule.
    pub(crate) fn let_go(&mut self, id: ReductionId) {
        if let Some(reduction) = self.reductions.get_mut(&id) {
            self.scheduler.let_go(id, reduction, &self.desk.members);
        }
    }

    /// Ends the reduction because its deadline has passed. Those who have copied the result keep it.
    pub(crate) fn pass_deadline(&mut self, id: ReductionId) {
        let Some(reduction) = self.reductions.get(&id) else { return };
        let deadline = reduction.spec.deadline.expect("only reductions with a deadline have such a timer");
        let missing = reduction.group.difference(&reduction.arrived);
        self.refuse(id, Refusal::DeadlineExceeded { deadline, missing });
    }
}
