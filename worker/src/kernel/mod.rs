//! How several blocks of elements become one.
//!
//! A kernel folds blocks of bytes into another in place. It reads up to eight of them at once, element by element: that
//! many streams keep the memory busy where one would wait. The loops run over whole slices of one length with no
//! branch inside, which is the shape the compiler turns into vector instructions; `cargo bench --bench kernels` shows
//! the bytes per second beside those of `memcpy`.

mod operation;

use std::sync::Arc;

use bytemuck::Pod;
use everfold_protocol::spec::{ElementType, Operation};
pub use operation::{Element, Located, Value};

/// Folds blocks into the first: `left = left ∘ right[0] ∘ right[1] ∘ …`. All have the same length and whole elements.
pub type Accumulate = Arc<dyn Fn(&mut [u8], &[&[u8]]) + Send + Sync>;

/// The kernel that combines elements of type `T` with `combine`.
pub fn element_wise<T: Pod>(combine: impl Fn(T, T) -> T + Send + Sync + 'static) -> Accumulate {
    Arc::new(move |left: &mut [u8], right: &[&[u8]]| operation::each(left, right, &combine))
}

/// The kernel for a predefined operation, if it is defined for `element`.
pub fn predefined(element: &ElementType, operation: &Operation) -> Option<Accumulate> {
    operation::lookup(element, operation).map(|kernel| Arc::new(kernel) as Accumulate)
}

/// Bytes of one block: what is being folded into stays in the cache while more sources than one pass takes go by.
const BLOCK_BYTES: usize = 64 << 10;

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
    for source in sources {
        assert_eq!(source.len(), target.len(), "all operands have the length of the segment");
    }
    let block_bytes = (BLOCK_BYTES / element_bytes).max(1) * element_bytes;
    let mut scratch = Vec::new();
    let mut operands = Vec::with_capacity(sources.len());
    for start in (0..target.len()).step_by(block_bytes) {
        let block = start..target.len().min(start + block_bytes);
        let target = &mut target[block.clone()];
        operands.clear();
        operands.extend(sources.iter().map(|source| &source[block.clone()]));
        if own_position == 0 {
            if let Own::From(own) = own {
                target.copy_from_slice(&own[block]);
            }
            accumulate(target, &operands);
        } else {
            // The leftmost operand is a source: this rank's own goes in when its turn comes.
            scratch.clear();
            scratch.extend_from_slice(match own {
                Own::InPlace => target,
                Own::From(own) => &own[block],
            });
            target.copy_from_slice(operands[0]);
            accumulate(target, &operands[1..own_position]);
            accumulate(target, &[&scratch]);
            accumulate(target, &operands[own_position..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not commutative, on bytes: keeps the left operand unless it is zero.
    fn leftmost() -> Accumulate {
        element_wise(|left: u8, right| if left == 0 { right } else { left })
    }

    #[test]
    fn operands_keep_their_order_wherever_the_own_one_stands() {
        let len = 2 * BLOCK_BYTES + 7;
        let operand = |rank: usize| -> Vec<u8> {
            // Byte `i` is zero on the first `i % 4` ranks, so that every rank is the leftmost somewhere.
            (0..len).map(|i| if rank < i % 4 { 0 } else { rank as u8 + 1 }).collect()
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
