//! What a checkpoint is saved as, and what came of it.

use everfold_storage::vault::{Draft, Generation};

/// What all ranks have agreed on before they save a checkpoint together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Its number.
    pub generation: Generation,
    /// Whether all wait behind it until it is durable. A process that comes back waits with them.
    pub is_durable: bool,
}

/// What came of a checkpoint that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// It is in force.
    Done(Generation),
    /// Nothing is saved as long as this process has not called what earlier ones have noted: so many calls.
    CatchingUp(usize),
}

/// What came of beginning a checkpoint that is written beside the application.
#[derive(Debug)]
pub enum Begun {
    /// To be written, on any thread, and then [sealed](crate::rank::Handle::seal).
    Draft(Box<Draft>),
    /// As in [`Saving`].
    CatchingUp(usize),
    /// Save at once: the log has no room to wait, lacks an outcome, or takes in what an earlier process notes.
    Pressing,
}
