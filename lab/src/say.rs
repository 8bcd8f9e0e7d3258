//! What commands say to people, where `println!` and `eprintln!` would panic if nobody took it.
//!
//! Results go to stdout. If that is a pipe that nobody reads any more, as behind `| head -1`, the command
//! ends in silence like other programs do, with the exit code of one that SIGPIPE has killed. If it cannot be
//! written, as on a full disk, the command says so and fails. Files that were asked for are written before.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
};

use nix::sys::signal::Signal;

use crate::Failure;

/// The exit code if results could not be written; the same as that of `everfold run`.
const OUTPUT_LOST: u8 = everfold::launch::local::OUTPUT_LOST;

/// Prints a line of results, or returns why that is not possible.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::say::results(format_args!("{}\n", format_args!($($words)*))) };
}

/// Prints a line on stderr, as far as somebody takes it.
#[macro_export]
macro_rules! note {
    ($($words:tt)*) => { $crate::say::notes(format_args!("{}\n", format_args!($($words)*))) };
}

/// Prints whole lines of results.
///
/// # Errors
/// Nobody reads them, or they cannot be written.
pub fn results(lines: impl fmt::Display) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    write!(stdout, "{lines}").and_then(|()| stdout.flush()).map_err(failure)
}

/// Prints whole lines on stderr. Whoever has closed it does not want to know.
pub fn notes(lines: impl fmt::Display) {
    let _ = write!(io::stderr().lock(), "{lines}");
}

/// Why a command ends that cannot print.
pub fn failure(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure { message: String::new(), exit_code: 128 + Signal::SIGPIPE as u8 },
        _ => Failure {
            message: format!("cannot write to standard output: {error}; results are lost"),
            exit_code: OUTPUT_LOST,
        },
    }
}
