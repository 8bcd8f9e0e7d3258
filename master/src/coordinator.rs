//! The master of a job and the clerk that watches the board for it: the order in which the master hears of
//! both, and of processes and their agents.
//!
//! Contributions on the board came before the next event. So the master hears first
//!
//! - of a contribution on the board, before a message about the same reduction;
//! - of all contributions there, before a rank says that it calls nothing more, and before the end of a
//!   process;
//! - of contributions that have waited since the last look, before time passes.
//!
//! Messages of an agent and of a process come over different connections. So the master hears of the end of a
//! process only when the connection of that process has broken: behind all messages of the process, and
//! before the break, as the exit code says more. If only a wrapper has ended, the connection does not break.
//!
//! Until a process is declared failed, or calls nothing more, the mark of a reduction is removed once that is
//! over. From then on no round becomes complete: the board is closed, and marks say nothing.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};
use core::sync::atomic::AtomicU64;

use everfold_protocol::{
    AgentId, JobId, ProcessId, Rank, Timestamp,
    board::{Clerk, Found, Taken, can_have},
    message::{FromAgent, Header, ToMaster, ToWorker},
};

use crate::{
    event::{Action, Event, Notice},
    machine::Master,
};

/// A master, and the events that it hears next.
///
/// Its driver lets the master take in everything that [`poll_coming`](Self::poll_coming) returns before it
/// asks for the next action.
#[derive(Debug)]
pub struct Coordinator<M> {
    job: JobId,
    master: Master,
    clerk: Option<Clerk<M>>,
    coming: VecDeque<Coming>,
    late: Vec<Rank>,
    /// Processes that say something over a connection which has not broken yet.
    connected: BTreeSet<ProcessId>,
    /// What agents have said of the ends of these.
    ends: BTreeMap<ProcessId, (AgentId, FromAgent)>,
}

/// An event that the master hears next. There are few at a time.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Coming {
    /// Something has happened.
    Event(Event),
    /// Time passes.
    Time,
}

impl<M: AsRef<[AtomicU64]>> Coordinator<M> {
    /// Puts `clerk`, if there is a board, beside the master of `job`.
    pub fn new(job: JobId, master: Master, clerk: Option<Clerk<M>>) -> Self {
        Self {
            job,
            master,
            clerk,
            coming: VecDeque::new(),
            late: Vec::new(),
            connected: BTreeSet::new(),
            ends: BTreeMap::new(),
        }
    }

    /// The master.
    pub fn master(&self) -> &Master {
        &self.master
    }

    /// Whether there is a board.
    pub fn has_board(&self) -> bool {
        self.clerk.is_some()
    }

    /// Takes in that a process speaks over a connection from now on, until the master hears that this has
    /// broken.
    pub fn connect(&mut self, process: ProcessId) {
        self.connected.insert(process);
    }

    /// Lets the master hear of an event, behind all that come first. The end of a process waits until the
    /// process's connection has broken.
    pub fn hear(&mut self, event: Event) {
        match event {
            Event::Agent(agent, FromAgent::Ended { process, ending })
                if self.connected.contains(&process) =>
            {
                self.ends.insert(process, (agent, FromAgent::Ended { process, ending }));
            }
            Event::Disconnected(process) => {
                self.connected.remove(&process);
                if let Some((agent, ended)) = self.ends.remove(&process) {
                    self.hear_now(Event::Agent(agent, ended));
                }
                self.hear_now(Event::Disconnected(process));
            }
            event => self.hear_now(event),
        }
    }

    fn hear_now(&mut self, event: Event) {
        match &event {
            Event::Message { message, .. } => {
                let taken = self.clerk.as_mut().map(|clerk| clerk.hear(message));
                self.take_over(taken.unwrap_or_default());
            }
            Event::Disconnected(_) | Event::Agent(_, FromAgent::Ended { .. }) | Event::AgentLost(_) => {
                self.find(Clerk::clear);
            }
            Event::Agent(..) | Event::Located { .. } => {}
        }
        self.coming.push_back(Coming::Event(event));
    }

    /// Lets time pass for the master, behind all events that come first.
    pub fn let_time_pass(&mut self) {
        self.look();
        self.coming.push_back(Coming::Time);
    }

    /// Looks at the board. To be called every [`PATIENCE`](everfold_protocol::board::PATIENCE).
    pub fn look(&mut self) {
        self.find(Clerk::look);
    }

    /// The event that the master is to [take in](Self::take_in) next.
    pub fn poll_coming(&mut self) -> Option<Coming> {
        self.coming.pop_front()
    }

    /// Lets the master take an event in.
    pub fn take_in(&mut self, now: Timestamp, coming: Coming) {
        match coming {
            Coming::Event(event) => self.master.handle_event(now, event),
            Coming::Time => self.master.handle_timeout(now),
        }
    }

    /// The next thing to do, once the master has taken in all that comes.
    ///
    /// # Panics
    /// If it has not.
    pub fn poll_action(&mut self) -> Option<Action> {
        assert!(self.coming.is_empty(), "what lies on the board was there before whatever comes out of this");
        let action = self.master.poll_action()?;
        match &action {
            // The workers see it in the same way.
            Action::Send { message: ToWorker::Welcome { peers, limits }, .. } if !can_have(peers, limits) => {
                self.clerk = None;
            }
            Action::Notice(Notice::Failed { .. }) => self.find(Clerk::close),
            Action::Notice(Notice::Finished(reduction) | Notice::Refused { reduction, .. }) => {
                self.clerk.iter_mut().for_each(|clerk| clerk.end(*reduction));
            }
            _ => {}
        }
        Some(action)
    }

    /// Ranks that are to be woken up, because a round of theirs may have been complete for long.
    pub fn take_late(&mut self) -> Vec<Rank> {
        core::mem::take(&mut self.late)
    }

    fn find(&mut self, how: impl FnOnce(&mut Clerk<M>) -> Found) {
        let Found { taken, late } = self.clerk.as_mut().map(how).unwrap_or_default();
        self.late.extend(late);
        self.take_over(taken);
    }

    /// Lets the master hear of contributions as if they had come in messages.
    fn take_over(&mut self, taken: Vec<Taken>) {
        let (job, epoch) = (self.job, self.master.epoch());
        self.coming.extend(taken.into_iter().map(|(rank, contribution)| {
            let header = Header { job, epoch, sender: ProcessId::first(rank) };
            let message = ToMaster::Contribute(Box::new(contribution));
            Coming::Event(Event::Message { header, message })
        }));
    }
}
