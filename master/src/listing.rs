//! Which segments wait for which workers, and how they are found.
//!
//! A segment is listed when it was offered and no worker has taken it. A worker that gets room then looks
//! only at segments that it may go on with: those whose turn is its own, and those in which its own partial
//! waits. So a look takes the same time however many segments wait for others.

use alloc::{collections::BTreeSet, vec::Vec};
use core::ops::Bound;

use everfold_protocol::{Rank, ReductionId, SegmentId, SegmentIndex, Timestamp};

use crate::{
    crowd::{Crowd, Pair, Pairs},
    queue::Queue,
};

/// The workers that can go on with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// The root alone, whose own partial waits there and may meet others: the result has to arrive at it.
    Root(Rank),
    /// The owners of partials that wait there.
    Owners,
    /// Any worker, which begins afresh: the owners are dead, or hold copies only.
    Anyone,
}

/// Segments that wait for a root are counted up to this number.
const BACKLOG_MAX: usize = 16;

/// Behind all segments of a reduction.
fn beyond(reduction: ReductionId) -> SegmentId {
    SegmentId { reduction, index: SegmentIndex(u32::MAX) }
}

/// Where a segment is listed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    /// Whose turn it is, and whether it is in the crowd.
    place: Option<(Turn, bool)>,
    /// Under which pairs it is listed in the crowd.
    pairs: Pairs,
    /// Under which owners of waiting partials.
    owners: BTreeSet<Rank>,
    /// Whether its root could be roused.
    with_root: Option<Rank>,
}

/// A segment to be listed.
pub(crate) struct Waiting<'a> {
    pub id: SegmentId,
    /// When its reduction was started.
    pub started: Timestamp,
    pub queue: &'a mut Queue,
    pub listing: &'a mut Listing,
}

/// All segments that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listings {
    /// Segments that wait for a worker with room; of equal turns the oldest reduction first.
    waiting: BTreeSet<(Turn, Timestamp, SegmentId)>,
    /// Segments of many reductions, by the workers that could go on with them.
    crowd: Crowd,
    /// Those whose turn is their owners', by owner; those of the crowd apart.
    owned: BTreeSet<(Rank, bool, Timestamp, SegmentId)>,
    /// Those that wait with all but their root's own partial, by root.
    with_root: BTreeSet<(Rank, Timestamp, SegmentId)>,
}

impl Listings {
    /// Lists a segment as it is now: under `pairs` in the crowd, if there are any; and under the `root` that
    /// could be roused.
    pub fn list(&mut self, waiting: Waiting, turn: Option<Turn>, pairs: Pairs, root: Option<Rank>) {
        let Waiting { id, started, queue, listing } = waiting;
        let place = turn.map(|turn| (turn, !pairs.is_empty()));
        if listing.place != place {
            self.strike(id, started, listing);
            listing.place = place;
            if let Some((turn, false)) = place {
                self.waiting.insert((turn, started, id));
            }
            queue.take_log();
            if let Some((Turn::Owners, _)) = place {
                let all: Vec<Rank> = queue.iter().map(|ready| ready.process.rank).collect();
                self.list_owners(id, started, queue, listing, all);
            }
        } else {
            let changed = queue.take_log();
            self.list_owners(id, started, queue, listing, changed);
        }
        if listing.pairs != pairs {
            self.crowd.strike(&listing.pairs, started, id);
            self.crowd.list(&pairs, started, id);
            listing.pairs = pairs;
        }
        if listing.with_root != root {
            listing.with_root.map(|root| self.with_root.remove(&(root, started, id)));
            self.with_root.extend(root.map(|root| (root, started, id)));
            listing.with_root = root;
        }
    }

    /// Lists a segment under those of `ranks` that own a partial there now.
    fn list_owners(
        &mut self,
        id: SegmentId,
        started: Timestamp,
        queue: &Queue,
        listing: &mut Listing,
        ranks: impl IntoIterator<Item = Rank>,
    ) {
        let Some((Turn::Owners, in_crowd)) = listing.place else { return };
        for rank in ranks {
            let entry = (rank, in_crowd, started, id);
            if !queue.has_some_of(rank) {
                listing.owners.remove(&rank);
                self.owned.remove(&entry);
            } else if listing.owners.insert(rank) {
                self.owned.insert(entry);
            }
        }
    }

    fn strike(&mut self, id: SegmentId, started: Timestamp, listing: &mut Listing) {
        let Some((turn, in_crowd)) = listing.place.take() else { return };
        if !in_crowd {
            self.waiting.remove(&(turn, started, id));
        }
        for rank in core::mem::take(&mut listing.owners) {
            self.owned.remove(&(rank, in_crowd, started, id));
        }
    }

    /// All that wait, but for the crowd.
    pub fn waiting(&self) -> impl Iterator<Item = &(Turn, Timestamp, SegmentId)> {
        self.waiting.iter()
    }

    /// All of the crowd.
    pub fn crowd(&self) -> impl Iterator<Item = &(Pair, Timestamp, SegmentId)> {
        self.crowd.iter()
    }

    /// What of the crowd waits for `reader` to read from processes that it `has_room` for: of each, in order,
    /// what of it is `able`.
    pub fn waiting_in_crowd<T>(
        &self,
        reader: Rank,
        has_room: impl Fn(Rank) -> bool,
        each_max: usize,
        able: impl Fn(SegmentId) -> Option<T>,
    ) -> Vec<(Timestamp, SegmentId, T)> {
        self.crowd.waiting_for(reader, has_room, each_max, able)
    }

    /// What waits for `turn`, the oldest reduction first.
    pub fn waiting_for(&self, turn: Turn) -> impl Iterator<Item = SegmentId> {
        let all = self.waiting.range((turn, Timestamp::ZERO, SegmentId::LEAST)..);
        all.take_while(move |(whose, ..)| *whose == turn).map(|(_, _, id)| *id)
    }

    /// How many segments wait for a root, up to a number that keeps its link busy for long. The crowd's do
    /// not count.
    pub fn backlog(&self, root: Rank) -> usize {
        self.waiting_for(Turn::Root(root)).take(BACKLOG_MAX).count()
    }

    /// For each reduction with segments that wait for `turn`, the oldest first: the answer of `able` for the
    /// first of its segments that has one.
    pub fn firsts<T>(
        &self,
        turn: Turn,
        able: impl Fn(SegmentId) -> Option<T>,
    ) -> impl Iterator<Item = (SegmentId, T)> {
        let mut from = Bound::Unbounded;
        core::iter::from_fn(move || {
            loop {
                let start = match from {
                    Bound::Unbounded => Bound::Included((turn, Timestamp::ZERO, SegmentId::LEAST)),
                    from => from,
                };
                let next = self.waiting.range((start, Bound::Unbounded)).next();
                let &(_, started, id) = next.filter(|(whose, ..)| *whose == turn)?;
                let found = able(id);
                let last = if found.is_some() { beyond(id.reduction) } else { id };
                from = Bound::Excluded((turn, started, last));
                if let Some(found) = found {
                    return Some((id, found));
                }
            }
        })
    }

    /// The same of segments in which a partial of `owner` waits; of the crowd, or of all others. Looks at
    /// `most` segments.
    pub fn firsts_of<T>(
        &self,
        owner: Rank,
        in_crowd: bool,
        most: usize,
        able: impl Fn(SegmentId) -> Option<T>,
    ) -> impl Iterator<Item = (SegmentId, T)> {
        let mut from = Bound::Included((owner, in_crowd, Timestamp::ZERO, SegmentId::LEAST));
        let mut left = most;
        core::iter::from_fn(move || {
            loop {
                left = left.checked_sub(1)?;
                let next = self.owned.range((from, Bound::Unbounded)).next();
                let whose = |(rank, crowd, ..): &&(Rank, bool, Timestamp, SegmentId)| {
                    (*rank, *crowd) == (owner, in_crowd)
                };
                let &(_, _, started, id) = next.filter(whose)?;
                let found = able(id);
                let last = if found.is_some() { beyond(id.reduction) } else { id };
                from = Bound::Excluded((owner, in_crowd, started, last));
                if let Some(found) = found {
                    return Some((id, found));
                }
            }
        })
    }

    /// Segments that wait with all but the own partial of `root`.
    pub fn with_root(&self, root: Rank) -> impl Iterator<Item = SegmentId> {
        let from = (root, Timestamp::ZERO, SegmentId::LEAST);
        self.with_root.range(from..).take_while(move |(whose, ..)| *whose == root).map(|(_, _, id)| *id)
    }

    /// Verifies that nothing is listed that does not wait. `look` tells of a segment whose turn it is, when
    /// its reduction was started, and where it says that it is listed.
    ///
    /// # Panics
    /// If something is.
    pub fn check<'a>(&self, look: impl Fn(&SegmentId) -> (Option<Turn>, Timestamp, &'a Listing)) {
        for (turn, started, id) in &self.waiting {
            let (whose, since, _) = look(id);
            assert_eq!((whose, since), (Some(*turn), *started));
        }
        for (pair, started, id) in self.crowd.iter() {
            let (_, since, listing) = look(id);
            assert!(listing.pairs.contains(pair) && since == *started, "{id:?} of {pair:?}");
        }
        for (owner, in_crowd, started, id) in &self.owned {
            let (_, since, listing) = look(id);
            let is_listed = listing.place == Some((Turn::Owners, *in_crowd))
                && listing.owners.contains(owner)
                && since == *started;
            assert!(is_listed, "{id:?} of {owner}");
        }
        for (root, _, id) in &self.with_root {
            assert_eq!(look(id).2.with_root, Some(*root), "{id:?}");
        }
    }
}
