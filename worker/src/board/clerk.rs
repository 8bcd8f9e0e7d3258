//! The master's side of the board: what is not ordinary becomes messages.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use everfold_protocol::{
    Rank, ReductionId,
    message::{Contribution, ToMaster},
};

use super::{
    Board, ROUNDS,
    word::{Phase, Word},
};

/// A contribution that the master is to hear of as if this rank had told it in a message.
pub type Taken = (Rank, Contribution);

/// Watches the board for the master.
#[derive(Debug)]
pub struct Clerk<M> {
    board: Arc<Board<M>>,
    /// The reductions that the master works on: ranks that come later contribute in messages.
    marked: BTreeSet<ReductionId>,
    /// The rounds when it looked who is late.
    seen: [Word; ROUNDS],
}

impl<M: AsRef<[AtomicU64]>> Clerk<M> {
    /// Watches `board`.
    pub fn new(board: Arc<Board<M>>) -> Self {
        Self { board, marked: BTreeSet::new(), seen: [Word::from_bits(0); ROUNDS] }
    }

    /// The master is about to hear a message. Returns what it has to hear before.
    pub fn hear(&mut self, message: &ToMaster) -> Vec<Taken> {
        match message {
            ToMaster::Contribute(contribution) => {
                let id = contribution.reduction;
                // Whoever puts something there looks for the mark afterwards.
                self.mark(id);
                // Each rank's contributions to one name are heard in order.
                self.take(|open| open.name == id.name && open.sequence <= id.sequence)
            }
            ToMaster::Closing | ToMaster::Leave => {
                self.close();
                self.collect()
            }
            _ => Vec::new(),
        }
    }

    /// Takes all that waits on the board for somebody.
    pub fn collect(&mut self) -> Vec<Taken> {
        self.take(|_| true)
    }

    fn take(&mut self, which: impl Fn(ReductionId) -> bool) -> Vec<Taken> {
        let board = self.board.clone();
        let mut all = Vec::new();
        for reduction in board.reductions().filter(|reduction| which(*reduction)) {
            let is_new = self.mark(reduction);
            let taken = board.take(reduction);
            if taken.is_empty() && is_new {
                // It is complete.
                self.end(reduction);
            }
            all.extend(taken);
        }
        all
    }

    /// Not everybody will contribute any more: from now on, all contribute in messages.
    pub fn close(&mut self) {
        self.board.closed().store(1, SeqCst);
    }

    /// The master works no more on a reduction.
    pub fn end(&mut self, reduction: ReductionId) {
        if self.marked.remove(&reduction) {
            self.board.mark(reduction).fetch_sub(1, SeqCst);
        }
    }

    /// Who has not taken yet what is complete: whoever has completed it may have died before it woke them up. Names them
    /// once, as they may be dead, too.
    pub fn late(&mut self) -> Vec<Rank> {
        let mut late = Vec::new();
        for (round, seen) in self.seen.iter_mut().enumerate() {
            let word = self.board.state(round);
            if word.phase() == Phase::Complete && *seen != word {
                late.extend(word.ranks().map(Rank));
            }
            *seen = word;
        }
        late
    }

    /// Returns whether it was not marked.
    fn mark(&mut self, reduction: ReductionId) -> bool {
        let is_new = self.marked.insert(reduction);
        if is_new {
            self.board.mark(reduction).fetch_add(1, SeqCst);
        }
        is_new
    }
}
