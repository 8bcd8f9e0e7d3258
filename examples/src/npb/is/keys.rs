//! Keys, and how many there are of each value.

use super::Class;
use crate::npb::random::Generator;
use everfold::prelude::ReducerBody;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Range};

const SEED: u64 = 314_159_265;
/// Random numbers of one key.
const DRAWS: u64 = 4;
/// Iterations change only keys below this index.
const CHANGED: u64 = 11 + Class::ITERATIONS;

/// The keys with these indices, as they are in `iteration`, counted from 1: it and all before it have changed
/// two of them.
pub fn keys(class: Class, iteration: u64, indices: Range<u64>) -> impl Iterator<Item = u32> {
    let mut generator = Generator::new(SEED);
    generator.skip(DRAWS * indices.start);
    let quarter = (class.values() / 4) as f64;
    indices.map(move |index| {
        let sum: f64 = (0..DRAWS).map(|_| generator.draw()).sum();
        changed(class, iteration, index).unwrap_or((quarter * sum) as u32)
    })
}

/// The key that an iteration has put at `index`.
fn changed(class: Class, iteration: u64, index: u64) -> Option<u32> {
    if (1..=iteration).contains(&index) {
        Some(index as u32)
    } else if (11..=10 + iteration).contains(&index) {
        Some((class.values() - (index - 10)) as u32)
    } else {
        None
    }
}

/// Counts the keys of a class, and remembers those that it has drawn.
#[derive(Clone, Debug)]
pub struct Counter {
    class: Class,
    /// Keys before the first iteration, by the start and end of the range of their indices.
    drawn: BTreeMap<(u64, u64), Vec<u32>>,
}

impl Counter {
    /// Has drawn nothing yet.
    pub fn new(class: Class) -> Self {
        Self { class, drawn: BTreeMap::new() }
    }

    /// How many of the keys with these indices have each value in `iteration`.
    pub fn count(&mut self, iteration: u64, indices: Range<u64>) -> Histogram {
        let class = self.class;
        let drawn = self.drawn.entry((indices.start, indices.end));
        let drawn = drawn.or_insert_with(|| keys(class, 0, indices.clone()).collect());
        let mut counts = vec![0; class.values() as usize];
        drawn.iter().for_each(|key| counts[*key as usize] += 1);
        for index in indices.start..indices.end.min(CHANGED) {
            if let Some(key) = changed(class, iteration, index) {
                counts[drawn[(index - indices.start) as usize] as usize] -= 1;
                counts[key as usize] += 1;
            }
        }
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
    /// How many keys there are in all.
    pub fn keys(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

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
        let first = |class| keys(class, 0, 0..8).collect::<Vec<_>>();
        assert_eq!(first(Class::S), [1585, 825, 1060, 1343, 956, 437, 759, 841]);
        assert_eq!(first(Class::W), [50737, 26409, 33921, 42989, 30600, 13998, 24301, 26921]);
    }

    #[test]
    fn iterations_change_two_keys_each() {
        let sum = |iteration| keys(Class::S, iteration, 0..Class::S.keys()).map(u64::from).sum::<u64>();
        assert_eq!((sum(0), sum(10)), (67_027_849, 67_029_875));
        let three: Vec<u32> = keys(Class::S, 2, 11..14).collect();
        assert_eq!(three[..2], [2047, 2046]);
        let parts = [0..5, 5..12, 12..20].map(|part| keys(Class::S, 3, part).collect::<Vec<_>>());
        assert_eq!(parts.concat(), keys(Class::S, 3, 0..20).collect::<Vec<_>>());
    }

    #[test]
    fn keys_that_were_drawn_before_are_counted_as_they_are_now() {
        let mut counter = Counter::new(Class::S);
        for iteration in 1..=Class::ITERATIONS {
            for indices in [0..15, 0..16, 15..100] {
                let mut counts = vec![0; Class::S.values() as usize];
                keys(Class::S, iteration, indices.clone()).for_each(|key| counts[key as usize] += 1);
                assert_eq!(counter.count(iteration, indices), Histogram { counts });
            }
        }
    }

    #[test]
    fn a_histogram_that_lacks_a_key_does_not_sort() {
        let (mut counter, number) = (Counter::new(Class::S), Class::S.keys());
        let all = || keys(Class::S, 1, 0..number);
        let mut counts = counter.count(1, 0..number);
        assert!(counts.sorts(all()) && counts.keys() == number);
        let lacking = counter.count(1, 1..number);
        assert!(!lacking.sorts(all()) && lacking.keys() == number - 1);
        counts.combine(counter.count(1, 0..1));
        assert!(!counts.sorts(all()) && counts.keys() == number + 1);
    }
}
