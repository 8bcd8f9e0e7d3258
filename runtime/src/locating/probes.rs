//! Executes what nodes ask of each other. Each probe is small, and ends in a bounded time.

use std::{
    fs::File,
    io::{self, Write},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    sync::Arc,
    time::{Duration, Instant},
};

use everfold_locate::probe::{Answer, Reading};
use everfold_protocol::locating::HostRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{counters, links::reach};
use crate::{
    agent::AgentConfig,
    transport::{
        control::{Address, BoxStream, connect},
        handshake::{HandshakeError, Purpose},
    },
};

/// How long a host may take to let somebody in.
const RESPONSE: Duration = Duration::from_millis(800);
/// What is read to measure a link: more than the burst that limited links let pass, and short on any of them.
const LINK_BYTES: usize = 1 << 20;
/// How often each of the two links is measured that are compared, and how long one measurement takes at most.
const LINK_TRIES: u32 = 2;
const LINK_PATIENCE: Duration = Duration::from_millis(180);
/// What follows the bytes: how fast they were delivered, in bytes per second, and how many of their packets were sent again.
const TRAILER_BYTES: usize = 12;
/// The least payload of a packet, as losses are counted in packets.
const PACKET_BYTES: f64 = 1400.0;
/// How long a small write usually takes at most.
const WRITE_USUAL: Duration = Duration::from_millis(50);

fn is(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

/// Whether a host lets this one in, or at least its system does.
pub(super) async fn response(config: Arc<AgentConfig>, host: HostRef) -> Answer {
    let address = Address::Tcp(host.agent.address.clone());
    let connected = tokio::time::timeout(RESPONSE / 2, connect(&address)).await;
    let connects = matches!(connected, Ok(Ok(_)));
    let reached = tokio::time::timeout(RESPONSE / 2, reach(&config, &host, Purpose::Locate));
    let answers = connects && matches!(reached.await, Ok(Ok(_)));
    Answer(vec![(Reading::Answers, is(answers)), (Reading::Connects, is(connects))])
}

/// How slow it is to read from a host, in comparison with another one, and what is lost on the way.
pub(super) async fn link(config: Arc<AgentConfig>, host: HostRef, other: Option<HostRef>) -> Answer {
    let Some(other) = other else { return Answer(vec![(Reading::Answers, 1.0)]) };
    let (mut suspected, mut usual) = (Measured::default(), Measured::default());
    for _ in 0..LINK_TRIES {
        usual.take(measure(&config, &other).await);
        suspected.take(measure(&config, &host).await);
    }
    let mut readings = vec![(Reading::Answers, 1.0), (Reading::LinkLoss, suspected.loss)];
    if let (Some([passed, delivered]), Some([usual_passed, usual_delivered])) = (suspected.best, usual.best) {
        // A starving process takes long, and a busy link delivers unevenly: only both together speak against the link.
        let slowness = (passed / usual_passed).min(delivered / usual_delivered);
        readings.push((Reading::LinkSlowness, slowness));
    }
    Answer(readings)
}

/// What one measurement of a link has found.
#[derive(Clone, Copy, Debug)]
struct Probed {
    /// Seconds that a link probe takes: as they have passed here, and by the rate at which the other system has delivered.
    seconds: [f64; 2],
    /// The share of it that was sent again.
    loss: f64,
}

#[derive(Debug, Default)]
struct Measured {
    /// The shortest times.
    best: Option<[f64; 2]>,
    loss: f64,
}

impl Measured {
    fn take(&mut self, probed: Option<Probed>) {
        let Some(Probed { seconds, loss }) = probed else { return };
        let best = self.best.unwrap_or(seconds);
        self.best = Some([0, 1].map(|at| best[at].min(seconds[at]).max(f64::MIN_POSITIVE)));
        self.loss = self.loss.max(loss);
    }
}

/// Measures the link from a host. If that is not over soon, its time is an estimate.
async fn measure(config: &AgentConfig, host: &HostRef) -> Option<Probed> {
    let reached = tokio::time::timeout(LINK_PATIENCE, reach(config, host, Purpose::Link)).await;
    let (mut stream, _) = reached.ok()?.ok()?;
    let (started, mut read) = (Instant::now(), 0);
    let mut buffer = vec![0; 64 << 10];
    let mut trailer = Vec::new();
    let reading = async {
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(bytes) => {
                    let left = LINK_BYTES.saturating_sub(read).min(bytes);
                    read += bytes;
                    trailer.extend_from_slice(&buffer[left..bytes]);
                }
            }
        }
    };
    let is_over = tokio::time::timeout(LINK_PATIENCE, reading).await.is_ok();
    match <[u8; TRAILER_BYTES]>::try_from(trailer) {
        Ok(trailer) if is_over => {
            let (rate, resent) = trailer.split_at(size_of::<u64>());
            let rate = u64::from_le_bytes(rate.try_into().ok()?);
            let resent = u32::from_le_bytes(resent.try_into().ok()?);
            let lost = f64::from(resent) * PACKET_BYTES / LINK_BYTES as f64;
            let passed = started.elapsed().as_secs_f64();
            (rate > 0)
                .then(|| Probed { seconds: [passed, LINK_BYTES as f64 / rate as f64], loss: lost.min(1.0) })
        }
        // It is at least so slow.
        _ if read > 0 => {
            let seconds = LINK_PATIENCE.as_secs_f64() * LINK_BYTES as f64 / read as f64;
            Some(Probed { seconds: [seconds; 2], loss: 0.0 })
        }
        _ => None,
    }
}

/// Sends what a link is measured with.
pub(crate) async fn show_link(stream: BoxStream) -> Result<(), HandshakeError> {
    let socket = stream.into_socket()?;
    let stream = std::net::TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::TcpStream::from_std(stream)?;
    let sending = async {
        let block = [0; 64 << 10];
        for _ in 0..LINK_BYTES / block.len() {
            stream.write_all(&block).await?;
        }
        let (rate, resent) = delivered(&stream);
        stream.write_all(&[&rate.to_le_bytes()[..], &resent.to_le_bytes()].concat()).await?;
        stream.shutdown().await
    };
    // Who measures has given up by then.
    tokio::time::timeout(LINK_PATIENCE * 4, sending).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))?;
    Ok(())
}

/// How fast a connection delivers, in bytes per second, and how many packets were sent again. The system leaves out the time in
/// which this process had nothing to send, or no core to send it.
fn delivered(stream: &tokio::net::TcpStream) -> (u64, u32) {
    // SAFETY: the structure consists of integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let place = (&raw mut info).cast();
    // SAFETY: the system writes at most as many bytes as it is told, which are there. What it does not know stays zero.
    let result = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut length)
    };
    if result == 0 { (info.tcpi_delivery_rate, info.tcpi_total_retrans) } else { (0, 0) }
}

/// How many times its usual time a small write takes where replicas are kept.
pub(super) async fn disk() -> Answer {
    let write = || -> io::Result<Duration> {
        let folder = counters::disk_folder();
        let started = Instant::now();
        // It has no name, so that nothing is left behind.
        let mut file: File = File::options().write(true).custom_flags(libc::O_TMPFILE).open(folder)?;
        file.write_all(&[0; 4096])?;
        file.sync_all()?;
        Ok(started.elapsed())
    };
    let taken = tokio::task::spawn_blocking(write).await;
    let mut readings = vec![(Reading::Answers, 1.0)];
    if let Ok(Ok(taken)) = taken {
        readings.push((Reading::DiskSlowness, taken.as_secs_f64() / WRITE_USUAL.as_secs_f64()));
    }
    Answer(readings)
}
