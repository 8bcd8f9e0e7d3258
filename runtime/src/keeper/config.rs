//! The configuration of a keeper, with its limits.

use std::path::PathBuf;

use everfold_protocol::{JobId, ProcessId};
use everfold_storage::Durability;

/// The configuration of a keeper.
#[derive(Clone, Debug)]
pub struct KeeperConfig {
    /// Directory below which jobs keep their files; see
    /// [`base_directory`](everfold_storage::job_directory::base_directory).
    pub base: PathBuf,
    /// Which job.
    pub job: JobId,
    /// Which process of it this is.
    pub process: ProcessId,
    /// What the acknowledgement of [`Medium::Disk`](super::Medium::Disk) means. Default:
    /// [`Durability::Stored`].
    pub durability: Durability,
    /// Most bytes in [`Medium::Memory`](super::Medium::Memory) at any time. Default: 1 GiB. Less protects
    /// less; more takes memory from the application.
    pub memory_bytes_max: u64,
    /// Most bytes on their way to disk at any time; more wait. A single record may be longer. Default: 64
    /// MiB. Less lets a disk idle; more takes memory from the application while the disk is slow. At most 4
    /// GiB count.
    pub queue_bytes_max: u64,
}

impl KeeperConfig {
    /// With the defaults.
    pub fn new(base: PathBuf, job: JobId, process: ProcessId) -> Self {
        let durability = Durability::Stored;
        Self { base, job, process, durability, memory_bytes_max: 1 << 30, queue_bytes_max: 64 << 20 }
    }
}
