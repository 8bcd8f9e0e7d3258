//! Partials that meet in the fixed order: each is a bracket, and those meet that together are a larger one
//! (I8).

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::ops::RangeInclusive;

use everfold_protocol::{
    Path, Rank,
    bracketing::{self, level},
};

use super::{Access, Log, Ready};

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

    /// Whether no other rank contributes to the node over it.
    fn is_bracket(&self) -> bool {
        level(self.first, self.last) < self.left().min(self.right())
    }

    /// The same together with the neighbour right beside it.
    fn with(self, other: Self) -> Self {
        let (left, right) = if self.first < other.first { (self, other) } else { (other, self) };
        Self { first: left.first, last: right.last, before: left.before, after: right.after }
    }
}

impl Brackets {
    pub(super) fn push(&mut self, ready: Arc<Ready>, agreed: &Path, group: &Path) {
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

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.partials.len()
    }

    /// Number of contributions in all of them.
    pub(super) fn contributions(&self) -> usize {
        self.contributions
    }

    /// Whether some of them may meet.
    pub(super) fn has_partners(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Those that wait, by their position.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Ready>> {
        self.partials.values().map(|bracket| &bracket.ready)
    }

    /// The same, taken out.
    pub(super) fn into_vec(self) -> Vec<Arc<Ready>> {
        self.partials.into_values().map(|bracket| bracket.ready).collect()
    }

    /// Whose have come or gone since this was asked last.
    pub(super) fn take_log(&mut self) -> Log {
        core::mem::take(&mut self.log)
    }

    /// Takes the first that `which` accepts.
    pub(super) fn remove_first(&mut self, which: impl Fn(&Ready) -> bool) -> Option<Arc<Ready>> {
        let at = *self.partials.iter().find(|(_, bracket)| which(&bracket.ready))?.0;
        self.remove(at)
    }

    /// Those that wait at `rank`.
    pub(super) fn of(&self, rank: Rank) -> impl Iterator<Item = &Arc<Ready>> {
        self.begin(rank).map(|first| &self.partials[&first].ready)
    }

    /// Where the partials at `rank` begin.
    fn begin(&self, rank: Rank) -> impl Iterator<Item = usize> {
        self.places.range((rank, 0)..=(rank, usize::MAX)).map(|(_, first)| *first)
    }

    fn find(&self, ready: &Arc<Ready>) -> Option<usize> {
        self.begin(ready.process.rank).find(|first| self.partials[first].ready == *ready)
    }

    /// Whether `ready` may meet others, in a task of `most` partials at most.
    pub(super) fn meets(&self, ready: &Arc<Ready>, most: usize) -> bool {
        let bracket = self.find(ready).map(|first| self.partials[&first].at);
        bracket.is_some_and(|at| self.sibling(at, most - 1, &|_: &Ready| true).is_some())
    }

    /// The same with those that `may` accepts.
    pub(super) fn may_meet(&self, ready: &Arc<Ready>, most: usize, may: impl Fn(&Ready) -> bool) -> bool {
        self.find(ready).is_some_and(|first| self.around(first, most, may).is_some())
    }

    /// Where the pair begins that a bracket is with its sibling, if that waits in one piece.
    fn pair(&self, at: Place) -> Option<usize> {
        let (sibling, _) = self.sibling(at, 1, &|_: &Ready| true)?;
        Some(at.first.min(sibling.first))
    }

    /// The sibling of a bracket, and in how many pieces it waits: if all of it does, in `most` pieces at most
    /// that `near` accepts.
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

    /// The largest bracket around the partial at `first` that waits, in two pieces at least and `most` at
    /// most.
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

    /// Those that may meet others, in tasks of `most` partials at most.
    pub(super) fn meeting(&self, most: usize) -> impl Iterator<Item = &Arc<Ready>> {
        let mut from = 0;
        let brackets = core::iter::from_fn(move || {
            let pair = *self.pairs.range(from..).next()?;
            let whole = self.around(pair, most, |_| true)?;
            from = whole.end() + 1;
            Some(whole)
        });
        brackets.flat_map(|whole| self.partials.range(whole)).map(|(_, bracket)| &bracket.ready)
    }

    pub(super) fn take(
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
    use alloc::string::String;

    use everfold_protocol::spec::Order;
    use proptest::prelude::*;

    use super::super::{Queue, tests::ready};
    use super::*;

    const FAR: Access = Access::Far { serves: 0, read_ns: 0 };

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
        /// Whatever the order of arrival, whoever is missing and however few may meet, the group folds to the
        /// tree.
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
