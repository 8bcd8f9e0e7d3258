//! What goes wrong in any world: deaths, freezes, cuts, slowness.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::pick;
use crate::check::schedule::{Fault, Schedule, Trouble};

pub(super) fn add_fault(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let ranks = schedule.ranks();
    let rank = random.random_range(0..ranks);
    let interval = schedule.ping_interval_us;
    let latest_us = pick(random, [4000, 10_000, 60_000]);
    let at_us = random.random_range(0..latest_us);
    // Mostly shorter than a silence that counts, sometimes much longer.
    let lasts_us = (interval as f64 * 10f64.powf(random.random_range(-1.3..1.5))) as u64;
    let what = match random.random_range(0..100) {
        0..25 => death(schedule, random, rank),
        25..55 => Trouble::Freeze(rank),
        55..63 => Trouble::Starve {
            rank,
            every_us: random.random_range(100..interval),
            runs_us: random.random_range(10..200),
        },
        63..80 => match cut(schedule, random) {
            Some(cut) => cut,
            None => Trouble::Freeze(rank),
        },
        80..84 if schedule.hosts[rank as usize] != schedule.hosts[0] => {
            Trouble::LoseHost(schedule.hosts[rank as usize])
        }
        80..92 => Trouble::Slow { rank, task_us: random.random_range(5_000..400_000) },
        92..96 => Trouble::SlowDisk { rank, write_us: random.random_range(1_000..200_000) },
        _ => Trouble::FullDisk(rank),
    };
    let is_final = matches!(what, Trouble::Kill(_) | Trouble::LetGo(_) | Trouble::LoseHost(_));
    let lasts_us = if is_final { 0 } else { lasts_us };
    schedule.faults.push(Fault { at_us, lasts_us, what });
}

/// How `rank` dies.
pub(super) fn death(schedule: &Schedule, random: &mut ChaCha8Rng, rank: u32) -> Trouble {
    let is_beside_the_master = schedule.hosts[rank as usize] == schedule.hosts[0];
    match is_beside_the_master && random.random_bool(0.8) {
        true => Trouble::LetGo(rank),
        false => Trouble::Kill(rank),
    }
}

/// A cut between two sets of hosts, where there are several.
pub(super) fn cut(schedule: &Schedule, random: &mut ChaCha8Rng) -> Option<Trouble> {
    let mut hosts = schedule.hosts.clone();
    hosts.sort_unstable();
    hosts.dedup();
    let mut sides = [Vec::new(), Vec::new(), Vec::new()];
    // Some hosts are on neither side and reach everyone.
    let spared = pick(random, [0.0, 0.3]);
    for host in hosts {
        let side = if random.random_bool(spared) { 2 } else { random.random_range(0..2) };
        sides[side].push(host);
    }
    let [from, to, _] = sides;
    (!from.is_empty() && !to.is_empty()).then(|| Trouble::Cut {
        from,
        to,
        both_ways: random.random_bool(0.6),
    })
}
