//! What workers do with data: they fold it, copy it, collect it.
//!
//! Data is [`evidence`].

use std::time::Duration;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, ReductionSpec, SegmentId, SegmentIndex,
    bracketing::{self, Span},
    message::{ByteRange, Data, Fault, HalfBody, Piece, Source, Task},
    spec::Order,
};
use everfold_worker::machine::{Collected, Event, ExecutionError};

use crate::{
    events::{Happening, Work},
    evidence::{self, NONSENSE},
    faults::{RETRY, Reach},
    process::{Shown, contains, inlined},
    timing::Spent,
    world::World,
};

/// Folds of two partials that a task takes.
pub(crate) fn folds(task: &Task) -> u32 {
    task.sources.len() as u32 - u32::from(task.own.is_empty())
}

impl World {
    /// Folds of two partials that were done in a reduction, also in vain.
    pub fn folds(&self, name: &str, sequence: u64) -> u32 {
        self.folds.get(&ReductionId::new(name, sequence)).copied().unwrap_or(0)
    }

    /// Does what `process` has taken its time for.
    pub(crate) fn work(&mut self, process: ProcessId, work: Work, spent: Spent) {
        // Whoever is dead takes nothing any more, and gives nothing back.
        if self.process(process.rank).worker.is_some() {
            self.take_back(process, &work);
        }
        match work {
            // What a process was about to do when it died or gave up is not done.
            _ if self.process(process.rank).worker.as_ref().is_none_or(|worker| worker.gone().is_some()) => {}
            Work::Execute(task) => self.execute(process, task, spent),
            Work::Collect(reduction, pieces, how) => {
                let share = self.process_mut(process.rank).shares.get_mut(&reduction);
                share.expect("it was called here").begin_collecting(how);
                self.collect(process, reduction, pieces, spent);
            }
            Work::Keep(keep) => self.keep(process, keep, spent),
        }
    }

    /// Lets a read go on, unless nobody waits for it any more.
    pub(crate) fn try_again(&mut self, process: ProcessId, work: Work, spent: Spent) {
        let (released, id) = (&self.process(process.rank).released, work.reduction());
        if released.contains(&id) || released.contains(&id.called()) {
            return;
        }
        let at = self.now + RETRY;
        self.schedule(at, Happening::Done(process, Box::new((work, spent))));
    }

    /// As long as nothing answers a read, that waits; but not for ever.
    pub(crate) fn with_patience(&self, reach: Reach, spent: &mut Spent) -> Reach {
        let patience = self.settings.policy.limits.read_patience();
        match reach {
            Reach::Later if !patience.is_zero() && spent.unanswered >= patience => Reach::Never,
            Reach::Later => {
                spent.unanswered += RETRY;
                Reach::Later
            }
            reach => reach,
        }
    }

    fn execute(&mut self, process: ProcessId, task: Task, mut spent: Spent) {
        let (rank, id) = (process.rank, task.segment);
        let Some(spec) =
            self.process(rank).shares.get(&id.reduction.called()).map(|share| share.spec.clone())
        else {
            return;
        };
        let reach = task
            .sources
            .iter()
            .map(|source| (self.reaches(rank, source.process, &source.data, id.reduction), source.process));
        let reach = reach.max();
        let reach = reach.map(|(reach, culprit)| (self.with_patience(reach, &mut spent), culprit));
        let is_over = self.process(rank).given_back.contains(&id.reduction);
        match reach {
            Some((Reach::Later, culprit)) if is_over => {
                self.process_mut(rank).end_task(id);
                let reason = "the attempt is over".to_owned();
                let result =
                    Err(ExecutionError { culprit, suspects: Path::empty(), fault: Fault::Unfit, reason });
                return self.tell_worker(rank, Event::Executed { task: task.task, result });
            }
            Some((Reach::Never, culprit)) => {
                self.process_mut(rank).end_task(id);
                let reason = "it does not answer".to_owned();
                let result = Err(ExecutionError {
                    culprit,
                    suspects: Path::empty(),
                    fault: Fault::Unreachable,
                    reason,
                });
                return self.tell_worker(rank, Event::Executed { task: task.task, result });
            }
            Some((Reach::Later, _)) => return self.try_again(process, Work::Execute(task), spent),
            _ => {}
        }
        if let Some(error) = self.has_no_window(&spec, process, &task) {
            self.process_mut(rank).end_task(id);
            return self.tell_worker(rank, Event::Executed { task: task.task, result: Err(error) });
        }
        if let Some(error) = self.mishap(&spec, process, &task) {
            self.process_mut(rank).end_task(id);
            return self.tell_worker(rank, Event::Executed { task: task.task, result: Err(error) });
        }
        let folded = self.fold(process, &spec, &task);
        *self.folds.entry(id.reduction).or_default() += folds(&task);
        if self.teller.is_heard() && folded.contains(&NONSENSE) {
            self.teller.nonsense(self.now, rank, &task);
        }
        let executor = self.process_mut(rank);
        // Objects grow when they are folded; arrays do not.
        let grown = spec.kind.array_bytes().is_none() && folded.len() > 3;
        let data = match () {
            () if spec.delivery.root() == Some(rank) => Data::Private,
            () if executor.shares[&id.reduction.called()].inline && !grown => inlined(&folded),
            () if spec.kind.array_bytes().is_none() => executor.encode(id.reduction, &folded),
            () => executor.window(id.reduction, Shown::Partial, task.range.len),
        };
        executor.end_task(id);
        executor.torn.remove(&id);
        executor.partials.insert(id, folded);
        let counters = spent.counters(task.range.len * task.sources.len() as u64);
        self.tell_worker(rank, Event::Executed { task: task.task, result: Ok((data, counters)) });
    }

    /// What `process`'s partial holds after `task`.
    pub(crate) fn fold(&self, process: ProcessId, spec: &ReductionSpec, task: &Task) -> Vec<Rank> {
        let executor = self.process(process.rank);
        let own = (!task.own.is_empty()).then(|| (&task.own, executor.partial(task.segment)));
        let mut operands: Vec<_> = own.into_iter().collect();
        operands.extend(task.sources.iter().map(|source| (&source.path, self.read(source, task.segment))));
        for (path, held) in &mut operands {
            if self.settings.follow && !evidence::is_fold_of(path, held) {
                held.insert(0, NONSENSE);
            }
        }
        match spec.order {
            Order::Arrival => operands.into_iter().flat_map(|(_, held)| held).collect(),
            Order::Fixed => {
                operands.sort_by_key(|(path, _)| path.first());
                let span =
                    |path| Span::of(path, &spec.group).expect("a path is a non-empty part of its group");
                let operands = operands.into_iter().map(|(path, held)| (span(path), held));
                bracketing::fold(operands, evidence::pair).unwrap_or_default()
            }
        }
    }

    fn read(&self, source: &Source, segment: SegmentId) -> Vec<Rank> {
        self.process(source.process.rank).read(&source.data, segment)
    }

    fn collect(&mut self, process: ProcessId, reduction: ReductionId, pieces: Vec<Piece>, mut spent: Spent) {
        let rank = process.rank;
        let mut at = 0;
        for piece in &pieces {
            assert_eq!(piece.range.start, at, "the pieces of a result lie end to end");
            at = piece.range.end();
        }
        let share = &self.process(rank).shares[&reduction];
        let (spec, is_inline, how) = (share.spec.clone(), share.inline, share.how);
        let place = if how.beside { Shown::Partial } else { Shown::Original };
        let done = share.collected.len();
        if how.beside && self.process(rank).is_windowless && !self.process(rank).has_partial(reduction) {
            let reason = "there is no window left for another one".to_owned();
            let (suspects, fault) = (Path::empty(), Fault::Unfit);
            let result = Err(ExecutionError { culprit: process, suspects, fault, reason });
            return self.tell_worker(rank, Event::Collected { reduction, result });
        }
        if done == 0 && !share.shown && !how.beside && self.process(rank).lends_body(reduction) {
            // The result is copied over what somebody still reads.
            return self.try_again(process, Work::Collect(reduction, pieces, how), spent);
        }
        for (index, range) in self.segments(reduction, &spec).skip(done) {
            let piece = pieces.iter().find(|piece| contains(piece.range, range));
            let piece = piece.expect("each segment has its piece");
            let reach = self.reaches(rank, piece.process, &piece.data, reduction);
            match self.with_patience(reach, &mut spent) {
                Reach::Now => spent.unanswered = Duration::ZERO,
                Reach::Later => return self.try_again(process, Work::Collect(reduction, pieces, how), spent),
                Reach::Never => {
                    let is_array = spec.kind.array_bytes().is_some() && !is_inline;
                    let share = self.process_mut(rank).shares.get_mut(&reduction);
                    share.expect("it was called here").shown |= is_array;
                    let body = is_array.then(|| {
                        let data = self.process_mut(rank).window(reduction, place, at);
                        HalfBody { data, collected: range.start, untouched: range.start }
                    });
                    let reason = "its window is closed".to_owned();
                    let culprit = piece.process;
                    let error = ExecutionError {
                        culprit,
                        suspects: Path::empty(),
                        fault: Fault::Unreachable,
                        reason,
                    };
                    let result = Ok(Collected::Part { body, error });
                    return self.tell_worker(rank, Event::Collected { reduction, result });
                }
            }
            let value = self.process(piece.process.rank).read(&piece.data, SegmentId { reduction, index });
            let process = self.process_mut(rank);
            if how.beside {
                process.torn.remove(&SegmentId { reduction, index });
                process.partials.insert(SegmentId { reduction, index }, value.clone());
            }
            let share = process.shares.get_mut(&reduction).expect("it was called here");
            share.collected.push(value);
        }
        let body = match how.beside {
            true => self.process_mut(rank).window(reduction, Shown::Partial, at),
            false => self.process_mut(rank).window(reduction, Shown::Result, at.max(100_000)),
        };
        self.tell_worker(rank, Event::Collected { reduction, result: Ok(Collected::Whole(Some(body))) });
    }

    /// The segments of a body, and where they lie.
    pub(crate) fn segments(
        &self,
        id: ReductionId,
        spec: &ReductionSpec,
    ) -> impl Iterator<Item = (SegmentIndex, ByteRange)> + use<> {
        let mut hosts = spec.group.iter().map(|rank| self.settings.host(rank));
        let first = hosts.next();
        let share_memory = hosts.all(|host| Some(host) == first);
        let len = match id.is_in_teams() {
            true => self.settings.policy.segment_len_in_teams(spec),
            false => self.settings.policy.segment_len(&spec.kind, spec.group.len(), share_memory),
        };
        let bytes = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let count = if len == 0 { 1 } else { bytes.div_ceil(len) };
        (0..count).map(move |index| {
            let start = index * len;
            (SegmentIndex(index as u32), ByteRange { start, len: len.min(bytes - start) })
        })
    }
}
