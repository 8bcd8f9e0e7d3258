//! How a reduction ends here: its result is copied, lent, and the application's future ends.

use alloc::boxed::Box;

use everfold_protocol::{
    ReductionId,
    message::{Data, Finished, News, NotCollected, Prefetch, Prefetched, ToMaster},
    spec::Delivery,
};

use super::{
    Action, Collected, Collecting, End, ExecutionError, Worker,
    attempt::Way,
    local::{Local, State},
    task::path_of,
};

impl Worker {
    /// Has parts of a result copied before it is handed out.
    pub(super) fn prefetch(&mut self, Prefetch { reduction, bytes, parts }: Prefetch) {
        let Some(local) = self.reductions.get_mut(&reduction) else { return };
        if matches!(local.state, State::Running) {
            local.prefetches += parts.len();
            let copy = |part| Action::Prefetch { reduction, bytes, part };
            self.actions.extend(parts.into_iter().map(copy));
        }
    }

    /// Takes in what became of a part that was to be copied beforehand.
    pub(super) fn prefetched(&mut self, reduction: ReductionId, start: u64, body: Option<Data>) {
        let Some(local) = self.reductions.get_mut(&reduction) else { return };
        local.prefetches -= 1;
        if !matches!(local.state, State::Running) {
            // It was refused meanwhile.
            return;
        }
        let awaited = local.awaited.take_if(|_| local.prefetches == 0);
        self.send(ToMaster::Prefetched(Prefetched { reduction, start, body }));
        awaited.into_iter().for_each(|finished| self.finished(*finished));
    }

    pub(super) fn finished(&mut self, finished: Finished) {
        let is_busy = finished.beside && self.is_busy(finished.reduction);
        if let Some(local) = self.reductions.get_mut(&finished.reduction)
            && (is_busy || local.prefetches > 0)
        {
            local.awaited = Some(Box::new(finished));
            return;
        }
        let Finished { reduction, result, last, lend, beside, learning, report } = finished;
        if reduction.is_in_teams() {
            self.actions.push_back(Action::Over(reduction));
        }
        let in_teams = reduction.is_in_teams();
        let reduction = reduction.called();
        let is_open = |local: &&mut Local| local.is_in_teams() == in_teams;
        let Some(local) = self.reductions.get_mut(&reduction).filter(is_open) else {
            return;
        };
        // A result that is told again is taken in once. That a reduction is over ends it all the same.
        let has_result = last.is_some() || !result.is_empty();
        if has_result
            && matches!(local.state, State::Folding { .. } | State::Collecting { .. } | State::Noting(_))
        {
            return;
        }
        self.learnt.hear(&local.spec, learning);
        local.is_timed = learning.asks;
        if !report.survived.is_empty() && matches!(local.state, State::Running) {
            let (ranks, redone) = (report.survived.clone(), report.folds_redone);
            self.actions.push_back(Action::News(News::Recovered { name: local.name.clone(), ranks, redone }));
        }
        if let Some(task) = last {
            local.state = State::Folding { report: Box::new(report) };
            self.busy.insert((task.segment.reduction, task.segment.index));
            let path = path_of(&task).expect("I1: the paths of a task are disjoint");
            return self.begin(task, path, None);
        }
        if result.is_empty() {
            self.stop_clock(reduction);
            let Some(local) = self.reductions.get(&reduction) else { return };
            let is_root = local.spec.delivery.root() == Some(self.process.rank);
            self.end(reduction, if is_root { End::Received(report) } else { End::Finished(report) });
            return;
        }
        let in_windows = result.iter().any(|piece| matches!(piece.data, Data::Window(_)));
        // Where one rank receives, the others wait until it has the result.
        let announce = match local.spec.delivery {
            Delivery::FirstOf(_) => true,
            _ => self.limits.ranks_return || (in_windows && local.spec.group.len() > 1),
        };
        // Bodies that came in messages are not read from here, and the master would never release them.
        local.lends = announce && (local.lends || lend);
        local.beside = beside;
        let before = local.contributors.replace(report.contributors.clone());
        let afresh = before.is_some_and(|before| before != report.contributors);
        local.state = State::Collecting { report: Box::new(report), announce };
        self.actions.push_back(Action::Collect {
            reduction,
            pieces: result,
            how: Collecting { beside, afresh },
        });
    }

    pub(super) fn collected(&mut self, reduction: ReductionId, result: Result<Collected, ExecutionError>) {
        self.stop_clock(reduction);
        let Some(local) = self.reductions.get_mut(&reduction) else {
            return;
        };
        if matches!(local.state, State::Noting(_)) {
            // It was refused meanwhile.
            return;
        }
        let State::Collecting { report, announce } = core::mem::replace(&mut local.state, State::Serving)
        else {
            unreachable!("only a reduction that is being collected is collected");
        };
        let end = match result {
            Ok(Collected::Whole(body)) if local.lends => {
                let collected = ToMaster::Collected { reduction, body };
                if self.limits.ranks_return {
                    return self.note(reduction, End::Received(*report), Some(collected));
                }
                local.state = State::Lending { report };
                return self.send(collected);
            }
            Ok(Collected::Whole(_)) => End::Received(*report),
            Ok(Collected::Part { error, .. }) if announce && local.has_no_room(&error, self.process) => {
                End::ResultLost(error)
            }
            Ok(Collected::Part { body, error: ExecutionError { culprit, fault, reason, .. } })
                if announce =>
            {
                local.state = State::Running;
                local.lends |= body.is_some();
                let part = NotCollected { reduction, culprit, fault, reason, body };
                return self.send(ToMaster::NotCollected(part));
            }
            Ok(Collected::Part { error, .. }) | Err(error) => End::ResultLost(error),
        };
        let collected = ToMaster::Collected { reduction, body: None };
        if self.limits.ranks_return && announce {
            return self.note(reduction, end, Some(collected));
        }
        self.actions.push_back(Action::Resolve { reduction, end });
        if announce {
            self.send(collected);
        } else {
            self.release(reduction);
        }
    }

    /// Ends the application's future, if it is still open, and releases the windows. A rank that has the
    /// result keeps it, unless others may have another one by now: a rank that takes part no more does not
    /// hear whether they have folded it anew without what went with others.
    pub(super) fn end(&mut self, reduction: ReductionId, end: End) {
        let Some(local) = self.reductions.get_mut(&reduction) else { return };
        let is_cut_off = local.beside && matches!(end, End::Fenced | End::MasterLost);
        if self.limits.ranks_return && end.is_noted() {
            if let State::Noting(noting) = &mut local.state {
                // A noted outcome counts. The master only waits to hear that it is noted.
                noting.said = Some(ToMaster::Noted { reduction });
                return;
            }
            if !matches!(local.state, State::Serving | State::Lending { .. }) {
                return self.note(reduction, end, Some(ToMaster::Noted { reduction }));
            }
        }
        let end = match &mut local.state {
            State::Serving => None,
            State::Lending { report } if !is_cut_off => Some(End::Received(*core::mem::take(report))),
            _ => Some(end),
        };
        self.actions.extend(end.map(|end| Action::Resolve { reduction, end }));
        self.release(reduction);
    }

    /// Notes that an outcome is here, if the master wants to know how long that took.
    pub(super) fn stop_clock(&mut self, reduction: ReductionId) {
        if let Some(local) = self.reductions.get_mut(&reduction)
            && core::mem::take(&mut local.is_timed)
        {
            self.learnt.note(&local.spec, reduction, self.now.since(local.called));
        }
    }

    pub(super) fn release(&mut self, reduction: ReductionId) {
        let released = self.reductions.remove(&reduction);
        self.actions.push_back(Action::Release(reduction));
        // Others may have waited for it.
        if self.gone().is_none() && released.is_some_and(|local| !matches!(local.way, Way::Master)) {
            self.contribute_in_order(reduction);
        }
    }
}
