//! Which agents are here, and whose memory they hold.
//!
//! An agent holds the regions of its host's processes. As long as it lives, these can be read, although the
//! processes may have died. When the agent is gone, so are all of them.

use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, vec::Vec};

use everfold_protocol::{
    AgentId, Path, ProcessId, Rank,
    message::{AgentRef, Lodging},
};

/// Agents, and the ranks on the host of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agents {
    standings: BTreeMap<AgentId, Standing>,
    /// The agent of each process that has one.
    of: BTreeMap<ProcessId, AgentId>,
    /// The label of the domain of each agent's host, as given by the first of its ranks that has one.
    domains: BTreeMap<AgentId, String>,
    /// Where agents serve that can start ranks.
    lodgings: BTreeMap<AgentId, String>,
    /// Ranks whose first processes were started on the host of an agent.
    started: BTreeMap<AgentId, Path>,
}

/// Where an agent stands that was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has joined.
    Here,
    /// It is gone, and its host with it.
    Lost,
}

/// What becomes of the memory of a process that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Custody {
    /// No agent holds it; only processes of its host have it mapped.
    Nobody,
    /// Its agent holds it.
    Agent,
    /// It is gone with its host.
    Gone,
}

impl Agents {
    /// Takes in which agent holds the memory of a process.
    pub fn assign(&mut self, process: ProcessId, agent: AgentId, domain: Option<&str>) {
        self.of.insert(process, agent);
        if let Some(domain) = domain {
            self.domains.entry(agent).or_insert_with(|| domain.to_owned());
        }
    }

    /// Takes in that an agent joins. Returns false if it is here already, or was lost before.
    pub fn join(&mut self, agent: AgentId) -> bool {
        let is_new = !self.standings.contains_key(&agent);
        if is_new {
            self.standings.insert(agent, Standing::Here);
        }
        is_new
    }

    /// Takes in that the first processes of `ranks` were started on the host of an agent.
    pub fn expect(&mut self, agent: AgentId, ranks: &Path) {
        let started = self.started.entry(agent).or_default();
        *started = started.iter().chain(ranks.iter()).collect();
    }

    /// The ranks whose first processes were started on the host of an agent, as far as it has said.
    pub fn expected(&self, agent: AgentId) -> impl Iterator<Item = Rank> {
        self.started.get(&agent).into_iter().flat_map(Path::iter)
    }

    /// Takes in the offer of a host to ranks of other hosts.
    pub fn lodge(&mut self, agent: AgentId, Lodging { address, domain }: Lodging) {
        if let Some(address) = address {
            self.replace_spare_at(&address, domain.as_deref());
            self.lodgings.insert(agent, address);
        }
        if let Some(domain) = domain {
            self.domains.entry(agent).or_insert(domain);
        }
    }

    /// Agents that are here and can start ranks of other hosts.
    pub fn lodgings(&self) -> impl Iterator<Item = AgentId> {
        self.here().filter(|agent| self.lodgings.contains_key(agent))
    }

    /// How an agent is reached that can start ranks.
    pub fn lodging(&self, agent: AgentId) -> Option<AgentRef> {
        self.lodgings.get(&agent).map(|address| AgentRef { id: agent, address: address.clone() })
    }

    /// The label of the domain of an agent's host.
    pub fn domain(&self, agent: AgentId) -> Option<&str> {
        self.domains.get(&agent).map(String::as_str)
    }

    /// How many hosts of the domain of `agent` are lost, and how many there are.
    pub fn losses_around(&self, agent: AgentId) -> (usize, usize) {
        let Some(domain) = self.domain(agent) else { return (0, 0) };
        let hosts = || self.domains.iter().filter(|(_, other)| *other == domain).map(|(host, _)| *host);
        (hosts().filter(|host| self.is_lost(*host)).count(), hosts().count())
    }

    /// Takes in that an agent is gone. Returns false if that is known.
    pub fn lose(&mut self, agent: AgentId) -> bool {
        self.standings.insert(agent, Standing::Lost) != Some(Standing::Lost)
    }

    /// Whether an agent is gone.
    pub fn is_lost(&self, agent: AgentId) -> bool {
        self.standings.get(&agent) == Some(&Standing::Lost)
    }

    /// Whether a process was on another host than that of `agent` before, which is lost.
    pub fn was_lost_before(&self, process: ProcessId, agent: AgentId) -> bool {
        self.of(process).is_some_and(|before| before != agent && self.is_lost(before))
    }

    /// Takes in that the host is back with which the first process of a rank was lost, and has another agent:
    /// it counts in its domain once, however often it was lost.
    pub fn replace_host_of(&mut self, process: ProcessId) {
        let has_started = |agent: AgentId| self.expected(agent).any(|rank| rank == process.rank);
        let was_there = |agent: &AgentId| self.of(process) == Some(*agent) || has_started(*agent);
        let lost: Vec<AgentId> = self.lost().filter(was_there).collect();
        for agent in lost {
            self.domains.remove(&agent);
        }
    }

    /// Takes in that a host serves at this address. If one of its domain was lost there that had started no
    /// ranks, this is the same one: it counts in its domain once. A host that has started ranks is known by
    /// them.
    fn replace_spare_at(&mut self, address: &str, domain: Option<&str>) {
        let is_it = |agent: &AgentId| {
            let is_there = self.lodgings.get(agent).is_some_and(|before| machine(before) == machine(address));
            is_there && self.expected(*agent).next().is_none() && self.domain(*agent) == domain
        };
        let lost = self.lost().find(is_it);
        lost.into_iter().for_each(|lost| drop(self.domains.remove(&lost)));
    }

    /// The domain of an agent that is lost, and the ranks there, if it had several hosts and all are lost.
    pub fn lost_domain(&self, agent: AgentId) -> Option<(String, Path)> {
        let domain = self.domains.get(&agent)?;
        let hosts = || self.domains.iter().filter(|(_, other)| *other == domain).map(|(host, _)| *host);
        let is_lost = hosts().count() > 1 && hosts().all(|host| self.is_lost(host));
        is_lost.then(|| {
            (
                domain.clone(),
                hosts().flat_map(|host| self.processes(host)).map(|process| process.rank).collect(),
            )
        })
    }

    /// Those that are gone.
    pub fn lost(&self) -> impl Iterator<Item = AgentId> {
        self.standings.iter().filter(|(_, standing)| **standing == Standing::Lost).map(|(agent, _)| *agent)
    }

    /// Those that are here.
    pub fn here(&self) -> impl Iterator<Item = AgentId> {
        self.standings.iter().filter(|(_, standing)| **standing == Standing::Here).map(|(agent, _)| *agent)
    }

    /// Whether all agents are here, or gone, that hold the memory of a process.
    pub fn are_here(&self) -> bool {
        self.of.values().all(|agent| self.standings.contains_key(agent))
    }

    /// The agent of a process, if it has one.
    pub fn of(&self, process: ProcessId) -> Option<AgentId> {
        self.of.get(&process).copied()
    }

    /// The agent of a process, if it is here.
    pub fn holder(&self, process: ProcessId) -> Option<AgentId> {
        self.of(process).filter(|agent| self.standings.get(agent) == Some(&Standing::Here))
    }

    /// The processes whose memory an agent holds or held.
    pub fn processes(&self, agent: AgentId) -> impl Iterator<Item = ProcessId> {
        self.of.iter().filter(move |(_, of)| **of == agent).map(|(process, _)| *process)
    }

    /// What becomes of the memory of a process that dies.
    pub fn custody(&self, process: ProcessId) -> Custody {
        match self.of(process).and_then(|agent| self.standings.get(&agent)) {
            None => Custody::Nobody,
            Some(Standing::Here) => Custody::Agent,
            Some(Standing::Lost) => Custody::Gone,
        }
    }
}

/// What the agents of a machine have in common in their addresses, one after the other: not the port.
fn machine(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(machine, _)| machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_held_from_when_the_agent_joins_until_it_is_lost() {
        let mut agents = Agents::default();
        let agent = AgentId(7);
        agents.assign(ProcessId::first(1), agent, None);
        agents.assign(ProcessId::first(3), agent, None);
        let custody = |agents: &Agents| [1, 2].map(|rank| agents.custody(ProcessId::first(rank)));
        assert_eq!(custody(&agents), [Custody::Nobody; 2], "it has not joined");
        assert!(agents.join(agent) && !agents.join(agent));
        assert_eq!(custody(&agents), [Custody::Agent, Custody::Nobody]);
        assert_eq!(agents.here().collect::<Vec<_>>(), [agent]);
        assert!(agents.lose(agent) && !agents.lose(agent));
        assert!(!agents.join(agent), "its host was given up");
        assert_eq!(custody(&agents), [Custody::Gone, Custody::Nobody]);
        assert_eq!(agents.processes(agent).collect::<Vec<_>>(), [1, 3].map(ProcessId::first));
        assert!(agents.here().next().is_none() && agents.holder(ProcessId::first(1)).is_none());
    }

    #[test]
    fn a_domain_is_lost_with_the_last_of_its_hosts() {
        let mut agents = Agents::default();
        for (rank, agent, domain) in [(0, 7, "a"), (1, 8, "b"), (2, 9, "b"), (3, 8, "b")] {
            agents.assign(ProcessId::first(rank), AgentId(agent), Some(domain));
        }
        assert!(agents.lose(AgentId(8)));
        assert_eq!(agents.lost_domain(AgentId(8)), None);
        assert!(agents.lose(AgentId(9)) && agents.lose(AgentId(7)));
        let ranks = Path::range(1, 4);
        assert_eq!(agents.lost_domain(AgentId(9)), Some(("b".to_owned(), ranks)));
        assert_eq!(agents.lost_domain(AgentId(7)), None, "that is a host, and no more");
    }

    #[test]
    fn a_host_that_comes_back_counts_in_its_domain_once_however_often_it_was_lost() {
        let mut agents = Agents::default();
        let come = |agents: &mut Agents, agent: u64, machine: &str| {
            let address = Some(format!("{machine}:{agent}"));
            assert!(agents.join(AgentId(agent)));
            agents.lodge(AgentId(agent), Lodging { address, domain: Some("a".to_owned()) });
        };
        let ranks = Path::single(Rank(1));
        come(&mut agents, 1, "with ranks");
        agents.assign(ProcessId::first(1), AgentId(1), Some("a"));
        agents.expect(AgentId(1), &ranks);
        come(&mut agents, 2, "spare");
        for spare in 2..5 {
            agents.lose(AgentId(spare));
            assert_eq!(agents.losses_around(AgentId(1)), (1, 2));
            come(&mut agents, spare + 1, "spare");
            assert_eq!(agents.losses_around(AgentId(1)), (0, 2));
        }
        let mut with_ranks = 1;
        for next in 6..9 {
            agents.lose(AgentId(with_ranks));
            assert_eq!(agents.losses_around(AgentId(5)), (1, 2));
            come(&mut agents, next, "with ranks");
            agents.expect(AgentId(next), &ranks);
            agents.replace_host_of(ProcessId::first(1));
            assert_eq!(agents.losses_around(AgentId(5)), (0, 2));
            with_ranks = next;
        }
        agents.lose(AgentId(5));
        come(&mut agents, 9, "another spare one");
        assert_eq!(agents.losses_around(AgentId(9)), (1, 3), "that is another host");
    }
}
