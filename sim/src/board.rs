//! The board of a world whose ranks share one host: the real one, in this process's memory.

use std::{
    iter,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use everfold_master as master;
use everfold_protocol::{
    ProcessId, Rank, ReductionId, Timestamp,
    message::{Contribution, Header, ToMaster},
};
use everfold_worker::{
    board::{Board, Clerk, Found, PATIENCE, Taken, Tickets, holds},
    machine::Event,
};

use crate::{
    events::Happening,
    settings::Settings,
    world::{JOB, World},
};

/// Evidence is short.
const BODY_BYTES: usize = 256;

pub(crate) type Words = Vec<AtomicU64>;

/// The board, and who watches it for the master.
pub(crate) struct Shared {
    /// By rank.
    tickets: Vec<Tickets<Words>>,
    clerk: Clerk<Words>,
    /// Rounds that were complete.
    complete: u64,
    /// Contributions that the master has taken.
    taken: u64,
}

impl Shared {
    /// The board of a world that is to have one.
    pub fn new(settings: &Settings) -> Option<Self> {
        let ranks = settings.ranks;
        if !(settings.board && holds(ranks)) {
            return None;
        }
        let words = iter::repeat_with(AtomicU64::default).take(Board::<Words>::words(ranks, BODY_BYTES));
        let board = Arc::new(Board::new(words.collect(), ranks, BODY_BYTES));
        let tickets = (0..ranks).map(|rank| Tickets::new(Rank(rank), board.clone())).collect();
        Some(Self { tickets, clerk: Clerk::new(board), complete: 0, taken: 0 })
    }
}

fn time(at: Timestamp) -> Duration {
    Duration::from_nanos(at.as_nanos())
}

impl World {
    /// Whether something of `rank` lies on the board, or lay there until the master took it.
    pub(crate) fn has_placed(&self, rank: Rank, reduction: ReductionId) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.tickets[rank.index()].hold(reduction))
    }

    /// Rounds that were completed on the board, and contributions that the master has taken from it.
    pub(crate) fn board_counts(&self) -> (u64, u64) {
        self.shared.as_ref().map_or((0, 0), |shared| (shared.complete, shared.taken))
    }

    /// Puts a contribution on the board, or tells the master.
    pub(crate) fn place(&mut self, rank: Rank, contribution: Box<Contribution>) {
        let shared = self.shared.as_mut().expect("a worker knows whether there is a board");
        let tickets = &mut shared.tickets[rank.index()];
        let maps = !self.settings.boardless.contains(&rank);
        match maps.then(|| tickets.place(time(self.now), &contribution)).flatten() {
            None => self.tell_master(rank, ToMaster::Contribute(contribution)),
            Some(false) => {}
            Some(true) => {
                shared.complete += 1;
                self.look(rank);
                self.schedule(self.now, Happening::Ring(rank, Rank(0)));
            }
        }
    }

    /// Lets `from` wake up `next` and those behind it, one after the other.
    pub(crate) fn ring(&mut self, from: Rank, next: Rank) {
        if next.0 < self.settings.ranks {
            self.wake_up(next);
            let at = self.timing.bell(self.now, &mut self.random);
            self.schedule(at, Happening::Ring(from, Rank(next.0 + 1)));
        }
    }

    fn wake_up(&mut self, rank: Rank) {
        let at = self.timing.bell(self.now, &mut self.random);
        self.schedule(at, Happening::Bell(rank));
    }

    /// Lets a rank take in what is complete.
    pub(crate) fn look(&mut self, rank: Rank) {
        let lives = self.process(rank).worker.is_some();
        let Some(shared) = self.shared.as_mut().filter(|_| lives) else { return };
        let complete = shared.tickets[rank.index()].look(time(self.now));
        complete.into_iter().for_each(|finished| self.tell_worker(rank, Event::Complete(finished)));
    }

    /// Lets the master see what waits on the board, again and again.
    pub(crate) fn look_later(&mut self) {
        if self.shared.is_some() && !self.is_done() {
            self.schedule(self.now + PATIENCE, Happening::Look);
        }
    }

    /// Lets the master look at the board.
    pub(crate) fn look_at_board(&mut self, how: impl FnOnce(&mut Clerk<Words>) -> Found) {
        let Some(Shared { clerk, .. }) = &mut self.shared else { return };
        let Found { taken, late } = how(clerk);
        // The dead would be woken up for ever.
        let late = late.into_iter().filter(|rank| self.process(*rank).worker.is_some());
        late.collect::<Vec<_>>().into_iter().for_each(|rank| self.wake_up(rank));
        self.take_over(taken);
    }

    /// The master hears of a message.
    pub(crate) fn look_for(&mut self, message: &ToMaster) {
        let taken = self.shared.as_mut().map(|shared| shared.clerk.hear(message));
        self.take_over(taken.unwrap_or_default());
    }

    /// The master has said something.
    pub(crate) fn take_note(&mut self, notice: &master::Notice) {
        match notice {
            master::Notice::Failed { .. } => self.look_at_board(Clerk::close),
            master::Notice::Finished(reduction) | master::Notice::Refused { reduction, .. } => {
                self.shared.iter_mut().for_each(|shared| shared.clerk.end(*reduction));
            }
            _ => {}
        }
    }

    fn take_over(&mut self, taken: Vec<Taken>) {
        self.shared.iter_mut().for_each(|shared| shared.taken += taken.len() as u64);
        for (rank, contribution) in taken {
            let header = Header { job: JOB, epoch: self.master().epoch(), sender: ProcessId::first(rank) };
            let message = ToMaster::Contribute(Box::new(contribution));
            self.time_master(|master, now| {
                master.handle_event(now, master::Event::Message { header, message });
            });
        }
    }
}
