//! Worlds in which processes end before they join.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::pick;
use crate::{
    check::schedule::{EarlyEnd, Fault, Schedule, Trouble},
    settings::Stage,
};

/// Lets one process end before it joins, or some, or all of a host. There is no job then. Processes that have
/// joined die besides, or hosts, at times.
pub(super) fn end_before_joining(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let ranks = schedule.ranks();
    let one = random.random_range(0..ranks);
    let host = schedule.hosts[one as usize];
    let way = random.random_range(0..3);
    let latest_us = pick(random, [50, 5000, 60_000]);
    for rank in 0..ranks {
        let is_early = match way {
            0 => false,
            1 => schedule.hosts[rank as usize] == host,
            _ => random.random_bool(0.3),
        };
        if !is_early && rank != one {
            continue;
        }
        let stage = match rank {
            // Without a master little is told.
            0 if random.random_bool(0.6) => pick(random, [Stage::Hailed, Stage::Connected]),
            _ => pick(random, [Stage::Started, Stage::Started, Stage::Hailed, Stage::Connected]),
        };
        let at_us = random.random_range(0..latest_us);
        schedule.early_ends.push(EarlyEnd { rank, at_us, stage });
    }
    schedule.reductions.clear();
    schedule.segments.clear();
    schedule.leaves.clear();
    schedule.faults.clear();
    if random.random_bool(0.5) {
        end_others(schedule, random, latest_us);
    }
}

fn end_others(schedule: &mut Schedule, random: &mut ChaCha8Rng, latest_us: u64) {
    for _ in 0..random.random_range(1..=3) {
        let rank = random.random_range(0..schedule.ranks());
        let host = schedule.hosts[rank as usize];
        let is_early = schedule.early_ends.iter().any(|early| early.rank == rank);
        let what = match random.random_range(0..4) {
            0 | 1 if !is_early => Trouble::Kill(rank),
            // Others end with a master that is gone, whatever they wait for.
            _ if host == schedule.hosts[0] && random.random_bool(0.7) => continue,
            2 if schedule.ping_interval_us > 0 => Trouble::LoseHost(host),
            _ => Trouble::EndHost(host),
        };
        schedule.faults.push(Fault { at_us: random.random_range(0..latest_us), lasts_us: 0, what });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}
