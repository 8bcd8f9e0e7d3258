//! Drives the master: wakes it in time, and measures how long it takes.

use std::{sync::Arc, time::Duration};

use everfold_master::{Action, Coordinator, Event, Master, coordinator::Coming};
use everfold_protocol::{
    ProcessId, Rank, Timestamp,
    board::{Board, Clerk},
    message::{FromAgent, ToAgent, ToMaster, ToWorker},
};

use crate::{
    board::Words,
    detector, evidence,
    settings::{JOB, Settings},
};

/// The master, and the clerk of the board, in their process.
pub(crate) struct MasterDriver {
    coordinator: Coordinator<Words>,
    /// When it is woken up next.
    due: Option<Timestamp>,
    /// Whether its process has died.
    is_lost: bool,
    /// Whether it has nothing more to do.
    is_done: bool,
    /// Whether it has taken in or done something since its invariants were verified.
    has_changed: bool,
    stopwatch: Option<fn() -> u64>,
    /// What the stopwatch has measured.
    time: Duration,
}

impl MasterDriver {
    /// A master that waits for its ranks, and looks at a board if there is one.
    pub fn new(now: Timestamp, settings: &Settings, board: Option<Arc<Board<Words>>>) -> Self {
        let own = if settings.has_own_detectors() { detector::drawn(settings.seed) } else { Vec::new() };
        let master = Master::new(now, JOB, settings.ranks, settings.policy.clone()).with_detectors(own);
        let master = master.with_fold(evidence::fold);
        Self {
            coordinator: Coordinator::new(JOB, master, board.map(Clerk::new)),
            due: None,
            is_lost: false,
            is_done: false,
            has_changed: true,
            stopwatch: settings.stopwatch,
            time: Duration::ZERO,
        }
    }

    /// The master, to look at.
    pub fn master(&self) -> &Master {
        self.coordinator.master()
    }

    /// Lets the master hear of something, which it takes in as it comes.
    pub fn hear(&mut self, event: Event) {
        self.coordinator.hear(event);
    }

    /// Takes in that a process speaks over a connection from now on.
    pub fn connect(&mut self, process: ProcessId) {
        self.coordinator.connect(process);
    }

    /// Lets the master look at the board.
    pub fn look(&mut self) {
        self.coordinator.look();
    }

    /// What the master is to take in next.
    pub fn poll_coming(&mut self) -> Option<Coming> {
        self.coordinator.poll_coming()
    }

    /// Lets the master take something in.
    pub fn take_in(&mut self, now: Timestamp, coming: Coming) {
        self.has_changed |= !is_pong(&coming);
        self.measure(|coordinator| coordinator.take_in(now, coming));
    }

    /// Ranks that may have slept too long.
    pub fn take_late(&mut self) -> Vec<Rank> {
        self.coordinator.take_late()
    }

    /// What the master does next.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.measure(Coordinator::poll_action);
        self.has_changed |= action.as_ref().is_some_and(|action| !is_ping(action));
        action
    }

    /// Verifies the master's invariants, unless it is as it was when they held.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&mut self) {
        if std::mem::take(&mut self.has_changed) {
            self.master().check();
        }
    }

    /// When the master is to be woken up, if that is before it would be anyway. An early wake-up is harmless.
    pub fn poll_due(&mut self) -> Option<Timestamp> {
        let is_running = !self.is_done && !self.is_lost;
        let due = self.master().poll_timeout().filter(|_| is_running)?;
        let is_sooner = self.due.is_none_or(|scheduled| due < scheduled);
        is_sooner.then(|| *self.due.insert(due))
    }

    /// Takes in that the master is woken up. Returns false if that is not due any more: something else was
    /// due before, and the master was to be woken up once more after that.
    pub fn wake(&mut self, now: Timestamp) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Lets the master see that time has passed.
    pub fn let_time_pass(&mut self) {
        self.coordinator.let_time_pass();
    }

    /// Takes in that the master has nothing more to do.
    pub fn finish(&mut self) {
        self.is_done = true;
    }

    /// Whether the master has nothing more to do.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes in that the master's process dies.
    pub fn die(&mut self) {
        self.is_lost = true;
    }

    /// Whether the master's process has died.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Real time that the master has taken, if there is a stopwatch.
    pub fn time(&self) -> Duration {
        self.time
    }

    fn measure<T>(&mut self, ask: impl FnOnce(&mut Coordinator<Words>) -> T) -> T {
        let started = self.stopwatch.map(|read| read());
        let answer = ask(&mut self.coordinator);
        if let Some((started, read)) = started.zip(self.stopwatch) {
            self.time += Duration::from_nanos(read().saturating_sub(started));
        }
        answer
    }
}

/// Whether somebody says no more than that it lives. Most of what comes in a quiet world is of that kind, and
/// it has nothing to do with invariants.
fn is_pong(coming: &Coming) -> bool {
    match coming {
        Coming::Event(Event::Message { message, .. }) => matches!(message, ToMaster::Pong { .. }),
        Coming::Event(Event::Agent(_, said)) => matches!(said, FromAgent::Pong { .. }),
        _ => false,
    }
}

fn is_ping(action: &Action) -> bool {
    match action {
        Action::Send { message, .. } => matches!(message, ToWorker::Ping { .. }),
        Action::SendAgent { message, .. } => matches!(message, ToAgent::Ping { .. }),
        _ => false,
    }
}
