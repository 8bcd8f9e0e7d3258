//! The agent of one host: a process of its own, which holds the memory of the ranks there. On the host of
//! rank 0 the master is in it.

use std::collections::BTreeSet;

use everfold_agent::{Action, Agent as Machine, Connection, Event};
use everfold_protocol::{
    ProcessId,
    message::{FromAgent, Origin, ToAgent},
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
    /// It hosts a master that tells other hosts that the job does not begin.
    CallOff,
    /// It hangs up on all processes of its host.
    HangUp,
    /// It has nothing more to do, and ends.
    Finish,
    /// It looks for the master for a while, and no longer.
    SeekMasterBriefly,
}

/// The connection of a process to its agent. Each process has one, and some have had another before.
pub(crate) fn connection(process: ProcessId) -> Connection {
    Connection { process, number: 1 }
}

/// A connection of a process that broke before its agent has heard of it, and that is seen to end late.
pub(crate) fn earlier_connection(process: ProcessId) -> Connection {
    Connection { process, number: 0 }
}

/// Whether an agent hears long after a process has come that this was started.
pub(crate) fn is_told_late(process: ProcessId) -> bool {
    process.rank.0 % 3 == 2
}

/// An agent, alive or dead.
#[derive(Debug)]
pub(crate) struct Agent {
    pub standing: Standing,
    /// Whether it has told the master of itself.
    pub has_joined: bool,
    /// Whether it has heard that the master says nothing more.
    pub has_lost_master: bool,
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
    /// An agent that these processes have hailed. If its own process is their parent, that tells it which it
    /// has started: of some before they come, of some after, and of others [later](is_told_late).
    pub fn of(processes: impl Iterator<Item = ProcessId> + Clone, is_parent: bool, has_others: bool) -> Self {
        let mut agent = Self::around(match is_parent && has_others {
            true => Machine::among_others(),
            false => Machine::new(is_parent),
        });
        let of_class =
            |class| processes.clone().filter(move |process| is_parent && process.rank.0 % 3 == class);
        of_class(0).for_each(|process| drop(agent.hear(Event::Started(process))));
        agent.be_hailed(processes.clone());
        of_class(1).for_each(|process| drop(agent.hear(Event::Started(process))));
        agent.hear(Event::MasterSought);
        agent
    }

    /// An agent whose own process has started these, of which those have hailed it that `hail`. The job may
    /// have others on other hosts; if not, and if one of these goes on, the agent `seeks` the master.
    pub fn with_parent(
        started: impl Iterator<Item = ProcessId> + Clone,
        hail: impl Fn(&ProcessId) -> bool,
        has_others: bool,
        seeks: bool,
    ) -> Self {
        let mut agent = Self::around(if has_others { Machine::among_others() } else { Machine::new(true) });
        started.clone().for_each(|process| drop(agent.hear(Event::Started(process))));
        agent.be_hailed(started.filter(hail));
        if seeks {
            agent.hear(Event::MasterSought);
        }
        agent
    }

    fn around(machine: Machine) -> Self {
        let (held, kept) = (BTreeSet::new(), BTreeSet::new());
        let (has_joined, has_lost_master) = (false, false);
        Self { standing: Standing::Lives, has_joined, has_lost_master, frozen: None, machine, held, kept }
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
        self.has_lost_master |= matches!(event, Event::MasterLost | Event::Master(ToAgent::Farewell));
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
                Action::Tell(message) => {
                    self.has_joined |= matches!(message, FromAgent::Join(_));
                    done.push(Deed::Tell(message));
                }
                Action::Start { process, origin, stands_by } => done.push(match stands_by {
                    true => Deed::StandBy(process, origin),
                    false => Deed::Start(process, origin),
                }),
                Action::Promote(process) => done.push(Deed::Promote(process)),
                Action::End(process) => done.push(Deed::End(process)),
                Action::DropReplica(process) => done.push(Deed::DropReplica(process)),
                Action::Forgive(_) | Action::Hold(_) => {}
                Action::Refuse(process) => panic!("every process comes once, {process} too"),
                Action::TurnAway(process) => panic!("no process comes so late, {process} neither"),
                Action::Masterless => done.push(Deed::Masterless),
                Action::CallOff => done.push(Deed::CallOff),
                Action::HangUp => done.push(Deed::HangUp),
                Action::SeekMasterBriefly => done.push(Deed::SeekMasterBriefly),
                // It begins with it.
                Action::SeekMaster => {}
                Action::Done => done.push(Deed::Finish),
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
