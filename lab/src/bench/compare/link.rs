//! What the links between the hosts take, as they are found.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use everfold_sim::model::Link;

use crate::{
    bench::bound,
    cluster::{Cluster, Host},
};

/// What passes before the clock runs: more than a link's bucket holds, and enough for TCP to find its pace.
const BEFORE: usize = 4 << 20;
/// What passes while it runs.
const TIMED: usize = 16 << 20;

/// The link between two hosts for the simulator. There is no wire between them: a message costs nothing but
/// processor time, half at each end.
pub fn model(cluster: &Cluster, message_s: f64) -> io::Result<Link> {
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

/// How long a short message takes between two hosts.
pub fn message_s(cluster: &Cluster) -> io::Result<f64> {
    let (here, there) = streams(cluster)?;
    Ok(bound::two_messages_over(here, there)?.as_secs_f64() / 2.0)
}

/// A connection between two hosts.
fn streams(cluster: &Cluster) -> io::Result<(TcpStream, TcpStream)> {
    let other = Host(1.min(cluster.len() - 1));
    let listener = cluster.inside(Host(0), || TcpListener::bind("0.0.0.0:0"))?;
    let at = (cluster.address(Host(0)), listener.local_addr()?.port());
    let here = cluster.inside(other, || TcpStream::connect(at))?;
    let (there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    Ok((here, there))
}
