//! What is different where contributions are not folded: they are [pieces](everfold_protocol::pieces), and the
//! result is all of them, side by side.
//!
//! There is one segment, and no task: a piece is a part of the result as soon as it enters. What a death does to
//! it, replicas, and the handing out of the result are those of objects.
//!
//! A rank that has the result lends it as a whole, where all ranks receive the same. A piece that was lost is
//! then read there. Where each rank receives its own blocks, nobody can stand in for an owner but its agent and
//! its replicas.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use everfold_protocol::{
    Path, Rank, SegmentIndex,
    message::{ByteRange, Piece},
    pieces::Pattern,
};

use super::Reduction;
use crate::queue::Ready;

impl Reduction {
    /// Whether contributions are not folded.
    pub(super) fn has_pieces(&self) -> bool {
        self.spec.kind.pattern().is_some()
    }

    /// Whether all that receive the result receive the same.
    pub(super) fn is_one_for_all(&self) -> bool {
        self.spec.kind.pattern().and_then(Pattern::cut).is_none()
    }

    /// What can be read in `whole`, which holds the result: each piece, if it is made of pieces.
    pub(super) fn pieces_of(&self, whole: Arc<Ready>) -> Vec<Arc<Ready>> {
        if !self.has_pieces() {
            return vec![whole];
        }
        let piece = |rank| Arc::new(Ready { path: Path::single(rank), ..(*whole).clone() });
        self.givers().map(piece).collect()
    }

    /// The ranks whose pieces those are told that receive the result.
    fn givers(&self) -> impl Iterator<Item = Rank> + '_ {
        let source = self.spec.kind.pattern().and_then(Pattern::source);
        self.group.iter().filter(move |rank| source.is_none_or(|source| source == *rank))
    }

    /// Where the pieces of the result lie, in the order of their ranks. `place` names that for each.
    pub(super) fn side_by_side(
        &self,
        place: impl Fn(SegmentIndex, &Arc<Ready>) -> Arc<Ready>,
    ) -> Vec<Piece> {
        let index = SegmentIndex(0);
        let result = self.segments[index].result.iter();
        let by_rank: BTreeMap<Option<Rank>, &Arc<Ready>> = result.map(|it| (it.path.first(), it)).collect();
        let mut start = 0;
        let piece = |rank: Rank| {
            let len = self.piece_bytes[&rank];
            let Ready { process, data, .. } = Arc::unwrap_or_clone(place(index, by_rank[&Some(rank)]));
            let from = if self.handout.is_lent(process, &data) { start } else { 0 };
            start += len;
            Piece { range: ByteRange { start: from, len }, process, data }
        };
        self.givers().map(piece).collect()
    }
}
