//! The bookkeeping of one host: which processes of the job run there, and whose memory is held.
//!
//! An *agent* is everfold's own process on a host, one for each job. It runs no code of the application. It
//! holds the shared memory of the host's processes, so that a process which dies takes nothing along, and
//! sees how they end. The agent that rank 0 comes to hosts the master of the job.
//!
//! [`Agent`] is a pure machine. It takes [events](Event) and gives back [actions](Action).
//!
//! Deliberately absent: any decision about reductions. Those are the master's, which decides whose memory is
//! read, and when no reduction needs it any more.

// The compiler proves it pure. Tests may use more.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod event;
pub mod replicas;

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};

use everfold_protocol::{
    Incarnation, Path, ProcessId, Rank,
    message::{Ending, FromAgent, Origin, ToAgent},
};

pub use self::event::{Action, Connection, Event};

/// The rank whose agent hosts the master.
pub const FIRST_RANK: Rank = Rank(0);

/// What an agent knows of its host.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    processes: BTreeMap<ProcessId, Held>,
    /// Processes that are connected, and the latest connection of each. Also those that seem to have ended: a
    /// wrapper that was started here may have ended before the process that it has started.
    connected: BTreeMap<ProcessId, u64>,
    /// Processes whose memory was released while they may have lived, and their connections.
    released: BTreeMap<ProcessId, u64>,
    /// First processes that were started here, and have not come yet.
    awaited: BTreeSet<ProcessId>,
    /// Whether the job has other hosts, which wait for the processes that were started here.
    has_others: bool,
    /// Ranks whose first processes were started here.
    started: Path,
    hosts_master: bool,
    /// Whether the process that is to bring the master along was started here.
    has_first: bool,
    /// Whether the process that was to bring the master along has ended before it came, and no process was
    /// told.
    is_masterless: bool,
    /// Whether a process has failed before it came.
    has_early_failure: bool,
    master: Way,
    /// Of each rank the latest process that was started here, or has come, and has not ended.
    running: BTreeMap<Rank, ProcessId>,
    /// Of ranks whose processes the master has had started here, the earliest process that may come. An
    /// earlier one would use the vault of a later one.
    earliest: BTreeMap<Rank, Incarnation>,
    /// Processes that were seen to end, and are connected still: if that was a wrapper they live. Their
    /// memory is thinned once they hang up.
    to_thin: BTreeSet<ProcessId>,
    /// Processes that are to be started as soon as the earlier ones of their ranks have ended.
    starts: BTreeMap<Rank, Start>,
    /// Processes that were started to stand by, and have not ended or been promoted.
    standbys: BTreeSet<ProcessId>,
    /// Messages for the master, as soon as there is a connection to it.
    untold: Vec<FromAgent>,
    /// Whether more processes are to come.
    expects_more: bool,
    /// Whether any process has come, or the master has had one started here. It may be forgotten by now.
    has_come: bool,
    /// Whether no process has come, and none will.
    is_alone: bool,
    is_done: bool,
    actions: VecDeque<Action>,
}

/// A process that is to be started.
#[derive(Clone, Debug)]
struct Start {
    process: ProcessId,
    origin: Option<Origin>,
    stands_by: bool,
}

/// How far a process is whose memory is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// It is connected, by the connection with this number.
    Here(u64),
    /// It has closed that connection; whether it has ended is not known.
    Gone(u64),
    /// It has ended.
    Ended,
}

impl Held {
    fn is_here(self) -> bool {
        matches!(self, Self::Here(_))
    }
}

/// The way to the master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// Nobody has asked for it.
    #[default]
    Unknown,
    Sought,
    Open,
    Closed,
}

impl Agent {
    /// An agent that knows no process yet. If it `expects` its processes, because its own process is about to
    /// start them, it is needed at least until it is [`Alone`](Event::Alone).
    pub fn new(expects: bool) -> Self {
        Self { expects_more: expects, ..Self::default() }
    }

    /// The same of a host whose own process starts its share of the job's processes, and others do on theirs.
    pub fn among_others() -> Self {
        Self { has_others: true, ..Self::new(true) }
    }

    /// Takes in an event.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Started(process) => self.expect(process),
            Event::Hailed(connection) => self.hail(connection),
            Event::MasterStarted(connection) => self.welcome(connection),
            Event::MasterFailed => {
                self.hosts_master = false;
                self.is_alone = !self.expects_more && !self.has_come;
            }
            Event::HungUp(Connection { process, number }) => {
                if self.processes.get(&process) == Some(&Held::Here(number)) {
                    self.processes.insert(process, Held::Gone(number));
                }
                if self.connected.get(&process) == Some(&number) {
                    self.connected.remove(&process);
                    if self.to_thin.remove(&process) {
                        self.actions.push_back(Action::Thin(process));
                    }
                    self.start_next(process.rank);
                }
            }
            Event::Vanished(connection) => {
                if self.is_latest(connection) {
                    // What has vanished is no wrapper.
                    self.connected.remove(&connection.process);
                    self.end(connection.process, Ending::Unknown);
                }
            }
            Event::Ended(process, ending) => self.end(process, ending),
            Event::MasterSought => {
                if self.master == Way::Unknown {
                    self.master = Way::Sought;
                }
            }
            Event::MasterFound(lodging) => {
                self.master = Way::Open;
                self.actions.push_back(Action::Tell(FromAgent::Join(lodging)));
                if self.has_others && !self.started.is_empty() {
                    self.actions.push_back(Action::Tell(FromAgent::Expects { ranks: self.started.clone() }));
                }
                self.actions.extend(self.untold.drain(..).map(Action::Tell));
            }
            Event::Master(message) => self.hear(message),
            Event::MasterLost => self.miss_master(),
            Event::Alone => {
                self.expects_more = false;
                self.is_alone = !self.has_come;
                self.seek_master_briefly();
            }
        }
        self.finish();
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether `process` is known here: it is connected, or its memory is held.
    pub fn holds(&self, process: ProcessId) -> bool {
        self.processes.contains_key(&process)
    }

    /// Takes in that the first process of a rank was started. Where other hosts wait for it, the master is
    /// looked for from now on: with this host it is lost, however far it has come.
    fn expect(&mut self, process: ProcessId) {
        self.has_first |= process == ProcessId::first(FIRST_RANK);
        // It may have come before this is heard.
        if !self.processes.contains_key(&process) {
            self.awaited.insert(process);
        }
        self.started.insert(process.rank).ok();
        if self.has_others {
            match self.master {
                Way::Unknown => {
                    self.master = Way::Sought;
                    self.actions.push_back(Action::SeekMaster);
                }
                Way::Open => self.tell(FromAgent::Expects { ranks: Path::single(process.rank) }),
                Way::Sought | Way::Closed => {}
            }
        }
    }

    fn hail(&mut self, connection: Connection) {
        let process = connection.process;
        let is_taken = self.processes.get(&process).is_some_and(|held| held.is_here());
        let is_late = self.earliest.get(&process.rank).is_some_and(|first| process.incarnation < *first);
        if is_taken || is_late || self.is_done {
            return self.actions.push_back(Action::Refuse(process));
        }
        if self.has_others && self.master == Way::Closed {
            return self.actions.push_back(Action::TurnAway(process));
        }
        if process == ProcessId::first(FIRST_RANK) && !self.hosts_master {
            self.hosts_master = true;
            return self.actions.push_back(Action::HostMaster(connection));
        }
        self.welcome(connection);
    }

    fn welcome(&mut self, Connection { process, number }: Connection) {
        self.has_come = true;
        self.processes.insert(process, Held::Here(number));
        self.connected.insert(process, number);
        self.released.remove(&process);
        self.to_thin.remove(&process);
        self.awaited.remove(&process);
        self.running.insert(process.rank, process);
        self.actions.push_back(Action::Welcome(process));
    }

    /// Whether this is the latest connection of its process, and that is not known to have ended.
    pub fn is_latest(&self, Connection { process, number }: Connection) -> bool {
        match self.processes.get(&process) {
            Some(Held::Here(latest) | Held::Gone(latest)) => *latest == number,
            Some(Held::Ended) => false,
            None => self.released.get(&process) == Some(&number),
        }
    }

    /// Starts a process, once the earlier one of its rank has ended and is connected no more: both would
    /// write to the same vault.
    fn start(&mut self, start: Start) {
        let ProcessId { rank, incarnation } = start.process;
        self.has_come = true;
        self.let_come_from(rank, incarnation);
        self.starts.insert(rank, start);
        self.start_next(rank);
    }

    /// Lets no process of a rank come any more that is earlier.
    fn let_come_from(&mut self, rank: Rank, incarnation: Incarnation) {
        let earliest = self.earliest.entry(rank).or_insert(incarnation);
        *earliest = incarnation.max(*earliest);
    }

    /// Starts the process of a rank that is to be started, if no earlier one is left.
    fn start_next(&mut self, rank: Rank) {
        let mut connected = self.connected.range(ProcessId::first(rank)..).take_while(|it| it.0.rank == rank);
        if self.running.contains_key(&rank) || connected.next().is_some() {
            return;
        }
        let Some(Start { process, origin, stands_by }) = self.starts.remove(&rank) else { return };
        self.running.insert(rank, process);
        if stands_by {
            self.standbys.insert(process);
        }
        self.actions.push_back(Action::Start { process, origin, stands_by });
    }

    /// Lets a process that stands by take the place of the one that it has followed.
    fn promote(&mut self, process: ProcessId) {
        let waiting = self.starts.get_mut(&process.rank).filter(|start| start.process == process);
        if let Some(start) = waiting {
            // It finds all that there is when it comes.
            start.stands_by = false;
        } else if self.standbys.remove(&process) {
            self.actions.push_back(Action::Promote(process));
        }
    }

    /// Ends a process that is not needed.
    fn end_needless(&mut self, process: ProcessId) {
        if self.starts.get(&process.rank).is_some_and(|start| start.process == process) {
            self.starts.remove(&process.rank);
        } else if self.running.get(&process.rank) == Some(&process) {
            self.actions.push_back(Action::End(process));
        }
    }

    fn end(&mut self, process: ProcessId, ending: Ending) {
        if self.released.remove(&process).is_some() {
            self.thin(process);
        }
        if self.standbys.remove(&process) && self.processes.contains_key(&process) {
            // It has shown nothing to anybody.
            self.release(process);
            self.thin(process);
        }
        if self.awaited.remove(&process) {
            self.is_masterless |= process == ProcessId::first(FIRST_RANK);
            self.has_early_failure |= is_failure(ending);
            return self.tell(FromAgent::NeverCame { process, ending });
        }
        let held = self.processes.get_mut(&process).filter(|held| **held != Held::Ended);
        let is_new = self.running.get(&process.rank) == Some(&process);
        match held {
            Some(held) => *held = Held::Ended,
            // Its hail may be on its way.
            None if is_new => self.let_come_from(process.rank, Incarnation(process.incarnation.0 + 1)),
            None => return,
        }
        if is_new {
            self.running.remove(&process.rank);
        }
        self.tell(FromAgent::Ended { process, ending });
        self.start_next(process.rank);
    }

    /// Tells the master, as soon as there is a way to it.
    fn tell(&mut self, message: FromAgent) {
        match self.master {
            Way::Unknown | Way::Sought => self.untold.push(message),
            Way::Open => self.actions.push_back(Action::Tell(message)),
            Way::Closed => {}
        }
    }

    /// Looks for the master, which waits for a process that has failed here, if there may be one; not for long,
    /// also if it is looked for already. A program that has ended well may be none of everfold's.
    fn seek_master_briefly(&mut self) {
        let may_be_there = self.hosts_master || !self.has_first;
        let is_over = match self.master {
            Way::Unknown => !(may_be_there && self.has_failed()),
            Way::Sought => self.is_none_of_others(),
            Way::Open | Way::Closed => true,
        };
        if !is_over {
            self.master = Way::Sought;
            self.actions.push_back(Action::SeekMasterBriefly);
        }
    }

    /// Whether nothing has happened here that other hosts would have to know.
    fn is_none_of_others(&self) -> bool {
        self.has_others && self.is_alone && !self.has_failed()
    }

    /// Whether the master is to hear of a process that has failed here.
    fn has_failed(&self) -> bool {
        let failed = |told: &FromAgent| match told {
            FromAgent::Ended { ending, .. } | FromAgent::NeverCame { ending, .. } => is_failure(*ending),
            _ => false,
        };
        self.untold.iter().any(failed)
    }

    fn hear(&mut self, message: ToAgent) {
        match message {
            ToAgent::Ping { number } => self.actions.push_back(Action::Tell(FromAgent::Pong { number })),
            ToAgent::Forget { process } => {
                let Some(&held) = self.processes.get(&process) else { return };
                match held {
                    // It was declared failed and lives on: its place stays taken.
                    Held::Here(_) => self.actions.push_back(Action::Release(process)),
                    Held::Gone(_) | Held::Ended => self.release(process),
                }
                match held {
                    Held::Ended => self.thin(process),
                    Held::Here(number) | Held::Gone(number) => {
                        self.released.insert(process, number);
                    }
                }
            }
            ToAgent::Start { process, origin } => self.start(Start { process, origin, stands_by: false }),
            ToAgent::StandBy { process, origin } => {
                self.start(Start { process, origin: Some(origin), stands_by: true });
            }
            ToAgent::Promote { process } => self.promote(process),
            ToAgent::End { process } => self.end_needless(process),
            ToAgent::Moved { process } => self.actions.push_back(Action::Forgive(process)),
            ToAgent::Welcome { limits } => self.actions.push_back(Action::Hold(limits)),
            ToAgent::DropReplica { process } => self.actions.push_back(Action::DropReplica(process)),
            ToAgent::Farewell => self.lose_master(),
            // That is for the agent's locator.
            ToAgent::Locating(_) => {}
        }
    }

    /// Takes in that the master says nothing more. Processes here may not have found it yet, and look for it.
    fn miss_master(&mut self) {
        if self.has_others && self.master == Way::Open {
            self.actions.push_back(Action::HangUp);
        }
        self.lose_master();
    }

    /// The master is gone: no process reads the memory of the dead any more.
    fn lose_master(&mut self) {
        self.master = Way::Closed;
        self.starts.clear();
        // They are never promoted now.
        let standbys = self.standbys.iter().copied();
        self.actions.extend(standbys.map(Action::End));
        let gone = self.processes.iter().filter(|(_, held)| !held.is_here());
        let gone: Vec<ProcessId> = gone.map(|(process, _)| *process).collect();
        gone.into_iter().for_each(|process| self.release(process));
    }

    /// Thins the memory of a process that has ended, if that is certain.
    fn thin(&mut self, process: ProcessId) {
        match self.connected.contains_key(&process) {
            true => drop(self.to_thin.insert(process)),
            false => self.actions.push_back(Action::Thin(process)),
        }
    }

    fn release(&mut self, process: ProcessId) {
        self.processes.remove(&process);
        self.actions.push_back(Action::Release(process));
    }

    /// An agent is needed while a process is connected, and while others may read the memory of a dead
    /// process.
    fn finish(&mut self) {
        self.bear_being_masterless();
        let is_over = match self.master {
            // Who comes later is told so.
            Way::Closed => {
                let others_come = self.has_others && self.expects_more && !self.awaited.is_empty();
                !others_come && !self.processes.values().any(|held| held.is_here())
            }
            // No process came so far that others would know of it.
            Way::Unknown => self.is_alone || (!self.expects_more && self.have_all_ended()),
            // Others may read the memory of the dead, and the master says when they do no more.
            Way::Sought => self.is_none_of_others(),
            // Of the processes that have ended before they came the master was told.
            Way::Open => self.has_others && self.is_alone && !self.hosts_master,
        };
        if is_over && !self.is_done {
            self.is_done = true;
            self.actions.push_back(Action::Done);
        }
    }

    /// Says that the process which was to bring the master along does not come, if somebody waits for that. A
    /// program that is none of everfold's waits for no master.
    fn bear_being_masterless(&mut self) {
        let is_missed = self.has_come || (self.has_others && self.has_early_failure);
        if !self.is_masterless || !is_missed {
            return;
        }
        self.is_masterless = false;
        self.hosts_master = self.has_others;
        self.actions.push_back(if self.has_others { Action::CallOff } else { Action::Masterless });
    }

    fn have_all_ended(&self) -> bool {
        !self.processes.is_empty() && self.processes.values().all(|held| *held == Held::Ended)
    }
}

/// Whether a process that has ended so has failed. How one has ended that was not started here is not seen.
fn is_failure(ending: Ending) -> bool {
    !matches!(ending, Ending::Code(0) | Ending::Unknown)
}

#[cfg(test)]
mod tests;
