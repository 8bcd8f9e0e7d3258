//! Which process keeps the copy of whose original in one reduction, and which one does when that fails.
//!
//! Copies are placed over the living of the whole group, one or few per process
//! ([`Placement`](crate::placement::Placement)). A keeper has to have called the reduction: only then it takes
//! an order, and hears when the reduction is over. So an owner waits for its placed keeper to call, for a
//! while; then the next one keeps its copy that is found by asking where *that* keeper's own copy would go,
//! and so on. These steps are those of a permutation in most groups, so that processes which have called still
//! get one copy each, however many are late. Where the only process that could keep a copy is on the host
//! that holds the original, one on another host is waited for as long.
//!
//! A keeper that refuses (its disk is full) is asked no more, and another one at once. One that cannot reach
//! the owner, or does not answer in time, is asked again only after others. The search ends without a copy
//! after a few refusals, or if no keeper reaches the owner for longer than the owner's death could go
//! unnoticed.

mod charge;
mod placed;
#[cfg(test)]
mod tests;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};

use everfold_protocol::{ProcessId, Rank, Timestamp};

use self::{charge::Charge, placed::Placed};
pub(crate) use self::{
    charge::{Next, Patience},
    placed::Candidates,
};

/// The owners of originals in one reduction, and their keepers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keepers {
    placement: Option<Placed>,
    charges: BTreeMap<Rank, Charge>,
    /// Owners that have no keeper now.
    without: BTreeSet<Rank>,
}

/// The keeper that is asked for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Keeper(ProcessId),
    /// No keeper yet; look again at this time, or when a rank calls.
    Later(Option<Timestamp>),
    /// No keeper, and no other rank is to come.
    Nobody,
    /// The search has ended before.
    GivenUp,
}

impl Keepers {
    /// Takes in that `owner` has contributed an original that may need a copy, in this many segments.
    pub fn add(&mut self, now: Timestamp, owner: Rank, segments: u32) {
        self.charges.insert(owner, Charge::new(now, segments));
    }

    pub fn get_mut(&mut self, owner: Rank) -> Option<&mut Charge> {
        self.charges.get_mut(&owner)
    }

    /// When owners are looked after next.
    pub fn due(&self) -> impl Iterator<Item = (Timestamp, Rank)> + '_ {
        self.charges.iter().filter_map(|(owner, charge)| Some((charge.due()?, *owner)))
    }

    /// Owners whose copies may be ordered because `rank` has called: itself, those whose copies it is to
    /// keep, and those that had no keeper.
    pub fn concerned(&mut self, rank: Rank, candidates: &Candidates) -> Vec<Rank> {
        let placed = self.placement.get_or_insert_with(|| Placed::over(candidates));
        let wards = placed.wards_of(rank);
        let mut concerned: Vec<Rank> = wards.chain([rank]).chain(self.without.iter().copied()).collect();
        concerned.sort_unstable();
        concerned.dedup();
        concerned
    }

    /// The keeper of the copy of what the process `original` has contributed.
    pub fn find(
        &mut self,
        now: Timestamp,
        original: ProcessId,
        candidates: &Candidates,
        patience: &Patience,
    ) -> Found {
        let owner = original.rank;
        let Some(charge) = self.charges.get_mut(&owner).filter(|charge| !charge.is_given_up()) else {
            return Found::GivenUp;
        };
        if let Some(keeper) = charge.keeper() {
            return Found::Keeper(keeper);
        }
        let placed = self.placement.get_or_insert_with(|| Placed::over(candidates));
        let begins = charge.at().is_none();
        let usable = |rank: Rank| charge.may_ask(rank);
        let suits = |own: &Rank| begins && usable(*own) && candidates.suits(*own, original);
        let own = placed.keeper_of(owner).filter(suits);
        let until = charge.waits_until(patience);
        let waits = begins && now < until;
        let found = match own.and_then(|own| candidates.can_keep(own)) {
            Some(keeper) => Some(keeper),
            None if waits && own.is_some_and(|own| candidates.may_call(own)) => {
                return Found::Later(Some(until));
            }
            None => placed.next(original, charge.at().unwrap_or(owner), candidates, usable),
        };
        let is_apart = |keeper: ProcessId| candidates.are_apart(keeper.rank, original);
        if waits && !found.is_some_and(is_apart) && candidates.may_come_apart(original) {
            self.without.insert(owner);
            return Found::Later(Some(until));
        }
        match found {
            Some(keeper) => {
                self.without.remove(&owner);
                charge.ask(now, keeper, patience);
                Found::Keeper(keeper)
            }
            None if candidates.arrived == candidates.group => Found::Nobody,
            None => {
                self.without.insert(owner);
                Found::Later(None)
            }
        }
    }

    /// Takes in that `owner`'s copy is looked after now. Returns whether its keeper is to be asked, and not
    /// waited for.
    pub fn look(&mut self, now: Timestamp, owner: Rank, patience: &Patience) -> Next {
        self.charges.get_mut(&owner).map_or(Next::Nothing, |charge| charge.look(now, patience))
    }

    /// Whether `keeper` is the one that is asked for the copy of `owner`'s original.
    pub fn is_asked(&self, keeper: ProcessId, owner: Rank) -> bool {
        self.charges.get(&owner).is_some_and(|charge| charge.keeper() == Some(keeper))
    }

    /// Takes in that `keeper` has copies of `count` segments of `owner`'s original. Of `new` of them there
    /// was none before.
    pub fn kept(&mut self, now: Timestamp, keeper: ProcessId, owner: Rank, count: u32, new: u32) {
        if let Some(charge) = self.charges.get_mut(&owner) {
            charge.keep(now, keeper, count, new);
        }
    }

    /// Takes in that `keeper` could not reach `owner`, which lives, for this many segments.
    pub fn not_reached(
        &mut self,
        now: Timestamp,
        keeper: ProcessId,
        owner: Rank,
        segments: u32,
        patience: &Patience,
    ) -> Next {
        let charge = self.charges.get_mut(&owner);
        charge.map_or(Next::Nothing, |charge| charge.not_reached(now, keeper, segments, patience))
    }

    /// Takes in that `keeper` refuses to keep this many segments of `owner`, and why.
    pub fn refused(
        &mut self,
        now: Timestamp,
        keeper: ProcessId,
        owner: Rank,
        segments: u32,
        reason: String,
    ) -> Next {
        let charge = self.charges.get_mut(&owner);
        charge.map_or(Next::Nothing, |charge| charge.refuse(now, keeper, segments, reason))
    }

    /// Ends the search for a keeper. Returns whether it went on.
    pub fn give_up(&mut self, owner: Rank) -> bool {
        self.without.remove(&owner);
        self.charges.get_mut(&owner).is_some_and(Charge::give_up)
    }

    /// Looks after `owner`'s copy at `at`, if not before. Returns whether that is new.
    pub fn look_at(&mut self, at: Timestamp, owner: Rank) -> bool {
        self.charges.get_mut(&owner).is_some_and(|charge| charge.look_at(at))
    }

    /// When the keeper of `owner`'s copy will have been silent for too long, if that is not watched yet.
    pub fn watch(&mut self, owner: Rank, patience: &Patience) -> Option<Timestamp> {
        self.charges.get_mut(&owner)?.watch(patience)
    }

    /// Why the last process refused that was asked to keep `owner`'s copy.
    pub fn refusal(&self, owner: Rank) -> Option<&str> {
        self.charges.get(&owner)?.refusal()
    }

    /// Starts anew for owners whose copies `dead` has kept, or was to keep; originals that it has folded may
    /// need a copy, too. May be called again when its memory is gone.
    pub fn lose(&mut self, dead: ProcessId) {
        self.placement = None;
        self.charges.values_mut().for_each(|charge| charge.lose(dead));
    }

    /// Forgets all placements: the group has changed.
    pub fn place_anew(&mut self) {
        self.placement = None;
    }
}
