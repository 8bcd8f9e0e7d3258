//! The fixed order: which operands meet, at any rank and at any time ([`Order::Fixed`](crate::spec::Order)).
//!
//! The ranks of a reduction's group, as it was agreed on, are in ascending order the leaves 0, 1, 2 … of a
//! binary tree. A node of level `l` stands over the 2^l leaves from a multiple of 2^l on. Its value is that
//! of its left half `∘` that of its right half; where one of them is empty, because the group ends before it
//! or its contributions are missing, it is that of the other.
//!
//! The contributions under a node are a *bracket*. In this order partials are brackets, always. Hence a value
//! depends on the bodies, the group and what is missing: not on arrival, placement, segments, transport or
//! failures (I8).

use crate::path::Path;
use alloc::vec::Vec;

/// The positions of a partial's first and last contribution in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// That of its first.
    pub first: usize,
    /// That of its last.
    pub last: usize,
}

impl Span {
    /// Where a partial of `path` lies in `group`; `None` if it is empty or not a part of it.
    pub fn of(path: &Path, group: &Path) -> Option<Self> {
        let position = |rank| group.position(rank);
        Some(Self { first: path.first().and_then(position)?, last: path.last().and_then(position)? })
    }
}

/// Level of the lowest node over the leaves at both positions; 0 for one leaf.
pub fn level(one: usize, other: usize) -> u32 {
    usize::BITS - (one ^ other).leading_zeros()
}

/// Folds the partials of a bracket, given from left to right, in the fixed order.
///
/// ```
/// use everfold_protocol::bracketing::{Span, fold};
///
/// let leaves = (0..6).map(|at| (Span { first: at, last: at }, at.to_string()));
/// let text = fold(leaves, |left, right| format!("({left} {right})"));
/// assert_eq!(text.as_deref(), Some("(((0 1) (2 3)) (4 5))"));
/// ```
pub fn fold<T>(
    operands: impl IntoIterator<Item = (Span, T)>,
    mut combine: impl FnMut(T, T) -> T,
) -> Option<T> {
    // Neighbours on the stack meet the later the further down they are.
    let mut stack: Vec<(Span, T)> = Vec::new();
    let mut meet = |stack: &mut Vec<(Span, T)>, below: u32| {
        while let [.., (left, _), (right, _)] = stack.as_slice()
            && level(left.last, right.first) < below
        {
            let met = stack.pop().zip(stack.pop());
            let ((right, second), (left, first)) = met.expect("there are two");
            let span = Span { first: left.first, last: right.last };
            stack.push((span, combine(first, second)));
        }
    };
    for (span, operand) in operands {
        if let Some((before, _)) = stack.last() {
            let joint = level(before.last, span.first);
            meet(&mut stack, joint);
        }
        stack.push((span, operand));
    }
    meet(&mut stack, u32::MAX);
    stack.pop().map(|(_, whole)| whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition: the value of the node over `positions`, of which `present` have contributed.
    fn node(positions: core::ops::Range<usize>, present: &[usize]) -> Option<String> {
        if positions.len() == 1 {
            return present.contains(&positions.start).then(|| positions.start.to_string());
        }
        let middle = positions.start + positions.len() / 2;
        match (node(positions.start..middle, present), node(middle..positions.end, present)) {
            (Some(left), Some(right)) => Some(format!("({left} {right})")),
            (left, right) => left.or(right),
        }
    }

    proptest! {
        /// Any brackets may have been formed before, and any contributions may be missing.
        #[test]
        fn a_fold_is_the_node_over_its_operands(
            present in prop::collection::btree_set(0usize..64, 1..40),
            height in 0u32..6,
        ) {
            let present: Vec<usize> = present.into_iter().collect();
            let brackets = (0..64usize).step_by(1 << height).filter_map(|start| {
                let range = start..start + (1 << height);
                let within = present.iter().filter(|at| range.contains(at));
                let span = Span { first: *within.clone().min()?, last: *within.max()? };
                Some((span, node(range, &present)?))
            });
            let folded = fold(brackets, |left, right| format!("({left} {right})"));
            prop_assert_eq!(folded, node(0..64, &present));
        }
    }

    #[test]
    fn levels() {
        let levels = [(3, 3), (0, 1), (1, 2), (2, 3), (3, 4), (0, 7), (7, 8)].map(|(a, b)| level(a, b));
        assert_eq!(levels, [0, 1, 2, 1, 3, 3, 4]);
    }
}
