//! How a connection is made.

use std::{
    io,
    net::SocketAddr,
    os::{fd::AsRawFd, unix::net::UnixStream as StdUnixStream},
    time::Duration,
};

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, socket};
use tokio::{
    net::{TcpStream, UnixStream, lookup_host},
    time::{Instant, timeout_at},
};

use super::{
    address::Address,
    connection::{BoxStream, tcp_socket},
};

pub(super) async fn resolve(place: &str) -> io::Result<Vec<SocketAddr>> {
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
        match tokio::time::timeout(ADDRESS_TIMEOUT, connect_to(*address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => tracing::debug!(%address, %error, "trying the next address"),
            Err(_) => tracing::debug!(%address, "no answer; trying the next address"),
        }
    }
    connect_to(*last).await
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    tcp_socket(&address)?.connect(address).await
}

/// Connects once.
///
/// # Errors
/// Nobody listens there.
pub async fn connect(address: &Address) -> io::Result<BoxStream> {
    match address {
        Address::Tcp(place) => Ok(Box::new(connect_any(resolve(place).await?).await?)),
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
/// What the last attempt said that had an answer, or that there was none; at once, if it was a [`Stranger`].
pub async fn connect_until(address: &Address, deadline: Instant) -> io::Result<BoxStream> {
    try_until(deadline, || connect(address)).await
}

/// Tries to connect until `deadline`. A host may answer a try late, or never.
async fn try_until<S, C: Future<Output = io::Result<S>>>(
    deadline: Instant,
    connect: impl Fn() -> C,
) -> io::Result<S> {
    let mut pause = Duration::from_millis(1);
    let mut last = io::Error::new(io::ErrorKind::TimedOut, "no answer");
    loop {
        match timeout_at(deadline, connect()).await {
            Err(_) => return Err(last),
            Ok(Err(error)) if Instant::now() + pause < deadline && Stranger::behind(&error).is_none() => {
                last = error;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            Ok(result) => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        future::{pending, ready},
    };

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_try_without_an_answer_ends_in_time() {
        let silent = pending::<io::Result<()>>;
        assert_eq!(try_until(Instant::now(), silent).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // An answer of an earlier try says more.
        let tries = Cell::new(0);
        let refused_at_first = || match tries.replace(tries.get() + 1) {
            0 => ready(Err(io::Error::from(io::ErrorKind::ConnectionRefused))).left_future(),
            _ => silent().right_future(),
        };
        let deadline = Instant::now() + Duration::from_millis(20);
        let error = try_until(deadline, refused_at_first).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
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
}
