//! Checkpoints of several levels at once: in the region, as a replica, on disk.
//!
//! Each failure needs a level: the end of a process needs the region only, the loss of a host a replica on
//! another one, the loss of all hosts the disk. A checkpoint of a level is one of all levels below, too. After
//! a failure the program goes on from the last checkpoint of the level that it needs, or of a higher one.
//!
//! [`expected_s`] is exact for any choice. [`place`] is not: to first order levels do not disturb each other,
//! so it places one after the other, each with [`soonest`], for every way to leave levels out. Each of these
//! placements is then changed point by point for as long as the program ends sooner; the best one is taken.

use alloc::{string::String, vec, vec::Vec};

use serde::{Deserialize, Serialize};

use crate::{candidates::Candidates, law::Law, machine::in_series, profile::Profile, soonest::soonest};

/// Levels that a program has at most.
pub const LEVELS_MOST: usize = 5;

/// One level: where its checkpoints lie, and which failures need it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// What it is called.
    pub name: String,
    /// What a checkpoint takes here however small it is, beyond the levels below, in seconds.
    pub latency_s: f64,
    /// Bandwidth of writing and reading, in bytes per second.
    pub bytes_per_s: f64,
    /// Time after a failure until a checkpoint of this level can be read, in seconds.
    pub restart_s: f64,
    /// Mean time between two failures that need this level, and no higher one, in seconds.
    pub mtbf_s: f64,
}

/// A checkpoint: at which candidate point, and of which level, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leveled {
    /// The candidate point.
    pub point: usize,
    /// The level.
    pub level: usize,
}

impl Level {
    /// The candidate points of a profile; what a checkpoint takes there is what this level adds to those below.
    pub fn candidates(&self, profile: &Profile) -> Candidates {
        let points: Vec<(u64, u64)> = profile
            .visits()
            .map(|visit| {
                let bytes = visit.point.host_bytes + visit.point.device_bytes;
                let write_s = self.latency_s + bytes as f64 / self.bytes_per_s;
                (visit.at_ns, libm::round(write_s * 1e9) as u64)
            })
            .collect();
        Candidates::from_times(&points, profile.run_ns())
    }
}

/// Since the last checkpoint from which a level can be restored.
#[derive(Clone, Copy, Default)]
struct Since {
    /// Mean time that the program has taken since then.
    mean_s: f64,
    /// How long the checkpoint takes to be read.
    read_s: f64,
}

/// Mean time to the end with the checkpoints of `chosen`, in order. `candidates` are those of each level.
pub fn expected_s(levels: &[Level], candidates: &[Candidates], chosen: &[Leveled]) -> f64 {
    ends_s(levels, candidates, chosen).last().copied().unwrap_or_default()
}

/// When each checkpoint is done and the program ends, on average.
fn ends_s(levels: &[Level], candidates: &[Candidates], chosen: &[Leveled]) -> Vec<f64> {
    let mut since = vec![Since::default(); levels.len()];
    let (mut sum_s, mut last_ns) = (0.0, 0);
    let mut ends_s = Vec::with_capacity(chosen.len() + 1);
    for &Leveled { point, level } in chosen {
        let write_s: f64 = candidates[..=level].iter().map(|each| each.write_ns(point) as f64 / 1e9).sum();
        let work_s = (candidates[0].at_ns(point) - last_ns) as f64 / 1e9;
        let stage_s = stage_s(levels, &since, work_s + write_s);
        sum_s += stage_s;
        ends_s.push(sum_s);
        since.iter_mut().for_each(|since| since.mean_s += stage_s);
        for (since, candidates) in since[..=level].iter_mut().zip(candidates) {
            *since = Since { mean_s: 0.0, read_s: candidates.write_ns(point) as f64 / 1e9 };
        }
        last_ns = candidates[0].at_ns(point);
    }
    ends_s.push(sum_s + stage_s(levels, &since, (candidates[0].end_ns() - last_ns) as f64 / 1e9));
    ends_s
}

/// Mean time of a stage that lasts `lasts_s` without failures.
fn stage_s(levels: &[Level], since: &[Since], lasts_s: f64) -> f64 {
    let rate: f64 = levels.iter().map(|level| 1.0 / level.mtbf_s).sum();
    if lasts_s == 0.0 || rate == 0.0 {
        return lasts_s;
    }
    let (fails, passes) = (-libm::expm1(-rate * lasts_s), libm::exp(-rate * lasts_s));
    // From a failure until the stage begins again, for each level, highest first: a failure in a restart
    // makes one of the higher level of the two.
    let mut again_s = vec![0.0; levels.len()];
    for (index, (level, since)) in levels.iter().zip(since).enumerate().rev() {
        let restart_s = level.restart_s + since.read_s;
        let (fails, passes) = (-libm::expm1(-rate * restart_s), libm::exp(-rate * restart_s));
        let share = |level: &Level| 1.0 / level.mtbf_s / rate;
        let higher = || levels.iter().zip(&again_s).skip(index + 1);
        let other: f64 = higher().map(|(level, _)| share(level)).sum();
        let higher_s: f64 = higher().map(|(level, again_s)| share(level) * again_s).sum();
        // Of all failures, those of this level and of lower ones begin the same restart again.
        let ends = passes + fails * other;
        again_s[index] = (fails / rate + passes * since.mean_s + fails * higher_s) / ends;
    }
    let shares = levels.iter().zip(&again_s).map(|(level, again_s)| again_s / level.mtbf_s / rate);
    let mean_s = fails * (1.0 / rate + shares.sum::<f64>()) / passes;
    // What is beyond all numbers may be none.
    if mean_s.is_nan() { f64::INFINITY } else { mean_s }
}

/// Steps of [`expected_s`] that [`place`] spends at most on changing placements.
const STEPS_MOST: usize = 1 << 24;

/// Good places and levels for checkpoints, and the mean time to the end with them, in seconds.
///
/// # Panics
/// There are no levels, more than [`LEVELS_MOST`], or not as many `candidates` as levels.
pub fn place(levels: &[Level], candidates: &[Candidates]) -> (Vec<Leveled>, f64) {
    assert!((1..=LEVELS_MOST).contains(&levels.len()) && candidates.len() == levels.len());
    let placements = (0..1_u32 << levels.len()).map(|used| {
        let used: Vec<usize> = (0..levels.len()).filter(|level| used >> level & 1 == 1).collect();
        Placement::new(levels, candidates, place_some(levels, candidates, &used))
    });
    let mut placements: Vec<Placement> = placements.collect();
    placements.sort_by(|one, other| one.end_s.total_cmp(&other.end_s));
    let mut steps = STEPS_MOST;
    placements.iter_mut().for_each(|placement| placement.improve(&mut steps));
    let best = placements.into_iter().min_by(|one, other| one.end_s.total_cmp(&other.end_s));
    best.map(|best| (best.chosen(), best.end_s)).unwrap_or_default()
}

/// A choice that can be changed point by point.
struct Placement<'a> {
    levels: &'a [Level],
    candidates: &'a [Candidates],
    /// The level of the checkpoint at each candidate point, if there is one.
    at: Vec<Option<usize>>,
    end_s: f64,
}

impl<'a> Placement<'a> {
    fn new(levels: &'a [Level], candidates: &'a [Candidates], chosen: Vec<Leveled>) -> Self {
        let mut at = vec![None; candidates[0].len()];
        chosen.iter().for_each(|&Leveled { point, level }| at[point] = Some(level));
        Self { levels, candidates, at, end_s: expected_s(levels, candidates, &chosen) }
    }

    fn chosen(&self) -> Vec<Leveled> {
        let of = |(point, level): (usize, &Option<usize>)| level.map(|level| Leveled { point, level });
        self.at.iter().enumerate().filter_map(of).collect()
    }

    /// Changes one point, or two neighbours at once, until no change makes the program end sooner.
    fn improve(&mut self, steps: &mut usize) {
        loop {
            let before_s = self.end_s;
            for point in 0..self.at.len() {
                for level in self.other_levels(point) {
                    self.try_change(point, &[level], steps);
                    if point + 1 < self.at.len() {
                        for next in self.other_levels(point + 1) {
                            self.try_change(point, &[level, next], steps);
                        }
                    }
                }
            }
            if self.end_s >= before_s || *steps == 0 {
                return;
            }
        }
    }

    /// All that a point may have instead.
    fn other_levels(&self, point: usize) -> impl Iterator<Item = Option<usize>> + use<> {
        let now = self.at[point];
        let levels = self.levels.len();
        (0..levels).map(Some).chain([None]).filter(move |&level| level != now)
    }

    /// Gives the points from `first` on these levels, if the program ends sooner then.
    fn try_change(&mut self, first: usize, changed: &[Option<usize>], steps: &mut usize) {
        let Some(left) = steps.checked_sub(self.at.len()) else {
            *steps = 0;
            return;
        };
        *steps = left;
        let before: Vec<_> = self.at[first..][..changed.len()].into();
        self.at[first..][..changed.len()].copy_from_slice(changed);
        let end_s = expected_s(self.levels, self.candidates, &self.chosen());
        if end_s < self.end_s {
            self.end_s = end_s;
        } else {
            self.at[first..][..changed.len()].copy_from_slice(&before);
        }
    }
}

/// Places the levels of `used`, lowest first. A higher one takes its points among those of the lower one, and
/// the program seems to it to run as long as it does with the lower ones, failures included.
fn place_some(levels: &[Level], candidates: &[Candidates], used: &[usize]) -> Vec<Leveled> {
    let mut chosen: Vec<Leveled> = Vec::new();
    let mut seen = 0;
    for (place, &level) in used.iter().enumerate() {
        let written = &candidates[seen..=level];
        let law = Law {
            mtbf_s: in_series(levels[seen..=level].iter().map(|level| level.mtbf_s)),
            restart_s: levels[level].restart_s,
            reread: 1.0,
        };
        let write_ns =
            |point: usize| written.iter().map(|each| each.write_ns(point)).fold(0, u64::saturating_add);
        if place == 0 {
            let points = (0..candidates[0].len()).map(|point| (candidates[0].at_ns(point), write_ns(point)));
            let whole = Candidates::from_times(&points.collect::<Vec<_>>(), candidates[0].end_ns());
            chosen = soonest(&whole, &law).0.into_iter().map(|point| Leveled { point, level }).collect();
        } else {
            let mut ends_ns: Vec<u64> =
                ends_s(&levels[..seen], &candidates[..seen], &chosen).into_iter().map(nanoseconds).collect();
            let end_ns = ends_ns.pop().unwrap_or_default();
            let points: Vec<(u64, u64)> =
                ends_ns.into_iter().zip(&chosen).map(|(at_ns, at)| (at_ns, write_ns(at.point))).collect();
            for index in soonest(&Candidates::from_times(&points, end_ns), &law).0 {
                chosen[index].level = level;
            }
        }
        seen = level + 1;
    }
    chosen
}

/// What is beyond all numbers stays beyond all programs.
fn nanoseconds(time_s: f64) -> u64 {
    libm::fmin(time_s * 1e9, crate::profile::RUN_NS_MOST as f64) as u64
}
