//! A host's counters: the symptoms in them, and the answers to probes of its state.
//!
//! Counters only grow. What counts is how much they have grown since the last sample, so the first one says
//! nothing.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::time::Duration;

use everfold_protocol::{ProcessId, Rank, time::Timestamp};

use crate::{
    place::{Host, Place},
    probe::Reading,
    symptom::{Kind, Symptom},
};

/// Counters of a host at one time. What its system does not have is absent.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Time of all cores, and of that taken by other virtual machines, in ticks.
    pub cores: Option<(u64, u64)>,
    /// For how long some task has waited for memory.
    pub memory_waits: Option<Duration>,
    /// For how long some task has waited for a disk.
    pub disk_waits: Option<Duration>,
    /// What the disk has done where everfold keeps replicas.
    pub disk_requests: Option<DiskRequests>,
    /// Errors of disks, also those from before the job.
    pub disk_errors: Option<u64>,
    /// Bytes that are free where everfold keeps replicas, and bytes in all.
    pub disk: Option<(u64, u64)>,
    /// Errors and drops of all interfaces but the loopback.
    pub link_errors: Option<u64>,
    /// How far the wall clock is ahead of one that nobody sets.
    pub clock: Duration,
    /// Of each process of the job: for how long its main thread has run, and has waited for a core.
    pub processes: BTreeMap<ProcessId, (Duration, Duration)>,
}

/// Requests that a disk has done since it was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskRequests {
    /// How many.
    pub done: u64,
    /// How long they took, added up.
    pub took: Duration,
    /// For how long the disk had any to do.
    pub busy: Duration,
}

const STEAL: f64 = 0.1;
const MEMORY_PRESSURE: f64 = 0.2;
/// From how many of the latest samples the host answers with the most, as tasks wait for memory in fits and
/// starts.
const MEMORY_SAMPLES: usize = 3;
const DISK_SLOW: f64 = 0.6;
/// The mean time of a request, in seconds. A disk that had something to do for most of the time and has done
/// nothing is as late.
const DISK_LATE: f64 = 0.05;
const DISK_STUCK: f64 = 0.8;
/// A disk with less than this share left is full. Of a large disk, this share of [`DISK_BYTES`] is enough.
const DISK_FREE: f64 = 0.01;
const DISK_BYTES: u64 = 100 << 30;
const LINK_ERRORS: f64 = 10.0;
const CLOCK_JUMP: Duration = Duration::from_millis(500);
/// Processes that want a core for less than this share of the time do not starve.
const WANTED_LEAST: f64 = 0.1;

/// Follows the counters of one host.
#[derive(Debug)]
pub struct Load {
    me: Host,
    last: Option<(Timestamp, Sample)>,
    /// Errors of disks in the first sample that had them: file systems keep theirs when the host restarts.
    old_disk_errors: Option<u64>,
    starved: f64,
    steal: f64,
    computes: BTreeMap<Rank, f64>,
    /// The latest first.
    memory_pressure: VecDeque<f64>,
}

impl Load {
    /// Of host `me`.
    pub fn new(me: Host) -> Self {
        Self {
            me,
            last: None,
            old_disk_errors: None,
            starved: 0.0,
            steal: 0.0,
            computes: BTreeMap::new(),
            memory_pressure: VecDeque::new(),
        }
    }

    /// Takes a sample. Returns what is over its threshold.
    pub fn handle_sample(&mut self, now: Timestamp, sample: Sample) -> Vec<Symptom> {
        self.old_disk_errors = self.old_disk_errors.or(sample.disk_errors);
        let Some((then, before)) = self.last.replace((now, sample.clone())) else { return Vec::new() };
        let seconds = now.since(then).as_secs_f64();
        if seconds == 0.0 {
            return Vec::new();
        }
        self.follow_processes(&before, &sample, seconds);
        let share = |now: Option<Duration>, then: Option<Duration>| {
            Some(now?.saturating_sub(then?).as_secs_f64() / seconds)
        };
        let steal = before.cores.zip(sample.cores).map(|((all, steal), (all_now, steal_now))| {
            steal_now.saturating_sub(steal) as f64 / all_now.saturating_sub(all).max(1) as f64
        });
        self.steal = steal.unwrap_or(0.0);
        let memory = share(sample.memory_waits, before.memory_waits);
        self.memory_pressure.push_front(memory.unwrap_or(0.0));
        self.memory_pressure.truncate(MEMORY_SAMPLES);
        let grown = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?) as f64);
        let requests = before.disk_requests.zip(sample.disk_requests);
        let jump = sample.clock.abs_diff(before.clock);
        let values = [
            (Kind::Steal, steal, STEAL),
            (Kind::MemoryPressure, memory, MEMORY_PRESSURE),
            (Kind::DiskSlow, share(sample.disk_waits, before.disk_waits), DISK_SLOW),
            (Kind::DiskLate, requests.and_then(|(before, now)| late(before, now, seconds)), DISK_LATE),
            (Kind::DiskError, grown(sample.disk_errors, before.disk_errors), 1.0),
            (Kind::DiskFull, sample.disk.map(|disk| 1.0 - free(disk)), 1.0 - DISK_FREE),
            (
                Kind::LinkErrors,
                grown(sample.link_errors, before.link_errors).map(|it| it / seconds),
                LINK_ERRORS,
            ),
            (Kind::ClockJump, Some(jump.as_secs_f64()), CLOCK_JUMP.as_secs_f64()),
        ];
        let is_over =
            |(_, value, threshold): &(Kind, Option<f64>, f64)| value.is_some_and(|value| value > *threshold);
        let symptom = |(kind, value, threshold): (Kind, Option<f64>, f64)| Symptom {
            kind,
            suspect: Place::Host(self.me),
            witness: self.me,
            ago: Duration::ZERO,
            value: value.unwrap_or_default(),
            threshold,
        };
        values.into_iter().filter(is_over).map(symptom).collect()
    }

    /// Of the time in which ranks want a core, they wait for one this share of it.
    pub fn starved(&self) -> f64 {
        self.starved
    }

    /// What the host answers to a probe of its state.
    pub fn state(&self) -> Vec<(Reading, f64)> {
        // What other virtual machines take is none of the time that the system counts as waiting for a core.
        let stolen = 1.0 - (1.0 - self.starved) * (1.0 - self.steal);
        let waits = self.memory_pressure.iter().copied().fold(0.0, f64::max);
        let mut state = Vec::from([(Reading::CpuStolen, stolen), (Reading::MemoryPressure, waits)]);
        let last = self.last.as_ref().map(|(_, sample)| sample);
        state.extend(last.and_then(|it| it.disk).map(|disk| (Reading::DiskFree, free(disk))));
        let errors = last.and_then(|it| it.disk_errors).zip(self.old_disk_errors);
        state.extend(errors.map(|(all, old)| (Reading::DiskErrors, all.saturating_sub(old) as f64)));
        state
    }

    /// The share of the time in which a rank computes, or waits for a core to compute.
    pub fn computes(&self, rank: Rank) -> Option<f64> {
        self.computes.get(&rank).copied()
    }

    fn follow_processes(&mut self, before: &Sample, now: &Sample, seconds: f64) {
        self.computes.clear();
        self.starved = 0.0;
        for (process, (ran, waited)) in &now.processes {
            let Some((ran_before, waited_before)) = before.processes.get(process) else { continue };
            let ran = ran.saturating_sub(*ran_before).as_secs_f64();
            let waited = waited.saturating_sub(*waited_before).as_secs_f64();
            self.computes.insert(process.rank, ((ran + waited) / seconds).min(1.0));
            if ran + waited >= WANTED_LEAST * seconds {
                self.starved = self.starved.max(waited / (ran + waited));
            }
        }
    }
}

/// The mean time of a request to the disk between two samples, which are `seconds` apart.
fn late(before: DiskRequests, now: DiskRequests, seconds: f64) -> Option<f64> {
    let busy = now.busy.saturating_sub(before.busy).as_secs_f64();
    match now.done.saturating_sub(before.done) {
        0 => (busy > DISK_STUCK * seconds).then_some(busy),
        done => Some(now.took.saturating_sub(before.took).as_secs_f64() / done as f64),
    }
}

/// The share of a disk that is free.
fn free((free, all): (u64, u64)) -> f64 {
    (free as f64 / all.clamp(1, DISK_BYTES) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What is told if nothing but this has changed within a second.
    fn told(change: impl Fn(&mut Sample)) -> (Vec<Kind>, Load) {
        let process = (ProcessId::first(3), (SECOND, SECOND));
        let usual = Sample {
            cores: Some((1000, 10)),
            memory_waits: Some(SECOND),
            disk_waits: Some(SECOND),
            disk_requests: Some(DiskRequests { done: 100, took: SECOND, busy: SECOND }),
            disk_errors: Some(3),
            disk: Some((5 << 30, 10 << 30)),
            link_errors: Some(7),
            clock: SECOND * 1000,
            processes: [process].into(),
        };
        let mut load = Load::new(Host(2));
        let start = Timestamp::ZERO + SECOND;
        assert!(load.handle_sample(start, usual.clone()).is_empty(), "the first sample says nothing");
        assert!(load.handle_sample(start + SECOND, usual.clone()).is_empty(), "nothing has changed");
        let mut changed = usual;
        change(&mut changed);
        let told = load.handle_sample(start + SECOND * 2, changed);
        assert!(
            told.iter()
                .all(|symptom| symptom.suspect == Place::Host(Host(2)) && symptom.value > symptom.threshold)
        );
        (told.into_iter().map(|symptom| symptom.kind).collect(), load)
    }

    #[test]
    fn each_counter_has_its_symptom() {
        assert_eq!(told(|it| it.cores = Some((1100, 40))).0, [Kind::Steal]);
        assert_eq!(told(|it| it.memory_waits = Some(SECOND * 3 / 2)).0, [Kind::MemoryPressure]);
        assert_eq!(told(|it| it.disk_waits = Some(SECOND * 2)).0, [Kind::DiskSlow]);
        let took = |requests: u64, ms: u64, busy_ms: u64| {
            let [took, busy] = [ms, busy_ms].map(|ms| SECOND + Duration::from_millis(ms));
            told(|it| it.disk_requests = Some(DiskRequests { done: 100 + requests, took, busy })).0
        };
        assert_eq!(took(4, 900, 900), [Kind::DiskLate], "225 ms each");
        assert_eq!(took(1000, 900, 900), [], "it is busy, and not late");
        assert_eq!(took(0, 0, 950), [Kind::DiskLate], "it is stuck");
        assert_eq!(took(0, 0, 0), [], "it has nothing to do");
        assert_eq!(told(|it| it.disk_errors = Some(5)).0, [Kind::DiskError]);
        assert_eq!(told(|it| it.disk = Some((1 << 20, 10 << 30))).0, [Kind::DiskFull]);
        assert_eq!(told(|it| it.disk = Some((2 << 30, 10 << 40))).0, [], "2 GiB are room");
        assert_eq!(told(|it| it.link_errors = Some(100)).0, [Kind::LinkErrors]);
        assert_eq!(told(|it| it.clock -= SECOND * 5).0, [Kind::ClockJump]);
        assert_eq!(told(|it| it.disk = None).0, []);
    }

    #[test]
    fn errors_of_disks_from_before_the_job_are_not_answered() {
        let errors = |(_, load): (Vec<Kind>, Load)| {
            let state = load.state();
            state.into_iter().find(|(reading, _)| *reading == Reading::DiskErrors).map(|(_, errors)| errors)
        };
        assert_eq!(errors(told(|_| {})), Some(0.0), "there were 3 already");
        assert_eq!(errors(told(|it| it.disk_errors = Some(5))), Some(2.0));
        assert_eq!(errors(told(|it| it.disk_errors = None)), None);
    }

    #[test]
    fn a_host_that_waited_for_memory_a_moment_ago_says_so() {
        let (_, mut load) = told(|it| it.memory_waits = Some(SECOND * 3 / 2));
        let mut waits = || {
            let (then, last) = load.last.clone().unwrap();
            load.handle_sample(then + SECOND, last);
            load.state().into_iter().find(|(reading, _)| *reading == Reading::MemoryPressure).unwrap().1
        };
        assert_eq!([waits(), waits(), waits()], [0.5, 0.5, 0.0]);
    }

    #[test]
    fn cores_are_taken_by_other_virtual_machines_too() {
        let (_, load) = told(|it| {
            it.cores = Some((1100, 50));
            it.processes = [(ProcessId::first(3), (SECOND * 3 / 2, SECOND * 3 / 2))].into();
        });
        let stolen = load.state().into_iter().find(|(reading, _)| *reading == Reading::CpuStolen);
        assert!(
            stolen.is_some_and(|(_, share)| (share - 0.7).abs() < 1e-9),
            "40 %, and half of the rest: {stolen:?}"
        );
        assert_eq!(load.starved(), 0.5, "only that is compared with other hosts");
    }

    #[test]
    fn a_rank_that_waits_for_a_core_computes_and_starves() {
        let run = |ran, waited| {
            let process = (ProcessId::first(3), (SECOND + ran, SECOND + waited));
            let (_, load) = told(|it| it.processes = [process].into());
            (load.computes(Rank(3)), load.starved())
        };
        assert_eq!(run(SECOND / 4, SECOND / 4), (Some(0.5), 0.5));
        assert_eq!(run(SECOND, Duration::ZERO), (Some(1.0), 0.0));
        assert_eq!(run(SECOND / 100, SECOND / 50).1, 0.0, "it hardly wants one");
    }
}
