//! A rank's view of the board.

use alloc::{string::String, sync::Arc, vec::Vec};
use core::time::Duration;

use crate::{Rank, ReductionId, message::Contribution, spec::ReductionSpec};

use super::{Board, Entry, Round, Spot, Stage, suits};
use crate::atomic::AtomicU64;

/// A call that is on the board, or is about to be put there.
#[derive(Debug)]
pub struct Ticket<T> {
    /// Which reduction.
    pub reduction: ReductionId,
    /// Its name.
    pub name: String,
    /// What all have to agree on.
    pub spec: ReductionSpec,
    /// What the process keeps with it.
    pub with: T,
}

/// What has become of a call that was on the board.
#[derive(Debug)]
pub enum Fate<M: AsRef<[AtomicU64]>> {
    /// Its round is complete.
    Complete(Round<M>),
    /// The master goes on with it, as if it had been told in a message.
    Taken,
    /// It is not on the board any more, and the master is to be told.
    Withdrawn,
    /// An earlier process of this rank has made another call in its place, and its round is complete.
    Diverged,
}

/// The calls of one rank that are on the board. Of one name there is one at most, and then none with the
/// master.
#[derive(Debug)]
pub struct Tickets<M, T> {
    me: Rank,
    board: Arc<Board<M>>,
    bytes_max: u64,
    tickets: Vec<(Spot, Ticket<T>)>,
    /// Calls that differ from those of an earlier process.
    diverged: Vec<Ticket<T>>,
}

impl<M: AsRef<[AtomicU64]>, T> Tickets<M, T> {
    /// This process has put nothing on `board` yet. Longer bodies than these are not put there.
    pub fn new(me: Rank, board: Arc<Board<M>>, bytes_max: u64) -> Self {
        Self { me, board, bytes_max, tickets: Vec::new(), diverged: Vec::new() }
    }

    /// The board.
    pub fn board(&self) -> &Arc<Board<M>> {
        &self.board
    }

    /// Where the latest call lies that is on the board.
    pub fn latest(&self) -> Option<Spot> {
        self.tickets.last().map(|(spot, _)| *spot)
    }

    /// Whether a call with a body of so many bytes may be put on the board, if there is room.
    pub fn accept(&self, reduction: ReductionId, spec: &ReductionSpec, bytes: u64) -> bool {
        let is_first = self.tickets.iter().all(|(_, ticket)| ticket.reduction.name != reduction.name);
        is_first && suits(spec, bytes, self.board.ranks, self.bytes_max)
    }

    /// Number of calls that are on the board.
    // Whether there is none asks nobody.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.tickets.len() + self.diverged.len()
    }

    /// Puts a contribution on the board, and tells whether its round is complete now: then all are to look, the
    /// others woken up. `body` is that of what goes with it; at the root it stays there. If an earlier process of
    /// this rank has put it there, and its round is complete, that counts.
    ///
    /// # Errors
    /// Gives the call back if the master is to be told instead.
    // What it gives back is no error.
    #[allow(clippy::result_large_err)]
    pub fn place(
        &mut self,
        now: Duration,
        ticket: Ticket<T>,
        body: fn(&T) -> &[u8],
    ) -> Result<bool, Ticket<T>> {
        let Ticket { reduction, ref name, ref spec, ref with } = ticket;
        let accepted = self.accept(reduction, spec, body(with).len() as u64);
        let private = spec.delivery.root() == Some(self.me);
        let entry = || Entry { reduction, name, spec, body: (!private).then(|| body(with)) };
        match accepted.then(|| self.board.place(self.me, now, &entry())).flatten() {
            None => self.find(ticket),
            Some((spot, completes)) => {
                self.tickets.push((spot, ticket));
                Ok(completes)
            }
        }
    }

    /// Goes on with a call in whose place an earlier process of this rank has contributed to a round that is
    /// complete: the master never hears of that. Returns true.
    ///
    /// # Errors
    /// Gives the call back if there is no such round.
    // What it gives back is no error.
    #[allow(clippy::result_large_err)]
    pub fn find(&mut self, ticket: Ticket<T>) -> Result<bool, Ticket<T>> {
        let Some(spot) = self.board.unread(self.me, ticket.reduction) else { return Err(ticket) };
        let before = self.board.slot(spot.cell, self.me).read();
        let differs = |before: Contribution| before.name != ticket.name || before.spec != ticket.spec;
        match before.is_some_and(differs) {
            true => self.diverged.push(ticket),
            false => self.tickets.push((spot, ticket)),
        }
        Ok(true)
    }

    /// Leaves the round of a call whose outcome an earlier process of this rank has noted, if that process has died
    /// before it could leave the round.
    pub fn leave_noted(&self, reduction: ReductionId) {
        let left = self.board.unread(self.me, reduction);
        let round = left.and_then(|spot| Round::at(spot, &self.board, self.me));
        round.into_iter().for_each(Round::leave);
    }

    /// Takes all that waits. Its contributions stay on the board.
    pub fn forget(&mut self) -> impl Iterator<Item = Ticket<T>> {
        self.tickets.drain(..).map(|(_, ticket)| ticket).chain(self.diverged.drain(..))
    }

    /// Takes the calls that do not wait on the board any more, and those of the others that `withdraw`
    /// accepts.
    pub fn settle(&mut self, withdraw: impl Fn(&ReductionId) -> bool) -> Vec<(Ticket<T>, Fate<M>)> {
        let (me, board) = (self.me, &self.board);
        let fate = |(spot, ticket): &mut (Spot, Ticket<T>)| {
            if withdraw(&ticket.reduction) && board.withdraw(me, *spot) {
                return Some(Fate::Withdrawn);
            }
            match board.stage(me, *spot) {
                Stage::Open => None,
                Stage::Complete => Round::at(*spot, board, me).map(Fate::Complete),
                Stage::Taken => Some(Fate::Taken),
            }
        };
        let mut settled: Vec<_> = self.diverged.drain(..).map(|ticket| (ticket, Fate::Diverged)).collect();
        let mut at = 0;
        while let Some(ticket) = self.tickets.get_mut(at) {
            match fate(ticket) {
                Some(fate) => settled.push((self.tickets.remove(at).1, fate)),
                None => at += 1,
            }
        }
        settled
    }
}
