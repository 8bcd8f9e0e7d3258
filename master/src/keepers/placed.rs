//! The keepers of a group's originals, and the next one if the placed keeper is not there.

use alloc::collections::BTreeMap;

use everfold_protocol::{Path, ProcessId, Rank};
use smallvec::SmallVec;

use crate::{membership::Membership, placement::Placement};

/// The ranks that could keep a copy.
pub(crate) struct Candidates<'a> {
    pub group: &'a Path,
    pub arrived: &'a Path,
    pub members: &'a Membership,
}

/// A placement, to be asked from both sides.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    placement: Placement,
    /// From keeper to owners.
    wards: BTreeMap<Rank, SmallVec<[Rank; 2]>>,
}

impl Candidates<'_> {
    pub(super) fn can_keep(&self, rank: Rank) -> Option<ProcessId> {
        let peer = self.members.alive(rank).filter(|_| self.arrived.contains(rank));
        peer.map(|peer| peer.process)
    }

    /// Whether `rank` may yet call the reduction.
    pub(super) fn may_call(&self, rank: Rank) -> bool {
        self.group.contains(rank) && !self.arrived.contains(rank) && self.members.may_call(rank)
    }

    /// Whether a copy at `keeper` outlives the host on which `original` has contributed.
    pub(super) fn are_apart(&self, keeper: Rank, original: ProcessId) -> bool {
        self.members.host(keeper) != self.members.host_of(original)
    }

    /// Whether the placed `keeper` will do. It is placed apart from the rank's host of now, and a dead
    /// process may have left its original on another one.
    pub(super) fn suits(&self, keeper: Rank, original: ProcessId) -> bool {
        self.members.lives(original) || self.are_apart(keeper, original)
    }

    /// Whether a rank may yet call whose copy would outlive the host on which `original` has contributed.
    pub(super) fn may_come_apart(&self, original: ProcessId) -> bool {
        self.group.iter().any(|rank| self.are_apart(rank, original) && self.may_call(rank))
    }
}

impl Placed {
    pub(super) fn over(candidates: &Candidates) -> Self {
        let placement = candidates.members.placement(candidates.group);
        let mut wards = BTreeMap::<Rank, SmallVec<[Rank; 2]>>::new();
        for owner in candidates.group.iter() {
            if let Some(keeper) = placement.replica_of(owner) {
                wards.entry(keeper).or_default().push(owner);
            }
        }
        Self { placement, wards }
    }

    /// Where the copy of `owner`'s original belongs.
    pub(super) fn keeper_of(&self, owner: Rank) -> Option<Rank> {
        self.placement.replica_of(owner)
    }

    /// Whose copies belong to `keeper`.
    pub(super) fn wards_of(&self, keeper: Rank) -> impl Iterator<Item = Rank> + '_ {
        self.wards.get(&keeper).into_iter().flatten().copied()
    }

    /// The first of `usable` from `from` on, where each step goes to the keeper of the rank before; for the
    /// owner of `original`, which is not its own keeper. One on another host, if there is one.
    pub(super) fn next(
        &self,
        original: ProcessId,
        from: Rank,
        candidates: &Candidates,
        usable: impl Fn(Rank) -> bool,
    ) -> Option<ProcessId> {
        let steps = || {
            let step = |rank: &Rank| self.placement.replica_of(*rank);
            // No longer than all round, whether it comes back to where it began or not.
            core::iter::successors(step(&from), step).take(candidates.group.len())
        };
        let can =
            |rank: &Rank| *rank != original.rank && usable(*rank) && candidates.can_keep(*rank).is_some();
        let apart = |rank: &Rank| candidates.are_apart(*rank, original) && can(rank);
        let by_step = || steps().find(apart);
        let anybody = || {
            let behind = candidates.arrived.iter().filter(|rank| *rank > from);
            behind.chain(candidates.arrived.iter().filter(|rank| *rank <= from))
        };
        let found = by_step().or_else(|| anybody().find(apart)).or_else(|| anybody().find(can));
        found.and_then(|rank| candidates.can_keep(rank))
    }
}
