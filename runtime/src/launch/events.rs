//! Events of a job, for those who watch it from outside.

use std::{fmt, sync::Arc};

use everfold_protocol::{ProcessId, message::News};
use serde::{Deserialize, Serialize};

/// Something happened to a job that this process supervises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobEvent {
    /// A process was started here.
    Started {
        /// Which.
        process: ProcessId,
        /// Its number on this host.
        pid: u32,
        /// Whether it stands by.
        stands_by: bool,
    },
    /// All ranks have joined. Only the host where the master is hears that.
    Begun,
    /// All ranks go back to a checkpoint, and are started again as their first processes.
    RolledBack {
        /// Which; `None` if none is complete, and the ranks begin anew.
        to: Option<Complete>,
    },
    /// The master has told its ranks. Only the host where the master is hears that.
    News(News),
}

/// A checkpoint of all ranks that is complete in the directory of checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complete {
    /// Its generation.
    pub generation: u64,
    /// When it was complete, in milliseconds since 1970.
    pub saved_unix_ms: u64,
}

impl fmt::Display for JobEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { process, pid, stands_by: false } => {
                write!(f, "{process} is started, as process {pid} of this host")
            }
            Self::Started { process, pid, stands_by: true } => {
                write!(f, "{process} is started to stand by, as process {pid} of this host")
            }
            Self::Begun => f.write_str("all ranks have joined"),
            Self::RolledBack { to: Some(to) } => {
                write!(f, "all ranks go back to generation {}", to.generation)
            }
            Self::RolledBack { to: None } => {
                f.write_str("all ranks begin anew, as no checkpoint is complete")
            }
            Self::News(news) => news.fmt(f),
        }
    }
}

/// Hears what happens to a job, on the thread that supervises it: it should not take long.
#[derive(Clone)]
pub struct Watcher(Arc<dyn Fn(JobEvent) + Send + Sync>);

impl Watcher {
    /// Calls `hear` at each event.
    pub fn new(hear: impl Fn(JobEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(super) fn hear(&self, event: JobEvent) {
        (self.0)(event);
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}
