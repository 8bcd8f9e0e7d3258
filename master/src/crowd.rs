//! Which segments wait for whom while many reductions are open.
//!
//! Usually a worker with room looks through all waiting segments, the oldest first. Of thousands of
//! reductions most are not for it, or lie with a process from which it reads as much as it may, and each look
//! would take longer the more reductions there are. So from [`Policy::crowd_from`](crate::Policy::crowd_from)
//! open reductions on, segments that no worker can go on with at once are listed by the worker that could,
//! and the owner from which it would read. A worker then looks only at the first few of each list that it has
//! room for.

use alloc::{collections::BTreeSet, vec::Vec};

use everfold_protocol::{Rank, SegmentId, Timestamp};
use smallvec::SmallVec;

/// The worker that could go on with a segment, and the owner from which it would read: itself, if it can read
/// the partials at any time.
pub(crate) type Pair = (Rank, Rank);

/// The pairs of a segment, in order.
pub(crate) type Pairs = SmallVec<[Pair; 2]>;

/// Most executors of a segment that are listed, and most processes that each would read from. A worker is
/// busy when it is listed, and so will ask for work later.
pub(crate) const LISTED_MAX: usize = 6;

/// Segments that wait, by pair; those of the oldest reductions first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd(BTreeSet<(Pair, Timestamp, SegmentId)>);

impl Crowd {
    /// Lists a segment of a reduction that was `started` then under `pairs`.
    pub(crate) fn list(&mut self, pairs: &[Pair], started: Timestamp, id: SegmentId) {
        self.0.extend(pairs.iter().map(|pair| (*pair, started, id)));
    }

    /// Takes a segment off the lists of `pairs`.
    pub(crate) fn strike(&mut self, pairs: &[Pair], started: Timestamp, id: SegmentId) {
        for pair in pairs {
            self.0.remove(&(*pair, started, id));
        }
    }

    /// All that is listed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Pair, Timestamp, SegmentId)> {
        self.0.iter()
    }

    /// The pairs of `reader` for which something waits.
    fn pairs_of(&self, reader: Rank) -> impl Iterator<Item = Pair> {
        let mut next = Some(Rank(0));
        core::iter::from_fn(move || {
            let from = ((reader, next?), Timestamp::ZERO, SegmentId::LEAST);
            let (pair, ..) = self.0.range(from..).next().filter(|((whose, _), ..)| *whose == reader)?;
            next = pair.1.0.checked_add(1).map(Rank);
            Some(*pair)
        })
    }

    /// What waits for `reader` to read from processes that it `has_room` for: of each, in order, what of it
    /// is `able`.
    pub(crate) fn waiting_for<T>(
        &self,
        reader: Rank,
        has_room: impl Fn(Rank) -> bool,
        each_max: usize,
        able: impl Fn(SegmentId) -> Option<T>,
    ) -> Vec<(Timestamp, SegmentId, T)> {
        let mut waiting = Vec::new();
        for pair in self.pairs_of(reader).filter(|(_, owner)| *owner == reader || has_room(*owner)) {
            let list = self.0.range((pair, Timestamp::ZERO, SegmentId::LEAST)..);
            let list = list.take_while(|(whose, ..)| *whose == pair);
            let able = list.filter_map(|(_, started, id)| Some((*started, *id, able(*id)?)));
            waiting.extend(able.take(each_max));
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use everfold_protocol::{ReductionId, SegmentIndex};

    use super::*;

    #[test]
    fn a_worker_looks_at_few_of_those_that_it_has_room_for_however_many_wait() {
        let id = |number| SegmentId {
            reduction: ReductionId { name: number, sequence: 0 },
            index: SegmentIndex(0),
        };
        let at = |number| Timestamp::from_nanos(number);
        let mut crowd = Crowd::default();
        for number in 0..10_000 {
            let pairs = if number < 9_000 {
                [(Rank(0), Rank(1)), (Rank(1), Rank(0))]
            } else {
                [(Rank(0), Rank(2)), (Rank(2), Rank(0))]
            };
            crowd.list(&pairs, at(number), id(number));
        }
        let looks = Cell::new(0);
        let able = |_| {
            looks.set(looks.get() + 1);
            Some(())
        };
        let waiting = |crowd: &Crowd, reader, full| -> Vec<u64> {
            let waiting = crowd.waiting_for(Rank(reader), |owner| owner != Rank(full), 2, able);
            waiting.into_iter().map(|(_, id, ())| id.reduction.name).collect()
        };
        assert_eq!(waiting(&crowd, 0, 9), [0, 1, 9_000, 9_001]);
        assert_eq!(waiting(&crowd, 0, 1), [9_000, 9_001], "it reads enough from rank 1");
        assert!(waiting(&crowd, 3, 9).is_empty(), "nothing waits for it");
        assert_eq!(looks.get(), 6);
        crowd.strike(&[(Rank(0), Rank(2)), (Rank(2), Rank(0))], at(9_000), id(9_000));
        assert_eq!(waiting(&crowd, 2, 9), [9_001, 9_002]);
    }
}
