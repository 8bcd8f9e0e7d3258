//! How a rank goes through its share of a round, and what it leaves of it.

use alloc::{collections::VecDeque, vec::Vec};
use core::{ops::Range, time::Duration};

use everfold_protocol::Rank;

use crate::{
    Combine,
    grains::Grains,
    ledger::{Left, Rules, Step},
    partials::Partials,
    round::{Round, Work, pace},
};

/// What a rank does after a grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It folds the next grain.
    Fold,
    /// It leaves what it has folded, and folds the next grain.
    Save,
    /// It contributes what it has folded.
    Contribute,
}

/// A rank on its way through its share, grain by grain.
#[derive(Debug)]
pub struct Folding<B> {
    rank: Rank,
    grains: Grains,
    /// What is left to fold, in order.
    rest: VecDeque<Range<u64>>,
    limit: Option<Duration>,
    progress: Option<u64>,
    round: Round<B>,
    folded: u64,
    indices: u64,
    /// Grains since it has left what it had.
    unsaved: u64,
}

impl<B: Combine> Folding<B> {
    /// The way of `rank` through what a step gives it: nothing, if it computes nothing then.
    pub fn new(rank: Rank, step: &Step, rules: Rules, grains: &Grains) -> Self {
        let (share, limit) = match step {
            Step::Compute { shares, limit } => (shares.iter().find(|(of, _)| *of == rank), *limit),
            Step::Salvage(_) => (None, None),
        };
        Self {
            rank,
            grains: grains.clone(),
            rest: share.map(|(_, share)| share.ranges().collect()).unwrap_or_default(),
            limit,
            progress: rules.progress,
            round: Round::nothing(rules.is_fixed),
            folded: 0,
            indices: 0,
            unsaved: 0,
        }
    }

    /// The indices of the next grain, if one is left.
    pub fn grain(&self) -> Option<Range<u64>> {
        self.rest.front().map(|range| self.grains.indices(range.start))
    }

    /// What is folded so far.
    pub fn partials(&self) -> &Partials<B> {
        &self.round.partials
    }

    /// Takes in the value of the next grain, `elapsed` after the first one was begun. A rank that has a share folds one
    /// grain of it at least.
    ///
    /// # Panics
    /// If there is no next grain.
    pub fn fold(&mut self, value: B, elapsed: Duration) -> Next {
        let indices = self.grain().expect("a grain was left");
        let range = self.rest.front_mut().expect("a grain was left");
        let grain = range.start;
        range.start += 1;
        if range.is_empty() {
            self.rest.pop_front();
        }
        self.folded += 1;
        self.indices += indices.end - indices.start;
        self.round.partials.add(grain, value).expect("a share has each grain once");
        if self.rest.is_empty() || self.limit.is_some_and(|limit| elapsed >= limit) {
            return Next::Contribute;
        }
        self.unsaved += 1;
        // What is contributed at once is not left.
        if self.progress.is_none_or(|every| self.unsaved < every) {
            return Next::Fold;
        }
        self.unsaved = 0;
        Next::Save
    }

    /// What it contributes, `elapsed` after the first grain was begun.
    pub fn into_round(mut self, elapsed: Duration) -> Round<B> {
        if self.folded > 0 {
            let work = Work { indices: self.indices, pace: pace(self.folded, elapsed) };
            self.round.work.insert(self.rank.0, work);
        }
        self.round
    }
}

/// What `rank` is to read of others at a step.
pub fn salvages(step: &Step, rank: Rank) -> Vec<&Left> {
    match step {
        Step::Compute { .. } => Vec::new(),
        Step::Salvage(left) => left.iter().filter(|left| left.reader == rank).collect(),
    }
}

impl Left {
    /// Whether what was found is what the rank has left of this share: progress of another round has another `tag`.
    pub fn is_of_round(&self, tag: u64) -> bool {
        tag == self.round as u64
    }

    /// What counts of what was found: `partials` of this share alone, in this order.
    pub fn counts<B: Combine>(
        &self,
        partials: Partials<B>,
        is_fixed: bool,
        grains: &Grains,
    ) -> Option<Round<B>> {
        let is_it = partials.is_of(&self.share, is_fixed);
        is_it.then(|| Round::salvaged(self.of, partials, grains))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::indices::Indices;

    #[derive(Debug)]
    struct Count(u64);

    impl Combine for Count {
        fn combine(&mut self, other: Self) {
            self.0 += other.0;
        }
    }

    /// What rank 3 folds of grains 2 to 5, and how often it leaves what it has.
    fn go(limit: Option<Duration>, progress: Option<u64>) -> (Round<Count>, u64) {
        let grains = Grains::new(0..100, Some(10)).expect("there are indices");
        let share = Indices::range(2..6);
        let step = Step::Compute { shares: [(Rank(3), share)].into(), limit };
        let rules = Rules { progress, ..Rules::default() };
        let (mut folding, mut saved, mut seconds) = (Folding::new(Rank(3), &step, rules, &grains), 0, 0);
        while let Some(indices) = folding.grain() {
            seconds += 1;
            match folding.fold(Count(indices.end - indices.start), Duration::from_secs(seconds)) {
                Next::Fold => {}
                Next::Save => saved += 1,
                Next::Contribute => break,
            }
        }
        (folding.into_round(Duration::from_secs(seconds)), saved)
    }

    #[test]
    fn who_has_taken_too_long_stops_after_a_grain_and_leaves_the_rest() {
        let (all, saved) = go(None, None);
        assert_eq!((all.partials.grains(), all.work[&3].indices), (Indices::range(2..6), 40));
        assert_eq!(saved, 0);
        let (some, _) = go(Some(Duration::ZERO), None);
        assert_eq!((some.partials.grains(), some.work[&3].indices), (Indices::range(2..3), 10));
        let (some, _) = go(Some(Duration::from_millis(1500)), None);
        assert_eq!(some.partials.grains(), Indices::range(2..4));
    }

    #[test]
    fn what_is_contributed_at_once_is_not_saved() {
        assert_eq!([1, 2, 3, 4].map(|every| go(None, Some(every)).1), [3, 1, 1, 0]);
    }

    #[test]
    fn a_rank_without_a_share_contributes_nothing() {
        let grains = Grains::new(0..100, Some(10)).expect("there are indices");
        let rules = Rules::default();
        let step = Step::Compute { shares: [(Rank(3), Indices::range(2..6))].into(), limit: None };
        let folding = Folding::<Count>::new(Rank(4), &step, rules, &grains);
        assert_eq!(folding.grain(), None);
        let round = folding.into_round(Duration::ZERO);
        assert!(round.work.is_empty() && round.partials.grains().is_empty());
    }
}
