//! Which process keeps the copy of whose original in one reduction, and which one does when that fails.
//!
//! Copies are placed over the living of the whole group, one or few per process ([`Placement`]). A keeper has
//! to have called the reduction: only then it takes an order, and hears when the reduction is over. So an
//! owner waits for its placed keeper to call, for a while; then the next one keeps its copy that is found by
//! asking where *that* keeper's own copy would go, and so on. These steps are those of a permutation in most
//! groups, so that processes which have called still get one copy each, however many are late.
//!
//! A keeper that refuses (its disk is full) is asked no more, and another one at once. One that cannot reach
//! the owner, or does not answer in time, is not asked again before others were. A few refusals, or a time in
//! which nobody has reached the owner and which is longer than the owner's death could go unnoticed, end the
//! search: the original has no copy.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use core::{ops::Range, time::Duration};

use everfold_protocol::{Path, ProcessId, Rank, Timestamp};
use smallvec::SmallVec;

use crate::{membership::Membership, placement::Placement};

/// Processes that may refuse to keep a copy before its owner is told that there is none.
const REFUSALS_MAX: usize = 3;

/// Times that a copy is tried at least before its owner is given up: a master that did not run finds much
/// time passed.
const TRIES_MIN: u32 = 3;

/// The owners of originals in one reduction, and their keepers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keepers {
    placement: Option<Placed>,
    charges: BTreeMap<Rank, Charge>,
    /// Owners for whom there is nobody now.
    without: BTreeSet<Rank>,
}

/// A placement, to be asked from both sides.
#[derive(Clone, Debug)]
struct Placed {
    placement: Placement,
    /// From keeper to owners.
    wards: BTreeMap<Rank, SmallVec<[Rank; 2]>>,
}

/// One owner's original, and how far its copy is.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    keeper: Option<ProcessId>,
    /// Who was asked last, or would be asked first.
    at: Option<Rank>,
    /// Processes that have answered with copies.
    holders: SmallVec<[ProcessId; 1]>,
    /// Processes that have refused, and why the last one did.
    refused: SmallVec<[Rank; 1]>,
    reason: Option<String>,
    segments: u32,
    /// Segments that may have to be ordered yet: those before this one.
    left: u32,
    /// Segments ordered from the keeper and not yet answered.
    ordered: u32,
    /// Segments of which a copy was acknowledged. Some may be gone again.
    kept: u32,
    /// When its owner has contributed.
    since: Timestamp,
    /// When the keeper was asked or heard last, and how long it may be silent.
    heard: Timestamp,
    patience: Duration,
    /// Since when nobody has reached the owner, and how often that was tried.
    failing: Option<(Timestamp, u32)>,
    /// When it is looked after next.
    due: Option<Timestamp>,
    /// Whether the search has ended.
    given_up: bool,
}

/// How long keepers are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the placed keeper to call.
    pub call: Duration,
    /// For an answer of a keeper, at first; nothing if nobody watches.
    pub answer: Option<Duration>,
    /// For anybody to reach an owner that lives.
    pub reach: Duration,
}

/// Who could keep a copy.
pub(crate) struct Candidates<'a> {
    pub group: &'a Path,
    pub arrived: &'a Path,
    pub members: &'a Membership,
}

/// Who is asked for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Keeper(ProcessId),
    /// Nobody yet; look again then, or when somebody calls.
    Later(Option<Timestamp>),
    /// Nobody, and nobody else is to come.
    Nobody,
    /// The search has ended before.
    GivenUp,
}

/// What follows when a copy could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: another process is asked already, or there is nothing left to do.
    Nothing,
    /// Another one is asked, if there is one.
    Ask,
    /// There will be no copy.
    GiveUp,
}

impl Candidates<'_> {
    fn can_keep(&self, rank: Rank) -> Option<ProcessId> {
        let peer = self.members.alive(rank).filter(|_| self.arrived.contains(rank));
        peer.map(|peer| peer.process)
    }

    fn are_apart(&self, one: Rank, other: Rank) -> bool {
        self.members.host(one) != self.members.host(other)
    }
}

impl Placed {
    fn over(candidates: &Candidates) -> Self {
        let placement = candidates.members.placement(candidates.group);
        let mut wards = BTreeMap::<Rank, SmallVec<[Rank; 2]>>::new();
        for owner in candidates.group.iter() {
            if let Some(keeper) = placement.replica_of(owner) {
                wards.entry(keeper).or_default().push(owner);
            }
        }
        Self { placement, wards }
    }

    /// The first of `usable` that is found from `from` on, each step where that one's own copy goes; for an
    /// `owner`, who is not its own keeper. One on another host, if there is one.
    fn next(
        &self,
        owner: Rank,
        from: Rank,
        candidates: &Candidates,
        usable: impl Fn(Rank) -> bool,
    ) -> Option<ProcessId> {
        let steps = || {
            let step = |rank: &Rank| self.placement.replica_of(*rank);
            // No longer than all round, whether it comes back to where it began or not.
            core::iter::successors(step(&from), step).take(candidates.group.len())
        };
        let can = |rank: &Rank| *rank != owner && usable(*rank) && candidates.can_keep(*rank).is_some();
        let apart = |rank: &Rank| candidates.are_apart(*rank, owner) && can(rank);
        let by_step = || steps().find(apart);
        let anybody = || {
            let behind = candidates.arrived.iter().filter(|rank| *rank > from);
            behind.chain(candidates.arrived.iter().filter(|rank| *rank <= from))
        };
        let found = by_step().or_else(|| anybody().find(apart)).or_else(|| anybody().find(can));
        found.and_then(|rank| candidates.can_keep(rank))
    }
}

impl Keepers {
    /// Takes in that `owner` has contributed what may need a copy, in so many segments.
    pub fn add(&mut self, now: Timestamp, owner: Rank, segments: u32) {
        let charge = Charge {
            keeper: None,
            at: None,
            holders: SmallVec::new(),
            refused: SmallVec::new(),
            reason: None,
            segments,
            left: segments,
            ordered: 0,
            kept: 0,
            since: now,
            heard: now,
            patience: Duration::ZERO,
            failing: None,
            due: None,
            given_up: false,
        };
        self.charges.insert(owner, charge);
    }

    pub fn get_mut(&mut self, owner: Rank) -> Option<&mut Charge> {
        self.charges.get_mut(&owner)
    }

    /// When owners are looked after next.
    pub fn due(&self) -> impl Iterator<Item = (Timestamp, Rank)> + '_ {
        self.charges.iter().filter_map(|(owner, charge)| Some((charge.due?, *owner)))
    }

    /// Owners whose copies may be ordered because `rank` has called: its own, those that it is to keep, and
    /// those for whom there was nobody.
    pub fn concerned(&mut self, rank: Rank, candidates: &Candidates) -> Vec<Rank> {
        let placed = self.placement.get_or_insert_with(|| Placed::over(candidates));
        let wards = placed.wards.get(&rank).into_iter().flatten().copied();
        let mut concerned: Vec<Rank> = wards.chain([rank]).chain(self.without.iter().copied()).collect();
        concerned.sort_unstable();
        concerned.dedup();
        concerned
    }

    /// Who keeps the copy of `owner`'s original.
    pub fn find(
        &mut self,
        now: Timestamp,
        owner: Rank,
        candidates: &Candidates,
        patience: &Patience,
    ) -> Found {
        let Some(charge) = self.charges.get_mut(&owner).filter(|charge| !charge.given_up) else {
            return Found::GivenUp;
        };
        if let Some(keeper) = charge.keeper {
            return Found::Keeper(keeper);
        }
        let placed = self.placement.get_or_insert_with(|| Placed::over(candidates));
        let begins = charge.at.is_none();
        let usable = |rank: Rank| !charge.refused.contains(&rank);
        let own = placed.placement.replica_of(owner).filter(|own| begins && usable(*own));
        let found = match own.and_then(|own| candidates.can_keep(own)) {
            Some(keeper) => Some(keeper),
            None if own.is_some() && now < charge.since + patience.call => {
                return Found::Later(Some(charge.since + patience.call));
            }
            None => placed.next(owner, charge.at.unwrap_or(owner), candidates, usable),
        };
        match found {
            Some(keeper) => {
                self.without.remove(&owner);
                (charge.keeper, charge.at) = (Some(keeper), Some(keeper.rank));
                charge.heard = now;
                charge.patience = charge.patience.max(patience.answer.unwrap_or_default());
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
        let Some(charge) = self.charges.get_mut(&owner) else { return Next::Nothing };
        if charge.given_up || charge.due.take_if(|due| *due <= now).is_none() {
            return Next::Nothing;
        }
        if charge.ordered == 0 {
            return Next::Ask;
        }
        if charge.answer_due(patience).is_none_or(|due| now < due) {
            return Next::Nothing;
        }
        // It may be slow and answer yet; the next one has twice the time.
        charge.patience = charge.patience.saturating_mul(2);
        charge.fail(charge.heard, now, patience)
    }

    /// Takes in that `keeper` has copies of `count` segments of `owner`'s original. Of `new` of them there
    /// was none before.
    pub fn kept(&mut self, now: Timestamp, keeper: ProcessId, owner: Rank, count: u32, new: u32) {
        let Some(charge) = self.charges.get_mut(&owner) else { return };
        charge.answered(now, keeper, count);
        charge.failing = None;
        charge.kept += new;
        if !charge.holders.contains(&keeper) {
            charge.holders.push(keeper);
        }
    }

    /// Takes in that `keeper` could not reach `owner`, who lives, for so many segments.
    pub fn not_reached(
        &mut self,
        now: Timestamp,
        keeper: ProcessId,
        owner: Rank,
        segments: u32,
        patience: &Patience,
    ) -> Next {
        let Some(charge) = self.charges.get_mut(&owner) else { return Next::Nothing };
        charge.answered(now, keeper, segments);
        if charge.keeper != Some(keeper) || charge.given_up {
            return Next::Nothing;
        }
        charge.fail(now, now, patience)
    }

    /// Takes in that `keeper` refuses to keep so many segments of `owner`, and why.
    pub fn refused(
        &mut self,
        now: Timestamp,
        keeper: ProcessId,
        owner: Rank,
        segments: u32,
        reason: String,
    ) -> Next {
        let Some(charge) = self.charges.get_mut(&owner) else { return Next::Nothing };
        charge.answered(now, keeper, segments);
        charge.reason = Some(reason);
        if !charge.refused.contains(&keeper.rank) {
            charge.refused.push(keeper.rank);
        }
        if charge.keeper != Some(keeper) || charge.given_up {
            return Next::Nothing;
        }
        charge.dismiss();
        if charge.refused.len() >= REFUSALS_MAX { Next::GiveUp } else { Next::Ask }
    }

    /// Ends the search for a keeper. Returns whether it went on.
    pub fn give_up(&mut self, owner: Rank) -> bool {
        self.without.remove(&owner);
        let charge = self.charges.get_mut(&owner);
        charge.is_some_and(|charge| {
            charge.due = None;
            !core::mem::replace(&mut charge.given_up, true)
        })
    }

    /// Looks after `owner`'s copy at `at`, if not before. Returns whether that is new.
    pub fn look_at(&mut self, at: Timestamp, owner: Rank) -> bool {
        let charge = self.charges.get_mut(&owner);
        let charge = charge.filter(|charge| charge.next_look().is_none_or(|due| at < due));
        charge.map(|charge| charge.due = Some(at)).is_some()
    }

    /// When the keeper of `owner`'s copy will have been silent for too long, if that is not watched yet.
    pub fn watch(&mut self, owner: Rank, patience: &Patience) -> Option<Timestamp> {
        let charge = self.charges.get_mut(&owner)?;
        let due = charge.answer_due(patience).filter(|_| charge.ordered > 0 && charge.next_look().is_none());
        charge.due = due.or(charge.due);
        due
    }

    /// Why the last process refused that was asked to keep `owner`'s copy.
    pub fn refusal(&self, owner: Rank) -> Option<&str> {
        self.charges.get(&owner)?.reason.as_deref()
    }

    /// Starts anew where `dead` has kept copies, or was to. What it has folded may have to be copied, too. May
    /// be called again when what it has left is gone.
    pub fn lose(&mut self, dead: ProcessId) {
        self.placement = None;
        for charge in self.charges.values_mut() {
            if charge.keeper == Some(dead) {
                charge.dismiss();
                charge.at = None;
            }
            // What is on its way is not ordered twice, unless more is gone.
            if charge.holders.contains(&dead) || charge.ordered == 0 {
                // It may have left copies, and lose them later with its host.
                charge.left = charge.segments;
            }
        }
    }

    /// Forgets who is placed where: the group has changed.
    pub fn place_anew(&mut self) {
        self.placement = None;
    }
}

impl Charge {
    /// When the keeper will have been silent for too long.
    fn answer_due(&self, patience: &Patience) -> Option<Timestamp> {
        let least = self.heard + patience.answer?;
        let due = self.heard + self.patience;
        Some(self.failing.map_or(due, |(since, _)| due.min((since + patience.reach).max(least))))
    }

    /// When it is looked after next. What was due before the keeper was heard last has passed, or was called
    /// off with a reduction that was taken up again.
    fn next_look(&self) -> Option<Timestamp> {
        self.due.filter(|due| *due >= self.heard)
    }

    /// The segments that are ordered next, the last ones first, unless they are kept: a portion, until
    /// `per_order` are under way.
    pub fn next_order(&mut self, per_order: u32, is_kept: impl Fn(u32) -> bool) -> Option<Range<u32>> {
        if self.ordered >= per_order || !self.is_wanted(&is_kept) {
            return None;
        }
        // One portion is read while another is written.
        let most = per_order.div_ceil(2).min(per_order - self.ordered);
        let end = self.left;
        let portion = (end.saturating_sub(most)..end).rev();
        let first = portion.take_while(|index| !is_kept(*index)).last()?;
        Some(first..end)
    }

    /// Whether segments may have to be ordered yet that are not kept.
    pub fn is_wanted(&mut self, is_kept: impl Fn(u32) -> bool) -> bool {
        while self.left > 0 && is_kept(self.left - 1) {
            self.left -= 1;
        }
        self.left > 0
    }

    /// Segments of which a copy was acknowledged. Some may be gone again.
    pub fn kept(&self) -> u32 {
        self.kept
    }

    /// Takes in of how many segments there is a copy.
    pub fn recount(&mut self, kept: u32) {
        self.kept = kept;
    }

    /// Notes that the keeper is asked for these segments.
    pub fn order(&mut self, now: Timestamp, segments: &Range<u32>) {
        if self.ordered == 0 {
            self.heard = now;
        }
        self.ordered += segments.len() as u32;
        self.left = segments.start;
    }

    fn answered(&mut self, now: Timestamp, keeper: ProcessId, segments: u32) {
        if self.keeper == Some(keeper) {
            self.ordered = self.ordered.saturating_sub(segments);
            self.heard = now;
        }
    }

    /// Has another one asked, unless nobody has reached the owner for long.
    fn fail(&mut self, since: Timestamp, now: Timestamp, patience: &Patience) -> Next {
        let (since, tries) = self.failing.map_or((since, 1), |(since, tries)| (since, tries + 1));
        self.failing = Some((since, tries));
        self.dismiss();
        let is_over = now.since(since) >= patience.reach && tries >= TRIES_MIN;
        if is_over { Next::GiveUp } else { Next::Ask }
    }

    /// Expects nothing more of the keeper, though what it answers yet counts.
    fn dismiss(&mut self) {
        self.keeper = None;
        self.ordered = 0;
        self.left = self.segments;
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{JobId, message::Peer};

    use super::*;

    const PATIENCE: Patience = Patience {
        call: Duration::from_millis(20),
        answer: Some(Duration::from_millis(100)),
        reach: Duration::from_millis(2200),
    };

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    /// So many ranks, `per_host` on each host.
    fn members(ranks: u32, per_host: u32) -> Membership {
        let mut members = Membership::new(JobId(1), ranks);
        for rank in (0..ranks).map(Rank) {
            members.join(Peer {
                process: ProcessId::first(rank),
                host: u64::from(rank.0 / per_host),
                pid: 0,
                region: None,
                bell: None,
                board: None,
                address: String::new(),
                domain: None,
                agent: None,
            });
        }
        members
    }

    fn keepers(owners: impl Iterator<Item = Rank>) -> Keepers {
        let mut keepers = Keepers::default();
        owners.for_each(|owner| keepers.add(at(0), owner, 4));
        keepers
    }

    #[test]
    fn an_owner_waits_for_its_placed_keeper_for_a_while_and_then_for_nobody() {
        let members = members(4, 1);
        let (group, early, late) = (Path::range(0, 4), Path::range(0, 1), Path::range(0, 2));
        let mut keepers = keepers([Rank(0)].into_iter());
        let mut find = |ms, arrived| {
            let candidates = Candidates { group: &group, arrived, members: &members };
            keepers.find(at(ms), Rank(0), &candidates, &PATIENCE)
        };
        assert_eq!(find(0, &early), Found::Later(Some(at(20))));
        assert_eq!(find(20, &early), Found::Later(None), "nobody else has called");
        assert_eq!(find(21, &late), Found::Keeper(ProcessId::first(1)));
    }

    #[test]
    fn however_many_are_late_no_other_keeps_more_than_one_copy() {
        let members = members(60, 4);
        let group = Path::range(0, 60);
        for step in 2..7 {
            let (late, arrived): (Vec<Rank>, Vec<Rank>) =
                (0..60).map(Rank).partition(|rank| rank.0 / 4 % step == 1 || rank.0 % 11 == step);
            let arrived: Path = arrived.into_iter().collect();
            let mut keepers = keepers(arrived.iter());
            let candidates = Candidates { group: &group, arrived: &arrived, members: &members };
            let mut loads = BTreeMap::new();
            for owner in arrived.iter() {
                let found = keepers.find(at(50), owner, &candidates, &PATIENCE);
                let Found::Keeper(keeper) = found else { panic!("{owner}: {found:?}") };
                assert!(candidates.are_apart(owner, keeper.rank) && !late.contains(&keeper.rank));
                *loads.entry(keeper).or_insert(0) += 1;
            }
            assert_eq!(loads.into_values().max(), Some(1), "{} are late", late.len());
        }
    }

    #[test]
    fn whoever_refuses_is_asked_no_more_and_a_few_refusals_end_the_search() {
        let members = members(6, 1);
        let group = Path::range(0, 6);
        let candidates = Candidates { group: &group, arrived: &group, members: &members };
        let mut keepers = keepers(group.iter());
        let mut asked = Vec::new();
        let mut next = Next::Ask;
        while next == Next::Ask {
            let found = keepers.find(at(1), Rank(0), &candidates, &PATIENCE);
            let Found::Keeper(keeper) = found else { panic!("{found:?}") };
            asked.push(keeper.rank.0);
            next = keepers.refused(at(1), keeper, Rank(0), 1, "full".to_owned());
        }
        assert_eq!((next, asked), (Next::GiveUp, vec![1, 2, 3]));
        assert!(keepers.give_up(Rank(0)) && !keepers.give_up(Rank(0)), "it is told once");
        assert_eq!(keepers.find(at(1), Rank(0), &candidates, &PATIENCE), Found::GivenUp);
    }

    #[test]
    fn an_owner_that_nobody_reaches_is_given_up_after_a_silence_that_would_have_shown_its_death() {
        let members = members(3, 1);
        let group = Path::range(0, 3);
        let candidates = Candidates { group: &group, arrived: &group, members: &members };
        let mut keepers = keepers(group.iter());
        let mut asked = Vec::new();
        let mut ms = 0;
        loop {
            let found = keepers.find(at(ms), Rank(0), &candidates, &PATIENCE);
            let Found::Keeper(keeper) = found else { panic!("{found:?}") };
            asked.push(keeper.rank.0);
            if keepers.not_reached(at(ms), keeper, Rank(0), 1, &PATIENCE) == Next::GiveUp {
                break;
            }
            ms += 20;
        }
        assert_eq!(ms, 2200);
        assert_eq!(asked[..5], [1, 2, 1, 2, 1]);
    }

    #[test]
    fn a_keeper_that_does_not_answer_is_not_waited_for_but_its_answer_counts() {
        let members = members(3, 1);
        let group = Path::range(0, 3);
        let candidates = Candidates { group: &group, arrived: &group, members: &members };
        let mut keepers = keepers(group.iter());
        let mut asked = Vec::new();
        let (mut next, mut now) = (Next::Ask, at(0));
        while next == Next::Ask {
            let found = keepers.find(now, Rank(0), &candidates, &PATIENCE);
            let Found::Keeper(keeper) = found else { panic!("{found:?}") };
            asked.push((keeper.rank.0, now.since(at(0)).as_millis()));
            keepers.get_mut(Rank(0)).expect("it has contributed").order(now, &(0..4));
            now = keepers.watch(Rank(0), &PATIENCE).expect("it is watched");
            next = keepers.look(now, Rank(0), &PATIENCE);
        }
        assert_eq!(asked, [(1, 0), (2, 100), (1, 300), (2, 700), (1, 1500)]);
        assert_eq!((next, now), (Next::GiveUp, at(2200)));
        keepers.kept(now, ProcessId::first(1), Rank(0), 4, 4);
        assert_eq!(keepers.get_mut(Rank(0)).map(|charge| charge.kept()), Some(4));
    }
}
