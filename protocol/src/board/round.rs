//! A complete round, as one of its ranks sees it.

use alloc::sync::Arc;
use core::{fmt, time::Duration};

use crate::{
    Path, Rank,
    pieces::Pattern,
    report::{Phases, Report},
    spec::{Delivery, ReductionSpec},
};

use super::{
    Board, Spot, Stage,
    slot::{self, Slot},
    word::Phase,
};
use crate::atomic::AtomicU64;

/// A round that is complete. What all have contributed lies on the board until each rank has [left](Self::leave)
/// the round. Where ranks come back, a rank notes the outcome before it leaves: if its process dies before, a later
/// process finds the round here.
pub struct Round<M: AsRef<[AtomicU64]>> {
    board: Arc<Board<M>>,
    me: Rank,
    spot: Spot,
}

impl<M: AsRef<[AtomicU64]>> Round<M> {
    /// The round at `spot`, if it is complete and `me` has not left it yet.
    pub fn at(spot: Spot, board: &Arc<Board<M>>, me: Rank) -> Option<Self> {
        (board.stage(me, spot) == Stage::Complete).then(|| Self { board: board.clone(), me, spot })
    }

    /// This rank needs the round no more.
    pub fn leave(self) {
        let Spot { cell, generation } = self.spot;
        self.board.leave(cell, self.me, generation, Phase::Complete);
    }

    fn slot(&self, rank: Rank) -> Slot<'_> {
        self.board.slot(self.spot.cell, rank)
    }

    /// Length of what `rank` has contributed, unless only that rank folds anything into it.
    pub fn len_of(&self, rank: Rank) -> Option<usize> {
        self.slot(rank).body().map(|(bytes, _)| bytes)
    }

    /// Copies what `rank` has contributed from the byte `start` on, a multiple of 8, and as much as `to` has
    /// room for.
    pub fn read(&self, rank: Rank, start: usize, to: &mut [u8]) {
        // What is not there any more, because another process has written where nobody may, stays as it is.
        let body = self.slot(rank).body();
        if let Some(words) = body.and_then(|(_, words)| words.get(start / 8..)) {
            slot::load(words, to);
        }
    }

    /// Bytes of pieces that each rank receives of the others, on average.
    fn piece_bytes(&self, spec: &ReductionSpec) -> u64 {
        let ranks = spec.group.len() as u64;
        let given = spec.group.iter().filter_map(|rank| self.len_of(rank)).sum::<usize>() as u64;
        let is_cut = spec.kind.pattern().and_then(Pattern::cut).is_some();
        given * (ranks - 1) / if is_cut { ranks * ranks } else { ranks }
    }

    /// What happened, for those who receive the result and for the others.
    pub fn report(&self, now: Duration, spec: &ReductionSpec) -> Report {
        let folded = spec.kind.array_bytes().map(|(bytes, _)| bytes);
        let receivers = spec.delivery.receiver().map_or_else(|| spec.group.clone(), Path::single);
        let calls = spec.group.iter().map(|rank| self.slot(rank).called());
        let (first, last) =
            calls.fold((now, Duration::ZERO), |(first, last), at| (first.min(at), last.max(at)));
        let folds = folded.map_or(0, |_| spec.group.len() as u64 - 1);
        let bytes = folded.map_or_else(|| self.piece_bytes(spec), |bytes| bytes * folds);
        let is_told = receivers.contains(self.me);
        Report {
            // Only the root's is in no other process's hands.
            protected: match spec.delivery {
                Delivery::Root(root) => spec.group.difference(&Path::single(root)),
                Delivery::FirstOf(_) | Delivery::All => spec.group.clone(),
            },
            contributors: spec.group.clone(),
            folds,
            bytes_moved: bytes * receivers.len() as u64,
            phases: Phases {
                arriving: last.saturating_sub(first),
                folding: now.saturating_sub(last),
                ..Phases::default()
            },
            tasks_per_worker: receivers
                .iter()
                .filter(|_| is_told && folds > 0)
                .map(|rank| (rank, 1))
                .collect(),
            ..Report::default()
        }
    }
}

impl<M: AsRef<[AtomicU64]>> fmt::Debug for Round<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Round").field("me", &self.me).field("spot", &self.spot).finish_non_exhaustive()
    }
}
