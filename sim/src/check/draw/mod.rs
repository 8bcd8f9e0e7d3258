//! Schedules from seeds.
//!
//! | module | holds |
//! |---|---|
//! | `returns` | schedules whose ranks come back after they have died |
//! | `sizes` | schedules whose sizes are unusual |

use std::collections::BTreeSet;

use everfold_protocol::spec::{Order, Protection};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

mod pieces;
mod returns;
mod sizes;

use super::{
    schedule::{BOARD_BYTES, Body, CallAt, Fault, Leave, Pacing, Planned, Receiver, Schedule, Trouble},
    shapes::reshape,
};
use crate::settings::Wakes;

/// When ranks call, at first.
const CALLS_US: std::ops::Range<u64> = 0..3000;

/// What may happen in a world.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weather {
    /// Nothing.
    Fair,
    /// Processes die, which shows at once.
    Deaths,
    /// Anything.
    Foul,
}

/// Everything that a run does, drawn from `seed`.
pub fn draw(seed: u64) -> Schedule {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // What is drawn from a stream of its own leaves the worlds that are known by their seeds as they were.
    let mut apart = random.clone();
    apart.set_stream(1);
    let weather = match random.random_range(0..10) {
        0 => Weather::Fair,
        1..4 => Weather::Deaths,
        _ => Weather::Foul,
    };
    let ranks = match random.random_range(0..100) {
        0..65 => random.random_range(1..=8),
        65..95 => random.random_range(9..=16),
        _ => random.random_range(17..=64),
    };
    let hosts = random.random_range(1..=ranks);
    let foul = weather == Weather::Foul;
    let mut schedule = Schedule {
        seed,
        hosts: (0..ranks).map(|_| random.random_range(0..hosts)).collect(),
        domains: 0,
        agents: false,
        agents_join_us: 0,
        returns: None,
        board: false,
        boardless: Vec::new(),
        private: Vec::new(),
        full: Vec::new(),
        windowless: Vec::new(),
        board_bytes: BOARD_BYTES,
        task_us: (0..ranks).map(|_| random.random_range(1..500)).collect(),
        ping_interval_us: if foul { pick(&mut random, [10_000, 30_000, 100_000]) } else { 0 },
        latency_us: (1, pick(&mut random, [50, 50, 500])),
        collect_us: 0,
        collect_segments: 0,
        halves: false,
        crowded: Vec::new(),
        keep_failures_percent: if foul { pick(&mut random, [0, 0, 30]) } else { 0 },
        damage_percent: if foul { pick(&mut random, [0, 0, 10]) } else { 0 },
        batch_us: 0,
        wakes: pick(&mut random, [Wakes::InOrder, Wakes::InOneGo, Wakes::ByItsClock]),
        pacing: Pacing {
            segment_bytes: 1 << 16,
            fan_in_max: random.random_range(2..=16),
            copy_bytes: pick(&mut random, [1, 1 << 17, 4 << 20]),
            lane_reads_min: random.random_range(1..=16),
            lane_bytes: pick(&mut random, [1, 2 << 20]),
            hold_bytes: pick(&mut random, [8, 16, 1 << 20]),
            task_bytes_per_rank: pick(&mut random, [0, 2 << 10, 1 << 16]),
            gather_us: pick(&mut apart, [0, 2000]),
            spread_bytes: pick(&mut apart, [0, 16, 4 << 10]),
            teams_from: 0,
            crowd_from: None,
            refusals_max: None,
        },
        reductions: Vec::new(),
        leaves: Vec::new(),
        faults: Vec::new(),
    };
    let names = if ranks > 16 { random.random_range(1..3) } else { random.random_range(1..6) };
    if foul && random.random_bool(0.1) {
        for rank in 0..ranks {
            if random.random_bool(0.3) {
                schedule.leaves.push(Leave { rank, at_us: random.random_range(0..20_000) });
            }
        }
    }
    for number in 0..names {
        add_reduction(&mut schedule, &mut random, &format!("r{number}"), weather);
    }
    match weather {
        Weather::Fair => {}
        Weather::Deaths => {
            for rank in 0..ranks {
                if random.random_bool((2.0 / f64::from(ranks)).min(1.0)) {
                    let at_us = random.random_range(0..4500);
                    let what = death(&schedule, &mut random, rank);
                    schedule.faults.push(Fault { at_us, lasts_us: 0, what });
                }
            }
        }
        Weather::Foul => {
            for _ in 0..random.random_range(1..=5) {
                add_fault(&mut schedule, &mut random);
            }
        }
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
    if apart.random_bool(0.15) {
        share_a_board(&mut schedule, &mut apart);
    } else {
        let mut apart = random.clone();
        apart.set_stream(2);
        if apart.random_bool(0.2) {
            work_in_teams(&mut schedule, &mut apart);
        } else {
            let mut apart = random.clone();
            apart.set_stream(3);
            if apart.random_bool(0.15) {
                fold_slowly(&mut schedule, &mut apart);
            } else if weather != Weather::Fair && apart.random_bool(0.1) {
                lose_results(&mut schedule, &mut apart);
            }
        }
    }
    let mut apart = random.clone();
    apart.set_stream(4);
    if apart.random_bool(0.3) {
        use_memory_of_their_own(&mut schedule, &mut apart);
    }
    let mut apart = random.clone();
    apart.set_stream(8);
    if apart.random_bool(0.1) && !schedule.board {
        sizes::vary(&mut schedule, &mut apart, weather);
    }
    let mut apart = random.clone();
    apart.set_stream(6);
    if weather == Weather::Fair && apart.random_bool(0.4) {
        schedule.ping_interval_us = pick(&mut apart, [10_000, 30_000, 100_000]);
    }
    if apart.random_bool(0.15) {
        schedule.batch_us = pick(&mut apart, [50, 500, 5000]);
    }
    if !schedule.board && schedule.pacing.teams_from == 0 && apart.random_bool(0.15) {
        make_copies(&mut schedule, &mut apart, weather);
    }
    let mut apart = random;
    apart.set_stream(9);
    reshape(&mut schedule, &mut apart, weather == Weather::Fair);
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(5);
    if !schedule.board && schedule.pacing.teams_from == 0 && apart.random_bool(0.15) {
        hand_out_with_trouble(&mut schedule, &mut apart);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(7);
    if foul && !schedule.board && schedule.pacing.teams_from == 0 && apart.random_bool(0.3) {
        fail_reads(&mut schedule, &mut apart);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(10);
    employ_agents(&mut schedule, &mut apart, weather);
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(11);
    label_hosts(&mut schedule, &mut apart, weather);
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(12);
    if schedule.agents
        && !schedule.board
        && schedule.pacing.teams_from == 0
        && (weather != Weather::Fair || apart.random_bool(0.2))
        && apart.random_bool(0.15)
    {
        returns::bring_back(&mut schedule, &mut apart, weather);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(13);
    if !schedule.board && apart.random_bool(0.2) {
        pieces::bring(&mut schedule, &mut apart);
    }
    schedule
}

/// Puts hosts into domains, at times, and takes one of these away, which is rarely that of the master.
fn label_hosts(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
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
fn employ_agents(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
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

/// Lets contributions be long and protected, some ranks call late, and, unless nothing goes wrong, copies
/// fail.
fn make_copies(schedule: &mut Schedule, random: &mut ChaCha8Rng, weather: Weather) {
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

/// Lets results be copied bit by bit, under deadlines, while processes die and hosts cannot read each other's
/// results.
fn hand_out_with_trouble(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
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

/// Lets reads fail although everybody lives: hosts lose each other's memory, for a time or for good, and
/// bytes arrive damaged. Messages of some ranks are late besides.
fn fail_reads(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
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

/// Lets some ranks have their bodies in memory of their own, and some leave without a word instead of dying.
fn use_memory_of_their_own(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
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

/// Lets the ranks reduce objects whose operations take long, and the master look after them.
fn fold_slowly(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
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

/// Lets even small groups work in teams, and reduce what suits them.
fn work_in_teams(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
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

/// Puts all ranks on one host, and lets them reduce what suits its board.
fn share_a_board(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
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

/// Lets results take long to be copied, and processes die meanwhile.
fn lose_results(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
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

fn pick<T: Copy, const N: usize>(random: &mut ChaCha8Rng, choices: [T; N]) -> T {
    choices[random.random_range(0..N)]
}

/// Adds a reduction, and perhaps more of its name.
fn add_reduction(schedule: &mut Schedule, random: &mut ChaCha8Rng, name: &str, weather: Weather) {
    let ranks = schedule.ranks();
    let group: Vec<u32> = loop {
        let group: Vec<u32> = (0..ranks).filter(|_| random.random_bool(0.8)).collect();
        if !group.is_empty() {
            break group;
        }
    };
    let receiver = match random.random_range(0..10) {
        0..5 => Receiver::Root(*group.choose(random).expect("not empty")),
        5..7 => Receiver::FirstOf(group.choose_multiple(random, 3).copied().collect()),
        _ => Receiver::All,
    };
    let body = if random.random_bool(0.7) {
        Body::Array(pick(random, [1, 100, 8192, 50_000]))
    } else {
        Body::Object
    };
    let inline = match body {
        Body::Array(length) => length * 8 <= 16 << 10,
        Body::Object | Body::Pieces(_) => random.random_bool(0.5),
    };
    let levels = [Protection::None, Protection::Memory, Protection::Disk, Protection::CommitFirst];
    let first = Planned {
        name: name.to_owned(),
        sequence: 0,
        allow_missing: !matches!(receiver, Receiver::Root(_)) && random.random_bool(0.4),
        receiver,
        body,
        fold_us: 0,
        long: Vec::new(),
        order: if random.random_bool(0.6) { Order::Arrival } else { Order::Fixed },
        inline,
        protection: pick(random, levels),
        trace: random.random_bool(0.3),
        deadline_us: None,
        disagrees: None,
        absent: Vec::new(),
        calls: group.iter().map(|&rank| CallAt { rank, at_us: random.random_range(CALLS_US) }).collect(),
    };
    let mut planned = first.clone();
    if weather == Weather::Foul {
        spoil(&mut planned, random);
    }
    schedule.reductions.push(planned);
    // Ranks that miss one call of a name count its calls differently from then on.
    let complete = schedule.reductions.last().is_some_and(|planned| planned.absent.is_empty());
    let more = if complete && random.random_bool(0.3) { random.random_range(1..=3) } else { 0 };
    let mut last = first;
    for _ in 0..more {
        last.sequence += 1;
        // Some call again at once, others long after a rank of the group was given up.
        let pause_us = pick(random, [2000, 50_000, 2_000_000]);
        for call in &mut last.calls {
            call.at_us += random.random_range(1..pause_us);
        }
        schedule.reductions.push(last.clone());
    }
}

/// Lets callers get something wrong.
fn spoil(planned: &mut Planned, random: &mut ChaCha8Rng) {
    let someone = |planned: &Planned, random: &mut ChaCha8Rng| {
        planned.calls.choose(random).map(|call| call.rank).expect("somebody calls")
    };
    if random.random_bool(0.1) {
        planned.deadline_us = Some(random.random_range(500..50_000));
    }
    if random.random_bool(0.03) && planned.calls.len() > 1 {
        planned.disagrees = Some(someone(planned, random));
    }
    while random.random_bool(0.08) && planned.calls.len() > 1 {
        let absent = someone(planned, random);
        planned.calls.retain(|call| call.rank != absent);
        planned.absent.push(absent);
    }
}

fn add_fault(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
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
fn death(schedule: &Schedule, random: &mut ChaCha8Rng, rank: u32) -> Trouble {
    let is_beside_the_master = schedule.hosts[rank as usize] == schedule.hosts[0];
    match is_beside_the_master && random.random_bool(0.8) {
        true => Trouble::LetGo(rank),
        false => Trouble::Kill(rank),
    }
}

/// A cut between two sets of hosts, where there are several.
fn cut(schedule: &Schedule, random: &mut ChaCha8Rng) -> Option<Trouble> {
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
