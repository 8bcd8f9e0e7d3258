//! Worlds whose ranks come back after their processes have died.

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    Weather,
    faults::{cut, death},
    pick,
    sizes::names,
};
use crate::{
    check::schedule::{Body, Fault, Migrating, Receiver, Remedy, Returning, Schedule, Standing, Trouble},
    settings::FIRST_SPARE,
};

/// Lets ranks come back, and more of them die: once or several times, also while they are coming back.
pub(super) fn bring_back(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
    let start_us = pick(random, [200, 3000, 3000, 20_000]);
    let gives_up = weather == Weather::Foul && random.random_bool(0.4);
    schedule.returns = Some(Returning {
        start_us,
        start_failures_percent: if gives_up { pick(random, [0, 30]) } else { 0 },
        hang_percent: if gives_up { 20 } else { 0 },
        note_us: pick(random, [20, 200, 2000]),
        note_failures_percent: 0,
        checkpoints_percent: 0,
        return_us: if gives_up { pick(random, [2000, 50_000]) } else { 10_000_000 },
        returns_max: if gives_up { pick(random, [1, 2, 100]) } else { 100 },
        fruitless_max: if gives_up { pick(random, [0, 1, 3, 100]) } else { 100 },
        pause_us: pick(random, [0, 300, 2000]),
        own_detectors: false,
        located: None,
        repeated: (gives_up && random.random_bool(0.3)).then(|| (pick(random, [0, 1, 2]), 10_000)),
        migrates: None,
    });
    for planned in &mut schedule.reductions {
        if let Receiver::Root(root) = planned.receiver {
            planned.receiver = Receiver::FirstOf(vec![root]);
        }
    }
    if weather == Weather::Fair {
        return;
    }
    if random.random_bool(0.6) {
        // Only processes die. Whoever comes back has lost nothing but time.
        schedule.faults.retain(|fault| {
            matches!(fault.what, Trouble::Kill(_) | Trouble::LetGo(_) | Trouble::Abandon(_))
                || matches!(fault.what, Trouble::Crash { .. } | Trouble::Break(_))
        });
        schedule.leaves.clear();
        (schedule.keep_failures_percent, schedule.damage_percent) = (0, 0);
    }
    if random.random_bool(0.3) {
        schedule.collect_us = pick(random, [300, 3000, 20_000]);
    }
    if random.random_bool(0.3) {
        // What is lost with its process is contributed again.
        schedule.private = (0..schedule.ranks()).filter(|_| random.random_bool(0.5)).collect();
        for planned in &mut schedule.reductions {
            if planned.fold_us == 0 && random.random_bool(0.6) {
                (planned.body, planned.inline) = (Body::Array(50_000), false);
            }
        }
    }
    add_deaths(schedule, random, start_us);
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets programs save checkpoints, and logs have no room for some outcomes, mostly.
pub(super) fn fill_logs(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let Some(returns) = &mut schedule.returns else { return };
    returns.note_failures_percent = pick(random, [0, 3, 10, 30]);
    returns.checkpoints_percent = pick(random, [20, 60, 100]);
}

/// Lets some ranks die, at times twice or more.
fn add_deaths(schedule: &mut Schedule, random: &mut ChaCha8Rng, start_us: u64) {
    let latest_us = pick(random, [4000, 4000, 10_000, 60_000]);
    for _ in 0..random.random_range(1..=4) {
        let rank = random.random_range(0..schedule.ranks());
        let mut at_us = random.random_range(0..latest_us);
        loop {
            let what = match random.random_range(0..10) {
                0..6 => death(schedule, random, rank),
                6..8 => Trouble::Crash { rank, arrive: random.random_range(0..=2) },
                8 => Trouble::Abandon(rank),
                _ => Trouble::Break(rank),
            };
            schedule.faults.push(Fault { at_us, lasts_us: 0, what });
            if random.random_bool(0.6) {
                break;
            }
            // Before it is there again, while it makes its calls again, or later.
            at_us += random.random_range(0..3 * start_us + 2000);
        }
    }
}

/// Lets a rank lose its connection, so that its process closes its windows, and its later process die about
/// when it has called again. Some folds become slow.
pub(super) fn die_after_a_break(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
    let Some(start_us) =
        schedule.returns.map(|returns| returns.start_us).filter(|_| weather != Weather::Fair)
    else {
        return;
    };
    schedule.ping_interval_us = schedule.ping_interval_us.max(10_000);
    for name in names(schedule) {
        let slow_us = if random.random_bool(0.3) { pick(random, [2000, 20_000, 100_000]) } else { 0 };
        for planned in schedule.reductions.iter_mut().filter(|planned| planned.name == name) {
            if !matches!(planned.body, Body::Pieces(_)) {
                planned.fold_us = planned.fold_us.max(slow_us);
            }
        }
    }
    for _ in 0..random.random_range(1..=2) {
        let rank = random.random_range(0..schedule.ranks());
        let break_us = random.random_range(0..4000);
        let death_us = break_us + start_us + random.random_range(0..start_us + 40_000);
        schedule.faults.push(Fault { at_us: break_us, lasts_us: 0, what: Trouble::Break(rank) });
        let what = death(schedule, random, rank);
        schedule.faults.push(Fault { at_us: death_us, lasts_us: 0, what });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets ranks die about when their last call to a reduction is made: when a round on the board is complete, and
/// they have not noted the outcome.
pub(super) fn die_at_the_board(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
    let note_us = schedule.returns.map_or(0, |returns| returns.note_us);
    if weather == Weather::Fair {
        return;
    }
    for number in 0..schedule.reductions.len() {
        let Some(last_us) = schedule.reductions[number].calls.iter().map(|call| call.at_us).max() else {
            continue;
        };
        if random.random_bool(0.4) {
            let rank = random.random_range(0..schedule.ranks());
            let at_us = last_us + random.random_range(0..100 + note_us);
            schedule.faults.push(Fault { at_us, lasts_us: 0, what: death(schedule, random, rank) });
        }
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets ranks come back on other hosts, and hosts be lost: one or several, also while ranks are on their way.
pub(super) fn migrate(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let Some(returns) = &mut schedule.returns else { return };
    let is_rough = random.random_bool(0.3);
    returns.migrates = Some(Migrating {
        spares: pick(random, [0, 1, 1, 2]),
        copy_us: pick(random, [20, 200, 3000]),
        copy_failures_percent: if is_rough { pick(random, [0, 5, 30]) } else { 0 },
        from_repeated: is_rough && random.random_bool(0.5),
        network_percent: random.random_bool(0.3).then(|| pick(random, [0, 30, 60])),
        standbys: None,
    });
    let (start_us, masters) = (returns.start_us, schedule.hosts[0]);
    // Who is silent is drawn below.
    schedule.faults.retain(|fault| {
        matches!(fault.what, Trouble::Kill(_) | Trouble::LetGo(_) | Trouble::Abandon(_) | Trouble::EndHost(_))
            || matches!(fault.what, Trouble::Crash { .. } | Trouble::Break(_) | Trouble::Slow { .. })
    });
    schedule.faults.retain(|fault| fault.what != Trouble::EndHost(masters) || is_rough);
    schedule.ping_interval_us = 0;
    (schedule.damage_percent, schedule.agents_join_us) = (0, 0);
    let others: Vec<u32> = schedule.hosts.iter().copied().filter(|host| *host != masters).collect();
    for _ in 0..random.random_range(1..=3) {
        let Some(&host) = others.choose(random) else { break };
        let latest_us = pick(random, [4000, 10_000, 60_000]);
        let at_us = random.random_range(0..latest_us);
        schedule.faults.push(Fault { at_us, lasts_us: 0, what: Trouble::EndHost(host) });
        if random.random_bool(0.3) {
            // While its ranks are started elsewhere.
            let at_us = at_us + random.random_range(0..3 * start_us + 2000);
            let what = Trouble::EndHost(FIRST_SPARE + random.random_range(0..2));
            schedule.faults.push(Fault { at_us, lasts_us: 0, what });
        }
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets a second process of each rank stand by, and die or freeze; and ranks die once more, when theirs may be there.
pub(super) fn stand_by(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let Some(returns) = &mut schedule.returns else { return };
    let start_us = returns.start_us;
    let Some(migrates) = &mut returns.migrates else { return };
    migrates.standbys = Some(Standing {
        deaths_percent: pick(random, [0, 0, 20, 60]),
        frozen_percent: pick(random, [0, 0, 0, 20]),
    });
    for _ in 0..random.random_range(1..=3) {
        let rank = random.random_range(0..schedule.ranks());
        let at_us = random.random_range(0..8 * start_us + 4000);
        let what = death(schedule, random, rank);
        schedule.faults.push(Fault { at_us, lasts_us: 0, what });
        if random.random_bool(0.3) {
            // Its standby's host, maybe, while that takes its place.
            let hosts = [schedule.hosts[random.random_range(0..schedule.hosts.len())], FIRST_SPARE];
            let (at_us, host) = (at_us + random.random_range(0..start_us + 200), pick(random, hosts));
            if host != schedule.hosts[0] {
                schedule.faults.push(Fault { at_us, lasts_us: 0, what: Trouble::EndHost(host) });
            }
        }
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets hosts, or some of their processes, be silent where ranks migrate: for so short a time that nobody minds,
/// for long, or for good.
pub(super) fn silence_hosts(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    schedule.ping_interval_us = pick(random, [10_000, 30_000]);
    for _ in 0..random.random_range(1..=2) {
        let rank = random.random_range(0..schedule.ranks());
        let host = schedule.hosts[rank as usize];
        let what = match random.random_range(0..10) {
            0..2 => Trouble::Freeze(rank),
            2..5 => Trouble::FreezeAgent(host),
            5..7 if host != schedule.hosts[0] => Trouble::LoseHost(host),
            _ => cut(schedule, random).unwrap_or(Trouble::FreezeAgent(host)),
        };
        let lasts_us = match what {
            Trouble::LoseHost(_) => 0,
            _ => pick(random, [5000, 20_000, 60_000, 300_000]),
        };
        schedule.faults.push(Fault { at_us: random.random_range(0..20_000), lasts_us, what });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets ranks be silent: for so short a time that nobody minds, or so long that they are replaced.
pub(super) fn silence_ranks(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    if schedule.ping_interval_us == 0 {
        schedule.ping_interval_us = pick(random, [10_000, 30_000]);
    }
    for _ in 0..random.random_range(1..=2) {
        let what = Trouble::Freeze(random.random_range(0..schedule.ranks()));
        let lasts_us = pick(random, [20_000, 60_000, 300_000, 3_000_000]);
        schedule.faults.push(Fault { at_us: random.random_range(0..20_000), lasts_us, what });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets the master hear of located faults, most of which nobody has, and lets ranks die there and come back
/// in another way.
pub(super) fn locate(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
    if let Some(returns) = &mut schedule.returns {
        let rarely = pick(random, [Remedy::Restart, Remedy::Ignore]);
        let migrates = returns.migrates.is_some() && random.random_bool(0.8);
        let remedy = if migrates { Remedy::Migrate } else { rarely };
        returns.located = random.random_bool(0.9).then_some(remedy);
    }
    for _ in 0..random.random_range(1..=4) {
        let [rank, other] = [(); 2].map(|()| random.random_range(0..schedule.ranks()));
        let [host, to] = [rank, other].map(|rank| schedule.hosts[rank as usize]);
        let what = match random.random_range(0..10) {
            0..6 => Trouble::Locate { hosts: vec![host], named: random.random_bool(0.8) },
            6 => Trouble::Locate { hosts: vec![host, to, FIRST_SPARE], named: true },
            _ => Trouble::LocateLink { from: host, to },
        };
        let latest_us = pick(random, [1000, 5000, 20_000]);
        let (at_us, lasts_us) = (random.random_range(0..latest_us), pick(random, [0, 500, 3000, 20_000]));
        schedule.faults.push(Fault { at_us, lasts_us, what });
        if schedule.returns.is_some() && weather != Weather::Fair && random.random_bool(0.6) {
            let (at_us, what) = (at_us + random.random_range(0..5000), death(schedule, random, rank));
            schedule.faults.push(Fault { at_us, lasts_us: 0, what });
        }
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}
