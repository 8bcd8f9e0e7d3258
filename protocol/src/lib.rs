//! The words of everfold as types: who, what, when, and the messages between them.
//!
//! Pure: no sockets, threads, clocks, files, randomness or hash-ordered iteration. Time comes in as a
//! [`Timestamp`], bytes come in as slices.
//!
//! | module | holds |
//! |---|---|
//! | [`id`] | ranks, incarnations, epochs, names of reductions, segments, tasks and windows |
//! | [`path`](mod@path) | the set of ranks folded into a partial, as sorted intervals |
//! | [`board`] | where the ranks of one host put short contributions instead of telling the master |
//! | [`bracketing`] | which operands meet in the fixed order |
//! | [`spec`] | what the ranks of one reduction must agree on |
//! | [`class`] | which reductions are about the same |
//! | [`kept`] | what a process keeps in its memory for others to read after its death |
//! | [`evidence`] | what speaks for the death of a process |
//! | [`message`] | everything that travels between master and worker |
//! | [`report`] | what is told about a finished reduction, and why one was refused |
//! | [`team`] | how a large group is divided among deputies of the master |
//! | [`frame`] | how a batch of messages looks on the wire |
//! | [`parcel`] | a batch of messages whose long bodies follow |
//! | [`seal`] | what proves that a frame is the one that the other side has sent next |
//! | [`codec`] | the only place that knows the serialisation format |
//! | [`time`] | opaque points in time and durations |
//! | [`units`] | quantities as people write them |
//! | [`watch`] | when silence is evidence |

// The compiler proves it pure. Tests may use more.
#![cfg_attr(not(test), no_std)]

#[macro_use]
extern crate alloc;

/// Atomics of what processes share without a lock. The model of its orderings (`runtime/tests/orderings.rs`)
/// takes others.
mod atomic {
    pub use core::sync::atomic::{AtomicU64, Ordering};
}
pub mod board;
mod bodies;
pub mod bracketing;
pub mod class;
pub mod codec;
pub mod evidence;
pub mod frame;
pub mod id;
pub mod kept;
pub mod locating;
pub mod message;
pub mod parcel;
pub mod path;
pub mod pieces;
pub mod report;
pub mod seal;
pub mod spec;
pub mod team;
pub mod time;
pub mod units;
pub mod watch;

pub use id::{
    AgentId, ByteRange, Epoch, Generation, Incarnation, JobId, ProcessId, Rank, ReductionId, RegionOffset,
    SegmentId, SegmentIndex, TaskId, WindowId,
};
pub use path::Path;
pub use spec::ReductionSpec;
pub use time::Timestamp;
