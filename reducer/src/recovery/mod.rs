//! What is done about processes that die: which recovery meets which fault (FR-2 to FR-4).
//!
//! | to | see |
//! |---|---|
//! | choose in a program | [`Config::recover`](crate::Config::recover), [`Recoveries`] |
//! | choose in a file, without a change of the program | [`RecoveryFile`], `EVERFOLD_RECOVERY`, `everfold run --recovery` |
//!
//! A death is looked at by two detectors, one after the other:
//! - *repeated*: enough processes of the same host have died within some time. Without a section in the file it
//!   sees nothing.
//! - *process*: the process has ended, and its host is well.
//!
//! Each has its recovery, [`Recovery::Restart`] or [`Recovery::Ignore`]. A host that is lost takes its ranks
//! along, and a process that was only silent may live on: their ranks do not come back.
//!
//! Instead of one rank, all of them may go back to the last checkpoint when a process has ended:
//! [`Config::roll_back`](crate::Config::roll_back), `process = "rollback"` in the file.

mod file;
mod told;

pub use everfold_master::recovery::{Recoveries, Recovery, Repeated, Restart};

pub use self::file::{RecoveryError, RecoveryFile};
