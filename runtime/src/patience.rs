//! Waiting for others without going to sleep at once.
//!
//! Waking a thread up costs several times as much as a short message. So a thread that waits for something
//! that is likely to come soon *watches*: it gives its core to others for a while and looks in between. Where
//! that was in vain, or where threads with other work keep the cores, it sleeps at once the next few times.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How often a thread yields its core before it sleeps. If no other thread wants the core, this takes about
/// as long as falling asleep and being woken up.
const YIELDS: u32 = 64;

/// How long a thread watches at most, even if others keep its core.
const WATCH: Duration = Duration::from_millis(1);

/// A thread that keeps the core for so long at a time has other work than what is waited for, which is short.
/// Systems give such a thread a time slice of about 3 ms.
pub const SLICE: Duration = Duration::from_micros(1500);

/// However often threads with other work kept the core, one of 2^6 chances is still taken.
const DEAR_MAX: u32 = 6;

/// What has become of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// What it was for has come.
    Came,
    /// It has not come.
    InVain,
    /// A thread with other work kept the core for a time slice.
    Dear,
}

/// Decides whether to watch.
#[derive(Debug)]
pub struct Patience {
    /// However often watching was in vain, one of 2 to the power of this many chances is still taken.
    in_vain_max: u32,
    /// How often in a row watching was not worth the while, up to a limit.
    failures: u32,
    /// How many chances are left out before the next one is taken.
    left_out: u32,
}

impl Patience {
    /// Takes every chance at first.
    pub fn new(in_vain_max: u32) -> Self {
        Self { in_vain_max, failures: 0, left_out: 0 }
    }

    /// Whether to take this chance to watch.
    pub fn takes_chance(&mut self) -> bool {
        let takes = self.left_out == 0;
        self.left_out = self.left_out.saturating_sub(1);
        takes
    }

    /// Takes in what has become of a watch.
    pub fn learn(&mut self, watched: Watched) {
        self.failures = match watched {
            Watched::Came => 0,
            Watched::InVain => (self.failures + 1).min(self.in_vain_max),
            Watched::Dear => (self.failures + 1).min(DEAR_MAX),
        };
        self.left_out = (1 << self.failures) - 1;
    }
}

/// Gives the core to others, who may be about to do what is waited for.
pub fn watch(waits: impl Fn() -> bool) -> Watched {
    watch_by(waits, thread::yield_now, Instant::now)
}

fn watch_by(waits: impl Fn() -> bool, give_way: impl Fn(), clock: impl Fn() -> Instant) -> Watched {
    let started = clock();
    let mut now = started;
    let mut left = YIELDS;
    while waits() {
        if left == 0 || now - started >= WATCH {
            return Watched::InVain;
        }
        give_way();
        let back = clock();
        if back - now >= SLICE {
            return Watched::Dear;
        }
        now = back;
        left -= 1;
    }
    Watched::Came
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How many chances are left out before each of these watches.
    fn left_out<const N: usize>(mut patience: Patience, watched: [Watched; N]) -> [usize; N] {
        watched.map(|watched| {
            let left_out = (0..).take_while(|_| !patience.takes_chance()).count();
            patience.learn(watched);
            left_out
        })
    }

    #[test]
    fn what_was_not_worth_the_while_is_left_out_for_a_while() {
        use Watched::{Came, Dear, InVain};
        let patience = || Patience::new(3);
        assert_eq!(left_out(patience(), [InVain, InVain, InVain, InVain, Came, Came]), [0, 1, 3, 7, 7, 0]);
        assert_eq!(left_out(patience(), [Dear; 8]), [0, 1, 3, 7, 15, 31, 63, 63]);
        assert_eq!(left_out(patience(), [Dear, Dear, Dear, Dear, InVain, Came]), [0, 1, 3, 7, 15, 7]);
        assert_eq!(left_out(Patience::new(0), [InVain, Dear, InVain, InVain]), [0, 0, 1, 0]);
    }

    /// What becomes of watching a round that is complete after `comes_with` yields, if a yield takes `each`.
    fn watched(each: Duration, comes_with: u32) -> Watched {
        let (started, yields) = (Instant::now(), Cell::new(0));
        watch_by(
            || yields.get() < comes_with,
            || yields.set(yields.get() + 1),
            || started + each * yields.get(),
        )
    }

    #[test]
    fn a_watch_ends_with_what_it_is_for_or_after_some_yields() {
        let short = Duration::from_nanos(500);
        assert_eq!(watched(short, 0), Watched::Came);
        assert_eq!(watched(short, YIELDS), Watched::Came);
        assert_eq!(watched(short, YIELDS + 1), Watched::InVain);
        assert_eq!(watched(WATCH / 4, 4), Watched::Came);
        assert_eq!(watched(WATCH / 4, 5), Watched::InVain);
    }

    #[test]
    fn a_watch_is_dear_if_others_keep_the_core_for_a_time_slice() {
        assert_eq!(watched(SLICE, 1), Watched::Dear);
    }
}
