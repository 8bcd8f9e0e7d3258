//! Recoveries: which of them meets which fault (FR-2 to FR-4).
//!
//! | to | see |
//! |---|---|
//! | choose in a program | [`Config::recover`](crate::Config::recover), [`Recoveries`] |
//! | choose in a file, without a change of the program | [`RecoveryFile`], `EVERFOLD_RECOVERY`, `everfold run --recovery` |
//! | add a detector of your own | [`Detector`], [`detector`], [`Launch::detector`](crate::Launch::detector) |
//! | decide yourself when checkpoints are due | [`CheckpointPace`](crate::CheckpointPace), [`Launch::checkpoint_pace`](crate::Launch::checkpoint_pace) |
//!
//! Detectors look at a death, one after the other. Those of your own come first, then these:
//! - *located*: the process has ended, and its host has a fault that was [located](crate::locating). Without
//!   a section in the file it sees nothing.
//! - *repeated*: enough processes of the same host have died within some time. Without a section it sees
//!   nothing.
//! - *process*: the process has ended, and its host is well.
//! - *network*: the host is lost, and too many others of its domain are. Without a section it sees nothing.
//! - *physical*: the host is lost.
//!
//! Each has its [list](Chain) of recoveries: [`Recovery::Restart`], [`Recovery::Migrate`], [`Recovery::Promote`] or
//! [`Recovery::Ignore`]. If one cannot be done, the next is tried. A process that was only silent may live on:
//! it is ended before its rank comes back.
//!
//! Instead of one rank, all of them may go back to the last checkpoint when a process has ended:
//! [`Config::roll_back`](crate::Config::roll_back), `process = "rollback"` in the file.

pub mod detector;
mod file;
mod told;

pub use everfold_master::recovery::{
    Chain, Detector, LocatedFaults, Network, Recoveries, Recovery, Repeated, Restart,
};

pub(crate) use self::file::{NAMES_MAX, Protocol};
pub use self::file::{RecoveryError, RecoveryFile};
