//! What the simulator says of the hosts on which is measured.

use everfold::Protection;
use everfold_sim::{
    experiment::Experiment,
    model::{Cluster, Link},
};

/// How long the root waits for one reduction of `bytes` bytes that all ranks call at once, in seconds.
pub fn reduce_s(link: Link, ranks: u32, bytes: u64, protection: Protection) -> Option<f64> {
    let experiment = Experiment { protection, ..Experiment::new(ranks, bytes, Cluster::new(link)) };
    experiment.run().time().map(|time| time.as_secs_f64())
}
