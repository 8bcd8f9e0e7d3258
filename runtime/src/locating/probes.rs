//! Executes what nodes ask of each other. Each probe is small, and ends in a bounded time.

use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
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
/// How often each of the two compared links is measured at most.
const LINK_TRIES_MAX: u32 = 3;
/// Below these ratios, of both times, one measurement of each is enough if nothing is lost.
const LINK_WELL: f64 = 1.5;
/// Between these ratios, two of each are not enough.
const LINK_DOUBT: Range<f64> = 2.0..6.0;
/// How long one measurement takes at most.
const LINK_PATIENCE: Duration = Duration::from_millis(180);
/// They come in blocks. Behind each of them stands how fast all was delivered so far, in bytes per second,
/// and how many packets were sent again: a link that loses some may be too slow for all blocks.
const BLOCK_BYTES: usize = 16 << 10;
/// How much waits at most to be sent for the first time: what a block says is then hardly older than the
/// block.
const UNSENT_BYTES: libc::c_int = 32 << 10;
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
    for tries in 1..=LINK_TRIES_MAX {
        usual.take(measure(&config, &other).await);
        suspected.take(measure(&config, &host).await);
        if suspected.is_decided(&usual, tries) {
            break;
        }
    }
    let mut readings = vec![(Reading::Answers, 1.0)];
    readings.extend(suspected.loss.map(|loss| (Reading::LinkLoss, loss)));
    readings.extend(suspected.compared(&usual).map(|slowness| (Reading::LinkSlowness, slowness)));
    Answer(readings)
}

/// What one measurement of a link has found.
#[derive(Clone, Copy, Debug)]
struct Probed {
    /// Seconds that a link probe takes: as they have passed here, and by the rate at which the other system
    /// has delivered.
    seconds: [f64; 2],
    /// The share of it that was sent again, if enough has come to say that.
    loss: Option<f64>,
}

#[derive(Debug, Default)]
struct Measured {
    /// The shortest times.
    best: Option<[f64; 2]>,
    /// The largest loss.
    loss: Option<f64>,
}

impl Measured {
    fn take(&mut self, probed: Option<Probed>) {
        let Some(Probed { seconds, loss }) = probed else { return };
        let best = self.best.unwrap_or(seconds);
        self.best = Some([0, 1].map(|at| best[at].min(seconds[at]).max(f64::MIN_POSITIVE)));
        self.loss = self.loss.into_iter().chain(loss).reduce(f64::max);
    }

    /// How many times the time of another link it takes, by each of the two times.
    fn ratios(&self, usual: &Self) -> Option<[f64; 2]> {
        let (mine, usual) = (self.best?, usual.best?);
        Some([0, 1].map(|at| mine[at] / usual[at]))
    }

    /// How many times the time of another link it takes. A starving process takes long, and a busy link
    /// delivers unevenly: only both times together speak against the link.
    fn compared(&self, usual: &Self) -> Option<f64> {
        self.ratios(usual).map(|[passed, delivered]| passed.min(delivered))
    }

    /// Whether another try would hardly say anything else.
    fn is_decided(&self, usual: &Self, tries: u32) -> bool {
        match tries {
            1 => {
                self.loss == Some(0.0)
                    && self.ratios(usual).is_some_and(|both| both.iter().all(|it| *it < LINK_WELL))
            }
            _ => !self.compared(usual).is_some_and(|it| LINK_DOUBT.contains(&it)),
        }
    }
}

/// Measures the link from a host. If that is not over soon, its time is an estimate.
async fn measure(config: &AgentConfig, host: &HostRef) -> Option<Probed> {
    let reached = tokio::time::timeout(LINK_PATIENCE, reach(config, host, Purpose::Link)).await;
    let (stream, _) = reached.ok()?.ok()?;
    let (started, mut read) = (Instant::now(), Read::default());
    let is_over = tokio::time::timeout(LINK_PATIENCE, read.all_from(stream)).await.is_ok();
    read.probed(started.elapsed().as_secs_f64(), is_over)
}

/// What was read of a link probe.
#[derive(Debug, Default)]
struct Read {
    bytes: usize,
    /// What the last block has said: the rate, and how many packets were sent again.
    trailer: Option<(u64, u32)>,
}

impl Read {
    async fn all_from(&mut self, mut stream: BoxStream) {
        let mut block = vec![0; BLOCK_BYTES + TRAILER_BYTES];
        let mut filled = 0;
        loop {
            match stream.read(&mut block[filled..]).await {
                Ok(0) | Err(_) => return,
                Ok(bytes) => {
                    self.bytes += bytes;
                    filled += bytes;
                }
            }
            if let (true, Some((rate, resent))) =
                (filled == block.len(), block[BLOCK_BYTES..].split_first_chunk())
            {
                self.trailer = resent
                    .first_chunk()
                    .map(|resent| (u64::from_le_bytes(*rate), u32::from_le_bytes(*resent)));
                filled = 0;
            }
        }
    }

    /// What follows from that after `passed` seconds.
    fn probed(&self, passed: f64, is_over: bool) -> Option<Probed> {
        let (rate, resent) = self.trailer.unwrap_or_default();
        let loss = |resent| (f64::from(resent) * PACKET_BYTES / self.bytes as f64).min(1.0);
        // The first blocks were written before anything could be lost.
        let says_loss = is_over || self.bytes > UNSENT_BYTES as usize + BLOCK_BYTES;
        let seconds = match is_over {
            true if self.bytes >= LINK_BYTES && rate > 0 => [passed, LINK_BYTES as f64 / rate as f64],
            // It is at least so slow.
            false if self.bytes > 0 => [passed * LINK_BYTES as f64 / self.bytes as f64; 2],
            _ => return None,
        };
        Some(Probed { seconds, loss: says_loss.then(|| loss(resent)) })
    }
}

/// Sends what a link is measured with.
pub(crate) async fn show_link(stream: BoxStream) -> Result<(), HandshakeError> {
    let socket = stream.into_socket()?;
    let stream = std::net::TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::TcpStream::from_std(stream)?;
    send_late(&stream);
    let sending = async {
        // A trailer goes out together with the next block, but for the last one.
        let mut next = vec![0; TRAILER_BYTES + BLOCK_BYTES];
        stream.write_all(&next[TRAILER_BYTES..]).await?;
        for block in 1..=LINK_BYTES / BLOCK_BYTES {
            let (rate, resent) = delivered(&stream);
            next[..8].copy_from_slice(&rate.to_le_bytes());
            next[8..TRAILER_BYTES].copy_from_slice(&resent.to_le_bytes());
            let is_last = block == LINK_BYTES / BLOCK_BYTES;
            stream.write_all(if is_last { &next[..TRAILER_BYTES] } else { &next }).await?;
        }
        stream.shutdown().await
    };
    // Who measures has given up by then.
    tokio::time::timeout(LINK_PATIENCE * 4, sending).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))?;
    Ok(())
}

/// Lets little wait to be sent. A system that cannot do so only tells losses later.
fn send_late(stream: &tokio::net::TcpStream) {
    let (unsent, length) = (UNSENT_BYTES, size_of::<libc::c_int>() as libc::socklen_t);
    let bytes = (&raw const unsent).cast();
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
    // SAFETY: the system reads an integer of that length, which is there.
    unsafe { libc::setsockopt(stream.as_raw_fd(), level, option, bytes, length) };
}

/// How fast a connection delivers, in bytes per second, and how many packets were sent again. The system
/// leaves out the time in which this process had nothing to send, or no core to send it.
fn delivered(stream: &tokio::net::TcpStream) -> (u64, u32) {
    // SAFETY: the structure consists of integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let place = (&raw mut info).cast();
    // SAFETY: the system writes at most as many bytes as it is told, which are there. What it does not know
    // stays zero.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_well_is_measured_once() {
        let usual = Measured { best: Some([0.01; 2]), loss: Some(0.0) };
        let link = |slowness: f64, loss| Measured { best: Some([0.01 * slowness; 2]), loss };
        assert!(link(1.2, Some(0.0)).is_decided(&usual, 1));
        assert!(!link(1.2, Some(0.01)).is_decided(&usual, 1), "it loses packets");
        assert!(!link(1.2, None).is_decided(&usual, 1), "who knows what it loses");
        assert!(!link(1.6, Some(0.0)).is_decided(&usual, 1), "it may be slow");
        assert!(!Measured::default().is_decided(&usual, 1), "nothing came");
        let paused = Measured { best: Some([0.04, 0.01]), loss: Some(0.0) };
        assert!(!link(5.0, Some(0.0)).is_decided(&paused, 1), "the other one was read with a pause");
        assert!(link(1.6, Some(0.0)).is_decided(&usual, 2));
        assert!(!link(3.0, Some(0.0)).is_decided(&usual, 2), "near the threshold");
        assert!(link(10.0, Some(0.0)).is_decided(&usual, 2));
    }

    #[test]
    fn a_link_that_is_too_slow_for_all_blocks_still_tells_its_losses() {
        let read = Read { bytes: LINK_BYTES / 4, trailer: Some((1 << 30, 40)) };
        let probed = read.probed(0.2, false);
        assert_eq!(probed.map(|it| it.seconds), Some([0.8; 2]));
        let loss = probed.and_then(|it| it.loss);
        assert!(loss.is_some_and(|loss| (0.2..0.25).contains(&loss)), "40 packets of 190: {loss:?}");
        let little = Read { bytes: 2 * BLOCK_BYTES, trailer: Some((1 << 30, 0)) };
        assert_eq!(little.probed(0.2, false).map(|it| it.loss), Some(None), "nobody knows yet");
        assert!(Read::default().probed(0.2, false).is_none(), "nothing came");
        assert!(read.probed(0.1, true).is_none(), "it hung up early");
        let all = Read { bytes: LINK_BYTES, trailer: Some((1 << 21, 0)) };
        assert_eq!(all.probed(0.1, true).map(|it| it.seconds), Some([0.1, 0.5]));
    }
}
