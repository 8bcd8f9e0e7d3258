//! Feeds the master's machine, and carries out its actions.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use everfold_master::{Action, Coordinator, Event, Intake, Master, event::Notice};
use everfold_protocol::{
    AgentId, JobId, ProcessId, Rank, Timestamp,
    board::{Clerk, PATIENCE, can_have},
    locating::{FromLocator, ToLocator},
    message::{FromAgent, Header, MASTER, News, ToAgent, ToMaster, ToWorker},
};
use tokio::sync::{mpsc, oneshot};

use super::{
    MasterConfig,
    connection::{Connection, ConnectionId},
};
use crate::{
    agent::ToParent,
    kernel,
    locating::at_master::AtMaster,
    memory::board::{OwnBoard, SharedWords},
    rank::timestamp,
    transport::line::Outlet,
};

/// Something a connection has to say.
pub(super) enum Input {
    Connected {
        number: ConnectionId,
        process: ProcessId,
        outlet: Outlet<ToWorker>,
        /// Gets the outlet back if the process is not taken in.
        answer: oneshot::Sender<Result<(), Outlet<ToWorker>>>,
    },
    AgentConnected(ConnectionId, AgentId, Outlet<ToAgent>),
    FromAgent(ConnectionId, AgentId, Vec<FromAgent>),
    AgentGone(ConnectionId, AgentId),
    Messages(ConnectionId, Header, Vec<ToMaster>),
    Disconnected(ConnectionId, ProcessId),
    Abandon,
}

/// The ways to all workers.
pub(super) type Connections = BTreeMap<ProcessId, Connection<ToWorker>>;

pub(super) struct MasterDriver {
    job: JobId,
    origin: Instant,
    frame_bytes_max: u64,
    coordinator: Coordinator<SharedWords>,
    board: Option<Arc<OwnBoard>>,
    /// What locates faults sees from here.
    locating: AtMaster,
    connections: Connections,
    agents: BTreeMap<AgentId, Connection<ToAgent>>,
    /// The process that has started the ranks of this host, and hears the news of all ranks.
    parent: Option<mpsc::UnboundedSender<ToParent>>,
    /// Messages received and sent since the latest look at the timers.
    intake: Intake,
    /// Whether the machine wants nothing more, ever.
    done: bool,
}

impl MasterDriver {
    pub(super) fn new(config: &MasterConfig) -> Self {
        let origin = Instant::now();
        let master = Master::new(timestamp(origin), config.job, config.size, config.policy.clone())
            .with_detectors(config.components.detectors())
            .with_fold(kernel::fold_inlined);
        let clerk = config.board.as_ref().map(|own| Clerk::new(own.board().clone()));
        Self {
            job: config.job,
            origin,
            frame_bytes_max: config.policy.limits.frame_bytes_max,
            coordinator: Coordinator::new(config.job, master, clerk),
            board: config.board.clone(),
            locating: AtMaster::new(config.locator.clone()),
            connections: BTreeMap::new(),
            agents: BTreeMap::new(),
            parent: config.parent.clone(),
            intake: Intake::default(),
            done: false,
        }
    }

    /// Runs until the machine is done; returns the connections that are left.
    pub(super) async fn drive(
        mut self,
        mut inputs: mpsc::UnboundedReceiver<Input>,
    ) -> (Connections, BTreeMap<AgentId, Connection<ToAgent>>) {
        let mut batch = Vec::new();
        let mut next_look = tokio::time::Instant::now();
        while !self.act() {
            let observing = self.locating.let_time_pass(timestamp(self.origin));
            let due = self.coordinator.master().poll_timeout().into_iter().chain(observing).min();
            let due = due.map(|due| {
                tokio::time::Instant::from_std(self.origin + Duration::from_nanos(due.as_nanos()))
            });
            let until = due.into_iter().chain(self.coordinator.has_board().then_some(next_look)).min();
            let received = match until {
                Some(until) => tokio::time::timeout_at(until, inputs.recv_many(&mut batch, 1024)).await.ok(),
                None => Some(inputs.recv_many(&mut batch, 1024).await),
            };
            if received == Some(0) {
                break;
            }
            if batch.iter().any(|input| matches!(input, Input::Abandon)) {
                return Default::default();
            }
            for input in batch.drain(..) {
                self.take(input).await;
            }
            self.let_time_pass();
            if self.coordinator.has_board() && next_look <= tokio::time::Instant::now() {
                self.coordinator.look();
                self.take_in(timestamp(self.origin));
                next_look = tokio::time::Instant::now() + PATIENCE;
            }
        }
        (self.connections, self.agents)
    }

    /// However much there is to hear, time passes: a worker that hears no pings gives the master up.
    fn let_time_pass(&mut self) {
        let now = timestamp(self.origin);
        if self.coordinator.master().poll_timeout().is_some_and(|due| due <= now) {
            self.coordinator.let_time_pass();
            self.take_in(timestamp(self.origin));
        }
        self.intake.begin(now);
    }

    /// Lets the master take in all events that come, and wakes ranks up that may have slept too long.
    fn take_in(&mut self, now: Timestamp) {
        while let Some(coming) = self.coordinator.poll_coming() {
            self.coordinator.take_in(now, coming);
        }
        let late = self.coordinator.take_late();
        if let Some(own) = self.board.as_ref().filter(|_| !late.is_empty()) {
            own.wake(late);
        }
    }

    async fn take(&mut self, input: Input) {
        match input {
            Input::Connected { number, process, outlet, answer } => {
                let taken_in = match self.connections.entry(process) {
                    Entry::Occupied(_) => Err(outlet),
                    Entry::Vacant(entry) => {
                        entry.insert(Connection::new(number, outlet));
                        self.coordinator.connect(process);
                        Ok(())
                    }
                };
                let _ = answer.send(taken_in);
            }
            Input::Messages(number, Header { sender: process, .. }, _)
            | Input::Disconnected(number, process)
                if self.is_followed(number, process) =>
            {
                tracing::debug!(%process, "dropped what a connection says whose place another has taken");
            }
            Input::Messages(_, header, messages) => self.hear(header, messages).await,
            Input::AgentConnected(number, agent, outlet) => {
                // It has given up an earlier one, of which late events may still come.
                if let Some(earlier) = self.agents.insert(agent, Connection::new(number, outlet)) {
                    tokio::spawn(earlier.end());
                }
                if let Some(hosts) = self.locating.hosts() {
                    self.tell_agents(&[agent], ToLocator::Hosts(hosts));
                }
            }
            Input::FromAgent(number, agent, _) | Input::AgentGone(number, agent)
                if self.is_agent_followed(number, agent) =>
            {
                tracing::debug!(%agent, "dropped what an earlier connection of an agent says");
            }
            Input::FromAgent(_, agent, messages) => {
                self.locating.hear_agent(timestamp(self.origin), agent);
                for message in messages {
                    if let FromAgent::Locating(said) = message {
                        self.pass_on(agent, said);
                        continue;
                    }
                    self.coordinator.hear(Event::Agent(agent, message));
                    self.take_in(timestamp(self.origin));
                }
            }
            Input::AgentGone(_, agent) => {
                if self.agents.remove(&agent).is_some() && !self.done {
                    self.locating.lose_agent(agent);
                }
                self.coordinator.hear(Event::AgentLost(agent));
                self.take_in(timestamp(self.origin));
            }
            Input::Disconnected(_, process) => {
                self.hang_up(process);
                self.coordinator.hear(Event::Disconnected(process));
                self.take_in(timestamp(self.origin));
            }
            Input::Abandon => {}
        }
    }

    /// Hears messages of a process, and acts in between if there are many.
    async fn hear(&mut self, header: Header, messages: Vec<ToMaster>) {
        for message in messages {
            let now = timestamp(self.origin);
            self.locating.hear(now, header.sender, &message);
            self.coordinator.hear(Event::Message { header, message });
            self.take_in(now);
            if self.intake.take(now) {
                self.let_time_pass();
                self.act();
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether another connection speaks for `process` by now.
    fn is_followed(&self, number: ConnectionId, process: ProcessId) -> bool {
        self.connections.get(&process).is_some_and(|connection| connection.number != number)
    }

    /// Whether another connection of that agent has come since.
    fn is_agent_followed(&self, number: ConnectionId, agent: AgentId) -> bool {
        self.agents.get(&agent).is_some_and(|connection| connection.number != number)
    }

    /// Carries out the actions of the machine. Returns true when there will never be more.
    fn act(&mut self) -> bool {
        while self.act_for_a_while() {
            self.let_time_pass();
        }
        self.done
    }

    /// Carries out some of them. Returns whether there may be more.
    fn act_for_a_while(&mut self) -> bool {
        let mut outgoing: BTreeMap<ProcessId, Vec<ToWorker>> = BTreeMap::new();
        let mut to_agents: BTreeMap<AgentId, Vec<ToAgent>> = BTreeMap::new();
        let (mut refused, mut more) = (Vec::new(), false);
        self.intake.begin(timestamp(self.origin));
        while !more && let Some(action) = self.coordinator.poll_action() {
            let now = timestamp(self.origin);
            self.take_in(now);
            more = self.intake.take(now);
            if self.locating.see(now, &action)
                && let Some(hosts) = self.locating.hosts()
            {
                let agents: Vec<AgentId> = self.agents.keys().copied().collect();
                self.tell_agents(&agents, ToLocator::Hosts(hosts));
            }
            match action {
                Action::Send { to, message } => {
                    if let (ToWorker::Welcome { peers, limits }, Some(own)) = (&message, &self.board)
                        && to == ProcessId::first(Rank(0))
                        && can_have(peers, limits)
                    {
                        own.meet(peers);
                    }
                    outgoing.entry(to).or_default().push(message);
                }
                Action::SendAgent { to, message } => to_agents.entry(to).or_default().push(message),
                Action::DisconnectAgent(agent) => {
                    if let Some(connection) = self.agents.remove(&agent) {
                        tokio::spawn(connection.end());
                    }
                }
                Action::Disconnect(process) => refused.push(process),
                Action::Notice(notice) => self.tell(notice),
                Action::Report(report) => unreachable!("the master of a job is no deputy: {report:?}"),
                Action::Done => self.done = true,
            }
        }
        refused.extend(self.send_out(outgoing, to_agents));
        for process in refused {
            self.hang_up(process);
        }
        self.intake.begin(timestamp(self.origin));
        more
    }

    /// Sends messages, one frame to each process and agent. Returns the processes that could not be told.
    fn send_out(
        &self,
        outgoing: BTreeMap<ProcessId, Vec<ToWorker>>,
        to_agents: BTreeMap<AgentId, Vec<ToAgent>>,
    ) -> Vec<ProcessId> {
        let header = self.header();
        for (to, messages) in to_agents {
            let sent = self.agents.get(&to).map(|it| it.send(&header, messages, self.frame_bytes_max));
            if let Some(Err(error)) = sent {
                tracing::error!(%to, %error, "cannot tell an agent");
            }
        }
        let mut refused = Vec::new();
        for (to, messages) in outgoing {
            let Some(connection) = self.connections.get(&to) else {
                continue;
            };
            if let Err(error) = connection.send(&header, messages, self.frame_bytes_max) {
                // A message that cannot be sent must not leave its receiver waiting.
                tracing::error!(%to, %error, "cannot tell a worker; dropping its connection");
                refused.push(to);
            }
        }
        refused
    }

    /// Passes on a message of a host's localisation node.
    fn pass_on(&mut self, from: AgentId, said: FromLocator) {
        let all: Vec<AgentId> = self.agents.keys().copied().collect();
        match said {
            FromLocator::Starved(percent) => self.locating.take_starved(from, percent),
            FromLocator::Rules(text) => self.tell_agents(&all, ToLocator::Rules(text)),
            FromLocator::Located(located) => {
                if let Some(fault) = self.locating.fault(&located) {
                    self.coordinator.hear(Event::Located { fault, over: located.over });
                    self.take_in(timestamp(self.origin));
                }
                let header = self.header();
                for connection in self.connections.values() {
                    let news = ToWorker::News(News::Located(located.clone()));
                    if let Err(error) = connection.send(&header, vec![news], self.frame_bytes_max) {
                        tracing::error!(%error, "cannot tell a worker of a fault");
                    }
                }
                tracing::warn!(%located);
                self.tell_parent(ToParent::News(News::Located(located.clone())));
                self.tell_agents(&all, ToLocator::Located(located));
            }
        }
    }

    fn tell_agents(&self, agents: &[AgentId], said: ToLocator) {
        let header = self.header();
        for connection in agents.iter().filter_map(|agent| self.agents.get(agent)) {
            let message = ToAgent::Locating(said.clone());
            if let Err(error) = connection.send(&header, vec![message], self.frame_bytes_max) {
                tracing::error!(%error, "cannot tell an agent");
            }
        }
    }

    /// Takes in a notice of the machine.
    fn tell(&self, notice: Notice) {
        log(&notice);
        match notice {
            Notice::Complete { .. } => self.tell_parent(ToParent::Begun),
            Notice::News(news) => self.tell_parent(ToParent::News(news)),
            Notice::Failed { process, evidence } => {
                self.tell_parent(ToParent::News(News::Failed { rank: process.rank, evidence }));
            }
            Notice::Returned(ProcessId { rank, incarnation }) => {
                self.tell_parent(ToParent::News(News::Returned { rank, incarnation }));
            }
            _ => {}
        }
    }

    fn tell_parent(&self, said: ToParent) {
        if let Some(parent) = &self.parent {
            // It may have ended.
            let _ = parent.send(said);
        }
    }

    fn header(&self) -> Header {
        Header { job: self.job, epoch: self.coordinator.master().epoch(), sender: MASTER }
    }

    /// Hangs up on `process` once it has taken all messages.
    fn hang_up(&mut self, process: ProcessId) {
        if let Some(connection) = self.connections.remove(&process) {
            tokio::spawn(connection.end());
        }
    }
}

fn log(notice: &Notice) {
    match notice {
        Notice::Failed { process, evidence } => tracing::warn!(%process, %evidence, "process failed"),
        Notice::News(news) => tracing::info!(%news),
        Notice::Refused { reduction, ranks, refusal } => {
            tracing::info!(?reduction, %ranks, %refusal, "reduction refused");
        }
        Notice::Stale { sender, what } => tracing::debug!(%sender, what, "dropped a stale message"),
        Notice::Returned(process) => tracing::info!(%process, "has come back"),
        Notice::Dissolved(reduction) => tracing::info!(?reduction, "dissolved"),
        Notice::Complete { .. } | Notice::Left(_) | Notice::Finished(_) => tracing::debug!(?notice),
    }
}
