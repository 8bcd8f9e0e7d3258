//! What a rank, or many of them, have folded of a recovery segment: values, and the grains in each.
//!
//! The grains are to a recovery segment what the path is to a reduction. Only partials without a common grain
//! meet, so a grain counts once, whoever computed it and however often.

use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Combine, indices::Indices};

/// A grain that is in two partials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twice(pub u64);

/// Folded grains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "B: Serialize", deserialize = "B: Deserialize<'de>"))]
pub enum Partials<B> {
    /// One value. Grains meet in any order.
    Arrival {
        /// What is in it.
        grains: Indices,
        /// Absent as long as there are no grains.
        value: Option<B>,
    },
    /// Values that have met as the tree says whose leaves are the grains.
    Fixed(Vec<Block<B>>),
}

/// A node of the tree: the value of grains `index << level .. (index + 1) << level`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "B: Serialize", deserialize = "B: Deserialize<'de>"))]
pub struct Block<B> {
    level: u32,
    index: u64,
    value: B,
}

impl<B> Block<B> {
    fn grains(&self) -> Range<u64> {
        self.index << self.level..(self.index + 1) << self.level
    }

    /// Whether `right` is the other half of their common parent, and on the right.
    fn is_left_of_sibling(&self, right: &Self) -> bool {
        self.level == right.level && self.index.is_multiple_of(2) && right.index == self.index + 1
    }
}

impl<B: Combine> Partials<B> {
    /// No grains.
    pub fn new(is_fixed: bool) -> Self {
        match is_fixed {
            true => Self::Fixed(Vec::new()),
            false => Self::Arrival { grains: Indices::default(), value: None },
        }
    }

    /// The grains that are in it.
    pub fn grains(&self) -> Indices {
        match self {
            Self::Arrival { grains, .. } => grains.clone(),
            Self::Fixed(blocks) => {
                let mut grains = Indices::default();
                let added = blocks.iter().try_for_each(|block| grains.insert(block.grains()));
                added.expect("blocks with a common grain are never put side by side");
                grains
            }
        }
    }

    /// Whether it has no grains but those of `share`, in this order.
    pub fn is_of(&self, share: &Indices, is_fixed: bool) -> bool {
        let has_order = matches!(self, Self::Fixed(_)) == is_fixed;
        has_order && self.grains().ranges().all(|range| share.holes(range).is_empty())
    }

    /// Takes in the value of one grain.
    ///
    /// # Errors
    /// If the grain is there already. Nothing has changed then.
    pub fn add(&mut self, grain: u64, value: B) -> Result<(), Twice> {
        match self {
            Self::Arrival { grains, value: sum } => {
                grains.insert(grain..grain + 1).map_err(|twice| Twice(twice.start))?;
                fold_into(sum, Some(value));
                Ok(())
            }
            Self::Fixed(blocks) => place(blocks, Block { level: 0, index: grain, value }),
        }
    }

    /// Takes in all of `other`, which has the same order.
    ///
    /// # Errors
    /// If both have a grain in common. The value is useless then.
    pub fn unite(&mut self, other: Self) -> Result<(), Twice> {
        match (self, other) {
            (Self::Arrival { grains, value }, Self::Arrival { grains: more, value: other }) => {
                grains.unite(&more).map_err(|twice| Twice(twice.start))?;
                fold_into(value, other);
                Ok(())
            }
            (Self::Fixed(blocks), Self::Fixed(more)) => {
                more.into_iter().try_for_each(|block| place(blocks, block))
            }
            _ => unreachable!("ranks that give different orders are told so before their bodies meet"),
        }
    }

    /// The value of all grains; none if there are none. Blocks without a sibling are folded from left to
    /// right.
    pub fn into_value(self) -> Option<B> {
        match self {
            Self::Arrival { value, .. } => value,
            Self::Fixed(blocks) => blocks.into_iter().map(|block| block.value).reduce(|mut left, right| {
                left.combine(right);
                left
            }),
        }
    }
}

fn fold_into<B: Combine>(sum: &mut Option<B>, value: Option<B>) {
    match (sum.as_mut(), value) {
        (Some(sum), Some(value)) => sum.combine(value),
        (None, value) => *sum = value,
        (Some(_), None) => {}
    }
}

/// Puts `block` among ascending blocks, and folds siblings as long as there are any.
fn place<B: Combine>(blocks: &mut Vec<Block<B>>, block: Block<B>) -> Result<(), Twice> {
    let grains = block.grains();
    let at = blocks.partition_point(|other| other.grains().start < grains.start);
    if let Some(left) = at.checked_sub(1).and_then(|left| blocks.get(left))
        && left.grains().end > grains.start
    {
        return Err(Twice(grains.start));
    }
    if let Some(right) = blocks.get(at)
        && right.grains().start < grains.end
    {
        return Err(Twice(right.grains().start));
    }
    blocks.insert(at, block);
    let mut at = at;
    loop {
        let siblings = |left: usize| {
            blocks.get(left).zip(blocks.get(left + 1)).is_some_and(|(a, b)| a.is_left_of_sibling(b))
        };
        at = match at.checked_sub(1).filter(|&left| siblings(left)) {
            Some(left) => left,
            None if siblings(at) => at,
            None => return Ok(()),
        };
        let right = blocks.remove(at + 1);
        let left = &mut blocks[at];
        left.value.combine(right.value);
        (left.level, left.index) = (left.level + 1, left.index / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The expression by which a value came about.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Text(String);

    impl Combine for Text {
        fn combine(&mut self, other: Self) {
            self.0 = format!("({} {})", self.0, other.0);
        }
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Count(u64);

    impl Combine for Count {
        fn combine(&mut self, other: Self) {
            self.0 += other.0;
        }
    }

    fn text(grain: u64) -> Text {
        Text(grain.to_string())
    }

    /// What one rank that computes everything finds.
    fn alone(grains: u64) -> Option<Text> {
        let mut all = Partials::new(true);
        (0..grains).for_each(|grain| all.add(grain, text(grain)).expect("each comes once"));
        all.into_value()
    }

    #[test]
    fn the_tree_is_that_of_the_grains() {
        assert_eq!(alone(0), None);
        let five = alone(5).expect("there are grains");
        assert_eq!(five, Text("(((0 1) (2 3)) 4)".to_owned()));
        let seven = alone(7).expect("there are grains");
        assert_eq!(seven, Text("((((0 1) (2 3)) (4 5)) 6)".to_owned()));
    }

    #[test]
    fn a_grain_that_comes_twice_is_told() {
        for is_fixed in [false, true] {
            let mut one = Partials::new(is_fixed);
            (2..6).for_each(|grain| one.add(grain, Count(1)).expect("each comes once"));
            assert_eq!(one.add(4, Count(1)), Err(Twice(4)));
            assert_eq!(one.grains(), Indices::range(2..6));
            let mut other = Partials::new(is_fixed);
            (5..9).for_each(|grain| other.add(grain, Count(1)).expect("each comes once"));
            assert_eq!(one.unite(other), Err(Twice(5)), "fixed: {is_fixed}");
        }
    }

    #[test]
    fn partials_are_of_a_share_that_has_all_their_grains_in_the_same_order() {
        for is_fixed in [false, true] {
            let mut partials = Partials::new(is_fixed);
            (2..6).for_each(|grain| partials.add(grain, Count(1)).expect("each comes once"));
            assert!(partials.is_of(&Indices::range(0..6), is_fixed));
            assert!(!partials.is_of(&Indices::range(0..5), is_fixed), "grain 5 is another rank's");
            assert!(!partials.is_of(&Indices::range(0..6), !is_fixed));
        }
    }

    /// Each grain goes to one of several ranks, and these meet in some order.
    fn meet<B: Combine>(
        owners: &[usize],
        order: &[usize],
        is_fixed: bool,
        value: impl Fn(u64) -> B,
    ) -> Partials<B> {
        let mut ranks: Vec<Partials<B>> = (0..order.len()).map(|_| Partials::new(is_fixed)).collect();
        for (grain, owner) in owners.iter().enumerate() {
            ranks[*owner].add(grain as u64, value(grain as u64)).expect("each comes once");
        }
        // Two of those that are left meet, until one is left.
        for at in order {
            let other = ranks.swap_remove(at % ranks.len());
            match ranks.len() {
                0 => return other,
                left => ranks[at % left].unite(other).expect("each grain has one owner"),
            }
        }
        unreachable!("there are as many meetings as ranks")
    }

    proptest! {
        #[test]
        fn whoever_computes_what_and_meets_when_the_expression_is_the_same(
            owners in prop::collection::vec(0..5usize, 0..40),
            order in prop::collection::vec(any::<usize>(), 5),
        ) {
            let all = meet(&owners, &order, true, text);
            prop_assert_eq!(all.grains(), Indices::range(0..owners.len() as u64));
            prop_assert_eq!(all.into_value(), alone(owners.len() as u64));
        }

        #[test]
        fn in_any_order_each_grain_counts_once(
            owners in prop::collection::vec(0..5usize, 0..40),
            order in prop::collection::vec(any::<usize>(), 5),
        ) {
            let all = meet(&owners, &order, false, |grain| Count(1 << grain));
            prop_assert_eq!(all.grains(), Indices::range(0..owners.len() as u64));
            let sum = all.into_value().unwrap_or_default();
            prop_assert_eq!(sum, Count((1 << owners.len()) - 1));
        }

        #[test]
        fn partials_with_a_common_grain_never_meet(
            one in prop::collection::btree_set(0..30u64, 0..20),
            other in prop::collection::btree_set(0..30u64, 0..20),
            is_fixed: bool,
        ) {
            let of = |grains: &std::collections::BTreeSet<u64>| {
                let mut partials = Partials::new(is_fixed);
                grains.iter().for_each(|grain| partials.add(*grain, Count(1)).expect("each comes once"));
                partials
            };
            let united = of(&one).unite(of(&other));
            prop_assert_eq!(united.is_ok(), one.is_disjoint(&other));
        }
    }
}
