//! What the master's thread shows to the observer, which stands beside it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use everfold_locate::observer::Observer;
use everfold_master::{
    event::{Action, Notice},
    located::{Fault, Place},
};
use everfold_protocol::{
    AgentId, Path, ProcessId, Rank, Timestamp,
    locating::{Component, HostName, HostRef, Located},
    message::{News, Peer, ToMaster, ToWorker},
};

use super::{Input, Locator};

/// The observer of a job that has begun.
pub(crate) struct AtMaster {
    locator: Locator,
    job: Option<(Observer, Arc<[HostRef]>)>,
    /// When each agent was heard last.
    heard: BTreeMap<AgentId, Timestamp>,
    /// Agents whose loss is known.
    gone: BTreeSet<AgentId>,
}

impl AtMaster {
    /// Shows what it sees to this node.
    pub fn new(locator: Locator) -> Self {
        Self { locator, job: None, heard: BTreeMap::new(), gone: BTreeSet::new() }
    }

    /// The hosts of the job, once it has begun.
    pub fn hosts(&self) -> Option<Arc<[HostRef]>> {
        self.job.as_ref().map(|(_, hosts)| hosts.clone())
    }

    /// What the master is to know of a fault: nothing if it is about a rank.
    pub fn fault(&self, located: &Located) -> Option<Fault> {
        let (_, hosts) = self.job.as_ref()?;
        // Each has had ranks of its own since the job began.
        let agent = |name: &HostName| hosts.iter().find(|it| it.ranks == name.ranks).map(|it| it.agent.id);
        let in_domain = |label: &String| {
            let inside = hosts.iter().filter(|it| it.domain.as_ref() == Some(label));
            inside.map(|it| it.agent.id).collect()
        };
        let place = match &located.component {
            Component::Rank(_) => return None,
            Component::Host(host) => Place::Hosts(vec![agent(host)?]),
            Component::Link { from, to } => Place::Link { from: agent(from)?, to: agent(to)? },
            Component::Domain { label, .. } => Place::Hosts(in_domain(label)),
        };
        Some(Fault { name: located.fault.clone(), place, harmless: located.harmless })
    }

    /// A rank has said something.
    pub fn hear(&mut self, now: Timestamp, sender: ProcessId, message: &ToMaster) {
        if let Some((observer, _)) = &mut self.job {
            observer.handle_message(now, sender, message);
        }
    }

    /// An agent has said something.
    pub fn hear_agent(&mut self, now: Timestamp, agent: AgentId) {
        self.heard.insert(agent, now);
    }

    /// An agent says for which share of the time its ranks wait for a core, in percent.
    pub fn take_starved(&mut self, agent: AgentId, percent: u8) {
        if let Some((observer, _)) = &mut self.job {
            observer.handle_starved(agent, f64::from(percent) / 100.0);
        }
    }

    /// The connection to an agent broke.
    pub fn lose_agent(&mut self, agent: AgentId) {
        if let (Some((observer, _)), true) = (&mut self.job, self.gone.insert(agent)) {
            observer.handle_agent_gone(agent, None);
        }
    }

    /// The master has decided something. Returns whether the job begins with that.
    pub fn see(&mut self, now: Timestamp, action: &Action) -> bool {
        if let (Action::Send { message: ToWorker::Welcome { peers, .. }, .. }, None) = (action, &self.job) {
            let hosts = hosts(peers);
            self.job = Some((Observer::new(now, &hosts), hosts));
            return true;
        }
        let Some((observer, _)) = &mut self.job else { return false };
        match action {
            Action::Send { to, message: ToWorker::Task(task) } => observer.handle_task(*to, task),
            Action::Send { message: ToWorker::Returned { peer }, .. } => {
                observer.handle_returned(peer.process.rank, peer.agent.as_ref().map(|agent| agent.id));
            }
            Action::DisconnectAgent(agent) => {
                let silence = self.heard.get(agent).map(|heard| now.since(*heard)).unwrap_or_default();
                if self.gone.insert(*agent) {
                    observer.handle_agent_gone(*agent, Some(silence));
                }
            }
            Action::Notice(notice) => notify(observer, now, notice),
            _ => {}
        }
        false
    }

    /// Time has passed. Returns when this is to be called next.
    pub fn let_time_pass(&mut self, now: Timestamp) -> Option<Timestamp> {
        let (observer, _) = self.job.as_mut()?;
        observer.handle_timeout(now);
        while let Some(symptom) = observer.poll_symptom() {
            self.locator.tell(Input::Observed(symptom));
        }
        Some(observer.next_timeout())
    }
}

fn notify(observer: &mut Observer, now: Timestamp, notice: &Notice) {
    match notice {
        Notice::Failed { process, evidence } => observer.handle_failed(process.rank, *evidence),
        Notice::News(News::Ended { rank, ending }) => observer.handle_ended(*rank, *ending),
        Notice::Refused { reduction, refusal, .. } => observer.handle_over(now, *reduction, Some(refusal)),
        Notice::Finished(reduction) | Notice::Dissolved(reduction) => {
            observer.handle_over(now, *reduction, None)
        }
        _ => {}
    }
}

/// The hosts that these processes have told of. The first is that of rank 0, where the master is.
fn hosts(peers: &[Peer]) -> Arc<[HostRef]> {
    let mut hosts: Vec<HostRef> = Vec::new();
    let mut ranks: BTreeMap<AgentId, Vec<Rank>> = BTreeMap::new();
    for peer in peers {
        let Some(agent) = &peer.agent else { continue };
        let of_agent = ranks.entry(agent.id).or_default();
        if of_agent.is_empty() {
            let domain = peer.domain.clone();
            hosts.push(HostRef { agent: agent.clone(), ranks: Path::empty(), domain });
        }
        of_agent.push(peer.process.rank);
    }
    for host in &mut hosts {
        host.ranks = ranks.remove(&host.agent.id).unwrap_or_default().into_iter().collect();
    }
    hosts.into()
}

#[cfg(test)]
mod tests {
    use everfold_protocol::message::AgentRef;
    use tokio::sync::mpsc;

    use super::*;

    /// Of each host, its agent, its ranks and its domain.
    fn beside(hosts: &[(u64, &[u32], &str)]) -> AtMaster {
        let host = |&(id, ranks, domain): &(u64, &[u32], &str)| HostRef {
            agent: AgentRef { id: AgentId(id), address: "127.0.0.1:1".to_owned() },
            ranks: ranks.iter().copied().map(Rank).collect(),
            domain: Some(domain.to_owned()),
        };
        let hosts: Arc<[HostRef]> = hosts.iter().map(host).collect();
        let mut beside = AtMaster::new(Locator(mpsc::unbounded_channel().0));
        beside.job = Some((Observer::new(Timestamp::ZERO, &hosts), hosts));
        beside
    }

    fn located(component: Component) -> Located {
        let (fault, says, evidence) = ("link_slow".to_owned(), String::new(), Vec::new());
        let (age, confidence, harmless, over) = (Default::default(), 90, false, false);
        Located { fault, says, component, age, confidence, evidence, harmless, over }
    }

    #[test]
    fn hosts_with_one_address_are_told_apart_by_their_ranks() {
        let beside = beside(&[(7, &[0, 1], "a"), (8, &[2], "b"), (9, &[3, 4], "b")]);
        let name = |ranks: &[u32]| HostName {
            address: "127.0.0.1".to_owned(),
            ranks: ranks.iter().copied().map(Rank).collect(),
        };
        let place = |component| beside.fault(&located(component)).map(|fault| fault.place);
        let host = Component::Host(name(&[3, 4]));
        assert_eq!(place(host), Some(Place::Hosts(vec![AgentId(9)])));
        let link = Component::Link { from: name(&[2]), to: name(&[0, 1]) };
        assert_eq!(place(link), Some(Place::Link { from: AgentId(8), to: AgentId(7) }));
        let domain = Component::Domain { label: "b".to_owned(), ranks: Path::range(2, 5) };
        assert_eq!(place(domain), Some(Place::Hosts(vec![AgentId(8), AgentId(9)])));
        assert_eq!(place(Component::Rank(Rank(3))), None, "that is none of its host");
    }
}
