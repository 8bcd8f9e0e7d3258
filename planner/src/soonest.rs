//! The placement with which a program ends soonest on average, found exactly.
//!
//! With f(i) the least mean time to a checkpoint at i, M the mean time between failures, R(i) the time to
//! restart there, t(i) its time and s(j) = t(j) + what a checkpoint at j takes,
//!
//! f(j) = min over i < j of f(i) + M e^(R(i)/M) (e^((s(j) - t(i))/M) - 1).
//!
//! What depends on i is a line over q = e^(s(j)/M): it begins at f(i) - M e^(R(i)/M) and rises with
//! M e^((R(i) - t(i))/M). So f(j) is the least of the lines so far at one place, and n points take O(n log n).

use alloc::{vec, vec::Vec};

use crate::{
    candidates::Candidates,
    law::Law,
    lines::{Line, Lines, Wide},
    shortest::trace,
};

/// The points at which checkpoints let the program end soonest on average, and when it does, in seconds.
pub fn soonest(candidates: &Candidates, law: &Law) -> (Vec<usize>, f64) {
    // What never fails needs no checkpoints.
    if law.mtbf_s == f64::INFINITY {
        return (Vec::new(), candidates.end_ns() as f64 / 1e9);
    }
    let count = candidates.len();
    let at_ns = |node: usize| if node == 0 { 0 } else { candidates.at_ns(node - 1) };
    let write_s = |node: usize| if node == 0 { 0.0 } else { candidates.write_ns(node - 1) as f64 / 1e9 };
    // When the checkpoint of each point would be written, and the program would end, without failures.
    let done = |point: usize| candidates.at_ns(point).saturating_add(candidates.write_ns(point));
    let mut done_ns: Vec<u64> = (0..count).map(done).collect();
    done_ns.push(candidates.end_ns());
    let mut places = done_ns.clone();
    places.sort_unstable();
    places.dedup();
    let place = |done_ns: u64| places.partition_point(|&other| other < done_ns);
    let wide = |at_ns: u64| Wide::exp(at_ns as f64 / 1e9 / law.mtbf_s);
    let mut lines = Lines::new(places.iter().map(|&done_ns| wide(done_ns)).collect(), count + 1);
    let mut least_s = vec![0.0; count + 2];
    let mut before = vec![0_u32; count + 2];
    for node in 0..=count {
        if node > 0 {
            (before[node], least_s[node]) = reach(&lines, place(done_ns[node - 1]), |from| {
                let lasts_ns = done_ns[node - 1] - at_ns(from);
                least_s[from] + law.stage_s(write_s(from), lasts_ns as f64 / 1e9)
            });
        }
        let begun_s = at_ns(node) as f64 / 1e9;
        let restart = law.restart_from_s(write_s(node)) / law.mtbf_s;
        let slope = Wide::exp(restart - begun_s / law.mtbf_s + libm::log(law.mtbf_s));
        let paid_s = law.mtbf_s * libm::exp(restart);
        // A point from which no restart ever ends is not come from.
        let begin = if paid_s.is_finite() { least_s[node] - paid_s } else { f64::INFINITY };
        lines.add(Line { begin, slope }, place(at_ns(node)));
    }
    let end = count + 1;
    (before[end], least_s[end]) = reach(&lines, place(candidates.end_ns()), |from| {
        let lasts_ns = candidates.end_ns() - at_ns(from);
        least_s[from] + law.stage_s(write_s(from), lasts_ns as f64 / 1e9)
    });
    (trace(&before), least_s[end])
}

/// The best node to come from, and the mean time with it.
fn reach(lines: &Lines, place: usize, from_s: impl Fn(usize) -> f64) -> (u32, f64) {
    let from = lines.least(place);
    (from as u32, from_s(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::{best_s, daly_s, every};

    const SECOND: u64 = 1_000_000_000;

    /// A long program with a point every second, at each of which a checkpoint takes as long.
    fn uniform(write_s: u64, run_s: u64) -> Candidates {
        let points: Vec<(u64, u64)> = (1..run_s).map(|at| (at * SECOND, write_s * SECOND)).collect();
        Candidates::from_times(&points, run_s * SECOND)
    }

    #[test]
    fn where_all_points_are_alike_it_is_as_young_and_daly_say() {
        for (write_s, mtbf_s) in [(5, 1440.0), (60, 3600.0), (5, 100.0)] {
            let law = Law { mtbf_s, restart_s: 10.0, reread: 0.0 };
            let best = best_s(write_s as f64, mtbf_s);
            let stages = 20;
            let candidates = uniform(write_s, (best * f64::from(stages)) as u64);
            let (chosen, end_s) = soonest(&candidates, &law);
            // The end needs no checkpoint, so that its stage is longer by that.
            assert!(chosen.len().abs_diff(stages as usize - 1) <= 1, "{} of {stages}", chosen.len());
            let lengths = chosen.windows(2).map(|w| candidates.at_ns(w[1]) - candidates.at_ns(w[0]));
            for length_ns in lengths {
                let part = length_ns as f64 / 1e9 / best;
                assert!((0.9..1.1).contains(&part), "{write_s} {mtbf_s}: {part} of the best interval");
            }
            let daly = every(&candidates, (daly_s(write_s as f64, mtbf_s) * 1e9) as u64);
            let daly_end_s = law.expected_s(&candidates, &daly);
            assert!(end_s <= daly_end_s && daly_end_s < 1.01 * end_s, "{end_s} {daly_end_s}");
            // The closed form for equal stages.
            let closed = law.stage_s(0.0, best + write_s as f64) / best * candidates.end_ns() as f64 / 1e9;
            assert!((end_s / closed - 1.0).abs() < 0.01, "{end_s} {closed}");
        }
    }

    #[test]
    fn what_never_fails_has_no_checkpoints() {
        let law = Law { mtbf_s: f64::INFINITY, restart_s: 10.0, reread: 1.0 };
        assert_eq!(soonest(&uniform(5, 100), &law), (vec![], 100.0));
    }

    #[test]
    fn checkpoints_beyond_all_programs_do_not_overflow() {
        let candidates = Candidates::from_times(&[(SECOND, u64::MAX), (2 * SECOND, 1)], 3 * SECOND);
        let law = |mtbf_s: f64| Law { mtbf_s, restart_s: 1e9, reread: 1.0 };
        assert_eq!(soonest(&candidates, &law(1.0)).0, [1]);
        // Exponents are beyond all numbers, too.
        assert!(soonest(&candidates, &law(1e-20)).0.len() <= 2);
    }

    #[test]
    fn runs_of_many_failures_do_not_overflow() {
        let candidates = uniform(1, 200_000);
        let law = Law { mtbf_s: 50.0, restart_s: 1.0, reread: 1.0 };
        let (chosen, end_s) = soonest(&candidates, &law);
        assert!((end_s / law.expected_s(&candidates, &chosen) - 1.0).abs() < 1e-9);
        let best = every(&candidates, (best_s(1.0, 50.0) * 1e9) as u64);
        assert!(end_s.is_finite() && end_s <= law.expected_s(&candidates, &best) * (1.0 + 1e-12));
    }
}
