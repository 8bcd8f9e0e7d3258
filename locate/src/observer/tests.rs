use everfold_protocol::{
    Path, SegmentId, SegmentIndex, TaskId,
    locating::HostRef,
    message::{AgentRef, Contribution, Data, PartialReady, Source, TaskCounters},
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection, ReductionSpec},
};

use super::*;

/// Two ranks on each of four hosts.
struct Job {
    now: Timestamp,
    observer: Observer,
    calls: u64,
    found: Vec<Symptom>,
}

const RANKS: u32 = 8;
const MS: Duration = Duration::from_millis(1);

impl Job {
    fn new() -> Self {
        let host = |host: u32| HostRef {
            agent: AgentRef { id: AgentId(host.into()), address: String::new() },
            ranks: Path::range(2 * host, 2 * host + 2),
            domain: None,
        };
        let hosts: Vec<HostRef> = (0..RANKS / 2).map(host).collect();
        let now = Timestamp::ZERO + Duration::from_secs(1);
        Self { now, observer: Observer::new(now, &hosts), calls: 0, found: Vec::new() }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.observer.handle_timeout(self.now);
        self.found.extend(core::iter::from_fn(|| self.observer.poll_symptom()));
    }

    fn call(&mut self, rank: u32, length: u64) {
        let spec = ReductionSpec {
            group: Path::range(0, RANKS),
            delivery: Delivery::Root(Rank(0)),
            kind: BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length },
            order: Order::Arrival,
            deadline: None,
            protection: Protection::None,
            allow_missing: false,
            trace: false,
        };
        let (reduction, name) = (ReductionId::new("x", self.calls), "x".into());
        let call = Contribution { reduction, name, spec, data: Data::Private };
        let message = ToMaster::Contribute(call.into());
        self.observer.handle_message(self.now, ProcessId::first(rank), &message);
    }

    /// All contribute at once, but for those who come later by this time.
    fn reduce(&mut self, late: &[u32], by: Duration) {
        self.pass(MS * 20);
        (0..RANKS).filter(|rank| !late.contains(rank)).for_each(|rank| self.call(rank, 8));
        self.pass(by);
        late.iter().for_each(|rank| self.call(*rank, 8));
        self.observer.handle_over(self.now, ReductionId::new("x", self.calls), None);
        self.calls += 1;
    }

    /// A rank reads a megabyte from another one, in that time.
    fn read(&mut self, reader: u32, owner: u32, time: Duration) {
        self.read_all(reader, &[(owner, time)]);
    }

    /// A rank reads a megabyte from each of these, in the order in which they are there, each after its time.
    fn read_all(&mut self, reader: u32, owners: &[(u32, Duration)]) {
        self.read_bytes(reader, owners, 1 << 20);
    }

    fn read_bytes(&mut self, reader: u32, owners: &[(u32, Duration)], bytes: u64) {
        let (task, to) = (TaskId(self.calls), ProcessId::first(reader));
        let reduction = ReductionId::new("y", self.calls);
        let segment = SegmentId { reduction, index: SegmentIndex(0) };
        let path = |owner| Path::single(Rank(owner));
        let source = |&(owner, _): &(u32, Duration)| Source {
            process: ProcessId::first(owner),
            path: path(owner),
            data: Data::Private,
        };
        let sources: Vec<Source> = owners.iter().map(source).collect();
        let nth_last = |back: usize| owners.len().checked_sub(back).map(|at| owners[at]);
        let (last, fetched) = nth_last(1).unwrap();
        let others_ns = nth_last(2).map_or(0, |(_, time)| time.as_nanos() as u64);
        let range = everfold_protocol::message::ByteRange { start: 0, len: bytes };
        self.observer.handle_task(to, &Task { task, segment, range, own: Path::empty(), sources });
        let counters = TaskCounters {
            fetch_ns: fetched.as_nanos() as u64,
            fetched_bytes: owners.len() as u64 * bytes,
            last: Some(Rank(last)),
            others_ns,
            ..TaskCounters::default()
        };
        let done = PartialReady { task, segment, path: path(last), data: Data::Private, counters };
        self.observer.handle_message(self.now, to, &ToMaster::PartialReady(done));
        self.calls += 1;
    }

    fn kinds(&self) -> Vec<(Kind, Place)> {
        let mut kinds: Vec<_> = self.found.iter().map(|symptom| (symptom.kind, symptom.suspect)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }
}

fn rank(rank: u32) -> Place {
    Place::Rank { rank: Rank(rank), host: Host(rank / 2) }
}

#[test]
fn who_keeps_the_others_waiting_each_time_is_late() {
    let mut job = Job::new();
    (0..100).for_each(|_| job.reduce(&[5], MS * 30));
    assert_eq!(job.kinds(), [(Kind::Late, rank(5))]);
    assert!(job.found.iter().all(|it| (0.5..0.7).contains(&it.value)), "30 ms of 50: {:?}", job.found);
}

#[test]
fn who_is_late_in_most_steps_is_late_although_it_is_not_in_some() {
    let mut job = Job::new();
    // Steps take about as long as a look. Rank 5 comes late in two of three of them.
    for step in 0..12 {
        job.pass(MS * 300);
        job.reduce(&[5], if step % 3 == 2 { MS } else { MS * 250 });
    }
    assert_eq!(job.kinds(), [(Kind::Late, rank(5))]);
}

#[test]
fn one_stall_makes_nobody_late() {
    let mut job = Job::new();
    (0..20).for_each(|_| job.reduce(&[5], MS));
    job.reduce(&[5], MS * 900);
    (0..200).for_each(|_| job.reduce(&[5], MS));
    assert_eq!(job.kinds(), []);
}

#[test]
fn where_everybody_is_late_at_times_nobody_is() {
    let mut job = Job::new();
    (0..200).for_each(|round| {
        let late = [0, 1, 2].map(|it| (round * 3 + it) % RANKS);
        job.reduce(&late, MS * 30);
    });
    assert_eq!(job.kinds(), []);
}

#[test]
fn a_rank_that_never_calls_is_named_while_others_wait() {
    let mut job = Job::new();
    (0..RANKS).filter(|rank| *rank != 3).for_each(|rank| job.call(rank, 8));
    (0..8).for_each(|_| job.pass(MS * 500));
    assert_eq!(job.kinds(), [(Kind::NotCalled, rank(3))]);
    let before = job.found.len();
    job.observer.handle_failed(Rank(3), Evidence::Disconnected);
    (0..8).for_each(|_| job.pass(MS * 500));
    assert_eq!(job.found.len(), before, "nobody waits for the dead");
}

#[test]
fn who_differs_from_most_diverges() {
    let mut job = Job::new();
    for odd in [0, 4] {
        (0..RANKS).for_each(|rank| job.call(rank, if rank == odd { 9 } else { 8 }));
        let refusal = Refusal::Mismatch {
            name: "x".into(),
            sequence: 0,
            aspect: everfold_protocol::spec::Aspect::Length,
            first: Rank(0),
            first_says: String::new(),
            other: Rank(1),
            other_says: String::new(),
        };
        job.observer.handle_over(job.now, ReductionId::new("x", job.calls), Some(&refusal));
        job.pass(MS * 500);
        job.calls += 1;
    }
    assert_eq!(job.kinds(), [(Kind::Diverging, rank(0)), (Kind::Diverging, rank(4))]);
}

#[test]
fn a_link_is_slow_beside_others_and_a_host_if_all_of_its_links_are() {
    for (slow, place) in [
        ([(2, 4)].as_slice(), Place::Link { from: Host(1), to: Host(2) }),
        (&[(2, 4), (6, 2), (2, 0)], Place::Host(Host(1))),
    ] {
        let mut job = Job::new();
        for _ in 0..10 {
            for (from, to) in [(0, 4), (4, 6), (6, 0), (4, 0), (6, 4), (0, 6), (2, 4), (6, 2), (2, 0)] {
                let time = if slow.contains(&(from, to)) { MS * 40 } else { MS * 4 };
                (0..3).for_each(|_| job.read(to, from, time));
            }
            job.pass(MS * 500);
        }
        assert_eq!(job.kinds(), [(Kind::SlowRead, place)]);
    }
}

#[test]
fn a_link_that_is_so_slow_that_little_is_read_is_named_as_soon() {
    let mut job = Job::new();
    for _ in 0..10 {
        for (from, to) in [(0, 4), (4, 6), (6, 0), (2, 4)] {
            (0..3).for_each(|_| job.read(to, from, MS * 40));
        }
        job.pass(MS * 500);
    }
    // All wait for the slow one: each link is read once a second.
    for _ in 0..3 {
        for (from, to) in [(0, 4), (4, 6), (6, 0)] {
            job.read(to, from, MS * 40);
        }
        job.read(4, 2, MS * 400);
        (0..2).for_each(|_| job.pass(MS * 500));
    }
    assert_eq!(job.kinds(), [(Kind::SlowRead, Place::Link { from: Host(1), to: Host(2) })]);
}

#[test]
fn what_takes_long_is_slow_all_the_while_but_one_stall_is_not_enough() {
    let others = [(0, 4), (4, 6), (6, 0)];
    for (looks_apart, found) in [(1, [].as_slice()), (2, &[Place::Link { from: Host(1), to: Host(2) }])] {
        let mut job = Job::new();
        for _ in 0..10 {
            others.iter().chain(&[(2, 4)]).for_each(|(from, to)| job.read(*to, *from, MS * 40));
            job.pass(MS * 500);
        }
        for _ in 0..2 {
            (1..looks_apart).for_each(|_| job.pass(MS * 500));
            others.iter().for_each(|(from, to)| job.read(*to, *from, MS * 40));
            job.read(4, 2, MS * 1600);
            job.pass(MS * 500);
        }
        let places: Vec<Place> = job.found.iter().map(|symptom| symptom.suspect).collect();
        assert_eq!(places, found, "slow at looks that are {looks_apart} apart");
    }
}

#[test]
fn of_what_is_read_from_several_hosts_at_once_only_the_slow_link_is_named() {
    let mut job = Job::new();
    for _ in 0..10 {
        for (reader, owners) in [(0, [4, 6]), (4, [6, 0]), (6, [0, 4])] {
            (0..3).for_each(|_| job.read_all(reader, &owners.map(|owner| (owner, MS * 8))));
        }
        (0..3).for_each(|_| job.read_all(4, &[(6, MS * 5), (2, MS * 40)]));
        job.pass(MS * 500);
    }
    assert_eq!(job.kinds(), [(Kind::SlowRead, Place::Link { from: Host(1), to: Host(2) })]);
}

#[test]
fn a_link_is_slow_although_segments_are_short() {
    let mut job = Job::new();
    for _ in 0..10 {
        for (from, to) in [(0, 4), (4, 6), (6, 0), (2, 4)] {
            let ms = if from == 2 { 10 } else { 1 };
            // Sixteen segments are on their way at once: each takes as long as all of them.
            for _ in 0..16 {
                job.now = job.now + MS * ms / 16;
                job.read_bytes(to, &[(from, MS * ms)], 16 << 10);
            }
            job.now = job.now + MS * 20;
        }
        job.pass(MS * 500);
    }
    assert_eq!(job.kinds(), [(Kind::SlowRead, Place::Link { from: Host(1), to: Host(2) })]);
}

#[test]
fn short_reads_one_by_one_say_nothing_of_a_link() {
    let mut job = Job::new();
    for round in 0..100 {
        for (from, to) in [(0, 4), (4, 6), (6, 0), (2, 4)] {
            let time = if from == 2 && round > 50 { MS * 10 } else { MS };
            job.now = job.now + MS * 20;
            job.read_bytes(to, &[(from, time)], 16 << 10);
        }
        job.pass(MS * 20);
    }
    assert_eq!(job.kinds(), []);
}

#[test]
fn of_two_hosts_the_past_tells_that_their_link_became_slow() {
    let mut job = Job::new();
    for time in [4, 4, 4, 4, 5, 40, 40, 40, 40] {
        (0..3).for_each(|_| job.read(0, 2, MS * time));
        job.pass(MS * 500);
    }
    assert_eq!(job.kinds(), [(Kind::SlowRead, Place::Link { from: Host(1), to: Host(0) })]);
}

#[test]
fn where_all_links_become_slower_none_is_slow() {
    let mut job = Job::new();
    // Short bodies pass at once. Longer ones take what the links take, and some links a little more.
    for (ms, slower) in [(1, 1); 8].into_iter().chain([(10, 14); 12]) {
        for (from, to) in [(0, 4), (4, 6), (6, 0), (2, 4), (2, 0), (0, 2), (6, 2), (4, 2)] {
            let time = if from == 2 { slower } else { ms };
            (0..3).for_each(|_| job.read(to, from, MS * time));
        }
        job.pass(MS * 500);
    }
    assert_eq!(job.kinds(), []);
}

#[test]
fn a_link_that_becomes_slower_than_the_others_do_is_slow() {
    let mut job = Job::new();
    for (ms, slower) in [(1, 1); 8].into_iter().chain([(10, 50); 12]) {
        for (from, to) in [(0, 4), (4, 6), (6, 0), (0, 6), (2, 4)] {
            let time = if from == 2 { slower } else { ms };
            (0..3).for_each(|_| job.read(to, from, MS * time));
        }
        job.pass(MS * 500);
    }
    assert_eq!(job.kinds(), [(Kind::SlowRead, Place::Link { from: Host(1), to: Host(2) })]);
}

#[test]
fn ranks_starve_where_they_wait_for_cores_more_than_elsewhere() {
    for (shares, starving) in [
        ([0.0, 0.9, 0.0, 0.1], vec![Host(1)]),
        ([0.8, 0.85, 0.8, 0.7], vec![]),
        ([0.8, 0.95, 0.8, 0.7], vec![Host(1)]),
        ([0.0, 0.1, 0.2, 0.1], vec![]),
    ] {
        let mut job = Job::new();
        (0..).map(AgentId).zip(shares).for_each(|(agent, share)| job.observer.handle_starved(agent, share));
        job.pass(MS * 500);
        let expected: Vec<_> =
            starving.into_iter().map(|host| (Kind::CpuPressure, Place::Host(host))).collect();
        assert_eq!(job.kinds(), expected, "{shares:?}");
    }
}

#[test]
fn deaths_are_told_by_what_speaks_for_them() {
    let mut job = Job::new();
    job.observer.handle_failed(Rank(1), Evidence::Ended(Ending::Signal(9)));
    job.observer.handle_failed(Rank(2), Evidence::Silent(MS * 1500));
    job.observer.handle_failed(Rank(3), Evidence::Disconnected);
    job.observer.handle_ended(Rank(3), Ending::OutOfMemory);
    job.observer.handle_agent_gone(AgentId(2), None);
    job.observer.handle_agent_gone(AgentId(3), Some(MS * 1500));
    job.pass(MS);
    let expected = [
        (Kind::Silence, Place::Host(Host(3))),
        (Kind::Silence, rank(2)),
        (Kind::Broken, Place::Host(Host(2))),
        (Kind::Ended, rank(1)),
        (Kind::Ended, rank(3)),
        (Kind::OutOfMemory, rank(3)),
    ];
    assert_eq!(job.kinds(), expected);
}
