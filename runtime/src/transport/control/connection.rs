//! What a connection can do, over TCP and Unix sockets.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpSocket, TcpStream, UnixStream},
};

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// A connection at an [`Address`](super::Address).
pub trait Connection: Stream {
    /// The same connection for threads that do not wait.
    ///
    /// # Errors
    /// What the system says.
    fn into_socket(self: Box<Self>) -> io::Result<OwnedFd>;

    /// The address of this host as the other side sees it, if it may be on another one.
    ///
    /// # Errors
    /// What the system says.
    fn own_ip(&self) -> io::Result<Option<IpAddr>>;

    /// Breaks the connection once the peer has acknowledged or taken nothing for so long, also if nothing is
    /// under way.
    ///
    /// # Errors
    /// What the system says.
    fn bound_silence(&self, silence_max: Duration) -> io::Result<()>;
}

/// However short the silence is that a job tolerates: what is lost on the way has to be sent again in time.
const SILENCE_LEAST: Duration = Duration::from_secs(2);

/// Longest time between two probes that the system accepts.
const PROBE_SECS_MAX: u64 = 32767;

impl Connection for TcpStream {
    fn into_socket(self: Box<Self>) -> io::Result<OwnedFd> {
        self.into_std().map(OwnedFd::from)
    }

    fn own_ip(&self) -> io::Result<Option<IpAddr>> {
        self.local_addr().map(|address| Some(address.ip()))
    }

    fn bound_silence(&self, silence_max: Duration) -> io::Result<()> {
        bound_silence(self, silence_max)
    }
}

/// The same for a TCP connection as threads have it that do not wait.
///
/// # Errors
/// What the system says.
pub fn bound_silence(socket: &impl AsFd, silence_max: Duration) -> io::Result<()> {
    let silence_max = silence_max.max(SILENCE_LEAST);
    // The system counts no further than this.
    let probe_secs = (silence_max.as_secs() / 4).clamp(1, PROBE_SECS_MAX) as u32;
    let silence_ms = i32::try_from(silence_max.as_millis()).unwrap_or(i32::MAX);
    // A stopped process still acknowledges probes of its full window: only the first of these gives it up.
    setsockopt(socket, sockopt::TcpUserTimeout, &silence_ms.cast_unsigned())?;
    setsockopt(socket, sockopt::TcpKeepIdle, &probe_secs)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &probe_secs)?;
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    Ok(())
}

impl Connection for UnixStream {
    fn into_socket(self: Box<Self>) -> io::Result<OwnedFd> {
        self.into_std().map(OwnedFd::from)
    }

    fn own_ip(&self) -> io::Result<Option<IpAddr>> {
        Ok(None)
    }

    /// Nothing lies between two processes of one host.
    fn bound_silence(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

/// A connection of any kind.
pub type BoxStream = Box<dyn Connection>;

/// How a connection finds its pace. Those of many peers meet at one link here: there BBR, which some systems
/// prefer, leaves single ones behind for tens of milliseconds.
pub(super) const CONGESTION_CONTROL: &str = "cubic";

/// A socket that is about to connect to `address`, or to listen there. Its messages leave at once, and it
/// shares links with others.
///
/// Sockets that a listener accepts take over how they find their pace. It has to be said beforehand: a
/// connection that has begun with BBR is paced by timers ever after.
pub(super) fn tcp_socket(address: &SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_nodelay(true)?;
    // Where it is not allowed, the system's choice stays.
    if let Err(error) = setsockopt(&socket, sockopt::TcpCongestion, &CONGESTION_CONTROL.into()) {
        tracing::debug!(%error, "no {CONGESTION_CONTROL}");
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn any_silence_can_be_a_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        for silence_max in [Duration::ZERO, Duration::from_secs(3), Duration::MAX] {
            stream.bound_silence(silence_max).unwrap();
        }
    }
}
