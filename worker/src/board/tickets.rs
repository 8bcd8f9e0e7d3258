//! A rank's view of the board.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use everfold_protocol::{
    Rank, ReductionId,
    message::{Contribution, Finished},
};

use super::{Board, Ticket};

/// What lies on the board of one rank, as far as that knows: the master may have taken some of it.
#[derive(Debug)]
pub struct Tickets<M> {
    me: Rank,
    board: Arc<Board<M>>,
    tickets: Vec<Ticket>,
}

impl<M: AsRef<[AtomicU64]>> Tickets<M> {
    /// Nothing of `me` lies on `board` yet.
    pub fn new(me: Rank, board: Arc<Board<M>>) -> Self {
        Self { me, board, tickets: Vec::new() }
    }

    /// Puts a contribution on the board, and tells whether it completes its round: then all are to look, the others woken up.
    ///
    /// `None` if the master is to be told instead.
    pub fn place(&mut self, now: Duration, contribution: &Contribution) -> Option<bool> {
        let (ticket, completes) = self.board.place(self.me, now, contribution)?;
        // Whatever else was in that cell the master has taken.
        self.tickets.retain(|other| other.cell != ticket.cell);
        self.tickets.push(ticket);
        Some(completes)
    }

    /// Takes what is complete.
    pub fn look(&mut self, now: Duration) -> Vec<Finished> {
        let mut complete = Vec::new();
        self.tickets.retain(|ticket| {
            let outcome = self.board.outcome(self.me, now, ticket);
            let waits = outcome.is_none();
            complete.extend(outcome);
            waits
        });
        complete
    }

    /// Whether a contribution to `reduction` was put on the board and was not complete when this rank looked.
    pub fn hold(&self, reduction: ReductionId) -> bool {
        self.tickets.iter().any(|ticket| ticket.reduction == reduction)
    }
}
