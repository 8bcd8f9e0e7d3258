//! How processes of a job are started, and know their places.
//!
//! | module | holds |
//! |---|---|
//! | [`environment`] | what a process finds in its environment about its job |
//! | [`local`] | starts the processes of a job on this machine, and supervises them |
//! | `output` | carries what they print to our own streams |
//! | [`place`] | which process has taken the place that an environment describes |

pub mod environment;
pub mod local;
mod output;
pub mod place;

pub use self::{
    environment::{Environment, EnvironmentError, Secret, Transport},
    local::{Local, LocalError},
};
