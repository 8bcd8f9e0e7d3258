//! The clock that all processes of a machine share, and times that are given in seconds.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds since some moment before.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Processor time of this thread, in nanoseconds.
pub fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Reads `30` or `0.5`.
///
/// # Errors
/// Words that say how to write a time.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("{text:?} is no number of seconds; write 30 or 0.5"))
}
