//! For how long something was tried in vain, and how long to pause before the next try.
//!
//! A process tries again to reach an owner for longer than any silence is tolerated. Tries get rarer the
//! longer they last, so that a large group with hosts that are cut off from each other does not keep the
//! master busy.

use core::time::Duration;

use everfold_protocol::Timestamp;

/// How long a process that could not be reached is left alone at least. The end of its connection, if it
/// died, comes within milliseconds.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// How long at most: what heals is noticed after so much time.
const PAUSE_MAX: Duration = Duration::from_millis(160);

/// A pause is this part of the time that was tried before it.
const PART: u32 = 8;

/// The time for which something was tried in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeTried {
    taken: Duration,
    /// Up to when it was counted; `None` before the first try.
    counted: Option<Timestamp>,
}

impl TimeTried {
    /// Counts from `now` on, if nothing was counted yet.
    pub fn begin(&mut self, now: Timestamp) {
        self.counted.get_or_insert(now);
    }

    /// Takes in that a try came to nothing. `read`: how long it takes at most.
    pub fn again(&mut self, now: Timestamp, read: Duration) {
        // While the master sleeps, no process tries.
        let most = read + self.pause() * 2;
        self.taken += self.counted.map_or(Duration::ZERO, |counted| now.since(counted).min(most));
        self.counted = Some(now);
    }

    /// How long to wait before the next try.
    pub fn pause(&self) -> Duration {
        (self.taken / PART).clamp(RETRY_PAUSE, PAUSE_MAX)
    }

    /// Whether it was tried for longer than `most`.
    pub fn exceeds(&self, most: Duration) -> bool {
        self.taken > most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Duration = Duration::from_millis(5);

    #[test]
    fn tries_get_rarer() {
        let (mut tried, mut now, mut tries) = (TimeTried::default(), Timestamp::ZERO, 0);
        tried.begin(now);
        while !tried.exceeds(Duration::from_secs(20)) {
            assert!(tried.pause() <= now.since(Timestamp::ZERO).max(RETRY_PAUSE));
            now = now + tried.pause() + READ;
            tried.again(now, READ);
            tries += 1;
        }
        assert!((100..200).contains(&tries), "{tries} tries");
        assert!(now.since(Timestamp::ZERO) < Duration::from_secs(21), "{now:?}");
    }

    #[test]
    fn time_in_which_the_master_sleeps_does_not_count() {
        let mut tried = TimeTried::default();
        tried.begin(Timestamp::ZERO);
        tried.again(Timestamp::ZERO + Duration::from_secs(3600), READ);
        assert!(!tried.exceeds(READ + RETRY_PAUSE * 2));
    }
}
