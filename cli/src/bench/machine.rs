//! What a measurement was made on.

use std::fs::read_to_string;

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
    /// Processes that wanted to run in the last minute, on average.
    pub load: f64,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let loadavg = read_to_string("/proc/loadavg").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            processor: model.map_or("unknown", |(_, name)| name.trim()).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            everfold: env!("CARGO_PKG_VERSION"),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            load: loadavg.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }
}
