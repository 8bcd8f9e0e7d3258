//! Smaller schedules that go wrong in the same way.
//!
//! Delta debugging: faults, reductions, ranks and complications are taken away as long as the failure stays,
//! in large parts first. Fewer events draw other delays, so that each smaller schedule is tried with several
//! seeds.

use everfold_protocol::spec::{Order, Protection};

use super::{
    schedule::{Body, Planned, PlannedSegment, Receiver, Schedule, Trouble},
    violation::Violation,
};
use crate::settings::Wakes;

/// Seeds with which a smaller schedule is tried, besides the one that failed last.
const SEEDS: u64 = 20;

/// What is left of a schedule.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest schedule that was found to fail.
    pub schedule: Schedule,
    /// How it fails.
    pub violation: Violation,
    /// How many runs it took.
    pub runs: u64,
}

/// Makes `schedule`, which `attempt` finds to fail, as small as it can in at most `runs_max` runs. A smaller
/// schedule counts if it breaks the same rule.
///
/// Returns nothing if it does not fail.
pub fn shrink(
    schedule: &Schedule,
    runs_max: u64,
    mut attempt: impl FnMut(&Schedule) -> Result<(), Violation>,
) -> Option<Shrunk> {
    let violation = attempt(schedule).err()?;
    let best = Shrunk { schedule: schedule.clone(), violation, runs: 1 };
    let mut search = Search { best, runs_max, attempt };
    loop {
        let before = search.best.schedule.clone();
        search.pass();
        if search.best.schedule == before || search.best.runs >= runs_max {
            return Some(search.best);
        }
    }
}

struct Search<A> {
    best: Shrunk,
    runs_max: u64,
    attempt: A,
}

impl<A: FnMut(&Schedule) -> Result<(), Violation>> Search<A> {
    /// Tries everything once.
    fn pass(&mut self) {
        self.take_away(
            |schedule| schedule.faults.len(),
            |schedule, index| drop(schedule.faults.remove(index)),
        );
        self.take_away(
            |schedule| schedule.reductions.len(),
            |schedule, index| drop(schedule.reductions.remove(index)),
        );
        self.take_away(
            |schedule| schedule.segments.len(),
            |schedule, index| drop(schedule.segments.remove(index)),
        );
        self.take_away(
            |schedule| schedule.early_ends.len(),
            |schedule, index| {
                schedule.early_ends.remove(index);
            },
        );
        self.take_away(
            |schedule| schedule.leaves.len(),
            |schedule, index| {
                schedule.leaves.remove(index);
            },
        );
        self.take_away(
            |schedule| schedule.ranks() as usize - 1,
            |schedule, index| remove_rank(schedule, index as u32 + 1),
        );
        for number in 0..self.best.schedule.reductions.len() {
            self.take_away(
                |schedule| schedule.reductions.get(number).map_or(0, |planned| planned.calls.len()),
                |schedule, index| {
                    let rank = schedule.reductions[number].calls[index].rank;
                    leave_out(&mut schedule.reductions[number], rank);
                },
            );
            for simpler in SIMPLER_REDUCTIONS {
                self.change(|schedule| {
                    if let Some(planned) = schedule.reductions.get_mut(number) {
                        simpler(planned);
                    }
                });
            }
        }
        for number in 0..self.best.schedule.segments.len() {
            for simpler in SIMPLER_SEGMENTS {
                self.change(|schedule| schedule.segments.get_mut(number).into_iter().for_each(simpler));
            }
        }
        for simpler in SIMPLER_WORLDS {
            self.change(simpler);
        }
        for number in 0..self.best.schedule.faults.len() {
            for simpler in SIMPLER_FAULTS {
                self.change(|schedule| {
                    if let Some(fault) = schedule.faults.get_mut(number) {
                        let interval_us = schedule.ping_interval_us;
                        simpler(&mut fault.lasts_us, &mut fault.at_us, &mut fault.what, interval_us);
                    }
                });
            }
        }
    }

    /// Takes away as many of `count` things as can be missed: half of them at once, then a quarter, and so
    /// on.
    fn take_away(&mut self, count: impl Fn(&Schedule) -> usize, remove: impl Fn(&mut Schedule, usize)) {
        let mut chunk = count(&self.best.schedule);
        while chunk > 0 {
            let mut end = count(&self.best.schedule);
            while end > 0 {
                let start = end.saturating_sub(chunk);
                self.change(|schedule| (start..end).rev().for_each(|index| remove(schedule, index)));
                end = start;
            }
            chunk /= 2;
        }
    }

    /// Keeps a change if the failure stays.
    fn change(&mut self, change: impl FnOnce(&mut Schedule)) {
        let mut smaller = self.best.schedule.clone();
        change(&mut smaller);
        if smaller == self.best.schedule || smaller.flaw().is_some() {
            return;
        }
        for seed in std::iter::once(smaller.seed).chain(0..SEEDS) {
            if self.best.runs >= self.runs_max {
                return;
            }
            self.best.runs += 1;
            smaller.seed = seed;
            match (self.attempt)(&smaller) {
                Err(violation) if violation.rule == self.best.violation.rule => {
                    self.best.schedule = smaller;
                    self.best.violation = violation;
                    return;
                }
                _ => {}
            }
        }
    }
}

/// Takes `gone` out of the job; later ranks move up.
fn remove_rank(schedule: &mut Schedule, gone: u32) {
    let host = schedule.hosts.remove(gone as usize);
    schedule.task_us.remove(gone as usize);
    if !schedule.hosts.contains(&host) {
        let lost = |what: &Trouble| match what {
            Trouble::Unreachable { a, b, .. } => [*a, *b].contains(&host),
            Trouble::LocateLink { from, to } => [*from, *to].contains(&host),
            Trouble::Locate { hosts, .. } => hosts.contains(&host),
            what => what.host() == Some(host),
        };
        schedule.faults.retain(|fault| !lost(&fault.what));
    }
    let renamed = |rank: &mut u32| *rank -= u32::from(*rank > gone);
    let Schedule { private, boardless, full, windowless, crowded, .. } = schedule;
    for ranks in [private, boardless, full, windowless, crowded] {
        ranks.retain(|rank| *rank != gone);
        ranks.iter_mut().for_each(renamed);
    }
    schedule.faults.retain(|fault| fault.what.rank() != Some(gone));
    schedule.faults.retain_mut(|fault| fault.what.reader_mut().is_none_or(|reader| *reader != gone));
    schedule.faults.iter_mut().filter_map(|fault| fault.what.rank_mut()).for_each(renamed);
    schedule.faults.iter_mut().filter_map(|fault| fault.what.reader_mut()).for_each(renamed);
    schedule.leaves.retain(|leave| leave.rank != gone);
    schedule.leaves.iter_mut().map(|leave| &mut leave.rank).for_each(renamed);
    schedule.early_ends.retain(|early| early.rank != gone);
    schedule.early_ends.iter_mut().map(|early| &mut early.rank).for_each(renamed);
    for planned in &mut schedule.reductions {
        leave_out(planned, gone);
        planned.calls.iter_mut().map(|call| &mut call.rank).for_each(renamed);
        planned.absent.iter_mut().for_each(renamed);
        planned.disagrees.iter_mut().for_each(renamed);
        planned.long.iter_mut().for_each(renamed);
        planned.receiver.ranks_mut().iter_mut().for_each(renamed);
    }
    schedule.reductions.retain(|planned| !planned.calls.is_empty());
    for segment in &mut schedule.segments {
        segment.calls.retain(|call| call.rank != gone);
        segment.slow.retain(|rank| *rank != gone);
        segment.calls.iter_mut().map(|call| &mut call.rank).for_each(renamed);
        segment.slow.iter_mut().for_each(renamed);
    }
    schedule.segments.retain(|segment| !segment.calls.is_empty());
}

/// Takes `gone` out of a group. If it was to receive the result, the first who calls is.
fn leave_out(planned: &mut Planned, gone: u32) {
    if planned.calls.len() + planned.absent.len() < 2 || planned.calls.iter().all(|call| call.rank == gone) {
        planned.calls.clear();
        return;
    }
    planned.calls.retain(|call| call.rank != gone);
    planned.absent.retain(|rank| *rank != gone);
    planned.long.retain(|rank| *rank != gone);
    planned.disagrees.take_if(|rank| *rank == gone);
    let first = planned.calls[0].rank;
    match &mut planned.receiver {
        Receiver::Root(root) if *root == gone => *root = first,
        Receiver::Root(_) | Receiver::All => {}
        Receiver::FirstOf(ranks) => {
            ranks.retain(|rank| *rank != gone);
            if ranks.is_empty() {
                ranks.push(first);
            }
        }
    }
}

const SIMPLER_REDUCTIONS: [fn(&mut Planned); 13] = [
    |planned| planned.long.clear(),
    |planned| planned.fold_us = 0,
    |planned| planned.absent.clear(),
    |planned| planned.disagrees = None,
    |planned| planned.deadline_us = None,
    |planned| planned.trace = false,
    |planned| planned.allow_missing = false,
    |planned| planned.protection = Protection::None,
    |planned| planned.order = Order::Arrival,
    |planned| planned.receiver = Receiver::All,
    |planned| planned.body = Body::Array(1),
    |planned| {
        if let Body::Array(length) = &mut planned.body {
            *length = (*length).min(8192);
        }
    },
    // All at once.
    |planned| {
        let first = planned.calls.iter().map(|call| call.at_us).min().unwrap_or_default();
        planned.calls.iter_mut().for_each(|call| call.at_us = first);
    },
];

const SIMPLER_SEGMENTS: [fn(&mut PlannedSegment); 9] = [
    |segment| segment.times = 1,
    |segment| segment.fixed = false,
    |segment| segment.balance = false,
    |segment| segment.progress = None,
    |segment| segment.deadline_us = None,
    |segment| segment.protection = Protection::None,
    |segment| segment.slow.clear(),
    |segment| (segment.indices, segment.grain) = (segment.indices.div_ceil(segment.grain), 1),
    |segment| {
        let first = segment.calls.iter().map(|call| call.at_us).min().unwrap_or_default();
        segment.calls.iter_mut().for_each(|call| call.at_us = first);
    },
];

const SIMPLER_WORLDS: [fn(&mut Schedule); 36] = [
    |schedule| schedule.returns = None,
    |schedule| {
        let migrates = schedule.returns.iter_mut().flat_map(|returns| &mut returns.migrates);
        migrates.for_each(|migrates| migrates.standbys = None);
    },
    |schedule| schedule.returns.iter_mut().for_each(|returns| returns.own_detectors = false),
    |schedule| schedule.returns.iter_mut().for_each(|returns| returns.located = None),
    |schedule| schedule.returns.iter_mut().for_each(|returns| returns.note_failures_percent = 0),
    |schedule| schedule.returns.iter_mut().for_each(|returns| returns.checkpoints_percent = 0),
    |schedule| schedule.returns.iter_mut().for_each(|returns| returns.note_us = 20),
    |schedule| schedule.returns.iter_mut().for_each(|returns| returns.start_us = 200),
    |schedule| schedule.returns.iter_mut().for_each(|returns| returns.return_us = 10_000_000),
    |schedule| schedule.domains = 0,
    |schedule| schedule.agents_join_us = 0,
    |schedule| schedule.parents = false,
    |schedule| schedule.agents = false,
    |schedule| schedule.batch_us = 0,
    |schedule| schedule.private.clear(),
    |schedule| schedule.full.clear(),
    |schedule| schedule.windowless.clear(),
    |schedule| schedule.collect_segments = 0,
    |schedule| schedule.halves = false,
    |schedule| schedule.crowded.clear(),
    |schedule| schedule.collect_us = 0,
    |schedule| schedule.keep_failures_percent = 0,
    |schedule| schedule.damage_percent = 0,
    |schedule| schedule.wakes = Wakes::InOrder,
    |schedule| schedule.latency_us = (1, 1),
    |schedule| schedule.latency_us = (1, 50),
    |schedule| schedule.task_us.fill(100),
    |schedule| (0..).zip(&mut schedule.hosts).for_each(|(rank, host)| *host = rank),
    |schedule| schedule.hosts.fill(0),
    |schedule| schedule.pacing.fan_in_max = 16,
    |schedule| schedule.pacing.copy_bytes = 4 << 20,
    |schedule| {
        schedule.pacing.lane_reads_min = 4;
        schedule.pacing.lane_bytes = 2 << 20;
    },
    |schedule| schedule.pacing.hold_bytes = 1 << 20,
    |schedule| schedule.pacing.task_bytes_per_rank = 0,
    |schedule| schedule.pacing.gather_us = 0,
    |schedule| schedule.pacing.spread_bytes = 0,
];

/// Changes how long a fault lasts, when it begins, or what it is; the last is the ping interval.
type SimplerFault = fn(&mut u64, &mut u64, &mut Trouble, u64);

const SIMPLER_FAULTS: [SimplerFault; 5] = [
    |lasts_us, _, _, interval_us| *lasts_us = (*lasts_us).min(interval_us),
    |lasts_us, _, _, _| *lasts_us = (*lasts_us / 1000 * 1000).max((*lasts_us).min(1000)),
    |_, at_us, _, _| *at_us = *at_us / 1000 * 1000,
    |_, at_us, _, _| *at_us = *at_us / 100 * 100,
    |_, _, what, _| match *what {
        Trouble::Starve { rank, .. } => *what = Trouble::Freeze(rank),
        Trouble::StarveAgent { host, .. } => *what = Trouble::FreezeAgent(host),
        Trouble::Crash { rank, .. } => *what = Trouble::Kill(rank),
        _ => {}
    },
];
