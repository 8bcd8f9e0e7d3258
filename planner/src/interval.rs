//! Checkpoints at equal distances, and which distance is best when all checkpoints cost the same.

use alloc::vec::Vec;

use crate::candidates::Candidates;

/// Young's interval: computing time between checkpoints that take `write_s`, to first order.
///
/// J. W. Young, *A first order approximation to the optimum checkpoint interval*, CACM 17(9), 1974.
pub fn young_s(write_s: f64, mtbf_s: f64) -> f64 {
    libm::sqrt(2.0 * write_s * mtbf_s)
}

/// Daly's interval, of higher order.
///
/// J. T. Daly, *A higher order estimate of the optimum checkpoint interval for restart dumps*, FGCS 22, 2006,
/// eq. 37.
pub fn daly_s(write_s: f64, mtbf_s: f64) -> f64 {
    let part = write_s / (2.0 * mtbf_s);
    if part >= 1.0 {
        return mtbf_s;
    }
    young_s(write_s, mtbf_s) * (1.0 + libm::sqrt(part) / 3.0 + part / 9.0) - write_s
}

/// The interval that [`Law::stage_s`](crate::law::Law::stage_s) makes best: the least of
/// stage(interval + write) / interval, found by Newton's method.
pub fn best_s(write_s: f64, mtbf_s: f64) -> f64 {
    // With x = interval / MTBF it satisfies (1 - x) e^(x + write / MTBF) = 1, for x from 0 to 1.
    let write = write_s / mtbf_s;
    let mut x = daly_s(write_s, mtbf_s) / mtbf_s;
    for _ in 0..50 {
        let value = libm::log1p(-x) + x + write;
        let next = (x - value / (1.0 - 1.0 / (1.0 - x))).clamp(x / 2.0, (1.0 + x) / 2.0);
        if next == x {
            break;
        }
        x = next;
    }
    x * mtbf_s
}

/// The points nearest to all multiples of an interval, without those that are not before the end.
pub fn every(candidates: &Candidates, interval_ns: u64) -> Vec<usize> {
    let interval_ns = interval_ns.max(1);
    let last = candidates.end_ns().saturating_sub(1) / interval_ns;
    let mut chosen = Vec::new();
    let mut number = 1;
    while number <= last
        && let Some(point) = candidates.nearest(number * interval_ns)
    {
        chosen.push(point);
        if point + 1 == candidates.len() {
            break;
        }
        // Multiples of a short interval have one nearest point: go on with the first that may have another.
        let halfway_ns = candidates.at_ns(point).midpoint(candidates.at_ns(point + 1));
        number = (number + 1).max(halfway_ns / interval_ns);
    }
    chosen.dedup();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Law;

    #[test]
    fn daly_is_what_daly_published() {
        // Of 5 minutes per checkpoint: 117 minutes for 24 h, 57 for 6 h, 9.1 for 15 minutes.
        for (mtbf_s, published) in [(1440.0, 117.0), (360.0, 57.0), (15.0, 9.1)] {
            assert!((daly_s(5.0, mtbf_s) - published).abs() < 0.5, "{mtbf_s}");
        }
        assert!((daly_s(5.0, 1440.0) - 116.689815).abs() < 1e-6);
        assert!((young_s(5.0, 1440.0) - 120.0).abs() < 1e-9);
        assert_eq!(daly_s(30.0, 10.0), 10.0);
    }

    #[test]
    fn the_best_interval_is_the_least_of_the_law() {
        for (write_s, mtbf_s, best) in [
            (5.0, 1440.0, 116.690073),
            (5.0, 15.0, 9.166503),
            (600.0, 10800.0, 3211.614221),
            (600.0, 1200.0, 837.948525),
            (300.0, 11136.0, 2388.869116),
        ] {
            let found = best_s(write_s, mtbf_s);
            assert!((found - best).abs() < 1e-5, "{write_s} {mtbf_s}: {found}");
            let law = Law { mtbf_s, restart_s: 60.0, reread: 0.0 };
            let cost = |interval_s: f64| law.stage_s(0.0, interval_s + write_s) / interval_s;
            assert!(cost(found) <= cost(found * 1.001) && cost(found) <= cost(found * 0.999));
        }
    }

    #[test]
    fn equal_distances_take_the_nearest_points() {
        let points: Vec<(u64, u64)> = (1..=10).map(|at| (10 * at, 1)).collect();
        let candidates = Candidates::from_times(&points, 100);
        assert_eq!(every(&candidates, 34), [2, 6], "68 is nearer to 70, 102 is behind the end");
        assert_eq!(every(&candidates, 50), [4], "nobody needs a checkpoint at the end");
        assert_eq!(every(&candidates, 1000), [0; 0]);
        assert_eq!(every(&candidates, 1), Vec::from_iter(0..10));
        assert_eq!(every(&Candidates::from_times(&[(3, 1), (1 << 60, 1)], 1 << 61), 7), [0, 1]);
        assert_eq!(every(&Candidates::from_times(&[], 100), 7), [0; 0]);
    }
}
