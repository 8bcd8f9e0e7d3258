//! When a checkpoint is due.

use std::time::Duration;

/// How long a rank computes between two checkpoints.
///
/// The optimum weighs the measured cost of a checkpoint against the computation that is repeated after a
/// death. It needs the mean time between failures (MTBF) of one process. The first checkpoint is due at once:
/// until then its cost is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// This time. [`Duration::ZERO`] makes every checkpoint due.
    Fixed(Duration),
    /// `sqrt(2 C M)` for a cost C and an MTBF M (J. W. Young, 1974).
    Young {
        /// Mean time between failures of a process.
        mtbf: Duration,
    },
    /// The optimum of higher order (J. T. Daly, 2006, equation 37), which differs where a checkpoint costs a
    /// notable part of the MTBF.
    Daly {
        /// Mean time between failures of a process.
        mtbf: Duration,
    },
}

impl Default for Interval {
    /// Daly's optimum for one death per day and process.
    fn default() -> Self {
        Self::Daly { mtbf: Duration::from_secs(86_400) }
    }
}

impl Interval {
    /// How long after a checkpoint that has cost so much the next one is due. `None` as the cost: there was
    /// none yet.
    pub(super) fn after(self, cost: Option<Duration>) -> Duration {
        let optimum = |formula: fn(f64, f64) -> f64, mtbf: Duration| {
            let seconds = cost.map_or(0.0, |cost| formula(cost.as_secs_f64(), mtbf.as_secs_f64()));
            Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(mtbf)
        };
        match self {
            Self::Fixed(interval) => interval,
            Self::Young { mtbf } => optimum(young, mtbf),
            Self::Daly { mtbf } => optimum(daly, mtbf),
        }
    }
}

fn young(cost: f64, mtbf: f64) -> f64 {
    (2.0 * cost * mtbf).sqrt()
}

fn daly(cost: f64, mtbf: f64) -> f64 {
    if cost >= 2.0 * mtbf {
        return mtbf;
    }
    let part = cost / (2.0 * mtbf);
    young(cost, mtbf) * (1.0 + part.sqrt() / 3.0 + part / 9.0) - cost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optima_are_the_published_ones() {
        for (cost, mtbf, by_young, by_daly) in [
            (5, 1440, 120.0, 116.689815),
            (5, 360, 60.0, 56.712963),
            (5, 15, 12.247449, 9.140920),
            (60, 3600, 657.267069, 617.875650),
            (600, 1200, 1200.0, 833.333333),
            (600, 300, 600.0, 300.0),
            (700, 300, 648.074070, 300.0),
        ] {
            let (cost, mtbf) = (Some(Duration::from_secs(cost)), Duration::from_secs(mtbf));
            for (interval, expected) in
                [(Interval::Young { mtbf }, by_young), (Interval::Daly { mtbf }, by_daly)]
            {
                let found = interval.after(cost).as_secs_f64();
                assert!((found - expected).abs() < 1e-5, "{interval:?} after {cost:?}: {found}");
            }
        }
    }

    #[test]
    fn the_first_checkpoint_is_due_at_once_unless_the_interval_is_fixed() {
        let second = Duration::from_secs(1);
        assert_eq!(Interval::Fixed(second).after(None), second);
        assert_eq!(Interval::Daly { mtbf: second }.after(None), Duration::ZERO);
        assert_eq!(Interval::Young { mtbf: second }.after(None), Duration::ZERO);
    }
}
