//! The agent of one host: a process of its own, which holds the memory of the ranks there. On the host of rank
//! 0 the master is in it.

use std::collections::BTreeSet;

use everfold_protocol::ProcessId;

use crate::{events::Happening, faults::Reach};

/// An agent, alive or dead.
#[derive(Debug)]
pub(crate) struct Agent {
    pub standing: Standing,
    /// Processes that it has seen end before it has joined; nothing once it has.
    pub early: Option<Vec<ProcessId>>,
    /// What waits until it thaws, if it is frozen.
    pub frozen: Option<Vec<Happening>>,
    /// Whose memory nobody needs any more.
    forgotten: BTreeSet<ProcessId>,
}

/// Where an agent stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It lives.
    Lives,
    /// It has ended: whoever is connected to it sees that.
    Ended,
    /// It went with its host, without a word.
    Vanished,
}

impl Agent {
    /// An agent that is about to join.
    pub fn new() -> Self {
        Self { standing: Standing::Lives, early: Some(Vec::new()), frozen: None, forgotten: BTreeSet::new() }
    }

    /// Whether it lives.
    pub fn lives(&self) -> bool {
        self.standing == Standing::Lives
    }

    /// Gives the memory of a process back.
    pub fn forget(&mut self, process: ProcessId) {
        self.forgotten.insert(process);
    }

    /// Whether it shows what a process has left.
    pub fn shows(&self, process: ProcessId) -> Reach {
        match self.standing {
            Standing::Ended => Reach::Never,
            Standing::Vanished => Reach::Later,
            Standing::Lives if self.frozen.is_some() => Reach::Later,
            Standing::Lives if self.forgotten.contains(&process) => Reach::Gone,
            Standing::Lives => Reach::Now,
        }
    }
}
