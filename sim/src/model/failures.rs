//! How often nodes fail, and when.

use std::{fmt, str::FromStr, time::Duration};

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Failures of a group of nodes: the gaps between them follow a Weibull law, whose mean is the nodes' mean
/// time between failures over their number. With a shape below 1 they come in bursts; 1 is a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failures {
    /// Mean time between failures of one node, in hours.
    pub node_mtbf_hours: f64,
    /// Shape of the law.
    pub shape: f64,
}

/// Laws of real systems. lanl: Los Alamos National Laboratory, failure data 1996–2005 (LA-UR-05-7318), fitted
/// to the gaps of 2000–2005 of the system of that number; llama-3: 419 unexpected interruptions in 54 days on
/// 2048 nodes of 8 GPUs (Llama 3 405B); rsc-1 and rsc-2: 6.50 and 2.34 failures in 1000 node-days (Kokolis et
/// al., HPCA 2025). The last three have no published shape: a constant rate.
const LAWS: [(&str, Failures); 8] = [
    ("lanl-2", Failures { node_mtbf_hours: 784.0, shape: 0.823 }),
    ("lanl-16", Failures { node_mtbf_hours: 433.0, shape: 0.754 }),
    ("lanl-18", Failures { node_mtbf_hours: 7506.0, shape: 0.817 }),
    ("lanl-19", Failures { node_mtbf_hours: 7905.0, shape: 0.889 }),
    ("lanl-20", Failures { node_mtbf_hours: 6743.0, shape: 0.647 }),
    ("llama-3", Failures { node_mtbf_hours: 6335.0, shape: 1.0 }),
    ("rsc-1", Failures { node_mtbf_hours: 3692.0, shape: 1.0 }),
    ("rsc-2", Failures { node_mtbf_hours: 10256.0, shape: 1.0 }),
];

/// Longest gap that is looked for, in scales: 1 in 10⁶ is longer with a shape of 0.57.
const SCALES_MOST: f64 = 100.0;
/// Steps of the integral over a time.
const STEPS: u32 = 1000;

impl Failures {
    /// Whether there is a failure of `nodes` nodes within a time that begins at any moment: its probability.
    pub fn probability(&self, nodes: u32, within: Duration) -> f64 {
        let (mean_s, within_s) = (self.mean_s(nodes), within.as_secs_f64());
        // The gap around that moment is still open after t with probability ∫ₜ S / mean, where S is the law's
        // survival.
        let end_s = within_s.min(SCALES_MOST * self.scale_s(nodes));
        let step_s = end_s / f64::from(STEPS);
        let survival = (0..STEPS).map(|step| self.survival(nodes, (f64::from(step) + 0.5) * step_s));
        (survival.sum::<f64>() * step_s / mean_s).min(1.0)
    }

    /// The same for a time that begins right after a failure.
    pub fn probability_after_failure(&self, nodes: u32, within: Duration) -> f64 {
        -(-(within.as_secs_f64() / self.scale_s(nodes)).powf(self.shape)).exp_m1()
    }

    /// Draws when nodes fail within a time that begins at any moment, given that one does.
    pub fn draw(&self, nodes: u32, within: Duration, random: &mut ChaCha8Rng) -> Vec<Duration> {
        let (scale_s, within_s) = (self.scale_s(nodes), within.as_secs_f64());
        let most_s = within_s.min(SCALES_MOST * scale_s);
        let mut at_s = loop {
            let at_s = random.random::<f64>() * most_s;
            if random.random::<f64>() < self.survival(nodes, at_s) {
                break at_s;
            }
        };
        let mut times = Vec::new();
        while at_s <= within_s {
            // Logarithms differ in their last bits from machine to machine; microseconds do not show it.
            times.push(Duration::from_micros((at_s * 1e6) as u64));
            at_s += self.gap_s(nodes, random);
        }
        times
    }

    /// Draws the gap between a failure of `nodes` nodes and the next one, in seconds.
    pub fn gap_s(&self, nodes: u32, random: &mut ChaCha8Rng) -> f64 {
        self.scale_s(nodes) * (-(1.0 - random.random::<f64>()).ln()).powf(1.0 / self.shape)
    }

    /// Mean time between failures of `nodes` nodes in seconds.
    fn mean_s(&self, nodes: u32) -> f64 {
        self.node_mtbf_hours * 3600.0 / f64::from(nodes)
    }

    fn scale_s(&self, nodes: u32) -> f64 {
        self.mean_s(nodes) / gamma(1.0 + 1.0 / self.shape)
    }

    fn survival(&self, nodes: u32, at_s: f64) -> f64 {
        (-(at_s / self.scale_s(nodes)).powf(self.shape)).exp()
    }
}

/// Γ(x) for x ≥ 1, by Stirling's series from 10 on.
fn gamma(x: f64) -> f64 {
    if x < 10.0 {
        return gamma(x + 1.0) / x;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    (std::f64::consts::TAU / x).sqrt() * (x / std::f64::consts::E).powf(x) * series.exp()
}

/// The text names no law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailuresError(String);

impl fmt::Display for FailuresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = LAWS.map(|(name, _)| name).join(", ");
        write!(f, "{:?} is no law of failures; there are {names}", self.0)
    }
}

impl std::error::Error for FailuresError {}

impl FromStr for Failures {
    type Err = FailuresError;

    fn from_str(text: &str) -> Result<Self, FailuresError> {
        let named = LAWS.iter().find(|(name, _)| *name == text);
        named.map(|(_, law)| *law).ok_or_else(|| FailuresError(text.to_owned()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// The scale of system 20 as published: 9.553 h for 512 nodes.
    #[test]
    fn the_scale_is_that_of_the_fit() {
        let scale_h = "lanl-20".parse::<Failures>().unwrap().scale_s(512) / 3600.0;
        assert!((scale_h / 9.553 - 1.0).abs() < 0.01, "{scale_h}");
    }

    #[test]
    fn a_constant_rate_forgets_when_it_last_failed() {
        let law = Failures { node_mtbf_hours: 1000.0, shape: 1.0 };
        for hours in [1, 10, 100] {
            let formula = -(-f64::from(hours) / 10.0f64).exp_m1();
            for probability in
                [law.probability(100, HOUR * hours), law.probability_after_failure(100, HOUR * hours)]
            {
                assert!((probability - formula).abs() < 1e-5, "{hours} h: {probability}, {formula}");
            }
        }
        let bursts = Failures { shape: 0.7, ..law };
        assert!(bursts.probability_after_failure(100, HOUR) > 1.5 * bursts.probability(100, HOUR));
    }

    /// On average there are as many failures in a time as the mean gap says, wherever it begins.
    #[test]
    fn what_is_drawn_has_the_laws_mean_and_follows_from_the_seed() {
        let law = Failures { node_mtbf_hours: 1000.0, shape: 0.7 };
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let within = HOUR * 30;
        let jobs = 20_000;
        let drawn: usize = (0..jobs).map(|_| law.draw(100, within, &mut random).len()).sum();
        let mean = law.probability(100, within) * drawn as f64 / f64::from(jobs);
        assert!((mean - 3.0).abs() < 0.05, "{mean}");
        let draw = |seed| law.draw(100, within, &mut ChaCha8Rng::seed_from_u64(seed));
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).is_sorted() && draw(7).iter().all(|at| *at <= within));
    }
}
