//! Paths that the environment names.

use std::path::PathBuf;

/// The variables of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variables {
    /// Whether they are those of a job around this process, and not meant for it.
    pub are_around: bool,
}

impl Variables {
    /// The path that the variable `name` holds.
    pub fn path(self, name: &str) -> Option<PathBuf> {
        std::env::var_os(name).filter(|path| !self.are_around && !path.is_empty()).map(PathBuf::from)
    }
}
