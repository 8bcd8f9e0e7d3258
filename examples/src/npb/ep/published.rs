//! The sizes of EP, its published answers, and the comparison with them.

use super::{PAIRS_PER_BATCH, Tally};
use clap::ValueEnum;
use std::fmt;

/// Sums may differ by this much of the published value, as in NPB 3.4. Counts must agree exactly.
const TOLERANCE: f64 = 1e-8;

/// The size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Class {
    /// Sample, 2^24 pairs.
    S,
    /// Workstation, 2^25 pairs.
    W,
    /// 2^28 pairs.
    A,
    /// 2^30 pairs.
    B,
    /// 2^32 pairs.
    C,
}

/// The answers of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Sums of the deviates, NPB up to 3.4.1.
    pub sums: [f64; 2],
    /// Sums of their magnitudes, NPB after 3.4.1.
    pub sums_of_magnitudes: [f64; 2],
    /// Pairs of deviates, NPB after 3.4.1.
    pub gaussian_pairs: u64,
    /// Pairs by annulus: RNR-94-007, table 2.1, for A and B.
    pub counts: [u64; 10],
}

/// One line of the verification.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    what: String,
    found: String,
    published: String,
    passed: bool,
}

impl Class {
    /// The power of two that is the number of pairs; NPB calls it M.
    pub fn log2_pairs(self) -> u32 {
        match self {
            Class::S => 24,
            Class::W => 25,
            Class::A => 28,
            Class::B => 30,
            Class::C => 32,
        }
    }

    /// Batches of the whole run.
    pub fn batches(self) -> u64 {
        (1 << self.log2_pairs()) / PAIRS_PER_BATCH
    }

    /// Random numbers of the whole run, two for each pair. NPB counts operations by them.
    pub fn random_numbers(self) -> u64 {
        2 << self.log2_pairs()
    }

    /// The published answers.
    pub fn published(self) -> Published {
        let (sums, sums_of_magnitudes, gaussian_pairs, counts) = match self {
            Class::S => (
                [-3.24783465203474e+3, -6.958407078382297e+3],
                [1.051299420395306e+07, 1.051517131857535e+07],
                13_176_389,
                [6_140_517, 5_865_300, 1_100_361, 68_546, 1_648, 17, 0, 0, 0, 0],
            ),
            Class::W => (
                [-2.863319731645753e+3, -6.320053679109499e+3],
                [2.102505525182392e+07, 2.103162209578822e+07],
                26_354_769,
                [12_281_576, 11_729_692, 2_202_726, 137_368, 3_371, 36, 0, 0, 0, 0],
            ),
            Class::A => (
                [-4.295875165629892e+3, -1.580732573678431e+4],
                [1.682235632304711e+08, 1.682195123368299e+08],
                210_832_767,
                [98_257_395, 93_827_014, 17_611_549, 1_110_028, 26_536, 245, 0, 0, 0, 0],
            ),
            Class::B => (
                [4.033815542441498e+4, -2.660669192809235e+4],
                [6.728927543423024e+08, 6.728951822504275e+08],
                843_345_606,
                [393_058_470, 375_280_898, 70_460_742, 4_438_852, 105_691, 948, 5, 0, 0, 0],
            ),
            Class::C => (
                [4.764367927995374e+4, -8.084072988043731e+4],
                [2.691444083862931e+09, 2.691519118724585e+09],
                3_373_275_903,
                [1_572_172_634, 1_501_108_549, 281_805_648, 17_761_221, 424_017, 3_821, 13, 0, 0, 0],
            ),
        };
        Published { sums, sums_of_magnitudes, gaussian_pairs, counts }
    }

    /// Compares a tally of the whole run with the published answers, number by number.
    pub fn checks(self, tally: &Tally) -> Vec<Check> {
        let published = self.published();
        let mut checks = vec![
            Check::sum("sum X", tally.sx, published.sums[0]),
            Check::sum("sum Y", tally.sy, published.sums[1]),
            Check::sum("sum |X|", tally.sum_abs_x, published.sums_of_magnitudes[0]),
            Check::sum("sum |Y|", tally.sum_abs_y, published.sums_of_magnitudes[1]),
            Check::count("pairs", tally.gaussian_pairs(), published.gaussian_pairs),
        ];
        for (annulus, (found, expected)) in tally.counts.into_iter().zip(published.counts).enumerate() {
            checks.push(Check::count(&format!("count {annulus}"), found, expected));
        }
        checks
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Check {
    fn sum(what: &str, found: f64, published: f64) -> Self {
        Self {
            what: what.to_owned(),
            found: format!("{found:.15e}"),
            published: format!("{published:.15e}"),
            passed: ((found - published) / published).abs() <= TOLERANCE,
        }
    }

    fn count(what: &str, found: u64, published: u64) -> Self {
        Self {
            what: what.to_owned(),
            found: found.to_string(),
            published: published.to_string(),
            passed: found == published,
        }
    }

    /// Whether the number agrees with the published one.
    pub fn passed(&self) -> bool {
        self.passed
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed { "verified" } else { "WRONG" };
        write!(f, "{:<8} {:>22} {:>22}  {verdict}", self.what, self.found, self.published)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{batch, batch_start};
    use super::*;
    use everfold::prelude::ReducerBody;

    const CLASSES: [Class; 5] = [Class::S, Class::W, Class::A, Class::B, Class::C];

    fn as_published(class: Class) -> Tally {
        let Published { sums: [sx, sy], sums_of_magnitudes: [sum_abs_x, sum_abs_y], counts, .. } =
            class.published();
        Tally { sx, sy, sum_abs_x, sum_abs_y, counts }
    }

    #[test]
    fn class_s_gives_the_published_answers() {
        let mut total = Tally::default();
        for index in 0..Class::S.batches() {
            total.combine(batch(batch_start(index)));
        }
        for check in Class::S.checks(&total) {
            assert!(check.passed(), "{check}");
        }
    }

    #[test]
    fn published_answers_agree_with_each_other() {
        for class in CLASSES {
            for check in class.checks(&as_published(class)) {
                assert!(check.passed(), "class {class}: {check}");
            }
        }
    }

    #[test]
    fn a_contribution_lost_or_counted_twice_is_found() {
        for class in CLASSES {
            let one = batch(batch_start(0));
            let mut twice = as_published(class);
            twice.combine(one.clone());
            let mut lost = as_published(class);
            for (count, missing) in lost.counts.iter_mut().zip(one.counts) {
                *count -= missing;
            }
            for wrong in [twice, lost] {
                let failed = class.checks(&wrong).iter().filter(|check| !check.passed()).count();
                assert!(failed >= 4, "class {class}: only {failed} lines are wrong");
            }
        }
    }

    #[test]
    fn a_sum_off_by_more_than_the_tolerance_is_found() {
        for factor in [1.0 - 2e-8, 1.0 + 2e-8, f64::NAN] {
            let mut tally = as_published(Class::A);
            tally.sy *= factor;
            assert_eq!(Class::A.checks(&tally).iter().filter(|check| !check.passed()).count(), 1);
        }
    }
}
