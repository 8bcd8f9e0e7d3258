//! Random worlds: whatever the sizes, the order of arrival and the delays, every future ends and every value is the
//! fold of exactly the group's contributions.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, time::Duration};

use everfold_master::reduction::Reduction;
use everfold_protocol::{
    Path, Rank, ReductionSpec,
    report::{Refusal, Report},
    spec::{BodyKind, Delivery, ElementType, Limits, Operation, Protection},
};
use everfold_sim::{Call, Ended, Settings, World};
use everfold_worker::machine::End;
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use tracing_subscriber::EnvFilter;

/// The seeds that a test runs: the first few, as many as `EVERFOLD_SEEDS` says, or only `EVERFOLD_SEED`.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    match number("EVERFOLD_SEED") {
        Some(seed) => {
            // With RUST_LOG=trace everything that happens is told.
            let _ = tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).try_init();
            seed..seed + 1
        }
        None => 0..number("EVERFOLD_SEEDS").unwrap_or(default),
    }
}

/// Whether only one seed is looked at.
fn replays() -> bool {
    std::env::var_os("EVERFOLD_SEED").is_some()
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
    settings.policy.segment_bytes_min = 1 << 16;
    settings.policy.fan_in_max = random.random_range(2..=16);
    settings.policy.copy_bytes = *[1, 1 << 17, 4 << 20].choose(&mut random).unwrap();
    settings.policy.lane_reads_min = random.random_range(1..=16);
    settings.policy.lane_bytes = *[1, 2 << 20].choose(&mut random).unwrap();
    settings.policy.hold_bytes = *[8, 16, 1 << 20].choose(&mut random).unwrap();
    for rank in 0..ranks {
        settings.task_time.insert(Rank(rank), Duration::from_micros(random.random_range(1..500)));
    }
    let protections = [Protection::None, Protection::Memory, Protection::Disk, Protection::CommitFirst];
    let plans = (0..random.random_range(1..6)).map(|number| {
        let group: Path = loop {
            let group: Path = (0..ranks).filter(|_| random.random_bool(0.8)).map(Rank).collect();
            if !group.is_empty() {
                break group;
            }
        };
        let members: Vec<Rank> = group.iter().collect();
        let root = *members.choose(&mut random).unwrap();
        let delivery = match random.random_range(0..10) {
            0..5 => Delivery::Root(root),
            5..7 => Delivery::FirstOf(members.choose_multiple(&mut random, 3).copied().collect()),
            _ => Delivery::All,
        };
        let length = *[1u64, 100, 8192, 50_000].choose(&mut random).unwrap();
        let kind = if random.random_bool(0.7) {
            BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length }
        } else {
            BodyKind::Object { type_name: "evidence".to_owned() }
        };
        let spec = ReductionSpec {
            group,
            kind,
            commutative: random.random_bool(0.6),
            deadline: None,
            protection: *protections.choose(&mut random).unwrap(),
            allow_missing: !matches!(delivery, Delivery::Root(_)) && random.random_bool(0.4),
            delivery,
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
    call_all(&mut world, &plans, &mut random);
    (world, plans, random)
}

fn call_all(world: &mut World, plans: &[Plan], random: &mut ChaCha8Rng) {
    for plan in plans {
        let inline =
            plan.spec.kind.array_bytes().map_or(random.random_bool(0.5), |(bytes, _)| bytes <= 16 << 10);
        for rank in plan.spec.group.iter() {
            let after = Duration::from_micros(random.random_range(100..3000));
            let (name, spec) = (plan.name.clone(), plan.spec.clone());
            world.call(after, Call { rank, name, sequence: 0, spec, inline });
        }
    }
}

/// A call that ended well: the value is the fold of exactly what the report says.
fn check_value(seed: u64, plan: &Plan, rank: Rank, ended: &Ended) -> Report {
    let (report, received) = match &ended.end {
        End::Finished(report) => (report, false),
        End::Received(report) => (report, true),
        other => panic!("seed {seed}, {}, rank {rank}: {other:?}", plan.name),
    };
    let Plan { spec, .. } = plan;
    let receives = match &spec.delivery {
        Delivery::Root(root) => *root == rank,
        Delivery::FirstOf(candidates) => received && candidates.contains(&rank),
        Delivery::All => true,
    };
    assert_eq!((received, ended.value.is_some()), (receives, receives), "seed {seed}, {}, {rank}", plan.name);
    assert_eq!(report.contributors, spec.group.difference(&report.missing), "seed {seed}, {}", plan.name);
    assert!(spec.allow_missing || report.missing.is_empty(), "seed {seed}, {}", plan.name);
    let contributors: Vec<Rank> = report.contributors.iter().collect();
    for segment in ended.value.iter().flatten() {
        let mut counted = segment.clone();
        if spec.commutative {
            counted.sort_unstable();
        }
        assert_eq!(counted, contributors, "seed {seed}, {}, rank {rank}: each once, in order", plan.name);
    }
    report.clone()
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
                let report = check_value(seed, plan, rank, ended);
                assert_eq!(report.contributors, plan.spec.group, "seed {seed}");
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

/// What the master knows of a reduction that did not end.
fn open<'a>(world: &'a World, plan: &Plan) -> Option<&'a Reduction> {
    world.master().reductions().map(|(_, reduction)| reduction).find(|reduction| reduction.name == plan.name)
}

/// What became of the calls of many worlds.
#[derive(Debug, Default)]
struct Tally {
    ended_well: u64,
    survived: u64,
    folds_redone: u64,
    missing: u64,
    tasks_doubled: u64,
    lost: u64,
    failed: u64,
    fenced: u64,
    master_lost: u64,
    results_lost: u64,
}

impl Tally {
    /// Takes in how `rank`'s call ended; `suspects` are those to whom anything was done.
    fn take(
        &mut self,
        seed: u64,
        plan: &Plan,
        rank: Rank,
        ended: &Ended,
        suspects: &Path,
        copies_fail: bool,
    ) {
        match &ended.end {
            End::Finished(_) | End::Received(_) => {
                let report = check_value(seed, plan, rank, ended);
                assert!(report.survived.is_subset(suspects), "seed {seed}");
                assert!(report.missing.is_subset(suspects), "seed {seed}");
                self.ended_well += 1;
                self.survived += u64::from(!report.survived.is_empty());
                self.folds_redone += report.folds_redone;
                self.missing += u64::from(!report.missing.is_empty());
                self.tasks_doubled += report.tasks_doubled;
            }
            End::Refused(Refusal::ProcessFailed { ranks }) => {
                let candidates = plan.spec.delivery.candidates();
                assert!(ranks.is_subset(suspects) || ranks.iter().all(|rank| candidates.contains(&rank)));
                self.failed += 1;
            }
            End::Refused(Refusal::ContributionLost { ranks }) => {
                assert!(ranks.is_subset(suspects), "seed {seed}: {ranks} of {suspects}");
                let safe =
                    plan.spec.protection == Protection::CommitFirst && suspects.len() == 1 && !copies_fail;
                assert!(!safe, "seed {seed}: {ranks} are lost although their copies were to come first");
                self.lost += 1;
            }
            End::Fenced if suspects.contains(rank) => self.fenced += 1,
            End::MasterLost if suspects.contains(Rank(0)) || suspects.contains(rank) => self.master_lost += 1,
            End::ResultLost(_) => self.results_lost += 1,
            other => panic!("seed {seed}, {}, rank {rank}: {other:?}", plan.name),
        }
    }
}

#[test]
fn whoever_dies_every_future_ends_and_what_counts_counts_once() {
    let mut tally = Tally::default();
    for seed in seeds(5000) {
        let (mut world, plans, mut random) = start(seed);
        let ranks = draw(seed).0.ranks;
        // Rank 0 hosts the master.
        let victims: Path =
            (1..ranks).filter(|_| random.random_bool((2.0 / f64::from(ranks)).min(1.0))).map(Rank).collect();
        for victim in victims.iter() {
            world.kill(Duration::from_micros(random.random_range(100..4500)), victim);
        }
        world.run();
        for plan in &plans {
            for rank in plan.spec.group.iter().filter(|rank| !victims.contains(*rank)) {
                let ended = world.ended(rank, &plan.name, 0);
                let ended = ended.unwrap_or_else(|| {
                    panic!("seed {seed}: rank {rank} waits for ever for {:?}", open(&world, plan))
                });
                tally.take(seed, plan, rank, ended, &victims, false);
            }
        }
    }
    println!("{tally:?}");
    if replays() {
        return;
    }
    let Tally { survived, folds_redone, missing, lost, failed, .. } = tally;
    assert!(survived > 1000 && folds_redone > 100 && missing > 100, "{tally:?}");
    assert!(lost > 100 && failed > 1000, "all cases were met: {tally:?}");
}

/// Processes die, freeze and thaw, are slow, and cannot keep copies; the network is silent with them.
#[test]
fn whoever_freezes_every_future_ends_and_what_counts_counts_once() {
    let mut tally = Tally::default();
    for seed in seeds(1500) {
        let (mut settings, plans, mut random) = draw(seed);
        let ranks = settings.ranks;
        settings.policy.limits = Limits { ping_interval: Duration::from_millis(100), ..Limits::default() };
        settings.keep_failures = *[0, 0, 30].choose(&mut random).unwrap();
        settings.damage = *[0, 0, 10].choose(&mut random).unwrap();
        let slow: Vec<Rank> = (0..ranks).map(Rank).filter(|_| random.random_bool(0.1)).collect();
        for rank in slow {
            settings.task_time.insert(rank, Duration::from_millis(random.random_range(20..400)));
        }
        let copies_fail = settings.keep_failures + settings.damage > 0;
        let mut world = World::new(settings);
        call_all(&mut world, &plans, &mut random);
        // Some reductions are called once more, by some ranks long after others of their group were given up.
        let again: Vec<&Plan> = plans.iter().filter(|_| random.random_bool(0.3)).collect();
        for plan in &again {
            for rank in plan.spec.group.iter() {
                let after = Duration::from_micros(random.random_range(5_000..2_000_000));
                let (name, spec) = (plan.name.clone(), plan.spec.clone());
                world.call(after, Call { rank, name, sequence: 1, spec, inline: false });
            }
        }
        let suspects: Path =
            (0..ranks).filter(|_| random.random_bool((1.5 / f64::from(ranks)).min(1.0))).map(Rank).collect();
        for rank in suspects.iter() {
            let after = Duration::from_micros(random.random_range(100..10_000));
            if rank != 0 && random.random_bool(0.3) {
                world.kill(after, rank);
            } else {
                world.freeze(after, rank, Duration::from_micros(random.random_range(1000..3_000_000)));
            }
        }
        world.run();
        // If the master was silent for too long, all others have left it.
        let suspects = if suspects.contains(Rank(0)) { Path::range(0, ranks) } else { suspects };
        for plan in &plans {
            for rank in plan.spec.group.iter() {
                match world.ended(rank, &plan.name, 0) {
                    Some(ended) => tally.take(seed, plan, rank, ended, &suspects, copies_fail),
                    None if suspects.contains(rank) => {}
                    None => panic!("seed {seed}: rank {rank} waits for ever for {:?}", open(&world, plan)),
                }
            }
        }
        for plan in again {
            for rank in plan.spec.group.iter() {
                match world.ended(rank, &plan.name, 1) {
                    Some(ended) => tally.take(seed, plan, rank, ended, &suspects, copies_fail),
                    None if suspects.contains(rank) => {}
                    None => panic!("seed {seed}: rank {rank} waits for ever for {:?}", open(&world, plan)),
                }
            }
        }
    }
    println!("{tally:?}");
    if replays() {
        return;
    }
    let Tally { survived, tasks_doubled, missing, fenced, master_lost, .. } = tally;
    assert!(survived > 100 && tasks_doubled > 100 && missing > 10, "{tally:?}");
    assert!(fenced > 100 && master_lost > 10, "all cases were met: {tally:?}");
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
    let mut hashes = BTreeSet::new();
    for seed in 0..50 {
        let run = || {
            let (mut world, _, _) = start(seed);
            world.run();
            (world.steps().to_vec(), world.now(), world.trace_hash())
        };
        let first = run();
        assert_eq!(first, run(), "seed {seed}");
        assert!(hashes.insert(first.2), "seed {seed}: no two runs are the same");
    }
}
