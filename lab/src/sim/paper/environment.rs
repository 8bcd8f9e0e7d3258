//! What else runs on the nodes. All of it is assumed: the paper says what ran there, not what it took.

use std::time::Duration;

use everfold_sim::{collective::Arrivals, model::Interference};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Ranks call within so much time of each other, as after a barrier.
const SKEW: Duration = Duration::from_micros(100);

/// Where a reduction runs.
#[derive(Clone, Copy, Debug)]
pub enum Environment {
    /// Nothing else runs.
    Ideal,
    /// PSDM runs on this number of nodes: a program with as many threads as there are cores, which leaves half of
    /// the processor, and with several connections per node, which leaves a quarter of the link. Three
    /// quarters of the time it is busy.
    Disturbed(u32),
    /// A production cluster of this number of nodes at this hour of a week: more jobs by day than by night, each
    /// with its own demands, fewer at the weekend.
    Production(u32, u32),
}

impl Environment {
    pub fn interference(self, random: &mut ChaCha8Rng) -> Option<Interference> {
        match self {
            Self::Ideal => None,
            Self::Disturbed(nodes) => Some(Interference {
                nodes,
                busy: Duration::from_millis(300),
                idle: Duration::from_millis(100),
                cpu_left: 0.5,
                link_left: 0.25,
            }),
            Self::Production(ranks, hour) => {
                let day = 1.0 - (f64::from(hour % 24) - 14.0).abs() / 14.0;
                let week = if hour / 24 >= 5 { 0.6 } else { 1.0 };
                let load = (0.3 + 0.6 * day.max(0.0)) * week;
                Some(Interference {
                    nodes: (f64::from(ranks) * load * random.random_range(0.8..1.1)) as u32,
                    busy: Duration::from_millis(random.random_range(50..1000)),
                    idle: Duration::from_millis(random.random_range(50..500)),
                    cpu_left: random.random_range(0.3..0.8),
                    link_left: random.random_range(0.15..0.7),
                })
            }
        }
    }
}

/// `reductions` calls of each rank at about the same time.
pub fn arrivals(random: &mut ChaCha8Rng, ranks: u32, reductions: u32) -> Arrivals {
    let mut after = || Duration::from_nanos(random.random_range(0..SKEW.as_nanos() as u64));
    Arrivals { after: (0..ranks).map(|_| after()).collect(), reductions }
}

/// A generator for one repetition at one place of one figure: all contestants find the same.
pub fn random(seed: u64, place: [u32; 3]) -> (ChaCha8Rng, u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let [panel, x, repetition] = place.map(u64::from);
    random.set_stream(panel << 48 | x << 24 | repetition);
    let seed = random.random();
    (random, seed)
}
