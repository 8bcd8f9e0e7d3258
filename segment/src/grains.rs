//! Grains: pieces of a recovery segment that are folded in one go.

use alloc::{format, string::String};
use core::ops::Range;

use crate::indices::Indices;

/// The indices of a recovery segment, cut into grains. The last one may be shorter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grains {
    indices: Range<u64>,
    grain: u64,
}

/// Why there is nothing to compute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrainsError {
    /// There are no indices.
    #[error("a recovery segment needs indices, and {}..{} has none", indices.start, indices.end)]
    NoIndices {
        /// What was given.
        indices: Range<u64>,
    },
    /// Grains have no indices.
    #[error("a grain of a recovery segment needs at least one index: give `grain` a number from 1 on")]
    NoGrain,
}

/// Without a choice there are this many grains, or one per index if there are fewer.
const GRAINS: u64 = 1024;

impl Grains {
    /// Cuts `indices` into grains of `grain`, or of 1/1024 of all.
    ///
    /// # Errors
    /// [`GrainsError::NoIndices`], [`GrainsError::NoGrain`].
    pub fn new(indices: Range<u64>, grain: Option<u64>) -> Result<Self, GrainsError> {
        if indices.is_empty() {
            return Err(GrainsError::NoIndices { indices });
        }
        let grain = grain.unwrap_or((indices.end - indices.start).div_ceil(GRAINS));
        match grain {
            0 => Err(GrainsError::NoGrain),
            grain => Ok(Self { indices, grain }),
        }
    }

    /// Numbers of all grains.
    pub fn all(&self) -> Range<u64> {
        0..(self.indices.end - self.indices.start).div_ceil(self.grain)
    }

    /// The indices of one grain.
    pub fn indices(&self, grain: u64) -> Range<u64> {
        let start = self.indices.start + grain * self.grain;
        start..start + self.grain.min(self.indices.end - start)
    }

    /// The indices of many grains.
    pub fn indices_of(&self, grains: &Indices) -> Indices {
        let mut indices = Indices::default();
        for range in grains.ranges() {
            let (first, last) = (self.indices(range.start), self.indices(range.end - 1));
            indices.insert(first.start..last.end).expect("grains have no index in common");
        }
        indices
    }

    /// What ranks that compute the same segment have in common.
    pub fn describe(&self) -> String {
        let Self { indices: Range { start, end }, grain } = self;
        format!("indices {start}..{end} in grains of {grain}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grains_cover_the_indices() {
        for (indices, grain) in [(0..10, 3), (5..6, 1), (7..20, 100), (0..12, 4), (u64::MAX - 5..u64::MAX, 2)]
        {
            let grains = Grains::new(indices.clone(), Some(grain)).expect("there are indices and a grain");
            let all: Vec<u64> = grains.all().flat_map(|number| grains.indices(number)).collect();
            assert_eq!(all, indices.clone().collect::<Vec<_>>());
            assert_eq!(grains.indices_of(&Indices::range(grains.all())), Indices::range(indices));
        }
        let grains = Grains::new(0..10, Some(3)).expect("there are indices and a grain");
        assert_eq!(grains.indices_of(&Indices::range(2..4)), Indices::range(6..10));
    }

    #[test]
    fn without_a_choice_there_are_at_most_1024() {
        for (count, grains) in [(1, 1), (1024, 1024), (1025, 513), (1 << 40, 1024)] {
            assert_eq!(Grains::new(0..count, None).expect("there are indices").all(), 0..grains);
        }
    }

    #[test]
    fn no_indices_and_no_grain_are_told() {
        assert!(matches!(Grains::new(3..3, None), Err(GrainsError::NoIndices { .. })));
        assert!(matches!(Grains::new(0..3, Some(0)), Err(GrainsError::NoGrain)));
    }
}
