//! What is noted about replicas, for the judge.

use std::collections::BTreeSet;

use everfold_master as master;
use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, ReductionSpec, SegmentId, SegmentIndex, Timestamp,
    message::{Data, Evidence, Finished, Task, ToMaster, ToWorker},
    report::Refusal,
    spec::Protection,
};

use super::World;
use crate::{
    copies::{Counted, Lost, Ordered, Original, Protected},
    process::Process,
};

impl World {
    /// Notes what the master hears.
    pub(super) fn note_message(&mut self, sender: ProcessId, message: &ToMaster) {
        if !self.settings.follow || !self.master().is_member(sender) {
            return;
        }
        match message {
            ToMaster::Contribute(contribution) => {
                let (reduction, data) = (contribution.reduction, contribution.data.clone());
                let on_one_host = self.is_on_one_host(&contribution.spec.group);
                let original = Original { data, on_one_host, copied: BTreeSet::new() };
                self.copying.contribute(self.agenda.now(), sender, reduction, original);
            }
            ToMaster::Kept(kept) if kept.result.is_ok() => {
                let mut open = self.driver.master().reductions().filter(|(id, _)| **id == kept.reduction);
                // Of what is to be contributed again no copy is of use.
                if open.any(|(_, reduction)| reduction.arrived().contains(kept.owner.rank)) {
                    self.copying.acknowledge(sender.rank, kept);
                }
            }
            _ => {}
        }
    }

    /// Notes what the master says.
    pub(super) fn note_said(&mut self, to: ProcessId, message: &ToWorker) {
        match message {
            _ if !self.settings.follow => {}
            ToWorker::Keep(keep) => {
                let reduction = keep.reduction;
                // Of one batch, some may have come after what was decided.
                let is_before = |at: &Timestamp| self.settings.batch.is_zero() || *at < self.now();
                let times = self.copying.contribution_times(reduction);
                let times: Vec<Timestamp> = times.filter(is_before).collect();
                let first = times.iter().min().copied().unwrap_or_default();
                let last = times.iter().max().copied().unwrap_or_default();
                self.copying.ordered.push(Ordered {
                    at: self.now(),
                    reduction,
                    owner: keep.source.process.rank,
                    keeper: to.rank,
                    segments: keep.segments.clone(),
                    has_called: self.process(to.rank).shares.contains_key(&reduction),
                    contributed: (first, last, times.len()),
                });
            }
            ToWorker::Task(task) => self.note_counted(task),
            ToWorker::Finished(finished) => self.note_report(finished),
            _ => {}
        }
    }

    fn note_counted(&mut self, task: &Task) {
        let reduction = task.segment.reduction;
        let is_meant = |spec: &&ReductionSpec| spec.protection == Protection::CommitFirst;
        let Some(spec) = self.spec_of(reduction).filter(is_meant).cloned() else { return };
        let paths = task.sources.iter().map(|source| &source.path).chain([&task.own]);
        let ranks: Path = paths.flat_map(Path::iter).collect();
        let new = self.copying.fold(reduction, &ranks);
        if new.is_empty() {
            return;
        }
        let early = new.iter().filter(|rank| !self.may_count(reduction, *rank, &spec)).collect();
        self.copying.counted.push(Counted { reduction, ranks: new, early });
    }

    /// Whether the master has heard of copies of all segments of a contribution.
    pub(crate) fn was_copied(&self, reduction: ReductionId, rank: Rank, spec: &ReductionSpec) -> bool {
        let is_copied = |index| self.copying.is_copied(rank, SegmentId { reduction, index });
        self.settings.segments(reduction, spec).all(|(index, _)| is_copied(index))
    }

    /// Whether the master has heard of a copy of a part of a contribution at `keeper`.
    pub(crate) fn was_copied_to(
        &self,
        keeper: Rank,
        reduction: ReductionId,
        owner: Rank,
        spec: &ReductionSpec,
    ) -> bool {
        let is_there = |index| self.copying.is_acknowledged(keeper, owner, SegmentId { reduction, index });
        self.settings.segments(reduction, spec).any(|(index, _)| is_there(index))
    }

    /// Whether a contribution may count where a replica is to be there first.
    fn may_count(&self, reduction: ReductionId, rank: Rank, spec: &ReductionSpec) -> bool {
        let counts = |(process, original): (ProcessId, &Original)| {
            let Data::Window(window) = &original.data else { return true };
            let mut segments = self.settings.segments(reduction, spec);
            let is_copied = segments.all(|(index, _)| original.copied.contains(&index.0));
            // What outlives its process on the only host of a group is as safe as a replica there.
            let leaves_memory = |(_, evidence): &(Timestamp, Evidence)| evidence.leaves_memory();
            let is_left = self.facts.failures.get(&process).is_some_and(leaves_memory);
            // The last of them may have come to it since.
            let is_alone = original.on_one_host || self.is_on_one_host(&spec.group);
            is_copied || is_alone && is_left && window.place.outlives_its_process()
        };
        self.facts.unprotected.contains(&(rank, reduction.name))
            || self.copying.originals(rank, reduction).any(counts)
    }

    fn note_report(&mut self, finished: &Finished) {
        let (reduction, report) = (finished.reduction, &finished.report);
        // What was handed out stays as it is after later deaths.
        let new = self.copying.protect(reduction, &report.protected);
        if !new.is_empty() {
            // Whoever was away hears what was true when the result was first handed out.
            let is_late = self.settings.returns.is_some() && !self.facts.ever_failed().is_empty();
            let alone = new.iter().filter(|rank| !is_late && self.is_alone(reduction, *rank)).collect();
            self.copying.protected.push(Protected { reduction, ranks: new, alone });
        }
        let is_noted = |lost: &Lost| lost.reduction == reduction && lost.ranks == report.missing;
        if !report.missing.is_empty() && !self.copying.lost.last().is_some_and(is_noted) {
            let there =
                report.missing.iter().filter(|rank| self.can_be_had(reduction, *rank, None)).collect();
            let ranks = report.missing.clone();
            self.copying.lost.push(Lost { reduction, ranks, there, is_left_out: true });
        }
    }

    /// Notes what the master tells its watchers.
    pub(super) fn note_notice(&mut self, notice: &master::Notice) {
        if let master::Notice::Failed { process, evidence } = notice {
            self.copying.fail(process.rank, *evidence);
        }
        if let master::Notice::Returned(process) = notice {
            self.copying.come_back(process.rank);
        }
        let master::Notice::Refused { reduction, refusal, .. } = notice else { return };
        // Those who call it later hear the same.
        if !self.settings.follow || !self.copying.refuse(*reduction) {
            return;
        }
        let ranks = match refusal {
            Refusal::ContributionLost { ranks } => ranks,
            Refusal::ProcessFailed { ranks } if !self.is_about_receivers(*reduction, ranks) => ranks,
            _ => return,
        };
        let world = &*self;
        let held = |segment| -> Path {
            ranks.iter().filter(|rank| world.can_be_had(*reduction, *rank, segment)).collect()
        };
        let there = match (refusal, world.spec_of(*reduction)) {
            // All of them are missing in one segment.
            (Refusal::ContributionLost { .. }, Some(spec)) => {
                let segments = world.settings.segments(*reduction, spec).map(|(index, _)| held(Some(index)));
                segments.min_by_key(Path::len).unwrap_or_default()
            }
            _ => held(None),
        };
        let ranks = ranks.clone();
        self.copying.lost.push(Lost { reduction: *reduction, ranks, there, is_left_out: false });
    }

    /// Whether nobody is left who could receive the result, or take part.
    fn is_about_receivers(&self, reduction: ReductionId, ranks: &Path) -> bool {
        self.spec_of(reduction).is_none_or(|spec| {
            let candidates: Path = spec.delivery.candidates().iter().copied().collect();
            let is_there = |rank: Rank| {
                self.copying.failed(rank).is_none() && self.master().is_member(self.process(rank).id)
            };
            let receives = |rank: Rank| is_there(rank) && self.copying.has_contributed(rank, reduction);
            let nobody_receives = !candidates.is_empty() && !candidates.iter().any(receives);
            // Where contributions may be missing, it goes on without those who call nothing more.
            let counts = |rank: &Rank| !spec.allow_missing || self.copying.has_contributed(*rank, reduction);
            let somebody_is_left = spec.group.iter().filter(counts).any(is_there);
            nobody_receives || candidates == *ranks || !somebody_is_left
        })
    }

    fn spec_of(&self, reduction: ReductionId) -> Option<&ReductionSpec> {
        let mut shares = self.processes.iter().filter_map(|process| process.shares.get(&reduction.called()));
        shares.next().map(|share| &share.spec)
    }

    /// Whether the master has `rank`'s contribution, or knows of undamaged copies at living processes, or at
    /// the agents of dead ones: of one segment, or of all.
    fn can_be_had(&self, reduction: ReductionId, rank: Rank, segment: Option<SegmentIndex>) -> bool {
        match self.copying.contribution(rank, reduction) {
            Some(Data::Inline(_)) => return true,
            Some(_) => {}
            None => return false,
        }
        let Some(spec) = self.spec_of(reduction) else { return false };
        let keeps = |process: &Process, id: SegmentId| {
            let keeper = process.id.rank;
            let lives = process.worker.is_some() && self.copying.failed(keeper).is_none();
            self.copying.is_acknowledged(keeper, rank, id)
                && process.replicas.has_whole(rank, id)
                && (lives || self.has_left_copy(process, rank, id))
        };
        let has_copy = |index| {
            let id = SegmentId { reduction, index };
            self.processes.iter().any(|process| keeps(process, id))
        };
        let all = self.settings.segments(reduction, spec).map(|(index, _)| index);
        all.filter(|index| segment.is_none_or(|segment| segment == *index)).all(has_copy)
    }

    /// Whether `keeper` has died, and left its copy of `owner`'s segment to its agent.
    fn has_left_copy(&self, keeper: &Process, owner: Rank, segment: SegmentId) -> bool {
        let rank = keeper.id.rank;
        let has_left = self.copying.failed(rank).is_some_and(Evidence::leaves_memory);
        has_left && self.facts.is_held(keeper.host, rank) && keeper.has_left_copy(owner, segment)
    }

    /// Whether no other process holds `rank`'s contribution, as a copy or folded. Those that were declared
    /// failed hold nothing, but what lies in shared memory outlives its process.
    fn is_alone(&self, reduction: ReductionId, rank: Rank) -> bool {
        if matches!(self.copying.contribution(rank, reduction), Some(Data::Inline(_))) {
            // The master has it. With the master everything ends.
            return false;
        }
        let Some(spec) = self.spec_of(reduction) else { return true };
        let mut hosts = spec.group.iter().map(|rank| self.home(rank));
        let first = hosts.next();
        let share_memory = hosts.all(|host| Some(host) == first);
        let holds = |process: &&Process, id: SegmentId| {
            let folded = process.partials.get(&id).is_some_and(|held| held.contains(&rank));
            let failed = self.copying.failed(process.id.rank);
            let host = process.host;
            let is_past = self.process(process.id.rank).id != process.id;
            if is_past {
                // Its agent holds what it has left. Its replicas are gone.
                let folded = process.partials.get(&id).is_some_and(|held| held.contains(&rank));
                return folded && !process.torn.contains(&id) && !self.facts.hosts_lost.contains_key(&host);
            }
            let is_held = self.facts.is_held(host, process.id.rank);
            let outlives = failed.is_some_and(Evidence::leaves_memory) && (share_memory || is_held);
            let left = outlives && process.replicas.outlives(rank, id);
            let copied = process.replicas.has(rank, id) && (failed.is_none() || left);
            let folded = folded && !process.torn.contains(&id) && (failed.is_none() || outlives);
            process.id.rank != rank && (copied || folded)
        };
        let is_held = |index| {
            let id = SegmentId { reduction, index };
            self.all().any(|process| holds(&process, id))
        };
        !self.settings.segments(reduction, spec).all(|(index, _)| is_held(index))
    }
}
