//! Limits of a job.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::watch::INTERVALS_MOST;

/// Limits that every part of a job holds to.
///
/// They bound memory: anything over a limit is refused with an error that names it, and never truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest body, in bytes.
    pub body_bytes_max: u64,
    /// Largest body that travels inside its reduction message, in bytes.
    pub inline_bytes_max: u64,
    /// Largest array that may lie on the board of a host, in bytes; 0 for none.
    pub board_bytes_max: u64,
    /// Largest frame, in bytes.
    pub frame_bytes_max: u64,
    /// Most reductions that one rank may have in flight.
    pub reductions_max: u64,
    /// Time between two pings of every process by the master; other times derive from it.
    pub ping_interval: Duration,
    /// Ranks from which on a reduction to one rank between hosts is tried in teams; 0 for never. See
    /// [`team`](crate::team).
    pub teams_from: u32,
    /// Whether ranks come back whose processes have died. Then each rank notes how its reductions end before
    /// its application hears that.
    pub ranks_return: bool,
    /// Most bytes of replicas of vaults that an agent holds; 0 where none are made. With them, ranks come back
    /// on other hosts.
    pub replica_bytes_max: u64,
}

/// Ping intervals for which a read may bring nothing.
const READ_INTERVALS: u32 = 6;

impl Limits {
    /// How long a read of another process's memory may bring nothing before it is given up: longer than a
    /// process that runs is silent, so that its end is mostly noticed before. Zero, without pings: for ever.
    pub fn read_patience(&self) -> Duration {
        self.ping_interval.saturating_mul(READ_INTERVALS)
    }

    /// Longest silence of a process before it is declared failed, however irregularly it was heard before.
    pub fn silence_max(&self) -> Duration {
        self.ping_interval.saturating_mul(INTERVALS_MOST)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 16 << 30,
            inline_bytes_max: 16 << 10,
            board_bytes_max: 512 << 10,
            frame_bytes_max: 64 << 20,
            reductions_max: 65_536,
            ping_interval: Duration::from_millis(500),
            teams_from: 100,
            ranks_return: false,
            replica_bytes_max: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_follow_from_a_long_ping_interval_are_as_long_as_there_are() {
        let limits = Limits { ping_interval: Duration::MAX, ..Limits::default() };
        assert_eq!((limits.read_patience(), limits.silence_max()), (Duration::MAX, Duration::MAX));
    }
}
