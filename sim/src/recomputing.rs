//! A recovery segment on many ranks: what it takes in virtual time, also when a rank dies in it.
//!
//! Shares, rounds and progress are those of real jobs ([`Ledger`], [`Folding`]). All ranks fold equally fast,
//! and each round ends in an allreduce that takes as long as the caller says.
//!
//! Deliberately absent: networks and messages. [`Experiment`](crate::experiment::Experiment) tells what an
//! allreduce takes.

use std::time::Duration;

use everfold_protocol::{Path, Rank, report::Report};
use everfold_segment::{
    Combine,
    folding::{Folding, Next, salvages},
    grains::Grains,
    ledger::{Ledger, Rules, Step},
    partials::Partials,
    round::Round,
};

/// The rank that dies.
const VICTIM: Rank = Rank(1);

/// A loop over grains with an allreduce at its end.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    /// Number of grains.
    pub grains: u64,
    /// What a rank takes for one of them.
    pub grain_s: f64,
    /// What the allreduce takes.
    pub reduce_s: f64,
}

/// A death in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// How much of its share the rank has folded by then: 0 to 1.
    pub folded: f64,
    /// After how many grains it had left its progress each time.
    pub progress: Option<u64>,
}

impl Loop {
    /// Seconds until all ranks that live have the value, if all begin together.
    ///
    /// # Panics
    /// If there are no ranks, or no rank but one that dies.
    pub fn seconds(&self, ranks: u32, death: Option<Death>) -> f64 {
        let rules = Rules { progress: death.and_then(|death| death.progress), ..Rules::default() };
        let grains = Grains::new(0..self.grains, Some(1)).expect("there are grains");
        let ledger = Ledger::new(&Path::range(0, ranks), grains.clone(), rules);
        Run { all: self, grains, rules, ledger, living: (0..ranks).map(Rank).collect(), left: None }
            .finish(death)
    }
}

/// A value that nobody looks at.
#[derive(Clone, Debug)]
struct Nothing;

impl Combine for Nothing {
    fn combine(&mut self, _: Self) {}
}

/// Ranks on their way through a segment.
struct Run<'a> {
    all: &'a Loop,
    grains: Grains,
    rules: Rules,
    ledger: Ledger<Nothing>,
    living: Vec<Rank>,
    /// What the rank that has died has left.
    left: Option<Partials<Nothing>>,
}

impl Run<'_> {
    fn finish(mut self, mut death: Option<Death>) -> f64 {
        let mut seconds = 0.0;
        loop {
            let step = self.ledger.step();
            if let Some(death) = death.take() {
                self.living.retain(|rank| *rank != VICTIM);
                self.left = self.die(&step, death);
            }
            let (round, longest_s) = self.round(&step);
            seconds += longest_s + self.all.reduce_s;
            let contributors = self.living.iter().copied().collect();
            let report = Report { contributors, ..Report::default() };
            let entered = self.ledger.enter(&step, round, report);
            if entered.expect("each grain is folded once, and ranks are left").is_some() {
                return seconds;
            }
        }
    }

    /// What the ranks that live contribute to a round, and what the slowest of them takes for that.
    fn round(&mut self, step: &Step) -> (Round<Nothing>, f64) {
        let (mut all, mut longest_s) = (Round::nothing(self.rules.is_fixed), 0.0f64);
        for &rank in &self.living {
            let (mut folding, mut seconds) = (self.folding(rank, step), 0.0);
            while folding.grain().is_some() {
                seconds += self.all.grain_s;
                folding.fold(Nothing, Duration::from_secs_f64(seconds));
            }
            all.combine(folding.into_round(Duration::from_secs_f64(seconds)));
            for left in salvages(step, rank) {
                let found = self.left.take();
                let counts = found.and_then(|it| left.counts(it, self.rules.is_fixed, &self.grains));
                counts.into_iter().for_each(|it| all.combine(it));
            }
            longest_s = longest_s.max(seconds);
        }
        (all, longest_s)
    }

    fn folding(&self, rank: Rank, step: &Step) -> Folding<Nothing> {
        Folding::new(rank, step, self.rules, &self.grains)
    }

    /// What the victim has left when it dies.
    fn die(&self, step: &Step, death: Death) -> Option<Partials<Nothing>> {
        let Step::Compute { shares, .. } = step else { return None };
        let share = shares.iter().find(|(rank, _)| *rank == VICTIM)?.1.count();
        let (mut folding, mut left) = (self.folding(VICTIM, step), None);
        for _ in 0..(share as f64 * death.folded) as u64 {
            if folding.fold(Nothing, Duration::ZERO) == Next::Save {
                left = Some(folding.partials().clone());
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: Loop = Loop { grains: 1 << 12, grain_s: 1e-3, reduce_s: 1e-5 };

    #[test]
    fn a_death_costs_one_part_in_n_less_one_of_a_share_and_an_allreduce() {
        for ranks in [2, 4, 8, 64] {
            let alone = LOOP.seconds(ranks, None);
            let share_s = 1e-3 * f64::from(1 << 12) / f64::from(ranks);
            assert!((alone - share_s - 1e-5).abs() < 1e-9, "{ranks} ranks: {alone}");
            let with = |progress| LOOP.seconds(ranks, Some(Death { folded: 0.5, progress })) - alone;
            // One rank has one grain more than another.
            let others = f64::from(ranks - 1);
            assert!((with(None) - share_s / others - 1e-5).abs() <= 1.001e-3, "{ranks} ranks");
            // The round in which the progress is read ends in one more.
            assert!((with(Some(1)) - share_s / 2.0 / others - 2e-5).abs() <= 2.001e-3, "{ranks} ranks");
        }
    }
}
