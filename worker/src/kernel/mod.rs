//! How two blocks of elements become one.
//!
//! A kernel folds a block of bytes into another in place. The loops run over whole chunks of a fixed width with no
//! branch inside, which is the shape the compiler turns into vector instructions; `cargo bench --bench kernels` shows
//! the bytes per second beside those of `memcpy`.

mod operation;

use std::sync::Arc;

use everfold_protocol::spec::{ElementType, Operation};
pub use operation::{Element, Located, Value};

/// Folds the second block into the first: `left = left ∘ right`. Both have the same length and whole elements.
pub type Accumulate = Arc<dyn Fn(&mut [u8], &[u8]) + Send + Sync>;

/// The kernel for a predefined operation, if it is defined for `element`.
pub fn predefined(element: &ElementType, operation: &Operation) -> Option<Accumulate> {
    operation::lookup(element, operation).map(|kernel| Arc::new(kernel) as Accumulate)
}

/// Bytes of one block: small enough that the block being folded into stays in the first-level cache while the
/// sources stream by.
const BLOCK_BYTES: usize = 32 << 10;

/// What a fold starts from.
#[derive(Clone, Copy, Debug)]
pub enum Own<'a> {
    /// The target holds this rank's partial already.
    InPlace,
    /// The target is to be filled; this is what this rank holds.
    From(&'a [u8]),
}

/// Folds this rank's partial and all `sources` into `target`, reading each byte once.
///
/// `own_position` is the number of sources whose operands stand left of this rank's; the sources are in that order.
/// Commutative operations may pass 0. Blocks of `element_bytes` are never cut.
///
/// # Panics
/// If the lengths differ.
pub fn fold(
    target: &mut [u8],
    own: Own<'_>,
    sources: &[&[u8]],
    own_position: usize,
    element_bytes: usize,
    accumulate: &Accumulate,
) {
    let block_bytes = (BLOCK_BYTES / element_bytes).max(1) * element_bytes;
    let mut scratch = Vec::new();
    for start in (0..target.len()).step_by(block_bytes) {
        let block = start..target.len().min(start + block_bytes);
        let target = &mut target[block.clone()];
        let source = |index: usize| &sources[index][block.clone()];
        if own_position == 0 {
            if let Own::From(own) = own {
                target.copy_from_slice(&own[block.clone()]);
            }
        } else {
            // The leftmost operand is a source: this rank's own goes in when its turn comes.
            scratch.clear();
            scratch.extend_from_slice(match own {
                Own::InPlace => target,
                Own::From(own) => &own[block.clone()],
            });
            target.copy_from_slice(source(0));
        }
        for index in usize::from(own_position > 0)..sources.len() {
            if index == own_position && index > 0 {
                accumulate(target, &scratch);
            }
            accumulate(target, source(index));
        }
        if own_position == sources.len() && own_position > 0 {
            accumulate(target, &scratch);
        }
    }
    for source in sources {
        assert_eq!(
            source.len(),
            target.len(),
            "all operands have the length of the segment"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not commutative, on bytes: keeps the left operand unless it is zero.
    fn leftmost() -> Accumulate {
        Arc::new(|left: &mut [u8], right: &[u8]| {
            for (left, right) in left.iter_mut().zip(right) {
                if *left == 0 {
                    *left = *right;
                }
            }
        })
    }

    #[test]
    fn operands_keep_their_order_wherever_the_own_one_stands() {
        let len = 2 * BLOCK_BYTES + 7;
        let operand = |rank: usize| -> Vec<u8> {
            // Byte `i` is zero on the first `i % 4` ranks, so that every rank is the leftmost somewhere.
            (0..len)
                .map(|i| if rank < i % 4 { 0 } else { rank as u8 + 1 })
                .collect()
        };
        let all: Vec<_> = (0..4).map(operand).collect();
        let expected: Vec<u8> = (0..len).map(|i| (i % 4) as u8 + 1).collect();
        for own in 0..4 {
            let sources: Vec<&[u8]> = (0..4).filter(|&r| r != own).map(|r| all[r].as_slice()).collect();
            let mut in_place = all[own].clone();
            fold(&mut in_place, Own::InPlace, &sources, own, 1, &leftmost());
            assert_eq!(in_place, expected, "in place at {own}");
            let mut fresh = vec![99; len];
            fold(&mut fresh, Own::From(&all[own]), &sources, own, 1, &leftmost());
            assert_eq!(fresh, expected, "fresh at {own}");
        }
    }
}
