//! Messages of those who belong to the job and yet say anything.

use std::{fmt::Debug, time::Duration};

use everfold_master::Policy;
use everfold_protocol::{
    AgentId, ByteRange, Epoch, Generation, Path, Rank, ReductionId, ReductionSpec, RegionOffset, SegmentId,
    SegmentIndex, TaskId, WindowId, codec,
    locating::{Component, FromLocator, HostName, Located, ToLocator},
    message::*,
    report::{FailureRecord, Phases, Refusal, Report, Restored, TaskRecord},
    spec::{Aspect, BodyKind, Delivery, ElementType, Limits, Operation, Order, Protection},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    input::Input,
    memory::bounded,
    talk::{JOB, process},
};

/// Memory that decoding an input of this length may take. A byte may be an element of a few hundred, and
/// there are collections in collections.
pub fn bytes_max(encoded: usize) -> usize {
    (64 << 10) + encoded * 2048
}

/// # Panics
/// If something decodes to what does not come back, or takes more memory than it is long.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.byte();
    let bytes = input.rest();
    match kind % 10 {
        0 => comes_back::<(Header, Vec<ToMaster>)>(bytes, |(_, messages)| for_people(messages)),
        1 => comes_back::<(Header, Vec<ToWorker>)>(bytes, |(_, messages)| for_people(messages)),
        2 => comes_back::<(Header, Vec<FromAgent>)>(bytes, |(_, messages)| for_people(messages)),
        3 => comes_back::<(Header, Vec<ToAgent>)>(bytes, |(_, messages)| for_people(messages)),
        4 => comes_back::<Report>(bytes, |report| {
            let _ = (report.to_string(), report.brief(), report.fraction_redone());
        }),
        5 => comes_back::<Refusal>(bytes, |refusal| {
            let _ = (refusal.to_string(), refusal.absent());
        }),
        6 => comes_back::<(ReductionSpec, ReductionSpec)>(bytes, |(a, b)| {
            assert_eq!(a.disagreement(b).is_some(), b.disagreement(a).is_some());
            assert!(a.disagreement(a).is_none());
            let _ = (a.kind.array_bytes(), a.kind.folds_surely(), a.delivery.root());
            let _ = everfold_protocol::board::suits(a, 8, 4, u64::MAX);
        }),
        7 => comes_back::<(Path, Path, u32)>(bytes, |(a, b, rank)| algebra(a, b, Rank(*rank))),
        8 => comes_back::<(Peer, News)>(bytes, |(_, news)| drop(news.to_string())),
        _ => comes_back::<(Policy, Limits)>(bytes, |(policy, limits)| {
            let _ = (policy.limits.silence_max(), limits.silence_max(), limits.read_patience());
        }),
    }
}

/// Encodes what `bytes` mean, if they mean anything, and sees that it means the same.
fn comes_back<T: Serialize + DeserializeOwned + Debug>(bytes: &[u8], look: impl FnOnce(&T)) {
    let Ok(value) = bounded(bytes_max(bytes.len()), || codec::decode::<T>(bytes)) else { return };
    let encoded = codec::encode(&value).unwrap();
    assert!(encoded.len() <= bytes.len(), "the shortest encoding is ours");
    // Values may hold numbers that are none: they are compared as bytes.
    let again: T = codec::decode(&encoded).unwrap();
    assert_eq!(codec::encode(&again).unwrap(), encoded, "{value:?}");
    if !encoded.is_empty() {
        assert!(codec::decode::<T>(&encoded[..encoded.len() - 1]).is_err(), "it was cut");
    }
    assert!(codec::decode::<T>(&[&encoded[..], &[0]].concat()).is_err(), "something follows");
    look(&value);
}

fn for_people(messages: &impl Debug) {
    drop(format!("{messages:?}"));
}

/// What holds of all sets of ranks.
fn algebra(a: &Path, b: &Path, rank: Rank) {
    let (both, rest) = (a.intersection(b), a.difference(b));
    assert_eq!(both, b.intersection(a));
    assert_eq!(both.len() + rest.len(), a.len());
    assert_eq!(both.union(&rest).as_ref(), Ok(a));
    assert!(rest.is_disjoint(b) && both.is_subset(a) && both.is_subset(b));
    assert_eq!(a.is_disjoint(b), both.is_empty());
    assert_eq!(a.is_subset(b), rest.is_empty());
    match a.union(b) {
        Ok(all) => assert!(both.is_empty() && all.len() == a.len() + b.len() && a.is_subset(&all)),
        Err(overlap) => assert_eq!(Some(overlap.0), both.first()),
    }
    assert_eq!(a.contains(rank), a.position(rank).is_some());
    assert_eq!(a.last(), a.before(Rank(u32::MAX)).max(a.last().filter(|last| last.0 == u32::MAX)));
    let mut changed = a.clone();
    if changed.remove(rank) {
        assert!(!changed.contains(rank) && changed.len() + 1 == a.len());
        assert_eq!(changed.insert(rank), Ok(()));
    } else if changed.insert(rank).is_ok() {
        assert!(changed.contains(rank) && changed.len() == a.len() + 1 && changed.remove(rank));
    }
    assert_eq!(&changed, a);
    for neighbour in [a.before(rank), a.after(rank)].into_iter().flatten() {
        assert!(a.contains(neighbour) && neighbour != rank);
    }
    drop(a.to_string());
}

const REDUCTION: ReductionId = ReductionId { name: 77, sequence: 3 };

fn segment() -> SegmentId {
    SegmentId { reduction: REDUCTION, index: SegmentIndex(2) }
}

fn window() -> WindowRef {
    WindowRef {
        window: WindowId(3),
        generation: Generation(300),
        bytes: 70_000,
        checksum: Some(12),
        place: Place::Region(RegionOffset(1 << 20)),
    }
}

/// What four ranks agree on.
pub fn spec() -> ReductionSpec {
    ReductionSpec {
        group: Path::range(0, 4),
        delivery: Delivery::All,
        kind: BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length: 4 },
        order: Order::Arrival,
        deadline: None,
        protection: Protection::None,
        allow_missing: false,
        trace: false,
    }
}

fn other_spec() -> ReductionSpec {
    let element =
        ElementType::Located(Box::new(ElementType::Custom { name: "Pair".to_owned(), size_bytes: 12 }));
    ReductionSpec {
        group: [0, 1, 5].map(Rank).into_iter().collect(),
        delivery: Delivery::FirstOf(vec![Rank(1), Rank(5)]),
        kind: BodyKind::Array { element, operation: Operation::Custom("f".to_owned()), length: 300 },
        deadline: Some(Duration::from_millis(1500)),
        ..spec()
    }
}

pub fn peer() -> Peer {
    Peer {
        process: process(1),
        host: 1 << 40,
        pid: 4711,
        region: Some(RegionRef { descriptor: 5, bytes: 1 << 30, address: 1 << 46, nonce: 1 << 100 }),
        bell: Some(6),
        board: None,
        address: "127.0.0.1:7077".to_owned(),
        domain: Some("switch".to_owned()),
        agent: Some(AgentRef { id: AgentId(1), address: "127.0.0.1:7078".to_owned() }),
    }
}

fn task() -> Task {
    let source = |rank, data| Source { process: process(rank), path: Path::single(Rank(rank)), data };
    Task {
        task: TaskId(9),
        segment: segment(),
        range: ByteRange { start: 8, len: 64 },
        own: Path::range(0, 2),
        sources: vec![source(2, Data::Inline(vec![1; 8].into())), source(3, Data::Window(window()))],
    }
}

fn header() -> Header {
    Header { job: JOB, epoch: Epoch(2), sender: process(1) }
}

pub fn to_master() -> Vec<(Header, Vec<ToMaster>)> {
    let contribution = |spec, data| Contribution { reduction: REDUCTION, name: "sum".to_owned(), spec, data };
    let counters = TaskCounters { last: Some(Rank(3)), task_ns: 70_000, ..TaskCounters::default() };
    let path = Path::range(0, 2);
    let messages = [
        ToMaster::Join { peer: peer(), size: 4 },
        ToMaster::Contribute(Box::new(contribution(spec(), Data::Inline(vec![7; 32].into())))),
        ToMaster::Contribute(Box::new(contribution(other_spec(), Data::Window(window())))),
        ToMaster::PartialReady(PartialReady {
            task: TaskId(9),
            segment: segment(),
            path: path.clone(),
            data: Data::Private,
            counters,
        }),
        ToMaster::TaskFailed(TaskFailed {
            task: TaskId(9),
            segment: segment(),
            culprit: process(2),
            suspects: path.clone(),
            fault: Fault::Torn,
            reason: "why".to_owned(),
        }),
        ToMaster::Pong { number: 300 },
        ToMaster::Took { reduction: REDUCTION, took: Duration::from_micros(300) },
        ToMaster::Kept(Kept {
            reduction: REDUCTION,
            owner: process(1),
            segments: 0..3,
            result: Err(NotKept::Impossible("full".to_owned())),
        }),
        ToMaster::Kept(Kept {
            reduction: REDUCTION,
            owner: process(1),
            segments: 0..1,
            result: Err(NotKept::Gone),
        }),
        ToMaster::Collected { reduction: REDUCTION, body: Some(Data::Window(window())) },
        ToMaster::Prefetched(Prefetched {
            reduction: REDUCTION,
            start: 300,
            body: Some(Data::Window(window())),
        }),
        ToMaster::NotCollected(NotCollected {
            reduction: REDUCTION,
            culprit: process(2),
            fault: Fault::Gone,
            reason: String::new(),
            body: Some(HalfBody { data: Data::Window(window()), collected: 8, untouched: 16 }),
        }),
        ToMaster::Opened(Box::new(Opened {
            reduction: REDUCTION,
            name: "sum".to_owned(),
            spec: spec(),
            segment_bytes: 1 << 16,
        })),
        ToMaster::Parts {
            reduction: REDUCTION,
            parts: vec![Part { index: SegmentIndex(1), process: process(1), data: Data::Window(window()) }],
            effort: Some(Effort { tasks_per_worker: [(Rank(1), 2)].into(), ..Effort::default() }),
        },
        ToMaster::Dissolve { reduction: REDUCTION, group: path },
        ToMaster::Closing,
        ToMaster::Leave,
    ];
    messages.map(|message| (header(), vec![message])).into()
}

pub fn report() -> Report {
    let path = Path::range(0, 2);
    let time = Duration::from_micros(30);
    Report {
        contributors: Path::range(0, 4),
        tasks_per_worker: vec![(Rank(0), 2), (Rank(3), 1)],
        survived: path.clone(),
        folds_redone: 1,
        folds: 3,
        protected: path.clone(),
        phases: Phases { arriving: time, ..Phases::default() },
        arrivals: vec![(Rank(0), time)],
        trace: vec![TaskRecord {
            executor: Rank(0),
            segment: SegmentIndex(0),
            range: ByteRange { start: 0, len: 8 },
            own: path.clone(),
            sources: vec![(Rank(2), Path::single(Rank(2)))],
            start: time,
            end: time * 2,
        }],
        failures: vec![FailureRecord {
            rank: Rank(1),
            at: time,
            evidence: Evidence::Ended(Ending::OutOfMemory),
            restored: vec![Restored {
                segment: SegmentIndex(0),
                path: path.clone(),
                copies: vec![(Rank(0), path)],
            }],
        }],
        ..Report::default()
    }
}

pub fn to_worker() -> Vec<(Header, Vec<ToWorker>)> {
    let data = Data::Window(window());
    let messages = [
        ToWorker::Ping { number: 1 },
        ToWorker::Fenced,
        ToWorker::Keep(Keep {
            reduction: REDUCTION,
            source: task().sources[1].clone(),
            segments: 0..2,
            how: KeepAs { segment_bytes: 1 << 16, writing: Writing::Behind },
        }),
        ToWorker::News(News::Recovered { name: "sum".to_owned(), ranks: Path::range(1, 3), redone: 2 }),
        ToWorker::Welcome { peers: vec![peer(), peer()].into(), limits: Limits::default() },
        ToWorker::Unwelcome { reason: "no".to_owned() },
        ToWorker::Incomplete { missing: Path::range(1, 3) },
        ToWorker::Task(task()),
        ToWorker::Prefetch(Prefetch {
            reduction: REDUCTION,
            bytes: 300,
            parts: vec![Piece {
                range: ByteRange { start: 8, len: 8 },
                process: process(1),
                data: Data::Window(window()),
            }],
        }),
        ToWorker::Finished(Box::new(Finished {
            reduction: REDUCTION,
            result: vec![Piece { range: ByteRange { start: 0, len: 8 }, process: process(0), data }],
            last: Some(task()),
            lend: true,
            beside: false,
            learning: Learning { inlines: true, asks: false },
            report: report(),
        })),
        ToWorker::Refused { reduction: REDUCTION, refusal: refusals().remove(0) },
        ToWorker::HandOver { reduction: REDUCTION },
        ToWorker::Release { reduction: REDUCTION },
        ToWorker::Dissolved { reduction: REDUCTION },
        ToWorker::Departed { process: process(1), evidence: Evidence::Silent(Duration::from_secs(3)) },
        ToWorker::Forget { process: process(1) },
        ToWorker::AgentLost { agent: AgentId(8) },
        ToWorker::Farewell,
    ];
    messages.map(|message| (header(), vec![message])).into()
}

fn refusals() -> Vec<Refusal> {
    let group = Path::range(0, 4);
    vec![
        Refusal::Mismatch {
            name: "sum".to_owned(),
            sequence: 3,
            aspect: Aspect::Length,
            first: Rank(0),
            first_says: "3".to_owned(),
            other: Rank(1),
            other_says: "4".to_owned(),
        },
        Refusal::DeadlineExceeded { deadline: Duration::from_secs(1), missing: group.clone() },
        Refusal::FoldFailed { executor: Rank(2), path: group, reason: "why".to_owned() },
    ]
}

fn located() -> Located {
    let host = |ranks| HostName { address: "10.0.0.1".to_owned(), ranks };
    Located {
        fault: "link_slow".to_owned(),
        says: "it is slow".to_owned(),
        component: Component::Link { from: host(Path::range(0, 2)), to: host(Path::range(2, 4)) },
        age: Duration::from_secs(1),
        confidence: 60,
        evidence: vec!["slow_read".to_owned()],
        harmless: false,
        over: false,
    }
}

pub fn samples() -> Vec<Vec<u8>> {
    fn kind<T: Serialize>(kind: u8, values: impl IntoIterator<Item = T>) -> Vec<Vec<u8>> {
        let encode = |value: T| [&[kind], &codec::encode(&value).unwrap()[..]].concat();
        values.into_iter().map(encode).collect()
    }
    let ended = FromAgent::Ended { process: process(1), ending: Ending::Signal(9) };
    let never_came = FromAgent::NeverCame { process: process(2), ending: Ending::Code(1) };
    let expects = FromAgent::Expects { ranks: Path::range(2, 4) };
    let scattered: Path = [0, 2, 3, 9].map(Rank).into_iter().collect();
    let highest: Path = [4, u32::MAX - 1].map(Rank).into_iter().collect();
    [
        kind(0, to_master()),
        kind(1, to_worker()),
        kind(
            2,
            [(
                header(),
                vec![
                    FromAgent::Join(Lodging::default()),
                    expects,
                    ended,
                    never_came,
                    FromAgent::Pong { number: 5 },
                ],
            )],
        ),
        kind(2, [(header(), vec![FromAgent::Locating(FromLocator::Located(located().into()))])]),
        kind(3, [(header(), vec![ToAgent::Ping { number: 5 }, ToAgent::Forget { process: process(2) }])]),
        kind(3, [(header(), vec![ToAgent::Locating(ToLocator::Rules("rules".into()))])]),
        kind(4, [report()]),
        kind(5, refusals()),
        kind(6, [(spec(), other_spec())]),
        kind(7, [(scattered.clone(), Path::range(1, 4), 2), (scattered, highest, u32::MAX - 1)]),
        kind(
            8,
            [
                (peer(), News::Failed { rank: Rank(1), evidence: Evidence::HostLost }),
                (peer(), News::HostLost { ranks: Path::range(1, 3) }),
                (peer(), News::DomainLost { domain: "switch".to_owned(), ranks: Path::range(1, 3) }),
            ],
        ),
        kind(9, [(Policy::default(), Limits::default())]),
    ]
    .concat()
}
