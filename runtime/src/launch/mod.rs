//! How processes of a job are started, and know their places.
//!
//! | module | holds |
//! |---|---|
//! | [`environment`] | the variables by which a process finds its job |
//! | [`events`] | events of a job, for those who watch it from outside |
//! | [`hosts`] | which of a job's hosts this one is |
//! | [`local`] | starts the processes of a job on this machine, and supervises them |
//! | `held` | the output of a process that stands by |
//! | `output` | carries their output to our own streams |
//! | `terminal` | whether our output ends up on a terminal, and how a line there is erased |
//! | [`rollback`] | how often all ranks go back to their last checkpoint together |
//! | [`place`] | which process has taken the place that an environment describes |

pub mod environment;
pub mod events;
pub(crate) mod held;
pub mod hosts;
pub mod local;
mod output;
pub mod place;
pub mod rollback;
mod terminal;

#[doc(hidden)]
pub use self::output::lines;
pub use self::{
    environment::{Environment, EnvironmentError, Secret, Transport},
    events::{Complete, JobEvent, Watcher},
    hosts::{Hosts, HostsError},
    local::{Checkpoints, Local, LocalError},
    rollback::Rollback,
    terminal::is_forwarded_to_terminal,
};
pub use crate::components::{Components, UnknownDetector};
