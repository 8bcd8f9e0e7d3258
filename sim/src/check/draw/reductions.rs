//! What ranks call, and what callers get wrong.

use everfold_protocol::spec::{Order, Protection};
use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{CALLS_US, Weather, pick};
use crate::check::schedule::{Body, CallAt, Planned, Receiver, Schedule};

/// Adds a reduction, and perhaps more of its name.
pub(super) fn add_reduction(schedule: &mut Schedule, random: &mut ChaCha8Rng, name: &str, weather: Weather) {
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
