//! Worlds in which bytes stay damaged, however often they are read.

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{Weather, copies, pick};
use crate::check::schedule::{Fault, Schedule, Trouble};

/// Lets what ranks hold, or what they keep of others, arrive damaged for a time or for good, at every reader
/// or at one.
pub(super) fn damage_for_long(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    if random.random_bool(0.5) {
        // Nothing else can be blamed for what comes of it.
        schedule.faults.clear();
        schedule.leaves.clear();
    }
    if random.random_bool(0.5) {
        copies::make_copies(schedule, random, Weather::Fair);
    }
    let ranks: Vec<u32> = (0..schedule.ranks()).collect();
    for _ in 0..pick(random, [1, 1, 2, 3]) {
        let pair: Vec<u32> = ranks.choose_multiple(random, 2).copied().collect();
        let (copies, is_for_one) = (random.random_bool(0.4), random.random_bool(0.5));
        let reader = pair.get(1).copied().filter(|_| is_for_one);
        let longest_us = 20 * schedule.ping_interval_us;
        let lasts_us = pick(random, [0, 1000, 50_000, longest_us]);
        let what = Trouble::Damage { rank: pair[0], copies, reader };
        schedule.faults.push(Fault { at_us: random.random_range(0..5000), lasts_us, what });
    }
    schedule.faults.sort_by_key(|fault| fault.at_us);
}
