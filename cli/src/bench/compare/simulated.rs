//! What the simulator says of the hosts on which is measured.

use std::{
    io::{self, Read, Write},
    thread,
    time::{Duration, Instant},
};

use everfold::Protection;
use everfold_sim::{
    experiment::Experiment,
    model::{Cluster as Model, Link},
};

use super::place::streams;
use crate::cluster::Cluster;

/// What passes before the clock runs: more than a link's bucket holds, and enough for TCP to find its pace.
const BEFORE: usize = 4 << 20;
/// What passes while it runs.
const TIMED: usize = 16 << 20;

/// The link between two hosts, as it is found. There is no wire between them: a message costs nothing but processor time,
/// half at each end.
pub fn link(cluster: &Cluster, message_s: f64) -> io::Result<Link> {
    let overhead_ns = message_s * 1e9 / 2.0;
    let ns_per_byte = transfer(cluster)?.as_nanos() as f64 / TIMED as f64;
    Ok(Link { latency_ns: 0.0, overhead_ns, gap_ns: 0.0, ns_per_byte })
}

/// How long [`TIMED`] bytes take.
fn transfer(cluster: &Cluster) -> io::Result<Duration> {
    let (mut from, mut to) = streams(cluster)?;
    let sender = thread::spawn(move || from.write_all(&vec![1; BEFORE + TIMED]));
    let mut bytes = vec![0; TIMED];
    to.read_exact(&mut bytes[..BEFORE])?;
    let started = Instant::now();
    to.read_exact(&mut bytes)?;
    let took = started.elapsed();
    sender.join().expect("the sender does not panic")?;
    Ok(took)
}

/// How long the root waits for one reduction of `bytes` bytes that all ranks call at once, in seconds.
pub fn reduce_s(link: Link, ranks: u32, bytes: u64, protection: Protection) -> Option<f64> {
    let experiment = Experiment { protection, ..Experiment::new(ranks, bytes, Model::new(link)) };
    experiment.run().time().map(|time| time.as_secs_f64())
}
