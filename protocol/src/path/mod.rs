//! The set of ranks whose originals are folded into a partial (DR §2, def. 5).
//!
//! # Invariant
//! Intervals are half-open, not empty, sorted, and never touch: each set has exactly one form, so equality of
//! sets is equality of bytes. Decoding checks it, because a path decides what counts.

mod algebra;
#[cfg(test)]
mod tests;

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
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Path {
    intervals: SmallVec<[Interval; 2]>,
}

impl Clone for Path {
    /// Copies all intervals at once, where a derived clone would copy one after the other.
    fn clone(&self) -> Self {
        Self { intervals: SmallVec::from_slice(&self.intervals) }
    }
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
        // They are disjoint intervals of `u32`, so that nothing wraps. Without checks this takes several at a time.
        let lengths = self.intervals.iter().map(|i| i.end.wrapping_sub(i.start));
        lengths.fold(0, u32::wrapping_add) as usize
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
