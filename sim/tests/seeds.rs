//! Random worlds: whatever the sizes, the order of arrival and the delays, every future ends and every value is the
//! fold of exactly the group's contributions.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use everfold_protocol::{
    Path, Rank, ReductionSpec,
    report::Refusal,
    spec::{BodyKind, Delivery, ElementType, Operation},
};
use everfold_sim::{Call, Ended, Settings, World};
use everfold_worker::machine::End;
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

/// How many seeds a test runs; `EVERFOLD_SEEDS` sets another number.
fn seeds(default: u64) -> std::ops::Range<u64> {
    0..std::env::var("EVERFOLD_SEEDS").ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

struct Plan {
    name: String,
    spec: ReductionSpec,
}

/// Everything about a run, drawn from its seed.
fn draw(seed: u64) -> (Settings, Vec<Plan>, ChaCha8Rng) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let ranks = random.random_range(1..=16);
    let mut settings = Settings::new(ranks, seed);
    let hosts = random.random_range(1..=ranks);
    settings.hosts = (0..ranks).map(|_| random.random_range(0..u64::from(hosts))).collect();
    settings.policy.segment_bytes = 1 << 16;
    settings.policy.fan_in_max = random.random_range(2..=16);
    settings.policy.hold_bytes = *[8, 16, 1 << 20].choose(&mut random).unwrap();
    for rank in 0..ranks {
        settings.task_time.insert(Rank(rank), Duration::from_micros(random.random_range(1..500)));
    }
    let plans = (0..random.random_range(1..6)).map(|number| {
        let group: Path = loop {
            let group: Path = (0..ranks).filter(|_| random.random_bool(0.8)).map(Rank).collect();
            if !group.is_empty() {
                break group;
            }
        };
        let members: Vec<Rank> = group.iter().collect();
        let root = *members.choose(&mut random).unwrap();
        let delivery = if random.random_bool(0.6) { Delivery::Root(root) } else { Delivery::All };
        let length = *[1u64, 100, 8192, 50_000].choose(&mut random).unwrap();
        let kind = if random.random_bool(0.7) {
            BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length }
        } else {
            BodyKind::Object { type_name: "evidence".to_owned() }
        };
        let spec = ReductionSpec {
            group,
            delivery,
            kind,
            commutative: random.random_bool(0.6),
            deadline: None,
            trace: random.random_bool(0.3),
        };
        Plan { name: format!("reduction {number}"), spec }
    });
    let plans = plans.collect();
    (settings, plans, random)
}

fn start(seed: u64) -> (World, Vec<Plan>, ChaCha8Rng) {
    let (settings, plans, mut random) = draw(seed);
    let mut world = World::new(settings);
    for plan in &plans {
        let inline =
            plan.spec.kind.array_bytes().map_or(random.random_bool(0.5), |(bytes, _)| bytes <= 16 << 10);
        for rank in plan.spec.group.iter() {
            let after = Duration::from_micros(random.random_range(100..3000));
            let (name, spec) = (plan.name.clone(), plan.spec.clone());
            world.call(after, Call { rank, name, sequence: 0, spec, inline });
        }
    }
    (world, plans, random)
}

fn check_value(seed: u64, plan: &Plan, rank: Rank, ended: &Ended) {
    let group: Vec<Rank> = plan.spec.group.iter().collect();
    let receives = plan.spec.delivery.root().is_none_or(|root| root == rank);
    assert_eq!(ended.value.is_some(), receives, "seed {seed}, {}, rank {rank}", plan.name);
    for segment in ended.value.iter().flatten() {
        let mut counted = segment.clone();
        if plan.spec.commutative {
            counted.sort_unstable();
        }
        assert_eq!(counted, group, "seed {seed}, {}, rank {rank}: each once, in order", plan.name);
    }
}

#[test]
fn every_contribution_counts_exactly_once() {
    for seed in seeds(2000) {
        let (mut world, plans, _) = start(seed);
        world.run();
        for plan in &plans {
            for rank in plan.spec.group.iter() {
                let ended = world.ended(rank, &plan.name, 0);
                let ended = ended.unwrap_or_else(|| panic!("seed {seed}: rank {rank} waits for ever"));
                assert!(matches!(ended.end, End::Finished(_)), "seed {seed}: {ended:?}");
                check_value(seed, plan, rank, ended);
            }
        }
        let ranks = draw(seed).0.ranks;
        for rank in 0..ranks {
            world.close(Duration::from_micros(u64::from(rank) * 3), Rank(rank));
        }
        world.run();
        assert!(world.is_done(), "seed {seed}: the master goes when all have left");
        assert_eq!(world.closed().len() as u32, ranks, "seed {seed}");
    }
}

#[test]
fn whoever_dies_every_future_ends_and_what_counts_counts_once() {
    let (mut survived, mut redone, mut lost, mut failed) = (0, 0, 0, 0);
    for seed in seeds(5000) {
        let (mut world, plans, mut random) = start(seed);
        let ranks = draw(seed).0.ranks;
        // Rank 0 hosts the master.
        let victims: Path =
            (1..ranks).filter(|_| random.random_bool(2.0 / f64::from(ranks))).map(Rank).collect();
        for victim in victims.iter() {
            world.kill(Duration::from_micros(random.random_range(100..4500)), victim);
        }
        world.run();
        for plan in &plans {
            for rank in plan.spec.group.iter().filter(|rank| !victims.contains(*rank)) {
                let ended = world.ended(rank, &plan.name, 0);
                let ended = ended.unwrap_or_else(|| panic!("seed {seed}: rank {rank} waits for ever"));
                match &ended.end {
                    End::Finished(report) => {
                        check_value(seed, plan, rank, ended);
                        assert!(report.survived.is_subset(&victims), "seed {seed}");
                        survived += usize::from(!report.survived.is_empty());
                        redone += report.folds_redone;
                    }
                    End::Refused(Refusal::ProcessFailed { ranks }) => {
                        assert!(ranks.is_subset(&victims), "seed {seed}");
                        failed += 1;
                    }
                    End::Refused(Refusal::ContributionLost { ranks }) => {
                        assert!(ranks.is_subset(&victims), "seed {seed}");
                        lost += 1;
                    }
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
    }
    println!("{survived} survived with {redone} folds redone, {lost} lost contributions, {failed} failed");
    assert!(survived > 1000 && redone > 100 && lost > 1000 && failed > 1000, "all cases were met");
}

#[test]
fn a_death_before_the_job_is_complete_is_told_to_everyone() {
    let mut told = 0;
    for seed in 0..500 {
        let ranks = 2 + (seed % 10) as u32;
        let victim = Rank(ranks - 1);
        let mut world = World::new(Settings::new(ranks, seed));
        world.kill(Duration::from_nanos(100 * seed), victim);
        world.run();
        if world.notices().iter().any(|notice| matches!(notice, everfold_master::Notice::Complete { .. })) {
            continue;
        }
        assert!(world.met().is_empty(), "seed {seed}");
        for rank in (0..ranks - 1).map(Rank) {
            assert_eq!(
                world.incomplete().get(&rank),
                Some(&Path::single(victim)),
                "seed {seed}, rank {rank}"
            );
        }
        told += 1;
    }
    assert!(told > 100, "the deaths met the beginning: {told}");
}

#[test]
fn a_deadline_ends_what_a_missing_rank_holds_up() {
    for seed in 0..300 {
        let (settings, mut plans, _) = draw(seed);
        let mut world = World::new(settings);
        let plan = &mut plans[0];
        if plan.spec.group.len() < 2 {
            continue;
        }
        plan.spec.deadline = Some(Duration::from_millis(20));
        let missing = plan.spec.group.last().unwrap();
        let others: Vec<Rank> = plan.spec.group.iter().filter(|rank| *rank != missing).collect();
        for &rank in &others {
            let (name, spec) = (plan.name.clone(), plan.spec.clone());
            world.call(Duration::from_millis(1), Call { rank, name, sequence: 0, spec, inline: false });
        }
        world.run();
        for &rank in &others {
            let expected = Refusal::DeadlineExceeded {
                deadline: Duration::from_millis(20),
                missing: Path::single(missing),
            };
            let ended = world.ended(rank, &plan.name, 0).unwrap();
            assert_eq!(ended.end, End::Refused(expected), "seed {seed}");
        }
    }
}

#[test]
fn a_seed_describes_a_run_completely() {
    for seed in 0..50 {
        let run = || {
            let (mut world, _, _) = start(seed);
            world.run();
            (world.steps().to_vec(), world.now())
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}
