//! The data that all rules of a job use: time, sizes, members, timers, and the outbox.

use everfold_protocol::{
    Path, Rank, Timestamp,
    message::{News, ToAgent, ToWorker},
};

use crate::{
    condense::Fold, event::Notice, membership::Membership, outbox::Outbox, policy::Policy, timers::Timers,
};

/// The desk at which a machine decides.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    /// When the latest event came.
    pub now: Timestamp,
    pub policy: Policy,
    pub members: Membership,
    pub timers: Timers,
    pub outbox: Outbox,
    /// How inlined bodies are folded here, if they can be.
    pub fold: Option<Fold>,
}

impl Desk {
    /// A desk at which nothing is due.
    pub fn new(now: Timestamp, policy: Policy, members: Membership) -> Self {
        Self { now, policy, members, timers: Timers::default(), outbox: Outbox::default(), fold: None }
    }

    /// Whether `rank` takes part.
    pub fn is_alive(&self, rank: Rank) -> bool {
        self.members.alive(rank).is_some()
    }

    /// Tells each of `ranks` that takes part the same.
    pub fn send_each(&mut self, ranks: &Path, message: &ToWorker) {
        self.outbox.send_each(self.members.processes_of(ranks), message);
    }

    /// Tells all members the same.
    pub fn send_all(&mut self, message: &ToWorker) {
        self.outbox.send_each(self.members.processes(), message);
    }

    /// Tells all agents that are here the same.
    pub fn send_agents(&mut self, message: ToAgent) {
        self.members.agents().here().for_each(|agent| self.outbox.send_agent(agent, message.clone()));
    }

    /// Tells all members, and the watchers.
    pub fn tell_all(&mut self, news: News) {
        self.send_all(&ToWorker::News(news.clone()));
        self.outbox.notice(Notice::News(news));
    }

    /// Tells the group of a reduction, and the watchers.
    pub fn tell(&mut self, group: &Path, news: News) {
        self.send_each(group, &ToWorker::News(news.clone()));
        self.outbox.notice(Notice::News(news));
    }
}
