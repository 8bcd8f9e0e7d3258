//! Every event of a small reduction is a moment at which each rank may die, freeze for a while, or be frozen
//! until it is fenced, its host may be lost, or the master freeze. After every event the invariants hold; at
//! the end every future has ended, and what counts counts once.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use everfold_master::Notice;
use everfold_protocol::{
    Path, Rank, ReductionSpec,
    report::Refusal,
    spec::{BodyKind, Delivery, ElementType, Limits, Operation, Order, Protection},
};
use everfold_sim::{Call, Settings, World, evidence::in_fixed_order};
use everfold_worker::machine::End;

const RANKS: u32 = 4;
const PING: Duration = Duration::from_millis(10);
/// The host of the master.
const MASTERS: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Death,
    /// Shorter than what counts as silence, longer than what counts as late.
    Pause,
    /// Until long after the fence.
    Fence,
    /// Of its host, with all that is there.
    Loss,
    /// A pause of the master.
    MasterPause,
    /// Of the master, until long after all have left it.
    Desertion,
}

const FAULTS: [Fault; 3] = [Fault::Death, Fault::Pause, Fault::Fence];

/// The reductions that are tried: one per way to deliver, to cut, to share memory and to protect.
fn specs() -> Vec<(ReductionSpec, bool)> {
    let kinds = [
        BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length: 12_000 },
        BodyKind::Object { type_name: "evidence".to_owned() },
    ];
    let deliveries = [
        Delivery::Root(Rank(0)),
        Delivery::Root(Rank(2)),
        Delivery::FirstOf(vec![Rank(3), Rank(0)]),
        Delivery::All,
    ];
    let levels = [Protection::None, Protection::Memory, Protection::CommitFirst];
    let mut specs = Vec::new();
    for kind in &kinds {
        for (index, delivery) in deliveries.iter().enumerate() {
            for (level, shares) in levels.into_iter().zip([true, false, index % 2 == 0]) {
                let spec = ReductionSpec {
                    group: Path::range(0, RANKS),
                    delivery: delivery.clone(),
                    kind: kind.clone(),
                    order: if level == Protection::Memory { Order::Fixed } else { Order::Arrival },
                    deadline: None,
                    protection: level,
                    allow_missing: !matches!(delivery, Delivery::Root(_)) && index % 2 == 0,
                    trace: false,
                };
                specs.push((spec, shares));
            }
        }
    }
    specs
}

/// The host of a rank.
fn host(rank: Rank, shares_memory: bool) -> u64 {
    if shares_memory { MASTERS } else { MASTERS + u64::from(rank.0) }
}

/// A world in which all ranks are about to call.
fn world(spec: &ReductionSpec, shares_memory: bool) -> World {
    let mut settings = Settings::new(RANKS, 7);
    settings.latency = (Duration::from_micros(1), Duration::from_micros(5));
    settings.policy.limits = Limits { ping_interval: PING, ..Limits::default() };
    settings.policy.segment_bytes = 1 << 16;
    settings.policy.segment_bytes_min = 1 << 16;
    settings.hosts = (0..RANKS).map(|rank| host(Rank(rank), shares_memory)).collect();
    settings.agents = true;
    let mut world = World::new(settings);
    while world.met().len() < RANKS as usize {
        assert!(world.step());
    }
    for rank in (0..RANKS).map(Rank) {
        let call = Call { rank, name: "x".into(), sequence: 0, spec: spec.clone(), inline: false };
        world.call(Duration::from_micros(100 + 20 * u64::from(rank.0)), call);
    }
    world
}

fn all_ended(world: &World, except: &Path) -> bool {
    (0..RANKS).map(Rank).all(|rank| except.contains(rank) || world.ended(rank, "x", 0).is_some())
}

/// Runs with `faults`, each after so many events; tells how many results there were.
fn run(spec: &ReductionSpec, shares_memory: bool, faults: &[(usize, Rank, Fault)]) -> usize {
    let mut world = world(spec, shares_memory);
    let (mut events, mut complete) = (0, false);
    let mut next = faults.iter();
    let mut fault = next.next();
    loop {
        while let Some(&(_, rank, what)) = fault.filter(|(at, ..)| *at == events) {
            let is_complete = |notice: &Notice| matches!(notice, Notice::Finished(_));
            complete |= world.notices().iter().any(is_complete);
            match what {
                Fault::Death => world.kill(Duration::ZERO, rank),
                Fault::Pause => world.freeze(Duration::ZERO, rank, PING * 2),
                Fault::Fence => world.freeze(Duration::ZERO, rank, PING * 60),
                Fault::Loss => world.end_agent_of(Duration::ZERO, host(rank, shares_memory)),
                Fault::MasterPause => world.freeze_agent(Duration::ZERO, MASTERS, PING * 2),
                Fault::Desertion => world.freeze_agent(Duration::ZERO, MASTERS, PING * 60),
            }
            fault = next.next();
        }
        if !world.step() {
            break;
        }
        events += 1;
    }
    let is_death = |fault: &Fault| matches!(fault, Fault::Death | Fault::Loss);
    let dead: Path = faults.iter().filter(|(.., fault)| is_death(fault)).map(|(_, rank, _)| *rank).collect();
    assert!(
        all_ended(&world, &dead),
        "{spec:?} {faults:?}: {:?} {:?}",
        world.notices(),
        world.master().reductions().collect::<Vec<_>>()
    );
    let hit: Path = faults.iter().map(|(_, rank, _)| *rank).collect();
    // If the master was silent for too long, all have left it.
    let left = faults.iter().any(|(.., fault)| *fault == Fault::Desertion);
    let hit = if left { Path::range(0, RANKS) } else { hit };
    let mut results = 0;
    let living = RANKS - dead.len() as u32;
    for rank in (0..RANKS).map(Rank).filter(|rank| !dead.contains(*rank)) {
        let ended = world.ended(rank, "x", 0).unwrap();
        match &ended.end {
            End::Finished(_) => {}
            End::Received(report) => {
                let contributors = spec.group.difference(&report.missing);
                let expected = match spec.order {
                    Order::Arrival => contributors.iter().collect(),
                    Order::Fixed => in_fixed_order(&spec.group, &contributors),
                };
                for segment in ended.value.as_ref().unwrap() {
                    let mut counted = segment.clone();
                    if spec.order == Order::Arrival {
                        counted.sort_unstable();
                    }
                    assert_eq!(counted, expected, "{spec:?} {faults:?}, rank {rank}");
                }
                assert!(report.missing.is_subset(&hit), "{spec:?} {faults:?}");
                results += 1;
            }
            End::Refused(Refusal::ContributionLost { ranks } | Refusal::ResultLost { ranks }) => {
                assert!(ranks.is_subset(&hit), "{spec:?} {faults:?}: {ranks}");
                // What a process leaves its agent holds.
                let harmless =
                    |fault: &Fault| matches!(fault, Fault::Pause | Fault::MasterPause | Fault::Death);
                let is_harmless = faults.iter().all(|(.., fault)| harmless(fault));
                assert!(!is_harmless, "{spec:?} {faults:?}: a pause or a death lost something");
            }
            End::Refused(Refusal::ProcessFailed { .. }) => {}
            End::Fenced | End::MasterLost if hit.contains(rank) => {}
            other => panic!("{spec:?} {faults:?}, rank {rank}: {other:?}"),
        }
    }
    if spec.delivery == Delivery::All && faults.len() == 1 && !dead.is_empty() {
        // What one has, the others can have, too; what was protected before it counted, all have.
        let all = complete && spec.protection == Protection::CommitFirst;
        assert!(
            results == living as usize || (results == 0 && !all),
            "{spec:?} {faults:?}: {results} results"
        );
    }
    results
}

/// Events until all futures have ended without a fault.
fn length(spec: &ReductionSpec, shares_memory: bool) -> usize {
    let mut world = world(spec, shares_memory);
    let mut events = 0;
    while !all_ended(&world, &Path::empty()) {
        assert!(world.step());
        events += 1;
    }
    events
}

#[test]
fn one_fault_at_every_event() {
    let (mut runs, mut with_result) = (0, 0);
    for (spec, shares_memory) in specs() {
        for at in 0..=length(&spec, shares_memory) {
            for rank in (0..RANKS).map(Rank) {
                // With the host of the master the job ends: see the tests of real processes.
                let others: &[Fault] = if rank == 0 {
                    &[Fault::MasterPause, Fault::Desertion]
                } else if shares_memory {
                    &[]
                } else {
                    &[Fault::Loss]
                };
                for fault in FAULTS.iter().chain(others).copied() {
                    let results = run(&spec, shares_memory, &[(at, rank, fault)]);
                    runs += 1;
                    with_result += usize::from(results > 0);
                    assert!(
                        !matches!(fault, Fault::Pause | Fault::MasterPause) || results > 0,
                        "{spec:?}: a pause of {rank} at {at} cost the result"
                    );
                }
            }
        }
    }
    println!("{runs} runs, {with_result} with a result");
    assert!(with_result * 2 > runs);
}

#[test]
fn two_faults_at_every_tenth_event() {
    let mut runs = 0;
    for (number, (spec, shares_memory)) in specs().into_iter().enumerate() {
        let length = length(&spec, shares_memory);
        for first in (number % 10..=length).step_by(10) {
            for second in (first..=length + 20).step_by(10) {
                for (one, other) in [(1, 2), (2, 3), (3, 1)] {
                    for fault in FAULTS {
                        run(
                            &spec,
                            shares_memory,
                            &[(first, Rank(one), Fault::Death), (second, Rank(other), fault)],
                        );
                        runs += 1;
                    }
                }
            }
        }
    }
    println!("{runs} runs");
}
