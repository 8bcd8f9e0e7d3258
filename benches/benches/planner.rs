//! How long solvers take for programs with many candidate points.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use everfold_planner::{
    candidates::Candidates, enumeration::enumerate, law::Law, shortest::shortest, soonest::soonest,
};

const MILLISECOND: u64 = 1_000_000;

/// A point every millisecond; checkpoints take 0.5 to 1.5 s, with no period that solvers could use.
fn candidates(points: u64) -> Candidates {
    let point = |number: u64| {
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        (number * MILLISECOND, (500 + spread) * MILLISECOND)
    };
    let points: Vec<(u64, u64)> = (1..=points).map(point).collect();
    let end_ns = points.last().map_or(0, |last| last.0 + MILLISECOND);
    Candidates::from_times(&points, end_ns)
}

fn planner(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("planner");
    group.sample_size(10);
    let law = Law { mtbf_s: 3600.0, restart_s: 10.0, reread: 1.0 };
    for points in [100_000, 10_000_000] {
        let candidates = candidates(points);
        group.throughput(Throughput::Elements(points));
        group.bench_function(format!("shortest path, {points} points"), |bencher| {
            bencher.iter(|| shortest(&candidates, 60_000 * MILLISECOND));
        });
        group.bench_function(format!("soonest, {points} points"), |bencher| {
            bencher.iter(|| soonest(&candidates, &law));
        });
    }
    for points in [16, 24, 32] {
        let candidates = candidates(points);
        group.throughput(Throughput::Elements(points));
        group.bench_function(format!("enumeration, {points} points"), |bencher| {
            bencher.iter(|| enumerate(&candidates, 5 * MILLISECOND));
        });
    }
}

criterion_group!(benches, planner);
criterion_main!(benches);
