//! Whether a rate has changed: cumulative sums of what exceeds the smoothed past (CUSUM).

/// Watches one value. It notices a small change that lasts, and forgives a large one that does not.
#[derive(Clone, Copy, Debug)]
pub struct Cusum {
    mean: Option<f64>,
    sum: f64,
    slack: f64,
    limit: f64,
}

/// Share of a new value in the smoothed one.
const SMOOTHING: f64 = 0.05;

impl Cusum {
    /// Values up to `slack` times the mean above it are usual; excesses that add up to `limit` times the mean are a change.
    pub fn new(slack: f64, limit: f64) -> Self {
        Self { mean: None, sum: 0.0, slack, limit }
    }

    /// Takes a value, and says whether the rate has grown. The smoothed value stays as it is while an excess adds up.
    pub fn observe(&mut self, value: f64) -> bool {
        let Some(mean) = self.mean else {
            self.mean = Some(value);
            return false;
        };
        let excess = value / mean.max(f64::MIN_POSITIVE) - 1.0 - self.slack;
        // One value alone is never a change.
        self.sum = (self.sum + excess.min(self.limit / 2.0)).max(0.0);
        if self.sum == 0.0 {
            self.mean = Some(mean + SMOOTHING * (value - mean));
        }
        self.sum >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_lasts_is_noticed_and_a_spike_is_not() {
        let mut watch = Cusum::new(0.2, 1.0);
        for _ in 0..100 {
            assert!(!watch.observe(10.0));
        }
        assert!(!watch.observe(1000.0), "a spike is no change");
        for _ in 0..10 {
            assert!(!watch.observe(10.0));
        }
        let noticed = (0..20).position(|_| watch.observe(15.0));
        assert!(noticed.is_some_and(|after| after > 0), "half as much again for long is a change");
    }
}
