//! Facts about replicas, for the judge.
//!
//! They say what was ordered, and what memory held at the moment when the master said something. What has to
//! hold of them is said in [`check`](crate::check).

use std::collections::{BTreeMap, BTreeSet};

use everfold_protocol::{
    Incarnation, Path, ProcessId, Rank, ReductionId, SegmentId, SegmentIndex, Timestamp,
    message::{Data, Evidence, Kept},
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
    /// Those of them that it could have had: from living processes whose copies it knows, or out of its own
    /// hands.
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

/// What a process has contributed.
#[derive(Debug)]
pub(crate) struct Original {
    /// Where it lies.
    pub data: Data,
    /// Whether all ranks of the group were on one host when the master heard of it.
    pub on_one_host: bool,
    /// The segments of which the master was told that there is a copy.
    pub copied: BTreeSet<u32>,
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
    /// What each process has contributed, also one in whose place another has come.
    originals: BTreeMap<(ReductionId, ProcessId), Original>,
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

impl Notes {
    /// Takes in that something kept a copy from being made or read.
    pub fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// Takes in that the master hears of a contribution, and where that lies.
    pub fn contribute(&mut self, at: Timestamp, by: ProcessId, reduction: ReductionId, original: Original) {
        self.contributed.insert((reduction, by.rank), (at, original.data.clone()));
        self.originals.entry((reduction, by)).or_insert(original);
    }

    /// Whether the master has heard of a contribution.
    pub fn has_contributed(&self, rank: Rank, reduction: ReductionId) -> bool {
        self.contributed.contains_key(&(reduction, rank))
    }

    /// What the processes of `rank` have contributed, which may have been lost.
    pub fn originals(
        &self,
        rank: Rank,
        reduction: ReductionId,
    ) -> impl Iterator<Item = (ProcessId, &Original)> {
        let last = ProcessId { incarnation: Incarnation(u32::MAX), ..ProcessId::first(rank.0) };
        let of_it = (reduction, ProcessId::first(rank.0))..=(reduction, last);
        self.originals.range(of_it).map(|((_, process), original)| (*process, original))
    }

    /// Where a contribution lies, if the master has heard of it.
    pub fn contribution(&self, rank: Rank, reduction: ReductionId) -> Option<&Data> {
        self.contributed.get(&(reduction, rank)).map(|(_, data)| data)
    }

    /// When the master heard of contributions to a reduction.
    pub fn contribution_times(&self, reduction: ReductionId) -> impl Iterator<Item = Timestamp> {
        let of_it = (reduction, Rank(0))..=(reduction, Rank(u32::MAX));
        self.contributed.range(of_it).map(|(_, (at, _))| *at)
    }

    /// Takes in that the master hears of copies at `keeper`.
    pub fn acknowledge(&mut self, keeper: Rank, kept: &Kept) {
        let segment = |index| SegmentId { reduction: kept.reduction, index: SegmentIndex(index) };
        let copies = kept.segments.clone().map(|index| (kept.owner.rank, segment(index), keeper));
        self.acknowledged.extend(copies);
        if let Some(original) = self.originals.get_mut(&(kept.reduction, kept.owner)) {
            original.copied.extend(kept.segments.clone());
        }
    }

    /// Takes in that a contribution was lost and has come again: copies of parts of the lost one are of no
    /// use.
    pub fn replace(&mut self, rank: Rank, reduction: ReductionId) {
        self.acknowledged.retain(|(owner, segment, _)| (*owner, segment.reduction) != (rank, reduction));
    }

    /// Whether the master has heard of a copy at `keeper`.
    pub fn is_acknowledged(&self, keeper: Rank, owner: Rank, segment: SegmentId) -> bool {
        self.acknowledged.contains(&(owner, segment, keeper))
    }

    /// Whether the master has heard of a copy at somebody.
    pub fn is_copied(&self, owner: Rank, segment: SegmentId) -> bool {
        let of_it = (owner, segment, Rank(0))..=(owner, segment, Rank(u32::MAX));
        self.acknowledged.range(of_it).next().is_some()
    }

    /// Takes in that contributions are in a task. Returns those that are in one for the first time.
    pub fn fold(&mut self, reduction: ReductionId, ranks: &Path) -> Path {
        let before = self.folded.entry(reduction).or_default();
        let new = ranks.difference(before);
        if !new.is_empty() {
            *before = before.union(&new).expect("they are new");
        }
        new
    }

    /// Takes in that a report calls contributions protected. Returns those of which none did before.
    pub fn protect(&mut self, reduction: ReductionId, ranks: &Path) -> Path {
        let before = self.told.entry(reduction).or_default();
        let new = ranks.difference(before);
        if !new.is_empty() {
            *before = before.union(&new).expect("they are new");
        }
        new
    }

    /// Takes in that a reduction is refused. Returns whether that is the first time.
    pub fn refuse(&mut self, reduction: ReductionId) -> bool {
        self.refused.insert(reduction)
    }

    /// Takes in that the master declares a process failed.
    pub fn fail(&mut self, rank: Rank, evidence: Evidence) {
        self.failed.insert(rank, evidence);
    }

    /// Takes in that a rank has come back.
    pub fn come_back(&mut self, rank: Rank) {
        self.failed.remove(&rank);
    }

    /// Why the master has declared a process failed, if it has.
    pub fn failed(&self, rank: Rank) -> Option<Evidence> {
        self.failed.get(&rank).copied()
    }
}
