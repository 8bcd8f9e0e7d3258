//! Who folds, and for how long.

use std::collections::BTreeSet;

use everfold_protocol::spec::{Order, Protection};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{CALLS_US, pick};
use crate::check::schedule::{Body, Receiver, Schedule};

/// Lets even small groups work in teams, and reduce what suits them.
pub(super) fn work_in_teams(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    schedule.pacing.teams_from = pick(random, [3, 5]);
    let names: BTreeSet<String> = schedule.reductions.iter().map(|planned| planned.name.clone()).collect();
    for name in names {
        if random.random_bool(0.2) {
            continue;
        }
        let length = pick(random, [1, 1, 8192, 50_000]);
        let protection =
            pick(random, [Protection::None, Protection::None, Protection::None, Protection::Disk]);
        let (at_us, together) = (random.random_range(CALLS_US), random.random_bool(0.5));
        let mut root = None;
        for planned in schedule.reductions.iter_mut().filter(|planned| planned.name == name) {
            let group = || planned.calls.iter().map(|call| call.rank).chain(planned.absent.iter().copied());
            let count = group().count();
            let root =
                *root.get_or_insert_with(|| group().nth(random.random_range(0..count)).expect("not empty"));
            if together {
                let at_us = (at_us + 100) * (planned.sequence + 1);
                planned.calls.iter_mut().for_each(|call| call.at_us = at_us + random.random_range(0..60));
            }
            planned.receiver = Receiver::Root(root);
            (planned.body, planned.inline) = (Body::Array(length), length * 8 <= 16 << 10);
            (planned.protection, planned.trace, planned.allow_missing) = (protection, false, false);
            planned.order = Order::Arrival;
        }
    }
}

/// Lets the ranks reduce objects whose operations take long, and the master look after them.
pub(super) fn fold_slowly(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    schedule.ping_interval_us = schedule.ping_interval_us.max(10_000);
    let names: BTreeSet<String> = schedule.reductions.iter().map(|planned| planned.name.clone()).collect();
    for name in names {
        if random.random_bool(0.3) {
            continue;
        }
        let (fold_us, inline) = (pick(random, [500, 2000, 20_000, 100_000]), random.random_bool(0.7));
        for planned in schedule.reductions.iter_mut().filter(|planned| planned.name == name) {
            (planned.body, planned.inline, planned.fold_us) = (Body::Object, inline, fold_us);
        }
    }
}
