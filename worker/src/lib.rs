//! The doing part of everfold: holds data, reads peers one-sidedly, folds, reports.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | the bookkeeping of one rank; pure |
//! | [`participant`] | the machine and the calls on the board, in the order in which the machine hears of both; pure |
//! | [`window_table`] | which windows are open; pure |
//! | [`kernel`] | how two blocks of elements become one |
//! | [`memory`] | shared memory, buffers lent out by segment, windows |
//! | [`body`] | what the application contributes, seen from here |
//! | [`keeper`] | originals and replicas, in memory and on disk |
//! | [`transport`] | one-sided reads and control messages, over shared memory and TCP |
//! | [`ancestry`] | which process has started which |
//! | [`descriptors`] | how many files may be open, and patience when there are none left |
//! | [`peers`] | the way to other processes' windows |
//! | [`readers`] | which processes read this one's windows, and when that ends; pure |
//! | [`serving`] | answers them |
//! | [`copier`] | replicas of other ranks' originals |
//! | [`executor`] | does a task: fetch, fold, publish |
//! | `driver` | lets the machine act, on whichever thread has an event for it |
//! | `placing` | what a rank does with the board |
//! | `hearing` | which thread hears the master |
//! | `handle` | what a session holds of its worker |
//! | [`runtime`] | joins the job; the thread for input and output |
//!
//! Deliberately absent: any decision about who folds what. That is the master's, and the two crates do not know each
//! other.

/// Atomics of what processes share without a lock. The model of its orderings (`worker/tests/orderings.rs`) takes others.
#[cfg(feature = "runtime")]
mod atomic {
    pub use std::sync::atomic::{AtomicU64, Ordering, fence};
}
#[cfg(feature = "runtime")]
pub mod ancestry;
#[cfg(feature = "runtime")]
pub mod body;
#[cfg(feature = "runtime")]
pub mod copier;
#[cfg(feature = "runtime")]
pub mod deputies;
#[cfg(feature = "runtime")]
pub mod descriptors;
#[cfg(feature = "runtime")]
mod driver;
#[cfg(feature = "runtime")]
pub mod executor;
#[cfg(feature = "runtime")]
mod handle;
#[cfg(feature = "runtime")]
mod hearing;
#[cfg(feature = "runtime")]
pub mod keeper;
#[cfg(feature = "runtime")]
pub mod kernel;
pub mod machine;
#[cfg(feature = "runtime")]
pub mod memory;
pub mod participant;
#[cfg(feature = "runtime")]
pub mod patience;
#[cfg(feature = "runtime")]
pub mod peers;
#[cfg(feature = "runtime")]
mod placing;
pub mod readers;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "runtime")]
pub mod serving;
#[cfg(feature = "runtime")]
pub mod transport;
pub mod window_table;
