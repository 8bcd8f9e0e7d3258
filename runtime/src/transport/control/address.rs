//! Where a listener can be found.

use std::{
    fmt,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    str::FromStr,
};

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
}
