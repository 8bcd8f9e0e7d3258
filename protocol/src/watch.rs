//! Whether the other end of a connection is silent (DR-8).
//!
//! Everything heard is a sign of life; pings make sure that there is something to hear in every interval. How
//! long a silence has to last before it counts follows from the interval and from how unevenly signs came so
//! far. An observer that was itself not running has no right to call others silent: what it slept through is
//! forgiven.

use core::time::Duration;

use crate::time::Timestamp;

/// Intervals of silence that count at least.
const INTERVALS_LEAST: u32 = 3;
/// Intervals of silence that count in any case.
pub const INTERVALS_MOST: u32 = 20;
/// How many mean deviations beyond an interval are still nothing unusual.
const DEVIATIONS: u32 = 2;

/// Watches one process.
#[derive(Clone, Debug)]
pub struct Watch {
    interval: Duration,
    heard: Timestamp,
    /// Mean of how much later than after an interval signs came, smoothed.
    lateness: Duration,
}

impl Watch {
    /// Begins to watch a process that should be heard every `interval`.
    pub fn new(now: Timestamp, interval: Duration) -> Self {
        Self { interval, heard: now, lateness: Duration::ZERO }
    }

    /// Takes in a sign of life.
    pub fn hear(&mut self, now: Timestamp) {
        let late = now.since(self.heard).saturating_sub(self.interval);
        // A latecomer counts at once and is forgotten slowly.
        let remembered = self.lateness - self.lateness / 16;
        self.lateness = remembered.max(late);
        self.heard = now;
    }

    /// Forgives `asleep` of silence, during which the observer did not run. What it has heard since it runs
    /// again needs no forgiveness.
    pub fn forgive(&mut self, now: Timestamp, asleep: Duration) {
        self.heard = now.min(self.heard + asleep);
    }

    /// When the silence will have lasted too long.
    pub fn due(&self) -> Timestamp {
        let usual = self.interval * INTERVALS_LEAST + self.lateness.saturating_mul(DEVIATIONS);
        self.heard + usual.min(self.interval * INTERVALS_MOST)
    }

    /// How long nothing was heard.
    pub fn silence(&self, now: Timestamp) -> Duration {
        now.since(self.heard)
    }
}

/// Notices when the observer itself did not run.
#[derive(Clone, Copy, Debug)]
pub struct Alarm {
    interval: Duration,
    due: Timestamp,
}

impl Alarm {
    /// Rings every `interval`, first after one.
    pub fn new(now: Timestamp, interval: Duration) -> Self {
        Self { interval, due: now + interval }
    }

    /// When it rings next.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// If it is time: sets the alarm again and tells how much too late it was noticed, if that was more than
    /// a scheduler's usual whim. Messages of that time may still wait unread.
    pub fn ring(&mut self, now: Timestamp) -> Option<Duration> {
        if now < self.due {
            return None;
        }
        let late = now.since(self.due);
        self.due = now + self.interval;
        Some(if late > self.interval / 8 { late } else { Duration::ZERO })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_regular_process_may_be_silent_for_three_intervals() {
        let mut watch = Watch::new(at(0), INTERVAL);
        for time in (100..=1000).step_by(100) {
            watch.hear(at(time));
        }
        assert_eq!(watch.due(), at(1300));
    }

    #[test]
    fn an_irregular_process_is_given_more_time_and_regains_trust() {
        let mut watch = Watch::new(at(0), INTERVAL);
        watch.hear(at(250));
        assert_eq!(watch.due(), at(250 + 300 + 2 * 150));
        for time in (350..=20_050).step_by(100) {
            watch.hear(at(time));
        }
        assert!(watch.due() < at(20_050 + 301));
        watch.hear(at(30_000));
        assert_eq!(watch.due(), at(30_000 + 2000), "but not for ever");
    }

    #[test]
    fn an_observer_that_slept_doubts_itself() {
        let mut watch = Watch::new(at(0), INTERVAL);
        let mut alarm = Alarm::new(at(0), INTERVAL);
        assert_eq!(alarm.ring(at(99)), None);
        assert_eq!(alarm.ring(at(105)), Some(Duration::ZERO));
        let asleep = alarm.ring(at(2205)).unwrap();
        assert_eq!(asleep, Duration::from_millis(2000));
        watch.forgive(at(2205), asleep);
        assert!(watch.due() > at(2205));
    }

    #[test]
    fn who_was_heard_after_the_sleep_is_given_no_more_time() {
        let mut watch = Watch::new(at(0), INTERVAL);
        watch.hear(at(2205));
        let due = watch.due();
        watch.forgive(at(2205), Duration::from_millis(2000));
        assert_eq!(watch.due(), due);
    }
}
