//! Waiting for others without going to sleep at once.
//!
//! Waking a thread up costs several times as much as a short message. So a thread that waits for something
//! that is likely to come soon *watches*: it gives its core to others for a while and looks in between. After
//! watching in vain it sleeps at once for the next few times.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How often a thread yields its core before it sleeps. If no other thread wants the core, this takes about
/// as long as falling asleep and being woken up.
const YIELDS: u32 = 64;

/// How long a thread watches at most, even if others keep its core.
const WATCH: Duration = Duration::from_millis(1);

/// After repeated failures, a thread still watches at least once in 2^3 chances.
const DOUBLINGS_MAX: u32 = 3;

/// Decides whether to watch.
#[derive(Debug, Default)]
pub struct Patience {
    /// How often in a row watching was in vain.
    in_vain: u32,
    /// How many chances are left out before the next one is taken.
    left_out: u32,
}

impl Patience {
    /// Whether to take this chance to watch.
    pub fn takes_chance(&mut self) -> bool {
        let takes = self.left_out == 0;
        self.left_out = self.left_out.saturating_sub(1);
        takes
    }

    /// Takes in whether watching was in vain.
    pub fn learn(&mut self, in_vain: bool) {
        self.in_vain = if in_vain { (self.in_vain + 1).min(DOUBLINGS_MAX) } else { 0 };
        self.left_out = (1 << self.in_vain) - 1;
    }
}

/// Yields the core, once per item, until the budget is spent. The caller looks after each item.
pub fn looks() -> impl Iterator<Item = ()> {
    let started = Instant::now();
    (0..YIELDS).take_while(move |_| started.elapsed() < WATCH).map(|_| thread::yield_now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_vain_is_left_out_for_a_while() {
        let mut patience = Patience::default();
        let mut chances_until_taken = |in_vain| {
            let left_out = (0..).take_while(|_| !patience.takes_chance()).count();
            patience.learn(in_vain);
            left_out
        };
        let waits = [true, true, true, true, true, false, false].map(&mut chances_until_taken);
        assert_eq!(waits, [0, 1, 3, 7, 7, 7, 0]);
        assert!(looks().count() as u32 <= YIELDS);
    }
}
