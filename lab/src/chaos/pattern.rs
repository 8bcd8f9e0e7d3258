//! Bodies whose sum tells exactly who is in it.
//!
//! Element `i` of rank `r` is `weight(r) · m(i) + offset(r)`, modulo 2⁶⁴, with numbers that look random. The
//! sum over a set of ranks is then as easy to compute as one body, and every element shows a rank that is
//! missing or counted twice, and an element that is in the wrong place.

use everfold::{Array, Path, ReducerBody, Session, Sum};
use serde::{Deserialize, Serialize};

/// Mixes the bits of a number (splitmix64).
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What one rank contributes in one round, or what several do in sum.
#[derive(Clone, Copy, Debug, Default)]
struct Pattern {
    weight: u64,
    offset: u64,
}

impl Pattern {
    fn of(rank: u32, round: u64) -> Self {
        let seed = mix(round << 32 | u64::from(rank));
        Self { weight: mix(seed), offset: mix(seed ^ 1) }
    }

    fn of_all(ranks: &Path, round: u64) -> Self {
        ranks.iter().map(|rank| Self::of(rank.0, round)).fold(Self::default(), |sum, one| Self {
            weight: sum.weight.wrapping_add(one.weight),
            offset: sum.offset.wrapping_add(one.offset),
        })
    }

    fn element(self, index: usize) -> u64 {
        self.weight.wrapping_mul(mix(index as u64)).wrapping_add(self.offset)
    }

    fn fill(self, elements: &mut [u64]) {
        for (index, element) in elements.iter_mut().enumerate() {
            *element = self.element(index);
        }
    }
}

/// Says what is wrong first if `elements` is not the sum of what `contributors` gave in `round`.
fn check_elements(elements: &[u64], contributors: &Path, round: u64) -> Result<(), String> {
    let pattern = Pattern::of_all(contributors, round);
    match elements.iter().enumerate().find(|(index, element)| **element != pattern.element(*index)) {
        None => Ok(()),
        Some((index, element)) => Err(format!(
            "element {index} of {} is {element:#x}, not {:#x}, the sum over ranks {contributors}",
            elements.len(),
            pattern.element(index),
        )),
    }
}

/// A body of the built-in program.
pub trait Checked: Sized {
    /// What `rank` contributes in `round`.
    fn contribution(session: &Session, round: u64, elements: usize) -> Self;

    /// Says what is wrong first if this is not what `contributors` gave in `round`.
    fn check(&self, contributors: &Path, round: u64) -> Result<(), String>;
}

impl Checked for Sum<Array<u64>> {
    fn contribution(session: &Session, round: u64, elements: usize) -> Self {
        let mut array = session.array(elements);
        Pattern::of(session.rank().0, round).fill(&mut array);
        Self(array)
    }

    fn check(&self, contributors: &Path, round: u64) -> Result<(), String> {
        check_elements(&self.0, contributors, round)
    }
}

impl Checked for Sum<Vec<u64>> {
    fn contribution(session: &Session, round: u64, elements: usize) -> Self {
        let mut vec = vec![0; elements];
        Pattern::of(session.rank().0, round).fill(&mut vec);
        Self(vec)
    }

    fn check(&self, contributors: &Path, round: u64) -> Result<(), String> {
        check_elements(&self.0, contributors, round)
    }
}

/// A sum that also lists whose it is.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listed {
    elements: Vec<u64>,
    ranks: Vec<u32>,
}

impl ReducerBody for Listed {
    fn combine(&mut self, other: Self) {
        for (mine, theirs) in self.elements.iter_mut().zip(other.elements) {
            *mine = mine.wrapping_add(theirs);
        }
        self.ranks.extend(other.ranks);
    }
}

impl Checked for Listed {
    fn contribution(session: &Session, round: u64, elements: usize) -> Self {
        let Sum(elements) = Sum::<Vec<u64>>::contribution(session, round, elements);
        Self { elements, ranks: vec![session.rank().0] }
    }

    fn check(&self, contributors: &Path, round: u64) -> Result<(), String> {
        let mut ranks = self.ranks.clone();
        ranks.sort_unstable();
        if !ranks.iter().copied().eq(contributors.iter().map(|rank| rank.0)) {
            return Err(format!("ranks {ranks:?} are in it, but the report says {contributors}"));
        }
        check_elements(&self.elements, contributors, round)
    }
}

#[cfg(test)]
mod tests {
    use everfold::Rank;

    use super::*;

    fn path(ranks: &[u32]) -> Path {
        ranks.iter().copied().map(Rank).collect()
    }

    fn sum(ranks: &[u32], elements: usize) -> Vec<u64> {
        let mut sum = vec![0u64; elements];
        for &rank in ranks {
            let mut one = vec![0; elements];
            Pattern::of(rank, 3).fill(&mut one);
            sum.iter_mut().zip(one).for_each(|(sum, one)| *sum = sum.wrapping_add(one));
        }
        sum
    }

    #[test]
    fn only_the_sum_over_exactly_these_ranks_is_right() {
        let ranks = path(&[0, 2, 5]);
        assert_eq!(check_elements(&sum(&[5, 0, 2], 100), &ranks, 3), Ok(()));
        for wrong in [&[0, 2][..], &[0, 2, 5, 5], &[0, 2, 6], &[0, 2, 5, 7], &[1, 1, 5]] {
            let said = check_elements(&sum(wrong, 100), &ranks, 3).unwrap_err();
            assert!(said.starts_with("element 0 of 100 "), "{said}");
        }
        assert!(check_elements(&sum(&[0, 2, 5], 100), &ranks, 4).is_err(), "another round");
        let mut moved = sum(&[0, 2, 5], 100);
        moved.swap(41, 42);
        assert!(check_elements(&moved, &ranks, 3).unwrap_err().starts_with("element 41 of 100 "));
    }

    #[test]
    fn a_list_of_ranks_that_is_not_the_report_is_wrong() {
        let listed = |ranks: &[u32]| Listed { elements: sum(&[0, 1, 2], 10), ranks: ranks.to_vec() };
        assert_eq!(listed(&[2, 0, 1]).check(&path(&[0, 1, 2]), 3), Ok(()));
        for wrong in [&[0, 1][..], &[0, 1, 2, 2], &[0, 1, 3]] {
            assert!(listed(wrong).check(&path(&[0, 1, 2]), 3).is_err());
        }
    }
}
