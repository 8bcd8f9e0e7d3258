//! `everfold sim scale`: many more ranks than there are machines.

use std::{
    fs,
    process::ExitCode,
    time::{Duration, Instant},
};

use crate::{
    Failure,
    clock::{cpu_ns, now_ns},
    machine::Machine,
    size,
};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use everfold::Protection;
use everfold_sim::{
    Policy,
    experiment::Experiment,
    model::{Cluster, Preset},
};

/// Simulate one reduction on up to a hundred thousand nodes.
///
/// Simulates one reduction on more and more nodes: the time until the root has the result, beside the bound
/// of the network, and until all ranks have heard of it; the load of the master; and the cost of simulating.
///
/// The second ratio is that of a single master whose messages take no time, so that tasks can be shorter in
/// large groups: where it is much less than the first ratio, the master is the limit.
///
/// The master's times are real: nanoseconds on this machine per message in its code, without sockets and
/// codec. Its load is that time over the simulated one until all have heard.
///
/// Example: everfold sim scale --ranks 200,1k,10k,100k --network hdr
#[derive(Args)]
pub struct Scale {
    /// Numbers of nodes.
    #[arg(long, value_delimiter = ',', default_value = "200,1k,10k,100k", value_parser = thousands)]
    ranks: Vec<u32>,
    /// Size of the bodies.
    #[arg(long, default_value = "8m", value_parser = size::parse)]
    bytes: u64,
    /// The network: 10gbe, 100gbe, hdr or ndr.
    #[arg(long, default_value = "10gbe")]
    network: Preset,
    /// How contributions are protected: none, memory, disk or commit-first.
    #[arg(long, value_name = "LEVEL", default_value = "none")]
    protection: Protection,
    /// Segments that a body is cut into, if they are not shorter than is allowed.
    #[arg(long, default_value_t = Policy::default().segments, value_parser = clap::value_parser!(u64).range(1..))]
    segments: u64,
    /// Number of nodes from which on unprotected reductions work in teams with deputies of the master. 0:
    /// never.
    #[arg(long, default_value_t = Policy::default().limits.teams_from)]
    teams_from: u32,
    /// Ping interval in milliseconds; with pings, late tasks are done twice. 0: neither.
    #[arg(long, default_value_t = 0)]
    ping_ms: u64,
}

/// What came of one number of nodes.
struct Row {
    ranks: u32,
    time_s: f64,
    /// Until all have heard.
    all_s: f64,
    bound_s: f64,
    with_free_master_s: f64,
    messages: u64,
    ns_per_message: f64,
    load: f64,
    master_bytes: u64,
    events: u64,
    cpu_s: f64,
}

impl Scale {
    /// Simulates one number of nodes after the other, and prints a table.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let machine = Machine::here();
        say!("{} ({} cores), everfold {}", machine.processor, machine.cores, machine.everfold)?;
        say!(
            "one reduction of {}, {}, protection {}, {} segments at most",
            size::show(self.bytes),
            self.network,
            self.protection,
            self.segments
        )?;
        let mut rows = Vec::new();
        for &ranks in &self.ranks {
            rows.push(self.measure(ranks)?);
        }
        say!("{}", table(&rows))?;
        say!("peak memory of the simulator: {}", megabytes(peak_bytes()?))?;
        Ok(ExitCode::SUCCESS)
    }

    fn experiment(&self, ranks: u32) -> Experiment {
        let cluster = Cluster { chunk_bytes: 256 << 10, ..Cluster::new(self.network.link()) };
        let mut experiment = Experiment::new(ranks, self.bytes, cluster);
        experiment.protection = self.protection;
        experiment.policy.segments = self.segments;
        experiment.policy.segment_bytes = u64::MAX;
        experiment.policy.limits.teams_from = self.teams_from;
        experiment.policy.limits.ping_interval = Duration::from_millis(self.ping_ms);
        experiment
    }

    fn measure(&self, ranks: u32) -> Result<Row, Failure> {
        let link = self.network.link();
        let mut experiment = self.experiment(ranks);
        (experiment.cluster.master_ns, experiment.cluster.master_frame_ns) = (0.0, 0.0);
        (experiment.policy.task_bytes_per_rank, experiment.policy.partials_max) = (1 << 10, 128 << 10);
        experiment.policy.limits.teams_from = 0;
        let with_free_master_s = seconds(experiment.run().time())?;
        let mut experiment = self.experiment(ranks);
        experiment.stopwatch = Some(now_ns);
        let (started, started_cpu) = (Instant::now(), cpu_ns());
        let mut world = experiment.begin();
        let mut master_bytes = 0;
        let mut look = 1 << 10;
        let calls = u64::from(ranks);
        while world.calls_ended() < calls && world.step() {
            if world.events() >= look {
                // A copy of the master takes as much memory as the master.
                let before = allocated_bytes();
                let copy = world.master().clone();
                master_bytes = master_bytes.max(allocated_bytes().saturating_sub(before));
                drop(copy);
                look = world.events() * 3 / 2;
            }
        }
        let measured = experiment.finish(&mut world);
        let (wall_s, cpu_s) = (started.elapsed().as_secs_f64(), (cpu_ns() - started_cpu) as f64 * 1e-9);
        let time_s = seconds(measured.time())?;
        let all_s = world.now().as_nanos() as f64 * 1e-9;
        let load = world.load();
        let messages = load.received + load.sent;
        // The kernel gives a busy machine's cores to others from time to time; that is not the master's.
        let master_s = world.master_time().as_secs_f64() * (cpu_s / wall_s).min(1.0);
        let depth = f64::from(ranks).log2().ceil();
        Ok(Row {
            ranks,
            time_s,
            all_s,
            with_free_master_s,
            bound_s: (self.bytes as f64 * link.ns_per_byte + depth * link.alpha_ns()) * 1e-9,
            messages,
            ns_per_message: master_s * 1e9 / messages as f64,
            load: master_s / all_s,
            master_bytes,
            events: measured.events,
            cpu_s,
        })
    }
}

fn seconds(time: Option<Duration>) -> Result<f64, Failure> {
    Ok(time.ok_or_else(|| Failure::new("the reduction ended in an error"))?.as_secs_f64())
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "ranks",
        "time",
        "all told",
        "bound",
        "ratio",
        "free master",
        "messages",
        "messages/s",
        "ns/message",
        "master's load",
        "master's memory",
        "events",
        "processor time",
        "events/s",
    ]);
    for row in rows {
        table.add_row([
            row.ranks.to_string(),
            format!("{:.2} ms", row.time_s * 1e3),
            format!("{:.2} ms", row.all_s * 1e3),
            format!("{:.2} ms", row.bound_s * 1e3),
            format!("{:.2}", row.time_s / row.bound_s),
            format!("{:.2}", row.with_free_master_s / row.bound_s),
            row.messages.to_string(),
            format!("{:.0} k", row.messages as f64 / row.all_s / 1e3),
            format!("{:.0}", row.ns_per_message),
            format!("{:.2}", row.load),
            megabytes(row.master_bytes),
            row.events.to_string(),
            format!("{:.2} s", row.cpu_s),
            format!("{:.2} M", row.events as f64 / row.cpu_s / 1e6),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Bytes that this thread's allocations hold.
fn allocated_bytes() -> u64 {
    // SAFETY: it takes nothing and only reads the allocator's own counts.
    let counts = unsafe { libc::mallinfo2() };
    (counts.uordblks + counts.hblkhd) as u64
}

/// Most memory that this process ever had.
fn peak_bytes() -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<u64>().ok());
    Ok(peak.unwrap_or_default() << 10)
}

/// Reads `200` or `10k`: numbers of ranks in powers of 1000.
pub fn thousands(text: &str) -> Result<u32, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.strip_suffix('k') {
        Some(digits) => (digits, 1000),
        None => (lower.as_str(), 1),
    };
    let number = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(factor));
    let number = number.filter(|number| (2..=1_000_000).contains(number));
    number.ok_or_else(|| format!("{text:?} is no number of ranks; write 200 or 10k, between 2 and 1000k"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_ranks_are_read() {
        assert_eq!(["2", "200", "10k", "100K"].map(thousands), [Ok(2), Ok(200), Ok(10_000), Ok(100_000)]);
        for text in ["", "k", "1", "-2", "2m", "5000k", "99999999999"] {
            assert!(thousands(text).is_err(), "{text}");
        }
    }
}
