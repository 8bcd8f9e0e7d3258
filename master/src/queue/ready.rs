//! What waits, and how well it can be read.

use alloc::collections::BTreeSet;

use everfold_protocol::{Path, ProcessId, message::Data};

/// How many times longer reads from a slow owner take than those from others.
pub(crate) const SLOW_FACTOR: u64 = 4;

/// Whether a process from which reads take `read_ns` is slow beside the one with the quickest.
pub fn is_slow(read_ns: u64, quickest_ns: u64) -> bool {
    read_ns > SLOW_FACTOR * quickest_ns
}

/// "A partial with this path is readable here" (DR §2 def. 4).
///
/// An original waits in all segments of its body: they share one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whose window.
    pub process: ProcessId,
    /// The contributions that are folded into it.
    pub path: Path,
    /// Where it is readable.
    pub data: Data,
}

impl Ready {
    /// Whether it is that partial: of the same contributions, at the same process. Mostly both are one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        core::ptr::eq(self, other) || (self.process == other.process && self.path == other.path)
    }

    /// Whether it can be read although its process may have died: the master has inlined bodies.
    pub fn is_inline(&self) -> bool {
        matches!(self.data, Data::Inline(_))
    }

    /// Whether it is still there when the memory of `gone` is not.
    pub(crate) fn outlasts(&self, gone: &BTreeSet<ProcessId>) -> bool {
        self.is_inline() || !gone.contains(&self.process)
    }
}

/// How well the executor can read a partial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// From the memory of its own host.
    Near,
    /// From another host, whose process serves this many reads already: many, if it or its link is slow.
    Far {
        /// How many.
        serves: u32,
        /// How long a read from it takes lately, in nanoseconds.
        read_ns: u64,
    },
    /// When the reads from that process are done.
    Later,
    /// Not as far as is known.
    Never,
}

impl Access {
    /// The same without small differences: 0 and 1 reads under way at the owner are alike, and 2 and 3.
    pub(crate) fn roughly(self) -> Self {
        match self {
            Self::Far { serves, .. } => Self::Far { serves: serves / 2, read_ns: 0 },
            Self::Near | Self::Later | Self::Never => self,
        }
    }

    pub(super) fn read_ns(&self) -> Option<u64> {
        match self {
            Self::Far { read_ns, .. } => Some(*read_ns),
            Self::Near | Self::Later | Self::Never => None,
        }
    }
}
