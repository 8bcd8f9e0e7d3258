//! Runs of a plan with failures that are drawn.

use everfold_planner::{law::Law, plan::Plan};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How failures come: gaps follow a Weibull law with this shape. With 1, they come at a constant rate; below,
/// in bursts.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    pub shape: f64,
}

/// Mean time to the end, of many runs.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    pub mean_s: f64,
    /// Half of the 95 % interval of the mean.
    pub error_s: f64,
}

impl Gaps {
    /// A gap, for a mean of 1.
    fn draw(self, random: &mut ChaCha8Rng) -> f64 {
        let uniform: f64 = 1.0 - random.random::<f64>();
        (-uniform.ln()).powf(1.0 / self.shape) / gamma(1.0 + 1.0 / self.shape)
    }
}

/// Runs a synchronous plan so many times.
pub fn run(plan: &Plan, law: &Law, gaps: Gaps, runs: u32, seed: u64) -> Drawn {
    let [track] = plan.tracks.as_slice() else { panic!("host and device are saved together") };
    let stops: Vec<(f64, f64)> =
        track.stops.iter().map(|stop| (stop.at_ns as f64 / 1e9, stop.write_ns as f64 / 1e9)).collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let end_s = plan.run_ns as f64 / 1e9;
    let times: Vec<f64> = (0..runs).map(|_| run_once(&stops, end_s, law, gaps, &mut random)).collect();
    let count = times.len() as f64;
    let mean_s = times.iter().sum::<f64>() / count;
    let variance = times.iter().map(|time| (time - mean_s).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    Drawn { mean_s, error_s: 1.96 * (variance / count).sqrt() }
}

fn run_once(stops: &[(f64, f64)], end_s: f64, law: &Law, gaps: Gaps, random: &mut ChaCha8Rng) -> f64 {
    let (mut now_s, mut next) = (0.0, 0);
    let mut gap_s = law.mtbf_s * gaps.draw(random);
    // Whether what lasts so long was done before the next failure.
    let mut lives = |lasts_s: f64| {
        if gap_s >= lasts_s {
            (now_s, gap_s) = (now_s + lasts_s, gap_s - lasts_s);
            return (true, now_s);
        }
        (now_s, gap_s) = (now_s + gap_s, law.mtbf_s * gaps.draw(random));
        (false, now_s)
    };
    loop {
        let (begin_s, read_s) = if next == 0 { (0.0, 0.0) } else { stops[next - 1] };
        let (at_s, write_s) = stops.get(next).copied().unwrap_or((end_s, 0.0));
        match lives(at_s - begin_s + write_s) {
            (true, now_s) if next == stops.len() => return now_s,
            (true, _) => next += 1,
            (false, _) => while !lives(law.restart_from_s(read_s)).0 {},
        }
    }
}

/// Lanczos' approximation of the gamma function, for numbers of at least 1.
fn gamma(number: f64) -> f64 {
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let before = number - 1.0;
    let base = before + 7.5;
    let series = TERMS[1..].iter().zip(1..).map(|(term, index)| term / (before + f64::from(index)));
    let sum = TERMS[0] + series.sum::<f64>();
    (std::f64::consts::TAU).sqrt() * base.powf(before + 0.5) * (-base).exp() * sum
}

#[cfg(test)]
mod tests {
    use everfold_planner::plan::{Placement, Planner, Rule, Wish};

    use super::*;
    use crate::plan::{paper::published::APPLICATIONS, profile};

    #[test]
    fn gaps_have_the_mean_that_they_should_have() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for shape in [0.7, 1.0, 2.0] {
            let sum: f64 = (0..100_000).map(|_| Gaps { shape }.draw(&mut random)).sum();
            assert!((sum / 1e5 - 1.0).abs() < 0.03, "{shape}: {sum}");
        }
        assert!((gamma(5.0) - 24.0).abs() < 1e-9);
    }

    #[test]
    fn at_a_constant_rate_runs_take_what_the_law_says() {
        let swim = profile::parse(APPLICATIONS[0].profile, String::new(), |_| unreachable!()).unwrap();
        let planner = Planner::new(&swim.profile, &swim.machine).unwrap();
        let wish =
            Wish { placement: Placement::Synchronous, rule: Rule::Cheapest, apart_ns: None, offset_ns: 0 };
        let plan = planner.place(&wish).unwrap();
        let law = Law::new(&swim.machine, everfold_planner::machine::Part::Whole);
        let drawn = run(&plan, &law, Gaps { shape: 1.0 }, 20_000, 1);
        let expected_s = plan.expected_s.unwrap();
        assert!((drawn.mean_s - expected_s).abs() < 2.0 * drawn.error_s, "{drawn:?} {expected_s}");
    }
}
