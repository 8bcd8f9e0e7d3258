//! From a profile and a wish to a plan: synchronous, asynchronous and offset placement (CP-3 to CP-5).

use alloc::{string::String, vec, vec::Vec};

use serde::{Deserialize, Serialize};

use crate::{
    candidates::Candidates,
    gap::Gap,
    interval::{daly_s, every, young_s},
    law::Law,
    machine::{Machine, MachineError, Part},
    offset::{Move, displace},
    profile::{Profile, RUN_NS_MOST},
    shortest::shortest,
    soonest::soonest,
};

/// What is saved together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Host and device stop and are saved together (model 2-3).
    Synchronous,
    /// Host and device are saved each at its own points; the host while the device computes (model 2-4).
    Asynchronous,
}

/// How points are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// No checkpoints.
    Nothing,
    /// The least total time of checkpoints, neighbours not too far apart: the models of the paper.
    Cheapest,
    /// The points nearest to multiples of the distance.
    Every,
    /// The points nearest to multiples of Young's interval.
    Young,
    /// The points nearest to multiples of Daly's interval.
    Daly,
    /// The least mean time to the end, failures included.
    Soonest,
}

/// What plan is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What is saved together.
    pub placement: Placement,
    /// How points are chosen.
    pub rule: Rule,
    /// How far neighbouring points may be apart; without it, half the MTBF of the part (CP-2).
    pub apart_ns: Option<u64>,
    /// How far a point may be moved to one with fewer live bytes (CP-5).
    pub offset_ns: u64,
}

/// Which checkpoints a program takes, and what they cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is saved together.
    pub placement: Placement,
    /// How points were chosen.
    pub rule: Rule,
    /// How far points were moved at most.
    pub offset_ns: u64,
    /// How long the program runs without checkpoints and failures.
    pub run_ns: u64,
    /// By how much checkpoints make it longer.
    pub taken_ns: u64,
    /// What writing takes while the device computes.
    pub hidden_ns: u64,
    /// Mean time to the end with failures, in seconds; none is beyond all numbers.
    pub expected_s: Option<f64>,
    /// Names of all points of the profile: a program that reaches another one is another program.
    #[serde(default)]
    pub points: Vec<String>,
    /// The checkpoints of each part.
    pub tracks: Vec<Track>,
}

/// The checkpoints of one part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Track {
    /// Which part.
    pub part: Part,
    /// The distance, or the interval, by which points were chosen.
    pub apart_ns: u64,
    /// Where checkpoints are taken, in order.
    pub stops: Vec<Stop>,
}

/// One checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// The point's name.
    pub point: String,
    /// How often the program has passed a point of that name before.
    pub pass: u64,
    /// When the program reaches it, without checkpoints.
    pub at_ns: u64,
    /// How long after the previous checkpoint of the part, or after the beginning.
    pub since_ns: u64,
    /// Live bytes that are saved.
    pub bytes: u64,
    /// How long it takes to write them.
    pub write_ns: u64,
    /// As much of that as does not hold up the program.
    pub hidden_ns: u64,
    /// How much later than chosen at first, because of the offset.
    pub moved_ns: i64,
    /// Of how many candidate points it is one that are in reach of both neighbours.
    pub among: u64,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Points are too far apart.
    #[error("{part:?}: {gap}")]
    Gap {
        /// For which part.
        part: Part,
        /// Where.
        gap: Gap,
    },
    /// The distance is as long as the time between failures (the models demand less).
    #[error(
        "neighbours may be {apart_s} s apart, twice the offset included, but failures of the part {part:?} come \
         every {mtbf_s} s; allow less"
    )]
    TooFar {
        /// For which part.
        part: Part,
        /// The distance with twice the offset.
        apart_s: f64,
        /// The time between failures.
        mtbf_s: f64,
    },
}

/// A profile and a machine for which plans are made.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    profile: &'a Profile,
    machine: &'a Machine,
}

impl<'a> Planner<'a> {
    /// Sees whether there can be such a machine.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn new(profile: &'a Profile, machine: &'a Machine) -> Result<Self, MachineError> {
        machine.check().map(|()| Self { profile, machine })
    }

    /// Makes a plan.
    ///
    /// # Errors
    /// No plan satisfies the wish; the error says where.
    pub fn place(&self, wish: &Wish) -> Result<Plan, PlanError> {
        let parts: &[Part] = match wish.placement {
            Placement::Synchronous => &[Part::Whole],
            Placement::Asynchronous => &[Part::Host, Part::Device],
        };
        let run_ns = self.profile.run_ns();
        let mut plan = Plan {
            placement: wish.placement,
            rule: wish.rule,
            offset_ns: wish.offset_ns,
            run_ns,
            taken_ns: 0,
            hidden_ns: 0,
            expected_s: None,
            points: self.profile.names(),
            tracks: vec![],
        };
        let mut expected_s = run_ns as f64 / 1e9;
        for &part in parts {
            let (track, end_s) = self.track(part, wish)?;
            for stop in &track.stops {
                plan.taken_ns = plan.taken_ns.saturating_add(stop.write_ns - stop.hidden_ns);
                plan.hidden_ns += stop.hidden_ns;
            }
            plan.tracks.push(track);
            // What failures of each part cost adds up.
            expected_s += end_s - run_ns as f64 / 1e9;
        }
        plan.expected_s = expected_s.is_finite().then_some(expected_s);
        Ok(plan)
    }

    /// The checkpoints of one part, and when the program would end on average if only that part failed.
    fn track(&self, part: Part, wish: &Wish) -> Result<(Track, f64), PlanError> {
        let candidates = Candidates::new(self.profile, self.machine, part);
        let law = Law::new(self.machine, part);
        let apart_ns = self.apart_ns(part, wish, &candidates)?;
        let chosen = match wish.rule {
            Rule::Nothing => vec![],
            Rule::Cheapest => shortest(&candidates, apart_ns).map_err(|gap| PlanError::Gap { part, gap })?,
            Rule::Every | Rule::Young | Rule::Daly => every(&candidates, apart_ns),
            Rule::Soonest => soonest(&candidates, &law).0,
        };
        let moved = self.displace(part, wish, &candidates, &chosen);
        let points: Vec<usize> = moved.iter().map(|moved| moved.to).collect();
        let expected_s = match part {
            Part::Host => hidden_expected_s(&candidates, &law, &points),
            Part::Whole | Part::Device => law.expected_s(&candidates, &points),
        };
        let stops = self.stops(part, &candidates, &moved, apart_ns);
        Ok((Track { part, apart_ns, stops }, expected_s))
    }

    /// How far neighbours may be apart, or the interval.
    fn apart_ns(&self, part: Part, wish: &Wish, candidates: &Candidates) -> Result<u64, PlanError> {
        let mtbf_s = self.machine.mtbf_s(part);
        // What never fails has no interval.
        let nanoseconds = |time_s: f64| match time_s * 1e9 < RUN_NS_MOST as f64 {
            true => (libm::round(time_s * 1e9) as u64).max(1),
            false => RUN_NS_MOST,
        };
        let apart_ns = match wish.rule {
            Rule::Young => nanoseconds(young_s(candidates.mean_write_s(), mtbf_s)),
            Rule::Daly => nanoseconds(daly_s(candidates.mean_write_s(), mtbf_s)),
            _ => wish.apart_ns.unwrap_or(nanoseconds(mtbf_s / 2.0)),
        };
        let apart_s = (apart_ns as f64 + 2.0 * wish.offset_ns as f64) / 1e9;
        match wish.rule {
            Rule::Cheapest | Rule::Every if apart_s >= mtbf_s => {
                Err(PlanError::TooFar { part, apart_s, mtbf_s })
            }
            _ => Ok(apart_ns),
        }
    }

    fn displace(&self, part: Part, wish: &Wish, candidates: &Candidates, chosen: &[usize]) -> Vec<Move> {
        if wish.offset_ns == 0 {
            return chosen.iter().map(|&point| Move { from: point, to: point }).collect();
        }
        let bytes = |point: usize| {
            let point = self.profile.visit(point).point;
            part.bytes(point.host_bytes, point.device_bytes)
        };
        displace(chosen, candidates.len(), wish.offset_ns, |point| candidates.at_ns(point), bytes)
    }

    fn stops(&self, part: Part, candidates: &Candidates, moved: &[Move], apart_ns: u64) -> Vec<Stop> {
        let at_ns = |moved: &Move| candidates.at_ns(moved.to);
        let mut previous_ns = 0;
        let mut stops = Vec::with_capacity(moved.len());
        for (index, &Move { from, to }) in moved.iter().enumerate() {
            let visit = self.profile.visit(to);
            let next_ns = moved.get(index + 1).map_or(candidates.end_ns(), at_ns);
            let write_ns = candidates.write_ns(to);
            let hidden_ns = if part == Part::Host { write_ns.min(next_ns - visit.at_ns) } else { 0 };
            // In reach of both neighbours.
            let first = candidates.first_from(next_ns.saturating_sub(apart_ns).max(previous_ns));
            let end = candidates.first_from(previous_ns.saturating_add(apart_ns).min(next_ns) + 1);
            stops.push(Stop {
                point: visit.point.name.clone(),
                pass: self.profile.passed_before(to),
                at_ns: visit.at_ns,
                since_ns: visit.at_ns - previous_ns,
                bytes: part.bytes(visit.point.host_bytes, visit.point.device_bytes),
                write_ns,
                hidden_ns,
                moved_ns: visit.at_ns.cast_signed() - candidates.at_ns(from).cast_signed(),
                among: end.saturating_sub(first).max(1) as u64,
            });
            previous_ns = visit.at_ns;
        }
        stops
    }
}

/// Mean time to the end where checkpoints are written while the program computes. Until one is written, a
/// failure goes back to the one before it: that is counted to first order.
fn hidden_expected_s(candidates: &Candidates, law: &Law, chosen: &[usize]) -> f64 {
    let (mut sum_s, mut last_ns, mut read_s) = (0.0, 0, 0.0);
    for (index, &point) in chosen.iter().enumerate() {
        let at_ns = candidates.at_ns(point);
        let write_s = candidates.write_ns(point) as f64 / 1e9;
        let next_ns = chosen.get(index + 1).map_or(candidates.end_ns(), |&next| candidates.at_ns(next));
        let hidden_s = libm::fmin(write_s, (next_ns - at_ns) as f64 / 1e9);
        let work_s = (at_ns - last_ns) as f64 / 1e9;
        sum_s += law.stage_s(read_s, work_s + write_s - hidden_s) + hidden_s / law.mtbf_s * work_s;
        (last_ns, read_s) = (at_ns, write_s);
    }
    sum_s + law.stage_s(read_s, (candidates.end_ns() - last_ns) as f64 / 1e9)
}
