//! Pieces: contributions that are not folded. The result is the ranks' pieces side by side.
//!
//! A rank's contribution is its piece, or has a *block* for each rank of the group, one after the other. Where
//! blocks may differ in length, their lengths stand before them in a table: each reader reads the table of
//! each contribution, and then its own block.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{ByteRange, Rank};

/// Bytes of a block's length in a table.
const ENTRY_BYTES: u64 = 8;

/// Whose pieces go to the ranks that receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pattern {
    /// Each rank's contribution, as it is (`MPI_Gather`, `MPI_Allgather`).
    Gather,
    /// That of one rank, as it is (`MPI_Bcast`).
    Broadcast(Rank),
    /// Of that of one rank, the block of each receiver (`MPI_Scatter`).
    Scatter(Rank, Cut),
    /// Of each rank's contribution, the block of each receiver (`MPI_Alltoall`).
    Exchange(Cut),
}

/// How a contribution is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cut {
    /// All have the same length.
    Even,
    /// Their lengths stand before them.
    Listed,
}

/// A contribution is not cut as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are no {blocks} blocks")]
pub struct NoBlocks {
    bytes: u64,
    blocks: u64,
}

impl Pattern {
    /// The only rank whose contribution is in the result, if there is one.
    pub fn source(self) -> Option<Rank> {
        match self {
            Self::Broadcast(rank) | Self::Scatter(rank, _) => Some(rank),
            Self::Gather | Self::Exchange(_) => None,
        }
    }

    /// How contributions are cut, if each receiver has a block of its own.
    pub fn cut(self) -> Option<Cut> {
        match self {
            Self::Scatter(_, cut) | Self::Exchange(cut) => Some(cut),
            Self::Gather | Self::Broadcast(_) => None,
        }
    }
}

impl Cut {
    /// Bytes that stand before the blocks of a contribution.
    pub fn table_bytes(self, blocks: u64) -> u64 {
        match self {
            Self::Even => 0,
            Self::Listed => blocks.saturating_mul(ENTRY_BYTES),
        }
    }

    /// Where the block with this number, of so many, lies in a contribution of so many bytes which begins with
    /// `table`.
    ///
    /// # Errors
    /// There are no such blocks.
    pub fn block(self, table: &[u8], number: u64, blocks: u64, bytes: u64) -> Result<ByteRange, NoBlocks> {
        let wrong = NoBlocks { bytes, blocks };
        if number >= blocks {
            return Err(wrong);
        }
        match self {
            Self::Even if bytes.is_multiple_of(blocks) => {
                let len = bytes / blocks;
                Ok(ByteRange { start: number * len, len })
            }
            Self::Even => Err(wrong),
            Self::Listed => {
                let lengths = lengths(table);
                let mut start = self.table_bytes(blocks);
                let (mut found, mut count) = (None, 0);
                for (at, len) in (0..).zip(lengths) {
                    if at == number {
                        found = Some(ByteRange { start, len });
                    }
                    start = start.checked_add(len).ok_or(wrong)?;
                    count += 1;
                }
                found.filter(|_| count == blocks && start == bytes).ok_or(wrong)
            }
        }
    }
}

/// The table of blocks of these lengths in bytes.
pub fn table(lengths: impl IntoIterator<Item = u64>) -> Vec<u8> {
    lengths.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The lengths that stand in a table.
pub fn lengths(table: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let entry = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("a chunk is as long as an entry"));
    table.chunks_exact(ENTRY_BYTES as usize).map(entry)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gather => f.write_str("pieces of each rank"),
            Self::Broadcast(root) => write!(f, "the piece of rank {root}"),
            Self::Scatter(root, Cut::Even) => write!(f, "even blocks of rank {root}"),
            Self::Scatter(root, Cut::Listed) => write!(f, "blocks of rank {root}"),
            Self::Exchange(Cut::Even) => f.write_str("even blocks of each rank for each"),
            Self::Exchange(Cut::Listed) => f.write_str("blocks of each rank for each"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_lie_one_after_the_other(of in prop::collection::vec(0..100u64, 1..10)) {
            let blocks = of.len() as u64;
            let table = table(of.iter().copied());
            let mut next = Cut::Listed.table_bytes(blocks);
            let bytes = next + of.iter().sum::<u64>();
            for (number, len) in (0..).zip(of) {
                let block = Cut::Listed.block(&table, number, blocks, bytes);
                prop_assert_eq!(block, Ok(ByteRange { start: next, len }));
                next += len;
            }
            prop_assert!(Cut::Listed.block(&table, blocks, blocks, bytes).is_err());
            prop_assert!(Cut::Listed.block(&table, 0, blocks, bytes + 1).is_err());
            prop_assert!(Cut::Listed.block(&table[8..], 0, blocks, bytes).is_err());
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_in_a_table_a_block_lies_inside(
            table in prop::collection::vec(any::<u8>(), 0..40),
            number in 0..6u64,
            blocks in 0..6u64,
            bytes in any::<u64>(),
        ) {
            for cut in [Cut::Even, Cut::Listed] {
                if let Ok(block) = cut.block(&table, number, blocks, bytes) {
                    prop_assert!(block.start.checked_add(block.len).is_some_and(|end| end <= bytes));
                }
            }
        }
    }

    #[test]
    fn even_blocks_divide_a_contribution() {
        assert_eq!(Cut::Even.block(&[], 2, 4, 40), Ok(ByteRange { start: 20, len: 10 }));
        assert_eq!(Cut::Even.block(&[], 2, 4, 42), Err(NoBlocks { bytes: 42, blocks: 4 }));
        assert_eq!(Cut::Even.block(&[], 0, 0, 0), Err(NoBlocks { bytes: 0, blocks: 0 }));
        let endless = table([u64::MAX, u64::MAX]);
        assert!(Cut::Listed.block(&endless, 0, 2, 16).is_err(), "nobody's lengths overflow");
    }
}
