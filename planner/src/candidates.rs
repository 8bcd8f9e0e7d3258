//! Candidate points as solvers see them: when, how many bytes, how long a checkpoint takes.

use alloc::vec::Vec;

use crate::{machine::Machine, machine::Part, profile::Profile};

/// The candidate points of one part of the machine, loops unrolled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    at_ns: Vec<u64>,
    write_ns: Vec<u64>,
    end_ns: u64,
}

impl Candidates {
    /// Those of `profile`, as checkpoints of `part` see them.
    pub fn new(profile: &Profile, machine: &Machine, part: Part) -> Self {
        let mut candidates = Self {
            at_ns: Vec::with_capacity(profile.len()),
            write_ns: Vec::with_capacity(profile.len()),
            end_ns: profile.run_ns(),
        };
        for section in profile.sections() {
            let each: Vec<u64> = section
                .points
                .iter()
                .map(|point| machine.write_ns(part, point.host_bytes, point.device_bytes))
                .collect();
            (0..section.times).for_each(|_| candidates.write_ns.extend_from_slice(&each));
        }
        candidates.at_ns.extend(profile.visits().map(|visit| visit.at_ns));
        candidates
    }

    /// Candidate points given by the time that each is reached and the time that a checkpoint takes there, in
    /// a program that ends at `end_ns`.
    ///
    /// # Panics
    /// Times are not in order.
    pub fn from_times(points: &[(u64, u64)], end_ns: u64) -> Self {
        let (at_ns, write_ns): (Vec<u64>, Vec<u64>) = points.iter().copied().unzip();
        let sorted = at_ns.is_sorted() && at_ns.last().is_none_or(|last| *last <= end_ns);
        assert!(sorted, "candidate points are ordered by time");
        Self { at_ns, write_ns, end_ns }
    }

    /// Number of candidate points.
    pub fn len(&self) -> usize {
        self.at_ns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.at_ns.is_empty()
    }

    /// When the program reaches a point, without checkpoints.
    pub fn at_ns(&self, point: usize) -> u64 {
        self.at_ns[point]
    }

    /// How long a checkpoint there takes.
    pub fn write_ns(&self, point: usize) -> u64 {
        self.write_ns[point]
    }

    /// When the program ends, without checkpoints.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Mean time that a checkpoint takes, over all points.
    pub fn mean_write_s(&self) -> f64 {
        let sum: f64 = self.write_ns.iter().map(|write_ns| *write_ns as f64).sum();
        sum / 1e9 / self.len().max(1) as f64
    }

    /// The first point that is reached at this time or later.
    pub fn first_from(&self, at_ns: u64) -> usize {
        self.at_ns.partition_point(|&other| other < at_ns)
    }

    /// The point whose time is nearest; the earlier of two.
    pub fn nearest(&self, at_ns: u64) -> Option<usize> {
        let after = self.first_from(at_ns);
        let around = after.saturating_sub(1)..(after + 1).min(self.len());
        around.min_by_key(|&point| self.at_ns[point].abs_diff(at_ns))
    }

    /// What checkpoints at these points take together.
    pub fn total_ns(&self, chosen: &[usize]) -> u64 {
        chosen.iter().map(|&point| self.write_ns[point]).fold(0, u64::saturating_add)
    }
}
