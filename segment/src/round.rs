//! A round of a recovery segment: ranks fold their shares, and reduce what they have folded.

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use everfold_protocol::Rank;
use serde::{Deserialize, Serialize};

use crate::{
    Combine,
    grains::Grains,
    partials::{Partials, Twice},
};

/// How fast ranks are, in grains per 1000 seconds.
pub type Paces = BTreeMap<u32, u64>;

/// A pace is the number of grains in so many nanoseconds.
const PACE_NANOSECONDS: u128 = 1_000_000_000_000;
/// Sums of products with numbers of grains stay far below 2^128.
const PACE_MAX: u128 = 1 << 48;

/// The body of a round's reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "B: Serialize", deserialize = "B: Deserialize<'de>"))]
pub struct Round<B> {
    /// What is folded.
    pub partials: Partials<B>,
    /// Who has folded what is in it.
    pub work: BTreeMap<u32, Work>,
    /// A grain that two ranks have computed. The partials are useless then.
    pub twice: Option<u64>,
}

/// What a rank has folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// How many indices.
    pub indices: u64,
    /// See [`Paces`].
    pub pace: u64,
}

impl<B: Combine> Round<B> {
    /// What a rank contributes that has folded nothing.
    pub fn nothing(is_fixed: bool) -> Self {
        Self { partials: Partials::new(is_fixed), work: BTreeMap::new(), twice: None }
    }

    /// What `rank` had folded when it died.
    pub fn salvaged(rank: Rank, partials: Partials<B>, grains: &Grains) -> Self {
        let indices = grains.indices_of(&partials.grains()).count();
        Self { partials, work: BTreeMap::from([(rank.0, Work { indices, pace: 1 })]), twice: None }
    }
}

/// The pace of a rank that has folded so many grains in so much time.
pub fn pace(grains: u64, time: Duration) -> u64 {
    let pace = u128::from(grains) * PACE_NANOSECONDS / time.as_nanos().max(1);
    u64::try_from(pace.clamp(1, PACE_MAX)).unwrap_or(u64::MAX)
}

/// How long ranks of these paces take for `grains`, if each is given its part.
pub fn duration(grains: u64, paces: &[u64]) -> Duration {
    let pace: u128 = paces.iter().map(|pace| u128::from(*pace)).sum();
    let nanoseconds = u128::from(grains) * PACE_NANOSECONDS / pace.max(1);
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

impl<B: Combine> Combine for Round<B> {
    fn combine(&mut self, mut other: Self) {
        self.work.append(&mut other.work);
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
pub fn weights(ranks: impl Iterator<Item = Rank> + Clone, paces: &Paces) -> Vec<u64> {
    let known: Vec<u64> = ranks.clone().filter_map(|rank| paces.get(&rank.0).copied()).collect();
    let sum: u128 = known.iter().map(|pace| u128::from(*pace)).sum();
    let mean = sum.checked_div(known.len() as u128).and_then(|mean| u64::try_from(mean).ok()).unwrap_or(1);
    ranks.map(|rank| paces.get(&rank.0).copied().unwrap_or(mean)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_tells_how_long_grains_take() {
        assert_eq!(duration(300, &[pace(10, Duration::from_secs(1)); 3]), Duration::from_secs(10));
        assert_eq!(duration(2, &[pace(1, Duration::from_secs(100))]), Duration::from_secs(200));
        assert!(duration(u64::MAX, &[pace(u64::MAX, Duration::ZERO)]) < Duration::from_secs(1 << 30));
    }

    #[test]
    fn who_has_no_pace_yet_is_as_fast_as_the_others_are_on_average() {
        let ranks = || [0, 2, 5].into_iter().map(Rank);
        assert_eq!(weights(ranks(), &Paces::new()), [1, 1, 1]);
        assert_eq!(weights(ranks(), &Paces::from([(0, 10), (1, 1000), (5, 30)])), [10, 20, 30]);
        assert_eq!(weights(ranks(), &Paces::from([(2, u64::MAX), (5, u64::MAX)])), [u64::MAX; 3]);
    }
}
