//! How much a vault may hold, and what its files are.

/// How much a vault may hold, and what its files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub(super) log_bytes_max: u64,
    pub(super) is_on_disk: bool,
}

impl Options {
    /// For files in memory, such as memfds. The result log takes at most `log_bytes_max` bytes; a lower limit
    /// saves memory, and demands checkpoints more often.
    pub const fn in_memory(log_bytes_max: u64) -> Self {
        Self { log_bytes_max, is_on_disk: false }
    }

    /// For files on a disk. A checkpoint outlives a crash of the host, and waits for the disk twice: before
    /// its mark is written, and after. Outcomes outlive it once [`Vault::sync`](super::Vault::sync) has
    /// returned; later ones may then be absent, or be found as damage, which
    /// [`Vault::salvage`](super::Vault::salvage) gives up. The names of the files are the caller's to sync.
    pub const fn on_disk(log_bytes_max: u64) -> Self {
        Self { log_bytes_max, is_on_disk: true }
    }
}
