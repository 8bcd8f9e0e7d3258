//! The machines of everfold in a deterministic world of virtual time.
//!
//! [`World`] drives one [`Master`](everfold_master::Master) and one [`Worker`](everfold_worker::machine::Worker) per rank with a single heap of events, ordered by due time and
//! then by the order in which they were made. One seed decides every delay; nothing depends on clocks, threads or hash
//! order, so that a seed is a complete description of a run.
//!
//! Bodies are evidence: each rank contributes its own number, a fold concatenates, and the result shows which
//! contribution was counted, how often, and in which order. After every event the invariants are checked.
//!
//! Deliberately absent so far: failures other than a process's death, and a model of bandwidth.

mod world;

pub use world::{Call, Ended, Settings, Step, World};
