//! Collective operations, where contributions are not folded: they are [pieces](everfold_protocol::pieces),
//! and the result is all of them, side by side.
//!
//! There is one segment, and no task: a piece is a part of the result as soon as it enters. Deaths, replicas,
//! and the handing out of the result are treated as those of objects.
//!
//! If all ranks receive the same, a rank that has the result lends it as a whole, and a lost piece is read
//! there. If each rank receives its own blocks, only an owner's agent and its replicas can stand in for the
//! owner.

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
        self.group.iter().filter(|rank| self.gives(*rank))
    }

    fn gives(&self, rank: Rank) -> bool {
        self.spec.kind.pattern().and_then(Pattern::source).is_none_or(|source| source == rank)
    }

    /// Where the pieces of the result lie, in the order of their ranks. `place` names that for each.
    pub(super) fn side_by_side(&self, place: impl Fn(SegmentIndex, &Arc<Ready>) -> Arc<Ready>) -> Vec<Piece> {
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

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use everfold_protocol::{
        Generation, Timestamp, WindowId,
        message::{Data, Evidence, Place, WindowRef},
        pieces::Cut,
        report::Refusal,
        spec::BodyKind,
    };

    use super::*;
    use crate::{
        lengths::Cut as Segmented,
        membership::{Membership, Prospect},
        reduction::testing::{self, process},
    };

    /// A window with this number and so many bytes.
    fn window(number: u64, bytes: u64) -> Data {
        let (window, generation, place) = (WindowId(number), Generation(1), Place::Served);
        Data::Window(WindowRef { window, generation, bytes, checksum: None, place })
    }

    /// Three ranks on three hosts have given 10, 20 and 30 bytes.
    fn reduction(pattern: Pattern) -> (Reduction, Membership) {
        let spec = testing::spec(3, BodyKind::Pieces { of: "u8".into(), pattern, length: None });
        let mut reduction = testing::reduction(spec, window(0, 10), Segmented::fixed(0), false);
        // In any order.
        for rank in [2, 0, 1] {
            assert!(reduction.unfinished() > 0);
            let data = window(0, 10 * (u64::from(rank) + 1));
            reduction.arrive(Timestamp::ZERO, process(rank), data, false);
        }
        (reduction, testing::job(&[0, 1, 2]))
    }

    /// Lets ranks 0 and 1 have the result, and rank 2 go with its host.
    fn lose_rank_2(reduction: &mut Reduction, members: &mut Membership) -> Result<(), Refusal> {
        reduction.hand_out(Path::range(0, 3), members);
        for rank in [0, 1] {
            assert!(reduction.stop_collecting(Rank(rank)));
            reduction.take_collected(
                process(rank),
                Some(window(7, 60)).filter(|_| reduction.is_one_for_all()),
                members,
            );
        }
        members.fail(&[process(2)], Evidence::Silent(Duration::from_secs(1)), Prospect::Gone);
        reduction.take_up_again();
        reduction.restore(Timestamp::ZERO, members)
    }

    fn listed(reduction: &Reduction) -> Vec<(Rank, u64, u64)> {
        let tell = |piece: Piece| (piece.process.rank, piece.range.start, piece.range.len);
        reduction.pieces().into_iter().map(tell).collect()
    }

    #[test]
    fn pieces_are_listed_by_rank_and_a_lost_one_is_read_where_it_was_copied() {
        let (mut reduction, mut members) = reduction(Pattern::Gather);
        assert_eq!(reduction.unfinished(), 0);
        reduction.check();
        assert_eq!(listed(&reduction), [(Rank(0), 0, 10), (Rank(1), 0, 20), (Rank(2), 0, 30)]);
        lose_rank_2(&mut reduction, &mut members).unwrap();
        reduction.check();
        let at = listed(&reduction);
        assert_eq!(at[..2], [(Rank(0), 0, 10), (Rank(1), 0, 20)]);
        assert_eq!((at[2].1, at[2].2), (30, 30), "behind the other two");
        assert_ne!(at[2].0, Rank(2));
    }

    #[test]
    fn what_is_for_one_rank_alone_is_lost_with_its_owner() {
        let (mut reduction, mut members) = reduction(Pattern::Exchange(Cut::Even));
        let lost = Refusal::ContributionLost { ranks: Path::single(Rank(2)) };
        assert_eq!(lose_rank_2(&mut reduction, &mut members), Err(lost));
    }

    #[test]
    fn of_a_broadcast_only_the_piece_of_its_root_is_told() {
        let (reduction, _) = reduction(Pattern::Broadcast(Rank(1)));
        assert_eq!(listed(&reduction), [(Rank(1), 0, 20)]);
    }
}
