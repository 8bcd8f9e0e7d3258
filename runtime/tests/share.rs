//! What one rank does with its share of a reduction, beyond what whole jobs show.

#![allow(clippy::unwrap_used)]

use std::{
    any::Any,
    sync::{Arc, mpsc},
};

use bytes::Bytes;
use everfold_protocol::{
    Generation, Incarnation, JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec, SegmentId,
    SegmentIndex, TaskId, WindowId,
    message::{ByteRange, Data, Fault, Peer, Piece, Place, Source, Task, TaskCounters, WindowRef},
    spec::{BodyKind, Delivery, ElementType, Limits, Operation, Order, Protection},
};
use everfold_runtime::{
    body::{Body, BodyError, Object},
    executor::{Prospects, Returned, Share},
    kernel,
    memory::window::{Content, Windows},
    peers::Peers,
    transport::{handshake::Key, tcp::Tcp},
};
use everfold_worker::machine::{Collected, Collecting, ExecutionError};

struct Text(String);

impl Object for Text {
    fn encode(&self) -> Result<Vec<u8>, BodyError> {
        Ok(self.0.clone().into_bytes())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Box<dyn Object>, BodyError> {
        Ok(Box::new(Self(
            String::from_utf8(bytes.to_vec()).map_err(|error| BodyError::Failed(error.to_string()))?,
        )))
    }

    fn combine(&mut self, right: Box<dyn Object>) {
        let right: Box<dyn Any> = right.into_any();
        self.0.push_str(&right.downcast::<Self>().unwrap().0);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

fn text(bytes: &'static [u8]) -> Data {
    Data::Inline(bytes.into())
}

fn spec(kind: BodyKind) -> ReductionSpec {
    ReductionSpec {
        group: Path::range(0, 3),
        delivery: Delivery::All,
        kind,
        order: Order::Arrival,
        deadline: None,
        protection: Protection::None,
        allow_missing: false,
        trace: false,
    }
}

const ME: ProcessId = ProcessId { rank: Rank(1), incarnation: Incarnation(0) };

/// A process with a host of its own.
fn peer(process: ProcessId, address: String) -> Peer {
    let host = u64::from(process.rank);
    Peer { process, host, pid: 1, region: None, bell: None, board: None, address, domain: None, agent: None }
}

fn peers(windows: &Arc<Windows>) -> Peers {
    Peers::new(&peer(ME, String::new()), windows.clone(), Tcp::new(Key([3; 32]), JobId(7), ME), None)
}

/// Folds `source`, of rank 0, into this rank's own.
fn task(reduction: ReductionId, range: ByteRange, source: Data) -> Task {
    Task {
        task: TaskId(1),
        segment: SegmentId { reduction, index: SegmentIndex(0) },
        range,
        own: Path::single(Rank(1)),
        sources: vec![Source { process: ProcessId::first(0), path: Path::single(Rank(0)), data: source }],
    }
}

type Executed = Result<(Data, TaskCounters), ExecutionError>;

async fn execute(share: &Arc<Share>, peers: &Peers, task: Task) -> Executed {
    let (done, ended) = mpsc::channel();
    share.clone().execute(peers, task, move |executed| done.send(executed).unwrap()).await;
    tokio::task::spawn_blocking(move || ended.recv().unwrap()).await.unwrap()
}

/// A task that was given up comes late: the result of the reduction has taken the body's place.
async fn fold_after_the_end(kind: BodyKind, body: Body, result: &'static [u8]) -> Returned {
    let me = ME;
    let windows = Arc::new(Windows::new(None));
    let peers = peers(&windows);
    let (share, _) =
        Share::new(me, &spec(kind), body, &windows, &Limits::default(), Prospects::default()).unwrap();
    let share = Arc::new(share);
    let range = ByteRange { start: 0, len: result.len() as u64 };
    let data = Data::Inline(result.into());
    let piece = Piece { range, process: ProcessId::first(2), data: data.clone() };
    share.collect(&peers, vec![piece], Collecting::default()).await.unwrap();
    let task = task(ReductionId { name: 1, sequence: 0 }, range, data);
    let executed = execute(&share, &peers, task).await;
    assert!(executed.unwrap_err().reason.contains("over"));
    share.take_body().await.unwrap()
}

#[tokio::test]
async fn nothing_is_folded_into_an_object_that_is_the_result() {
    let kind = BodyKind::Object { type_name: "text".to_owned() };
    let Returned::Object(object) =
        fold_after_the_end(kind, Body::Object(Box::new(Text("1".into()))), b"012").await
    else {
        panic!("it was an object")
    };
    let object: Box<dyn Any> = object.into_any();
    assert_eq!(object.downcast::<Text>().unwrap().0, "012");
}

/// Invariant I4: all sources are decoded before the first is combined.
#[tokio::test]
async fn a_source_that_cannot_be_decoded_leaves_the_object_as_it_was() {
    let windows = Arc::new(Windows::new(None));
    let peers = peers(&windows);
    let kind = BodyKind::Object { type_name: "text".to_owned() };
    let body = Body::Object(Box::new(Text("1".into())));
    let (share, _) =
        Share::new(ME, &spec(kind), body, &windows, &Limits::default(), Prospects::default()).unwrap();
    let share = Arc::new(share);
    let good = || task(ReductionId { name: 1, sequence: 0 }, ByteRange { start: 0, len: 0 }, text(b"0"));
    let mut spoilt = good();
    let (process, path) = (ProcessId::first(2), Path::single(Rank(2)));
    spoilt.sources.push(Source { process, path, data: text(&[0xff]) });
    let error = execute(&share, &peers, spoilt).await.unwrap_err();
    assert_eq!(error.culprit, process);
    let (Data::Inline(folded), _) = execute(&share, &peers, good()).await.unwrap() else {
        panic!("a short object comes inlined")
    };
    assert_eq!(folded, b"10"[..]);
}

#[tokio::test]
async fn nothing_is_folded_into_an_array_that_is_the_result() {
    let kind = BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length: 3 };
    let body = Body::Array {
        memory: Box::new(vec![1u8, 1, 1]),
        element_bytes: 1,
        accumulate: kernel::predefined(&ElementType::U8, &Operation::BitOr).unwrap(),
    };
    let Returned::Array(memory) = fold_after_the_end(kind, body, &[7, 8, 9]).await else {
        panic!("it was an array")
    };
    assert_eq!(memory.bytes(), [7, 8, 9]);
}

/// Bytes that are combined with a bitwise or.
fn bits(bytes: Vec<u8>) -> (BodyKind, Body) {
    let length = bytes.len() as u64;
    let kind = BodyKind::Array { element: ElementType::U8, operation: Operation::BitOr, length };
    let accumulate = kernel::predefined(&ElementType::U8, &Operation::BitOr).unwrap();
    (kind, Body::Array { memory: Box::new(bytes), element_bytes: 1, accumulate })
}

/// Others may have to copy the result from this rank, too. If it has no window for that now it tries again,
/// and its contribution is what it was.
#[tokio::test]
async fn a_result_waits_for_room_beside_a_contribution() {
    let (kind, body) = bits(vec![1; 8]);
    let windows = Arc::new(Windows::new(None));
    let peers = peers(&windows);
    let limits = Limits { inline_bytes_max: 0, ..Limits::default() };
    let (share, _) = Share::new(ME, &spec(kind), body, &windows, &limits, Prospects::default()).unwrap();
    let share = Arc::new(share);
    let mut others: Vec<WindowRef> = Vec::new();
    while let Some(window) = windows.publish(Content::Encoded(Bytes::from_static(b"other"))) {
        others.push(window);
    }
    let range = ByteRange { start: 0, len: 8 };
    let piece = Piece { range, process: ProcessId::first(2), data: Data::Inline(vec![4; 8].into()) };
    let how = Collecting { beside: true, afresh: false };
    let part = share.collect(&peers, vec![piece.clone()], how).await.unwrap();
    let Collected::Part { body: None, error } = part else { panic!("{part:?}") };
    assert_eq!((error.culprit, error.fault), (ME, Fault::Unreachable));
    windows.release(&others.pop().unwrap());
    let all = share.collect(&peers, vec![piece], how).await.unwrap();
    assert!(matches!(all, Collected::Whole(_)), "{all:?}");
    let Returned::Array(memory) = share.take_body().await.unwrap() else { panic!("it was an array") };
    assert_eq!(memory.bytes(), [4; 8]);
}

/// A piece of a result is lost. The contribution is what it was, and another result can take the place of the
/// first.
#[tokio::test]
async fn a_contribution_stays_while_a_result_is_copied_beside_it() {
    let (kind, body) = bits(vec![1; 8]);
    let windows = Arc::new(Windows::new(None));
    let peers = peers(&windows);
    let limits = Limits { inline_bytes_max: 0, ..Limits::default() };
    let (share, data) = Share::new(ME, &spec(kind), body, &windows, &limits, Prospects::default()).unwrap();
    let Data::Window(original) = data else { panic!("it lies in a window") };
    let share = Arc::new(share);
    let (generation, place) = (Generation(1), Place::Served);
    let gone = WindowRef { window: WindowId(77), generation, bytes: 8, checksum: None, place };
    let halves = |second: Data| {
        [Data::Inline(vec![2; 4].into()), second].into_iter().zip([0, 4]).map(|(data, start)| {
            let range = ByteRange { start, len: 4 };
            Piece { range, process: ProcessId::first(2), data }
        })
    };
    let how = Collecting { beside: true, afresh: false };
    let part = share.collect(&peers, halves(Data::Window(gone)).collect(), how).await.unwrap();
    let Collected::Part { body: Some(half), .. } = part else { panic!("{part:?}") };
    assert_eq!((half.collected, half.untouched), (4, 4));
    let whole = ByteRange { start: 0, len: 8 };
    let read = async |data: &WindowRef, range| {
        windows.read(data.window, data.generation, range).await.unwrap().to_vec()
    };
    assert_eq!(read(&original, whole).await, [1; 8]);
    let Data::Window(copied) = half.data else { panic!("it lies in a window") };
    assert_eq!(read(&copied, ByteRange { start: 0, len: 4 }).await, [2; 4]);
    let how = Collecting { beside: true, afresh: true };
    let other = halves(Data::Inline(vec![4; 4].into()))
        .map(|piece| Piece { data: Data::Inline(vec![4; 4].into()), ..piece });
    let all = share.collect(&peers, other.collect(), how).await.unwrap();
    assert!(matches!(all, Collected::Whole(_)), "{all:?}");
    assert_eq!(read(&original, whole).await, [1; 8]);
    let Returned::Array(memory) = share.take_body().await.unwrap() else { panic!("it was an array") };
    assert_eq!(memory.bytes(), [4; 8]);
}

/// A part of a result was copied, and then its segment was folded anew where that lies: it is copied again.
#[tokio::test]
async fn what_was_folded_anew_is_no_part_of_a_result_that_is_copied_beside() {
    let (kind, body) = bits(vec![1; 8]);
    let windows = Arc::new(Windows::new(None));
    let peers = peers(&windows);
    let limits = Limits { inline_bytes_max: 0, ..Limits::default() };
    let (share, _) = Share::new(ME, &spec(kind), body, &windows, &limits, Prospects::default()).unwrap();
    let share = Arc::new(share);
    let how = Collecting { beside: true, afresh: false };
    let (generation, place) = (Generation(1), Place::Served);
    let gone = WindowRef { window: WindowId(77), generation, bytes: 8, checksum: None, place };
    let piece =
        |start, len, data| Piece { range: ByteRange { start, len }, process: ProcessId::first(2), data };
    let result = |len| Data::Inline(vec![7; len].into());
    let pieces = vec![piece(0, 4, result(4)), piece(4, 4, Data::Window(gone))];
    let part = share.collect(&peers, pieces, how).await.unwrap();
    assert!(matches!(part, Collected::Part { .. }), "{part:?}");
    let whole = ByteRange { start: 0, len: 8 };
    let again = task(ReductionId { name: 1, sequence: 0 }, whole, Data::Inline(vec![2; 8].into()));
    execute(&share, &peers, again).await.unwrap();
    share.collect(&peers, vec![piece(0, 8, result(8))], how).await.unwrap();
    let Returned::Array(memory) = share.take_body().await.unwrap() else { panic!("it was an array") };
    assert_eq!(memory.bytes(), [7; 8]);
}

/// What was folded in an attempt in teams is not there any more when the body is contributed again, whether
/// it is the root's, travels in messages, or lies in a window.
#[tokio::test]
async fn a_body_that_comes_back_is_what_it_was() {
    let id = ReductionId { name: 1, sequence: 0 };
    for (delivery, inline_bytes_max) in
        [(Delivery::Root(ME.rank), 100), (Delivery::Root(Rank(0)), 100), (Delivery::Root(Rank(0)), 0)]
    {
        let windows = Arc::new(Windows::new(None));
        let peers = peers(&windows);
        let (kind, body) = bits(vec![1, 2, 4]);
        let spec = ReductionSpec { delivery, ..spec(kind) };
        let limits = Limits { inline_bytes_max, ..Limits::default() };
        let (share, original) = Share::new(
            ME,
            &spec,
            body,
            &windows,
            &limits,
            Prospects { outlives: false, may_come_back: true },
        )
        .unwrap();
        let share = Arc::new(share);
        let range = ByteRange { start: 0, len: 3 };
        execute(&share, &peers, task(id.in_teams(), range, Data::Inline([16, 16, 16][..].into())))
            .await
            .unwrap();
        share.renew();
        let again = task(id, range, Data::Inline([32, 32, 32][..].into()));
        let (partial, _) = execute(&share, &peers, again).await.unwrap();
        let read = |data: Data| {
            let windows = &windows;
            async move {
                match data {
                    Data::Inline(bytes) => bytes.to_vec(),
                    Data::Window(it) => windows.read(it.window, it.generation, range).await.unwrap().to_vec(),
                    Data::Private => Vec::new(),
                }
            }
        };
        let (original, partial) = (read(original).await, read(partial).await);
        let Returned::Array(body) = share.take_body().await.unwrap() else { panic!("it was an array") };
        match spec.delivery.root() == Some(ME.rank) {
            true => assert_eq!(body.bytes(), [33, 34, 36]),
            false => assert_eq!((original, partial), (vec![1, 2, 4], vec![33, 34, 36])),
        }
    }
}

/// However long somebody does not answer: what an attempt in teams reads is waited for no longer than the
/// attempt lasts.
#[tokio::test]
async fn whoever_gives_up_waits_for_no_answer() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let windows = Arc::new(Windows::new(None));
    let peers = peers(&windows);
    peers.meet(vec![peer(ProcessId::first(0), silent.local_addr().unwrap().to_string())], &Limits::default());
    let (kind, body) = bits(vec![1, 2, 4]);
    let (share, _) = Share::new(
        ME,
        &spec(kind),
        body,
        &windows,
        &Limits::default(),
        Prospects { outlives: false, may_come_back: true },
    )
    .unwrap();
    let share = Arc::new(share);
    let window = Data::Window(WindowRef {
        window: WindowId(0),
        generation: Generation(1),
        bytes: 3,
        checksum: None,
        place: Place::Served,
    });
    let id = ReductionId { name: 1, sequence: 0 };
    let task = task(id.in_teams(), ByteRange { start: 0, len: 3 }, window);
    let (executed, ()) = tokio::join!(execute(&share, &peers, task), async { share.give_up() });
    assert_eq!(executed.unwrap_err().culprit, ME);
}
