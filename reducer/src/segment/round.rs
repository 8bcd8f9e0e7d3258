//! A round of a recovery segment: ranks fold their shares, and reduce what they have folded.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use everfold_protocol::Rank;
use serde::{Deserialize, Serialize};

use super::{
    grains::Grains,
    indices::Indices,
    partials::{Partials, Twice},
};
use crate::body::ReducerBody;

/// How fast ranks are, in grains per 1000 seconds.
pub(super) type Paces = BTreeMap<u32, u64>;

/// A pace is the number of grains in so many nanoseconds.
const PACE_NANOSECONDS: u128 = 1_000_000_000_000;
/// Sums of products with numbers of grains stay far below 2^128.
const PACE_MAX: u128 = 1 << 48;

/// The body of a round's reduction.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "B: ReducerBody")]
pub(super) struct Round<B> {
    pub(super) partials: Partials<B>,
    /// Who has folded what is in it.
    pub(super) work: BTreeMap<u32, Work>,
    /// A grain that two ranks have computed. The partials are useless then.
    pub(super) twice: Option<u64>,
}

/// What a rank has folded.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) indices: u64,
    /// See [`Paces`].
    pub(super) pace: u64,
}

impl<B: ReducerBody> Round<B> {
    /// What a rank contributes that has folded nothing.
    pub(super) fn nothing(is_fixed: bool) -> Self {
        Self { partials: Partials::new(is_fixed), work: BTreeMap::new(), twice: None }
    }

    /// Folds the grains of `share`, one after the other, until `limit` is over; at least one. `save` sees what
    /// is folded after each but the last.
    pub(super) fn compute(
        rank: Rank,
        share: &Indices,
        is_fixed: bool,
        limit: Option<Duration>,
        grains: &Grains,
        mut fold: impl FnMut(Range<u64>) -> B,
        mut save: impl FnMut(&Partials<B>),
    ) -> Self {
        let started = Instant::now();
        let mut round = Self::nothing(is_fixed);
        let (mut folded, mut indices) = (0, 0);
        for grain in share.ranges().flatten() {
            let range = grains.indices(grain);
            indices += range.end - range.start;
            folded += 1;
            round.partials.add(grain, fold(range)).expect("a share has each grain once");
            if folded == share.count() || limit.is_some_and(|limit| started.elapsed() >= limit) {
                break;
            }
            save(&round.partials);
        }
        if folded > 0 {
            round.work.insert(rank.0, Work { indices, pace: pace(folded, started.elapsed()) });
        }
        round
    }

    /// What `rank` had folded when it died.
    pub(super) fn salvaged(rank: Rank, partials: Partials<B>, grains: &Grains) -> Self {
        let indices = grains.indices_of(&partials.grains()).count();
        Self { partials, work: BTreeMap::from([(rank.0, Work { indices, pace: 1 })]), twice: None }
    }
}

pub(super) fn pace(grains: u64, time: Duration) -> u64 {
    let pace = u128::from(grains) * PACE_NANOSECONDS / time.as_nanos().max(1);
    u64::try_from(pace.clamp(1, PACE_MAX)).unwrap_or(u64::MAX)
}

/// How long ranks of these paces take for `grains`, if each is given its part.
pub(super) fn duration(grains: u64, paces: &[u64]) -> Duration {
    let pace: u128 = paces.iter().map(|pace| u128::from(*pace)).sum();
    let nanoseconds = u128::from(grains) * PACE_NANOSECONDS / pace.max(1);
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

impl<B: ReducerBody> ReducerBody for Round<B> {
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
    fn a_pace_tells_how_long_grains_take() {
        assert_eq!(duration(300, &[pace(10, Duration::from_secs(1)); 3]), Duration::from_secs(10));
        assert_eq!(duration(2, &[pace(1, Duration::from_secs(100))]), Duration::from_secs(200));
        assert!(duration(u64::MAX, &[pace(u64::MAX, Duration::ZERO)]) < Duration::from_secs(1 << 30));
    }

    #[test]
    fn who_has_taken_too_long_stops_after_a_grain_and_leaves_the_rest() {
        let grains = Grains::new(0..100, Some(10)).expect("there are indices");
        let (mut saved, share) = (0, Indices::range(2..6));
        let mut compute = |limit| {
            saved = 0;
            let fold = |range: Range<u64>| Count(range.end - range.start);
            Round::compute(Rank(3), &share, false, limit, &grains, fold, |_| saved += 1)
        };
        let all = compute(None);
        assert_eq!((all.partials.grains(), all.work[&3].indices), (share.clone(), 40));
        let some = compute(Some(Duration::ZERO));
        assert_eq!((some.partials.grains(), some.work[&3].indices), (Indices::range(2..3), 10));
        compute(None);
        assert_eq!(saved, 3, "what is contributed at once is not saved");
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Count(u64);

    impl ReducerBody for Count {
        fn combine(&mut self, other: Self) {
            self.0 += other.0;
        }
    }

    #[test]
    fn who_has_no_pace_yet_is_as_fast_as_the_others_are_on_average() {
        let ranks = || [0, 2, 5].into_iter().map(Rank);
        assert_eq!(weights(ranks(), &Paces::new()), [1, 1, 1]);
        assert_eq!(weights(ranks(), &Paces::from([(0, 10), (1, 1000), (5, 30)])), [10, 20, 30]);
        assert_eq!(weights(ranks(), &Paces::from([(2, u64::MAX), (5, u64::MAX)])), [u64::MAX; 3]);
    }
}
