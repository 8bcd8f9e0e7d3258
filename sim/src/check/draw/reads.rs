//! Worlds whose reads fail although everybody lives.

use std::collections::BTreeSet;

use everfold_protocol::spec::Protection;
use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::pick;
use crate::check::schedule::{Body, Fault, Receiver, Schedule, Trouble};

/// Lets reads fail although everybody lives: hosts lose each other's memory, for a time or for good, and
/// bytes arrive damaged. Messages of some ranks are late besides.
pub(super) fn fail_reads(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    if random.random_bool(0.6) {
        // Nobody can be blamed for what comes of it.
        schedule.faults.clear();
        schedule.leaves.clear();
    }
    let (kind, interval) = (random.random_range(0..4), schedule.ping_interval_us);
    let mut for_good = false;
    if kind < 3 {
        for_good = random.random_bool(0.5);
        part_hosts(schedule, random, for_good);
    }
    if kind > 1 {
        let ranks: Vec<u32> = (0..schedule.ranks()).collect();
        let count = pick(random, [1, 1, 2, 3]);
        let garbled: Vec<u32> = ranks.choose_multiple(random, count).copied().collect();
        for rank in garbled {
            let at_us = random.random_range(0..5000);
            let what = Trouble::Garble { rank, reads: random.random_range(1..=3) };
            schedule.faults.push(Fault { at_us, lasts_us: 0, what });
        }
    }
    if random.random_bool(0.3) {
        let rank = random.random_range(0..schedule.ranks());
        let what = Trouble::Late { rank, by_us: random.random_range(100..=interval / 2) };
        schedule.faults.push(Fault { at_us: 0, lasts_us: random.random_range(0..20 * interval), what });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
    let names: BTreeSet<String> = schedule.reductions.iter().map(|planned| planned.name.clone()).collect();
    for name in names {
        let (long, length) = (random.random_bool(0.6), pick(random, [8192, 50_000]));
        let (object, root) = (random.random_bool(0.2), random.random::<u32>());
        for planned in schedule.reductions.iter_mut().filter(|planned| planned.name == name) {
            if long {
                let object = object || planned.fold_us > 0;
                planned.body = if object { Body::Object } else { Body::Array(length) };
                planned.inline = false;
            }
            if for_good {
                // A result has to be read by those who are to have it, and an original by its keeper.
                let root = planned.calls[root as usize % planned.calls.len()].rank;
                if !matches!(planned.receiver, Receiver::Root(_)) {
                    (planned.receiver, planned.allow_missing) = (Receiver::Root(root), false);
                }
                planned.protection = Protection::None;
            }
        }
    }
}

/// Lets pairs of hosts lose each other's memory.
fn part_hosts(schedule: &mut Schedule, random: &mut ChaCha8Rng, for_good: bool) {
    let hosts: BTreeSet<u32> = schedule.hosts.iter().copied().collect();
    let hosts: Vec<u32> = hosts.into_iter().collect();
    if hosts.len() < 2 {
        return;
    }
    for _ in 0..pick(random, [1, 1, 2, 4]) {
        let pair: Vec<u32> = hosts.choose_multiple(random, 2).copied().collect();
        let lasts_us = if for_good { 0 } else { random.random_range(100..20 * schedule.ping_interval_us) };
        let what = Trouble::Unreachable { a: pair[0], b: pair[1], at_once: random.random_bool(0.5) };
        schedule.faults.push(Fault { at_us: random.random_range(0..3000), lasts_us, what });
    }
}
