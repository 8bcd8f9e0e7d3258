//! How a value compares with those of others that do the same.

use alloc::vec::Vec;

/// The fewest values that are a comparison.
pub const PEERS_LEAST: usize = 3;

/// The value in the middle, the lower one of two; none for too few values.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.len() < PEERS_LEAST {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted[(sorted.len() - 1) / 2])
}

/// How many times the median of all values each value is; none for too few values, or a median of 0.
pub fn ratios(values: &[f64]) -> Option<Vec<f64>> {
    let median = median(values).filter(|median| *median > 0.0)?;
    Some(values.iter().map(|value| value / median).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_host_stands_out_and_all_slow_hosts_do_not() {
        assert_eq!(ratios(&[2.0, 2.0, 8.0, 2.0]), Some(vec![1.0, 1.0, 4.0, 1.0]));
        assert_eq!(ratios(&[8.0, 8.0, 8.0]), Some(vec![1.0; 3]));
        assert_eq!(ratios(&[1.0, 9.0]), None, "of two, nobody knows which is slow");
    }
}
