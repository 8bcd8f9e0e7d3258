//! Replicas: how they are made, what keeps them from being made, and what is noted about them for the judge.
//!
//! What is noted are facts: what was ordered, and what memory held at the moment when the master said something. What has to
//! hold of them is said in [`check`](crate::check).

use std::collections::{BTreeMap, BTreeSet};

use everfold_master as master;
use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, ReductionSpec, SegmentId, SegmentIndex, Timestamp, WindowId,
    message::{
        Data, Evidence, Finished, Keep, Kept, NotKept, Place, Task, ToMaster, ToWorker, WindowRef, Writing,
    },
    report::Refusal,
    spec::Protection,
};
use everfold_worker::machine::Event;
use rand::Rng;

use crate::{
    events::Work,
    faults::{Gap, Reach},
    process::{COPIES, Process, is_copy},
    timing::Spent,
    world::World,
};

/// An order to keep copies.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// When.
    pub at: Timestamp,
    /// Of which reduction.
    pub reduction: ReductionId,
    /// Whose original.
    pub owner: Rank,
    /// Who is to keep it.
    pub keeper: Rank,
    /// Which segments.
    pub segments: std::ops::Range<u32>,
    /// Whether the keeper has called that reduction.
    pub has_called: bool,
    /// When the master heard of contributions to it first and last, and of how many.
    pub contributed: (Timestamp, Timestamp, usize),
}

/// Contributions that the master calls lost, or leaves out.
#[derive(Clone, Debug)]
pub struct Lost {
    /// Of which reduction.
    pub reduction: ReductionId,
    /// Whose.
    pub ranks: Path,
    /// Those of them that it could have had: from living processes whose copies it knows, or out of its own hands.
    pub there: Path,
    /// Whether they are left out, and the reduction goes on.
    pub is_left_out: bool,
}

/// Contributions that are folded for the first time, where each is to have its replica before it counts.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Of which reduction.
    pub reduction: ReductionId,
    /// Whose.
    pub ranks: Path,
    /// Those of them that have no whole replica as far as the master knows, and were not called unprotected.
    pub early: Path,
}

/// What a report says to be protected.
#[derive(Clone, Debug)]
pub struct Protected {
    /// Of which reduction.
    pub reduction: ReductionId,
    /// Whose contributions.
    pub ranks: Path,
    /// Those of them that no other process holds.
    pub alone: Path,
}

/// What was noted about copies.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub ordered: Vec<Ordered>,
    pub lost: Vec<Lost>,
    pub protected: Vec<Protected>,
    pub counted: Vec<Counted>,
    /// Contributions that the master has heard of: when, and where they lie.
    contributed: BTreeMap<(ReductionId, Rank), (Timestamp, Data)>,
    /// Copies that it has been told of: whose, of what, at whom.
    acknowledged: BTreeSet<(Rank, SegmentId, Rank)>,
    /// Contributions that were in a task.
    folded: BTreeMap<ReductionId, Path>,
    refused: BTreeSet<ReductionId>,
    /// Contributions that were called protected.
    told: BTreeMap<ReductionId, Path>,
    /// Who was declared failed so far, and what spoke for it.
    failed: BTreeMap<Rank, Evidence>,
    /// How often something kept a copy from being made or read.
    pub met: BTreeMap<&'static str, u64>,
}

impl World {
    /// Orders for copies, if the run is followed.
    pub fn copies_ordered(&self) -> &[Ordered] {
        &self.copying.ordered
    }

    /// What was called lost or left out, if the run is followed.
    pub fn contributions_lost(&self) -> &[Lost] {
        &self.copying.lost
    }

    /// What reports have said about protection, if the run is followed.
    pub fn contributions_protected(&self) -> &[Protected] {
        &self.copying.protected
    }

    /// Contributions that began to count where a replica is to be there first, if the run is followed.
    pub fn contributions_counted(&self) -> &[Counted] {
        &self.copying.counted
    }

    /// How often something kept a copy from being made or read.
    pub fn copies_met(&self) -> &BTreeMap<&'static str, u64> {
        &self.copying.met
    }

    pub(crate) fn meet_with_copies(&mut self, what: &'static str) {
        *self.copying.met.entry(what).or_default() += 1;
    }

    /// Makes a copy of an original, or fails to.
    pub(crate) fn keep(&mut self, process: ProcessId, keep: Keep, mut spent: Spent) {
        let (rank, owner) = (process.rank, keep.source.process);
        let full = self.process(rank).disk_full && keep.how.writing != Writing::Never;
        let full = full || self.process(rank).is_windowless;
        let fails = full || self.random.random_ratio(self.settings.keep_failures, 100);
        let reach = self.reaches(rank, owner, &keep.source.data, keep.reduction);
        let reach = self.with_patience(reach, &mut spent);
        let gap = self.gap(rank, owner.rank).copied().filter(|_| reach == Reach::Never);
        if let Some(Gap { at_once, .. }) = gap {
            let met =
                if at_once { "reads for copies that failed" } else { "reads for copies that got no answer" };
            self.meet_with_copies(met);
        }
        let result = match reach {
            Reach::Later => return self.try_again(process, Work::Keep(keep), spent),
            Reach::Never => Err(NotKept::Unreachable),
            Reach::Now if fails => Err(NotKept::Impossible("the disk is full".to_owned())),
            Reach::Now => {
                let segment = |index| SegmentId { reduction: keep.reduction, index: SegmentIndex(index) };
                let copies = keep.segments.clone().map(|index| (owner.rank, segment(index)));
                let keeper = self.process_mut(rank);
                keeper.damaged.retain(|copy| !copies.clone().any(|made| made == *copy));
                keeper.copies.extend(copies);
                let place = WindowId(COPIES + u64::from(owner.rank));
                let Data::Window(original) = &keep.source.data else {
                    unreachable!("only windows are copied")
                };
                Ok(Data::Window(WindowRef { window: place, place: Place::Served, ..original.clone() }))
            }
        };
        let Keep { reduction, segments, .. } = keep;
        self.tell_worker(rank, Event::Kept(Kept { reduction, owner, segments, result }));
    }

    /// Damages what a rank keeps of others by now; the next who reads it sees that.
    pub(crate) fn damage_copies(&mut self, rank: Rank) {
        let keeper = self.process_mut(rank);
        keeper.damaged = keeper.copies.clone();
    }

    /// Damages all copies that `task` reads from one keeper: it is told who has damaged ones, not which.
    pub(crate) fn damage_sources(&mut self, keeper: ProcessId, task: &Task) {
        let of_keeper = task.sources.iter().filter(|source| source.process == keeper && is_copy(source));
        let owners = of_keeper.filter_map(|source| source.path.first());
        self.process_mut(keeper.rank).damaged.extend(owners.map(|owner| (owner, task.segment)));
    }

    /// Notes what the master hears.
    pub(crate) fn note_message(&mut self, sender: ProcessId, message: &ToMaster) {
        if !self.settings.follow || !self.master().is_member(sender) {
            return;
        }
        let now = self.now();
        let open = |id: ReductionId| self.master().reductions().find(|(other, _)| **other == id);
        match message {
            ToMaster::Contribute(contribution) => {
                let key = (contribution.reduction, sender.rank);
                self.copying.contributed.insert(key, (now, contribution.data.clone()));
            }
            ToMaster::Kept(Kept { reduction, owner, segments, result: Ok(_) }) => {
                let counts = open(*reduction).is_some_and(|(_, it)| it.group().contains(owner.rank));
                if counts {
                    let segment = |index| SegmentId { reduction: *reduction, index: SegmentIndex(index) };
                    let copies = segments.clone().map(|index| (owner.rank, segment(index), sender.rank));
                    self.copying.acknowledged.extend(copies);
                }
            }
            _ => {}
        }
    }

    /// Notes what the master says.
    pub(crate) fn note_said(&mut self, to: ProcessId, message: &ToWorker) {
        match message {
            _ if !self.settings.follow => {}
            ToWorker::Keep(keep) => {
                let reduction = keep.reduction;
                let of_it = (reduction, Rank(0))..=(reduction, Rank(u32::MAX));
                // Of one batch, some may have come after what was decided.
                let is_before = |at: &Timestamp| self.settings.batch.is_zero() || *at < self.now();
                let times = self.copying.contributed.range(of_it).map(|(_, (at, _))| *at);
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
        let before = self.copying.folded.entry(reduction).or_default();
        let new = ranks.difference(before);
        if new.is_empty() {
            return;
        }
        *before = before.union(&new).expect("they are new");
        let early = new.iter().filter(|rank| !self.may_count(reduction, *rank, &spec)).collect();
        self.copying.counted.push(Counted { reduction, ranks: new, early });
    }

    /// Whether a contribution may count where a replica is to be there first.
    fn may_count(&self, reduction: ReductionId, rank: Rank, spec: &ReductionSpec) -> bool {
        let lies_in_window =
            matches!(self.copying.contributed.get(&(reduction, rank)), Some((_, Data::Window(_))));
        // What outlived its process is as safe as a replica.
        let is_alive = !self.copying.failed.contains_key(&rank);
        let is_copied = |index| {
            let id = SegmentId { reduction, index };
            let of_it = (rank, id, Rank(0))..=(rank, id, Rank(u32::MAX));
            self.copying.acknowledged.range(of_it).next().is_some()
        };
        !(lies_in_window && is_alive)
            || self.facts.unprotected.contains(&(rank, reduction.name))
            || self.segments(reduction, spec).all(|(index, _)| is_copied(index))
    }

    fn note_report(&mut self, finished: &Finished) {
        let (reduction, report) = (finished.reduction, &finished.report);
        // What was handed out stays as it is after later deaths.
        let told = self.copying.told.get(&reduction).cloned().unwrap_or_default();
        let new = report.protected.difference(&told);
        if !new.is_empty() {
            let alone = new.iter().filter(|rank| self.is_alone(reduction, *rank)).collect();
            self.copying.told.insert(reduction, told.union(&new).expect("they are new"));
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
    pub(crate) fn note_notice(&mut self, notice: &master::Notice) {
        if let master::Notice::Failed { process, evidence } = notice {
            self.copying.failed.insert(process.rank, *evidence);
        }
        let master::Notice::Refused { reduction, refusal, .. } = notice else { return };
        // Those who call it later hear the same.
        if !self.settings.follow || !self.copying.refused.insert(*reduction) {
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
                let segments = world.segments(*reduction, spec).map(|(index, _)| held(Some(index)));
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
                !self.copying.failed.contains_key(&rank) && self.master().is_member(ProcessId::first(rank))
            };
            let receives =
                |rank: Rank| is_there(rank) && self.copying.contributed.contains_key(&(reduction, rank));
            let nobody_receives = !candidates.is_empty() && !candidates.iter().any(receives);
            // Where contributions may be missing, it goes on without those who call nothing more.
            let counts = |rank: &Rank| {
                !spec.allow_missing || self.copying.contributed.contains_key(&(reduction, *rank))
            };
            let somebody_is_left = spec.group.iter().filter(counts).any(is_there);
            nobody_receives || candidates == *ranks || !somebody_is_left
        })
    }

    fn spec_of(&self, reduction: ReductionId) -> Option<&ReductionSpec> {
        let mut shares = self.processes.iter().filter_map(|process| process.shares.get(&reduction.called()));
        shares.next().map(|share| &share.spec)
    }

    /// Whether the master has `rank`'s contribution, or knows of undamaged copies at living processes: of one segment, or of all.
    fn can_be_had(&self, reduction: ReductionId, rank: Rank, segment: Option<SegmentIndex>) -> bool {
        match self.copying.contributed.get(&(reduction, rank)) {
            Some((_, Data::Inline(_))) => return true,
            Some(_) => {}
            None => return false,
        }
        let Some(spec) = self.spec_of(reduction) else { return false };
        let keeps = |process: &Process, id: SegmentId| {
            let (keeper, copy) = (process.id.rank, (rank, id));
            process.worker.is_some()
                && self.copying.acknowledged.contains(&(rank, id, keeper))
                && (process.copies.contains(&copy) && !process.damaged.contains(&copy))
                && !self.copying.failed.contains_key(&keeper)
        };
        let has_copy = |index| {
            let id = SegmentId { reduction, index };
            self.processes.iter().any(|process| keeps(process, id))
        };
        let all = self.segments(reduction, spec).map(|(index, _)| index);
        all.filter(|index| segment.is_none_or(|segment| segment == *index)).all(has_copy)
    }

    /// Whether no other process holds `rank`'s contribution, as a copy or folded. Those that were declared failed hold nothing, but
    /// what lies in shared memory outlives its process.
    fn is_alone(&self, reduction: ReductionId, rank: Rank) -> bool {
        if matches!(self.copying.contributed.get(&(reduction, rank)), Some((_, Data::Inline(_)))) {
            // The master has it. With the master everything ends.
            return false;
        }
        let Some(spec) = self.spec_of(reduction) else { return true };
        let mut hosts = spec.group.iter().map(|rank| self.settings.host(rank));
        let first = hosts.next();
        let share_memory = hosts.all(|host| Some(host) == first);
        let holds = |process: &&Process, id: SegmentId| {
            let folded = process.partials.get(&id).is_some_and(|held| held.contains(&rank));
            let failed = self.copying.failed.get(&process.id.rank);
            let outlives = share_memory && failed == Some(&Evidence::Disconnected);
            let copied = process.copies.contains(&(rank, id)) && failed.is_none();
            let folded = folded && !process.torn.contains(&id) && (failed.is_none() || outlives);
            process.id.rank != rank && (copied || folded)
        };
        let is_held = |index| {
            let id = SegmentId { reduction, index };
            self.processes.iter().any(|process| holds(&process, id))
        };
        !self.segments(reduction, spec).all(|(index, _)| is_held(index))
    }
}
