//! A rank's machine and the calls that it has put on the board, in the order in which the machine hears of
//! both.
//!
//! Changes on the board came before the next event. So calls are taken off the board before each event, and
//! before time passes:
//!
//! - complete ones end, and the machine never hears of them. Where ranks come back, they are open until their
//!   outcomes are noted;
//! - with those that the master has taken, the machine goes on as if it had told the master;
//! - of those that an earlier process of the rank has noted, the rounds are left;
//! - all others are withdrawn, for the master to be told, before the rank closes its session and when its
//!   master is lost;
//! - those of one name are withdrawn before a call of that name goes to the master in a message: it hears a
//!   rank's calls of a name in order.

use alloc::vec::Vec;
use core::{sync::atomic::AtomicU64, time::Duration};

use everfold_protocol::{
    ReductionId, ReductionSpec, Timestamp,
    board::{Fate, Round, Spot, Ticket, Tickets},
    message::Contribution,
};

use crate::machine::{Action, Event, Worker};

/// A machine, and the calls on the board in `M`. `T` goes with each of them.
#[derive(Debug)]
pub struct Participant<M, T> {
    machine: Worker,
    tickets: Option<Tickets<M, T>>,
    /// Complete calls whose outcomes are being noted.
    noting: usize,
}

/// Calls that have left the board, and how they ended.
#[derive(Debug)]
pub struct Settled<M: AsRef<[AtomicU64]>, T> {
    /// Calls whose rounds are complete: they end.
    pub complete: Vec<(Ticket<T>, Round<M>)>,
    /// Whether their outcomes are [noted](Participant::noted) before their rank leaves the rounds, and before the
    /// application hears of them.
    pub are_noted: bool,
    /// Calls that are refused: an earlier process has made others in their places.
    pub diverged: Vec<Ticket<T>>,
    /// Whether the machine has heard of something, and may want something done.
    pub has_told: bool,
}

impl<M: AsRef<[AtomicU64]>, T> Default for Settled<M, T> {
    fn default() -> Self {
        Self { complete: Vec::new(), are_noted: false, diverged: Vec::new(), has_told: false }
    }
}

impl<M: AsRef<[AtomicU64]>, T> Settled<M, T> {
    /// Both.
    #[must_use]
    pub fn and(mut self, later: Self) -> Self {
        self.complete.extend(later.complete);
        self.are_noted |= later.are_noted;
        self.diverged.extend(later.diverged);
        self.has_told |= later.has_told;
        self
    }
}

impl<M: AsRef<[AtomicU64]>, T> Participant<M, T> {
    /// A rank that has no board yet.
    pub fn new(machine: Worker) -> Self {
        Self { machine, tickets: None, noting: 0 }
    }

    /// Takes part in rounds on a board from now on.
    pub fn share_board(&mut self, tickets: Tickets<M, T>) {
        self.tickets = Some(tickets);
    }

    /// Whether it has a board.
    pub fn has_board(&self) -> bool {
        self.tickets.is_some()
    }

    /// Whether a call is on the board, or its outcome is being noted.
    pub fn has_placed(&self) -> bool {
        self.noting + self.placed() > 0
    }

    /// Whether this rank has as many reductions in flight as it may have. To be asked before a call is made that is
    /// not [placed](Self::place).
    pub fn is_full(&self) -> bool {
        self.machine.is_full(self.placed())
    }

    /// Number of calls that are on the board.
    fn placed(&self) -> usize {
        self.tickets.as_ref().map_or(0, Tickets::len)
    }

    fn may_place(&self, reduction: ReductionId) -> bool {
        self.machine.may_place(reduction) && !self.is_full()
    }

    /// Takes in that the outcome of a complete call is noted.
    pub fn noted(&mut self) {
        self.noting -= 1;
    }

    /// The machine.
    pub fn machine(&self) -> &Worker {
        &self.machine
    }

    /// The next thing that the machine wants done.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.machine.poll_action()
    }

    /// Whether a call with a body of this many bytes may be put on the board, if there is room.
    pub fn accepts(&self, reduction: ReductionId, spec: &ReductionSpec, bytes: u64) -> bool {
        let accepts = |tickets: &Tickets<M, T>| tickets.accept(reduction, spec, bytes);
        self.may_place(reduction) && self.tickets.as_ref().is_some_and(accepts)
    }

    /// Where the latest call lies that is on the board.
    pub fn latest(&self) -> Option<Spot> {
        self.tickets.as_ref().and_then(Tickets::latest)
    }

    /// Takes in an event. `publish` makes a call that was on the board one for the master, if this process
    /// can, and hears whether the master has taken it.
    pub fn hear(
        &mut self,
        now: Timestamp,
        event: Event,
        publish: impl FnMut(Ticket<T>, bool) -> Option<Contribution>,
    ) -> Settled<M, T> {
        if let (Event::Recalled(reduction), Some(tickets)) = (&event, &self.tickets) {
            tickets.leave_noted(*reduction);
        }
        // A rank that closes asks the master for the end of its calls.
        let is_last = matches!(event, Event::Close | Event::MasterLost);
        let settled = self.settle_with(now, |_| is_last, publish);
        self.machine.handle_event(now, event);
        Settled { has_told: true, ..settled }
    }

    /// Lets time pass. `publish`: as [`hear`](Self::hear).
    pub fn let_time_pass(
        &mut self,
        now: Timestamp,
        publish: impl FnMut(Ticket<T>, bool) -> Option<Contribution>,
    ) -> Settled<M, T> {
        let settled = self.settle_with(now, |_| false, publish);
        self.machine.handle_timeout(now);
        Settled { has_told: true, ..settled }
    }

    /// Puts a call, which is made at `called`, on the board, right after calls have been
    /// [settled](Self::settle): a rank that has the result of an earlier one makes room. Returns whether that
    /// completes its round: then the others are to be woken up, and [`settle`](Self::settle) ends this one.
    /// `publish`: as [`hear`](Self::hear).
    ///
    /// # Errors
    /// Gives the call back if it is for the master.
    pub fn place(
        &mut self,
        now: Timestamp,
        called: Duration,
        ticket: Ticket<T>,
        body: fn(&T) -> &[u8],
        publish: impl FnMut(Ticket<T>, bool) -> Option<Contribution>,
    ) -> (Result<bool, Ticket<T>>, Settled<M, T>) {
        let name = ticket.reduction.name;
        let may_place = self.may_place(ticket.reduction);
        let placed = match &mut self.tickets {
            Some(tickets) if may_place => tickets.place(called, ticket, body),
            // An earlier process of this rank may have placed it, whatever this one has in flight.
            Some(tickets) => tickets.find(ticket),
            None => Err(ticket),
        };
        if placed.is_ok() {
            return (placed, Settled::default());
        }
        (placed, self.settle_with(now, |other| other.name == name, publish))
    }

    /// Takes calls off the board that do not wait there any more. `publish`: as [`hear`](Self::hear).
    pub fn settle(
        &mut self,
        now: Timestamp,
        publish: impl FnMut(Ticket<T>, bool) -> Option<Contribution>,
    ) -> Settled<M, T> {
        self.settle_with(now, |_| false, publish)
    }

    /// Takes all calls that wait on the board, as this rank takes part no more. Its contributions stay there.
    pub fn forget(&mut self) -> Vec<Ticket<T>> {
        self.tickets.as_mut().into_iter().flat_map(Tickets::forget).collect()
    }

    fn settle_with(
        &mut self,
        now: Timestamp,
        withdraw: impl Fn(&ReductionId) -> bool,
        mut publish: impl FnMut(Ticket<T>, bool) -> Option<Contribution>,
    ) -> Settled<M, T> {
        let are_noted = self.machine.notes();
        let mut settled = Settled { are_noted, ..Settled::default() };
        let off = self.tickets.as_mut().map(|tickets| tickets.settle(withdraw)).unwrap_or_default();
        for (ticket, fate) in off {
            let taken = match fate {
                Fate::Complete(round) => {
                    self.noting += usize::from(are_noted);
                    settled.complete.push((ticket, round));
                    continue;
                }
                Fate::Diverged => {
                    settled.diverged.push(ticket);
                    continue;
                }
                Fate::Taken => true,
                Fate::Withdrawn => false,
            };
            if let Some(contribution) = publish(ticket, taken) {
                self.machine.handle_event(now, Event::OffBoard { contribution, taken });
                settled.has_told = true;
            }
        }
        settled
    }
}
