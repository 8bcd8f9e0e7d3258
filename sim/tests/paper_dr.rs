//! One test per claim of DR §2 that the machines can be held to.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, time::Duration};

use everfold_protocol::{
    Path, Rank, ReductionSpec,
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection},
};
use everfold_sim::{Call, Settings, Step, World};
use everfold_worker::machine::End;

fn spec(ranks: u32, delivery: Delivery) -> ReductionSpec {
    ReductionSpec {
        group: Path::range(0, ranks),
        delivery,
        kind: BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length: 1000 },
        order: Order::Arrival,
        deadline: None,
        protection: Protection::default(),
        allow_missing: false,
        trace: false,
    }
}

fn call(rank: u32, name: &str, spec: &ReductionSpec) -> Call {
    Call { rank: Rank(rank), name: name.to_owned(), sequence: 0, spec: spec.clone(), inline: false }
}

fn ranks(ranks: &[u32]) -> Path {
    ranks.iter().copied().map(Rank).collect()
}

fn task(executor: u32, own: &[u32], source: u32, path: &[u32]) -> Step {
    Step::Task { executor: Rank(executor), own: ranks(own), sources: vec![(Rank(source), ranks(path))] }
}

/// DR-6, Fig. 4: p = 4, root 1, arrivals 0, 3, 1, 2. Task 1 folds {0} into 3, task 2 folds {2} into the root
/// at the same time, task 3 folds {0,3} into the root.
#[test]
fn figure_4() {
    let mut settings = Settings::new(4, 0);
    settings.latency = (Duration::from_micros(1), Duration::from_micros(1));
    let mut world = World::new(settings);
    world.run();
    let spec = spec(4, Delivery::Root(Rank(1)));
    for (position, rank) in [0, 3, 1, 2].into_iter().enumerate() {
        world.call(Duration::from_micros(10 * position as u64), call(rank, "figure 4", &spec));
    }
    world.run();
    assert_eq!(
        world.steps(),
        [
            Step::Message(Rank(0), ranks(&[0])),
            Step::Message(Rank(3), ranks(&[3])),
            task(3, &[3], 0, &[0]),
            Step::Message(Rank(1), ranks(&[1])),
            Step::Message(Rank(2), ranks(&[2])),
            task(1, &[1], 2, &[2]),
            Step::Message(Rank(3), ranks(&[0, 3])),
            Step::Message(Rank(1), ranks(&[1, 2])),
            task(1, &[1, 2], 3, &[0, 3]),
            Step::Message(Rank(1), ranks(&[0, 1, 2, 3])),
            Step::End,
        ]
    );
    let value = world.ended(Rank(1), "figure 4", 0).unwrap().value.clone().unwrap();
    assert_eq!(value, [[1, 2, 3, 0].map(Rank)]);
    for rank in [0, 2, 3] {
        let ended = world.ended(Rank(rank), "figure 4", 0).unwrap();
        assert!(matches!(ended.end, End::Finished(_)) && ended.value.is_none());
    }
}

/// DR-6 step 4: of two workers that are not the root, the one whose recent tasks took less time gets the
/// task.
#[test]
fn the_faster_worker_gets_the_task() {
    let mut settings = Settings::new(3, 0);
    settings.latency = (Duration::from_micros(1), Duration::from_micros(1));
    settings.task_time =
        BTreeMap::from([(Rank(1), Duration::from_micros(50)), (Rank(2), Duration::from_millis(5))]);
    let mut world = World::new(settings);
    world.run();
    let spec = spec(3, Delivery::Root(Rank(0)));
    // Rank 2 comes second in the first two reductions and executes their tasks, as nothing is known of it at
    // first.
    for name in ["first", "second", "third"] {
        for (position, rank) in [1, 2, 0].into_iter().enumerate() {
            world.call(Duration::from_millis(10 * position as u64), call(rank, name, &spec));
        }
        world.run();
    }
    let executors: Vec<u32> = world
        .steps()
        .iter()
        .filter_map(|step| match step {
            Step::Task { executor, .. } if *executor != 0 => Some(executor.0),
            _ => None,
        })
        .collect();
    assert_eq!(executors, [2, 1, 1], "once rank 2 has shown that it is slow, rank 1 gets the work");
}

/// DR-3: several reductions run at once, each with its own queue; a rank that is late in one holds up no
/// other.
#[test]
fn reductions_do_not_wait_for_each_other() {
    let mut world = World::new(Settings::new(4, 7));
    world.run();
    let spec = spec(4, Delivery::Root(Rank(0)));
    for rank in 0..4 {
        let late = if rank == 2 { Duration::from_secs(1) } else { Duration::ZERO };
        world.call(late, call(rank, "held up", &spec));
        world.call(Duration::ZERO, call(rank, "free", &spec));
    }
    world.run();
    let ends = world.notices().iter().filter_map(|notice| match notice {
        everfold_master::Notice::Finished(id) => Some(*id),
        _ => None,
    });
    let expected = ["free", "held up"].map(|name| everfold_protocol::ReductionId::new(name, 0));
    assert_eq!(ends.collect::<Vec<_>>(), expected);
}

/// Short arrays: a message from each rank, and one to each. Each rank that receives the result folds it, in
/// one order everywhere.
#[test]
fn short_bodies_take_two_hops() {
    for delivery in [Delivery::Root(Rank(2)), Delivery::All] {
        let mut world = World::new(Settings::new(4, 0));
        world.run();
        let spec = spec(4, delivery.clone());
        for rank in 0..4 {
            let call = call(rank, "short", &spec);
            world.call(Duration::from_micros(u64::from(rank)), Call { inline: true, ..call });
        }
        world.run();
        let [messages @ .., Step::End] = world.steps() else { panic!("{:?}", world.steps()) };
        assert_eq!(messages.len(), 4, "{messages:?}");
        let received = |rank| world.ended(Rank(rank), "short", 0).unwrap().value.clone();
        let values: Vec<_> = (0..4).filter_map(received).collect();
        assert_eq!(values.len(), if delivery == Delivery::All { 4 } else { 1 });
        assert!(values.iter().all(|value| value[0].len() == 4 && *value == values[0]), "{values:?}");
    }
}
