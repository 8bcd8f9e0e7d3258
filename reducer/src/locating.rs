//! Located faults: any program of this user may ask the user's running jobs for theirs. docs/locating.md lists the faults.
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
