//! The agent of one host: a process of its own, which holds the memory of the ranks there. On the host of
//! rank 0 the master is in it.

use std::collections::BTreeSet;

use everfold_agent::{Action, Agent as Machine, Connection, Event};
use everfold_protocol::{
    ProcessId,
    message::{FromAgent, Origin},
};

use crate::{events::Happening, faults::Reach};

/// Something that an agent does.
#[derive(Debug)]
pub(crate) enum Deed {
    /// It tells the master.
    Tell(FromAgent),
    /// It is about to start a process.
    Start(ProcessId, Option<Origin>),
    /// It is about to start a process that stands by.
    StandBy(ProcessId, Option<Origin>),
    /// It lets a process take the place of the one that it has followed.
    Promote(ProcessId),
    /// It ends a process that nobody needs.
    End(ProcessId),
    /// It holds the replica of this process's vault no longer.
    DropReplica(ProcessId),
    /// It holds the memory of this process no longer, but for what that keeps.
    Release(ProcessId),
    /// It says that there is no master here, and will be none.
    Masterless,
    /// It looks for the master.
    SeekMaster,
}

/// The connection of a process to its agent. Each process has one, and some have had another before.
pub(crate) fn connection(process: ProcessId) -> Connection {
    Connection { process, number: 1 }
}

/// A connection of a process that broke before its agent has heard of it, and that is seen to end late.
pub(crate) fn earlier_connection(process: ProcessId) -> Connection {
    Connection { process, number: 0 }
}

/// An agent, alive or dead.
#[derive(Debug)]
pub(crate) struct Agent {
    pub standing: Standing,
    /// What waits until it thaws, if it is frozen.
    pub frozen: Option<Vec<Happening>>,
    machine: Machine,
    /// Whose memory it holds.
    held: BTreeSet<ProcessId>,
    /// Of whose memory it holds what they have kept.
    pub kept: BTreeSet<ProcessId>,
}

/// Where an agent stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It lives.
    Lives,
    /// It has ended: the master and the ranks see their connections to it break.
    Ended,
    /// It went with its host, without a word.
    Vanished,
}

impl Agent {
    /// An agent that these processes have hailed.
    pub fn of(processes: impl Iterator<Item = ProcessId>) -> Self {
        let mut agent = Self::new(false);
        agent.be_hailed(processes);
        agent.hear(Event::MasterSought);
        agent
    }

    /// An agent whose own process has started these, of which those have hailed it that `hail`. If one of
    /// them goes on, or it is to look for it by itself, it `seeks` the master.
    pub fn with_parent(
        started: impl Iterator<Item = ProcessId> + Clone,
        hail: impl Fn(&ProcessId) -> bool,
        seeks: bool,
    ) -> Self {
        let mut agent = Self::new(true);
        started.clone().for_each(|process| drop(agent.hear(Event::Started(process))));
        agent.be_hailed(started.filter(hail));
        if seeks {
            agent.hear(Event::MasterSought);
        }
        agent
    }

    fn new(expects: bool) -> Self {
        let (standing, machine) = (Standing::Lives, Machine::new(expects));
        Self { standing, frozen: None, machine, held: BTreeSet::new(), kept: BTreeSet::new() }
    }

    fn be_hailed(&mut self, processes: impl Iterator<Item = ProcessId>) {
        processes.for_each(|process| drop(self.hear(Event::Hailed(connection(process)))));
    }

    /// Whether it lives.
    pub fn lives(&self) -> bool {
        self.standing == Standing::Lives
    }

    /// Whether it has nothing left to do.
    pub fn is_done(&self) -> bool {
        self.machine.is_done()
    }

    /// Takes in an event. Returns what it does.
    pub fn hear(&mut self, event: Event) -> Vec<Deed> {
        self.machine.handle(event);
        let mut done = Vec::new();
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::HostMaster(connection) => self.machine.handle(Event::MasterStarted(connection)),
                Action::Welcome(process) => drop(self.held.insert(process)),
                Action::Release(process) => {
                    self.held.remove(&process);
                    done.push(Deed::Release(process));
                }
                Action::Thin(process) => assert!(!self.held.contains(&process), "others may read {process}"),
                Action::Tell(message) => done.push(Deed::Tell(message)),
                Action::Start { process, origin, stands_by } => done.push(match stands_by {
                    true => Deed::StandBy(process, origin),
                    false => Deed::Start(process, origin),
                }),
                Action::Promote(process) => done.push(Deed::Promote(process)),
                Action::End(process) => done.push(Deed::End(process)),
                Action::DropReplica(process) => done.push(Deed::DropReplica(process)),
                Action::Forgive(_) | Action::Hold(_) => {}
                Action::Refuse(process) => panic!("every process comes once, {process} too"),
                Action::Masterless => done.push(Deed::Masterless),
                Action::SeekMaster => done.push(Deed::SeekMaster),
                Action::Done => {}
            }
        }
        done
    }

    /// Whether it shows what a process has kept.
    pub fn shows_kept(&self, process: ProcessId) -> Reach {
        match self.shows(process) {
            Reach::Gone if self.kept.contains(&process) => Reach::Now,
            reach => reach,
        }
    }

    /// Whether it shows what a process has left.
    pub fn shows(&self, process: ProcessId) -> Reach {
        match self.standing {
            Standing::Ended => Reach::Never,
            Standing::Vanished => Reach::Later,
            Standing::Lives if self.frozen.is_some() => Reach::Later,
            Standing::Lives if self.is_done() => Reach::Never,
            Standing::Lives if self.held.contains(&process) => Reach::Now,
            Standing::Lives => Reach::Gone,
        }
    }
}
