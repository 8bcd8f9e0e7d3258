//! Where a class stands on its ladder, and which rung it tries next.

use smallvec::SmallVec;

use super::rungs::NOTICEABLE;

/// Times of each of the two rungs that a trial compares, at most.
const TIMES: usize = 5;
/// Times of each that are enough to give the other up, if all of the best are shorter.
const FEW: usize = 3;
/// Reductions of a class between two trials: the first number once all neighbours have lost, and each time
/// twice as many, up to the second number.
const PAUSES: (u32, u32) = (32, 1024);

/// The rungs of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct Ladder {
    /// The best so far.
    best: usize,
    trial: Option<Trial>,
    /// Whether the rung above is tried next, or the one below.
    below: bool,
    /// Trials that were lost since the last that was won.
    lost: u32,
    /// Reductions until the next trial.
    rest: u32,
}

/// The best rung and a neighbour take turns.
#[derive(Clone, Debug)]
struct Trial {
    rung: usize,
    /// How many neighbours the best has.
    neighbours: u32,
    /// Of the best and of the other, in nanoseconds for 1024 bytes of a body.
    times: [SmallVec<[u64; TIMES]>; 2],
}

impl Ladder {
    /// Begins on that rung, of `rungs` that there are.
    pub(super) fn new(first: usize, rungs: usize) -> Self {
        let mut ladder = Self { best: first, ..Self::default() };
        ladder.go_on(rungs);
        ladder
    }

    /// The rung for the next reduction, of `rungs` that there are.
    pub(super) fn rung(&self, rungs: usize) -> usize {
        match &self.trial {
            Some(Trial { rung, times: [of_best, of_other], .. })
                if *rung < rungs && of_other.len() < of_best.len() =>
            {
                *rung
            }
            _ => self.best.min(rungs - 1),
        }
    }

    /// Whether it matters how long a reduction on that rung took.
    pub(super) fn awaits(&self, rung: usize) -> bool {
        let is_compared = |trial: &Trial| rung == self.best || rung == trial.rung;
        self.trial.as_ref().is_some_and(is_compared)
    }

    /// Takes in that the next reduction is about to come.
    pub(super) fn go_on(&mut self, rungs: usize) {
        if self.trial.is_none() && self.rest == 0 {
            self.trial = self.next_trial(rungs);
        }
        self.rest = self.rest.saturating_sub(1);
    }

    /// Against the neighbour whose turn it is, or the only one.
    fn next_trial(&self, rungs: usize) -> Option<Trial> {
        let above = Some(self.best + 1).filter(|above| *above < rungs);
        let below = self.best.checked_sub(1);
        let rung = if self.below { below.or(above) } else { above.or(below) }?;
        let neighbours = [above, below].iter().flatten().count() as u32;
        Some(Trial { rung, neighbours, times: Default::default() })
    }

    /// Takes in how long a reduction on that rung took, in nanoseconds for 1024 bytes. `may_pay` says whether
    /// the second of two rungs can be better than the first. Otherwise it is not tried, and the other
    /// neighbour is next.
    pub(super) fn observe(&mut self, rung: usize, ns: u64, may_pay: impl Fn(usize, usize) -> bool) {
        let best = self.best;
        let Some(trial) = &mut self.trial else { return };
        if rung == best && trial.times[1].is_empty() && !may_pay(best, trial.rung) {
            (self.trial, self.below) = (None, !self.below);
            return;
        }
        match rung {
            _ if rung == best => trial.add(0, ns),
            _ if rung == trial.rung => trial.add(1, ns),
            _ => {}
        }
        if let Some(is_won) = trial.is_won() {
            self.end_trial(is_won);
        }
    }

    /// Goes on in the same direction as long as that pays, then in the other, then rests.
    fn end_trial(&mut self, is_won: bool) {
        let Some(Trial { rung, neighbours, .. }) = self.trial.take() else { return };
        if is_won {
            (self.best, self.lost) = (rung, 0);
            return;
        }
        (self.below, self.lost) = (!self.below, self.lost.saturating_add(1));
        let (pause, pause_max) = PAUSES;
        let all_have_lost = self.lost / neighbours;
        let longer = all_have_lost.saturating_sub(1).min(10);
        self.rest = if all_have_lost == 0 { 0 } else { (pause << longer).min(pause_max) };
    }
}

impl Trial {
    fn add(&mut self, which: usize, ns: u64) {
        if self.times[which].len() < TIMES {
            self.times[which].push(ns);
        }
    }

    /// Whether the other rung is better, once that is known.
    fn is_won(&self) -> Option<bool> {
        let [of_best, of_other] = &self.times;
        let enough = if is_shorter(of_best, of_other) { FEW } else { TIMES };
        let has_enough = of_best.len().min(of_other.len()) >= enough;
        let [best, other] = [of_best, of_other].map(|times| u128::from(median(times)));
        let part = u128::from(NOTICEABLE);
        has_enough.then(|| other * part < best * (part - 1))
    }
}

/// Whether all of `these` are shorter than all of `those`.
fn is_shorter(these: &[u64], those: &[u64]) -> bool {
    these.iter().max() < those.iter().min()
}

/// The one in the middle; of an even number the longer one.
fn median(times: &SmallVec<[u64; TIMES]>) -> u64 {
    let mut times = times.clone();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(u64::MAX)
}
