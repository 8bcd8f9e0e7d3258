//! What agents and the master say to each other about faults, and what everybody is told of one that was located.
//!
//! Symptoms, probes and verdicts travel between agents: they are words of `everfold-locate`.

use alloc::{string::String, sync::Arc, vec::Vec};
use core::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{id::Rank, message::AgentRef, path::Path};

/// A host of the job, as all of its agents number them: the first hosts the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRef {
    /// Its agent.
    pub agent: AgentRef,
    /// The ranks that live there.
    pub ranks: Path,
    /// Label of what it shares with other hosts.
    pub domain: Option<String>,
}

/// What the master says to the part of an agent that locates faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToLocator {
    /// The job begins on these hosts. They keep their numbers until it ends.
    Hosts(Arc<[HostRef]>),
    /// A fault was located, or one is over.
    Located(Arc<Located>),
    /// These rules hold from now on.
    Rules(Arc<str>),
}

/// What that part of an agent says to the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromLocator {
    /// A fault was located, or one is over. Only the root of the tree says so, and once.
    Located(Arc<Located>),
    /// A user wants these rules to hold. The agent has compiled them.
    Rules(Arc<str>),
    /// Of the time in which the host's ranks wanted a core, they waited for one this share of it, in percent.
    Starved(u8),
}

/// Which component is faulty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Component {
    /// A rank.
    Rank(Rank),
    /// A host.
    Host(HostName),
    /// What carries bytes from one host to another, in this direction.
    Link {
        /// From where.
        from: HostName,
        /// To where.
        to: HostName,
    },
    /// Hosts that share something.
    Domain {
        /// Its label.
        label: String,
        /// The ranks that live there.
        ranks: Path,
    },
}

/// A host as people find it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostName {
    /// The address at which the other hosts reach it.
    pub address: String,
    /// The ranks that live there.
    pub ranks: Path,
}

/// A fault that was located: what, where, since when, and why that is believed. Or that it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// What it is called in the rules.
    pub fault: String,
    /// The same for people.
    pub says: String,
    /// Which component is faulty.
    pub component: Component,
    /// How long before it was told the first of its symptoms was observed.
    pub age: Duration,
    /// How sure the rule is, in percent.
    pub confidence: u8,
    /// The symptoms that speak for it, for people.
    pub evidence: Vec<String>,
    /// Whether it is the application's doing, and no component is faulty.
    pub harmless: bool,
    /// Whether it is over: nothing was observed of it for a while, and probes do not confirm it any more. It was told before.
    pub over: bool,
}

impl Component {
    /// The ranks that live where the fault is; of a link, where bytes come from.
    pub fn ranks(&self) -> Path {
        match self {
            Self::Rank(rank) => Path::single(*rank),
            Self::Host(host) | Self::Link { from: host, .. } => host.ranks.clone(),
            Self::Domain { ranks, .. } => ranks.clone(),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {} (ranks {})", self.address, self.ranks)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(rank) => write!(f, "rank {rank}"),
            Self::Host(host) => host.fmt(f),
            Self::Link { from, to } => write!(f, "link from {from} to {to}"),
            Self::Domain { label, ranks } => write!(f, "domain {label:?} (ranks {ranks})"),
        }
    }
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, says, component, age, confidence, evidence, over, .. } = self;
        if *over {
            return write!(f, "{component}: {fault} is over");
        }
        write!(f, "{component}: {fault}: {says} (for {age:.1?}, {confidence} % sure")?;
        match evidence.is_empty() {
            true => f.write_str(")"),
            false => write!(f, "; {})", evidence.join(", ")),
        }
    }
}
