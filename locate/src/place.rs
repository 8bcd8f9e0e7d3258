//! Places: the component that a symptom is about, or that has a fault.

use core::fmt;

use everfold_protocol::Rank;
use serde::{Deserialize, Serialize};

/// A host of the job, by its index in the tree. The root is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Host(pub u32);

/// Hosts that share something and may fail together, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Domain(pub u32);

/// What is suspected (the paper's SFN, and what belongs to it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Place {
    /// A whole host.
    Host(Host),
    /// A process.
    Rank {
        /// Which one.
        rank: Rank,
        /// Where it runs.
        host: Host,
    },
    /// One direction of what connects two hosts.
    Link {
        /// The host whose bytes are read.
        from: Host,
        /// The host that reads them.
        to: Host,
    },
    /// All hosts of a domain. Symptoms are never about a domain; located faults may be.
    Domain(Domain),
}

/// What kind of place a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// [`Place::Host`].
    Host,
    /// [`Place::Rank`].
    Rank,
    /// [`Place::Link`].
    Link,
    /// [`Place::Domain`].
    Domain,
}

impl Place {
    /// The host whose localisation node collects the symptoms; none for a domain, which the root decides about.
    pub fn host(self) -> Option<Host> {
        match self {
            Self::Host(host) | Self::Rank { host, .. } | Self::Link { from: host, .. } => Some(host),
            Self::Domain(_) => None,
        }
    }

    /// Whether the other place is this one, or belongs to this host.
    pub(crate) fn contains(self, other: Self) -> bool {
        self == other || matches!(self, Self::Host(host) if other.host() == Some(host))
    }

    /// What kind of place it is.
    pub fn scope(self) -> Scope {
        match self {
            Self::Host(_) => Scope::Host,
            Self::Rank { .. } => Scope::Rank,
            Self::Link { .. } => Scope::Link,
            Self::Domain(_) => Scope::Domain,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "host {}", host.0),
            Self::Rank { rank, host } => write!(f, "{rank} on host {}", host.0),
            Self::Link { from, to } => write!(f, "link from host {} to host {}", from.0, to.0),
            Self::Domain(domain) => write!(f, "domain {}", domain.0),
        }
    }
}
