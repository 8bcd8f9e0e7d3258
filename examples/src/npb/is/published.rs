//! The sizes of IS and its published answers.

use super::keys;
use clap::ValueEnum;
use std::fmt;

/// Keys whose ranks are verified in each iteration.
pub const TEST_KEYS: usize = 5;

/// The size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Class {
    /// Sample, 2^16 keys below 2^11.
    S,
    /// Workstation, 2^20 keys below 2^16.
    W,
    /// 2^23 keys below 2^19.
    A,
    /// 2^25 keys below 2^21.
    B,
}

impl Class {
    /// Iterations of the run.
    pub const ITERATIONS: u64 = 10;

    /// Number of keys.
    pub fn keys(self) -> u64 {
        match self {
            Self::S => 1 << 16,
            Self::W => 1 << 20,
            Self::A => 1 << 23,
            Self::B => 1 << 25,
        }
    }

    /// Keys are less than this.
    pub fn values(self) -> u64 {
        match self {
            Self::S => 1 << 11,
            Self::W => 1 << 16,
            Self::A => 1 << 19,
            Self::B => 1 << 21,
        }
    }

    /// The test keys in `iteration`: their values, and the ranks that were published.
    pub fn published(self, iteration: u64) -> [(u32, u64); TEST_KEYS] {
        let (indices, ranks) = match self {
            Self::S => ([48427, 17148, 23627, 62548, 4431], [0, 18, 346, 64917, 65463]),
            Self::W => ([357773, 934767, 875723, 898999, 404505], [1249, 11698, 1039987, 1043896, 1048018]),
            Self::A => ([2112377, 662041, 5336171, 3642833, 4250760], [104, 17523, 123928, 8288932, 8388264]),
            Self::B => ([41869, 812306, 5102857, 18232239, 26860214], [33422937, 10244, 59149, 33135281, 99]),
        };
        std::array::from_fn(|test| {
            let index: u64 = indices[test];
            let key = keys(self, iteration, index..index + 1).next();
            (key.expect("there is one key"), self.shifted(test, ranks[test], iteration))
        })
    }

    /// The published rank of a test key, which the changes of the iterations move.
    fn shifted(self, test: usize, rank: u64, iteration: u64) -> u64 {
        match self {
            Self::S if test <= 2 => rank + iteration,
            Self::W if test < 2 => rank + iteration - 2,
            Self::A if test <= 2 => rank + (iteration - 1),
            Self::A => rank - (iteration - 1),
            Self::B if [1, 2, 4].contains(&test) => rank + iteration,
            Self::S | Self::W | Self::B => rank - iteration,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Counter, *};

    #[test]
    fn one_rank_finds_the_published_ranks() {
        for class in [Class::S, Class::W] {
            for iteration in [1, 10] {
                let ranks = Counter::new(class).count(iteration, 0..class.keys()).ranks();
                for (key, rank) in class.published(iteration) {
                    assert_eq!(ranks[key as usize], rank, "class {class}, iteration {iteration}, key {key}");
                }
            }
        }
    }

    #[test]
    fn test_keys_are_those_of_npb() {
        let keys = |class: Class| class.published(1).map(|(key, _)| key);
        let sorted = |mut keys: [u32; TEST_KEYS]| {
            keys.sort_unstable();
            keys
        };
        assert_eq!(sorted(keys(Class::S)), [50, 158, 310, 1697, 1855]);
        assert_eq!(keys(Class::A), [17237, 62059, 101168, 428502, 500879]);
        assert_eq!(keys(Class::B), [1806863, 153192, 237944, 1709407, 48333]);
    }
}
