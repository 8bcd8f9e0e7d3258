//! Between which hosts reading is slow in comparison with others and with its past, or fails.

use alloc::{collections::BTreeMap, vec::Vec};

use everfold_protocol::{
    ProcessId, Rank, TaskId,
    message::{Fault, Task, TaskCounters},
};

use crate::{
    peers,
    place::{Host, Place},
    symptom::Kind,
};

/// Reads that take so many times the usual time are slow.
pub(super) const SLOW: f64 = 3.0;
/// Of shorter reads the time says nothing about the link.
const BYTES_LEAST: u64 = 64 << 10;
/// How many reads of a pair between two looks are a measurement.
const READS_LEAST: u32 = 2;
/// In how many looks in a row reads have to be slow. By then it is known whether a host starves, which makes its reads slow, too.
const SLOW_LOOKS: u32 = 4;
/// Share of the past that a look without news forgets.
const FORGET: f64 = 0.02;
/// How many tasks are remembered.
const TASKS_MAX: usize = 4096;

/// What is known of reads between hosts.
#[derive(Debug, Default)]
pub(super) struct Reads {
    tasks: BTreeMap<(ProcessId, TaskId), (Host, Host)>,
    pairs: BTreeMap<(Host, Host), Pair>,
}

#[derive(Debug, Default)]
struct Pair {
    /// Nanoseconds per byte since the last look, and of how many reads.
    sum: f64,
    reads: u32,
    /// The shortest that was usual.
    usual: Option<f64>,
    /// In how many looks in a row it was slow.
    slow: u32,
}

/// What a failure to read is a symptom of.
pub(super) fn symptom_of(fault: Fault) -> Kind {
    match fault {
        Fault::Unreachable | Fault::Gone => Kind::FailedRead,
        Fault::Damaged | Fault::Torn | Fault::Unfit => Kind::Damaged,
    }
}

impl Reads {
    /// Remembers from which host a task reads, if it is one, and another one than that of its executor.
    pub(super) fn handle_task(&mut self, to: ProcessId, task: &Task, homes: &BTreeMap<Rank, Host>) {
        let Some(&reader) = homes.get(&to.rank) else { return };
        let owners = task.sources.iter().filter_map(|source| homes.get(&source.process.rank).copied());
        let mut owners: Vec<Host> = owners.filter(|owner| *owner != reader).collect();
        owners.dedup();
        if let ([owner], true) = (&owners[..], self.tasks.len() < TASKS_MAX) {
            self.tasks.insert((to, task.task), (*owner, reader));
        }
    }

    pub(super) fn forget(&mut self, executor: ProcessId, task: TaskId) {
        self.tasks.remove(&(executor, task));
    }

    /// A task is done.
    pub(super) fn handle_done(&mut self, executor: ProcessId, task: TaskId, counters: &TaskCounters) {
        let Some(link) = self.tasks.remove(&(executor, task)) else { return };
        if counters.fetched_bytes >= BYTES_LEAST {
            let pair = self.pairs.entry(link).or_default();
            pair.sum += counters.fetch_ns as f64 / counters.fetched_bytes as f64;
            pair.reads += 1;
        }
    }

    /// Where reading has been slow for some time, and how many times the usual time it takes. If all that was read from a host, or
    /// by it, was slow, it is the host.
    pub(super) fn look(&mut self) -> Vec<(Place, f64)> {
        let measured: Vec<((Host, Host), f64)> = self.measure();
        let times: Vec<f64> = measured.iter().map(|(_, time)| *time).collect();
        let to_peers = peers::ratios(&times);
        let mut slow: BTreeMap<(Host, Host), f64> = BTreeMap::new();
        for (index, &(link, time)) in measured.iter().enumerate() {
            let Some(pair) = self.pairs.get_mut(&link) else { continue };
            let to_past = pair.usual.map_or(1.0, |usual| time / usual);
            let ratio = to_peers.as_ref().map_or(to_past, |ratios| ratios[index].max(to_past));
            pair.slow = if ratio >= SLOW { pair.slow + 1 } else { 0 };
            if pair.slow >= SLOW_LOOKS {
                slow.insert(link, ratio);
            }
            let usual = pair.usual.map_or(time, |usual| usual + FORGET * (time - usual).max(0.0));
            pair.usual = Some(usual.min(time));
        }
        let mut found = Vec::new();
        for host in suspects(&slow, &measured) {
            let worst =
                slow.iter().filter(|((from, to), _)| [*from, *to].contains(&host)).map(|(_, ratio)| *ratio);
            found.push((Place::Host(host), worst.fold(0.0, f64::max)));
            slow.retain(|(from, to), _| ![*from, *to].contains(&host));
        }
        found.extend(slow.into_iter().map(|((from, to), ratio)| (Place::Link { from, to }, ratio)));
        found
    }

    /// The mean time per byte of each pair that was read often enough since the last look.
    fn measure(&mut self) -> Vec<((Host, Host), f64)> {
        let mut measured = Vec::new();
        for (link, pair) in &mut self.pairs {
            if pair.reads >= READS_LEAST {
                measured.push((*link, pair.sum / f64::from(pair.reads)));
                (pair.sum, pair.reads) = (0.0, 0);
            }
        }
        measured
    }
}

/// Hosts of which several links are slow, and none that was measured is not.
fn suspects(slow: &BTreeMap<(Host, Host), f64>, measured: &[((Host, Host), f64)]) -> Vec<Host> {
    let of = |host: Host| move |link: &(Host, Host)| link.0 == host || link.1 == host;
    let mut hosts: Vec<Host> = slow.keys().flat_map(|(from, to)| [*from, *to]).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.retain(|&host| {
        let count = slow.keys().filter(|link| of(host)(link)).count();
        let all = measured.iter().filter(|(link, _)| of(host)(link)).count();
        count > 1 && count == all
    });
    hosts
}
