//! How much a master takes in, or says, before it looks at its timers.
//!
//! Messages are taken in batches: the master makes tasks after a batch, and writes to each worker once. But
//! pings have to go out in time, as workers give up a silent master. So a batch ends after a number of
//! messages, or after a time that is short beside any ping interval.

use core::time::Duration;

use everfold_protocol::Timestamp;

/// Messages after which the master sends its decisions, however many more messages wait.
const MESSAGES_MAX: u32 = 2048;

/// Time after which it does.
const TIME_MAX: Duration = Duration::from_millis(5);

/// The messages that a master has received or sent since it looked at its timers last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Intake {
    messages: u32,
    since: Timestamp,
}

impl Intake {
    /// Takes in that the master has looked at its timers `now`.
    pub fn begin(&mut self, now: Timestamp) {
        *self = Self { messages: 0, since: now };
    }

    /// Counts a message that it turns to `now`. Returns whether it is to look at its timers before the next
    /// one.
    pub fn take(&mut self, now: Timestamp) -> bool {
        self.messages += 1;
        self.messages >= MESSAGES_MAX || now.since(self.since) >= TIME_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages until the master looks, if each takes it this long.
    fn until_it_looks(each: Duration) -> u32 {
        let (mut intake, mut now) = (Intake::default(), Timestamp::ZERO + Duration::from_secs(1));
        intake.begin(now);
        for count in 1.. {
            if intake.take(now) {
                return count;
            }
            now = now + each;
        }
        unreachable!("it looks")
    }

    #[test]
    fn whatever_messages_cost_it_looks_in_time() {
        assert_eq!(until_it_looks(Duration::from_nanos(500)), 2048);
        assert_eq!(until_it_looks(Duration::from_micros(100)), 51);
        assert_eq!(until_it_looks(Duration::from_millis(10)), 2, "not before the first was taken in");
    }
}
