//! How much a vault may hold.

/// How much a vault may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub(super) log_bytes_max: u64,
}

impl Options {
    /// For files in memory, such as memfds. The result log takes at most `log_bytes_max` bytes; a lower limit
    /// saves memory, and demands checkpoints more often.
    pub const fn in_memory(log_bytes_max: u64) -> Self {
        Self { log_bytes_max }
    }
}
