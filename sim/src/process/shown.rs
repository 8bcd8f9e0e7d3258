//! What windows show.

use everfold_protocol::message::{Data, Place, Source, WindowRef};

/// Windows from this one on show copies of other ranks' originals.
pub(crate) const COPIES: u64 = 1 << 32;

/// Which of a process's windows on its own bodies it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Original,
    /// An array's, which grows where it is.
    Partial,
    /// An object as it was after one of its folds: it is encoded anew each time.
    Encoded(usize),
    Result,
}

/// Whether what a window shows is there when its process is not. What the machines make of that is theirs.
pub(crate) fn is_in_region(window: &WindowRef) -> bool {
    matches!(window.place, Place::Region(_))
}

/// Whether a window shows the replica of an original.
pub(crate) fn shows_copy(window: &WindowRef) -> bool {
    window.window.0 >= COPIES
}

/// Whether `source` is a replica of an original.
pub(crate) fn is_copy(source: &Source) -> bool {
    matches!(&source.data, Data::Window(window) if shows_copy(window))
}
