//! Medians, and how sure their ratio is.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Resampled pairs from which an interval is read.
const RESAMPLES: usize = 500;

/// The middle half of some times, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quartiles {
    /// A quarter is shorter.
    pub q1_s: f64,
    /// Half are shorter.
    pub median_s: f64,
    /// A quarter is longer.
    pub q3_s: f64,
}

impl Quartiles {
    /// Of at least one time.
    pub fn of(seconds: &[f64]) -> Self {
        let mut sorted = seconds.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| sorted[((sorted.len() - 1) as f64 * part).round() as usize];
        Self { q1_s: at(0.25), median_s: at(0.5), q3_s: at(0.75) }
    }
}

/// A ratio of medians with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio.
    pub ratio: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
}

impl Ratio {
    /// Median of `ours` over median of `theirs`, each of at least one time. The interval is that of the
    /// bootstrap: both are drawn anew from themselves, with replacement, many times.
    pub fn of(ours: &[f64], theirs: &[f64]) -> Self {
        // The same times give the same interval.
        let mut random = ChaCha8Rng::seed_from_u64(ours.len() as u64);
        let mut ratios: Vec<f64> = (0..RESAMPLES)
            .map(|_| resampled_median(ours, &mut random) / resampled_median(theirs, &mut random))
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| ratios[((RESAMPLES - 1) as f64 * part).round() as usize];
        let median = |seconds| Quartiles::of(seconds).median_s;
        Self { ratio: median(ours) / median(theirs), low: at(0.025), high: at(0.975) }
    }

    /// Whether the interval is within `precision` of the ratio, as a part of it.
    pub fn is_within(&self, precision: f64) -> bool {
        self.low >= self.ratio * (1.0 - precision) && self.high <= self.ratio * (1.0 + precision)
    }
}

fn resampled_median(seconds: &[f64], random: &mut ChaCha8Rng) -> f64 {
    let mut drawn: Vec<f64> =
        (0..seconds.len()).map(|_| seconds[random.random_range(0..seconds.len())]).collect();
    let middle = (drawn.len() - 1).div_ceil(2);
    *drawn.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_the_middle_half() {
        let quartiles = Quartiles::of(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(quartiles, Quartiles { q1_s: 2.0, median_s: 3.0, q3_s: 4.0 });
    }

    #[test]
    fn the_interval_is_narrow_only_if_times_agree() {
        let steady: Vec<f64> = (0..50).map(|index| 1.0 + f64::from(index) * 1e-4).collect();
        let wild: Vec<f64> = (0..50).map(|index| 1.0 + f64::from(index % 7)).collect();
        assert!(Ratio::of(&steady, &steady).is_within(0.01));
        assert!(!Ratio::of(&steady, &wild).is_within(0.05));
        let few = Ratio::of(&steady[..3], &wild[..3]);
        assert!(few.low <= few.ratio && few.ratio <= few.high);
    }
}
