//! Connections for control messages: ordered, reliable streams of frames.
//!
//! Processes on one host meet at a Unix socket in the abstract namespace, which leaves no file behind; across
//! hosts they use TCP. On either socket, both ends have passed the [handshake](super::handshake) before a
//! frame counts.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    os::{
        fd::{AsRawFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener as StdUnixListener, UnixStream as StdUnixStream},
    },
    str::FromStr,
    time::Duration,
};

use everfold_protocol::{
    frame::{self, FrameError, PRELUDE_BYTES, Prelude},
    message::Header,
    seal::Seal,
};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream, lookup_host},
    time::Instant,
};

use super::error::HandshakeError;

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// A connection at an [`Address`].
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
        let silence_max = silence_max.max(SILENCE_LEAST);
        // The system counts no further than this.
        let probe_secs = (silence_max.as_secs() / 4).clamp(1, PROBE_SECS_MAX) as u32;
        let silence_ms = i32::try_from(silence_max.as_millis()).unwrap_or(i32::MAX);
        // A stopped process still acknowledges probes of its full window: only the first of these gives it
        // up.
        setsockopt(self, sockopt::TcpUserTimeout, &silence_ms.cast_unsigned())?;
        setsockopt(self, sockopt::TcpKeepIdle, &probe_secs)?;
        setsockopt(self, sockopt::TcpKeepInterval, &probe_secs)?;
        setsockopt(self, sockopt::KeepAlive, &true)?;
        Ok(())
    }
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

/// Where a listener can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `tcp:HOST:PORT`
    Tcp(String),
    /// `unix:@NAME`, in the abstract namespace.
    Unix(String),
}

/// The text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address; write tcp:HOST:PORT or unix:@NAME")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refuse = || AddressError(text.to_owned());
        match text.split_once(':') {
            Some(("unix", name)) => match name.strip_prefix('@') {
                Some(name) if (1..100).contains(&name.len()) => Ok(Self::Unix(name.to_owned())),
                _ => Err(refuse()),
            },
            Some(("tcp", place)) => match place.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(place.to_owned()))
                }
                _ => Err(refuse()),
            },
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => write!(f, "tcp:{place}"),
            Self::Unix(name) => write!(f, "unix:@{name}"),
        }
    }
}

/// Accepts connections at an [`Address`].
#[derive(Debug)]
pub enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over a Unix socket.
    Unix(UnixListener),
}

/// A connection of any kind.
pub type BoxStream = Box<dyn Connection>;

impl Listener {
    /// Listens at `address`. Port 0 lets the system choose.
    ///
    /// # Errors
    /// The address is taken, or not of this machine.
    pub async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(place) => {
                let address = resolve(place).await?[0];
                let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                // The launcher of this job may hold the port for it, without listening. If somebody listens
                // there, the port is not ours, although the system would share it.
                socket.set_reuseport(true)?;
                socket.set_reuseaddr(true)?;
                socket.bind(address)?;
                if address.port() != 0 && TcpStream::connect(address).await.is_ok() {
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, "the address is in use"));
                }
                Ok(Self::Tcp(socket.listen(1024)?))
            }
            Address::Unix(name) => {
                let listener = StdUnixListener::bind_addr(&UnixAddr::from_abstract_name(name)?)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(UnixListener::from_std(listener)?))
            }
        }
    }

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    /// What the system says; the listener stays usable.
    pub async fn accept(&self) -> io::Result<(BoxStream, Origin)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                prepare(&stream)?;
                Ok((Box::new(stream), address.ip().into()))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred()?.uid();
                Ok((Box::new(stream), Origin::User(user)))
            }
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn tcp_address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Some),
            Self::Unix(_) => Ok(None),
        }
    }
}

/// How a connection finds its pace. Those of many peers meet at one link here: there BBR, which some systems
/// prefer, leaves single ones behind for tens of milliseconds.
const CONGESTION_CONTROL: &str = "cubic";

/// Messages leave at once, and connections share links.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Where it is not allowed, the system's choice stays.
    if let Err(error) = setsockopt(stream, sockopt::TcpCongestion, &CONGESTION_CONTROL.into()) {
        tracing::debug!(%error, "no {CONGESTION_CONTROL}");
    }
    Ok(())
}

async fn resolve(place: &str) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<_> = lookup_host(place).await?.collect();
    match found.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, format!("no address for {place}"))),
        false => Ok(found),
    }
}

/// How long one of several addresses of a name is tried.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// Connects to the first of `addresses` that answers.
async fn connect_any(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let (last, first) = addresses.split_last().ok_or(io::ErrorKind::AddrNotAvailable)?;
    for address in first {
        match tokio::time::timeout(ADDRESS_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => tracing::debug!(%address, %error, "trying the next address"),
            Err(_) => tracing::debug!(%address, "no answer; trying the next address"),
        }
    }
    TcpStream::connect(last).await
}

/// Says that a name leads back to this host, if it does: there nobody from another host arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopbackName(Option<(String, IpAddr)>);

impl LoopbackName {
    /// Looks up what `address` means on this host.
    pub fn of(address: &Address) -> Self {
        let Address::Tcp(place) = address else { return Self::default() };
        let found = place.to_socket_addrs().map(Iterator::collect);
        Self::among(place, found.unwrap_or_default())
    }

    fn among(place: &str, found: Vec<SocketAddr>) -> Self {
        let name = place.rsplit_once(':').map_or(place, |(name, _)| name);
        let is_meant = name == "localhost" || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        let leads_back = found.iter().all(|address| address.ip().is_loopback());
        let first = found.first().filter(|_| leads_back && !is_meant);
        Self(first.map(|address| (name.to_owned(), address.ip())))
    }
}

impl fmt::Display for LoopbackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((name, address)) = &self.0 else { return Ok(()) };
        write!(
            f,
            "; {name} is {address} on this host, where processes of other hosts cannot reach it: mend /etc/hosts, or give \
             EVERFOLD_RENDEZVOUS the address that other hosts use"
        )
    }
}

/// Connects once.
///
/// # Errors
/// Nobody listens there.
pub async fn connect(address: &Address) -> io::Result<BoxStream> {
    match address {
        Address::Tcp(place) => {
            let stream = connect_any(resolve(place).await?).await?;
            prepare(&stream)?;
            Ok(Box::new(stream))
        }
        Address::Unix(name) => Ok(Box::new(connect_own(name)?)),
    }
}

/// A process of another user listens where one of this job should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a process of user {user} has taken the name where a process of this job listens. End that process, or start the \
     job anew with another EVERFOLD_SECRET, which gives it other names"
)]
pub struct Stranger {
    /// Whose process it is.
    pub user: u32,
}

impl Stranger {
    /// Whether that is why nobody could be reached.
    pub fn behind(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Connects to a name in the abstract namespace, which any user could have taken.
///
/// # Errors
/// Nobody listens there, or a [`Stranger`]; [`io::ErrorKind::WouldBlock`] if too many wait there to be let in.
pub(crate) fn connect_own(name: &str) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // Who does not let anybody in keeps nobody waiting.
    socket::connect(socket.as_raw_fd(), &socket::UnixAddr::new_abstract(name.as_bytes())?)?;
    let stream = UnixStream::from_std(StdUnixStream::from(socket))?;
    is_own(&stream)?;
    Ok(stream)
}

/// Whether a process of this user is at the other end.
///
/// # Errors
/// A [`Stranger`], or the system does not tell.
pub(crate) fn is_own(stream: &UnixStream) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    match user == nix::unistd::geteuid().as_raw() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, Stranger { user })),
    }
}

/// Connects to a listener that may not be there yet, until `deadline`.
///
/// # Errors
/// What the last attempt said; at once, if that was a [`Stranger`].
pub async fn connect_until(address: &Address, deadline: Instant) -> io::Result<BoxStream> {
    let mut pause = Duration::from_millis(1);
    loop {
        match connect(address).await {
            Err(error) if Instant::now() + pause < deadline && Stranger::behind(&error).is_none() => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            result => return result,
        }
    }
}

/// Where a connection comes from, as far as somebody can have many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Over TCP; of IPv6 the network, as each host has a whole one.
    Network(IpAddr),
    /// On this host, over a Unix socket.
    User(u32),
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            address => address,
        })
    }
}

/// Writes one value as a frame.
///
/// # Errors
/// The value is over `limit`, or the connection broke.
pub async fn write_frame<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &T,
    limit: u64,
    seal: &mut Seal,
) -> Result<(), HandshakeError> {
    let mut bytes = Vec::new();
    frame::encode_into(value, limit, seal, &mut bytes)?;
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    Ok(())
}

/// Reads one frame.
///
/// # Errors
/// It is not a valid frame, or the connection broke.
pub async fn read_frame<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    limit: u64,
    seal: &mut Seal,
) -> Result<T, HandshakeError> {
    let mut prelude = [0; PRELUDE_BYTES];
    stream.read_exact(&mut prelude).await?;
    let prelude = Prelude::parse(&prelude, limit)?;
    let mut payload = vec![0; prelude.payload_bytes as usize];
    stream.read_exact(&mut payload).await?;
    Ok(prelude.decode(&payload, seal)?)
}

/// Most bytes of messages that are put into one frame, as far as single messages allow.
const BATCH_BYTES: usize = 1 << 20;

/// Appends `messages` to `out`, all behind the same header, in as few frames as are reasonable.
///
/// # Errors
/// A single message is over `limit`.
pub fn encode_batch<M: Serialize>(
    header: &Header,
    messages: &[M],
    limit: u64,
    seal: &mut Seal,
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let before = out.len();
    let batch = frame::encode_into(&(header, messages), limit.min(BATCH_BYTES as u64), seal, out);
    match batch {
        Err(FrameError::TooLong { .. }) if messages.len() > 1 => {
            out.truncate(before);
            let (first, second) = messages.split_at(messages.len() / 2);
            encode_batch(header, first, limit, seal, out)?;
            encode_batch(header, second, limit, seal, out)
        }
        Err(FrameError::TooLong { .. }) => frame::encode_into(&(header, messages), limit, seal, out),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["tcp:localhost:80", "tcp:10.0.0.1:0", "tcp:[::1]:9", "unix:@everfold-12"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "tcp:", "tcp:host", "tcp::80", "tcp:h:70000", "unix:/tmp/x", "unix:@", "http://x:1"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn all_addresses_of_a_name_are_tried() {
        let bind = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (open, closed) = (bind(), bind().local_addr().unwrap());
        let open = open.local_addr().map(|address| (open, address)).unwrap();
        assert_eq!(connect_any(vec![closed, open.1]).await.unwrap().peer_addr().unwrap(), open.1);
        assert_eq!(connect_any(vec![open.1, closed]).await.unwrap().peer_addr().unwrap(), open.1);
        assert!(connect_any(vec![closed, closed]).await.is_err());
    }

    #[tokio::test]
    async fn any_silence_can_be_a_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        for silence_max in [Duration::ZERO, Duration::from_secs(3), Duration::MAX] {
            stream.bound_silence(silence_max).unwrap();
        }
    }

    #[test]
    fn a_name_that_leads_back_is_told() {
        let told = |place: &str, found: &[&str]| {
            let found = found.iter().map(|ip| SocketAddr::from((ip.parse::<IpAddr>().unwrap(), 7000)));
            LoopbackName::among(place, found.collect()).to_string()
        };
        assert!(told("node0:7000", &["127.0.1.1"]).starts_with("; node0 is 127.0.1.1 on this host"));
        assert!(told("node0:7000", &["::1", "127.0.1.1"]).contains("::1"));
        assert_eq!(told("node0:7000", &["127.0.1.1", "10.0.0.1"]), "");
        assert_eq!(told("node0:7000", &["10.0.0.1"]), "");
        assert_eq!(told("node0:7000", &[]), "");
        assert_eq!(told("localhost:7000", &["127.0.0.1"]), "", "whoever says that means it");
        assert_eq!(told("127.0.0.1:7000", &["127.0.0.1"]), "");
        assert_eq!(told("[::1]:7000", &["::1"]), "");
    }

    #[test]
    fn long_batches_become_several_frames() {
        let header =
            Header { job: 1.into(), epoch: 0.into(), sender: everfold_protocol::ProcessId::first(0) };
        let messages: Vec<Vec<u64>> = (0..8).map(|n| vec![u64::MAX - n; 50_000]).collect();
        let mut bytes = Vec::new();
        encode_batch(&header, &messages, 64 << 20, &mut Seal::of_strangers(), &mut bytes).unwrap();
        let mut seal = Seal::of_strangers();
        let mut found = Vec::new();
        let mut rest = bytes.as_slice();
        let mut frames = 0;
        while let Some((prelude, _)) = rest.split_first_chunk::<PRELUDE_BYTES>() {
            let len = PRELUDE_BYTES + Prelude::parse(prelude, u64::MAX).unwrap().payload_bytes as usize;
            let (sender, batch): (Header, Vec<Vec<u64>>) =
                frame::decode(&rest[..len], u64::MAX, &mut seal).unwrap().unwrap();
            assert_eq!(sender, header);
            found.extend(batch);
            rest = &rest[len..];
            frames += 1;
        }
        assert_eq!(found, messages);
        assert!(frames > 1);
        assert!(encode_batch(&header, &messages, 1000, &mut seal, &mut Vec::new()).is_err());
    }
}
