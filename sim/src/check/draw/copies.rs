//! Worlds that make copies, which fail.

use std::collections::BTreeSet;

use everfold_protocol::spec::Protection;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{Weather, pick};
use crate::check::schedule::{Body, Fault, Schedule, Trouble};

/// Lets contributions be long and protected, some ranks call late, and, unless nothing goes wrong, copies
/// fail.
pub(super) fn make_copies(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
    let names: BTreeSet<String> = schedule.reductions.iter().map(|planned| planned.name.clone()).collect();
    for name in names {
        if random.random_bool(0.2) {
            continue;
        }
        let length = pick(random, [8192, 50_000, 50_000]);
        let levels = [Protection::Memory, Protection::Disk, Protection::CommitFirst, Protection::CommitFirst];
        let protection = pick(random, levels);
        let late_us = pick(random, [0, 0, 2_000, 30_000, 100_000]);
        let late: BTreeSet<u32> = (0..schedule.ranks()).filter(|_| random.random_bool(0.3)).collect();
        for planned in schedule.reductions.iter_mut().filter(|planned| planned.name == name) {
            (planned.body, planned.inline, planned.fold_us) = (Body::Array(length), false, 0);
            planned.protection = protection;
            let calls = planned.calls.iter_mut().filter(|call| late.contains(&call.rank));
            calls.for_each(|call| call.at_us += late_us);
        }
    }
    if weather == Weather::Fair {
        return;
    }
    let ranks = schedule.ranks();
    for _ in 0..random.random_range(1..=3) {
        let latest_us = pick(random, [3000, 60_000]);
        let at_us = random.random_range(0..latest_us);
        let (rank, other) = (random.random_range(0..ranks), random.random_range(0..ranks));
        let [one, other] = [rank, other].map(|rank| schedule.hosts[rank as usize]);
        let lasts_us = pick(random, [0, 0, 5_000, 50_000, 500_000]);
        let fault = match random.random_range(0..10) {
            0..6 if one != other => {
                let hangs = random.random_bool(0.5);
                if hangs && schedule.ping_interval_us == 0 {
                    schedule.ping_interval_us = 10_000;
                }
                Fault { at_us, lasts_us, what: Trouble::Unreachable { a: one, b: other, at_once: !hangs } }
            }
            6..8 if schedule.ping_interval_us > 0 => {
                Fault { at_us: 0, lasts_us: 100_000, what: Trouble::FullDisk(rank) }
            }
            _ => Fault { at_us, lasts_us: 0, what: Trouble::SpoilCopies(rank) },
        };
        schedule.faults.push(fault);
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}
