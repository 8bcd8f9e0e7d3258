//! Where a class stands on its ladder, and which rung it tries next.

use smallvec::SmallVec;

/// Times of each of the two rungs that a trial compares.
const TIMES: usize = 5;
/// Times of each that are enough if all of one rung are far shorter than all of the other.
const FEW: usize = 3;
/// A rung is better if it takes less than this part of the time, in sixteenths.
const BETTER: u128 = 15;
/// Reductions of a class between two trials: the first number once both neighbours have lost, and each time
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
    /// Of the best and of the other, in nanoseconds for 1024 bytes of a body.
    times: [SmallVec<[u64; TIMES]>; 2],
}

impl Ladder {
    /// The rung for the next reduction, of `rungs` that there are.
    pub(super) fn rung(&self, rungs: usize) -> usize {
        match &self.trial {
            Some(Trial { rung, times: [of_best, of_other] })
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
            self.trial = self.neighbour(rungs).map(|rung| Trial { rung, times: Default::default() });
        }
        self.rest = self.rest.saturating_sub(1);
    }

    /// The rung that is tried next: the other neighbour if there is none there.
    fn neighbour(&mut self, rungs: usize) -> Option<usize> {
        let above = Some(self.best + 1).filter(|above| *above < rungs);
        let below = self.best.checked_sub(1);
        match self.below {
            false => above.or(below),
            true => below.or(above),
        }
    }

    /// Takes in how long a reduction on that rung took, in nanoseconds for 1024 bytes.
    pub(super) fn observe(&mut self, rung: usize, ns: u64) {
        let best = self.best;
        let Some(trial) = &mut self.trial else { return };
        match rung {
            _ if rung == best => trial.add(0, ns),
            _ if rung == trial.rung => trial.add(1, ns),
            _ => {}
        }
        if let Some(is_won) = trial.is_won() {
            let rung = trial.rung;
            self.end_trial(is_won.then_some(rung));
        }
    }

    /// Goes on in the same direction as long as that pays, then in the other, then rests.
    fn end_trial(&mut self, won: Option<usize>) {
        self.trial = None;
        match won {
            Some(rung) => (self.best, self.lost) = (rung, 0),
            None => {
                (self.below, self.lost) = (!self.below, self.lost.saturating_add(1));
                let (pause, pause_max) = PAUSES;
                let longer = (self.lost / 2).saturating_sub(1).min(10);
                self.rest = if self.lost < 2 { 0 } else { (pause << longer).min(pause_max) };
            }
        }
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
        if is_far_shorter(of_other, of_best) {
            return Some(true);
        }
        if is_far_shorter(of_best, of_other) {
            return Some(false);
        }
        let [best, other] = self.times.each_ref().map(median);
        Some(u128::from(other?) * 16 < u128::from(best?) * BETTER)
    }
}

/// Whether the longest of `these` is less than two thirds of the shortest of `those`.
fn is_far_shorter(these: &[u64], those: &[u64]) -> bool {
    let (longest, shortest) = (these.iter().max(), those.iter().min());
    these.len().min(those.len()) >= FEW
        && longest.zip(shortest).is_some_and(|(longest, shortest)| longest / 2 < shortest / 3)
}

/// The one in the middle, once all are there.
fn median(times: &SmallVec<[u64; TIMES]>) -> Option<u64> {
    let mut times = times.clone();
    times.sort_unstable();
    times.get(TIMES / 2).copied().filter(|_| times.len() == TIMES)
}
