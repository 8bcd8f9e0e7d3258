//! Models (2-3) and (2-4) solved as the paper does: implicit enumeration with a filter (CP-6, Fig. 10).
//!
//! Each point is taken or not. All choices are looked at, one after the other. The filter is the value of the
//! best choice so far; what does not come below it is put away before any constraint is looked at. That holds
//! for choices of which only the beginning is fixed, too: no completion takes less time than its beginning.
//! Then the constraints are looked at, and what satisfies them becomes the new filter.
//!
//! The work grows exponentially with the number of points. [`shortest`](crate::shortest::shortest) finds the
//! same value in linear time.

use alloc::{vec, vec::Vec};

use crate::{candidates::Candidates, gap::Gap};

/// Points that are enumerated at most.
pub const POINTS_MOST: usize = 40;

/// What enumeration found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enumerated {
    /// The points of the best choice.
    pub chosen: Vec<usize>,
    /// Beginnings of choices that were looked at.
    pub seen: u64,
    /// Those that the filter put away.
    pub filtered: u64,
    /// Those that passed the filter and broke the constraint.
    pub broken: u64,
}

/// Why nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnumerationError {
    /// There is nothing to be found.
    #[error(transparent)]
    Gap(#[from] Gap),
    /// It would take for ever.
    #[error("{points} points are too many to enumerate; at most {POINTS_MOST}")]
    TooMany {
        /// How many there are.
        points: usize,
    },
}

/// The points at which checkpoints take least time together, neighbours at most `apart_ns` apart.
///
/// # Errors
/// There is no such choice, or there are too many to look at.
pub fn enumerate(candidates: &Candidates, apart_ns: u64) -> Result<Enumerated, EnumerationError> {
    let points = candidates.len();
    if points > POINTS_MOST {
        return Err(EnumerationError::TooMany { points });
    }
    // Step 1: any choice that satisfies the constraints gives the first filter. If all points together do not,
    // none does.
    if let Some(gap) = Gap::find(candidates, apart_ns) {
        return Err(gap.into());
    }
    let all: Vec<usize> = (0..points).collect();
    let filter = (candidates.total_ns(&all), points);
    let work = Enumerated { chosen: all, seen: 0, filtered: 0, broken: 0 };
    let mut search = Search { candidates, apart_ns, filter, taken: vec![], work };
    search.complete(0, 0, 0);
    Ok(search.work)
}

struct Search<'a> {
    candidates: &'a Candidates,
    apart_ns: u64,
    /// Time and number of checkpoints of the best choice so far.
    filter: (u64, usize),
    taken: Vec<usize>,
    work: Enumerated,
}

impl Search<'_> {
    /// Steps 2 and 3: all completions of the choice among the points before `next`.
    fn complete(&mut self, next: usize, last_ns: u64, write_ns: u64) {
        self.work.seen += 1;
        if (write_ns, self.taken.len()) > self.filter {
            self.work.filtered += 1;
            return;
        }
        let there = next < self.candidates.len();
        let next_ns = if there { self.candidates.at_ns(next) } else { self.candidates.end_ns() };
        if next_ns - last_ns > self.apart_ns {
            self.work.broken += 1;
            return;
        }
        if !there {
            self.filter = (write_ns, self.taken.len());
            self.work.chosen.clone_from(&self.taken);
            return;
        }
        self.complete(next + 1, last_ns, write_ns);
        self.taken.push(next);
        self.complete(next + 1, next_ns, write_ns.saturating_add(self.candidates.write_ns(next)));
        self.taken.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_spares_most_of_the_work() {
        let points: Vec<(u64, u64)> = (1..=20).map(|at| (at, 10 + at % 3)).collect();
        let found = enumerate(&Candidates::from_times(&points, 21), 5).unwrap();
        assert_eq!(found.chosen.len(), 4);
        assert!(found.filtered > 0 && found.broken > 0 && found.seen < 1 << 17, "{found:?}");
    }

    #[test]
    fn too_many_points_and_gaps_are_refused() {
        let points: Vec<(u64, u64)> = (0..=40).map(|at| (at, 1)).collect();
        let error = enumerate(&Candidates::from_times(&points, 41), 41);
        assert_eq!(error, Err(EnumerationError::TooMany { points: 41 }));
        let far = enumerate(&Candidates::from_times(&[(5, 1)], 41), 6);
        assert!(matches!(far, Err(EnumerationError::Gap(_))));
    }
}
