//! What one worker is busy with, and how fast it has been lately (DR §1, performance counters).

use std::collections::VecDeque;

use everfold_protocol::{SegmentId, message::TaskCounters};

use crate::{policy::Policy, queue::Ready};

/// Weight of the latest observation in the smoothed rate, as a power of two: 1/8.
const SMOOTHING_SHIFT: u32 = 3;
/// Bytes per second assumed of a worker that has not been seen working: a slow guess would never be corrected,
/// because nobody would give it work.
const RATE_UNKNOWN: u64 = 10_000_000_000;

/// A task that is decided on but not yet granted. Its sources have left the queue.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which segment.
    pub segment: SegmentId,
    /// The partials that will meet; one of them is the executor's own.
    pub partials: Vec<Ready>,
    /// What the plan was counted with when it entered its lane.
    pub bytes: u64,
}

/// One worker's share of the schedule.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    plans: VecDeque<Plan>,
    planned_bytes: u64,
    granted_bytes: u64,
    granted_tasks: u32,
    /// Smoothed bytes per second; zero if never observed.
    rate: u64,
}

impl Lane {
    /// Nanoseconds until a task of `bytes` bytes would be done here, after all that is planned and granted.
    pub fn expected_ns(&self, bytes: u64) -> u64 {
        let rate = if self.rate == 0 { RATE_UNKNOWN } else { self.rate };
        let bytes = u128::from(self.planned_bytes + self.granted_bytes + bytes);
        u64::try_from(bytes * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX)
    }

    /// Smoothed rate in bytes per second, if this worker was seen working.
    pub fn rate(&self) -> Option<u64> {
        (self.rate != 0).then_some(self.rate)
    }

    /// Appends a plan.
    pub fn plan(&mut self, plan: Plan) {
        self.planned_bytes += plan.bytes;
        self.plans.push_back(plan);
    }

    /// Takes the next plan if the worker may be given more.
    pub fn next(&mut self, policy: &Policy) -> Option<Plan> {
        let short = self.granted_bytes < policy.lane_bytes && self.granted_tasks < policy.lane_tasks_max;
        if !short && self.granted_tasks >= policy.lane_tasks_min {
            return None;
        }
        let plan = self.plans.pop_front()?;
        self.planned_bytes -= plan.bytes;
        Some(plan)
    }

    /// Counts a task of `bytes` bytes as given.
    pub fn grant(&mut self, bytes: u64) {
        self.granted_bytes += bytes;
        self.granted_tasks += 1;
    }

    /// Counts a granted task of `bytes` bytes as answered.
    pub fn complete(&mut self, bytes: u64) {
        self.granted_bytes -= bytes;
        self.granted_tasks -= 1;
    }

    /// Learns from a finished task.
    pub fn observe(&mut self, bytes: u64, counters: &TaskCounters) {
        let observed = u128::from(bytes) * 1_000_000_000 / u128::from(counters.task_ns.max(1));
        let observed = u64::try_from(observed).unwrap_or(u64::MAX).clamp(1, u64::MAX >> 16);
        self.rate = match self.rate {
            0 => observed,
            rate => rate - (rate >> SMOOTHING_SHIFT) + (observed >> SMOOTHING_SHIFT),
        };
        self.rate = self.rate.max(1);
    }

    /// Takes out the plans that `which` accepts.
    pub fn extract(&mut self, which: impl Fn(&Plan) -> bool) -> Vec<Plan> {
        let (taken, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.plans).into_iter().partition(which);
        self.plans = kept.into();
        self.planned_bytes = self.plans.iter().map(|plan| plan.bytes).sum();
        taken
    }

    /// All plans that wait for a grant, taken out.
    pub fn into_plans(self) -> impl Iterator<Item = Plan> {
        self.plans.into_iter()
    }

    /// Plans that wait for a grant.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.plans.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_what_is_observed() {
        let mut lane = Lane::default();
        let counters = |task_ns| TaskCounters { task_ns, ..TaskCounters::default() };
        lane.observe(1 << 20, &counters(1 << 20));
        assert_eq!(lane.rate(), Some(1_000_000_000), "the first observation counts in full");
        for _ in 0..60 {
            lane.observe(1 << 20, &counters(1 << 22));
        }
        let rate = lane.rate().unwrap();
        assert!((250_000_000..252_000_000).contains(&rate), "{rate}");
    }

    #[test]
    fn what_is_planned_makes_a_worker_slower() {
        let mut lane = Lane::default();
        let idle = lane.expected_ns(100);
        let segment = SegmentId {
            reduction: everfold_protocol::ReductionId::new("x", 0),
            index: everfold_protocol::SegmentIndex(0),
        };
        lane.plan(Plan { segment, partials: Vec::new(), bytes: 1000 });
        assert!(lane.expected_ns(100) > idle);
        lane.next(&Policy::default()).unwrap();
        assert_eq!(lane.expected_ns(100), idle);
    }
}
