//! The doing part of everfold: holds data, reads peers one-sidedly, folds, reports.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | the bookkeeping of one rank; pure |
//! | [`kernel`] | how two blocks of elements become one |
//! | [`memory`] | shared memory, buffers lent out by segment, windows |
//! | [`body`] | what the application contributes, seen from here |
//! | [`keeper`] | originals and replicas, in memory and on disk |
//! | [`transport`] | one-sided reads and control messages, over shared memory and TCP |
//! | [`peers`] | the way to other processes' windows |
//! | [`copier`] | second copies of other ranks' originals |
//! | [`executor`] | does a task: fetch, fold, publish |
//! | `driver` | lets the machine act, on whichever thread has an event for it |
//! | `line`, `hearing` | the connection to the master, and which thread listens |
//! | `handle` | what a session holds of its worker |
//! | [`runtime`] | joins the job; the thread for input and output |
//!
//! Deliberately absent: any decision about who folds what. That is the master's, and the two crates do not know each
//! other.

pub mod body;
pub mod copier;
mod driver;
pub mod executor;
mod handle;
mod hearing;
pub mod keeper;
pub mod kernel;
mod line;
pub mod machine;
pub mod memory;
pub mod peers;
pub mod runtime;
pub mod transport;
