//! Solvers that know nothing of each other agree, and with looking at everything where that is possible.

use everfold_planner::{
    candidates::Candidates,
    enumeration::enumerate,
    law::Law,
    levels::{self, Level, Leveled},
    shortest::shortest,
    soonest::soonest,
};
use proptest::prelude::*;

/// Points at which checkpoints take a while, and a distance that is mostly, but not always, enough.
fn instance(points: usize) -> impl Strategy<Value = (Vec<(u64, u64)>, u64, u64)> {
    let point = (0..12_u64, 0..20_u64);
    (prop::collection::vec(point, 0..=points), 0..12_u64, 8..50_u64).prop_map(|(steps, rest, apart)| {
        let mut at = 0;
        let points = steps.into_iter().map(|(step, write)| {
            at += step;
            (at, write)
        });
        let points: Vec<_> = points.collect();
        (points, at + rest, apart)
    })
}

/// All choices among points, as bits.
fn choices(points: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..1_u32 << points).map(move |bits| (0..points).filter(|point| bits >> point & 1 == 1).collect())
}

fn keeps_distance(candidates: &Candidates, chosen: &[usize], apart_ns: u64) -> bool {
    let mut last_ns = 0;
    let times = chosen.iter().map(|&point| candidates.at_ns(point)).chain([candidates.end_ns()]);
    times.into_iter().all(|at_ns| at_ns - std::mem::replace(&mut last_ns, at_ns) <= apart_ns)
}

/// Time and number of checkpoints.
fn value(candidates: &Candidates, chosen: &[usize]) -> (u64, usize) {
    (candidates.total_ns(chosen), chosen.len())
}

/// The least value, by looking at every choice.
fn brute_force(candidates: &Candidates, apart_ns: u64) -> Option<(u64, usize)> {
    let kept = choices(candidates.len()).filter(|chosen| keeps_distance(candidates, chosen, apart_ns));
    kept.map(|chosen| value(candidates, &chosen)).min()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn shortest_path_and_enumeration_agree((points, end, apart) in instance(26)) {
        let candidates = Candidates::from_times(&points, end);
        match (shortest(&candidates, apart), enumerate(&candidates, apart)) {
            (Ok(path), Ok(enumerated)) => {
                prop_assert!(keeps_distance(&candidates, &path, apart));
                prop_assert!(keeps_distance(&candidates, &enumerated.chosen, apart));
                prop_assert_eq!(value(&candidates, &path), value(&candidates, &enumerated.chosen));
            }
            (Err(gap), Err(refused)) => {
                prop_assert_eq!(everfold_planner::enumeration::EnumerationError::Gap(gap), refused);
                prop_assert!(shortest(&candidates, gap.needed_ns).is_ok());
                prop_assert!(shortest(&candidates, gap.needed_ns - 1).is_err());
            }
            (path, enumerated) => prop_assert!(false, "{path:?} {enumerated:?}"),
        }
    }

    #[test]
    fn both_find_what_looking_at_everything_finds((points, end, apart) in instance(10)) {
        let candidates = Candidates::from_times(&points, end);
        let least = brute_force(&candidates, apart);
        prop_assert_eq!(shortest(&candidates, apart).ok().map(|path| value(&candidates, &path)), least);
    }

    #[test]
    fn no_choice_ends_sooner_than_the_soonest((points, end, mtbf) in instance(8), restart in 0..5_u32, reread in 0..3_u32) {
        let second = |(at, write): &(u64, u64)| (at * 1_000_000_000, write * 1_000_000_000);
        let points: Vec<_> = points.iter().map(second).collect();
        let candidates = Candidates::from_times(&points, end * 1_000_000_000);
        let law = Law { mtbf_s: mtbf as f64, restart_s: restart.into(), reread: reread.into() };
        let (chosen, end_s) = soonest(&candidates, &law);
        let least = choices(candidates.len()).map(|chosen| law.expected_s(&candidates, &chosen));
        let least = least.fold(f64::INFINITY, f64::min);
        prop_assert!((law.expected_s(&candidates, &chosen) - end_s).abs() <= 1e-9 * (1.0 + end_s));
        prop_assert!((end_s - least).abs() <= 1e-9 * (1.0 + least), "{} {}", end_s, least);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn with_twenty_points_too((points, end, apart) in instance(20)) {
        let candidates = Candidates::from_times(&points, end);
        let least = brute_force(&candidates, apart);
        prop_assert_eq!(shortest(&candidates, apart).ok().map(|path| value(&candidates, &path)), least);
        let enumerated = enumerate(&candidates, apart).ok();
        prop_assert_eq!(enumerated.map(|found| value(&candidates, &found.chosen)), least);
    }
}

fn level(latency_s: f64, mtbf_s: f64) -> Level {
    Level { name: String::new(), latency_s, bytes_per_s: 1e9, restart_s: 2.0 * latency_s, mtbf_s }
}

/// What each level adds, at points 10 s apart.
fn of_levels(levels: &[Level], weights: &[u32]) -> Vec<Candidates> {
    let second = 1_000_000_000;
    let write_ns = |level: &Level, weight: u32| (level.latency_s * f64::from(weight) * 1e9) as u64;
    let of = |level: &Level| {
        let point =
            |(index, &weight): (usize, &u32)| ((index as u64 + 1) * 10 * second, write_ns(level, weight));
        let points: Vec<_> = weights.iter().enumerate().map(point).collect();
        Candidates::from_times(&points, (weights.len() as u64 + 1) * 10 * second)
    };
    levels.iter().map(of).collect()
}

/// All checkpoints of all levels, by number: one digit per point.
fn leveled(points: usize, levels: usize, mut number: usize) -> Vec<Leveled> {
    let mut chosen = Vec::new();
    for point in 0..points {
        if let Some(level) = (number % (levels + 1)).checked_sub(1) {
            chosen.push(Leveled { point, level });
        }
        number /= levels + 1;
    }
    chosen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The search of levels is no exact one; this is how far it is away at most where all can be looked at.
    #[test]
    fn levels_end_nearly_as_soon_as_can_be(
        weights in prop::collection::vec(1..4_u32, 1..=6),
        rates in (20.0..200.0_f64, 50.0..2000.0_f64, 100.0..20_000.0_f64),
        costs in (0.01..1.0_f64, 0.05..3.0_f64, 0.1..10.0_f64),
    ) {
        let levels = [level(costs.0, rates.0), level(costs.1, rates.1), level(costs.2, rates.2)];
        let candidates = of_levels(&levels, &weights);
        let all = (levels.len() + 1).pow(weights.len() as u32);
        let every = (0..all).map(|number| leveled(weights.len(), levels.len(), number));
        let least = every.map(|chosen| levels::expected_s(&levels, &candidates, &chosen)).fold(f64::INFINITY, f64::min);
        let (chosen, end_s) = levels::place(&levels, &candidates);
        prop_assert!((levels::expected_s(&levels, &candidates, &chosen) - end_s).abs() < 1e-9 * end_s);
        prop_assert!(end_s >= least * (1.0 - 1e-12));
        prop_assert!(end_s <= least * 1.01, "{} {}", end_s, least);
    }
}

#[test]
fn one_level_is_the_law_of_one_part() {
    let levels = [level(1.0, 40.0)];
    let candidates = of_levels(&levels, &[1, 2, 1, 3, 1]);
    let law = Law { mtbf_s: 40.0, restart_s: 2.0, reread: 1.0 };
    let chosen = [1, 2, 4];
    let leveled = chosen.map(|point| Leveled { point, level: 0 });
    let (one, other) =
        (levels::expected_s(&levels, &candidates, &leveled), law.expected_s(&candidates[0], &chosen));
    assert!((one - other).abs() < 1e-9 * other, "{one} {other}");
    assert!((levels::place(&levels, &candidates).1 - soonest(&candidates[0], &law).1).abs() < 1e-9 * other);
}

/// A run with failures that are drawn, step by step as levels are described.
fn simulate(
    levels: &[Level],
    candidates: &[Candidates],
    chosen: &[Leveled],
    mut draw: impl FnMut() -> f64,
) -> f64 {
    let total: f64 = levels.iter().map(|level| 1.0 / level.mtbf_s).sum();
    let mut now_s = 0.0;
    // The level of the failure that interrupts what lasts so long, if one does.
    let mut lives = |lasts_s: f64, now_s: &mut f64| -> Option<usize> {
        let after_s = -draw().ln() / total;
        *now_s += after_s.min(lasts_s);
        if after_s >= lasts_s {
            return None;
        }
        let mut left = draw() * total;
        let by = levels.iter().position(|level| {
            left -= 1.0 / level.mtbf_s;
            left < 0.0
        });
        Some(by.unwrap_or(levels.len() - 1))
    };
    let mut next = 0_usize;
    loop {
        let begin_ns = next.checked_sub(1).map_or(0, |last| candidates[0].at_ns(chosen[last].point));
        let (end_ns, write_s) = match chosen.get(next) {
            Some(&Leveled { point, level }) => {
                let write_ns: u64 = candidates[..=level].iter().map(|each| each.write_ns(point)).sum();
                (candidates[0].at_ns(point), write_ns as f64 / 1e9)
            }
            None => (candidates[0].end_ns(), 0.0),
        };
        let mut failed = lives((end_ns - begin_ns) as f64 / 1e9 + write_s, &mut now_s);
        if failed.is_none() {
            if next == chosen.len() {
                return now_s;
            }
            next += 1;
            continue;
        }
        let mut needed = 0;
        while let Some(level) = failed {
            needed = level.max(needed);
            let from = chosen[..next].iter().rposition(|at| at.level >= needed);
            let read_ns = from.map_or(0, |from| candidates[needed].write_ns(chosen[from].point));
            failed = lives(levels[needed].restart_s + read_ns as f64 / 1e9, &mut now_s);
            if failed.is_none() {
                next = from.map_or(0, |from| from + 1);
            }
        }
    }
}

#[test]
fn levels_take_as_long_as_runs_with_failures_that_are_drawn() {
    let levels = [level(0.5, 60.0), level(1.0, 150.0), level(2.0, 400.0)];
    let candidates = of_levels(&levels, &[1, 2, 1, 3, 1, 2]);
    let chosen = [(0, 0), (1, 1), (2, 0), (3, 2), (4, 1)].map(|(point, level)| Leveled { point, level });
    // splitmix64, from a fixed seed.
    let mut state = 1_u64;
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) >> 11) as f64 / (1_u64 << 53) as f64 + f64::EPSILON / 4.0
    };
    let runs: Vec<f64> = (0..200_000).map(|_| simulate(&levels, &candidates, &chosen, &mut draw)).collect();
    let count = runs.len() as f64;
    let mean = runs.iter().sum::<f64>() / count;
    let deviation = (runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / count).sqrt();
    let expected = levels::expected_s(&levels, &candidates, &chosen);
    assert!((mean - expected).abs() < 4.0 * deviation / count.sqrt(), "{mean} {expected}");
}
