//! Whether what a rank prints reaches a terminal although its launcher forwards it.
//!
//! A rank's stderr is a pipe then, and `isatty` says no. So a launcher whose stderr is a terminal names that
//! pipe in `EVERFOLD_TERMINAL`, by its inode: a rank whose stderr was redirected is not meant, nor a program
//! that it starts with pipes of its own.

use std::io;

use nix::sys::stat::fstat;

/// The variable.
pub(super) const TERMINAL: &str = "EVERFOLD_TERMINAL";
/// Written in front of each line on a terminal: erases what a progress display has left there.
pub(super) const ERASE: &str = "\x1b[K";

/// Whether the launcher of this process shows on a terminal what comes through its stderr.
///
/// A line that ends in a carriage return is then overwritten by the next one, whoever prints that: enough for
/// a progress bar. As other ranks print, too, nothing else should move the cursor.
pub fn is_forwarded_to_terminal() -> bool {
    std::env::var(TERMINAL).is_ok_and(|pipe| !pipe.is_empty() && Some(pipe) == name(io::stderr()))
}

/// What a pipe is called in [`TERMINAL`].
pub(super) fn name(pipe: impl std::os::fd::AsFd) -> Option<String> {
    fstat(pipe).ok().map(|status| status.st_ino.to_string())
}

/// Whether lines on this stream can be overwritten.
pub(super) fn can_overwrite(stream: &impl io::IsTerminal) -> bool {
    stream.is_terminal() && std::env::var("TERM").is_ok_and(|kind| !kind.is_empty() && kind != "dumb")
}
