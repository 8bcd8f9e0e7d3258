//! What goes wrong, as data.

use std::time::Duration;

use everfold_protocol::{Path, ProcessId, Rank, message::Fault};
use everfold_worker::machine::ExecutionError;
use serde::Serialize;

/// How often a reader looks whether a frozen process is back.
pub(crate) const RETRY: Duration = Duration::from_millis(20);

/// When a rank first looks whether others still read its body.
pub(crate) const GLANCE: Duration = Duration::from_micros(10);

/// Whether memory can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    Now,
    Later,
    Never,
    /// Who has the memory says that this is there no more.
    Gone,
}

/// Hosts whose messages do not get through to others. Connections do not break: what is under way arrives
/// when the network heals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Hosts on one side.
    pub from: Vec<u64>,
    /// Hosts on the other side.
    pub to: Vec<u64>,
    /// Whether nothing comes back either.
    pub both_ways: bool,
}

impl Cut {
    pub(crate) fn severs(&self, from: u64, to: u64) -> bool {
        let severs = |from, to| self.from.contains(&from) && self.to.contains(&to);
        from != to && (severs(from, to) || (self.both_ways && severs(to, from)))
    }
}

/// Two hosts that do not reach each other's memory. Messages get through, and both reach all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The two.
    pub hosts: [u64; 2],
    /// Whether a read fails at once. If not, nothing answers it.
    pub at_once: bool,
}

impl Gap {
    pub(crate) fn parts(&self, reader: u64, owner: u64) -> bool {
        self.hosts == [reader, owner] || self.hosts == [owner, reader]
    }
}

/// Bytes that arrive damaged however often they are read: those that a rank holds, or those that it keeps of
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Whether it is what the rank keeps of others. If not, ranks on its host map what it holds, and see no
    /// damage.
    pub copies: bool,
    /// The only rank at which they arrive damaged, if it is one.
    pub reader: Option<Rank>,
}

impl Damage {
    /// Whether it hits a read of `reader`, which is `far` if it is on another host.
    pub(crate) fn hits(&self, reader: Rank, far: bool, copy: bool) -> bool {
        self.copies == copy && (copy || far) && self.reader.is_none_or(|only| only == reader)
    }
}

/// How slow a rank is, where it is slower than usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Limp {
    pub task_time: Option<Duration>,
    pub write_time: Option<Duration>,
    /// How much longer its messages to and from the master take at most.
    pub message_time: Option<Duration>,
}

/// Whether a rank's disk takes copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Disk {
    Free,
    Full,
}

/// What becomes of work that could not read what lies at `culprit`.
pub(crate) fn unread(culprit: ProcessId, reach: Reach) -> ExecutionError {
    match reach {
        Reach::Gone => failure(culprit, Fault::Gone, "its window is closed"),
        _ => failure(culprit, Fault::Unreachable, "it does not answer"),
    }
}

/// What becomes of work that fails because of `culprit`.
pub(crate) fn failure(culprit: ProcessId, fault: Fault, reason: &str) -> ExecutionError {
    ExecutionError { culprit, suspects: Path::empty(), fault, reason: reason.to_owned() }
}
