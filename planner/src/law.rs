//! How long a program with checkpoints takes until its end, on average, when failures come at random.
//!
//! Failures come at a constant rate, also while a checkpoint is written and while one is read. What was done
//! since the last checkpoint is lost. A *stage* is the computing between two checkpoints with the second of
//! them; it is done when no failure came in it. With M the mean time between failures, R the time to restart
//! and L that of the stage, it takes M e^(R/M) (e^(L/M) - 1) on average: Daly's complete model.

use serde::{Deserialize, Serialize};

use crate::{
    candidates::Candidates,
    machine::{Machine, Part},
};

/// How often failures come, and what they cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Law {
    /// Mean time between two failures, in seconds; infinite for what never fails.
    pub mtbf_s: f64,
    /// Time after a failure until the program runs again, without reading a checkpoint, in seconds.
    pub restart_s: f64,
    /// How long reading a checkpoint takes, in parts of writing it.
    pub reread: f64,
}

impl Law {
    /// That of one part of a machine.
    pub fn new(machine: &Machine, part: Part) -> Self {
        Self { mtbf_s: machine.mtbf_s(part), restart_s: machine.restart_s, reread: machine.reread }
    }

    /// Time to restart from a checkpoint that took `write_s`.
    pub fn restart_from_s(&self, write_s: f64) -> f64 {
        self.restart_s + self.reread * write_s
    }

    /// Mean time of a stage that lasts `lasts_s` without failures and begins at a checkpoint that took
    /// `read_write_s`, or at the beginning of the program, with 0.
    pub fn stage_s(&self, read_write_s: f64, lasts_s: f64) -> f64 {
        if self.mtbf_s == f64::INFINITY {
            return lasts_s;
        }
        let restart = libm::exp(self.restart_from_s(read_write_s) / self.mtbf_s);
        self.mtbf_s * restart * libm::expm1(lasts_s / self.mtbf_s)
    }

    /// Mean time to the end with checkpoints at `chosen`. It is infinite if it is beyond all numbers.
    pub fn expected_s(&self, candidates: &Candidates, chosen: &[usize]) -> f64 {
        let mut sum_s = 0.0;
        let (mut last_ns, mut last_write_s) = (0, 0.0);
        for &point in chosen {
            let write_s = candidates.write_ns(point) as f64 / 1e9;
            let work_s = (candidates.at_ns(point) - last_ns) as f64 / 1e9;
            sum_s += self.stage_s(last_write_s, work_s + write_s);
            (last_ns, last_write_s) = (candidates.at_ns(point), write_s);
        }
        sum_s + self.stage_s(last_write_s, (candidates.end_ns() - last_ns) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Law = Law { mtbf_s: 1440.0, restart_s: 10.0, reread: 0.0 };

    #[test]
    fn equal_stages_take_what_daly_says() {
        // Values of the complete model, per unit of computing: minutes, 5 per checkpoint.
        for (interval_s, per_s) in [(120.0, 1.095798328), (116.689815, 1.095763565)] {
            assert!((LAW.stage_s(0.0, interval_s + 5.0) / interval_s - per_s).abs() < 1e-8);
        }
    }

    #[test]
    fn without_failures_a_plan_takes_its_checkpoints() {
        let candidates = Candidates::from_times(&[(4_000_000_000, 1_000_000_000)], 10_000_000_000);
        for mtbf_s in [1e15, f64::INFINITY] {
            let law = Law { mtbf_s, ..LAW };
            assert!((law.expected_s(&candidates, &[0]) - 11.0).abs() < 1e-9, "{mtbf_s}");
            assert!((law.expected_s(&candidates, &[]) - 10.0).abs() < 1e-9, "{mtbf_s}");
        }
    }

    #[test]
    fn what_is_never_done_takes_for_ever() {
        let candidates = Candidates::from_times(&[], u64::MAX / 2);
        assert_eq!(LAW.expected_s(&candidates, &[]), f64::INFINITY);
    }
}
