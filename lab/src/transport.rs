//! How processes of a job read each other's memory, as users say it.

use clap::ValueEnum;
use everfold::launch;

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

impl From<Transport> for launch::Transport {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Auto => Self::Auto,
            Transport::Shm => Self::Shm,
            Transport::Tcp => Self::Tcp,
        }
    }
}
