//! Faults that were located and are not over: where they are, and between which hosts reads are slow for it.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use everfold_protocol::AgentId;
use serde::Serialize;

/// A fault that was located.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// What its rule calls it.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// Whether it is the application's doing, and no component is faulty.
    pub harmless: bool,
}

/// Where a fault is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Place {
    /// On the hosts of these agents: on one, or on all of a domain.
    Hosts(Vec<AgentId>),
    /// Between two hosts, in this direction.
    Link {
        /// From where bytes come.
        from: AgentId,
        /// Where they go.
        to: AgentId,
    },
}

/// Faults that were located and are not over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Whether each is harmless. The rules may have changed until it is over.
    harmless: BTreeMap<(Place, String), bool>,
}

impl Faults {
    /// Takes in that a fault was located, or is over.
    pub fn see(&mut self, fault: &Fault, over: bool) {
        let key = (fault.place.clone(), fault.name.clone());
        match over {
            true => self.harmless.remove(&key),
            false => self.harmless.insert(key, fault.harmless),
        };
    }

    /// Whether there are none.
    pub fn are_none(&self) -> bool {
        self.harmless.is_empty()
    }

    /// The names of the faults that the host of this agent has.
    pub fn of(&self, agent: AgentId) -> impl Iterator<Item = &str> {
        let is_there = move |(place, _): &&(Place, String)| match place {
            Place::Hosts(hosts) => hosts.contains(&agent),
            Place::Link { .. } => false,
        };
        self.harmless.keys().filter(is_there).map(|(_, name)| name.as_str())
    }

    /// Whether one of them says that the host of `to` reads slowly from that of `from`: the one is faulty, or
    /// the link between them.
    pub fn slow_reads(&self, from: AgentId, to: Option<AgentId>) -> bool {
        let is_between = |place: &Place| match place {
            Place::Hosts(hosts) => hosts.contains(&from),
            Place::Link { from: sender, to: receiver } => (*sender, Some(*receiver)) == (from, to),
        };
        self.harmless.iter().any(|((place, _), harmless)| !harmless && is_between(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: AgentId = AgentId(1);
    const THERE: AgentId = AgentId(2);

    fn fault(name: &str, place: Place) -> Fault {
        Fault { name: name.into(), place, harmless: false }
    }

    #[test]
    fn a_host_has_its_faults_until_they_are_over() {
        let mut faults = Faults::default();
        let disk = fault("disk_failing", Place::Hosts(vec![HERE]));
        let domain = fault("domain_bad", Place::Hosts(vec![HERE, THERE]));
        faults.see(&disk, false);
        faults.see(&domain, false);
        faults.see(&fault("link_slow", Place::Link { from: HERE, to: THERE }), false);
        assert!(faults.of(HERE).eq(["disk_failing", "domain_bad"]));
        assert!(faults.of(THERE).eq(["domain_bad"]), "a fault of a link is none of its hosts");
        faults.see(&Fault { harmless: true, ..disk }, true);
        assert!(faults.of(HERE).eq(["domain_bad"]), "the rules have changed meanwhile");
    }

    #[test]
    fn reads_are_slow_from_a_faulty_host_and_over_a_faulty_link_in_its_direction() {
        let mut faults = Faults::default();
        let link = fault("link_slow", Place::Link { from: HERE, to: THERE });
        faults.see(&link, false);
        assert!(faults.slow_reads(HERE, Some(THERE)));
        assert!(!faults.slow_reads(THERE, Some(HERE)) && !faults.slow_reads(HERE, Some(AgentId(3))));
        faults.see(&link, true);
        assert!(!faults.slow_reads(HERE, Some(THERE)) && faults.are_none());
        let clock = fault("clock_jumped", Place::Hosts(vec![THERE]));
        faults.see(&Fault { harmless: true, ..clock }, false);
        assert!(!faults.slow_reads(THERE, Some(HERE)));
        faults.see(&fault("network_slow", Place::Hosts(vec![THERE])), false);
        assert!(faults.slow_reads(THERE, Some(HERE)) && faults.slow_reads(THERE, None));
        assert!(!faults.slow_reads(HERE, Some(THERE)), "it is the owner that counts");
    }
}
