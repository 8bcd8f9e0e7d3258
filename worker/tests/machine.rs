//! The worker's bookkeeping, driven by hand.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::time::Duration;

use everfold_protocol::{
    Epoch, Generation, JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec, SegmentId, SegmentIndex,
    TaskId, Timestamp, WindowId,
    message::{
        ByteRange, Contribution, Data, Evidence, Fault, Finished, Header, Learning, Peer, Piece, Place, Task,
        TaskCounters, ToMaster, ToWorker, WindowRef,
    },
    report::{Refusal, Report},
    spec::{BodyKind, Delivery, ElementType, Limits, Operation, Order, Protection},
};
use everfold_worker::machine::{Action, Collected, End, Event, ExecutionError, Worker};

const ME: ProcessId = ProcessId { rank: Rank(1), incarnation: everfold_protocol::Incarnation(0) };

fn contribution(reduction: ReductionId) -> Contribution {
    let spec = ReductionSpec {
        group: Path::range(0, 3),
        delivery: Delivery::All,
        order: Order::Arrival,
        kind: BodyKind::Object { type_name: "words".to_owned() },
        deadline: None,
        protection: Protection::None,
        allow_missing: true,
        trace: false,
    };
    Contribution { reduction, name: "sum".to_owned(), spec, data: Data::Inline(vec![1].into()) }
}

fn peer(rank: u32) -> Peer {
    Peer {
        process: ProcessId::first(Rank(rank)),
        host: u64::from(rank),
        pid: 1,
        region: None,
        bell: None,
        board: None,
        address: String::new(),
        domain: None,
        agent: None,
    }
}

/// A worker that has called `reduction`.
fn worker(reduction: ReductionId) -> Worker {
    let mut worker = Worker::new(peer(1), 3);
    let welcome = ToWorker::Welcome { peers: (0..3).map(peer).collect(), limits: Limits::default() };
    hear(&mut worker, welcome);
    worker.handle_event(Timestamp::ZERO, Event::Call(contribution(reduction)));
    worker
}

fn hear(worker: &mut Worker, message: ToWorker) {
    let header = Header { job: JobId(1), epoch: Epoch(0), sender: ProcessId::first(Rank(0)) };
    worker.handle_event(Timestamp::ZERO, Event::Master { header, message });
}

fn finished(reduction: ReductionId, data: Data, lend: bool) -> ToWorker {
    let range = ByteRange { start: 0, len: data.len() };
    let result = vec![Piece { range, process: ProcessId::first(Rank(2)), data }];
    let report = Report::default();
    let learning = Learning::default();
    ToWorker::Finished(Box::new(Finished {
        reduction,
        result,
        last: None,
        lend,
        beside: true,
        learning,
        report,
    }))
}

/// A worker that has copied a result, and lends it.
fn lender(reduction: ReductionId, beside: bool) -> Worker {
    let mut worker = worker(reduction);
    let (window, generation, place) = (WindowId(1), Generation(1), Place::Served);
    let long = Data::Window(WindowRef { window, generation, bytes: 20_000, checksum: None, place });
    let ToWorker::Finished(mut told) = finished(reduction, long.clone(), true) else { unreachable!() };
    told.beside = beside;
    hear(&mut worker, ToWorker::Finished(told));
    let result = Ok(Collected::Whole(Some(long)));
    worker.handle_event(Timestamp::ZERO, Event::Collected { reduction, result });
    while worker.poll_action().is_some() {}
    worker
}

/// Others may have folded the contributions anew, without those that went with somebody.
#[test]
fn who_is_declared_failed_does_not_know_whether_all_have_the_result_that_it_lends() {
    let reduction = ReductionId::new("sum", 0);
    let resolved = |worker: &mut Worker| {
        let actions = std::iter::from_fn(|| worker.poll_action());
        let mut ends = actions.filter_map(|action| match action {
            Action::Resolve { end, .. } => Some(end),
            _ => None,
        });
        ends.next().unwrap()
    };
    let mut worker = lender(reduction, true);
    hear(&mut worker, ToWorker::Fenced);
    assert_eq!(resolved(&mut worker), End::Fenced);
    let mut worker = lender(reduction, true);
    worker.handle_event(Timestamp::ZERO, Event::MasterLost);
    assert_eq!(resolved(&mut worker), End::MasterLost);
    let mut worker = lender(reduction, true);
    let refusal = Refusal::DeadlineExceeded { deadline: Duration::ZERO, missing: Path::empty() };
    hear(&mut worker, ToWorker::Refused { reduction, refusal });
    assert!(matches!(resolved(&mut worker), End::Received(_)), "nobody has another result");
    let mut worker = lender(reduction, false);
    hear(&mut worker, ToWorker::Fenced);
    assert!(matches!(resolved(&mut worker), End::Received(_)), "there is one result only");
}

/// Where ranks come back, the master keeps a refusal for a rank until that has noted how its call has ended.
#[test]
fn a_rank_that_notes_a_result_when_it_is_refused_says_that_it_has() {
    let reduction = ReductionId::new("sum", 0);
    let mut worker = Worker::new(peer(1), 3);
    let limits = Limits { ranks_return: true, ..Limits::default() };
    hear(&mut worker, ToWorker::Welcome { peers: (0..3).map(peer).collect(), limits });
    worker.handle_event(Timestamp::ZERO, Event::Call(contribution(reduction)));
    let (window, generation, place) = (WindowId(1), Generation(1), Place::Served);
    let long = Data::Window(WindowRef { window, generation, bytes: 20_000, checksum: None, place });
    hear(&mut worker, finished(reduction, long.clone(), false));
    let result = Ok(Collected::Whole(Some(long)));
    worker.handle_event(Timestamp::ZERO, Event::Collected { reduction, result });
    let refusal = Refusal::DeadlineExceeded { deadline: Duration::ZERO, missing: Path::empty() };
    hear(&mut worker, ToWorker::Refused { reduction, refusal });
    while worker.poll_action().is_some() {}
    worker.handle_event(Timestamp::ZERO, Event::Noted(reduction));
    let actions: Vec<_> = std::iter::from_fn(|| worker.poll_action()).collect();
    let is_end = |action: &Action| matches!(action, Action::Resolve { end: End::Received(_), .. });
    assert!(actions.iter().any(is_end), "what is noted counts: {actions:?}");
    assert!(actions.contains(&Action::Send(ToMaster::Noted { reduction })), "{actions:?}");
}

#[test]
fn a_result_that_is_told_twice_is_taken_in_once() {
    let reduction = ReductionId::new("sum", 0);
    let (window, generation, place) = (WindowId(1), Generation(1), Place::Served);
    let long = Data::Window(WindowRef { window, generation, bytes: 20_000, checksum: None, place });
    let is_end = |action: &Action| matches!(action, Action::Resolve { end: End::Received(_), .. });
    for ranks_return in [false, true] {
        let mut worker = Worker::new(peer(1), 3);
        let limits = Limits { ranks_return, ..Limits::default() };
        hear(&mut worker, ToWorker::Welcome { peers: (0..3).map(peer).collect(), limits });
        worker.handle_event(Timestamp::ZERO, Event::Call(contribution(reduction)));
        let tell = |worker: &mut Worker| hear(worker, finished(reduction, long.clone(), false));
        tell(&mut worker);
        tell(&mut worker);
        let result = Ok(Collected::Whole(Some(long.clone())));
        worker.handle_event(Timestamp::ZERO, Event::Collected { reduction, result });
        if ranks_return {
            tell(&mut worker);
            worker.handle_event(Timestamp::ZERO, Event::Noted(reduction));
        }
        let actions: Vec<_> = std::iter::from_fn(|| worker.poll_action()).collect();
        let copies = actions.iter().filter(|action| matches!(action, Action::Collect { .. })).count();
        let ends = actions.iter().filter(|action| is_end(action)).count();
        assert_eq!((copies, ends), (1, 1), "ranks return: {ranks_return}: {actions:?}");
    }

    let mut worker = worker(reduction);
    let segment = SegmentId { reduction, index: SegmentIndex(0) };
    let range = ByteRange { start: 0, len: 20_000 };
    let last = Task { task: TaskId(7), segment, range, own: Path::single(ME.rank), sources: Vec::new() };
    for _ in 0..2 {
        let ToWorker::Finished(mut told) = finished(reduction, long.clone(), false) else { unreachable!() };
        (told.result, told.last, told.beside) = (Vec::new(), Some(last.clone()), false);
        hear(&mut worker, ToWorker::Finished(told));
    }
    let result = Ok((long, TaskCounters::default()));
    worker.handle_event(Timestamp::ZERO, Event::Executed { task: TaskId(7), result });
    let actions: Vec<_> = std::iter::from_fn(|| worker.poll_action()).collect();
    let folds = actions.iter().filter(|action| matches!(action, Action::Execute(_))).count();
    let ends = actions.iter().filter(|action| is_end(action)).count();
    assert_eq!((folds, ends), (1, 1), "{actions:?}");
}

#[test]
fn a_death_that_is_told_twice_is_one_death() {
    let mut worker = worker(ReductionId::new("sum", 0));
    while worker.poll_action().is_some() {}
    let (process, evidence) = (ProcessId::first(Rank(2)), Evidence::Disconnected);
    for _ in 0..2 {
        hear(&mut worker, ToWorker::Departed { process, evidence });
    }
    let told = std::iter::from_fn(|| worker.poll_action());
    let told = told.filter(|action| matches!(action, Action::Departed { .. } | Action::News(_)));
    assert_eq!(told.count(), 2, "whose memory is not to be read, and the news of it");
}

/// A long result is lost with who holds it, and the next is so short that it comes in a message: nobody reads
/// that here, and nobody releases it.
#[test]
fn a_result_that_came_in_a_message_is_lent_to_nobody() {
    let reduction = ReductionId::new("sum", 0);
    let mut worker = worker(reduction);
    let (window, generation, place) = (WindowId(1), Generation(1), Place::Served);
    let long = WindowRef { window, generation, bytes: 20_000, checksum: None, place };
    hear(&mut worker, finished(reduction, Data::Window(long), true));
    let error = ExecutionError {
        culprit: ProcessId::first(Rank(2)),
        suspects: Path::empty(),
        fault: Fault::Unreachable,
        reason: "it is dead".to_owned(),
    };
    let result = Ok(Collected::Part { body: None, error });
    worker.handle_event(Timestamp::ZERO, Event::Collected { reduction, result });
    hear(&mut worker, finished(reduction, Data::Inline(vec![1, 2].into()), false));
    let result = Ok(Collected::Whole(None));
    worker.handle_event(Timestamp::ZERO, Event::Collected { reduction, result });
    let actions: Vec<_> = std::iter::from_fn(|| worker.poll_action()).collect();
    let ends = |action: &Action| matches!(action, Action::Resolve { end: End::Received(_), .. });
    assert!(actions.iter().any(ends), "the future ends: {actions:?}");
    assert_eq!(actions.last(), Some(&Action::Release(reduction)));
    assert_eq!(worker.gone(), None, "{ME} takes part");
}

/// A later call of a name that goes straight to the master waits behind one that teams try: the master hears
/// a rank's calls of a name in order.
#[test]
fn what_is_not_tried_in_teams_waits_for_earlier_calls_of_its_name() {
    let mut worker = Worker::new(peer(1), 3);
    let limits = Limits { teams_from: 3, ..Limits::default() };
    hear(&mut worker, ToWorker::Welcome { peers: (0..3).map(peer).collect(), limits });
    let calls = |worker: &mut Worker, contribution: Contribution| {
        worker.handle_event(Timestamp::ZERO, Event::Call(contribution));
        let actions = std::iter::from_fn(|| worker.poll_action());
        let of_call =
            |action: &Action| matches!(action, Action::Tell(..) | Action::Send(ToMaster::Contribute(_)));
        actions.filter(of_call).collect::<Vec<_>>()
    };
    let id = |sequence| ReductionId::new("sum", sequence);
    let in_teams = |sequence| {
        let kind = BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length: 8 };
        let data = Data::Inline(vec![1; 8].into());
        let Contribution { reduction, name, spec, .. } = contribution(id(sequence));
        let delivery = Delivery::Root(Rank(0));
        let spec = ReductionSpec { kind, delivery, allow_missing: false, ..spec };
        Contribution { reduction, name, spec, data }
    };
    let told = calls(&mut worker, in_teams(0));
    assert!(matches!(told.as_slice(), [Action::Tell(..)]), "a deputy hears it: {told:?}");
    let told = calls(&mut worker, contribution(id(1)));
    assert!(told.is_empty(), "the first is not with the master: {told:?}");
    let told = calls(&mut worker, contribution(ReductionId::new("another", 0)));
    assert!(matches!(told.as_slice(), [Action::Send(_)]), "another name does not wait: {told:?}");
}

#[test]
fn long_bodies_come_inlined_once_that_is_told_and_only_one_at_a_time() {
    let at = |us| Timestamp::ZERO + Duration::from_micros(us);
    let mut worker = Worker::new(peer(1), 3);
    let limits = Limits::default();
    hear(&mut worker, ToWorker::Welcome { peers: (0..3).map(peer).collect(), limits });
    let kind = BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length: 64 << 10 };
    let id = |sequence| ReductionId::new("sum", sequence);
    let call = |sequence| {
        let Contribution { name, spec, .. } = contribution(id(sequence));
        let spec = ReductionSpec { kind: kind.clone(), allow_missing: false, ..spec };
        Contribution { reduction: id(sequence), name, spec, data: Data::Inline(vec![1; 64 << 10].into()) }
    };
    let spec = call(0).spec;
    let short = ReductionSpec { delivery: Delivery::Root(Rank(0)), ..spec.clone() };
    let said = |worker: &mut Worker| {
        let actions = std::iter::from_fn(|| worker.poll_action());
        let said = actions.filter_map(|action| match action {
            Action::Send(ToMaster::Took { reduction, took }) => Some(Some((reduction, took))),
            Action::Send(ToMaster::Contribute(_)) => Some(None),
            _ => None,
        });
        said.collect::<Vec<_>>()
    };
    assert_eq!(worker.inline_bytes_max(&spec), limits.inline_bytes_max, "nothing is told");
    worker.handle_event(at(100), Event::Call(call(0)));
    assert_eq!(said(&mut worker), [None], "nothing is asked for");
    let ToWorker::Finished(mut told) = finished(id(0), Data::Inline(vec![3; 64 << 10].into()), false) else {
        unreachable!()
    };
    told.learning = Learning { inlines: true, asks: true };
    let header = Header { job: JobId(1), epoch: Epoch(0), sender: ProcessId::first(Rank(0)) };
    worker.handle_event(at(300), Event::Master { header, message: ToWorker::Finished(told) });
    let result = Ok(Collected::Whole(None));
    worker.handle_event(at(350), Event::Collected { reduction: id(0), result });
    said(&mut worker);
    assert!(worker.inline_bytes_max(&spec) > 64 << 10);
    assert_eq!(worker.inline_bytes_max(&short), limits.inline_bytes_max, "others go to one rank");
    worker.handle_event(at(400), Event::Call(call(1)));
    let took = Some((id(0), Duration::from_micros(250)));
    assert_eq!(said(&mut worker), [took, None], "from the call to the outcome, and before the next call");
    assert_eq!(worker.inline_bytes_max(&spec), limits.inline_bytes_max, "one is under way");
    worker.handle_event(at(500), Event::Call(call(2)));
    assert_eq!(said(&mut worker), [None], "it is told once");
}
