//! Located faults, and running jobs of this user, which anybody may ask for theirs. docs/locating.md says what is located.
//!
//! Inside a job, [`Session::events`](crate::Session::events) tells of each as [`News::Located`](crate::News::Located).

pub use everfold_protocol::{
    JobId,
    locating::{Component, HostName, Located},
};
pub use everfold_runtime::locating::{
    ask::{AskError, Fault, JobInfo, faults, jobs, push_rules},
    rules,
};
