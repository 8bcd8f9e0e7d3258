//! Worlds of rarer shapes: where bodies and partials lie, how long they are, what is lost with a process,
//! what later calls ask for.

use std::collections::BTreeSet;

use everfold_protocol::spec::Protection;
use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::schedule::{Body, CallAt, Fault, Planned, Receiver, Schedule, Trouble};

/// Gives some worlds another shape. `fair`: nothing is to go wrong there.
pub(super) fn reshape(schedule: &mut Schedule, random: &mut ChaCha8Rng, fair: bool) {
    if schedule.pacing.teams_from == 0 && !schedule.board && schedule.collect_us == 0 {
        match random.random_range(0..100) {
            0..6 => share_one_host(schedule, random, fair),
            6..9 => use_windows_of_bodies_only(schedule, random),
            9..13 => differ_in_length(schedule, random),
            13..18 => fold_arrays_slowly(schedule, random),
            18..23 if !fair => read_slowly(schedule, random),
            23..31 => let_arrays_come_inlined(schedule, random),
            _ => {}
        }
    }
    if schedule.board && random.random_bool(0.4) {
        put_long_bodies_on_the_board(schedule, random);
    }
    if random.random_bool(0.1) {
        fill_regions(schedule, random);
    }
    if random.random_bool(0.2) {
        lose_messages_of_the_dead(schedule, random);
    }
    if !fair && random.random_bool(0.1) {
        spoil_later_calls(schedule, random);
    }
}

/// Puts all ranks on one host, where some have their bodies in memory of their own, and lets some of these
/// die.
fn share_one_host(schedule: &mut Schedule, random: &mut ChaCha8Rng, fair: bool) {
    schedule.hosts.fill(0);
    let ranks = schedule.ranks();
    schedule.private = (0..ranks).filter(|_| random.random_bool(0.6)).collect();
    for fault in &mut schedule.faults {
        if matches!(fault.what, Trouble::Cut { .. } | Trouble::LoseHost(_)) {
            fault.what = Trouble::Freeze(random.random_range(0..ranks));
        }
    }
    for name in names(schedule) {
        let length = *[8192, 50_000, 50_000].choose(random).expect("not empty");
        let protection = *[Protection::None, Protection::Disk].choose(random).expect("not empty");
        for planned in named(schedule, &name) {
            (planned.body, planned.inline) = (Body::Array(length), false);
            planned.protection = protection;
        }
    }
    if fair || ranks < 2 {
        return;
    }
    for _ in 0..random.random_range(1..=2) {
        let (at_us, rank) = (random.random_range(0..6000), random.random_range(0..ranks));
        let what = match random.random_range(0..3) {
            0 => Trouble::Kill(rank),
            1 => Trouble::LetGo(rank),
            _ => Trouble::Abandon(rank),
        };
        schedule.faults.push(Fault { at_us, lasts_us: 0, what });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets ranks on hosts of their own be slow, and their tasks be given up, while others copy a result over
/// partials.
fn read_slowly(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let ranks = schedule.ranks();
    schedule.hosts = (0..ranks).collect();
    schedule.ping_interval_us = schedule.ping_interval_us.max(10_000);
    schedule.faults.retain(|fault| !matches!(fault.what, Trouble::LetGo(_) | Trouble::LoseHost(_)));
    for name in names(schedule) {
        for planned in named(schedule, &name) {
            planned.receiver = Receiver::All;
            (planned.body, planned.inline, planned.allow_missing) = (Body::Array(50_000), false, true);
        }
    }
    for _ in 0..random.random_range(1..=3) {
        let (rank, task_us) = (random.random_range(0..ranks), random.random_range(20_000..100_000));
        let (at_us, lasts_us) = (random.random_range(0..3000), random.random_range(1000..30_000));
        schedule.faults.push(Fault { at_us, lasts_us, what: Trouble::Slow { rank, task_us } });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Leaves some ranks no window for a partial.
fn use_windows_of_bodies_only(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    schedule.windowless = some(schedule.ranks(), random, 0.3);
}

/// Leaves the regions of some ranks no room for partials.
fn fill_regions(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let part = *[0.3, 1.0].choose(random).expect("not empty");
    schedule.full = some(schedule.ranks(), random, part);
}

fn some(ranks: u32, random: &mut ChaCha8Rng, part: f64) -> Vec<u32> {
    (0..ranks).filter(|_| random.random_bool(part)).collect()
}

/// Lets some ranks contribute objects that are too long for a message, and others such that are not.
fn differ_in_length(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    for name in names(schedule) {
        if random.random_bool(0.2) {
            continue;
        }
        let long = some(schedule.ranks(), random, 0.4);
        for planned in named(schedule, &name) {
            (planned.body, planned.inline) = (Body::Object, true);
            planned.long.clone_from(&long);
        }
    }
}

/// Lets arrays come inlined that are cut into segments: some ranks have heard that they are to, and others
/// have not.
fn let_arrays_come_inlined(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    for name in names(schedule) {
        if random.random_bool(0.2) {
            continue;
        }
        let length = *[8192, 50_000].choose(random).expect("not empty");
        let part = *[0.0, 0.3, 0.7].choose(random).expect("not empty");
        let long = some(schedule.ranks(), random, part);
        for planned in named(schedule, &name) {
            (planned.body, planned.inline) = (Body::Array(length), true);
            planned.long.clone_from(&long);
        }
    }
}

/// Lets the ranks reduce arrays with operations of the application that take long, and the master look after
/// them.
fn fold_arrays_slowly(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    schedule.ping_interval_us = schedule.ping_interval_us.max(10_000);
    for name in names(schedule) {
        if random.random_bool(0.2) {
            continue;
        }
        let fold_us = *[100, 2000, 20_000].choose(random).expect("not empty");
        let length = *[1, 8192, 50_000].choose(random).expect("not empty");
        for planned in named(schedule, &name) {
            (planned.body, planned.inline) = (Body::Array(length), length * 8 <= 16 << 10);
            planned.fold_us = fold_us;
        }
    }
}

/// Lets longer bodies lie on the board than travel in messages.
fn put_long_bodies_on_the_board(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    schedule.board_bytes = 512 << 10;
    for name in names(schedule) {
        if random.random_bool(0.2) {
            continue;
        }
        let length = *[8192, 16_384, 50_000].choose(random).expect("not empty");
        for planned in named(schedule, &name) {
            if planned.fold_us == 0 {
                (planned.body, planned.inline) = (Body::Array(length), false);
            }
        }
    }
}

/// Lets deaths take along the end of what their processes have sent.
fn lose_messages_of_the_dead(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let calls = schedule.reductions.iter().flat_map(|planned| &planned.calls);
    let calls: Vec<CallAt> = calls.copied().collect();
    for fault in &mut schedule.faults {
        let (Trouble::Kill(rank) | Trouble::LetGo(rank)) = fault.what else { continue };
        if random.random_bool(0.3) {
            continue;
        }
        fault.what = Trouble::Crash { rank, arrive: random.random_range(0..=2) };
        let own: Vec<_> = calls.iter().filter(|call| call.rank == rank).collect();
        if let Some(call) = own.choose(random).filter(|_| random.random_bool(0.5)) {
            // Something is under way then.
            fault.at_us = call.at_us + random.random_range(0..=schedule.latency_us.1);
        }
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}

/// Lets later calls of a name have a deadline, or a rank disagree in one of them.
fn spoil_later_calls(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    for name in names(schedule) {
        let spoils = schedule.reductions.iter().any(|planned| planned.name == name && planned.sequence > 0);
        if !spoils && random.random_bool(0.5) {
            repeat(schedule, random, &name);
        }
        for planned in named(schedule, &name).filter(|planned| planned.sequence > 0) {
            if random.random_bool(0.4) {
                planned.deadline_us = Some(random.random_range(500..50_000));
            }
            if planned.calls.len() > 1 && random.random_bool(0.3) {
                planned.disagrees = planned.calls.choose(random).map(|call| call.rank);
            }
        }
    }
}

/// Lets a name be called once more by all who have called it, if all have.
fn repeat(schedule: &mut Schedule, random: &mut ChaCha8Rng, name: &str) {
    let Some(first) = named(schedule, name).next().filter(|first| first.absent.is_empty()) else { return };
    let mut next = Planned { sequence: 1, deadline_us: None, disagrees: None, ..first.clone() };
    let later = |call: &CallAt| CallAt { at_us: call.at_us + random.random_range(1..10_000), ..*call };
    next.calls = next.calls.iter().map(later).collect();
    if let Receiver::FirstOf(ranks) = &mut next.receiver {
        ranks.reverse();
    }
    schedule.reductions.push(next);
}

fn names(schedule: &Schedule) -> BTreeSet<String> {
    schedule.reductions.iter().map(|planned| planned.name.clone()).collect()
}

fn named<'a>(schedule: &'a mut Schedule, name: &str) -> impl Iterator<Item = &'a mut Planned> {
    schedule.reductions.iter_mut().filter(move |planned| planned.name == name)
}
