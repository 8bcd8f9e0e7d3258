//! What bodies are made of here: the ranks that are folded into them, in order.
//!
//! Where the order is fixed, whatever two operands yield stands between [`OPEN`] and [`CLOSE`]: such evidence
//! is the whole expression that was computed. If it is the one that the order prescribes, so is every bit of
//! a sum of floating-point numbers.

use std::ops::Range;

use bytes::Bytes;
use everfold_protocol::{Path, Rank, message::Data, spec::BodyKind};

/// Stands for bytes that are not what they should be.
pub(crate) const NONSENSE: Rank = Rank(u32::MAX - 1);
/// Before two operands that have met.
pub const OPEN: Rank = Rank(u32::MAX - 2);
/// Behind them.
pub const CLOSE: Rank = Rank(u32::MAX - 3);

/// What `left` and `right` yield where the order is fixed.
pub(crate) fn pair(left: Vec<Rank>, right: Vec<Rank>) -> Vec<Rank> {
    [vec![OPEN], left, right, vec![CLOSE]].concat()
}

/// Whether `evidence` has every rank of `path` once, and no other.
pub(crate) fn is_fold_of(path: &Path, evidence: &[Rank]) -> bool {
    let ranks = evidence.iter().copied().filter(|rank| ![OPEN, CLOSE].contains(rank));
    ranks.clone().collect::<Path>() == *path && ranks.count() == path.len()
}

/// What a reduction in the fixed order is to yield: `group` was agreed on, `contributors` are those of it
/// that count.
pub fn in_fixed_order(group: &Path, contributors: &Path) -> Vec<Rank> {
    fn node(positions: Range<usize>, leaves: &[Option<Rank>]) -> Vec<Rank> {
        if positions.len() == 1 {
            return leaves.get(positions.start).copied().flatten().into_iter().collect();
        }
        let middle = positions.start + positions.len() / 2;
        let (left, right) = (node(positions.start..middle, leaves), node(middle..positions.end, leaves));
        match (left.is_empty(), right.is_empty()) {
            (false, false) => pair(left, right),
            _ => [left, right].concat(),
        }
    }
    let leaves: Vec<_> = group.iter().map(|rank| contributors.contains(rank).then_some(rank)).collect();
    node(0..leaves.len().next_power_of_two(), &leaves)
}

/// What the master makes of inlined evidence: its ranks side by side.
pub(crate) fn fold(_: &BodyKind, bodies: &[Bytes]) -> Option<Bytes> {
    Some(bodies.concat().into())
}

/// For people.
pub(crate) fn text(evidence: &[Rank]) -> String {
    let words = evidence.iter().map(|rank| match *rank {
        OPEN => "(".to_owned(),
        CLOSE => ")".to_owned(),
        NONSENSE => "nonsense".to_owned(),
        rank => rank.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Evidence that travels in a message: the ranks that are folded, in order.
pub(crate) fn inlined(ranks: &[Rank]) -> Data {
    Data::Inline(ranks.iter().flat_map(|rank| rank.0.to_le_bytes()).collect())
}

/// The ranks in [`inlined`] evidence.
pub(crate) fn ranks_in(bytes: &[u8]) -> Vec<Rank> {
    bytes.as_chunks().0.iter().map(|rank| Rank(u32::from_le_bytes(*rank))).collect()
}
