//! Keys, and how many there are of each value.

use super::Class;
use crate::npb::random::Generator;
use everfold::prelude::ReducerBody;
use serde::{Deserialize, Serialize};
use std::ops::Range;

const SEED: u64 = 314_159_265;
/// Random numbers of one key.
const DRAWS: u64 = 4;

/// The keys of a class, as they are in one iteration.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    class: Class,
    iteration: u64,
}

impl Keys {
    /// The keys in `iteration`, counted from 1: it and all before it have changed two of them.
    pub fn new(class: Class, iteration: u64) -> Self {
        Self { class, iteration }
    }

    /// The keys with these indices.
    pub fn range(self, indices: Range<u64>) -> impl Iterator<Item = u32> {
        let mut generator = Generator::new(SEED);
        generator.skip(DRAWS * indices.start);
        let quarter = (self.class.values() / 4) as f64;
        indices.map(move |index| {
            let sum: f64 = (0..DRAWS).map(|_| generator.draw()).sum();
            self.changed(index).unwrap_or((quarter * sum) as u32)
        })
    }

    /// The key that an iteration has put at `index`.
    fn changed(self, index: u64) -> Option<u32> {
        let values = self.class.values();
        if (1..=self.iteration).contains(&index) {
            Some(index as u32)
        } else if (11..=10 + self.iteration).contains(&index) {
            Some((values - (index - 10)) as u32)
        } else {
            None
        }
    }

    /// How many of the keys with these indices have each value.
    pub fn count(self, indices: Range<u64>) -> Histogram {
        let mut counts = vec![0; self.class.values() as usize];
        self.range(indices).for_each(|key| counts[key as usize] += 1);
        Histogram { counts }
    }
}

/// How many keys there are of each value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    counts: Vec<u32>,
}

impl ReducerBody for Histogram {
    fn combine(&mut self, other: Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
    }
}

impl Histogram {
    /// The rank of each value: how many keys are less than it.
    pub fn ranks(&self) -> Vec<u64> {
        let before = |less: &mut u64, count: &u32| {
            let rank = *less;
            *less += u64::from(*count);
            Some(rank)
        };
        self.counts.iter().scan(0, before).collect()
    }

    /// Whether `keys` are ascending when each is put where its rank says, and keys of one value side by side.
    pub fn sorts(&self, keys: impl Iterator<Item = u32>) -> bool {
        let mut places = self.ranks();
        let mut sorted = vec![None; self.counts.iter().map(|count| *count as usize).sum()];
        for key in keys {
            let place = &mut places[key as usize];
            match sorted.get_mut(*place as usize) {
                Some(free @ None) => *free = Some(key),
                _ => return false,
            }
            *place += 1;
        }
        sorted.iter().all(Option::is_some) && sorted.is_sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_keys_are_those_of_npb() {
        let first = |class| Keys::new(class, 0).range(0..8).collect::<Vec<_>>();
        assert_eq!(first(Class::S), [1585, 825, 1060, 1343, 956, 437, 759, 841]);
        assert_eq!(first(Class::W), [50737, 26409, 33921, 42989, 30600, 13998, 24301, 26921]);
    }

    #[test]
    fn iterations_change_two_keys_each() {
        let sum = |iteration| -> u64 {
            Keys::new(Class::S, iteration).range(0..Class::S.keys()).map(u64::from).sum()
        };
        assert_eq!((sum(0), sum(10)), (67_027_849, 67_029_875));
        let three: Vec<u32> = Keys::new(Class::S, 2).range(11..14).collect();
        assert_eq!(three[..2], [2047, 2046]);
        let parts = [0..5, 5..12, 12..20].map(|part| Keys::new(Class::S, 3).range(part).collect::<Vec<_>>());
        assert_eq!(parts.concat(), Keys::new(Class::S, 3).range(0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_histogram_that_lacks_a_key_does_not_sort() {
        let keys = Keys::new(Class::S, 1);
        let all = || keys.range(0..Class::S.keys());
        assert!(keys.count(0..Class::S.keys()).sorts(all()));
        assert!(!keys.count(1..Class::S.keys()).sorts(all()));
        let mut twice = keys.count(0..Class::S.keys());
        twice.combine(keys.count(0..1));
        assert!(!twice.sorts(all()));
    }
}
