//! Reads what the system counts. What it does not have is absent; nothing here fails.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use everfold_locate::load::{DiskRequests, Sample};
use everfold_protocol::ProcessId;
use everfold_storage::job_directory;
use nix::{
    sys::{
        stat::{major, minor, stat},
        statvfs::statvfs,
    },
    time::{ClockId, clock_gettime},
};

/// The counters of this host and of these processes on it.
pub(super) fn read(processes: impl Iterator<Item = (ProcessId, i32)>) -> Sample {
    let times = |(process, pid)| Some((process, times(&text(&format!("/proc/{pid}/schedstat"))?)?));
    Sample {
        cores: text("/proc/stat").and_then(|text| cores(&text)),
        memory_waits: pressure("memory").and_then(|text| waits(&text)),
        disk_waits: pressure("io").and_then(|text| waits(&text)),
        disk_requests: disk_requests(),
        disk_errors: disk_errors(),
        disk: disk(),
        link_errors: text("/proc/self/net/dev").map(|text| link_errors(&text)),
        clock: clock(),
        processes: processes.filter_map(times).collect(),
    }
}

fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn numbers(line: &str) -> impl Iterator<Item = u64> {
    line.split_whitespace().map_while(|word| word.parse().ok())
}

/// Ticks of all cores, and of those the stolen ones.
fn cores(stat: &str) -> Option<(u64, u64)> {
    // user nice system idle iowait irq softirq steal; guest time is in user time.
    let ticks: Vec<u64> = numbers(stat.lines().next()?.strip_prefix("cpu")?).take(8).collect();
    Some((ticks.iter().sum(), *ticks.get(7)?))
}

/// Where groups of processes are, alone or beside those of version 1.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// What the system tells about waiting for memory or disks: of the group of processes to which this one
/// belongs, or else of the machine.
fn pressure(what: &str) -> Option<String> {
    let groups = text("/proc/self/cgroup");
    let of_group = groups
        .as_deref()
        .and_then(group)
        .and_then(|group| GROUPS.iter().find_map(|base| text(&format!("{base}{group}/{what}.pressure"))));
    of_group.or_else(|| text(&format!("/proc/pressure/{what}")))
}

/// The group of this process. The one of all processes is none.
fn group(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::")).filter(|group| *group != "/")
}

/// For how long some task has waited.
fn waits(pressure: &str) -> Option<Duration> {
    let some = pressure.lines().find(|line| line.starts_with("some"))?;
    some.rsplit_once("total=")?.1.trim().parse().ok().map(Duration::from_micros)
}

/// For how long a thread has run, and has waited for a core.
fn times(schedstat: &str) -> Option<(Duration, Duration)> {
    let mut nanoseconds = numbers(schedstat).map(Duration::from_nanos);
    Some((nanoseconds.next()?, nanoseconds.next()?))
}

/// Errors and drops, both ways, of all interfaces but the loopback.
fn link_errors(dev: &str) -> u64 {
    let of = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> = numbers(counts).collect();
        let errors = [2, 3, 10, 11].map(|at| counts.get(at).copied().unwrap_or_default());
        (name.trim() != "lo").then(|| errors.iter().sum::<u64>())
    };
    dev.lines().filter_map(of).sum()
}

/// What the disk has done where replicas go. What has no disk of its own, such as a file system in memory or
/// of a network, has none.
fn disk_requests() -> Option<DiskRequests> {
    let disk = stat(&disk_folder()).ok()?.st_dev;
    let path = format!("/sys/dev/block/{}:{}/stat", major(disk), minor(disk));
    text(&path).and_then(|text| requests(&text))
}

fn requests(stat: &str) -> Option<DiskRequests> {
    // Of reads and of writes: how many, merged, sectors, milliseconds; then those under way, and milliseconds
    // with some.
    let counts: Vec<u64> = numbers(stat).take(10).collect();
    let [reads, _, _, read_ms, writes, _, _, write_ms, _, busy_ms] = counts[..].try_into().ok()?;
    Some(DiskRequests {
        done: reads + writes,
        took: Duration::from_millis(read_ms + write_ms),
        busy: Duration::from_millis(busy_ms),
    })
}

/// Errors that file systems have counted, also before the host was started.
fn disk_errors() -> Option<u64> {
    let count = |entry: fs::DirEntry| {
        fs::read_to_string(entry.path().join("errors_count")).ok()?.trim().parse::<u64>().ok()
    };
    Some(fs::read_dir("/sys/fs/ext4").ok()?.flatten().filter_map(count).sum())
}

/// Where replicas go, or the nearest folder above it that is there.
pub(super) fn disk_folder() -> PathBuf {
    let base = job_directory::base_directory();
    base.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Bytes that are free there, and bytes in all.
fn disk() -> Option<(u64, u64)> {
    let disk = statvfs(&disk_folder()).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
    (disk.blocks() > 0).then(|| (bytes(disk.blocks_available()), bytes(disk.blocks())))
}

/// How far the wall clock is ahead of the one that nobody sets.
fn clock() -> Duration {
    let read = |clock| clock_gettime(clock).map(Duration::from).unwrap_or_default();
    read(ClockId::CLOCK_REALTIME).saturating_sub(read(ClockId::CLOCK_BOOTTIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_shows_is_read() {
        assert_eq!(cores("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"), Some((36, 8)));
        assert_eq!(cores("cpu  1 2\n"), None);
        let pressure = "some avg10=0.00 avg60=0.05 avg300=0.06 total=3596533\nfull avg10=0.00 total=7\n";
        assert_eq!(waits(pressure), Some(Duration::from_micros(3_596_533)));
        assert_eq!(
            requests("  10 2 3 40 5 6 7 80 1 90 100 0 0 0 0 0 0\n"),
            Some(DiskRequests {
                done: 15,
                took: Duration::from_millis(120),
                busy: Duration::from_millis(90)
            })
        );
        assert_eq!(requests("1 2 3"), None);
        assert_eq!(group("4:memory:/x\n0::/jobs/7\n"), Some("/jobs/7"));
        assert_eq!(group("4:memory:/x\n0::/\n"), None);
        assert_eq!(
            times("119207 479946 2\n"),
            Some((Duration::from_nanos(119_207), Duration::from_nanos(479_946)))
        );
        let dev = "Inter-|   Receive\n face |bytes    packets\n    lo: 9 9 9 9 0 0 0 0 9 9 9 9 0 0 0 0\n\
                   eth0: 1 1 2 3 0 0 0 0 1 1 4 5 0 0 0 0\n";
        assert_eq!(link_errors(dev), 14);
    }

    #[test]
    fn this_system_is_read() {
        let me = (ProcessId::first(0), std::process::id() as i32);
        let sample = read([me].into_iter());
        assert!(sample.cores.is_some() && sample.disk.is_some() && sample.link_errors.is_some());
        assert_eq!(sample.processes.len(), 1);
    }
}
