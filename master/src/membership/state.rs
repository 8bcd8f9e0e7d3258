//! Where a rank stands in the job, and where a message stands in time.

use everfold_protocol::{ProcessId, message::Peer};

/// Where a rank stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not heard of yet.
    Expected,
    /// Takes part.
    Alive(Peer),
    /// Takes part in what it has called, and calls nothing more.
    Closing(Peer),
    /// Left in good order.
    Left(Peer),
    /// This process was declared failed, or has ended before it was here, and the rank is to come back as a
    /// later one. Fenced, as below.
    Away(ProcessId),
    /// This process was declared failed. Fenced: nothing it says counts any more (I2).
    Failed(ProcessId),
}

/// What becomes of a rank whose process was declared failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// Nobody expects it back.
    Gone,
    /// It is started again.
    Returns,
}

/// How a process joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// As the first of its rank.
    First,
    /// In place of one that was declared failed.
    Return,
    /// Not at all: its rank is not expected (any more).
    Refused,
}

/// A message's place in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// From a process that takes part.
    Current,
    /// From a process that has failed, left, or was replaced by a later incarnation.
    Stale,
    /// From a future that this master has not made, or from another job: the sender is broken.
    Impossible,
}
