//! The last task of a reduction, if all of its sources travel in the message: folded once at the master,
//! instead of once at each rank that receives the result.

use alloc::vec::Vec;

use bytes::Bytes;
use everfold_protocol::{
    Path, ReductionSpec,
    message::{Data, Source, Task},
    spec::{BodyKind, Order},
};

/// Folds inlined bodies of that kind into one, from left to right; nothing if they do not fit together. It
/// always yields the same for the same bodies.
pub type Fold = fn(&BodyKind, &[Bytes]) -> Option<Bytes>;

/// Whether such a task may be folded here. In the fixed order its operands may have others between them.
pub(crate) fn may_condense(spec: &ReductionSpec) -> bool {
    spec.order == Order::Arrival && spec.kind.folds_surely()
}

/// Folds the sources of a task into one, if that is possible. The task still gives the same, and each
/// receiver gets one body instead of one for each rank.
pub(crate) fn condense(spec: &ReductionSpec, mut task: Task, fold: Fold) -> Task {
    if task.sources.len() < 2 || !may_condense(spec) {
        return task;
    }
    let inlined = |source: &Source| match &source.data {
        Data::Inline(bytes) => Some(bytes.clone()),
        Data::Window(_) | Data::Private => None,
    };
    let bodies: Option<Vec<Bytes>> = task.sources.iter().map(inlined).collect();
    if let Some(folded) = bodies.and_then(|bodies| fold(&spec.kind, &bodies)) {
        let path: Path = task.sources.iter().flat_map(|source| source.path.iter()).collect();
        task.sources.truncate(1);
        task.sources[0] = Source { process: task.sources[0].process, path, data: Data::Inline(folded) };
    }
    task
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        ByteRange, ProcessId, Rank, ReductionId, SegmentId, SegmentIndex, TaskId,
        spec::{Delivery, ElementType, Operation, Protection},
    };

    use super::*;

    fn spec(order: Order, operation: Operation) -> ReductionSpec {
        ReductionSpec {
            group: Path::range(0, 3),
            delivery: Delivery::All,
            order,
            kind: BodyKind::Array { element: ElementType::U8, operation, length: 2 },
            deadline: None,
            protection: Protection::Memory,
            allow_missing: false,
            trace: false,
        }
    }

    fn task(data: impl Fn(u8) -> Data) -> Task {
        let source = |rank: u8| {
            let rank_of = Rank(rank.into());
            Source { process: ProcessId::first(rank_of), path: Path::single(rank_of), data: data(rank) }
        };
        let segment = SegmentId { reduction: ReductionId::new("sum", 0), index: SegmentIndex(0) };
        let (range, own) = (ByteRange { start: 0, len: 2 }, Path::empty());
        Task { task: TaskId(7), segment, range, own, sources: (0..3).map(source).collect() }
    }

    fn inlined(rank: u8) -> Data {
        Data::Inline(Bytes::from(vec![rank; 2]))
    }

    /// Adds up, but not bodies of another length.
    fn sum(kind: &BodyKind, bodies: &[Bytes]) -> Option<Bytes> {
        let (bytes, _) = kind.array_bytes()?;
        let fit = bodies.iter().all(|body| body.len() as u64 == bytes);
        fit.then(|| (0..bytes as usize).map(|at| bodies.iter().map(|body| body[at]).sum::<u8>()).collect())
    }

    #[test]
    fn what_every_receiver_would_fold_is_folded_once() {
        let condensed = condense(&spec(Order::Arrival, Operation::Sum), task(inlined), sum);
        let Task { sources, .. } = &condensed;
        assert_eq!(sources.len(), 1);
        assert_eq!(
            (&sources[0].path, &sources[0].data),
            (&Path::range(0, 3), &Data::Inline(vec![3; 2].into()))
        );
        assert_eq!(
            Task { sources: Vec::new(), ..condensed.clone() },
            Task { sources: Vec::new(), ..task(inlined) }
        );
    }

    #[test]
    fn what_cannot_be_folded_here_stays_as_it_is() {
        let arrival = spec(Order::Arrival, Operation::Sum);
        let stays = |spec: &ReductionSpec, task: Task| assert_eq!(condense(spec, task.clone(), sum), task);
        stays(&spec(Order::Fixed, Operation::Sum), task(inlined));
        stays(&spec(Order::Arrival, Operation::Custom("of one's own".into())), task(inlined));
        stays(&arrival, task(|rank| Data::Inline(Bytes::from(vec![rank; 2 + usize::from(rank)]))));
        stays(&arrival, task(|rank| if rank == 1 { Data::Private } else { inlined(rank) }));
    }
}
