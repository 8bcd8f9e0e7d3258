//! The board of a world whose ranks share one host: the real one, in memory of this process.

use std::{
    iter,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use everfold_master as master;
use everfold_protocol::{
    ProcessId, Rank, Timestamp,
    message::{Contribution, Header, ToMaster},
};
use everfold_worker::{
    board::{Board, Clerk, PATIENCE, Taken, holds},
    machine::Event,
};

use crate::{
    events::Happening,
    settings::Settings,
    world::{JOB, World},
};

/// Evidence is short.
const BODY_BYTES: usize = 256;

type Words = Vec<AtomicU64>;

/// The board, and who watches it for the master.
pub(crate) struct Shared {
    board: Arc<Board<Words>>,
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
        Some(Self { clerk: Clerk::new(board.clone()), board, complete: 0, taken: 0 })
    }
}

fn time(at: Timestamp) -> Duration {
    Duration::from_nanos(at.as_nanos())
}

impl World {
    /// Rounds that were completed on the board, and contributions that the master has taken from it.
    pub(crate) fn board_counts(&self) -> (u64, u64) {
        self.shared.as_ref().map_or((0, 0), |shared| (shared.complete, shared.taken))
    }

    /// Puts a contribution on the board, or tells the master.
    pub(crate) fn place(&mut self, rank: Rank, contribution: Box<Contribution>) {
        let shared = self.shared.as_ref().expect("a worker knows whether there is a board");
        let (board, now) = (shared.board.clone(), self.now);
        let Some((ticket, completes)) = board.place(rank, time(now), &contribution) else {
            return self.tell_master(rank, ToMaster::Contribute(contribution));
        };
        let tickets = &mut self.process_mut(rank).tickets;
        tickets.retain(|other| !other.shares_place(&ticket));
        tickets.push(ticket);
        if completes {
            self.shared.iter_mut().for_each(|shared| shared.complete += 1);
            self.look(rank);
            self.ring(rank, Rank(0));
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
        let (board, now) = (self.shared.as_ref().map(|shared| shared.board.clone()), time(self.now));
        let process = self.process_mut(rank);
        let Some(board) = board.filter(|_| process.worker.is_some()) else { return };
        let mut complete = Vec::new();
        process.tickets.retain(|ticket| {
            let outcome = board.outcome(rank, now, ticket);
            let waits = outcome.is_none();
            complete.extend(outcome);
            waits
        });
        complete.into_iter().for_each(|finished| self.tell_worker(rank, Event::Complete(finished)));
    }

    /// Lets the master see what waits on the board, again and again.
    pub(crate) fn clear_board_later(&mut self) {
        if self.shared.is_some() && !self.is_done() {
            self.schedule(self.now + PATIENCE, Happening::Collect);
        }
    }

    pub(crate) fn clear_board(&mut self) {
        let Some(Shared { clerk, .. }) = &mut self.shared else { return };
        let late = clerk.late();
        let taken = clerk.collect();
        late.into_iter().for_each(|rank| self.wake_up(rank));
        self.take_over(taken);
    }

    pub(crate) fn close_board(&mut self) {
        self.shared.iter_mut().for_each(|shared| shared.clerk.close());
        self.clear_board();
    }

    /// The master hears of a message.
    pub(crate) fn look_for(&mut self, message: &ToMaster) {
        let taken = self.shared.as_mut().map(|shared| shared.clerk.hear(message));
        self.take_over(taken.unwrap_or_default());
    }

    /// The master has said something.
    pub(crate) fn take_note(&mut self, notice: &master::Notice) {
        match notice {
            master::Notice::Failed { .. } => self.close_board(),
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
