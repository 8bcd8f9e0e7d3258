//! Worlds with recovery segments.

use everfold_protocol::spec::Protection;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{Weather, faults, pick};
use crate::check::schedule::{CallAt, Fault, PlannedSegment, Schedule};

/// Lets ranks that come back go through a recovery segment. None is to leave the job in the middle of it, by
/// its plan or because of an error that can be foreseen: the program of a process that has come back would
/// leave before it is where it was.
pub(super) fn add_segment_that_is_repeated(
    schedule: &mut Schedule,
    random: &mut ChaCha8Rng,
    weather: Weather,
) {
    add_segments(schedule, random, weather);
    schedule.segments.truncate(1);
    schedule.leaves.clear();
    schedule.windowless.clear();
    schedule.segments.iter_mut().for_each(|segment| segment.deadline_us = None);
}

/// Lets ranks go through recovery segments, and lets some die meanwhile, several at once and one after the
/// other.
pub(super) fn add_segments(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
    let ranks = schedule.ranks();
    for number in 0..pick(random, [1, 1, 1, 2]) {
        let everybody = random.random_bool(0.7);
        let mut group: Vec<u32> = (0..ranks).filter(|_| everybody || random.random_bool(0.7)).collect();
        if group.is_empty() {
            group.push(0);
        }
        let grains = u64::from(ranks) * random.random_range(1..=12) + random.random_range(0..4);
        let balance = random.random_bool(0.4);
        let grain = random.random_range(1..=3);
        let latest_us = pick(random, [1, 500, 3000]);
        let levels = [Protection::None, Protection::None, Protection::Memory, Protection::CommitFirst];
        let segment = PlannedSegment {
            name: format!("s{number}"),
            // The last grain may be shorter.
            indices: (grains * grain).saturating_sub(random.random_range(0..grain)).max(1),
            grain,
            fixed: random.random_bool(0.4),
            balance,
            progress: random.random_bool(0.7).then(|| pick(random, [1, 1, 1, 2, 3])),
            times: random.random_range(1..=3),
            // Nobody is relieved after less than 5 ms.
            grain_us: if balance {
                pick(random, [100, 1000, 3000])
            } else {
                pick(random, [20, 100, 300, 1000])
            },
            slow: (0..ranks).filter(|_| random.random_bool(0.15)).collect(),
            protection: pick(random, levels),
            deadline_us: (weather == Weather::Foul && random.random_bool(0.03))
                .then(|| random.random_range(500..50_000)),
            inline: random.random_bool(0.6),
            calls: group
                .iter()
                .map(|&rank| CallAt { rank, at_us: random.random_range(0..latest_us) })
                .collect(),
        };
        schedule.segments.push(segment);
    }
    if weather == Weather::Fair {
        return;
    }
    // About as long as ranks fold.
    let lasts_us = |segment: &PlannedSegment| {
        let begins_us = segment.calls.iter().map(|call| call.at_us).max().unwrap_or_default();
        let grains = segment.indices.div_ceil(segment.grain);
        begins_us + (grains.div_ceil(segment.calls.len() as u64) + 1) * segment.grain_us * segment.times
    };
    let lasts_us = schedule.segments.iter().map(lasts_us).max().unwrap_or(1);
    let mut at_us = random.random_range(0..lasts_us);
    for _ in 0..pick(random, [0, 1, 2, 3, 4]) {
        let rank = random.random_range(0..ranks);
        let what = faults::death(schedule, random, rank);
        schedule.faults.push(Fault { at_us, lasts_us: 0, what });
        // Some die at the same moment, others while the survivors compute what is left.
        at_us += pick(random, [0, 1, 1]) * random.random_range(0..=lasts_us / 2);
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}
