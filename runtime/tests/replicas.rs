//! What becomes of a replica when its keeper's process has ended.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use everfold_protocol::{
    JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec,
    message::{ByteRange, Data, Keep, KeepAs, Kept, Peer, Place, Source, WindowRef, Writing},
    spec::{BodyKind, Delivery, ElementType, Limits, Operation, Order, Protection},
};
use everfold_runtime::{
    agent::remains::Remains,
    body::Body,
    copier::Copier,
    executor::{Prospects, Share},
    keeper::{Keeper, KeeperConfig},
    kernel,
    memory::{
        peer_region::PeerRegion,
        region::Region,
        window::{Shelf, Windows},
    },
    peers::Peers,
    transport::{handshake::Key, tcp::Tcp},
};

const JOB: JobId = JobId(7);
const LENGTH: usize = 100_000;

fn keeper() -> ProcessId {
    ProcessId::first(1)
}

/// Keeps a replica of rank 0's original in a process with that region. Returns where the replica is, and what
/// the process holds.
async fn keep(region: &Arc<Region>, original: &[u8], writing: Writing) -> (WindowRef, impl Sized) {
    let windows = Arc::new(Windows::new(Some(region.clone())));
    let peer = Peer {
        process: keeper(),
        host: 1,
        pid: std::process::id(),
        region: Some(region.handle()),
        bell: None,
        board: None,
        address: String::new(),
        domain: None,
        agent: None,
    };
    let peers = Arc::new(Peers::new(&peer, windows.clone(), Tcp::new(Key([3; 32]), JOB, keeper()), None));
    let directory = tempfile::tempdir().unwrap();
    let config = KeeperConfig::new(directory.path().to_owned(), JOB, keeper());
    let kept = Arc::new(Keeper::new(config));
    let copier = Copier::new(kept.clone(), peers, |_| ());
    let spec = ReductionSpec {
        group: Path::range(0, 2),
        delivery: Delivery::All,
        kind: BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length: LENGTH as u64 },
        order: Order::Arrival,
        deadline: None,
        protection: Protection::Memory,
        allow_missing: false,
        trace: false,
    };
    let body = Body::Array {
        memory: Box::new(vec![1u8; LENGTH]),
        element_bytes: 1,
        accumulate: kernel::predefined(&ElementType::U8, &Operation::Sum).unwrap(),
    };
    let prospects = Prospects { outlives: false, may_come_back: false };
    let (share, _) = Share::new(keeper(), &spec, body, &windows, &Limits::default(), prospects).unwrap();
    let source = Source {
        process: ProcessId::first(0),
        path: Path::single(Rank(0)),
        data: Data::Inline(Bytes::copy_from_slice(original)),
    };
    let reduction = ReductionId::new("sum", 0);
    let how = KeepAs { segment_bytes: 0, writing };
    // Made once more, it lies where it lay.
    let mut shown = None;
    for _ in 0..2 {
        let Kept { result, .. } =
            copier.copy(&share, Keep { reduction, source: source.clone(), segments: 0..1, how }).await;
        let Ok(Data::Window(window)) = result else { panic!("{result:?}") };
        assert!(shown.replace(window.clone()).is_none_or(|before| before == window));
    }
    (shown.unwrap(), (share, copier, kept, directory, windows))
}

#[tokio::test]
async fn a_replica_in_memory_outlives_its_keeper() {
    let region = Region::new().unwrap();
    let original: Vec<u8> = (0..LENGTH).map(|at| at as u8).collect();
    let (window, held) = keep(&region, &original, Writing::Never).await;
    let Place::Region(at) = window.place else { panic!("{window:?}") };

    // All that is left of the process is what its agent holds.
    let remains = Arc::new(Remains::default());
    let file = region.file().try_clone_to_owned().unwrap();
    remains.hold(keeper(), PeerRegion::adopt(file, &region.handle()).unwrap());
    std::mem::forget(held);
    let all = ByteRange { start: 0, len: LENGTH as u64 };
    let left = remains.of(keeper()).read(window.window, window.generation, all, Some(at)).await.unwrap();
    assert!(*left == original[..]);
}
