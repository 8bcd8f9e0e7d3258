//! What a rank gives where each receiver has a piece of its own.

use std::sync::Arc;

use everfold_protocol::{
    Rank,
    pieces::{self, Cut},
    report::Refusal,
};
use everfold_runtime::memory::{buffer::Memory, region::Region};

use super::piece::Piece;
use crate::{error::ReduceError, operations::Elements};

/// A piece for each rank of the group: a `Vec` of pieces, in the order of the ranks, which may differ in length;
/// or one array that is cut [evenly](Even).
pub trait Blocks: Send + Sized + 'static {
    /// What they are pieces of.
    type Piece: Piece;

    #[doc(hidden)]
    const CUT: Cut;

    /// Their memory, and the number of elements if that has to be the same on all ranks.
    #[doc(hidden)]
    fn into_memory(self, giver: &Giver<'_>) -> Result<(Box<dyn Memory>, Option<u64>), ReduceError>;
}

/// Who gives pieces, to how many ranks, and where memory is that others can map.
#[doc(hidden)]
pub struct Giver<'a> {
    pub(super) rank: Rank,
    pub(super) ranks: u64,
    pub(super) region: Option<&'a Arc<Region>>,
}

/// One array that is cut into pieces of the same length, one for each rank of the group. Its length is a
/// multiple of their number. It is not cut up: a long array of [`Session::array`](crate::Session::array) is
/// read where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Even<A>(pub A);

impl<A: Elements> Blocks for Even<A> {
    type Piece = A;

    const CUT: Cut = Cut::Even;

    fn into_memory(self, giver: &Giver<'_>) -> Result<(Box<dyn Memory>, Option<u64>), ReduceError> {
        let &Giver { rank, ranks, .. } = giver;
        let memory = Elements::into_memory(self.0);
        let length = A::length(&*memory);
        match length.filter(|length| !length.is_multiple_of(ranks)) {
            Some(length) => Err(Refusal::Uneven { rank, length, ranks }.into()),
            None => Ok((memory, length)),
        }
    }
}

impl<P: Piece> Blocks for Vec<P> {
    type Piece = P;

    const CUT: Cut = Cut::Listed;

    fn into_memory(self, giver: &Giver<'_>) -> Result<(Box<dyn Memory>, Option<u64>), ReduceError> {
        let &Giver { rank, ranks, region } = giver;
        let count = self.len() as u64;
        if count != ranks {
            return Err(Refusal::WrongPieces { rank, pieces: count, ranks }.into());
        }
        let unfit = |error| ReduceError::Body(everfold_runtime::executor::ShareError::from(error));
        let blocks: Vec<Box<dyn Memory>> =
            self.into_iter().map(|piece| piece.into_memory().map_err(unfit)).collect::<Result<_, _>>()?;
        let table = pieces::table(blocks.iter().map(|block| block.bytes().len() as u64));
        let parts = || std::iter::once(&table[..]).chain(blocks.iter().map(|block| block.bytes()));
        let bytes = parts().map(<[u8]>::len).sum();
        let mut memory: Box<dyn Memory> = match region.and_then(|region| region.allocate(bytes)) {
            Some(block) => Box::new(block),
            None => Box::new(vec![0u8; bytes]),
        };
        let mut rest = memory.bytes_mut();
        for part in parts() {
            let (place, left) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = left;
        }
        Ok((memory, None))
    }
}
