//! Schedules from seeds.
//!
//! | module | draws |
//! |---|---|
//! | `reductions` | what ranks call, and what callers get wrong |
//! | `faults` | what goes wrong in any world |
//! | `reads` | worlds whose reads fail although everybody lives |
//! | `copies` | worlds that make copies, which fail |
//! | `results` | worlds in which something happens while results are copied |
//! | `hosts` | where ranks live, and what holds their memory |
//! | `work` | who folds, and for how long |
//! | `pieces` | contributions that are not folded |
//! | `returns` | worlds whose ranks come back after they have died |
//! | `damage` | worlds in which bytes stay damaged |
//! | `early` | worlds in which processes end before they join |
//! | `segments` | recovery segments, and deaths in them |
//! | `sizes` | worlds whose sizes are unusual |

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

mod copies;
mod damage;
mod early;
mod faults;
mod hosts;
mod pieces;
mod reads;
mod reductions;
mod results;
mod returns;
mod segments;
mod sizes;
mod work;

use super::{
    schedule::{BOARD_BYTES, Fault, Leave, Pacing, Schedule},
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
        parents: false,
        agents_join_us: 0,
        returns: None,
        early_ends: Vec::new(),
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
        segments: Vec::new(),
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
        reductions::add_reduction(&mut schedule, &mut random, &format!("r{number}"), weather);
    }
    match weather {
        Weather::Fair => {}
        Weather::Deaths => {
            for rank in 0..ranks {
                if random.random_bool((2.0 / f64::from(ranks)).min(1.0)) {
                    let at_us = random.random_range(0..4500);
                    let what = faults::death(&schedule, &mut random, rank);
                    schedule.faults.push(Fault { at_us, lasts_us: 0, what });
                }
            }
        }
        Weather::Foul => {
            for _ in 0..random.random_range(1..=5) {
                faults::add_fault(&mut schedule, &mut random);
            }
        }
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
    if apart.random_bool(0.15) {
        hosts::share_a_board(&mut schedule, &mut apart);
    } else {
        let mut apart = random.clone();
        apart.set_stream(2);
        if apart.random_bool(0.2) {
            work::work_in_teams(&mut schedule, &mut apart);
        } else {
            let mut apart = random.clone();
            apart.set_stream(3);
            if apart.random_bool(0.15) {
                work::fold_slowly(&mut schedule, &mut apart);
            } else if weather != Weather::Fair && apart.random_bool(0.1) {
                results::lose_results(&mut schedule, &mut apart);
            }
        }
    }
    let mut apart = random.clone();
    apart.set_stream(4);
    if apart.random_bool(0.3) {
        hosts::use_memory_of_their_own(&mut schedule, &mut apart);
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
        copies::make_copies(&mut schedule, &mut apart, weather);
    }
    let mut apart = random;
    apart.set_stream(9);
    reshape(&mut schedule, &mut apart, weather == Weather::Fair);
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(5);
    if !schedule.board && schedule.pacing.teams_from == 0 && apart.random_bool(0.15) {
        results::hand_out_with_trouble(&mut schedule, &mut apart);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(7);
    if foul && !schedule.board && schedule.pacing.teams_from == 0 && apart.random_bool(0.3) {
        reads::fail_reads(&mut schedule, &mut apart);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(10);
    hosts::employ_agents(&mut schedule, &mut apart, weather);
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(11);
    hosts::label_hosts(&mut schedule, &mut apart, weather);
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
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(14);
    if schedule.returns.is_some() && weather != Weather::Fair && apart.random_bool(0.4) {
        returns::migrate(&mut schedule, &mut apart);
        let mut apart = ChaCha8Rng::seed_from_u64(seed);
        apart.set_stream(15);
        if apart.random_bool(0.3) {
            returns::silence_hosts(&mut schedule, &mut apart);
        }
        let mut apart = ChaCha8Rng::seed_from_u64(seed);
        apart.set_stream(16);
        if apart.random_bool(0.5) {
            returns::stand_by(&mut schedule, &mut apart);
        }
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(17);
    if let Some(returns) = schedule.returns.as_mut().filter(|_| weather != Weather::Fair) {
        returns.own_detectors = apart.random_bool(0.3);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(20);
    let share = if schedule.returns.is_some() { 0.5 } else { 0.1 };
    if schedule.agents && apart.random_bool(share) {
        returns::locate(&mut schedule, &mut apart, weather);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(21);
    if schedule.returns.is_none() && apart.random_bool(0.12) {
        segments::add_segments(&mut schedule, &mut apart, weather);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(22);
    if schedule.agents && apart.random_bool(0.03) {
        early::end_before_joining(&mut schedule, &mut apart);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(23);
    let is_usual = !schedule.board && schedule.pacing.teams_from == 0 && schedule.early_ends.is_empty();
    if foul && is_usual && apart.random_bool(0.1) {
        damage::damage_for_long(&mut schedule, &mut apart);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(24);
    if schedule.board && apart.random_bool(0.2) {
        sizes::come_near_the_board(&mut schedule, &mut apart);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(25);
    let is_plain = schedule.early_ends.is_empty() && schedule.segments.is_empty();
    if schedule.board && schedule.agents && is_plain && apart.random_bool(0.3) {
        returns::bring_back(&mut schedule, &mut apart, weather);
        returns::die_at_the_board(&mut schedule, &mut apart, weather);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(26);
    let is_plain = weather != Weather::Fair && schedule.early_ends.is_empty();
    if schedule.returns.is_some() && is_plain && apart.random_bool(0.2) {
        returns::silence_ranks(&mut schedule, &mut apart);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(27);
    let is_plain = schedule.early_ends.is_empty() && !schedule.board;
    if schedule.returns.is_some_and(|it| it.migrates.is_none()) && is_plain && apart.random_bool(0.3) {
        segments::add_segment_that_is_repeated(&mut schedule, &mut apart, weather);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(28);
    if schedule.segments.is_empty() && apart.random_bool(0.3) {
        returns::fill_logs(&mut schedule, &mut apart);
    }
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(29);
    schedule.parents = schedule.agents && apart.random_bool(0.5);
    let mut apart = ChaCha8Rng::seed_from_u64(seed);
    apart.set_stream(30);
    let is_plain = schedule.early_ends.is_empty() && schedule.segments.is_empty() && !schedule.board;
    if is_plain && apart.random_bool(0.15) {
        returns::die_after_a_break(&mut schedule, &mut apart, weather);
    }
    schedule
}

fn pick<T: Copy, const N: usize>(random: &mut ChaCha8Rng, choices: [T; N]) -> T {
    choices[random.random_range(0..N)]
}
