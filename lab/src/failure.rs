//! Why a command did not do what it was asked.

use nix::sys::signal::Signal;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    /// What the user is told. Empty if nobody is there to be told.
    pub message: String,
    /// How the command ends.
    pub exit_code: u8,
}

impl Failure {
    /// A failure of the usual kind, with exit code 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_code: 1 }
    }

    /// We were asked to end.
    pub(crate) fn interrupted(signal: Signal) -> Self {
        Self { message: format!("ended by {signal}"), exit_code: 128 + signal as u8 }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), exit_code: 1 }
    }
}
