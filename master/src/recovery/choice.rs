//! Which recovery is chosen for which fault.

use core::time::Duration;

use serde::{Deserialize, Serialize};

/// What is done about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// The job goes on without the rank.
    Ignore,
    /// The agent of its host starts the rank again.
    Restart,
}

/// The recovery of each fault.
///
/// The detector of repeated faults looks at a death first. If it sees none, the one of process faults does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recoveries {
    /// What is done if a process has ended and its host is well.
    pub process: Recovery,
    /// What is done if processes of one host end again and again.
    pub repeated: Option<Repeated>,
    /// How ranks are started again.
    pub restart: Restart,
}

/// More process faults on one host than its programs explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeated {
    /// With this number of process faults on a host ...
    pub faults: u32,
    /// ... within this time, the next one counts as repeated.
    pub within: Duration,
    /// What is done about it.
    pub recovery: Recovery,
}

/// How ranks are started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// How often a rank is started again in a job.
    pub starts_max: u32,
    /// How often in a row without a contribution to a reduction that the rank had not contributed to before.
    pub fruitless_max: u32,
    /// What the master waits before it starts a rank again that has made no progress since its last start.
    /// The pause doubles each time. A rank that has made progress is started at once.
    pub pause: Duration,
    /// Longest pause.
    pub pause_max: Duration,
    /// How long a process has to join, from when it is to be started. After that its rank is given up.
    pub join_timeout: Duration,
}

impl Recoveries {
    /// The job goes on without ranks whose processes have died.
    pub const IGNORE: Self = Self { process: Recovery::Ignore, repeated: None, restart: Restart::USUAL };
    /// Ranks are started again whose processes have died.
    pub const RESTART: Self = Self { process: Recovery::Restart, ..Self::IGNORE };

    /// Whether ranks may come back.
    pub fn ranks_return(&self) -> bool {
        let repeated = self.repeated.map(|repeated| repeated.recovery);
        [Some(self.process), repeated].contains(&Some(Recovery::Restart))
    }
}

impl Default for Recoveries {
    fn default() -> Self {
        Self::IGNORE
    }
}

impl Restart {
    /// A crash loop ends after some 13 s, and a rank that gets on is started whenever it dies.
    pub const USUAL: Self = Self {
        starts_max: 100,
        fruitless_max: 8,
        pause: Duration::from_millis(100),
        pause_max: Duration::from_secs(10),
        join_timeout: Duration::from_secs(60),
    };

    /// What is waited before a rank is started that was started so often in a row without progress.
    pub fn pause_after(&self, fruitless: u32) -> Duration {
        match fruitless {
            0 => Duration::ZERO,
            _ => self.pause.saturating_mul(1 << (fruitless - 1).min(30)).min(self.pause_max),
        }
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self::USUAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let restart = Restart::USUAL;
        let pauses_ms = [0, 1, 2, 3, 7, 8, 9, u32::MAX].map(|times| restart.pause_after(times).as_millis());
        assert_eq!(pauses_ms, [0, 100, 200, 400, 6400, 10_000, 10_000, 10_000]);
        let endless = Restart { pause: Duration::MAX, pause_max: Duration::MAX, ..restart };
        assert_eq!(endless.pause_after(2), Duration::MAX);
    }
}
