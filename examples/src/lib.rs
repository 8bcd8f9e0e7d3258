//! What the example programs share: the parts that can be computed, checked and tested without a cluster.
//!
//! The programs beside this library (`01_sum.rs` and onwards) teach how to reduce. This library holds what
//! they reduce. Nothing in it starts processes or sends messages.

pub mod checkpoints;
pub mod device;
pub mod npb;
pub mod progress;
pub mod statistics;
