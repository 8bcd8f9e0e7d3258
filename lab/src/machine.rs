//! What a measurement was made on.

use std::{fs::read_to_string, thread, time::Duration};

use serde::Serialize;

/// The machine, as far as it matters for a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub processor: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Version of everfold.
    pub everfold: &'static str,
    /// The command line.
    pub command: String,
    /// Part of the processor time that was in use before the measurement.
    pub busy: f64,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            processor: model.map_or("unknown", |(_, name)| name.trim()).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            everfold: env!("CARGO_PKG_VERSION"),
            command: command_line().join(" "),
            busy: busy(Duration::from_millis(300)),
        }
    }
}

/// The words of our command line. What is not UTF-8 shows as `\u{fffd}`.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Part of the processor time that is in use during some time.
fn busy(during: Duration) -> f64 {
    let (all, idle) = processor_time();
    thread::sleep(during);
    let (all_then, idle_then) = processor_time();
    let (all, idle) = (all_then.saturating_sub(all), idle_then.saturating_sub(idle));
    1.0 - idle as f64 / all.max(1) as f64
}

/// All and idle time of all cores since the start, in ticks.
fn processor_time() -> (u64, u64) {
    let stat = read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default().split_whitespace();
    // User, nice, system, idle, waiting for disks, interrupts, stolen; what guests use is in the first two.
    let ticks: Vec<u64> = first.skip(1).take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    (ticks.iter().sum(), ticks.iter().skip(3).take(2).sum())
}
