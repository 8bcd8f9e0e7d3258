//! Where ranks live, and what holds their memory.

use std::collections::BTreeSet;

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{CALLS_US, Weather, pick};
use crate::check::schedule::{Body, CallAt, Fault, Schedule, Trouble};

/// Puts hosts into domains, at times, and takes one of these away, which is rarely that of the master.
pub(super) fn label_hosts(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
    schedule.domains = pick(random, [0, 0, 2, 3]);
    if weather == Weather::Fair || !random.random_bool(0.1) {
        return;
    }
    let hosts: BTreeSet<u32> = schedule.hosts.iter().copied().collect();
    let host = *schedule.hosts.choose(random).expect("not empty");
    let domain = |host: u32| host.checked_rem(schedule.domains);
    if domain(host).is_none() || (domain(host) == domain(schedule.hosts[0]) && random.random_bool(0.8)) {
        return;
    }
    let is_silent = schedule.ping_interval_us > 0 && random.random_bool(0.5);
    let at_us = random.random_range(0..10_000);
    for host in hosts.into_iter().filter(|other| domain(*other) == domain(host)) {
        let what = if is_silent { Trouble::LoseHost(host) } else { Trouble::EndHost(host) };
        schedule.faults.push(Fault { at_us, lasts_us: 0, what });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets agents hold the memory of their hosts' ranks, mostly, and hit some of them, or the master, instead of
/// ranks. Without an agent a host has nothing to stop but the master.
pub(super) fn employ_agents(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
    schedule.agents = random.random_bool(0.85);
    schedule.agents_join_us = pick(random, [0, 0, 0, 5000]);
    let masters = schedule.hosts[0];
    for fault in &mut schedule.faults {
        let Some(rank) = fault.what.rank() else { continue };
        let mut host = if random.random_bool(0.5) { masters } else { schedule.hosts[rank as usize] };
        if !schedule.agents {
            host = masters;
        }
        fault.what = match fault.what {
            Trouble::Freeze(_) if random.random_bool(0.25) => Trouble::FreezeAgent(host),
            Trouble::Starve { every_us, runs_us, .. } if random.random_bool(0.4) => {
                Trouble::StarveAgent { host, every_us, runs_us }
            }
            // The end of the master ends everything: it is to be rare.
            Trouble::Abandon(_) if random.random_bool(0.3) => Trouble::Break(rank),
            Trouble::Kill(_) if random.random_bool(0.05) => Trouble::Break(rank),
            Trouble::Kill(_) if host != masters && random.random_bool(0.15) => Trouble::EndHost(host),
            _ => continue,
        };
    }
    if weather == Weather::Fair {
        return;
    }
    let host = *schedule.hosts.choose(random).expect("not empty");
    let is_rare = |random: &mut ChaCha8Rng| host != masters || random.random_bool(0.15);
    if random.random_bool(0.1) && is_rare(random) {
        let what = match schedule.ping_interval_us > 0 && random.random_bool(0.4) {
            true => Trouble::LoseHost(host),
            false => Trouble::EndHost(host),
        };
        let at_us = random.random_range(0..10_000);
        schedule.faults.push(Fault { at_us, lasts_us: 0, what });
        schedule.faults.sort_by_key(|fault| fault.at_us);
    }
}

/// Puts all ranks on one host, and lets them reduce what suits its board.
pub(super) fn share_a_board(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    schedule.board = true;
    schedule.hosts.fill(0);
    let ranks = schedule.ranks();
    if random.random_bool(0.1) {
        schedule.boardless.push(random.random_range(0..ranks));
    }
    for fault in &mut schedule.faults {
        if matches!(fault.what, Trouble::Cut { .. } | Trouble::LoseHost(_)) {
            fault.what = Trouble::Freeze(random.random_range(0..ranks));
        }
    }
    let names: BTreeSet<String> = schedule.reductions.iter().map(|planned| planned.name.clone()).collect();
    for name in names {
        if random.random_bool(0.2) {
            continue;
        }
        let (at_us, together) = (random.random_range(CALLS_US), random.random_bool(0.6));
        for planned in schedule.reductions.iter_mut().filter(|planned| planned.name == name) {
            let comes = |rank: &u32| planned.calls.iter().all(|call| call.rank != *rank);
            let others = (0..ranks).filter(comes).filter(|rank| !planned.absent.contains(rank));
            let others: Vec<CallAt> = others.map(|rank| CallAt { rank, at_us }).collect();
            planned.calls.extend(others);
            if together {
                let at_us = (at_us + 100) * (planned.sequence + 1);
                planned.calls.iter_mut().for_each(|call| call.at_us = at_us + random.random_range(0..60));
            }
            (planned.body, planned.inline, planned.trace) = (Body::Array(1), true, false);
        }
    }
}

/// Lets some ranks have their bodies in memory of their own, and some leave without a word instead of dying.
pub(super) fn use_memory_of_their_own(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let ranks = 0..schedule.ranks();
    schedule.private = ranks.filter(|_| random.random_bool(0.5)).collect();
    for fault in &mut schedule.faults {
        if let Trouble::Kill(rank) | Trouble::LetGo(rank) = fault.what
            && random.random_bool(0.7)
        {
            fault.what = Trouble::Abandon(rank);
        }
    }
}
