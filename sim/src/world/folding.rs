//! What workers do with data: they fold it and copy it.
//!
//! Data is [`evidence`].

use std::time::Duration;

use everfold_protocol::{
    ProcessId, Rank, ReductionSpec, SegmentId,
    bracketing::{self, Span},
    message::{Data, Fault, Source, Task},
    spec::Order,
};
use everfold_worker::machine::Event;

use super::World;
use crate::{
    events::Happening,
    evidence::{self, NONSENSE, inlined},
    faults::{GLANCE, RETRY, Reach, failure, unread},
    process::Shown,
    work::{Spent, Work, folds},
};

impl World {
    /// Does what `process` has taken its time for.
    pub(super) fn work(&mut self, process: ProcessId, work: Work, spent: Spent) {
        // A dead rank takes nothing any more, and gives nothing back.
        if self.process(process.rank).worker.is_some() {
            self.take_back(process, &work);
        }
        match work {
            // What a process was about to do when it died or gave up is not done.
            _ if self
                .process(process.rank)
                .worker
                .as_ref()
                .is_none_or(|worker| worker.machine().gone().is_some()) => {}
            Work::Execute(task) => self.execute(process, task, spent),
            Work::Prefetch(reduction, bytes, part) => self.prefetch(process, reduction, (bytes, part), spent),
            Work::Collect(reduction, pieces, how) => {
                let share = self.process_mut(process.rank).shares.get_mut(&reduction);
                share.expect("it was called here").begin_collecting(how);
                self.collect(process, reduction, pieces, (how, spent));
            }
            Work::Keep(keep) => self.keep(process, keep, spent),
        }
    }

    /// Lets a read go on, unless nobody waits for it any more.
    pub(super) fn try_again(&mut self, process: ProcessId, work: Work, spent: Spent) {
        self.look_again(process, work, spent, RETRY);
    }

    /// Lets work go on soon after the last reader of the rank's body is done. A process is woken then; here it
    /// looks, ever more seldom.
    pub(super) fn wait_for_readers(&mut self, process: ProcessId, work: Work, mut spent: Spent) {
        let pause = (spent.waited * 2).clamp(GLANCE, RETRY);
        spent.waited = pause;
        self.look_again(process, work, spent, pause);
    }

    fn look_again(&mut self, process: ProcessId, work: Work, spent: Spent, pause: Duration) {
        let (released, id) = (&self.process(process.rank).released, work.reduction());
        if released.contains(&id) || released.contains(&id.called()) {
            return;
        }
        let at = self.agenda.now() + pause;
        self.schedule(at, Happening::Done(process, Box::new((work, spent))));
    }

    /// As long as nothing answers a read, that waits; but not for ever.
    pub(super) fn with_patience(&self, reach: Reach, spent: &mut Spent) -> Reach {
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
                let result = Err(failure(culprit, Fault::Unfit, "the attempt is over"));
                return self.tell_worker(rank, Event::Executed { task: task.task, result });
            }
            Some((reach @ (Reach::Never | Reach::Gone), culprit)) => {
                self.note_given_up(culprit);
                self.process_mut(rank).end_task(id);
                let result = Err(unread(culprit, reach));
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
            self.teller.nonsense(self.agenda.now(), rank, &task);
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
    pub(super) fn fold(&self, process: ProcessId, spec: &ReductionSpec, task: &Task) -> Vec<Rank> {
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
        self.of(source.process).read(&source.data, segment)
    }

    /// Notes that nothing answered a read, if there is somebody who could.
    pub(super) fn note_given_up(&mut self, owner: ProcessId) {
        self.failed_reads.0 += u64::from(self.of(owner).worker.is_some());
    }
}
