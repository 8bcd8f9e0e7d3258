//! A round of a recovery segment: ranks fold their shares, and reduce what they have folded.

use std::{collections::BTreeMap, time::Instant};

use everfold_protocol::Rank;
use serde::{Deserialize, Serialize};

use super::{
    indices::Indices,
    partials::{Partials, Twice},
};
use crate::body::ReducerBody;

/// Grains per second, by rank.
pub(super) type Paces = BTreeMap<u32, u64>;

/// The body of a round's reduction.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "B: ReducerBody")]
pub(super) struct Round<B> {
    pub(super) partials: Partials<B>,
    /// How fast each rank was that had a share.
    pub(super) paces: Paces,
    /// A grain that two ranks have computed. The partials are useless then.
    pub(super) twice: Option<u64>,
}

impl<B: ReducerBody> Round<B> {
    /// Folds the grains of `share`, one after the other.
    pub(super) fn compute(
        rank: Rank,
        share: &Indices,
        is_fixed: bool,
        mut fold: impl FnMut(u64) -> B,
    ) -> Self {
        let started = Instant::now();
        let mut partials = Partials::new(is_fixed);
        for grain in share.ranges().flatten() {
            partials.add(grain, fold(grain)).expect("a share has each grain once");
        }
        let nanoseconds = started.elapsed().as_nanos().max(1);
        let pace = u128::from(share.count()) * 1_000_000_000 / nanoseconds;
        // Sums of products with numbers of grains stay far below 2^128.
        let pace = u64::from(u32::try_from(pace).unwrap_or(u32::MAX).max(1));
        let paces = (!share.is_empty()).then_some((rank.0, pace)).into_iter().collect();
        Self { partials, paces, twice: None }
    }
}

impl<B: ReducerBody> ReducerBody for Round<B> {
    fn combine(&mut self, mut other: Self) {
        self.paces.append(&mut other.paces);
        self.twice = self.twice.or(other.twice);
        if self.twice.is_none()
            && let Err(Twice(grain)) = self.partials.unite(other.partials)
        {
            self.twice = Some(grain);
        }
    }
}

/// How much of the work each rank is to be given: its pace, and for a rank without one the mean of the
/// others.
pub(super) fn weights(ranks: impl Iterator<Item = Rank> + Clone, paces: &Paces) -> Vec<u64> {
    let known: Vec<u64> = ranks.clone().filter_map(|rank| paces.get(&rank.0).copied()).collect();
    let sum: u128 = known.iter().map(|pace| u128::from(*pace)).sum();
    let mean = sum.checked_div(known.len() as u128).and_then(|mean| u64::try_from(mean).ok()).unwrap_or(1);
    ranks.map(|rank| paces.get(&rank.0).copied().unwrap_or(mean)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_pace_yet_is_as_fast_as_the_others_are_on_average() {
        let ranks = || [0, 2, 5].into_iter().map(Rank);
        assert_eq!(weights(ranks(), &Paces::new()), [1, 1, 1]);
        assert_eq!(weights(ranks(), &Paces::from([(0, 10), (1, 1000), (5, 30)])), [10, 20, 30]);
        assert_eq!(weights(ranks(), &Paces::from([(2, u64::MAX), (5, u64::MAX)])), [u64::MAX; 3]);
    }
}
