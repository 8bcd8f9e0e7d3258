//! How several blocks of elements become one.
//!
//! A kernel folds blocks of bytes into another in place. It reads up to eight of them at once, element by
//! element: that many streams keep the memory busy where one would wait. The loops run over whole slices of
//! one length with no branch inside, which is the shape the compiler turns into vector instructions; `cargo
//! bench --bench kernels` shows the bytes per second beside those of `memcpy`.

mod blocks;
mod element;
mod operation;

use std::{ops::Range, sync::Arc};

use bytemuck::Pod;
use bytes::Bytes;
use everfold_protocol::spec::{BodyKind, ElementType, Operation};

pub use self::element::{Element, Located, Value};

/// Folds blocks into the first, which is the leftmost operand. All have the same length and whole elements.
pub type Accumulate = Arc<dyn Fn(&mut [u8], &[&[u8]], Pass) + Send + Sync>;

/// Which operands of an [`Accumulate`] meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// One after the other: `((left ∘ right[0]) ∘ right[1]) ∘ …`.
    InTurn,
    /// Of two, four or eight operands neighbours, then their results, and so on.
    InPairs,
}

/// The kernel that combines elements of type `T` with `combine`.
pub fn element_wise<T: Pod>(combine: impl Fn(T, T) -> T + Send + Sync + 'static) -> Accumulate {
    Arc::new(move |left: &mut [u8], right: &[&[u8]], pass| blocks::each(left, right, pass, &combine))
}

/// The kernel for a predefined operation, if it is defined for `element`.
pub fn predefined(element: &ElementType, operation: &Operation) -> Option<Accumulate> {
    operation::lookup(element, operation).map(|kernel| Arc::new(kernel) as Accumulate)
}

/// Bytes of one block: what is being folded into stays in the cache while more sources than one pass takes go
/// by.
const BLOCK_BYTES: usize = 64 << 10;

/// What a fold starts from.
#[derive(Clone, Copy, Debug)]
pub enum Own<'a> {
    /// The target holds this rank's partial already.
    InPlace,
    /// The target is to be filled; this is what this rank holds.
    From(&'a [u8]),
}

/// Most operands that meet in one pass.
const PASS_MAX: usize = 8;

/// Which operands of a fold meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bracketing {
    /// Neighbours, then their results, and so on.
    Even {
        /// Number of the first operand.
        first: usize,
        /// How many there are: 1, 2, 4 or 8.
        count: usize,
    },
    /// What two others yield.
    Pair(Box<Self>, Box<Self>),
}

impl Bracketing {
    /// The operand of this number.
    pub fn operand(number: usize) -> Self {
        Self::Even { first: number, count: 1 }
    }

    /// What `left` and `right` yield.
    pub fn pair(left: Self, right: Self) -> Self {
        match (&left, &right) {
            (&Self::Even { first, count }, &Self::Even { first: second, count: others })
                if first + count == second && count == others && count < PASS_MAX =>
            {
                Self::Even { first, count: 2 * count }
            }
            _ => Self::Pair(Box::new(left), Box::new(right)),
        }
    }

    /// Its number, if it is one operand.
    fn single(&self) -> Option<usize> {
        match self {
            Self::Even { first, count: 1 } => Some(*first),
            _ => None,
        }
    }

    /// Results that wait for others at a time, besides the one that grows in the target.
    fn depth(&self) -> usize {
        match self {
            Self::Even { .. } => 0,
            Self::Pair(left, right) => {
                left.depth().max(right.depth() + usize::from(right.single().is_none()))
            }
        }
    }

    /// Evaluates into `target`, with room for other results in `scratch`. The operand that is `None` is in
    /// `target` already; it is the leftmost.
    fn evaluate(
        &self,
        operands: &[Option<&[u8]>],
        target: &mut [u8],
        scratch: &mut [u8],
        accumulate: &Accumulate,
    ) {
        let operand = |number: usize| operands[number].expect("only the leftmost is in the target");
        match self {
            Self::Even { first, count } => {
                operands[*first].into_iter().for_each(|first| target.copy_from_slice(first));
                let mut others: [&[u8]; PASS_MAX] = Default::default();
                let others = &mut others[1..*count];
                others.iter_mut().zip(first + 1..).for_each(|(other, number)| *other = operand(number));
                accumulate(target, others, Pass::InPairs);
            }
            Self::Pair(left, right) => {
                left.evaluate(operands, target, scratch, accumulate);
                if let Some(number) = right.single() {
                    accumulate(target, &[operand(number)], Pass::InTurn);
                } else {
                    let (result, scratch) = scratch.split_at_mut(target.len());
                    right.evaluate(operands, result, scratch, accumulate);
                    accumulate(target, &[result], Pass::InTurn);
                }
            }
        }
    }
}

/// Folds this rank's partial and all `sources` into `target`, one after the other, reading each byte once.
/// Blocks of `element_bytes` are never cut.
///
/// # Panics
/// If the lengths differ.
pub fn fold(
    target: &mut [u8],
    own: Own<'_>,
    sources: &[&[u8]],
    element_bytes: usize,
    accumulate: &Accumulate,
) {
    check_lengths(target, sources);
    let mut operands = Vec::with_capacity(sources.len());
    for block in blocks(target.len(), BLOCK_BYTES, element_bytes) {
        let target = &mut target[block.clone()];
        if let Own::From(own) = own {
            target.copy_from_slice(&own[block.clone()]);
        }
        operands.clear();
        operands.extend(sources.iter().map(|source| &source[block.clone()]));
        accumulate(target, &operands, Pass::InTurn);
    }
}

/// Folds inlined bodies of an array with a predefined operation, from left to right; nothing if one has
/// another length.
pub fn fold_inlined(kind: &BodyKind, bodies: &[Bytes]) -> Option<Bytes> {
    let BodyKind::Array { element, operation, .. } = kind else { return None };
    let ((bytes, element_bytes), accumulate) = (kind.array_bytes()?, predefined(element, operation)?);
    if bodies.iter().any(|body| body.len() as u64 != bytes) {
        return None;
    }
    let (first, others) = bodies.split_first()?;
    let others: Vec<&[u8]> = others.iter().map(|body| &body[..]).collect();
    let mut folded = first.to_vec();
    fold(&mut folded, Own::InPlace, &others, element_bytes as usize, &accumulate);
    Some(folded.into())
}

/// Folds this rank's partial and all `sources` into `target` as `bracketing` says, reading each byte once.
/// Operands are numbered from left to right; `own_number` is that of this rank's. Blocks of `element_bytes`
/// are never cut.
///
/// # Panics
/// If the lengths differ, or if an operand is named that does not exist.
pub fn fold_bracketed(
    target: &mut [u8],
    own: Own<'_>,
    own_number: usize,
    sources: &[&[u8]],
    bracketing: &Bracketing,
    element_bytes: usize,
    accumulate: &Accumulate,
) {
    check_lengths(target, sources);
    // Results that wait stay in the cache, too.
    let bytes = BLOCK_BYTES / (1 + bracketing.depth());
    let mut scratch = vec![0; bracketing.depth() * block_bytes(bytes, element_bytes)];
    let mut aside = Vec::new();
    for block in blocks(target.len(), bytes, element_bytes) {
        let target = &mut target[block.clone()];
        let mut operands: Vec<_> = sources.iter().map(|source| Some(&source[block.clone()])).collect();
        let own = match own {
            Own::From(own) => Some(&own[block]),
            Own::InPlace if own_number == 0 => None,
            Own::InPlace => {
                // Others stand left of it: they go first.
                aside.clear();
                aside.extend_from_slice(target);
                Some(&aside[..])
            }
        };
        operands.insert(own_number, own);
        bracketing.evaluate(&operands, target, &mut scratch, accumulate);
    }
}

fn check_lengths(target: &[u8], sources: &[&[u8]]) {
    for source in sources {
        assert_eq!(source.len(), target.len(), "all operands have the length of the segment");
    }
}

/// Bytes of a block of whole elements, about `bytes`.
fn block_bytes(bytes: usize, element_bytes: usize) -> usize {
    (bytes / element_bytes).max(1) * element_bytes
}

fn blocks(len: usize, bytes: usize, element_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let bytes = block_bytes(bytes, element_bytes);
    (0..len).step_by(bytes).map(move |start| start..len.min(start + bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither commutative nor associative.
    fn digest(left: u64, right: u64) -> u64 {
        (left.rotate_left(7) ^ right).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Brackets over these operands, and what they make of one element of each; there are some of every
    /// shape.
    fn shape(operands: Range<usize>, seed: usize, elements: &[u64]) -> (Bracketing, u64) {
        let count = operands.len();
        if count == 1 {
            return (Bracketing::operand(operands.start), elements[operands.start]);
        }
        let even = count.is_power_of_two() && !seed.is_multiple_of(3);
        let middle = operands.start + if even { count / 2 } else { 1 + seed % (count - 1) };
        let (left, one) = shape(operands.start..middle, seed + seed / 2, elements);
        let (right, other) = shape(middle..operands.end, seed + seed / 3, elements);
        (Bracketing::pair(left, right), digest(one, other))
    }

    #[test]
    fn inlined_bodies_are_folded_if_all_are_as_long_as_they_should_be() {
        let kind = BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length: 3 };
        // Bodies lie anywhere in their frames.
        let body = |value: f64, at: usize| {
            let bytes = [vec![0; at], bytemuck::cast_slice(&[value; 3]).to_vec()].concat();
            Bytes::from(bytes).slice(at..)
        };
        let folded = fold_inlined(&kind, &[body(1.5, 0), body(2.0, 3), body(4.0, 1)]);
        assert_eq!(folded, Some(body(7.5, 0)));
        assert_eq!(fold_inlined(&kind, &[body(1.5, 0), body(2.0, 0).slice(8..)]), None);
        assert_eq!(fold_inlined(&kind, &[]), None);
        let custom = Operation::Custom("of one's own".into());
        let kind = BodyKind::Array { element: ElementType::F64, operation: custom, length: 3 };
        assert_eq!(fold_inlined(&kind, &[body(1.5, 0), body(2.0, 0)]), None);
    }

    #[test]
    fn operands_meet_as_they_are_bracketed_wherever_the_own_one_stands() {
        const OPERANDS: usize = 11;
        let len = BLOCK_BYTES / 8 + 7;
        let operand = |rank| (0..len as u64).map(|index| index << 8 | rank).collect();
        let all: Vec<Vec<u64>> = (0..OPERANDS as u64).map(operand).collect();
        let blocks: Vec<&[u8]> = all.iter().map(|operand| bytemuck::cast_slice(operand)).collect();
        let accumulate = element_wise(digest);
        for seed in 0..40 {
            let at = |index: usize| {
                let elements: Vec<u64> = all.iter().map(|operand| operand[index]).collect();
                shape(0..OPERANDS, seed, &elements)
            };
            let bracketing = at(0).0;
            let expected: Vec<u64> = (0..len).map(|index| at(index).1).collect();
            for own in 0..OPERANDS {
                let sources: Vec<&[u8]> = (0..OPERANDS).filter(|&r| r != own).map(|r| blocks[r]).collect();
                let fold = |target: &mut [u64], from| {
                    let target = bytemuck::cast_slice_mut(target);
                    fold_bracketed(target, from, own, &sources, &bracketing, 8, &accumulate);
                };
                let mut in_place = all[own].clone();
                fold(&mut in_place, Own::InPlace);
                assert!(in_place == expected, "{bracketing:?}, in place at {own}");
                let mut fresh = vec![99; len];
                fold(&mut fresh, Own::From(blocks[own]));
                assert!(fresh == expected, "{bracketing:?}, fresh at {own}");
            }
        }
    }

    #[test]
    fn any_length_is_folded() {
        let add = element_wise(|left: [u8; 3], right: [u8; 3]| std::array::from_fn(|i| left[i] ^ right[i]));
        for elements in [1, BLOCK_BYTES / 3, BLOCK_BYTES / 3 + 1] {
            let (own, source) = (vec![1; elements * 3], vec![2; elements * 3]);
            let mut target = vec![0; elements * 3];
            fold(&mut target, Own::From(&own), &[&source, &own], 3, &add);
            fold(&mut target, Own::InPlace, &[&own], 3, &add);
            assert_eq!(target, vec![3; elements * 3], "{elements} elements");
        }
    }
}
