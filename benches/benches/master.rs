//! Reduction messages per second that the master's machine handles on one core.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use everfold_master::{Action, Event, Master, Policy, queue::Access, queue::Queue, queue::Ready};
use everfold_protocol::{
    Epoch, Generation, JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec, RegionOffset, Timestamp,
    WindowId,
    message::{
        Contribution, Data, Header, PartialReady, Peer, Place, Task, TaskCounters, ToMaster, ToWorker,
        WindowRef,
    },
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection},
};
use everfold_sim::costs::{Costs, Part};

const JOB: JobId = JobId(1);
const MEBIBYTE: u64 = 1 << 20;

fn window(rank: Rank, bytes: u64) -> Data {
    Data::Window(WindowRef {
        window: WindowId(rank.into()),
        generation: Generation(1),
        bytes,
        checksum: None,
        place: Place::Region(RegionOffset(0)),
    })
}

/// A master that all ranks, each on a host of its own, have joined.
fn master(ranks: u32) -> Master {
    let mut master = Master::new(Timestamp::ZERO, JOB, ranks, Policy::default());
    for rank in (0..ranks).map(Rank) {
        let process = ProcessId::first(rank);
        let peer = Peer {
            process,
            host: rank.into(),
            pid: 0,
            region: None,
            bell: None,
            board: None,
            address: String::new(),
            domain: None,
            agent: None,
        };
        master.handle_event(Timestamp::ZERO, message(rank, ToMaster::Join { peer, size: ranks }));
    }
    while master.poll_action().is_some() {}
    master
}

fn message(rank: Rank, message: ToMaster) -> Event {
    Event::Message { header: Header { job: JOB, epoch: Epoch(0), sender: ProcessId::first(rank) }, message }
}

fn contribution(rank: Rank, ranks: u32, bytes: u64, sequence: u64) -> Event {
    let spec = ReductionSpec {
        group: Path::range(0, ranks),
        delivery: Delivery::Root(Rank(0)),
        kind: BodyKind::Array { element: ElementType::F32, operation: Operation::Sum, length: bytes / 4 },
        order: Order::Arrival,
        deadline: None,
        protection: Protection::default(),
        allow_missing: false,
        trace: false,
    };
    let data = match rank {
        Rank(0) => Data::Private,
        _ if bytes <= 1024 => Data::Inline(vec![0; bytes as usize].into()),
        _ => window(rank, bytes),
    };
    let reduction = ReductionId::new("bench", sequence);
    let name = "bench".to_owned();
    message(rank, ToMaster::Contribute(Box::new(Contribution { reduction, name, spec, data })))
}

/// The answer of an executor that did its task.
fn done(executor: ProcessId, task: &Task, bytes: u64) -> Event {
    let path = task
        .sources
        .iter()
        .fold(task.own.clone(), |path, source| path.union(&source.path).expect("disjoint"));
    let fetched_bytes = task.range.len * task.sources.len() as u64;
    let counters = TaskCounters {
        task_ns: fetched_bytes,
        fetch_ns: fetched_bytes,
        fetched_bytes,
        ..TaskCounters::default()
    };
    let data = if executor.rank == 0 { Data::Private } else { window(executor.rank, bytes) };
    let (task, segment) = (task.task, task.segment);
    message(executor.rank, ToMaster::PartialReady(PartialReady { task, segment, path, data, counters }))
}

/// Runs `reductions` at once to their ends. Returns the number of reduction messages and the time they took.
///
/// The time is that of the master alone: the workers' answers are prepared outside of it.
fn run(master: &mut Master, ranks: u32, bytes: u64, first: u64, reductions: u64) -> (u64, Duration) {
    let mut events: Vec<Event> = (first..first + reductions)
        .flat_map(|n| (0..ranks).map(move |r| contribution(Rank(r), ranks, bytes, n)))
        .collect();
    let (mut messages, mut taken) = (0, Duration::ZERO);
    let mut actions = Vec::new();
    while !events.is_empty() {
        messages += events.len() as u64;
        let start = Instant::now();
        for event in events.drain(..) {
            master.handle_event(Timestamp::ZERO, event);
        }
        while let Some(action) = master.poll_action() {
            actions.push(action);
        }
        taken += start.elapsed();
        for action in actions.drain(..) {
            if let Action::Send { to, message: ToWorker::Task(task) } = action {
                events.push(done(to, &task, bytes));
            }
        }
    }
    assert_eq!(master.reductions().count(), 0, "all reductions have ended");
    (messages, taken)
}

/// A size in words.
fn size(bytes: u64) -> String {
    if bytes < MEBIBYTE { format!("{bytes} B") } else { format!("{} MiB", bytes / MEBIBYTE) }
}

fn messages(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("master/reduction messages");
    group.sample_size(20);
    for (ranks, reductions, bytes) in [
        (8, 1, 8),
        (8, 1, MEBIBYTE),
        (8, 100, MEBIBYTE),
        (200, 1, 8 * MEBIBYTE),
        (200, 1, 128 * MEBIBYTE),
        (200, 28, 8 * MEBIBYTE),
    ] {
        let mut master = master(ranks);
        let mut next = 0;
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("{ranks} ranks, {reductions} × {} at once", size(bytes)), |bencher| {
            bencher.iter_custom(|messages| {
                let (mut handled, mut total) = (0, Duration::ZERO);
                while handled < messages {
                    let (more, taken) = run(&mut master, ranks, bytes, next, reductions);
                    next += reductions;
                    handled += more;
                    total += taken;
                }
                // The last reductions end, too.
                total.mul_f64(messages as f64 / handled as f64)
            });
        });
    }
}

/// What a message of a reduction of all ranks costs, to one of them and to all: at every level of protection,
/// with arrivals in random order over time, by ranks, by small reductions that wait for late ranks meanwhile,
/// and with and without deaths.
fn costs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("master/messages of spread arrivals");
    // A sample is one run, or as many as take a millisecond.
    group.sample_size(10).warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_millis(10));
    group.throughput(Throughput::Elements(1));
    for protection in [Protection::None, Protection::Memory, Protection::Disk, Protection::CommitFirst] {
        for (dead, open) in [(0, 1), (3, 1), (3, 100), (3, 10_000)] {
            for ranks in [200, 1_000, 10_000] {
                let costs = Costs {
                    ranks,
                    open,
                    dead,
                    protection,
                    bytes: 32 << 10,
                    policy: Policy::default(),
                    seed: 0,
                    part_max: Duration::MAX,
                    stopwatch: now_ns,
                };
                let name = format!("{protection}, {ranks} ranks, {dead} dead, {open} open");
                group.bench_function(name, |bencher| bencher.iter_custom(|messages| take(&costs, messages)));
            }
        }
    }
}

/// How long `messages` messages take, in the mean of whole runs.
fn take(costs: &Costs, messages: u64) -> Duration {
    let (mut handled, mut total) = (0, Duration::ZERO);
    while handled < messages {
        let parts = costs.measure().into_iter();
        for (_, cost) in parts.filter(|(part, _)| matches!(part, Part::ToOne | Part::ToAll)) {
            handled += cost.messages;
            total += cost.time;
        }
    }
    total.mul_f64(messages as f64 / handled as f64)
}

fn now_ns() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// Pairing costs the same however many partials wait.
fn pairing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("master/queue and pairing");
    group.throughput(Throughput::Elements(1));
    for order in [Order::Arrival, Order::Fixed] {
        for waiting in [10u32, 1_000, 100_000] {
            // Every other rank waits, so that brackets are never whole until the missing one comes.
            let all = Path::range(0, 2 * waiting + 2);
            let mut queue = Queue::new(order);
            let ready = |rank: u32| {
                let (process, path) = (ProcessId::first(rank), Path::single(Rank(rank)));
                Arc::new(Ready { process, path, data: Data::Private })
            };
            for rank in 0..waiting {
                queue.push(ready(2 * rank), &all, &all);
            }
            let mut at = 0;
            group.bench_function(format!("{order}, {waiting} waiting"), |bencher| {
                bencher.iter(|| {
                    at = (at + 1) % (waiting - 1);
                    queue.push(ready(2 * at + 1), &all, &all);
                    let pair = queue
                        .take(None, 2, |_| Access::Far { serves: 0, read_ns: 0 })
                        .expect("there is a partner");
                    let lower = pair.into_iter().min_by_key(|ready| ready.path.first()).expect("a pair");
                    // The even one waits again, as a fold of both would.
                    let rank = lower.process.rank.0;
                    queue.push(ready(if order == Order::Arrival { rank } else { rank & !1 }), &all, &all);
                });
            });
        }
    }
}

criterion_group!(benches, messages, costs, pairing);
criterion_main!(benches);
