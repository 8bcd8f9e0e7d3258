//! Checkpoints: what a rank saves of its state, so that a process that comes in place of its own goes on from
//! there.
//!
//! | module | holds |
//! |---|---|
//! | `save` | [`Session::checkpoint`](crate::Session::checkpoint) |
//! | `prepared` | waiting for calls to end, and writing, also while the program goes on |
//! | `resume` | [`Session::resume`](crate::Session::resume) |
//! | `contents` | what the parts of a checkpoint are |
//! | `hook` | what libraries save beside the application |
//! | `together` | checkpoints of all ranks together, in a directory that outlives the job; they agree by a [vote](everfold_planner::together::vote) |
//! | `background` | what is written while the application computes on |
//! | `interval` | how long after the last checkpoint the next one is due |
//! | `pace` | who decides that: an interval, or a rule of the program's own |
//! | `keeping` | what a session remembers between them |
//! | `spare` | buffers of copies that were written, for the next ones |
//! | `points` | what a session does with the points of its program |
//! | `error` | why a checkpoint cannot be saved, or gone on from |
//!
//! # Invariants
//! - A checkpoint is saved between calls: all calls before it have ended, and their values are in the
//!   application's hands.
//! - It has the numbers that this rank's next calls are given. A process that comes back draws the same.

mod background;
mod contents;
mod error;
mod hook;
mod interval;
mod keeping;
mod pace;
mod points;
mod prepared;
mod resume;
mod save;
mod spare;
mod together;

pub use self::{
    error::CheckpointError,
    hook::{CheckpointHook, HookError, Live},
    interval::Interval,
    pace::{CheckpointPace, UnknownPace},
    resume::Resume,
    save::{Checkpoint, Checkpointed, Saving},
};
pub(crate) use self::{
    keeping::{Held, Keeping},
    pace::{Paces, Pacing},
    together::{Start, Together},
};
