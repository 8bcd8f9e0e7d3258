//! Executing tasks: sources are read from peers and folded into this rank's partial.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use everfold_protocol::{
    Path, Rank,
    bracketing::{self, Span},
    message::{ByteRange, Data, Fault, Source, Task, TaskCounters},
    spec::Order,
};
use futures::future::try_join_all;

use super::{
    Kind, NoWindow, ON_THE_SPOT_BYTES, Share,
    array::{Array, handed_back},
    blame::Progress,
};
use everfold_worker::machine::ExecutionError;

use crate::{
    body::Object,
    kernel::{self, Bracketing, Own},
    memory::{
        buffer::{Buffer, Memory},
        region::Region,
        window::Content,
    },
    peers::Peers,
    transport::{Fetched, ReadError},
};

impl Share {
    /// Executes `task`: reads its sources and folds them into this rank's partial. `done` hears where that is
    /// readable and its counters, or the culprit. Then the partial is as it was, unless the fault is `Torn`.
    pub async fn execute(
        self: Arc<Self>,
        peers: &Peers,
        mut task: Task,
        done: impl FnOnce(Result<(Data, TaskCounters), ExecutionError>) + Send + 'static,
    ) {
        let started = Instant::now();
        if self.order == Order::Fixed {
            task.sources.sort_by_key(|source| source.path.first());
        }
        let (fetched, times) = match self.read_sources(peers, &task, started).await {
            Ok(read) => read,
            Err(error) => return done(Err(error)),
        };
        let fetched: Vec<Fetched> = match &self.kind {
            Kind::Array(array) => fetched.into_iter().map(|it| it.part(task.range, array.bytes)).collect(),
            Kind::Object(_) | Kind::Pieces(_) => fetched,
        };
        let fetch_ns = started.elapsed().as_nanos() as u64;
        let (last, others_ns) = last_and_others_ns(&task.sources, &times);
        let bytes: usize = fetched.iter().map(|bytes| bytes.len()).sum();
        let on_the_spot = bytes <= ON_THE_SPOT_BYTES && self.folds_swiftly();
        let fold = move || {
            // Waiting for a free thread is no work: it would make a busy worker look slow.
            let started = Instant::now();
            let progress = Progress::default();
            let folded = catch_unwind(AssertUnwindSafe(|| self.fold(&task, &fetched, &progress)));
            let panicked = |_| Err(progress.blame(self.me, &task, self.own_number(&task)));
            let result = folded.unwrap_or_else(panicked).map(|data| {
                let task_ns = fetch_ns + started.elapsed().as_nanos() as u64;
                (data, TaskCounters { task_ns, fetch_ns, fetched_bytes: bytes as u64, last, others_ns })
            });
            // The master may now let the body go back to the application.
            drop((self, fetched));
            done(result);
        };
        if on_the_spot {
            fold();
        } else {
            tokio::task::spawn_blocking(fold);
        }
    }

    /// The sources of a task, and how long after `started` each was here, unless all of them came with the
    /// task.
    async fn read_sources(
        &self,
        peers: &Peers,
        task: &Task,
        started: Instant,
    ) -> Result<(Vec<Fetched>, Vec<Duration>), ExecutionError> {
        if let Some(fetched) = inlined(&task.sources) {
            return Ok((fetched, Vec::new()));
        }
        let range = matches!(self.kind, Kind::Array(_)).then_some(task.range);
        let fetches = task.sources.iter().map(async |source| {
            let fetched = peers.fetch(source.process, &source.data, range).await?;
            Ok((fetched, started.elapsed()))
        });
        let tried = task.segment.reduction.is_in_teams();
        let fetched = tokio::select! {
            biased;
            fetched = try_join_all(fetches) => fetched,
            () = self.is_given_up(), if tried => {
                Err(ExecutionError::blame(self.me, "the attempt in teams is over"))
            }
        };
        Ok(fetched?.into_iter().unzip())
    }

    /// Which operand of `task`, counted from the left, is this rank's own, if it has one.
    fn own_number(&self, task: &Task) -> usize {
        let stands_left = |source: &&Source| !task.own.is_empty() && source.path.first() < task.own.first();
        match self.order {
            Order::Arrival => 0,
            Order::Fixed => task.sources.iter().filter(stands_left).count(),
        }
    }

    /// The number of this rank's own operand, and where all operands lie in the group. If it has none, the
    /// first source takes its place.
    fn operands(&self, task: &Task) -> (usize, Vec<Span>) {
        let own = Some(&task.own).filter(|own| !own.is_empty());
        let own_number = self.own_number(task);
        let mut paths: Vec<&Path> = task.sources.iter().map(|source| &source.path).collect();
        own.into_iter().for_each(|own| paths.insert(own_number, own));
        let span = |path| Span::of(path, &self.group).expect("I1: paths are parts of the group");
        (own_number, paths.into_iter().map(span).collect())
    }

    fn fold(&self, task: &Task, fetched: &[Fetched], progress: &Progress) -> Result<Data, ExecutionError> {
        match &self.kind {
            Kind::Array(array) => self.fold_array(array, task, fetched, progress),
            Kind::Pieces(_) => Err(ExecutionError::blame(self.me, "pieces are not folded")),
            Kind::Object(object) => {
                let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
                self.check_open()?;
                self.fold_object(&mut object, task, fetched, progress)?;
                if self.private {
                    return Ok(Data::Private);
                }
                let object = object.as_ref().ok_or_else(|| ExecutionError::blame(self.me, handed_back()))?;
                let encoded = object.encode().map_err(|error| ExecutionError::blame(self.me, error))?;
                self.shown.publish_encoded(encoded).map_err(|error| ExecutionError::blame(self.me, error))
            }
        }
    }

    /// Folds encoded operands into the object in `slot`.
    ///
    /// All are decoded before the first is combined, so that a bad one changes nothing (I4).
    fn fold_object(
        &self,
        slot: &mut Option<Box<dyn Object>>,
        task: &Task,
        fetched: &[Fetched],
        progress: &Progress,
    ) -> Result<(), ExecutionError> {
        let own = slot.as_ref().ok_or_else(|| ExecutionError::blame(self.me, handed_back()))?;
        let decode = |(number, (source, bytes)): (usize, (&Source, &Fetched))| {
            progress.decode(number);
            own.decode(bytes).map_err(|error| ExecutionError {
                suspects: source.path.clone(),
                ..ExecutionError::blame(source.process, error)
            })
        };
        let sources = task.sources.iter().zip(fetched).enumerate();
        let mut operands: Vec<_> = sources.map(decode).collect::<Result<_, _>>()?;
        progress.leave_the_application();
        let (own_number, spans) = match self.order {
            Order::Arrival => (0, Vec::new()),
            Order::Fixed => self.operands(task),
        };
        let own = slot.take().filter(|_| !task.own.is_empty());
        own.into_iter().for_each(|own| operands.insert(own_number, own));
        let operands =
            operands.into_iter().enumerate().map(|(number, operand)| (number..number + 1, operand));
        let combine = |(left, mut value): (Range<usize>, Box<dyn Object>),
                       (right, other): (Range<usize>, _)| {
            progress.combine(&left, &right);
            value.combine(other);
            (left.start..right.end, value)
        };
        let folded = match self.order {
            Order::Arrival => operands.reduce(combine),
            Order::Fixed => bracketing::fold(spans.into_iter().zip(operands), combine),
        };
        *slot = folded.map(|(_, value)| value);
        progress.leave_the_application();
        Ok(())
    }

    fn fold_array(
        &self,
        array: &Array,
        task: &Task,
        fetched: &[Fetched],
        progress: &Progress,
    ) -> Result<Data, ExecutionError> {
        check_lengths(task, fetched)?;
        let ByteRange { start, len } = task.range;
        let original = array.original().map_err(|error| ExecutionError::blame(self.me, error))?;
        let (target, data) = if array.in_place {
            (original.clone(), None)
        } else {
            let (partial, data) =
                self.partial(array).map_err(|error| ExecutionError::blame(self.me, error))?;
            (partial, Some(data))
        };
        // A peer may still read the bytes that are about to be overwritten, for a task that was given up.
        let busy =
            |error| ExecutionError { fault: Fault::Unreachable, ..ExecutionError::blame(self.me, error) };
        let sources: Vec<&[u8]> = fetched.iter().map(|bytes| &**bytes).collect();
        let first = !array.in_place && task.own == Path::single(self.me.rank);
        let own_bytes;
        let (own, sources) = match sources.split_first() {
            Some((own, rest)) if task.own.is_empty() => (Own::From(own), rest),
            _ if first => {
                own_bytes = original.read(start, len).map_err(busy)?;
                (Own::From(&own_bytes), &sources[..])
            }
            _ => (Own::InPlace, &sources[..]),
        };
        let mut target = target.write(start, len).map_err(busy)?;
        // Lent ranges hold their buffers: a thread that sees that nothing is lent has them to itself.
        drop(original);
        self.check_open()?;
        if !array.in_place {
            array.forget_result(start);
        }
        progress.combine_elements();
        self.combine(&mut target, own, sources, array, task);
        progress.leave_the_application();
        if let Some(torn) = fetched.iter().position(|bytes| !bytes.is_still_valid()) {
            let spoils = matches!(own, Own::InPlace) || task.own.is_empty();
            let fault = if spoils { Fault::Torn } else { Fault::Unreachable };
            return Err(ExecutionError {
                fault,
                ..ExecutionError::blame(task.sources[torn].process, ReadError::Released)
            });
        }
        Ok(match data {
            Some(data) => data,
            None if self.private => Data::Private,
            None => Data::Inline(Bytes::copy_from_slice(&target)),
        })
    }

    /// Folds `own` and `sources` into `target`, in the order of the reduction.
    fn combine(&self, target: &mut [u8], own: Own<'_>, sources: &[&[u8]], array: &Array, task: &Task) {
        let (element_bytes, accumulate) = (array.element_bytes, &array.accumulate);
        match self.order {
            Order::Arrival => kernel::fold(target, own, sources, element_bytes, accumulate),
            Order::Fixed => {
                let (own_number, spans) = self.operands(task);
                let numbered = spans.into_iter().zip((0..).map(Bracketing::operand));
                if let Some(tree) = bracketing::fold(numbered, Bracketing::pair) {
                    kernel::fold_bracketed(
                        target,
                        own,
                        own_number,
                        sources,
                        &tree,
                        element_bytes,
                        accumulate,
                    );
                }
            }
        }
    }

    /// The executor asks once it holds the buffer that it writes to; the thread that puts the result in its
    /// place waits for that.
    fn check_open(&self) -> Result<(), ExecutionError> {
        match self.over.load(Ordering::SeqCst) {
            true => Err(ExecutionError::blame(self.me, "the reduction is over here")),
            false => Ok(()),
        }
    }

    /// The buffer in which this rank's partials grow, made and published at the first use.
    pub(super) fn partial(&self, array: &Array) -> Result<(Arc<Buffer>, Data), NoWindow> {
        let mut partial = array.partial.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(partial) = &*partial {
            return Ok(partial.clone());
        }
        let buffer = Buffer::new(scratch(self.shown.windows.region(), array.bytes));
        let data = self.shown.publish(Content::Buffer(buffer.clone()))?;
        Ok(partial.insert((buffer, data)).clone())
    }
}

/// Memory for a partial: shared if possible, so that peers can map it.
pub(crate) fn scratch(region: Option<&Arc<Region>>, len: usize) -> Box<dyn Memory> {
    match region.and_then(|region| region.allocate(len)) {
        Some(block) => Box::new(block),
        None => Box::new(Words { words: vec![0; len.div_ceil(8)], len }),
    }
}

/// Whose data was the last to be here, and when that of all others was.
fn last_and_others_ns(sources: &[Source], times: &[Duration]) -> (Option<Rank>, u64) {
    let last = (0..times.len()).max_by_key(|at| times[*at]);
    let others = times.iter().enumerate().filter(|(at, _)| Some(*at) != last).map(|(_, time)| time);
    let others_ns = others.max().map_or(0, |time| time.as_nanos() as u64);
    (last.map(|at| sources[at].process.rank), others_ns)
}

/// Checks that each source has as many bytes as the task folds.
fn check_lengths(task: &Task, fetched: &[Fetched]) -> Result<(), ExecutionError> {
    let len = task.range.len;
    for (source, bytes) in task.sources.iter().zip(fetched) {
        if bytes.len() as u64 != len {
            let reason = format!("it has {} bytes where {len} are needed", bytes.len());
            let suspects = source.path.clone();
            return Err(ExecutionError { suspects, ..ExecutionError::blame(source.process, reason) });
        }
    }
    Ok(())
}

/// The sources, if all of them came with the task.
fn inlined(sources: &[Source]) -> Option<Vec<Fetched>> {
    let inlined = |source: &Source| match &source.data {
        Data::Inline(bytes) => Some(Fetched::Inline(bytes.clone())),
        Data::Window(_) | Data::Private => None,
    };
    sources.iter().map(inlined).collect()
}

/// Private memory, aligned for every element type.
struct Words {
    words: Vec<u64>,
    len: usize,
}

impl Memory for Words {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::ProcessId;

    use super::*;

    #[test]
    fn who_answered_last_is_told() {
        let source = |rank| Source {
            process: ProcessId::first(Rank(rank)),
            path: Path::single(Rank(rank)),
            data: Data::Private,
        };
        let told = |ms: &[u64]| {
            let sources: Vec<_> = (1..).map(source).take(ms.len()).collect();
            let times: Vec<_> = ms.iter().copied().map(Duration::from_millis).collect();
            last_and_others_ns(&sources, &times)
        };
        assert_eq!(told(&[3, 9, 5]), (Some(Rank(2)), 5_000_000));
        assert_eq!(told(&[3]), (Some(Rank(1)), 0), "there are no others");
        assert_eq!(told(&[]), (None, 0), "all came with the task");
    }
}
