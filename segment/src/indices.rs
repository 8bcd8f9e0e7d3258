//! Which indices of a recovery segment are computed.

use alloc::{vec, vec::Vec};
use core::{fmt, ops::Range};

use serde::{Deserialize, Serialize};

/// A set of indices, as ascending ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indices {
    ranges: Vec<Range<u64>>,
}

impl Indices {
    /// The indices of `range`.
    pub fn range(range: Range<u64>) -> Self {
        Self { ranges: (!range.is_empty()).then_some(range).into_iter().collect() }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }

    /// Takes `range` in.
    ///
    /// # Errors
    /// The part of it that is in the set already, if any is. The set is as it was then.
    pub fn insert(&mut self, range: Range<u64>) -> Result<(), Range<u64>> {
        if range.is_empty() {
            return Ok(());
        }
        // The ranges before it, and of these the last if it touches; the same behind it.
        let at = self.ranges.partition_point(|other| other.start < range.start);
        let before = at.checked_sub(1).map(|before| self.ranges[before].end);
        if let Some(end) = before.filter(|end| *end > range.start) {
            return Err(range.start..end.min(range.end));
        }
        let behind = self.ranges.get(at).map(|behind| behind.start);
        if let Some(start) = behind.filter(|start| *start < range.end) {
            return Err(start..self.ranges[at].end.min(range.end));
        }
        match (before == Some(range.start), behind == Some(range.end)) {
            (true, true) => self.ranges[at - 1].end = self.ranges.remove(at).end,
            (true, false) => self.ranges[at - 1].end = range.end,
            (false, true) => self.ranges[at].start = range.start,
            (false, false) => self.ranges.insert(at, range),
        }
        Ok(())
    }

    /// Takes all of `other` in.
    ///
    /// # Errors
    /// A range that is in both, if there is one. The set has a part of `other` then.
    pub fn unite(&mut self, other: &Self) -> Result<(), Range<u64>> {
        other.ranges().try_for_each(|range| self.insert(range))
    }

    /// What of `all` is not in the set.
    pub fn holes(&self, all: Range<u64>) -> Self {
        let mut next = all.start;
        let mut ranges = Vec::new();
        for range in self.ranges.iter().filter(|range| range.end > all.start && range.start < all.end) {
            ranges.extend((next < range.start).then_some(next..range.start));
            next = range.end;
        }
        ranges.extend((next < all.end).then_some(next..all.end));
        Self { ranges }
    }

    /// The first `count` of them, or all.
    pub fn first(&self, count: u64) -> Self {
        take(&mut self.ranges().rev().collect(), count)
    }

    /// Divides the set into consecutive parts, in proportion to `weights`. All ranks that divide the same set
    /// by the same weights come to the same parts. If all weights are zero, they count as equal.
    pub fn divide(&self, weights: &[u64]) -> Vec<Self> {
        let equal = vec![1; weights.len()];
        let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        let (weights, sum) = if sum == 0 { (&equal[..], weights.len() as u128) } else { (weights, sum) };
        let (mut weight, mut done) = (0u128, 0u64);
        let mut rest = self.ranges().collect::<Vec<_>>();
        rest.reverse();
        let part = |own: &u64| {
            weight += u128::from(*own);
            // At most the count itself, as `weight` is at most `sum`.
            let end = (u128::from(self.count()) * weight / sum) as u64;
            let part = take(&mut rest, end - done);
            done = end;
            part
        };
        weights.iter().map(part).collect()
    }
}

/// Takes the first `count` indices from `rest`, whose ranges descend.
fn take(rest: &mut Vec<Range<u64>>, mut count: u64) -> Indices {
    let mut ranges = Vec::new();
    while count > 0
        && let Some(range) = rest.pop()
    {
        let end = range.start + count.min(range.end - range.start);
        count -= end - range.start;
        rest.extend((end < range.end).then_some(end..range.end));
        ranges.push(range.start..end);
    }
    Indices { ranges }
}

impl fmt::Display for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, range) in self.ranges.iter().enumerate() {
            let before = if index == 0 { "" } else { ", " };
            write!(f, "{before}{}..{}", range.start, range.end)?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn elements(indices: &Indices) -> Vec<u64> {
        indices.ranges().flatten().collect()
    }

    fn of(set: &BTreeSet<u64>) -> Indices {
        let mut indices = Indices::default();
        set.iter()
            .for_each(|&index| indices.insert(index..index + 1).expect("an index of a set is there once"));
        indices
    }

    fn sets() -> impl Strategy<Value = BTreeSet<u64>> {
        prop::collection::btree_set(0..40u64, 0..40)
    }

    proptest! {
        #[test]
        fn a_range_is_taken_in_unless_a_part_of_it_is_there(
            set in sets(),
            start in 0..40u64,
            len in 0..10u64,
        ) {
            let range = start..start + len;
            let mut indices = of(&set);
            let shared: Vec<u64> = range.clone().filter(|index| set.contains(index)).collect();
            match indices.insert(range.clone()) {
                Ok(()) => {
                    prop_assert!(shared.is_empty());
                    let united: BTreeSet<u64> = set.iter().copied().chain(range).collect();
                    prop_assert!(elements(&indices).into_iter().eq(united));
                }
                Err(overlap) => {
                    prop_assert!(!overlap.is_empty() && overlap.clone().all(|index| shared.contains(&index)));
                    prop_assert_eq!(&indices, &of(&set));
                }
            }
            let ranges: Vec<_> = indices.ranges().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "ranges do not touch");
        }

        #[test]
        fn holes_are_what_is_not_there(set in sets(), start in 0..40u64, end in 0..40u64) {
            let holes = of(&set).holes(start..end);
            let expected: Vec<u64> = (start..end).filter(|index| !set.contains(index)).collect();
            prop_assert_eq!(elements(&holes), expected);
        }

        #[test]
        fn the_first_are_the_lowest(set in sets(), count in 0..50u64) {
            let first: Vec<u64> = set.iter().copied().take(count as usize).collect();
            prop_assert_eq!(elements(&of(&set).first(count)), first);
        }

        #[test]
        fn parts_follow_the_weights_and_leave_nothing_out(
            set in sets(),
            weights in prop::collection::vec(prop_oneof![Just(0), 1..9u64, Just(u64::MAX)], 1..9),
        ) {
            let indices = of(&set);
            let parts = indices.divide(&weights);
            prop_assert_eq!(parts.len(), weights.len());
            prop_assert_eq!(parts.iter().flat_map(elements).collect::<Vec<_>>(), elements(&indices));
            let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
            for (part, weight) in parts.iter().zip(&weights).filter(|_| sum > 0) {
                let exact = indices.count() as f64 * *weight as f64 / sum as f64;
                let count = part.count() as f64;
                prop_assert!((count - exact).abs() <= 1.0, "{count} instead of {exact}");
            }
        }
    }
}
