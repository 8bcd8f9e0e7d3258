//! Worlds in which something happens while results are copied.

use std::collections::BTreeSet;

use everfold_protocol::spec::Protection;
use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{faults::death, pick};
use crate::check::schedule::{Body, Fault, Planned, Receiver, Schedule, Trouble};

/// Lets results be copied bit by bit, under deadlines, while processes die and hosts cannot read each other's
/// results.
pub(super) fn hand_out_with_trouble(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let ranks = schedule.ranks();
    schedule.collect_us = pick(random, [100, 1000, 10_000]);
    schedule.collect_segments = pick(random, [0, 1, 2]);
    schedule.halves = random.random_bool(0.7);
    if random.random_bool(0.3) {
        schedule.crowded = (0..ranks).filter(|_| random.random_bool(0.4)).collect();
    }
    schedule.ping_interval_us = schedule.ping_interval_us.max(pick(random, [0, 10_000]));
    let latest_us = 6000 + 5 * schedule.collect_us;
    let names: BTreeSet<String> = schedule.reductions.iter().map(|planned| planned.name.clone()).collect();
    for name in names {
        let is_slow = |planned: &Planned| planned.name == name && planned.fold_us > 0;
        if random.random_bool(0.2) || schedule.reductions.iter().any(is_slow) {
            continue;
        }
        let (object, missing) = (random.random_bool(0.2), random.random_bool(0.5));
        let protection = pick(random, [Protection::None, Protection::Disk, Protection::CommitFirst]);
        for planned in schedule.reductions.iter_mut().filter(|planned| planned.name == name) {
            if matches!(planned.receiver, Receiver::Root(_)) {
                planned.receiver = Receiver::All;
            }
            planned.body = if object { Body::Object } else { Body::Array(50_000) };
            (planned.inline, planned.protection, planned.allow_missing) = (false, protection, missing);
            if random.random_bool(0.4) {
                planned.deadline_us = Some(random.random_range(500..latest_us));
            }
        }
    }
    for _ in 0..random.random_range(0..=2) {
        let (at_us, rank) = (random.random_range(500..latest_us), random.random_range(0..ranks));
        let what = death(schedule, random, rank);
        schedule.faults.push(Fault { at_us, lasts_us: 0, what });
    }
    let hosts = &schedule.hosts;
    let (one, other) = (*hosts.choose(random).expect("not empty"), *hosts.choose(random).expect("not empty"));
    if one != other && random.random_bool(0.5) {
        let (at_us, lasts_us) = (random.random_range(0..latest_us), pick(random, [5000, 50_000, 0]));
        schedule.faults.push(Fault {
            at_us,
            lasts_us,
            what: Trouble::Unreachable { a: one, b: other, at_once: true },
        });
    }
    if schedule.ping_interval_us > 0 && random.random_bool(0.3) {
        let (rank, task_us) = (random.random_range(0..ranks), random.random_range(5000..400_000));
        let what = Trouble::Slow { rank, task_us };
        schedule.faults.push(Fault { at_us: random.random_range(0..latest_us), lasts_us: latest_us, what });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets results take long to be copied, and processes die meanwhile.
pub(super) fn lose_results(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    schedule.collect_us = pick(random, [300, 3000, 20_000]);
    let names: BTreeSet<String> = schedule.reductions.iter().map(|planned| planned.name.clone()).collect();
    for name in names {
        let (length, missing) = (pick(random, [8192, 50_000, 50_000]), random.random_bool(0.6));
        let protection = pick(random, [Protection::None, Protection::None, Protection::Disk]);
        for planned in schedule.reductions.iter_mut().filter(|planned| planned.name == name) {
            if matches!(planned.receiver, Receiver::Root(_)) {
                planned.receiver = Receiver::All;
            }
            (planned.body, planned.inline) = (Body::Array(length), false);
            (planned.protection, planned.allow_missing) = (protection, missing);
        }
    }
    for _ in 0..random.random_range(1..=3) {
        let at_us = random.random_range(1000..6000 + 2 * schedule.collect_us);
        let rank = random.random_range(0..schedule.ranks());
        let what = death(schedule, random, rank);
        schedule.faults.push(Fault { at_us, lasts_us: 0, what });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}
