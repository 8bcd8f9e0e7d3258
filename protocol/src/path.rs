//! The set of ranks whose originals are folded into a partial (DR §2, def. 5).
//!
//! # Invariant
//! Intervals are half-open, not empty, sorted, and never touch: each set has exactly one form, so equality of
//! sets is equality of bytes. Decoding checks it, because a path decides what counts.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use smallvec::{SmallVec, smallvec};

use crate::id::Rank;

/// Half-open interval of ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Interval {
    start: u32,
    end: u32,
}

/// A set of ranks as sorted, disjoint, maximal intervals.
///
/// ```
/// use everfold_protocol::{Path, Rank};
///
/// let left = Path::range(0, 3);
/// let right = Path::single(Rank(3));
/// assert_eq!(left.union(&right), Ok(Path::range(0, 4)));
/// assert!(left.union(&left).is_err(), "nothing is counted twice");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Path {
    intervals: SmallVec<[Interval; 2]>,
}

/// Two paths share ranks; their union would count those twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("both paths contain rank {0}")]
pub struct Overlap(pub Rank);

impl Path {
    /// The empty set.
    pub fn empty() -> Self {
        Self::default()
    }

    /// One rank.
    pub fn single(rank: Rank) -> Self {
        Self::range(rank.0, rank.0 + 1)
    }

    /// The ranks `start..end`; empty if `end <= start`.
    pub fn range(start: u32, end: u32) -> Self {
        if start < end { Self { intervals: smallvec![Interval { start, end }] } } else { Self::default() }
    }

    /// Number of ranks.
    pub fn len(&self) -> usize {
        self.intervals.iter().map(|i| (i.end - i.start) as usize).sum()
    }

    /// Whether no rank is in it.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// The smallest rank.
    pub fn first(&self) -> Option<Rank> {
        self.intervals.first().map(|i| Rank(i.start))
    }

    /// The largest rank.
    pub fn last(&self) -> Option<Rank> {
        self.intervals.last().map(|i| Rank(i.end - 1))
    }

    /// Whether `rank` is in the set.
    pub fn contains(&self, rank: Rank) -> bool {
        self.intervals.get(self.behind(rank.0)).is_some_and(|interval| interval.start <= rank.0)
    }

    /// Number of intervals that end before `rank` or with the one before it.
    fn behind(&self, rank: u32) -> usize {
        self.intervals.partition_point(|interval| interval.end <= rank)
    }

    /// How many smaller ranks the set has, if it holds `rank`: the rank's index within the group.
    pub fn position(&self, rank: Rank) -> Option<usize> {
        let mut before = 0;
        for interval in &self.intervals {
            if rank.0 < interval.start {
                return None;
            }
            if rank.0 < interval.end {
                return Some(before + (rank.0 - interval.start) as usize);
            }
            before += (interval.end - interval.start) as usize;
        }
        None
    }

    /// The largest rank of the set below `rank`.
    pub fn before(&self, rank: Rank) -> Option<Rank> {
        let interval = self.intervals.iter().rev().find(|i| i.start < rank.0)?;
        Some(Rank(interval.end.min(rank.0) - 1))
    }

    /// The smallest rank of the set above `rank`.
    pub fn after(&self, rank: Rank) -> Option<Rank> {
        let interval = self.intervals.iter().find(|i| rank.0 < i.end - 1)?;
        Some(Rank(interval.start.max(rank.0 + 1)))
    }

    /// All ranks in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.intervals.iter().flat_map(|i| (i.start..i.end).map(Rank))
    }

    /// The union of two disjoint sets.
    ///
    /// # Errors
    /// [`Overlap`] names the smallest shared rank; a union is refused rather than silently deduplicated.
    pub fn union(&self, other: &Self) -> Result<Self, Overlap> {
        if self.is_empty() || other.is_empty() {
            return Ok(if self.is_empty() { other } else { self }.clone());
        }
        let mut merged: SmallVec<[Interval; 2]> =
            SmallVec::with_capacity(self.intervals.len() + other.intervals.len());
        let (mut a, mut b) = (self.intervals.as_slice(), other.intervals.as_slice());
        while let Some(next) = take_smaller(&mut a, &mut b) {
            match merged.last_mut() {
                Some(last) if next.start < last.end => return Err(Overlap(Rank(next.start))),
                Some(last) if next.start == last.end => last.end = next.end,
                _ => merged.push(next),
            }
        }
        Ok(Self { intervals: merged })
    }

    /// The union of any number of disjoint sets.
    ///
    /// # Errors
    /// As [`union`](Self::union).
    pub fn union_of<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Result<Self, Overlap> {
        let mut all: SmallVec<[Interval; 16]> = SmallVec::new();
        sets.into_iter().for_each(|set| all.extend_from_slice(&set.intervals));
        all.sort_unstable();
        if let Some(pair) = all.windows(2).find(|pair| pair[1].start < pair[0].end) {
            return Err(Overlap(Rank(pair[1].start)));
        }
        all.dedup_by(|next, last| {
            let touches = next.start == last.end;
            if touches {
                last.end = next.end;
            }
            touches
        });
        Ok(Self { intervals: SmallVec::from_slice(&all) })
    }

    /// The ranks that are in any of the sets, where each set counts without the rank beside it. Takes as long
    /// as the sets have ranks, however scattered these are, and as the highest rank is high.
    pub fn any_of_others<'a>(sets: impl Iterator<Item = (&'a Self, Rank)>) -> Self {
        let mut marks = Vec::new();
        for (set, beside) in sets {
            let end = set.intervals.last().map_or(0, |last| last.end as usize);
            marks.resize(marks.len().max(end), false);
            let before = marks.get(beside.index()).copied();
            for interval in &set.intervals {
                marks[interval.start as usize..interval.end as usize].fill(true);
            }
            if let Some(before) = before {
                marks[beside.index()] = before;
            }
        }
        let mut any = Self::default();
        (0..).zip(marks).filter(|(_, is_marked)| *is_marked).for_each(|(rank, _)| any.push(rank));
        any
    }

    /// Adds a rank that is as high as the last one at least.
    fn push(&mut self, rank: u32) {
        match self.intervals.last_mut() {
            Some(last) if rank < last.end => {}
            Some(last) if rank == last.end => last.end += 1,
            _ => self.intervals.push(Interval { start: rank, end: rank + 1 }),
        }
    }

    /// Adds a rank, in place.
    ///
    /// # Errors
    /// [`Overlap`] if it is there already; then nothing changes.
    pub fn insert(&mut self, rank: Rank) -> Result<(), Overlap> {
        let (start, end) = (rank.0, rank.0 + 1);
        let at = self.behind(start);
        let follows = at > 0 && self.intervals[at - 1].end == start;
        match self.intervals.get_mut(at) {
            Some(next) if next.start <= start => return Err(Overlap(rank)),
            Some(next) if next.start == end && follows => {
                self.intervals[at - 1].end = self.intervals[at].end;
                self.intervals.remove(at);
            }
            Some(next) if next.start == end => next.start = start,
            _ if follows => self.intervals[at - 1].end = end,
            _ => self.intervals.insert(at, Interval { start, end }),
        }
        Ok(())
    }

    /// Takes a rank away, in place. Returns whether it was there.
    pub fn remove(&mut self, rank: Rank) -> bool {
        let at = self.behind(rank.0);
        let Some(interval) = self.intervals.get_mut(at).filter(|interval| interval.start <= rank.0) else {
            return false;
        };
        let (left, right) = (interval.start..rank.0, rank.0 + 1..interval.end);
        match (left.is_empty(), right.is_empty()) {
            (true, true) => {
                self.intervals.remove(at);
            }
            (true, false) => interval.start = right.start,
            (false, true) => interval.end = left.end,
            (false, false) => {
                interval.end = left.end;
                self.intervals.insert(at + 1, Interval { start: right.start, end: right.end });
            }
        }
        true
    }

    /// The ranks that are in both sets. Takes as long as the set with fewer intervals is long, or the result.
    pub fn intersection(&self, other: &Self) -> Self {
        let (few, many) =
            if self.intervals.len() < other.intervals.len() { (self, other) } else { (other, self) };
        let mut both = Self::default();
        for interval in &few.intervals {
            let overlapping = many.intervals[many.behind(interval.start)..].iter();
            for other in overlapping.take_while(|other| other.start < interval.end) {
                let (start, end) = (interval.start.max(other.start), interval.end.min(other.end));
                both.intervals.push(Interval { start, end });
            }
        }
        both
    }

    /// The ranks of `self` that `other` does not hold.
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        let mut holes = other.intervals.iter().peekable();
        for interval in &self.intervals {
            let mut start = interval.start;
            while let Some(hole) = holes.peek() {
                if hole.end <= start {
                    holes.next();
                    continue;
                }
                if hole.start >= interval.end {
                    break;
                }
                if start < hole.start {
                    rest.intervals.push(Interval { start, end: hole.start });
                }
                start = hole.end;
                if start >= interval.end {
                    break;
                }
            }
            if start < interval.end {
                rest.intervals.push(Interval { start, end: interval.end });
            }
        }
        rest
    }

    /// Whether no rank is in both sets.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let (few, many) =
            if self.intervals.len() < other.intervals.len() { (self, other) } else { (other, self) };
        few.intervals.iter().all(|interval| {
            let next = many.intervals.get(many.behind(interval.start));
            next.is_none_or(|next| interval.end <= next.start)
        })
    }

    /// Whether every rank of `self` is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.intervals.iter().all(|interval| {
            let whole = other.intervals.get(other.behind(interval.start));
            whole.is_some_and(|whole| whole.start <= interval.start && interval.end <= whole.end)
        })
    }
}

/// Takes the interval that starts first off the front of the slice that has it.
fn take_smaller<'a>(a: &mut &'a [Interval], b: &mut &'a [Interval]) -> Option<Interval> {
    let from = match (a.first(), b.first()) {
        (Some(x), Some(y)) if y.start < x.start => b,
        (Some(_), _) => a,
        (None, _) => b,
    };
    let (first, rest) = from.split_first()?;
    *from = rest;
    Some(*first)
}

impl FromIterator<Rank> for Path {
    /// Collects ranks in any order; repeated ones count once.
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        let mut ranks: Vec<u32> = ranks.into_iter().map(|rank| rank.0).collect();
        ranks.sort_unstable();
        let mut path = Self::default();
        ranks.into_iter().for_each(|rank| path.push(rank));
        path
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let intervals: SmallVec<[Interval; 2]> = Deserialize::deserialize(deserializer)?;
        let sorted = intervals.windows(2).all(|pair| pair[0].end < pair[1].start);
        let filled = intervals.iter().all(|interval| interval.start < interval.end);
        if sorted && filled {
            Ok(Self { intervals })
        } else {
            Err(D::Error::custom("path is not in normal form"))
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (position, interval) in self.intervals.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            match interval.end - interval.start {
                1 => write!(f, "{comma}{}", interval.start)?,
                _ => write!(f, "{comma}{}-{}", interval.start, interval.end - 1)?,
            }
        }
        f.write_str("}")
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::codec;

    fn ranks() -> impl Strategy<Value = BTreeSet<u32>> {
        prop::collection::btree_set(0u32..60, 0..40)
    }

    fn path(set: &BTreeSet<u32>) -> Path {
        set.iter().copied().map(Rank).collect()
    }

    proptest! {
        #[test]
        fn a_path_is_the_set_it_was_made_from(a in ranks()) {
            let p = path(&a);
            prop_assert_eq!(p.iter().map(|r| r.0).collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!(p.len(), a.len());
            for r in 0..60 {
                prop_assert_eq!(p.position(Rank(r)), a.contains(&r).then(|| a.range(..r).count()));
                prop_assert_eq!(p.contains(Rank(r)), a.contains(&r));
                prop_assert_eq!(p.before(Rank(r)), a.range(..r).next_back().copied().map(Rank));
                prop_assert_eq!(p.after(Rank(r)), a.range(r + 1..).next().copied().map(Rank));
            }
        }

        #[test]
        fn union_refuses_exactly_the_overlapping(a in ranks(), b in ranks()) {
            let union = path(&a).union(&path(&b));
            match a.intersection(&b).next() {
                Some(_) => prop_assert!(matches!(union, Err(Overlap(r)) if a.contains(&r.0) && b.contains(&r.0))),
                None => prop_assert_eq!(union, Ok(path(&a.union(&b).copied().collect()))),
            }
        }

        #[test]
        fn a_union_of_many_is_that_of_two_again_and_again(sets in prop::collection::vec(ranks(), 0..5)) {
            let paths: Vec<Path> = sets.iter().map(path).collect();
            let sum: usize = sets.iter().map(BTreeSet::len).sum();
            let all: BTreeSet<u32> = sets.into_iter().flatten().collect();
            let union = Path::union_of(&paths);
            prop_assert_eq!(union.is_ok(), sum == all.len());
            if let Ok(union) = union {
                prop_assert_eq!(union, path(&all));
            }
            let in_turn = paths.iter().try_fold(Path::empty(), |all, path| all.union(path));
            prop_assert_eq!(Path::union_of(&paths).is_ok(), in_turn.is_ok());
        }

        #[test]
        fn any_of_others_is_a_union_of_sets(sets in prop::collection::vec((ranks(), 0u32..60), 0..5)) {
            let others = |(set, beside): &(BTreeSet<u32>, u32)| { let mut set = set.clone(); set.remove(beside); set };
            let any: BTreeSet<u32> = sets.iter().flat_map(others).collect();
            let paths: Vec<_> = sets.iter().map(|(set, beside)| (path(set), Rank(*beside))).collect();
            let paths = paths.iter().map(|(path, beside)| (path, *beside));
            prop_assert_eq!(Path::any_of_others(paths), path(&any));
        }

        #[test]
        fn ranks_come_and_go_in_place(a in ranks(), rank in 0u32..60) {
            let (mut more, mut less) = (path(&a), path(&a));
            let (mut with, mut without) = (a.clone(), a.clone());
            prop_assert_eq!(more.insert(Rank(rank)).is_ok(), with.insert(rank));
            prop_assert_eq!(less.remove(Rank(rank)), without.remove(&rank));
            prop_assert_eq!(more, path(&with));
            prop_assert_eq!(less, path(&without));
        }

        #[test]
        fn intersection_is_set_intersection(a in ranks(), b in ranks()) {
            let both: BTreeSet<u32> = a.intersection(&b).copied().collect();
            prop_assert_eq!(path(&a).is_disjoint(&path(&b)), both.is_empty());
            prop_assert_eq!(path(&a).intersection(&path(&b)), path(&both));
        }

        #[test]
        fn difference_is_set_difference(a in ranks(), b in ranks()) {
            prop_assert_eq!(path(&a).difference(&path(&b)), path(&a.difference(&b).copied().collect()));
            prop_assert_eq!(path(&a).is_subset(&path(&b)), a.is_subset(&b));
        }

        #[test]
        fn paths_survive_the_wire(a in ranks()) {
            let bytes = codec::encode(&path(&a)).unwrap();
            prop_assert_eq!(codec::decode::<Path>(&bytes).unwrap(), path(&a));
        }
    }

    #[test]
    fn a_path_that_is_not_in_normal_form_is_refused() {
        let touching = [Interval { start: 0, end: 2 }, Interval { start: 2, end: 3 }];
        let bytes = codec::encode(&touching.to_vec()).unwrap();
        assert!(codec::decode::<Path>(&bytes).is_err());
    }

    #[test]
    fn paths_print_as_intervals() {
        let path: Path = [0, 1, 2, 5, 9, 10].into_iter().map(Rank).collect();
        assert_eq!(path.to_string(), "{0-2,5,9-10}");
    }
}
