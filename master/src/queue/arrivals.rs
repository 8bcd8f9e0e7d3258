//! Partials that meet in order of arrival (DR-6).

use alloc::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    vec::Vec,
};

use everfold_protocol::Rank;
use smallvec::SmallVec;

use super::{Access, Log, Ready, is_slow};

/// Reads from one process at a time that keep no reader waiting.
const SERVES_WELL: u32 = 8;

/// The best partners are looked for among this many of the oldest: of thousands that wait, mostly none is
/// near.
const AMONG: usize = 128;

/// Partials in order of arrival.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// Numbered in this order. Some have been taken since.
    partials: VecDeque<(u64, Option<Arc<Ready>>)>,
    /// Number of those that wait.
    waiting: usize,
    /// Number of contributions in all of them.
    contributions: usize,
    /// The same by whose they are.
    places: BTreeSet<(Rank, u64)>,
    next: u64,
    log: Log,
}

impl Arrivals {
    pub(super) fn push(&mut self, ready: Arc<Ready>) {
        self.log.push(ready.process.rank);
        self.places.insert((ready.process.rank, self.next));
        self.contributions += ready.path.len();
        self.partials.push_back((self.next, Some(ready)));
        self.waiting += 1;
        self.next += 1;
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Number of contributions in all of them.
    pub(super) fn contributions(&self) -> usize {
        self.contributions
    }

    /// Whether some of them may meet: any two may.
    pub(super) fn has_partners(&self) -> bool {
        self.waiting > 1
    }

    /// Those that wait.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Ready>> {
        self.partials.iter().filter_map(|(_, ready)| ready.as_ref())
    }

    /// The same, taken out.
    pub(super) fn into_vec(self) -> Vec<Arc<Ready>> {
        self.partials.into_iter().filter_map(|(_, ready)| ready).collect()
    }

    /// Whose have come or gone since this was asked last.
    pub(super) fn take_log(&mut self) -> Log {
        core::mem::take(&mut self.log)
    }

    /// Those that wait, and their numbers.
    fn numbered(&self) -> impl DoubleEndedIterator<Item = (u64, &Arc<Ready>)> {
        self.partials.iter().filter_map(|(at, ready)| Some((*at, ready.as_ref()?)))
    }

    /// Those among which partners of `ready` are looked for.
    pub(super) fn others(&self, ready: &Arc<Ready>) -> impl Iterator<Item = &Ready> {
        self.iter().take(AMONG).map(|other| &**other).filter(|other| !other.is(ready))
    }

    /// Those that wait at `rank`.
    pub(super) fn of(&self, rank: Rank) -> impl Iterator<Item = &Arc<Ready>> {
        self.numbered_of(rank).map(|(_, ready)| ready)
    }

    fn numbered_of(&self, rank: Rank) -> impl Iterator<Item = (u64, &Arc<Ready>)> {
        let places = self.places.range((rank, 0)..=(rank, u64::MAX));
        places.filter_map(|(_, at)| Some((*at, self.partials[self.index(*at)?].1.as_ref()?)))
    }

    fn index(&self, at: u64) -> Option<usize> {
        self.partials.binary_search_by_key(&at, |(at, _)| *at).ok()
    }

    fn remove(&mut self, at: u64) -> Option<Arc<Ready>> {
        let index = self.index(at)?;
        let ready = self.partials[index].1.take()?;
        self.log.push(ready.process.rank);
        self.places.remove(&(ready.process.rank, at));
        self.contributions -= ready.path.len();
        self.waiting -= 1;
        // Gaps are closed once they are the larger part.
        if self.partials.len() > 2 * self.waiting {
            self.partials.retain(|(_, ready)| ready.is_some());
        }
        Some(ready)
    }

    /// Takes the first that `which` accepts.
    pub(super) fn remove_first(&mut self, which: impl Fn(&Ready) -> bool) -> Option<Arc<Ready>> {
        let (at, _) = self.numbered().find(|(_, ready)| which(ready))?;
        self.remove(at)
    }

    /// Whether something that was folded already waits for a partial that is read much slower.
    pub(super) fn waits_for_slow(
        &self,
        can_read: impl Fn(&Ready) -> bool,
        read_ns: impl Fn(&Ready) -> u64,
    ) -> bool {
        let partials = || self.iter().map(|ready| &**ready);
        let folded = partials().filter(|ready| ready.path.len() > 1 && can_read(ready));
        let quickest = folded.map(&read_ns).min();
        quickest.is_some_and(|quickest| partials().any(|ready| is_slow(read_ns(ready), quickest)))
    }

    pub(super) fn take(
        &mut self,
        ready: Option<&Arc<Ready>>,
        most: usize,
        access: impl Fn(&Ready) -> Access,
    ) -> Option<Vec<Arc<Ready>>> {
        let first = match ready {
            Some(ready) => self.numbered_of(ready.process.rank).find(|(_, other)| *other == ready)?.0,
            None => self.numbered().find(|(_, ready)| access(ready) != Access::Never)?.0,
        };
        let others = self.numbered().take(AMONG.max(most)).filter(|(at, _)| *at != first);
        let others: SmallVec<[(u64, Access); AMONG]> =
            others.map(|(at, ready)| (at, access(ready))).collect();
        let quickest_ns = others.iter().filter_map(|(_, access)| access.read_ns()).min().unwrap_or(0);
        let is_slow = |access: &Access| access.read_ns().is_some_and(|ns| is_slow(ns, quickest_ns));
        let able = others.iter().map(|(_, access)| *access).filter(|access| *access < Access::Later);
        let best = able.filter(|access| !is_slow(access)).min()?;
        let is_good = |access: Access| match (access, best) {
            (Access::Far { serves, .. }, Access::Far { serves: least, .. }) => {
                serves <= SERVES_WELL + 4 * least && !is_slow(&access)
            }
            (access, best) => access == best,
        };
        let partners = others.into_iter().filter(|(_, access)| is_good(*access)).map(|(at, _)| at);
        let mut taken = vec![self.remove(first)?];
        taken.extend(partners.take(most - 1).filter_map(|at| self.remove(at)));
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{Path, spec::Order};

    use super::super::{Queue, tests::ready};
    use super::*;

    #[test]
    fn in_order_of_arrival() {
        let group = Path::range(0, 5);
        let mut queue = Queue::new(Order::Arrival);
        for rank in [3, 0, 4] {
            queue.push(ready(Path::single(Rank(rank))), &group, &group);
        }
        let ranks = |taken: &[Arc<Ready>]| taken.iter().map(|ready| ready.process.rank.0).collect::<Vec<_>>();
        let own = ready(Path::single(Rank(4)));
        let far = |serves| Access::Far { serves, read_ns: 0 };
        let near = |other: &Ready| if other.process.rank == 0 { Access::Near } else { far(0) };
        assert_eq!(ranks(&queue.clone().take(Some(&own), 3, near).unwrap()), [4, 0], "only those nearby");
        let taken = |most, serves| {
            let access = |other: &Ready| far(if other.process.rank == 3 { serves } else { 2 });
            ranks(&queue.clone().take(Some(&own), most, access).unwrap())
        };
        assert_eq!(taken(2, 2), [4, 3]);
        assert_eq!(taken(3, 16), [4, 3, 0]);
        assert_eq!(taken(3, 17), [4, 0], "who is much busier than others is left for later");
        assert!(queue.clone().take(Some(&own), 3, |_| Access::Later).is_none());
        assert_eq!(queue.access(&own, near), Some(Access::Near));
        assert_eq!(queue.access(&own, |_| Access::Later), None);
        assert_eq!(ranks(&queue.take(None, 2, |_| far(100)).unwrap()), [3, 0]);
        assert!(queue.take(None, 2, near).is_none(), "one alone has no partner");
        assert_eq!(queue.of(Rank(4)).count(), 1);
        assert_eq!(queue.of(Rank(3)).count(), 0);
    }

    #[test]
    fn who_is_slow_keeps_nobody_else_waiting() {
        let group = Path::range(0, 5);
        let mut queue = Queue::new(Order::Arrival);
        for rank in [2, 3, 4] {
            queue.push(ready(Path::single(Rank(rank))), &group, &group);
        }
        let read_ns = |ready: &Ready| if ready.process.rank == 3 { 100_000_000 } else { 10_000_000 };
        let access = |other: &Ready| {
            let far = Access::Far { serves: 0, read_ns: read_ns(other) };
            if other.process.rank == 2 { Access::Later } else { far }
        };
        let taken = |own| {
            let taken = queue.clone().take(Some(&ready(Path::single(Rank(own)))), 5, access);
            taken.unwrap().iter().map(|ready| ready.process.rank.0).collect::<Vec<_>>()
        };
        assert_eq!(taken(2), [2, 4]);
        assert_eq!(taken(4), [4, 3], "unless nothing else can be read now");
        let waits = |queue: &Queue, can_read| queue.waits_for_slow(|_| can_read, read_ns);
        assert!(!waits(&queue, true), "nothing has been folded");
        queue.push(ready(Path::range(0, 2)), &group, &group);
        assert!(waits(&queue, true) && !waits(&queue, false));
        assert!(!queue.waits_for_slow(|_| true, |_| 10_000_000), "nobody is slow");
    }
}
