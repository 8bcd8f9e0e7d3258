//! What is told about a reduction.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use everfold_protocol::{
    Path, Rank, ReductionSpec,
    report::Report,
    spec::{BodyKind, Delivery, ElementType, Operation, Protection},
};
use everfold_sim::{Call, Settings, World};
use everfold_worker::machine::End;

/// What the root is told if these ranks ask for the trace; rank 3 calls long after the others' bodies are
/// one.
fn report(asking: &[u32]) -> Report {
    let mut world = World::new(Settings::new(4, 0));
    world.run();
    for rank in 0..4 {
        let late = if rank == 3 { Duration::from_millis(50) } else { Duration::ZERO };
        let spec = ReductionSpec {
            group: Path::range(0, 4),
            delivery: Delivery::Root(Rank(0)),
            kind: BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length: 1000 },
            order: everfold_protocol::spec::Order::Arrival,
            deadline: None,
            protection: Protection::None,
            allow_missing: false,
            trace: asking.contains(&rank),
        };
        world
            .call(late, Call { rank: Rank(rank), name: "told".to_owned(), sequence: 0, spec, inline: false });
    }
    world.run();
    match &world.ended(Rank(0), "told", 0).unwrap().end {
        End::Received(report) => report.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn whoever_asks_for_the_trace_may_come_last() {
    assert!(report(&[]).trace.is_empty());
    let early = report(&[0]);
    assert_eq!(early.trace.len(), 3, "a task for each fold");
    assert!(early.trace[0].end < Duration::from_millis(50), "some were done before the last rank came");
    assert_eq!(report(&[3]), early);
}
