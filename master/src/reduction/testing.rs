//! Reductions and their jobs, for the tests of this folder.

use alloc::string::String;

use everfold_protocol::{
    Generation, JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec, Timestamp, WindowId,
    message::{Contribution, Data, Peer, Place, WindowRef},
    spec::{BodyKind, Delivery, Order, Protection},
};

use super::Reduction;
use crate::{lengths::Cut, membership::Membership, policy::Policy};

/// The first process of this rank.
pub(super) fn process(rank: u32) -> ProcessId {
    ProcessId::first(Rank(rank))
}

/// A window with one byte, which lies there.
pub(super) fn window(place: Place) -> Data {
    let (window, generation) = (WindowId(0), Generation(1));
    Data::Window(WindowRef { window, generation, bytes: 1, checksum: None, place })
}

/// Objects of one type.
pub(super) fn object() -> BodyKind {
    BodyKind::Object { type_name: "T".into() }
}

/// A reduction of so many ranks, all of which receive the result. It has no replicas.
pub(super) fn spec(ranks: u32, kind: BodyKind) -> ReductionSpec {
    ReductionSpec {
        group: Path::range(0, ranks),
        delivery: Delivery::All,
        kind,
        order: Order::Arrival,
        deadline: None,
        protection: Protection::None,
        allow_missing: false,
        trace: false,
    }
}

/// A reduction that rank 0 has called with `data`. Nobody has contributed yet.
pub(super) fn reduction(spec: ReductionSpec, data: Data, cut: Cut, share_memory: bool) -> Reduction {
    let contribution = Contribution { reduction: ReductionId::new("x", 0), name: "x".into(), spec, data };
    Reduction::new(Timestamp::ZERO, Rank(0), &contribution, cut, &Policy::default(), share_memory)
}

/// A process on that host, which shares nothing.
pub(super) fn peer(process: ProcessId, host: u64) -> Peer {
    let (region, bell, board, domain, agent) = (None, None, None, None, None);
    Peer { process, host, pid: 1, region, bell, board, address: String::new(), domain, agent }
}

/// A job. There is the host of each rank in `hosts`; all have joined.
pub(super) fn job(hosts: &[u64]) -> Membership {
    let mut members = Membership::new(JobId(1), hosts.len() as u32);
    for (process, host) in (0..).map(process).zip(hosts.iter().copied()) {
        members.join(peer(process, host));
    }
    members.stop_joining();
    members
}
