//! Between which hosts reading is slow in comparison with others and with its past, or fails.

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    ProcessId, Rank, TaskId,
    message::{Fault, Task, TaskCounters},
    time::Timestamp,
};

use crate::{
    peers,
    place::{Host, Place},
    symptom::Kind,
};

/// Reads that take so many times the usual time are slow.
pub(super) const SLOW: f64 = 3.0;
/// A link that is slower than in its past is slow only if it takes so many times as long as the quicker links
/// now do: when bodies become longer, or more reads are on their way at once, all links are slower than
/// before.
const BEHIND: f64 = 2.0;
/// Of less that is read without a break the time says nothing about the link.
const BYTES_LEAST: u64 = 64 << 10;
/// So much that was read is a measurement, or less if it took long: over a slow link, little comes.
const MEASURED_BYTES: u64 = 2 * BYTES_LEAST;
const MEASURED_TIME: Duration = Duration::from_millis(100);
/// For how long, and in how many measurements in a row, reads have to be slow. By then it is known whether a
/// host starves, which makes its reads slow, too. A single stall is not enough: of the time that the first
/// measurement took, at most half of this counts.
const SLOW_TIME: Duration = Duration::from_millis(1500);
const SLOW_LEAST: u32 = 2;
/// A measurement that is older says nothing about a link any more.
const LATELY: Duration = Duration::from_secs(2);
/// Share of the past that a measurement forgets.
const FORGET: f64 = 0.02;
/// How many tasks are remembered.
const TASKS_MAX: usize = 4096;

/// What is known of reads between hosts.
#[derive(Debug, Default)]
pub(super) struct Reads {
    tasks: BTreeMap<(ProcessId, TaskId), Reading>,
    pairs: BTreeMap<(Host, Host), Pair>,
}

/// What a task reads, and where.
#[derive(Debug)]
struct Reading {
    reader: Host,
    /// Who owns it, and on which host.
    owners: Vec<(Rank, Host)>,
}

/// What was read without a break. Segments may be short, and many of them on their way at once.
#[derive(Clone, Copy, Debug)]
struct Burst {
    begun: Timestamp,
    ended: Timestamp,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Pair {
    /// What was read since the last look, in the order in which it ended.
    bursts: Vec<Burst>,
    /// How long it took to read what has not been measured, and how much it was.
    took: Duration,
    bytes: u64,
    /// The shortest that was usual.
    usual: Option<f64>,
    /// What was measured last, and when.
    last: Option<(Timestamp, f64)>,
    /// From when on that counts as slow if it is: a read that took a second was slow all the while.
    counts_from: Timestamp,
    /// How many times longer than usual that was.
    ratio: f64,
    /// Since when, and in how many measurements in a row, it was slow.
    slow: Option<(Timestamp, u32)>,
}

impl Pair {
    /// Takes in what was read in that time, up to now.
    fn read(&mut self, now: Timestamp, took: Duration, bytes: u64) {
        let mut burst = Burst { begun: now - took, ended: now, bytes };
        while let Some(before) = self.bursts.pop_if(|before| before.ended >= burst.begun) {
            burst.begun = burst.begun.min(before.begun);
            burst.bytes += before.bytes;
        }
        self.bursts.push(burst);
    }

    /// Measures the mean time per byte if enough was read.
    fn measure(&mut self, now: Timestamp) {
        for burst in self.bursts.drain(..).filter(|burst| burst.bytes >= BYTES_LEAST) {
            self.took += burst.ended.since(burst.begun);
            self.bytes += burst.bytes;
        }
        if self.bytes >= MEASURED_BYTES || self.took >= MEASURED_TIME {
            self.last = Some((now, self.took.as_nanos() as f64 / self.bytes as f64));
            self.counts_from = now - self.took.min(SLOW_TIME / 2);
            (self.took, self.bytes) = (Duration::ZERO, 0);
        }
    }

    fn is_slow(&self, now: Timestamp) -> bool {
        self.slow.is_some_and(|(since, times)| now.since(since) >= SLOW_TIME && times >= SLOW_LEAST)
    }

    /// How many times longer than usual this time is.
    fn to_past(&self, time: f64) -> f64 {
        self.usual.map_or(1.0, |usual| time / usual)
    }

    /// Takes in what was measured last, and how many times longer it was than it should have been.
    fn compare(&mut self, time: f64, ratio: f64) {
        self.ratio = ratio;
        let (since, times) = self.slow.unwrap_or((self.counts_from, 0));
        self.slow = (self.ratio >= SLOW).then_some((since, times + 1));
        let usual = self.usual.map_or(time, |usual| usual + FORGET * (time - usual).max(0.0));
        self.usual = Some(usual.min(time));
    }
}

/// What a failure to read is a symptom of.
pub(super) fn symptom_of(fault: Fault) -> Kind {
    match fault {
        Fault::Unreachable | Fault::Gone => Kind::FailedRead,
        Fault::Damaged | Fault::Torn | Fault::Unfit => Kind::Damaged,
    }
}

impl Reads {
    /// Remembers from which hosts a task reads.
    pub(super) fn handle_task(&mut self, to: ProcessId, task: &Task, homes: &BTreeMap<Rank, Host>) {
        let Some(&reader) = homes.get(&to.rank) else { return };
        let owner = |rank: Rank| homes.get(&rank).map(|host| (rank, *host));
        let owners: Vec<_> = task.sources.iter().filter_map(|source| owner(source.process.rank)).collect();
        let is_remote = owners.iter().any(|(_, host)| *host != reader);
        if is_remote && self.tasks.len() < TASKS_MAX {
            self.tasks.insert((to, task.task), Reading { reader, owners });
        }
    }

    pub(super) fn forget(&mut self, executor: ProcessId, task: TaskId) {
        self.tasks.remove(&(executor, task));
    }

    /// A task is done. What it has read from several hosts at once has shared the way to its reader. How long
    /// the last of them took alone is known, and of the others how long they took at most.
    pub(super) fn handle_done(
        &mut self,
        now: Timestamp,
        executor: ProcessId,
        task: TaskId,
        counters: &TaskCounters,
    ) {
        let Some(Reading { reader, owners }) = self.tasks.remove(&(executor, task)) else { return };
        let bytes = counters.fetched_bytes / owners.len().max(1) as u64;
        let remote: Vec<_> = owners.into_iter().filter(|(_, host)| *host != reader).collect();
        let share = |ns: u64| ns / remote.len().max(1) as u64;
        for (rank, host) in &remote {
            let took_ns = match counters.last.is_none_or(|last| last == *rank) {
                true => share(counters.fetch_ns).max(counters.fetch_ns.saturating_sub(counters.others_ns)),
                false => share(counters.others_ns),
            };
            let pair = self.pairs.entry((*host, reader)).or_default();
            pair.read(now, Duration::from_nanos(took_ns), bytes);
        }
    }

    /// Where reading has been slow for some time, as was seen since the last look, and how many times the
    /// usual time it takes. If all that was read from a host, or by it, of late was slow, it is the host.
    pub(super) fn look(&mut self, now: Timestamp) -> Vec<(Place, f64)> {
        self.pairs.values_mut().for_each(|pair| pair.measure(now));
        let lately = |pair: &Pair| pair.last.filter(|(at, _)| now.since(*at) < LATELY);
        let measured: Vec<((Host, Host), (Timestamp, f64))> =
            self.pairs.iter().filter_map(|(link, pair)| Some((*link, lately(pair)?))).collect();
        let times: Vec<f64> = measured.iter().map(|(_, (_, time))| *time).collect();
        let to_peers = peers::ratios(&times);
        // A link that has not been read since may be slower by now, too.
        let current = measured.iter().filter(|(_, (at, _))| *at == now).map(|(_, (_, time))| *time);
        let quick = quick(current.collect());
        for (index, (link, (at, time))) in measured.iter().enumerate() {
            let Some(pair) = self.pairs.get_mut(link).filter(|_| *at == now) else { continue };
            let is_behind = quick.is_none_or(|quick| *time >= BEHIND * quick);
            let to_past = if is_behind { pair.to_past(*time) } else { 1.0 };
            pair.compare(*time, to_peers.as_ref().map_or(to_past, |ratios| ratios[index].max(to_past)));
        }
        let is_new = |link: &(Host, Host)| {
            self.pairs.get(link).is_some_and(|pair| pair.last.is_some_and(|(at, _)| at == now))
        };
        let measured: Vec<(Host, Host)> = measured.into_iter().map(|(link, _)| link).collect();
        let slow = |link: &(Host, Host)| {
            let pair = self.pairs.get(link).filter(|pair| pair.is_slow(now))?;
            Some((*link, pair.ratio))
        };
        let mut slow: BTreeMap<(Host, Host), f64> = measured.iter().filter_map(slow).collect();
        let mut found = Vec::new();
        for host in suspects(&slow, &measured) {
            let of_host = || slow.iter().filter(|((from, to), _)| [*from, *to].contains(&host));
            if of_host().any(|(link, _)| is_new(link)) {
                let worst = of_host().map(|(_, ratio)| *ratio).fold(0.0, f64::max);
                found.push((Place::Host(host), worst));
            }
            slow.retain(|(from, to), _| ![*from, *to].contains(&host));
        }
        let links = slow.into_iter().filter(|(link, _)| is_new(link));
        found.extend(links.map(|((from, to), ratio)| (Place::Link { from, to }, ratio)));
        found
    }
}

/// The time per byte in which at least a quarter of the links read.
fn quick(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    (times.len() >= peers::PEERS_LEAST).then(|| times[(times.len() - 1) / 4])
}

/// Hosts of which several links are slow, and none that was measured is not.
fn suspects(slow: &BTreeMap<(Host, Host), f64>, measured: &[(Host, Host)]) -> Vec<Host> {
    let of = |host: Host| move |link: &(Host, Host)| link.0 == host || link.1 == host;
    let mut hosts: Vec<Host> = slow.keys().flat_map(|(from, to)| [*from, *to]).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.retain(|&host| {
        let count = slow.keys().filter(|link| of(host)(link)).count();
        let all = measured.iter().filter(|link| of(host)(link)).count();
        count > 1 && count == all
    });
    hosts
}
