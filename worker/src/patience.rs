//! Waiting for others without going to sleep at once.
//!
//! To be woken up costs a thread several times what a short message does. So whoever waits for what may be about to come
//! gives its core to others for a while, and leaves that out for some time after it was in vain.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How often a core is given away at most before its thread sleeps. If nobody wants the core, that takes about as long as to fall
/// asleep and be woken up.
const YIELDS: u32 = 64;

/// How long that takes at most, whoever has the core meanwhile.
const WATCH: Duration = Duration::from_millis(1);

/// Of 2 to the power of this many chances to watch at least one is taken, however many were in vain.
const DOUBLINGS_MAX: u32 = 3;

/// Whether it is worth the while to watch.
#[derive(Debug, Default)]
pub struct Patience {
    /// How often in a row it was in vain.
    in_vain: u32,
    /// How often it is left out now.
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

/// The moments to look whether that has come for which one waits. Before each of them the core is given away.
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
