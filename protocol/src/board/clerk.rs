//! The master's view of the board: rounds that are not ordinary become messages.

use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};

use crate::{
    Rank, ReductionId,
    message::{Contribution, ToMaster},
};

use super::{
    Board, CELLS, cell_of,
    word::{Phase, Word},
};
use crate::atomic::{AtomicU64, Ordering::SeqCst};

/// A contribution that the master is to hear of as if this rank had told it in a message.
pub type Taken = (Rank, Contribution);

/// Watches the board for the master.
#[derive(Debug)]
pub struct Clerk<M> {
    board: Arc<Board<M>>,
    /// The reductions that the master works on: ranks that come later contribute in messages. None once the
    /// board is closed.
    marked: BTreeSet<ReductionId>,
    /// The cells when it looked last.
    seen: [Word; CELLS],
}

/// What was found on the board.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// What the master is to hear.
    pub taken: Vec<Taken>,
    /// Who is to be woken up.
    pub late: Vec<Rank>,
}

impl<M: AsRef<[AtomicU64]>> Clerk<M> {
    /// Watches `board`.
    pub fn new(board: Arc<Board<M>>) -> Self {
        Self { board, marked: BTreeSet::new(), seen: [Word::from_bits(0); CELLS] }
    }

    /// The master is about to hear a message. Returns what it has to hear before.
    pub fn hear(&mut self, message: &ToMaster) -> Vec<Taken> {
        match message {
            ToMaster::Contribute(contribution) => {
                let id = contribution.reduction;
                // A rank that puts something there looks for the mark afterwards.
                self.mark(id);
                self.take(cell_of(id), |other| *other == id)
            }
            ToMaster::Closing | ToMaster::Leave => self.close().taken,
            _ => Vec::new(),
        }
    }

    /// Takes rounds that have been open since the last look. Of rounds that have been complete since then,
    /// the rank that completed them may have died before it woke the others up.
    pub fn look(&mut self) -> Found {
        let mut found = Found::default();
        for cell in 0..CELLS {
            let word = self.board.state(cell);
            let seen = core::mem::replace(&mut self.seen[cell], word);
            if !word.is_free() && (word.generation(), word.phase()) == (seen.generation(), seen.phase()) {
                match word.phase() {
                    Phase::Complete => found.late.extend(self.board.ranks_in(word)),
                    Phase::Open | Phase::Taken => found.taken.extend(self.take(cell, |_| true)),
                }
            }
        }
        found
    }

    /// As [`look`](Self::look), for all that is there now.
    pub fn clear(&mut self) -> Found {
        self.seen = core::array::from_fn(|cell| self.board.state(cell));
        self.look()
    }

    /// Not everybody will contribute any more: from now on, all contribute in messages.
    pub fn close(&mut self) -> Found {
        self.board.closed().store(1, SeqCst);
        self.marked.clear();
        self.clear()
    }

    /// The master works no more on a reduction.
    pub fn end(&mut self, reduction: ReductionId) {
        if self.marked.remove(&reduction) {
            self.board.mark(reduction).fetch_sub(1, SeqCst);
        }
    }

    fn take(&mut self, cell: usize, which: impl Fn(&ReductionId) -> bool) -> Vec<Taken> {
        let Some(reduction) = self.board.reduction(cell).filter(which) else { return Vec::new() };
        let is_new = self.mark(reduction);
        let taken = self.board.take(reduction);
        if taken.is_empty() && is_new {
            // It is complete, or the ranks that were there contribute in messages.
            self.end(reduction);
        }
        taken
    }

    /// Returns whether it was not marked. On a closed board all count as marked.
    fn mark(&mut self, reduction: ReductionId) -> bool {
        let is_open = self.board.closed().load(SeqCst) == 0;
        let is_new = is_open && self.marked.insert(reduction);
        if is_new {
            self.board.mark(reduction).fetch_add(1, SeqCst);
        }
        is_new
    }
}
