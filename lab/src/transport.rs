//! How processes of a job read each other's memory, as users say it.

use clap::ValueEnum;
use everfold::launch;

use crate::Failure;

/// How processes read each other's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Shared memory between processes of one host, TCP otherwise.
    #[default]
    Auto,
    /// As auto.
    Shm,
    /// TCP, even on one host.
    Tcp,
}

impl Transport {
    /// What ranks use that are on hosts of their own, made on this machine.
    ///
    /// # Errors
    /// Shared memory was asked for.
    pub(crate) fn of_hosts(self) -> Result<launch::Transport, Failure> {
        match self {
            Self::Shm => Err(Failure::new("hosts share no memory: leave --transport shm out")),
            // Their processes could, since it is one machine.
            Self::Auto | Self::Tcp => Ok(launch::Transport::Tcp),
        }
    }
}

impl From<Transport> for launch::Transport {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Auto => Self::Auto,
            Transport::Shm => Self::Shm,
            Transport::Tcp => Self::Tcp,
        }
    }
}
