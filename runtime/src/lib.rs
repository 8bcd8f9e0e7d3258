//! Does what the machines say: holds data, reads peers one-sidedly, folds, reports, runs master and agent, starts
//! processes.
//!
//! | module | holds |
//! |---|---|
//! | [`agent`] | the agent of a host: holds memory, sees processes end, hosts the master |
//! | [`launch`] | starting the processes of a job, and what they find in their environment |
//! | [`rank`] | joins the job; the thread for input and output |
//! | `driver` | lets the rank's machine act, on whichever thread has an event for it |
//! | `call` | what the application tells its rank, and hears |
//! | `handle` | what a session holds of its rank |
//! | `placing` | what a rank does with the board |
//! | `hearing` | which thread hears the master |
//! | [`executor`] | does a task: fetch, fold, publish |
//! | [`kernel`] | how two blocks of elements become one |
//! | [`body`] | what the application contributes, seen from here |
//! | [`memory`] | shared memory, buffers lent out by segment, windows |
//! | [`keeper`] | originals and replicas, in memory and on disk |
//! | [`copier`] | replicas of other ranks' originals |
//! | [`transport`] | one-sided reads and control messages, over shared memory and TCP |
//! | [`peers`] | the way to other processes' windows |
//! | [`replica`] | replicas of ranks' vaults on other hosts |
//! | [`result_log`] | how the calls of a rank have ended that may come back |
//! | [`serving`] | answers those who read windows here |
//! | [`master`] | the thread that drives the job's master |
//! | `deputies` | the deputy that a rank hosts, and the way to other deputies |
//! | `components` | what a program adds: detectors of its own |
//! | [`ancestry`] | which process has started which |
//! | [`descriptors`] | how many files may be open, and patience when there are none left |
//! | [`locating`] | what of an agent locates faults |
//! | [`logs`] | shown to those who ask for them |
//! | [`patience`] | waiting for others without going to sleep at once |
//!
//! Deliberately absent: decisions. They are the machines', which the simulator runs as well; and the types
//! that applications use, which are `everfold`'s.

/// Atomics of what processes share without a lock. The model of its orderings (`runtime/tests/orderings.rs`)
/// takes others.
mod atomic {
    pub use std::sync::atomic::{AtomicU64, Ordering, fence};
}
pub mod agent;
pub mod ancestry;
pub mod body;
mod call;
mod components;
pub mod copier;
mod deputies;
pub mod descriptors;
mod driver;
pub mod executor;
mod handle;
mod hearing;
pub mod keeper;
pub mod kernel;
pub mod launch;
pub mod locating;
pub mod logs;
pub mod master;
pub mod memory;
pub mod patience;
pub mod peers;
mod placing;
pub mod rank;
pub mod replica;
pub mod result_log;
pub mod serving;
pub mod transport;
