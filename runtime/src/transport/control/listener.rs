//! Who accepts connections, and where they come from.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener as StdUnixListener},
    },
};

use tokio::net::{TcpListener, TcpStream, UnixListener};

use super::{
    address::Address,
    connect::resolve,
    connection::{BoxStream, tcp_socket},
};

/// Accepts connections at an [`Address`].
#[derive(Debug)]
pub enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over a Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Listens at `address`. Port 0 lets the system choose.
    ///
    /// # Errors
    /// The address is taken, or not of this machine.
    pub async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(place) => {
                let address = resolve(place).await?[0];
                let socket = tcp_socket(&address)?;
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nix::sys::socket::{getsockopt, sockopt};

    use super::{
        super::{connect::connect, connection::CONGESTION_CONTROL},
        *,
    };

    /// Whether messages leave at once, and how the connection finds its pace.
    fn manners(socket: &impl AsFd) -> (bool, String) {
        let pace = getsockopt(socket, sockopt::TcpCongestion).unwrap();
        let pace = pace.to_string_lossy().trim_end_matches('\0').to_owned();
        (getsockopt(socket, sockopt::TcpNoDelay).unwrap(), pace)
    }

    #[tokio::test]
    async fn a_listener_accepts_connections_that_behave_as_those_that_are_made() {
        let here = Address::Tcp("127.0.0.1:0".into());
        let listener = Listener::bind(&here).await.unwrap();
        let address = Address::Tcp(listener.tcp_address().unwrap().unwrap().to_string());
        let (made, accepted) = tokio::join!(connect(&address), listener.accept());
        let ends = [made.unwrap(), accepted.unwrap().0].map(|stream| stream.into_socket().unwrap());
        let Listener::Tcp(listener) = listener else { panic!("it listens over TCP") };
        let manners = [manners(&listener), manners(&ends[0]), manners(&ends[1])];
        // A connection that begins with another way keeps a part of it: so the listener has to have it.
        assert!(manners.iter().all(|it| *it == manners[0]), "{manners:?}");
        let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
        let pace = known.split_whitespace().find(|known| *known == CONGESTION_CONTROL);
        assert!(manners[0].0 && pace.is_none_or(|pace| manners[0].1 == pace), "{manners:?}");
    }
}
