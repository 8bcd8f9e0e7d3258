//! Reductions in modelled clusters.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use everfold_protocol::{
    Path, Rank, ReductionSpec, Timestamp,
    spec::{BodyKind, Delivery, ElementType, Operation, Protection},
};
use everfold_sim::{
    Call, Settings, World,
    model::{Cluster, Preset},
};

fn spec(ranks: u32, bytes: u64) -> ReductionSpec {
    ReductionSpec {
        group: Path::range(0, ranks),
        delivery: Delivery::Root(Rank(0)),
        kind: BodyKind::Array { element: ElementType::F32, operation: Operation::Sum, length: bytes / 4 },
        commutative: true,
        deadline: None,
        protection: Protection::None,
        allow_missing: false,
        trace: false,
    }
}

fn reduce(ranks: u32, bytes: u64, cluster: Cluster, follow: bool) -> (Duration, u64) {
    let mut settings = Settings::new(ranks, 0);
    settings.cluster = Some(cluster);
    settings.follow = follow;
    let mut world = World::new(settings);
    for rank in (0..ranks).map(Rank) {
        let spec = spec(ranks, bytes);
        let inline = bytes <= 16 << 10;
        world.call(Duration::ZERO, Call { rank, name: "x".to_owned(), sequence: 0, spec, inline });
    }
    world.run();
    let ended = world.ended(Rank(0), "x", 0).unwrap();
    let expected: Vec<Rank> = (0..ranks).map(Rank).collect();
    for segment in ended.value.as_ref().unwrap() {
        let mut counted = segment.clone();
        counted.sort_unstable();
        assert_eq!(counted, expected);
    }
    println!("{ranks} {bytes} {:?} {:?}", ended.at, world.load());
    (ended.at.since(Timestamp::ZERO), world.trace_hash())
}

#[test]
fn explore() {
    for bytes in [1u64 << 10, 128 << 10, 1 << 20, 8 << 20, 32 << 20, 128 << 20] {
        let t = std::time::Instant::now();
        reduce(200, bytes, Cluster::new(Preset::TenGbe.link()), false);
        println!("bound {} us, took {:?}", bytes as f64 * 0.84e-3, t.elapsed());
    }
}
