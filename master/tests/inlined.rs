//! Long bodies that come inlined, because that has proved quicker on the links that there are.

#![allow(clippy::unwrap_used)]

mod common;

use core::time::Duration;

use common::{Job, tasks};
use everfold_master::Policy;
use everfold_protocol::{
    Path, Rank, ReductionId, ReductionSpec,
    message::{Contribution, Data, PartialReady, Task, TaskCounters, ToMaster, ToWorker},
    spec::{BodyKind, Delivery, ElementType, Operation},
};

const RANKS: u32 = 4;
const BODY_BYTES: u64 = 64 << 10;

fn spec(delivery: Delivery) -> ReductionSpec {
    let kind = BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length: BODY_BYTES };
    ReductionSpec { kind, ..common::spec(&[0, 1, 2, 3], delivery) }
}

fn bytes(len: u64) -> Data {
    Data::Inline(vec![1; len as usize].into())
}

fn call(job: &mut Job, rank: u32, number: u64, delivery: &Delivery, inline: bool) -> Vec<(u32, ToWorker)> {
    let id = ReductionId::new("x", number);
    let data = match inline {
        _ if delivery.root() == Some(Rank(rank)) => Data::Private,
        true => bytes(BODY_BYTES),
        false => return job.call(rank, id, &spec(delivery.clone())),
    };
    let (name, spec) = ("x".to_owned(), spec(delivery.clone()));
    job.tell(rank, ToMaster::Contribute(Box::new(Contribution { reduction: id, name, spec, data })))
}

/// What comes of a task whose executor's body came inlined.
fn answer_inlined(job: &mut Job, rank: u32, task: &Task) -> Vec<(u32, ToWorker)> {
    let union = |path: Path, other: &Path| path.union(other).unwrap();
    let path = task.sources.iter().fold(task.own.clone(), |path, source| union(path, &source.path));
    let data = if rank == 0 { Data::Private } else { bytes(task.range.len) };
    let (task, segment, counters) = (task.task, task.segment, TaskCounters::default());
    job.tell(rank, ToMaster::PartialReady(PartialReady { task, segment, path, data, counters }))
}

/// Who hears that a reduction is over, whether with a last task, and whether bodies are to come inlined.
fn finished(said: &[(u32, ToWorker)]) -> Vec<(u32, bool, bool)> {
    let finished = said.iter().filter_map(|(rank, message)| match message {
        ToWorker::Finished(finished) => Some((*rank, finished.last.is_some(), finished.learning.inlines)),
        _ => None,
    });
    finished.collect()
}

#[test]
fn inlined_bodies_of_a_reduction_that_is_cut_are_folded_segment_by_segment() {
    let mut job = Job::new(RANKS, Policy::default());
    let root = Delivery::Root(Rank(0));
    let mut said: Vec<_> = (0..RANKS).flat_map(|rank| call(&mut job, rank, 0, &root, true)).collect();
    let mut answered = 0;
    while finished(&said).is_empty() {
        let todo = tasks(&said);
        assert!(!todo.is_empty(), "it goes on until it is over");
        answered += todo.len();
        said = todo.iter().flat_map(|(rank, task)| answer_inlined(&mut job, *rank, task)).collect();
    }
    assert!(answered >= 2 * 4, "each of four segments is folded, and goes to the root: {answered}");
    assert_eq!(finished(&said).len(), RANKS as usize);
}

/// Does reductions whose ranks do as they were told, as quickly as `time` says. Returns which of them came
/// inlined.
fn run(job: &mut Job, delivery: &Delivery, time: impl Fn(bool, usize) -> u64) -> Vec<bool> {
    let (mut inlines, mut all) = (false, Vec::new());
    for number in 0..80 {
        all.push(inlines);
        let mut said: Vec<_> =
            (0..RANKS).flat_map(|rank| call(job, rank, number, delivery, inlines)).collect();
        let segments: std::collections::BTreeSet<_> =
            tasks(&said).iter().map(|(_, task)| task.segment.index).collect();
        job.now = job.now + Duration::from_micros(time(inlines, segments.len()));
        if inlines && finished(&said).is_empty() {
            // Ranks came as they were told: the time passes between them.
            unreachable!("all that is left is up to those who are to have the result");
        }
        while finished(&said).is_empty() {
            said = tasks(&said).iter().flat_map(|(rank, task)| job.answer(*rank, task)).collect();
        }
        let told = finished(&said);
        inlines = told[0].2;
        assert!(told.iter().all(|(_, _, to)| *to == inlines), "all hear the same");
    }
    all
}

#[test]
fn a_rank_that_has_not_heard_it_does_as_before_and_nothing_is_learnt() {
    let mut job = Job::new(RANKS, Policy::default());
    let root = Delivery::Root(Rank(0));
    // One piece is quicker than four segments, and so is tried what comes next: bodies come inlined.
    let come = run(&mut job, &root, |_, segments| 100 * segments as u64);
    assert!(come.iter().any(|inlined| *inlined), "it is tried");
    let mut said = Vec::new();
    for rank in 0..RANKS {
        said.extend(call(&mut job, rank, 80, &root, rank % 2 == 0));
    }
    while finished(&said).is_empty() {
        said = tasks(&said).iter().flat_map(|(rank, task)| job.answer(*rank, task)).collect();
    }
    assert_eq!(finished(&said).len(), RANKS as usize);
}
