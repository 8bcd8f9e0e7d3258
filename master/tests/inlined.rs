//! Long bodies that come inlined, because that has proved quicker on the links that there are.

#![allow(clippy::unwrap_used)]

mod common;

use std::{collections::BTreeSet, time::Duration};

use common::{Job, tasks};
use everfold_master::Policy;
use everfold_protocol::{
    Path, Rank, ReductionId, ReductionSpec,
    message::{Contribution, Data, Learning, PartialReady, Task, TaskCounters, ToMaster, ToWorker},
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

/// Who hears that a reduction is over, and what of the next one.
fn finished(said: &[(u32, ToWorker)]) -> Vec<(u32, Learning)> {
    let finished = said.iter().filter_map(|(rank, message)| match message {
        ToWorker::Finished(finished) => Some((*rank, finished.learning)),
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

/// A job that reduces to rank 0, and does as it is told.
struct Ranks {
    job: Job,
    number: u64,
    learning: Learning,
    took: Duration,
}

impl Ranks {
    /// Reduces once. `inline`: which ranks send their bodies along. `time`: how long it takes, inlined or in so
    /// many segments.
    fn reduce(&mut self, inline: impl Fn(u32) -> bool, time: impl Fn(bool, usize) -> u64) {
        let Self { job, number, learning, took } = self;
        let root = Delivery::Root(Rank(0));
        let mut said = Vec::new();
        for rank in 0..RANKS {
            if learning.asks {
                let reduction = ReductionId::new("x", *number - 1);
                job.tell(rank, ToMaster::Took { reduction, took: *took });
            }
            said.extend(call(job, rank, *number, &root, inline(rank)));
        }
        let segments: BTreeSet<_> = tasks(&said).iter().map(|(_, task)| task.segment.index).collect();
        while finished(&said).is_empty() {
            said = tasks(&said).iter().flat_map(|(rank, task)| job.answer(*rank, task)).collect();
        }
        let told = finished(&said);
        assert_eq!(told.len(), RANKS as usize);
        assert!(told.iter().all(|(_, other)| *other == told[0].1), "all hear the same");
        *took = Duration::from_micros(time(inline(1), segments.len()));
        (*number, *learning) = (*number + 1, told[0].1);
    }
}

#[test]
fn bodies_come_inlined_where_that_is_quicker_and_a_mixture_teaches_nothing() {
    let job = Job::new(RANKS, Policy::default());
    let mut ranks = Ranks { job, number: 0, learning: Learning::default(), took: Duration::ZERO };
    let time = |inlined, segments: usize| if inlined { 100 } else { 200 * segments as u64 };
    let mut inlined = 0;
    for _ in 0..60 {
        let inlines = ranks.learning.inlines;
        inlined += u32::from(inlines);
        ranks.reduce(|_| inlines, time);
    }
    assert!(inlined > 20, "{inlined} of 60");
    while !(ranks.learning.inlines && ranks.learning.asks) {
        let inlines = ranks.learning.inlines;
        ranks.reduce(|_| inlines, time);
    }
    for odd in [0, 1] {
        ranks.reduce(|rank| rank % 2 == odd, time);
        assert!(!ranks.learning.asks, "nobody is asked how long a mixture took");
    }
}
