//! Partials of one segment that wait for a partner.
//!
//! Contributions meet in order of arrival (DR-6), or in the fixed order: then partials are brackets, and those meet that
//! together are a larger one (I8).

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    vec::Vec,
};
use core::ops::RangeInclusive;

use everfold_protocol::{
    Path, ProcessId, Rank,
    bracketing::{self, level},
    message::Data,
    spec::Order,
};
use smallvec::SmallVec;

/// Reads from one process at a time that keep nobody waiting.
const SERVES_WELL: u32 = 8;

/// How many times longer reads from somebody slow take than those from others.
const SLOW_FACTOR: u64 = 4;

/// Whether a process from which reads take so long is slow beside the one with the quickest.
pub fn is_slow(read_ns: u64, quickest_ns: u64) -> bool {
    read_ns > SLOW_FACTOR * quickest_ns
}

/// The best partners are looked for among so many of the oldest: of thousands that wait, mostly none is near.
const AMONG: usize = 128;

/// "A partial with this path is readable here" (DR §2 def. 4).
///
/// An original waits in all segments of its body: they share one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whose window.
    pub process: ProcessId,
    /// What is folded into it.
    pub path: Path,
    /// Where it is readable.
    pub data: Data,
}

impl Ready {
    /// Whether it can be read although its process may have died: what came inlined is in the master's hands.
    pub fn is_inline(&self) -> bool {
        matches!(self.data, Data::Inline(_))
    }

    /// Whether it is still there when the memory of `gone` is not.
    pub(crate) fn outlasts(&self, gone: &Path) -> bool {
        self.is_inline() || !gone.contains(self.process.rank)
    }
}

/// How well a partial can be read by whoever is to fold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// From the memory of its own host.
    Near,
    /// From another host, whose process serves so many reads already: many, where it or its link is slow.
    Far {
        /// How many.
        serves: u32,
        /// How long a read from it takes lately, in nanoseconds.
        read_ns: u64,
    },
    /// When what is read from that process is here.
    Later,
    /// Not as far as is known.
    Never,
}

impl Access {
    fn read_ns(&self) -> Option<u64> {
        match self {
            Self::Far { read_ns, .. } => Some(*read_ns),
            Self::Near | Self::Later | Self::Never => None,
        }
    }
}

/// The waiting partials of one segment.
#[derive(Clone, Debug)]
pub enum Queue {
    /// Any may meet; first come, first served.
    Arrival(Arrivals),
    /// Those meet that together are a bracket.
    Fixed(Brackets),
}

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

/// Partials by their position in the group that was agreed on. Each is a bracket.
#[derive(Clone, Debug, Default)]
pub struct Brackets {
    /// By the position of their first contribution.
    partials: BTreeMap<usize, Bracket>,
    /// Whose they are.
    places: BTreeSet<(Rank, usize)>,
    /// Those whose right sibling waits, in one piece. As long as a larger bracket waits, some such pair does.
    pairs: BTreeSet<usize>,
    /// Number of contributions in all of them.
    contributions: usize,
    log: Log,
}

/// Whose partials have come or gone since somebody has asked.
type Log = SmallVec<[Rank; 2]>;

#[derive(Clone, Debug)]
struct Bracket {
    ready: Arc<Ready>,
    at: Place,
}

/// Where a bracket lies among the contributions that take part, by their positions.
#[derive(Clone, Copy, Debug)]
struct Place {
    first: usize,
    last: usize,
    /// The next contribution on the left.
    before: Option<usize>,
    /// The next contribution on the right.
    after: Option<usize>,
}

impl Queue {
    /// An empty queue.
    pub fn new(order: Order) -> Self {
        match order {
            Order::Arrival => Self::Arrival(Arrivals::default()),
            Order::Fixed => Self::Fixed(Brackets::default()),
        }
    }

    /// Adds a partial. Positions are those in `agreed`; who takes part is in `group`, the same for all that wait.
    ///
    /// # Panics
    /// If it is no bracket although the order is fixed.
    pub fn push(&mut self, ready: Arc<Ready>, agreed: &Path, group: &Path) {
        match self {
            Self::Arrival(queue) => queue.push(ready),
            Self::Fixed(queue) => queue.push(ready, agreed, group),
        }
    }

    /// Number of waiting partials.
    pub fn len(&self) -> usize {
        match self {
            Self::Arrival(queue) => queue.waiting,
            Self::Fixed(queue) => queue.partials.len(),
        }
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of contributions in all waiting partials.
    pub fn contributions(&self) -> usize {
        match self {
            Self::Arrival(queue) => queue.contributions,
            Self::Fixed(queue) => queue.contributions,
        }
    }

    /// Whether some of them may meet.
    pub fn has_partners(&self) -> bool {
        match self {
            Self::Arrival(queue) => queue.waiting > 1,
            Self::Fixed(queue) => !queue.pairs.is_empty(),
        }
    }

    /// Whether `ready`, which waits here, may meet others, in a task of `most` partials at most.
    pub fn meets(&self, ready: &Arc<Ready>, most: usize) -> bool {
        match self {
            Self::Arrival(queue) => queue.waiting > 1,
            Self::Fixed(queue) => queue.meets(ready, most),
        }
    }

    /// The partials that may meet others, in tasks of `most` partials at most; the latest first where any may meet.
    pub fn meeting(&self, most: usize) -> Box<dyn Iterator<Item = &Arc<Ready>> + '_> {
        match self {
            Self::Arrival(queue) if queue.waiting > 1 => Box::new(queue.iter().rev().map(|(_, ready)| ready)),
            Self::Arrival(_) => Box::new(core::iter::empty()),
            Self::Fixed(queue) => Box::new(queue.meeting(most)),
        }
    }

    /// All waiting partials, in order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &Arc<Ready>> + '_> {
        match self {
            Self::Arrival(queue) => Box::new(queue.iter().map(|(_, ready)| ready)),
            Self::Fixed(queue) => Box::new(queue.partials.values().map(|bracket| &bracket.ready)),
        }
    }

    /// The waiting partials at `rank`.
    pub fn of(&self, rank: Rank) -> Box<dyn Iterator<Item = &Arc<Ready>> + '_> {
        match self {
            Self::Arrival(queue) => Box::new(queue.of(rank).map(|(_, ready)| ready)),
            Self::Fixed(queue) => Box::new(queue.of(rank).map(|at| &queue.partials[&at].ready)),
        }
    }

    /// Whose partials have come or gone since this was asked last.
    pub(crate) fn take_log(&mut self) -> Log {
        match self {
            Self::Arrival(queue) => core::mem::take(&mut queue.log),
            Self::Fixed(queue) => core::mem::take(&mut queue.log),
        }
    }

    /// Whether partials of `rank` wait.
    pub(crate) fn has_some_of(&self, rank: Rank) -> bool {
        match self {
            Self::Arrival(queue) => queue.of(rank).next().is_some(),
            Self::Fixed(queue) => queue.of(rank).next().is_some(),
        }
    }

    /// All waiting partials, in order.
    pub fn into_vec(self) -> Vec<Arc<Ready>> {
        match self {
            Self::Arrival(queue) => queue.partials.into_iter().filter_map(|(_, ready)| ready).collect(),
            Self::Fixed(queue) => queue.partials.into_values().map(|bracket| bracket.ready).collect(),
        }
    }

    /// Takes `ready`, or whatever comes first, with partners: between two and `most` partials in the order of their
    /// operands, none of those that can never be read. Where some are near, no others are taken. Where any may meet, those are left for later whose processes are
    /// much busier than others', or to be read later; there may be no partners then.
    pub fn take(
        &mut self,
        ready: Option<&Arc<Ready>>,
        most: usize,
        access: impl Fn(&Ready) -> Access,
    ) -> Option<Vec<Arc<Ready>>> {
        match self {
            Self::Arrival(queue) => queue.take(ready, most, access),
            Self::Fixed(queue) => queue.take(ready, most, access),
        }
    }

    /// How well the best partner of `ready` can be read; nothing if all are to be read later.
    pub fn access(&self, ready: &Arc<Ready>, access: impl Fn(&Ready) -> Access) -> Option<Access> {
        match self {
            Self::Arrival(queue) => queue.others(ready).map(access).min().filter(|it| *it < Access::Later),
            Self::Fixed(_) => Some(Access::Near),
        }
    }

    /// Whether some partner of `ready` can be read now: what [`access`](Self::access) tells, but mostly one look is enough.
    pub fn has_access(&self, ready: &Arc<Ready>, access: impl Fn(&Ready) -> Access) -> bool {
        match self {
            Self::Arrival(queue) => queue.others(ready).any(|other| access(other) < Access::Later),
            Self::Fixed(_) => true,
        }
    }

    /// Whether `ready`, which waits here, may meet something that `may` accepts, in a task of `most` partials at most.
    pub fn may_meet(&self, ready: &Arc<Ready>, most: usize, may: impl Fn(&Ready) -> bool) -> bool {
        match self {
            Self::Arrival(queue) => queue.iter().any(|(_, other)| other != ready && may(other)),
            Self::Fixed(queue) => {
                let at = queue.find(ready);
                at.is_some_and(|first| queue.around(first, most, may).is_some())
            }
        }
    }

    /// Whether something that was folded already, and that can be read, waits for a partial that is read much slower, by what
    /// `read_ns` tells of reads from their owners.
    pub fn waits_for_slow(&self, can_read: impl Fn(&Ready) -> bool, read_ns: impl Fn(Rank) -> u64) -> bool {
        let Self::Arrival(queue) = self else { return false };
        let read_ns = |ready: &Ready| read_ns(ready.process.rank);
        let partials = || queue.iter().map(|(_, ready)| &**ready);
        let folded = partials().filter(|ready| ready.path.len() > 1 && can_read(ready));
        folded
            .map(read_ns)
            .min()
            .is_some_and(|quickest| partials().any(|ready| is_slow(read_ns(ready), quickest)))
    }

    /// Takes the first partial that `which` accepts. Looks at every partial.
    pub fn remove(&mut self, which: impl Fn(&Ready) -> bool) -> Option<Arc<Ready>> {
        match self {
            Self::Arrival(queue) => {
                let (at, _) = queue.iter().find(|(_, ready)| which(ready))?;
                queue.remove(at)
            }
            Self::Fixed(queue) => {
                let at = *queue.partials.iter().find(|(_, bracket)| which(&bracket.ready))?.0;
                queue.remove(at)
            }
        }
    }
}

impl Arrivals {
    fn push(&mut self, ready: Arc<Ready>) {
        self.log.push(ready.process.rank);
        self.places.insert((ready.process.rank, self.next));
        self.contributions += ready.path.len();
        self.partials.push_back((self.next, Some(ready)));
        self.waiting += 1;
        self.next += 1;
    }

    /// Those that wait, and their numbers.
    fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Arc<Ready>)> {
        self.partials.iter().filter_map(|(at, ready)| Some((*at, ready.as_ref()?)))
    }

    /// Those among which partners of `ready` are looked for.
    fn others(&self, ready: &Arc<Ready>) -> impl Iterator<Item = &Ready> {
        let is_it = |other: &Ready| other.process == ready.process && other.path == ready.path;
        self.iter().take(AMONG).map(|(_, other)| &**other).filter(move |other| !is_it(other))
    }

    /// Those that wait at `rank`.
    fn of(&self, rank: Rank) -> impl Iterator<Item = (u64, &Arc<Ready>)> {
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

    fn take(
        &mut self,
        ready: Option<&Arc<Ready>>,
        most: usize,
        access: impl Fn(&Ready) -> Access,
    ) -> Option<Vec<Arc<Ready>>> {
        let first = match ready {
            Some(ready) => self.of(ready.process.rank).find(|(_, other)| *other == ready)?.0,
            None => self.iter().find(|(_, ready)| access(ready) != Access::Never)?.0,
        };
        let others = self.iter().take(AMONG.max(most)).filter(|(at, _)| *at != first);
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

impl Place {
    fn of(path: &Path, agreed: &Path, group: &Path) -> Option<Self> {
        let bracketing::Span { first, last } = bracketing::Span::of(path, agreed)?;
        let position = |rank| agreed.position(rank);
        let before = path.first().and_then(|rank| group.before(rank)).and_then(position);
        let after = path.last().and_then(|rank| group.after(rank)).and_then(position);
        Some(Self { first, last, before, after })
    }

    /// Level of the node that it shares with the next contribution on the left.
    fn left(&self) -> u32 {
        self.before.map_or(u32::MAX, |before| level(before, self.first))
    }

    /// Level of the node that it shares with the next contribution on the right.
    fn right(&self) -> u32 {
        self.after.map_or(u32::MAX, |after| level(self.last, after))
    }

    /// Whether nobody else contributes to the node over it.
    fn is_bracket(&self) -> bool {
        level(self.first, self.last) < self.left().min(self.right())
    }

    /// The same together with what lies right beside it.
    fn with(self, other: Self) -> Self {
        let (left, right) = if self.first < other.first { (self, other) } else { (other, self) };
        Self { first: left.first, last: right.last, before: left.before, after: right.after }
    }
}

impl Brackets {
    fn push(&mut self, ready: Arc<Ready>, agreed: &Path, group: &Path) {
        let at = Place::of(&ready.path, agreed, group).expect("a path is a non-empty part of its group");
        assert!(at.is_bracket() && is_contiguous(&ready.path, group), "I8: {} is no bracket", ready.path);
        self.pairs.extend(self.pair(at));
        self.contributions += ready.path.len();
        self.log.push(ready.process.rank);
        self.places.insert((ready.process.rank, at.first));
        self.partials.insert(at.first, Bracket { ready, at });
    }

    fn remove(&mut self, first: usize) -> Option<Arc<Ready>> {
        let Bracket { ready, at } = self.partials.remove(&first)?;
        self.pair(at).map(|pair| self.pairs.remove(&pair));
        self.contributions -= ready.path.len();
        self.log.push(ready.process.rank);
        self.places.remove(&(ready.process.rank, first));
        Some(ready)
    }

    /// Where the partials at `rank` begin.
    fn of(&self, rank: Rank) -> impl Iterator<Item = usize> {
        self.places.range((rank, 0)..=(rank, usize::MAX)).map(|(_, first)| *first)
    }

    fn find(&self, ready: &Arc<Ready>) -> Option<usize> {
        self.of(ready.process.rank).find(|first| self.partials[first].ready == *ready)
    }

    fn meets(&self, ready: &Arc<Ready>, most: usize) -> bool {
        let bracket = self.find(ready).map(|first| self.partials[&first].at);
        bracket.is_some_and(|at| self.sibling(at, most - 1, &|_: &Ready| true).is_some())
    }

    /// Where the pair begins that a bracket is with its sibling, if that waits in one piece.
    fn pair(&self, at: Place) -> Option<usize> {
        let (sibling, _) = self.sibling(at, 1, &|_: &Ready| true)?;
        Some(at.first.min(sibling.first))
    }

    /// The sibling of a bracket, and in how many pieces it waits: if all of it does, in `most` pieces at most that `near`
    /// accepts.
    fn sibling(&self, at: Place, most: usize, near: &impl Fn(&Ready) -> bool) -> Option<(Place, usize)> {
        let joint = at.left().min(at.right());
        let is_right = at.right() < at.left();
        let mut edge = at;
        let mut sibling: Option<Place> = None;
        for pieces in 1..=most {
            let next = if is_right { self.partials.get(&edge.after?) } else { self.ending_at(edge.before?) };
            let piece = next.filter(|piece| near(&piece.ready))?.at;
            let whole = sibling.map_or(piece, |sibling| sibling.with(piece));
            let beyond = if is_right { piece.right() } else { piece.left() };
            if beyond > joint {
                return Some((whole, pieces));
            }
            (edge, sibling) = (piece, Some(whole));
        }
        None
    }

    fn ending_at(&self, last: usize) -> Option<&Bracket> {
        let (_, bracket) = self.partials.range(..=last).next_back()?;
        (bracket.at.last == last).then_some(bracket)
    }

    /// The largest bracket around the partial at `first` that waits, in two pieces at least and `most` at most.
    fn around(
        &self,
        first: usize,
        most: usize,
        near: impl Fn(&Ready) -> bool,
    ) -> Option<RangeInclusive<usize>> {
        let mut whole = self.partials.get(&first)?.at;
        let mut pieces = 1;
        while let Some((sibling, more)) = self.sibling(whole, most - pieces, &near) {
            whole = whole.with(sibling);
            pieces += more;
        }
        (pieces > 1).then_some(whole.first..=whole.last)
    }

    fn meeting(&self, most: usize) -> impl Iterator<Item = &Arc<Ready>> {
        let mut from = 0;
        let brackets = core::iter::from_fn(move || {
            let pair = *self.pairs.range(from..).next()?;
            let whole = self.around(pair, most, |_| true)?;
            from = whole.end() + 1;
            Some(whole)
        });
        brackets.flat_map(|whole| self.partials.range(whole)).map(|(_, bracket)| &bracket.ready)
    }

    fn take(
        &mut self,
        ready: Option<&Arc<Ready>>,
        most: usize,
        access: impl Fn(&Ready) -> Access,
    ) -> Option<Vec<Arc<Ready>>> {
        let may = |ready: &Ready| access(ready) != Access::Never;
        let meets =
            |first: &usize| may(&self.partials[first].ready) && self.around(*first, most, may).is_some();
        let first = match ready {
            Some(ready) => self.find(ready)?,
            None => self.pairs.iter().copied().find(meets)?,
        };
        let near = |ready: &Ready| access(ready) == Access::Near;
        let whole = self.around(first, most, near).or_else(|| self.around(first, most, may))?;
        let pieces: Vec<usize> = self.partials.range(whole).map(|(first, _)| *first).collect();
        Some(pieces.into_iter().filter_map(|first| self.remove(first)).collect())
    }
}

/// Whether `path` holds all of `group` from its first rank to its last.
fn is_contiguous(path: &Path, group: &Path) -> bool {
    let ends = path
        .first()
        .zip(path.last())
        .and_then(|(first, last)| Some((group.position(first)?, group.position(last)?)));
    ends.is_some_and(|(first, last)| last - first + 1 == path.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FAR: Access = Access::Far { serves: 0, read_ns: 0 };

    fn ready(path: Path) -> Arc<Ready> {
        Arc::new(Ready { process: ProcessId::first(path.first().unwrap()), path, data: Data::Private })
    }

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
        let read_ns = |rank: Rank| if rank.0 == 3 { 100_000_000 } else { 10_000_000 };
        let access = |other: &Ready| {
            let rank = other.process.rank;
            if rank.0 == 2 { Access::Later } else { Access::Far { serves: 0, read_ns: read_ns(rank) } }
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

    fn combine(left: String, right: String) -> String {
        format!("({left} {right})")
    }

    /// What the node over the positions from `start` on, `size` of them, is to be.
    fn node(start: usize, size: usize, ranks: &[Rank], group: &Path) -> Option<String> {
        if size == 1 {
            let rank = ranks.get(start).filter(|rank| group.contains(**rank));
            return rank.map(Rank::to_string);
        }
        let half = |start| node(start, size / 2, ranks, group);
        match (half(start), half(start + size / 2)) {
            (Some(left), Some(right)) => Some(combine(left, right)),
            (left, right) => left.or(right),
        }
    }

    proptest! {
        /// Whatever the order of arrival, whoever is missing and however few may meet, the group folds to the tree.
        #[test]
        fn brackets_fold_to_the_tree(
            order in Just((0..13usize).collect::<Vec<_>>()).prop_shuffle(),
            gaps in prop::collection::vec(1u32..4, 13),
            missing in prop::collection::btree_set(0..13usize, 0..6),
            near in prop::collection::btree_set(0..40u32, 0..40),
            most in 2usize..20,
            named: bool,
        ) {
            let ranks: Vec<Rank> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(Rank(*at)) }).collect();
            let agreed: Path = ranks.iter().copied().collect();
            let present = |at: &usize| !missing.contains(at);
            let group: Path = (0..13).filter(present).map(|at| ranks[at]).collect();
            let mut queue = Queue::new(Order::Fixed);
            let mut texts: BTreeMap<Path, String> = BTreeMap::new();
            for at in order.into_iter().filter(present) {
                let path = Path::single(ranks[at]);
                texts.insert(path.clone(), ranks[at].to_string());
                queue.push(ready(path), &agreed, &group);
                while queue.has_partners() {
                    let meeting: Vec<Arc<Ready>> = queue.meeting(most).cloned().collect();
                    for ready in queue.iter() {
                        prop_assert_eq!(meeting.contains(ready), queue.meets(ready, most));
                    }
                    let chosen = meeting.last().filter(|_| named);
                    prop_assert!(chosen.is_some() || !named);
                    let is_near = |ready: &Ready| near.contains(&ready.process.rank.0);
                    let access = |ready: &Ready| if is_near(ready) { Access::Near } else { FAR };
                    let waiting = queue.len();
                    let partials = queue.take(chosen, most, access).unwrap();
                    prop_assert_eq!(waiting, queue.len() + partials.len());
                    prop_assert!((2..=most).contains(&partials.len()));
                    prop_assert!(chosen.is_none_or(|chosen| partials.contains(chosen)));
                    let path: Path = partials.iter().flat_map(|partial| partial.path.iter().collect::<Vec<_>>()).collect();
                    let operands = partials.iter().map(|partial| {
                        let span = bracketing::Span::of(&partial.path, &agreed).unwrap();
                        (span, texts[&partial.path].clone())
                    });
                    let text = bracketing::fold(operands, combine).unwrap();
                    texts.insert(path.clone(), text);
                    queue.push(ready(path), &agreed, &group);
                }
                let waiting: usize = queue.iter().map(|ready| ready.path.len()).sum();
                prop_assert_eq!(queue.contributions(), waiting);
            }
            prop_assert_eq!(queue.into_vec(), vec![ready(group.clone())]);
            prop_assert_eq!(texts.get(&group).cloned(), node(0, 16, &ranks, &group));
        }
    }

    #[test]
    fn the_largest_bracket_that_waits_is_taken() {
        let group = Path::range(0, 8);
        let mut queue = Queue::new(Order::Fixed);
        for rank in [0, 2, 3, 4, 5, 6, 7].map(Rank) {
            queue.push(ready(Path::single(rank)), &group, &group);
        }
        let ranks = |taken: Option<Vec<Arc<Ready>>>| -> Vec<u32> {
            taken.into_iter().flatten().map(|ready| ready.process.rank.0).collect()
        };
        let take = |rank, most, near_from| {
            let access = |other: &Ready| match other.process.rank.0 >= near_from {
                true => Access::Near,
                false => FAR,
            };
            ranks(queue.clone().take(Some(&ready(Path::single(Rank(rank)))), most, access))
        };
        assert_eq!(take(6, 16, 8), [4, 5, 6, 7]);
        assert_eq!(take(6, 16, 6), [6, 7], "those nearby");
        assert_eq!(take(6, 3, 0), [6, 7], "no more than may meet");
        assert_eq!(take(3, 16, 0), [2, 3], "rank 1 has not come");
        assert_eq!(take(0, 16, 0), [0; 0]);
    }

    #[test]
    #[should_panic(expected = "I8")]
    fn what_is_no_bracket_is_refused() {
        let group = Path::range(0, 4);
        Queue::new(Order::Fixed).push(ready(Path::range(1, 3)), &group, &group);
    }
}
