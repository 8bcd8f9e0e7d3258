//! What one rank does with its share of a reduction, beyond what whole jobs show.

#![allow(clippy::unwrap_used)]

use std::{
    any::Any,
    sync::{Arc, mpsc},
};

use everfold_protocol::{
    JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec, SegmentId, SegmentIndex, TaskId,
    message::{ByteRange, Data, Peer, Piece, Source, Task},
    spec::{BodyKind, Delivery, ElementType, Limits, Operation, Order, Protection},
};
use everfold_worker::{
    body::{Body, BodyError, Object},
    executor::{Returned, Share},
    kernel,
    memory::window::Windows,
    peers::Peers,
    transport::{handshake::Key, tcp::Tcp},
};

struct Text(String);

impl Object for Text {
    fn encode(&self) -> Result<Vec<u8>, BodyError> {
        Ok(self.0.clone().into_bytes())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Box<dyn Object>, BodyError> {
        Ok(Box::new(Self(String::from_utf8(bytes.to_vec()).map_err(|error| BodyError(error.to_string()))?)))
    }

    fn combine(&mut self, right: Box<dyn Object>) {
        let right: Box<dyn Any> = right.into_any();
        self.0.push_str(&right.downcast::<Self>().unwrap().0);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
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

/// A task that was given up comes late: the result of the reduction has taken the body's place.
async fn fold_after_the_end(kind: BodyKind, body: Body, result: &'static [u8]) -> Returned {
    let me = ProcessId::first(1);
    let windows = Arc::new(Windows::new(None));
    let peer = Peer {
        process: me,
        host: 1,
        pid: 1,
        region: None,
        bell: None,
        board: None,
        address: String::new(),
        domain: None,
    };
    let peers = Peers::new(&peer, windows.clone(), Tcp::new(Key([3; 32]), JobId(7), me));
    let (share, _) = Share::new(me, &spec(kind), body, &windows, &Limits::default()).unwrap();
    let share = Arc::new(share);
    let range = ByteRange { start: 0, len: result.len() as u64 };
    let data = Data::Inline(result.into());
    let piece = Piece { range, process: ProcessId::first(2), data: data.clone() };
    share.collect(&peers, vec![piece]).await.unwrap();
    let task = Task {
        task: TaskId(1),
        segment: SegmentId { reduction: ReductionId { name: 1, sequence: 0 }, index: SegmentIndex(0) },
        range,
        own: Path::single(Rank(1)),
        sources: vec![Source { process: ProcessId::first(0), path: Path::single(Rank(0)), data }],
    };
    let (done, ended) = mpsc::channel();
    share.clone().execute(&peers, task, move |executed| done.send(executed).unwrap()).await;
    let executed = tokio::task::spawn_blocking(move || ended.recv().unwrap()).await.unwrap();
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
