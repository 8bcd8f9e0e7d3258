//! Which segment length suits an algorithm.

use std::time::Duration;

use super::{
    algorithm::Algorithm,
    engine::{Arrivals, time},
};
use crate::model::Cluster;

/// The segment length, among powers of two, with which `algorithm` is fastest in an undisturbed `cluster`,
/// and how long it takes with it.
pub fn best_segment(
    cluster: &Cluster,
    ranks: u32,
    bytes: u64,
    algorithm: impl Fn(u64) -> Algorithm,
) -> (Algorithm, Duration) {
    let calm = Cluster { interference: None, ..cluster.clone() };
    let mut best: Option<(Algorithm, Duration)> = None;
    let mut segment_bytes = bytes.next_power_of_two();
    // Segments of which a thousand make the body are short enough: start-ups outweigh everything then.
    while segment_bytes >= (bytes >> 10).max(1 << 10) {
        let candidate = algorithm(segment_bytes);
        let took = time(&calm, candidate, ranks, bytes, &Arrivals::default(), 0)[0];
        match best {
            Some((_, least)) if took > 2 * least => break,
            Some((_, least)) if took >= least => {}
            _ => best = Some((candidate, took)),
        }
        segment_bytes /= 2;
    }
    best.expect("the whole body is a segment, too")
}
