//! Schedules whose sizes are unusual: hundreds of segments, small groups out of many ranks, lengths beside
//! those at which the master does otherwise, and a master that forgets why it refused what late ranks have
//! yet to call.

use std::collections::BTreeSet;

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    super::schedule::{Body, Planned, Receiver, Schedule},
    Weather, pick,
    reductions::add_reduction,
};

/// Length in bytes up to which bodies travel in messages.
const INLINE_BYTES_MAX: u64 = 16 << 10;
/// Bytes that the master counts for a contribution in a message beside its body.
const SOURCE_BYTES: u64 = 128;

/// Many ranks.
const RANKS_MIN: u32 = 24;

/// Gives a schedule unusual sizes.
pub(super) fn vary(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
    if weather == Weather::Fair && random.random_bool(0.5) {
        schedule.ping_interval_us = schedule.ping_interval_us.max(10_000);
    }
    match random.random_range(0..10) {
        0 if schedule.ranks() <= 8 => cut_small(schedule, random),
        0 | 1 => meet_in_small_groups(schedule, random, weather),
        3..7 => come_near_thresholds(schedule, random),
        _ => forget_refusals(schedule, random),
    }
}

/// Lets one reduction have hundreds of segments.
fn cut_small(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    schedule.reductions.truncate(1);
    schedule.pacing.segment_bytes = pick(random, [1 << 10, 1 << 11]);
    for planned in &mut schedule.reductions {
        (planned.body, planned.inline, planned.fold_us) = (Body::Array(50_000), false, 0);
    }
}

/// Lets many ranks meet in many groups of a few of them.
fn meet_in_small_groups(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
    while schedule.ranks() < RANKS_MIN {
        schedule.hosts.push(random.random_range(0..RANKS_MIN));
        schedule.task_us.push(random.random_range(1..500));
    }
    for number in 0..random.random_range(4..12) {
        add_reduction(schedule, random, &format!("small {number}"), weather);
    }
    for name in names(schedule) {
        let few = random.random_range(1..=4);
        let group: Vec<u32> = {
            let first = schedule.reductions.iter().find(|planned| planned.name == name);
            let ranks: Vec<u32> = first.into_iter().flat_map(group).collect();
            ranks.choose_multiple(random, few).copied().collect()
        };
        schedule.reductions.iter_mut().filter(|planned| planned.name == name).for_each(|planned| {
            keep_only(planned, &group);
        });
    }
    schedule.reductions.retain(|planned| !planned.calls.is_empty());
}

/// Lets bodies be about as long as the lengths at which the master does otherwise.
fn come_near_thresholds(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let beside = |bytes: u64, random: &mut ChaCha8Rng| (bytes + random.random_range(0..3)).saturating_sub(1);
    for name in names(schedule) {
        let segment_bytes = schedule.pacing.segment_bytes;
        let bytes = pick(random, [INLINE_BYTES_MAX, INLINE_BYTES_MAX, segment_bytes, 2 * segment_bytes]);
        let length = beside(bytes / 8, random);
        let body_bytes = 8 * length;
        let mut ranks = 0;
        for planned in schedule.reductions.iter_mut().filter(|planned| planned.name == name) {
            (planned.body, planned.fold_us) = (Body::Array(length), 0);
            planned.inline = body_bytes <= INLINE_BYTES_MAX;
            ranks = group(planned).count() as u64;
        }
        schedule.pacing.spread_bytes = beside(ranks * (SOURCE_BYTES + body_bytes), random);
        schedule.pacing.hold_bytes = beside(ranks.saturating_sub(1) * body_bytes, random);
        schedule.pacing.copy_bytes = beside(pick(random, [1, 2]) * segment_bytes, random);
    }
    let reductions = schedule.reductions.len();
    schedule.pacing.crowd_from = Some(random.random_range(0..=reductions));
}

/// Lets bodies be about as long as the longest that lies on the board.
pub(super) fn come_near_the_board(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    for name in names(schedule) {
        let length = schedule.board_bytes / 8 + random.random_range(0..3) - 1;
        let plain = |planned: &&mut Planned| planned.name == name && planned.fold_us == 0;
        for planned in schedule.reductions.iter_mut().filter(plain) {
            (planned.body, planned.inline) = (Body::Array(length), 8 * length <= INLINE_BYTES_MAX);
        }
    }
}

/// Lets the master forget refusals, deadlines pass, and ranks come late.
fn forget_refusals(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    schedule.pacing.refusals_max = Some(random.random_range(0..3));
    for name in names(schedule) {
        let deadline_us = random.random_range(500..10_000);
        let late_us = pick(random, [5_000, 50_000, 500_000]);
        let has_deadline = random.random_bool(0.7);
        let mut late = None;
        for planned in schedule.reductions.iter_mut().filter(|planned| planned.name == name) {
            planned.deadline_us = planned.deadline_us.or(has_deadline.then_some(deadline_us));
            let ranks: Vec<u32> = planned.calls.iter().map(|call| call.rank).collect();
            let late = *late.get_or_insert_with(|| ranks.choose(random).copied());
            let calls = planned.calls.iter_mut().filter(|call| Some(call.rank) == late);
            calls.for_each(|call| call.at_us += late_us);
        }
    }
}

pub(super) fn names(schedule: &Schedule) -> BTreeSet<String> {
    schedule.reductions.iter().map(|planned| planned.name.clone()).collect()
}

fn group(planned: &Planned) -> impl Iterator<Item = u32> {
    planned.calls.iter().map(|call| call.rank).chain(planned.absent.iter().copied())
}

/// Leaves all but those of `few` out of a group.
fn keep_only(planned: &mut Planned, few: &[u32]) {
    planned.calls.retain(|call| few.contains(&call.rank));
    planned.absent.retain(|rank| few.contains(rank));
    planned.disagrees.take_if(|rank| !few.contains(rank) || few.len() < 2);
    let Some(first) = few.first().copied() else { return };
    match &mut planned.receiver {
        Receiver::Root(root) if !few.contains(root) => *root = first,
        Receiver::FirstOf(ranks) => {
            ranks.retain(|rank| few.contains(rank));
            if ranks.is_empty() {
                ranks.push(first);
            }
        }
        Receiver::Root(_) | Receiver::All => {}
    }
}
