//! Where the marks of a time axis stand.

/// Marks at round numbers from 0 to `end`, at most `most` of them, and the decimals that tell them apart.
pub(crate) fn marks(end: f64, most: usize) -> (Vec<f64>, usize) {
    let least = end / most.max(2).saturating_sub(1) as f64;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|digit| digit * power).into_iter().find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * power);
    let decimals = (-(step * 1.0001).log10().floor()).max(0.0) as usize;
    // Counted rather than added up, so that rounding does not lose the last one.
    let count = (end / step * 1.000_001).floor() as usize;
    ((0..=count).map(|index| index as f64 * step).collect(), decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_not_too_many() {
        assert_eq!(marks(10.4, 12), (Vec::from_iter((0..=10).map(f64::from)), 0));
        assert_eq!(marks(1.0, 6).0.len(), 6);
        assert_eq!(marks(0.03, 4), (vec![0.0, 0.01, 0.02, 0.03], 2));
        assert_eq!(marks(740.0, 10).0[1], 100.0);
        for end in [1e-3, 0.07, 3.3, 47.0, 999.0, 1e6] {
            for most in [4, 7, 12] {
                let (marks, _) = marks(end, most);
                assert!((2..=most).contains(&marks.len()), "{end} {most}: {marks:?}");
                assert!(marks.iter().all(|mark| *mark <= end * 1.001));
            }
        }
    }
}
