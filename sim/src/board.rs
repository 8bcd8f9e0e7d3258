//! The board of a world whose ranks share one host: the real one, in this process's memory.

use std::{
    collections::BTreeSet,
    iter,
    sync::{Arc, atomic::AtomicU64},
};

use everfold_protocol::{
    Rank, ReductionId,
    board::{Board, holds},
};

use crate::settings::Settings;

/// Evidence is short.
const BODY_BYTES: usize = 256;

/// The memory that the board lies in.
pub(crate) type Words = Vec<AtomicU64>;

/// What ranks have on the board.
#[derive(Debug)]
pub(crate) struct Shared {
    board: Arc<Board<Words>>,
    /// What was put there and not withdrawn.
    placed: BTreeSet<(Rank, ReductionId)>,
    /// Rounds that were complete.
    complete: u64,
    /// Contributions that their ranks have seen taken by the master.
    taken: u64,
}

impl Shared {
    /// The board of a world that is to have one: nothing lies there yet.
    pub fn new(settings: &Settings) -> Option<(Self, Arc<Board<Words>>)> {
        let ranks = settings.ranks;
        if !(settings.board && holds(ranks)) {
            return None;
        }
        let words = iter::repeat_with(AtomicU64::default).take(Board::<Words>::words(ranks, BODY_BYTES));
        let board = Arc::new(Board::new(words.collect(), ranks, BODY_BYTES));
        Some((Self { board: board.clone(), placed: BTreeSet::new(), complete: 0, taken: 0 }, board))
    }

    /// The board.
    pub fn board(&self) -> &Arc<Board<Words>> {
        &self.board
    }

    /// Takes in that a rank has put something there, and whether that completes a round.
    pub fn place(&mut self, rank: Rank, reduction: ReductionId, completes: bool) {
        // An earlier process of this rank may have put it there.
        let is_new = self.placed.insert((rank, reduction));
        self.complete += u64::from(completes && is_new);
    }

    /// Takes in that a rank has seen the master take what it had put there.
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// Takes in that a rank has withdrawn what it had put there.
    pub fn withdraw(&mut self, rank: Rank, reduction: ReductionId) {
        self.placed.remove(&(rank, reduction));
    }

    /// Whether something of `rank` lies there, or lay there until the master took it.
    pub fn has(&self, rank: Rank, reduction: ReductionId) -> bool {
        self.placed.contains(&(rank, reduction))
    }

    /// Rounds that were completed, and contributions that the master has taken.
    pub fn counts(&self) -> (u64, u64) {
        (self.complete, self.taken)
    }
}
