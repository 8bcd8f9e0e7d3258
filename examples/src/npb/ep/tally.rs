//! What EP counts, and how two counts become one.

use everfold::prelude::ReducerBody;
use serde::{Deserialize, Serialize};

/// What EP counts, for one batch or for any number of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Sum of the first deviates of all pairs.
    pub sx: f64,
    /// Sum of the second deviates.
    pub sy: f64,
    /// Sum of the magnitudes of the first deviates.
    pub sum_abs_x: f64,
    /// Sum of the magnitudes of the second deviates.
    pub sum_abs_y: f64,
    /// Entry `i` counts the pairs whose larger magnitude lies in [i, i + 1): the square annuli of NPB.
    pub counts: [u64; 10],
}

impl Tally {
    /// Pairs of Gaussian deviates counted so far; NPB calls this number gc.
    pub fn gaussian_pairs(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl ReducerBody for Tally {
    fn combine(&mut self, other: Self) {
        self.sx += other.sx;
        self.sy += other.sy;
        self.sum_abs_x += other.sum_abs_x;
        self.sum_abs_y += other.sum_abs_y;
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }
}
