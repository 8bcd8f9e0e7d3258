//! What one worker is busy with, and how fast it has been lately (DR §1, performance counters).

use alloc::collections::BTreeMap;
use core::ops::{Index, IndexMut};

use everfold_protocol::{Rank, Timestamp, message::TaskCounters};
use smallvec::SmallVec;

use crate::{
    located::{Fault, Faults},
    policy::Policy,
    queue::is_slow,
};

/// Weight of the latest observation in a smoothed value, as a power of two: 1/8.
const SMOOTHING_SHIFT: u32 = 3;
/// Bytes per second assumed of a worker that was never observed. A slow guess would never be corrected,
/// because the worker would be given nothing.
const RATE_UNKNOWN: u64 = 10_000_000_000;
/// All of a task's time, in the parts that [`Lane::away`] is counted in.
const WHOLE: u64 = 1 << 16;
/// The most of it that counts as spent on the way: a worker gets at most twice as much for being far away.
const AWAY_MAX: u64 = WHOLE / 2;

/// The load of a task on its executor, and on the owners from which it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Bytes that it has to touch.
    pub bytes: u64,
    /// Whose partials it folds, inlined ones too.
    pub from: SmallVec<[Rank; 4]>,
    /// Whether its executor has mapped all that it reads.
    pub mapped: bool,
    /// When it was granted.
    pub since: Timestamp,
}

impl Load {
    /// Whether it is that of a task that was granted here: a team's work at a segment is not.
    pub fn is_task(&self) -> bool {
        !self.from.is_empty()
    }

    /// Bytes for each of those it reads from.
    fn share(&self) -> u64 {
        self.bytes / (self.from.len() as u64).max(1)
    }
}

/// The lanes of all workers. A worker that was never given a task has an empty one.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    by_rank: BTreeMap<Rank, Lane>,
    /// The number of observed lanes with each [`Lane::read_ns`]: each answer is compared with the shortest
    /// and the longest only.
    read_ns: BTreeMap<u64, u32>,
    /// How many were observed.
    observed: usize,
    /// Faults that were located and are not over.
    faults: Faults,
}

impl Lanes {
    /// Whether no worker has a task.
    pub fn are_empty(&self) -> bool {
        self.by_rank.values().all(Lane::is_empty)
    }

    /// Whether partials of some take much longer to be read than those of others, as far as is known.
    pub fn differ(&self, policy: &Policy) -> bool {
        let usual = policy.read_time.as_nanos() as u64;
        let known = || self.read_ns.keys().copied();
        let quickest = if self.observed < self.by_rank.len() { None } else { known().next() };
        let is_slow = |slowest: u64| is_slow(slowest.max(usual), quickest.unwrap_or(0).max(usual));
        !self.faults.are_none() || known().next_back().is_some_and(is_slow)
    }

    /// Takes in that a fault was located, or is over.
    pub fn see_located(&mut self, fault: &Fault, over: bool) {
        self.faults.see(fault, over);
    }

    /// Faults that were located and are not over.
    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Learns from a task that is answered `now`.
    pub fn observe(&mut self, now: Timestamp, executor: Rank, load: &Load, counters: &TaskCounters) {
        self[executor].observe(now, load, counters);
        for owner in load.from.iter().filter(|_| counters.last.is_some()) {
            let is_last = counters.last == Some(*owner);
            self.uncount(*owner);
            self[*owner].observe_read(if is_last { counters.fetch_ns } else { counters.others_ns });
            self.count(*owner);
        }
    }

    /// Forgets the tasks of `dead`, whose process has died. Others may still read its memory.
    pub fn clear(&mut self, dead: Rank) {
        self.uncount(dead);
        self[dead].clear();
    }

    fn count(&mut self, rank: Rank) {
        let ns = self[rank].read_ns;
        if ns > 0 {
            *self.read_ns.entry(ns).or_default() += 1;
            self.observed += 1;
        }
    }

    fn uncount(&mut self, rank: Rank) {
        let ns = self[rank].read_ns;
        if let Some(lanes) = self.read_ns.get_mut(&ns) {
            *lanes -= 1;
            if *lanes == 0 {
                self.read_ns.remove(&ns);
            }
            self.observed -= 1;
        }
    }
}

impl Index<Rank> for Lanes {
    type Output = Lane;

    fn index(&self, rank: Rank) -> &Lane {
        self.by_rank.get(&rank).unwrap_or(&EMPTY)
    }
}

impl IndexMut<Rank> for Lanes {
    fn index_mut(&mut self, rank: Rank) -> &mut Lane {
        self.by_rank.entry(rank).or_default()
    }
}

static EMPTY: Lane = Lane {
    bytes: 0,
    reads: 0,
    tasks: 0,
    mapped: 0,
    from: BTreeMap::new(),
    serves: 0,
    rate: 0,
    read_ns: 0,
    away: 0,
    answered: Timestamp::ZERO,
};

/// One worker's share of the schedule.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Bytes of the tasks that it was given.
    bytes: u64,
    /// Partials that they read.
    reads: u32,
    /// How many tasks these are, and for how many nothing has to be fetched.
    tasks: u32,
    mapped: u32,
    /// The same by whose partials they read.
    from: BTreeMap<Rank, (u64, u32)>,
    /// Partials that others read from it.
    serves: u32,
    /// Smoothed bytes per second; zero if never observed.
    rate: u64,
    /// Smoothed time that others take to read a partial from it; zero if never observed.
    read_ns: u64,
    /// Smoothed part of the time from grant to answer for which tasks, or their answers, are on the way,
    /// behind what others read over the same links: longest where the master's own worker reads as much as
    /// its link carries.
    away: u64,
    /// When it last answered a task.
    answered: Timestamp,
}

impl Lane {
    /// When this worker last answered a task.
    pub fn answered(&self) -> Timestamp {
        self.answered
    }

    /// Nanoseconds until a task of `bytes` bytes would be done here, after all that it was given.
    pub fn expected_ns(&self, bytes: u64) -> u64 {
        let rate = if self.rate == 0 { RATE_UNKNOWN } else { self.rate };
        let bytes = u128::from(self.bytes + bytes);
        u64::try_from(bytes * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX)
    }

    /// Whether all its tasks are answered, and no worker reads from it.
    pub fn is_empty(&self) -> bool {
        (self.bytes, self.reads, self.serves) == (0, 0, 0) && self.from.is_empty()
    }

    /// Whether it has answered all that it was given.
    pub fn is_idle(&self) -> bool {
        self.tasks == 0
    }

    /// Whether the worker may be given another task: enough to hide the way to it and back, and no more, so
    /// that the rest can go to the worker that turns out to be faster.
    pub fn has_room(&self, policy: &Policy) -> bool {
        let folds_only = self.mapped == self.tasks && self.mapped < policy.folds;
        folds_only || self.leaves_room((self.bytes, self.reads), policy)
    }

    /// Whether the worker may be given another task that reads from `owner`. One owner gets at most half of
    /// its room, so that a slow owner does not fill all of it.
    pub fn has_room_for(&self, owner: Rank, policy: &Policy) -> bool {
        let leaves_room = |(bytes, reads): (u64, u32)| self.leaves_room((2 * bytes, 2 * reads), policy);
        leaves_room((self.bytes, self.reads))
            || self.from.get(&owner).is_none_or(|of_owner| leaves_room(*of_owner))
    }

    /// Whether a worker of this rate that was given so much may be given more.
    fn leaves_room(&self, (bytes, reads): (u64, u32), policy: &Policy) -> bool {
        let in_time = self.rate.saturating_mul(policy.lane_time.as_nanos() as u64) / 1_000_000_000;
        let enough = if self.rate == 0 { policy.lane_bytes } else { in_time.min(policy.lane_bytes) };
        let reads_there = u64::from(reads) * (WHOLE - self.away) / WHOLE;
        (bytes < enough && reads < policy.lane_reads_max) || reads_there < u64::from(policy.lane_reads_min)
    }

    /// Counts a task as given.
    pub fn grant(&mut self, load: &Load) {
        self.bytes += load.bytes;
        self.reads += load.from.len() as u32;
        self.tasks += u32::from(load.is_task());
        self.mapped += u32::from(load.mapped);
        for owner in &load.from {
            let (bytes, reads) = self.from.entry(*owner).or_default();
            *bytes += load.share();
            *reads += 1;
        }
    }

    /// Counts a granted task as answered.
    pub fn complete(&mut self, load: &Load) {
        self.bytes -= load.bytes;
        self.reads -= load.from.len() as u32;
        self.tasks -= u32::from(load.is_task());
        self.mapped -= u32::from(load.mapped);
        for owner in &load.from {
            let Some((bytes, reads)) = self.from.get_mut(owner) else { unreachable!("it was granted") };
            *bytes -= load.share();
            *reads -= 1;
            if *reads == 0 {
                self.from.remove(owner);
            }
        }
    }

    /// Forgets its tasks.
    fn clear(&mut self) {
        *self = Self { serves: self.serves, ..Self::default() };
    }

    /// Partials that others read from this worker: many, where it is slow or its link is.
    pub fn serves(&self) -> u32 {
        self.serves
    }

    /// Smoothed time that others take to read a partial from this worker, in nanoseconds; at least the usual
    /// time.
    pub fn read_ns(&self, policy: &Policy) -> u64 {
        self.read_ns.max(policy.read_time.as_nanos() as u64)
    }

    /// Learns from a partial that another worker has read from this one. Older reads count for little,
    /// because the load moves on.
    fn observe_read(&mut self, ns: u64) {
        self.read_ns = if self.read_ns == 0 { ns } else { self.read_ns.midpoint(ns) };
    }

    /// Counts a partial that another worker begins to read from this one.
    pub fn begin_to_serve(&mut self) {
        self.serves += 1;
    }

    /// Counts a partial as read, or given up.
    pub fn end_to_serve(&mut self) {
        self.serves -= 1;
    }

    /// Learns from a task that is answered `now`.
    pub fn observe(&mut self, now: Timestamp, load: &Load, counters: &TaskCounters) {
        self.answered = now;
        let task_ns = u128::from(counters.task_ns.max(1));
        let round_ns = now.since(load.since).as_nanos().max(task_ns);
        let away = u128::from(WHOLE) * (round_ns - task_ns) / round_ns;
        self.away = smoothed(self.away, away as u64).min(AWAY_MAX);
        let observed = u128::from(load.bytes) * 1_000_000_000 / task_ns;
        let observed = u64::try_from(observed).unwrap_or(u64::MAX).clamp(1, u64::MAX >> 16);
        let rate = if self.rate == 0 { observed } else { smoothed(self.rate, observed) };
        self.rate = rate.max(1);
    }
}

fn smoothed(known: u64, observed: u64) -> u64 {
    known - (known >> SMOOTHING_SHIFT) + (observed >> SMOOTHING_SHIFT)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn the_rate_follows_what_is_observed() {
        let mut lane = Lane::default();
        let load = Load { bytes: 1 << 20, ..Load::default() };
        let observe = |lane: &mut Lane, task_ns| {
            let counters = TaskCounters { task_ns, ..TaskCounters::default() };
            lane.observe(Timestamp::from_nanos(task_ns), &load, &counters);
        };
        observe(&mut lane, 1 << 20);
        assert_eq!(lane.rate, 1_000_000_000, "the first observation counts in full");
        for _ in 0..60 {
            observe(&mut lane, 1 << 22);
        }
        assert!((250_000_000..252_000_000).contains(&lane.rate), "{}", lane.rate);
    }

    #[test]
    fn who_is_far_away_is_given_more() {
        let policy = Policy { lane_bytes: 0, lane_reads_min: 8, ..Policy::default() };
        let granted = |task_ns, round_ns| {
            let mut lane = Lane::default();
            let load = Load { bytes: 1, from: [Rank(1)].into_iter().collect(), ..Load::default() };
            for _ in 0..60 {
                let counters = TaskCounters { task_ns, ..TaskCounters::default() };
                lane.observe(Timestamp::from_nanos(round_ns), &load, &counters);
            }
            while lane.has_room(&policy) {
                lane.grant(&load);
            }
            lane.reads
        };
        assert_eq!(granted(1000, 1000), 8);
        assert_eq!(granted(1000, 1500), 12, "a third of its tasks is on the way");
        assert_eq!(granted(1000, 1_000_000), 16, "twice as much, however far it is");
    }

    #[test]
    fn the_last_to_answer_is_known_to_be_slow() {
        let mut lanes = Lanes::default();
        let load = Load { from: [Rank(1), Rank(2)].into_iter().collect(), ..Load::default() };
        let policy = Policy { read_time: Duration::from_millis(5), ..Policy::default() };
        let mut read = |fetch_ns, last| {
            let counters = TaskCounters { fetch_ns, others_ns: 1_000_000, last, ..TaskCounters::default() };
            lanes.observe(Timestamp::ZERO, Rank(0), &load, &counters);
            (lanes[Rank(1)].read_ns(&policy), lanes[Rank(2)].read_ns(&policy), lanes.differ(&policy))
        };
        assert_eq!(read(30_000_000, None), (5_000_000, 5_000_000, false), "it was inlined");
        assert_eq!(read(30_000_000, Some(Rank(2))), (5_000_000, 30_000_000, true));
        assert_eq!(read(2_000_000, Some(Rank(2))), (5_000_000, 16_000_000, false));
    }

    #[test]
    fn what_is_granted_takes_room_and_time() {
        let policy = Policy { lane_bytes: 1000, lane_reads_min: 1, lane_reads_max: 3, ..Policy::default() };
        let load = |bytes| Load { bytes, from: [Rank(1)].into_iter().collect(), ..Load::default() };
        let mut lane = Lane::default();
        let idle = lane.expected_ns(100);
        lane.grant(&load(900));
        assert!(lane.expected_ns(100) > idle);
        assert!(lane.has_room(&policy), "there are bytes left");
        lane.grant(&load(100));
        assert!(!lane.has_room(&policy));
        lane.complete(&load(900));
        lane.complete(&load(100));
        assert_eq!(lane.expected_ns(100), idle);
        for _ in 0..3 {
            lane.grant(&load(1));
        }
        assert!(!lane.has_room(&policy), "there are enough reads");
        let mapped = Load { mapped: true, ..load(1 << 30) };
        let mut lane = Lane::default();
        lane.grant(&mapped);
        assert!(lane.has_room(&policy), "another core is idle");
        lane.grant(&mapped);
        assert!(!lane.has_room(&policy), "all cores are busy");
    }
}
