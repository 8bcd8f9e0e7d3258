//! Sets of ranks made of others: unions, intersections, differences.
//!
//! Ranks arrive in any order. So partials of a large group have thousands of intervals, and mostly one of them
//! is united with few others that are much smaller: that has to take no longer than to copy it.

use alloc::vec::Vec;

use smallvec::SmallVec;

use super::{Interval, Overlap, Path};
use crate::id::Rank;

impl Path {
    /// The union of two disjoint sets.
    ///
    /// # Errors
    /// [`Overlap`] names the smallest shared rank; a union is refused rather than silently deduplicated.
    pub fn union(&self, other: &Self) -> Result<Self, Overlap> {
        let (few, many) = self.few_and_many(other);
        if few.is_empty() { Ok(many.clone()) } else { many.merge(&few.intervals) }
    }

    /// The union of any number of disjoint sets.
    ///
    /// # Errors
    /// As [`union`](Self::union).
    pub fn union_of<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Result<Self, Overlap> {
        let (empty, mut largest) = (Self::default(), None::<&Self>);
        let mut others: SmallVec<[Interval; 16]> = SmallVec::new();
        for set in sets {
            match largest {
                Some(one) if set.intervals.len() <= one.intervals.len() => {
                    others.extend_from_slice(&set.intervals);
                }
                _ => others.extend_from_slice(&largest.replace(set).unwrap_or(&empty).intervals),
            }
        }
        let largest = largest.unwrap_or(&empty);
        if others.is_empty() {
            return Ok(largest.clone());
        }
        // They are several runs that are sorted: this sort finds and merges them.
        others.sort_by_key(|interval| interval.start);
        largest.merge(&others)
    }

    /// Its union with others that are sorted by their starts. What lies between two of these is copied as it is.
    fn merge(&self, others: &[Interval]) -> Result<Self, Overlap> {
        let mut union = Self { intervals: SmallVec::with_capacity(self.intervals.len() + others.len()) };
        let mut rest = self.intervals.as_slice();
        for other in others {
            let (before, behind) = rest.split_at(starts_before(rest, other.start));
            union.append(before)?;
            union.append(core::slice::from_ref(other))?;
            rest = behind;
        }
        union.append(rest)?;
        Ok(union)
    }

    /// Adds intervals that neither touch each other nor start before the last one here.
    fn append(&mut self, intervals: &[Interval]) -> Result<(), Overlap> {
        let Some((first, rest)) = intervals.split_first() else { return Ok(()) };
        match self.intervals.last_mut() {
            Some(last) if first.start < last.end => return Err(Overlap(Rank(first.start))),
            Some(last) if first.start == last.end => last.end = first.end,
            _ => self.intervals.push(*first),
        }
        self.intervals.extend_from_slice(rest);
        Ok(())
    }

    /// The set with fewer intervals first.
    fn few_and_many<'a>(&'a self, other: &'a Self) -> (&'a Self, &'a Self) {
        if self.intervals.len() < other.intervals.len() { (self, other) } else { (other, self) }
    }

    /// The ranks that are in any of the sets, where each set counts without the rank beside it. Takes as long
    /// as the sets have intervals, and as the highest rank is high.
    pub fn any_of_others<'a>(sets: impl Iterator<Item = (&'a Self, Rank)>) -> Self {
        // By how many sets more hold a rank than the one below it.
        let mut more: Vec<u32> = Vec::new();
        for (set, beside) in sets {
            let end = set.intervals.last().map_or(0, |last| last.end as usize);
            more.resize(more.len().max(end + 1), 0);
            let mut count = |Interval { start, end }| {
                more[start as usize] = more[start as usize].wrapping_add(1);
                more[end as usize] = more[end as usize].wrapping_sub(1);
            };
            set.intervals.iter().copied().for_each(&mut count);
            if set.contains(beside) {
                // The other way round: it counts once less.
                count(Interval { start: beside.0 + 1, end: beside.0 });
            }
        }
        let (mut any, mut holding) = (Self::default(), 0u32);
        for (rank, more) in (0..).zip(more) {
            holding = holding.wrapping_add(more);
            if holding > 0 {
                any.push(rank);
            }
        }
        any
    }

    /// The ranks that are in both sets. Takes as long as the set with fewer intervals is long, or the result.
    pub fn intersection(&self, other: &Self) -> Self {
        let (few, many) = self.few_and_many(other);
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
        let (few, many) = self.few_and_many(other);
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

/// How many of these intervals start before `start`. Looks near the front first, and in strides that double.
fn starts_before(intervals: &[Interval], start: u32) -> usize {
    let mut stride = 1;
    while intervals.get(stride - 1).is_some_and(|interval| interval.start < start) {
        stride *= 2;
    }
    let (from, to) = (stride / 2, intervals.len().min(stride));
    from + intervals[from..to].partition_point(|interval| interval.start < start)
}
