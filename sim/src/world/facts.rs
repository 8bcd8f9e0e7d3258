//! What is noted of what the master hears and says.

use everfold_master::Notice;
use everfold_protocol::{
    ProcessId, Rank, ReductionId, SegmentId,
    message::{Data, News, ToMaster, ToWorker},
};
use everfold_worker::machine::Gone;

use super::World;

impl World {
    /// Takes in what the master tells its watchers.
    pub(super) fn hear_notice(&mut self, notice: Notice) {
        let at = self.agenda.now();
        if self.teller.is_heard() {
            self.teller.notice(at, &notice);
        }
        self.check_loss(&notice);
        self.note_notice(&notice);
        match &notice {
            Notice::Failed { process, evidence } => {
                self.facts.fail(at, *process, *evidence);
            }
            Notice::Returned(process) => self.facts.come_back(*process),
            Notice::Refused { reduction, ranks, .. } => {
                ranks.iter().for_each(|rank| self.facts.refuse(at, *reduction, rank));
            }
            Notice::News(News::Unprotected { rank, name, .. }) => {
                self.facts.unprotect(*rank, name);
            }
            Notice::News(News::Slow { name, .. }) => {
                let open = self.driver.master().reductions();
                let of_name = open.filter(|(_, reduction)| reduction.name() == name.as_str());
                let slow: Vec<ReductionId> = of_name.map(|(id, _)| *id).collect();
                self.slow.extend(slow);
            }
            Notice::News(News::Migrates { rank, to }) => {
                self.check_leave(*rank);
                self.check_target(to);
            }
            _ => {}
        }
        self.notices.push(notice);
    }

    /// Notes what the master is about to take in. Returns of which call it hears, and whether that comes
    /// inlined.
    pub(super) fn note_coming(
        &mut self,
        process: ProcessId,
        message: &ToMaster,
    ) -> Option<(ReductionId, ProcessId, bool)> {
        self.note_message(process, message);
        let sender = process.rank;
        self.copies.hear(sender, message);
        match message {
            ToMaster::Contribute(contribution) => {
                Some((contribution.reduction, process, matches!(contribution.data, Data::Inline(_))))
            }
            ToMaster::PartialReady(done) => {
                self.facts.tell(sender, done.segment, &done.path);
                None
            }
            ToMaster::Kept(kept) if kept.result.is_ok() => {
                self.facts.keep(kept.owner.rank, kept.reduction);
                None
            }
            ToMaster::Collected { reduction, .. } | ToMaster::Noted { reduction } => {
                self.facts.serve(process, *reduction);
                None
            }
            _ => None,
        }
    }

    /// Notes that the master has heard of a call.
    pub(super) fn note_heard(&mut self, (id, process, inline): (ReductionId, ProcessId, bool)) {
        let sender = process.rank;
        let mut reductions = self.driver.master().reductions();
        let open = reductions.find(|(open, _)| **open == id).map(|(_, reduction)| reduction);
        if let Some(reduction) = open {
            self.settings.cuts.insert(id, reduction.segment_bytes());
        }
        self.facts.hear(self.agenda.now(), sender, id, open.is_some());
        // What it refuses counts nowhere.
        let counts = open.is_some_and(|reduction| reduction.arrived().contains(sender));
        if counts && self.facts.heard(sender, id).is_some() && !self.is_left_by_a_caller(sender, id) {
            self.facts.replace(sender, id);
            self.copying.replace(sender, id);
        }
        if counts {
            self.facts.count(process, id, inline);
        }
    }

    /// Notes what the master does not count on any more once it has said so to `rank`.
    pub(super) fn give_up(&mut self, to: ProcessId, said: &ToWorker) {
        if self.process(to.rank).id != to {
            return;
        }
        let rank = to.rank;
        if let ToWorker::Task(task) = said {
            self.facts.task(rank, task.segment);
        }
        match said {
            ToWorker::Task(task) if task.own.is_empty() => {
                self.process_mut(rank).given_up.insert(task.segment);
            }
            ToWorker::Finished(finished) if !finished.result.is_empty() && !finished.beside => {
                self.facts.overwrite(rank, finished.reduction);
            }
            ToWorker::HandOver { reduction } => {
                let Some(share) = self.process(rank).shares.get(reduction) else { return };
                let segments = self.settings.segments(*reduction, &share.spec);
                let given = segments.map(|(index, _)| SegmentId { reduction: *reduction, index });
                self.process_mut(rank).given_up.extend(given);
            }
            _ => {}
        }
    }

    /// Notes that a rank hears that its call is refused.
    pub(super) fn note_refused(&mut self, rank: Rank, message: &ToWorker) {
        let ToWorker::Refused { reduction, .. } = message else { return };
        let Some(share) = self.processes[rank.index()].shares.get_mut(reduction) else { return };
        let segments = self.settings.segments(*reduction, &share.spec).count();
        share.refuse(segments);
    }

    /// Notes that a rank takes part no more.
    pub(super) fn note_gone(&mut self, rank: Rank, gone: Gone) {
        if gone == Gone::MasterLost {
            self.facts.desert(self.agenda.now(), self.process(rank).id);
        }
    }
}
