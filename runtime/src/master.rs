//! Drives the master's machine, in the agent that rank 0 has come to.
//!
//! One thread accepts the workers' connections, feeds what they say to [`Master`] in batches, and sends out
//! what it decides, one write per worker and batch. A worker that reads slowly delays nobody else: what its
//! connection does not take waits by itself.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    net::Shutdown,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    descriptors::{self, patiently},
    locating::{Locator, at_master::AtMaster},
    memory::{
        board::{OwnBoard, SharedWords},
        lifeline::{self, Ending},
    },
    patience::{self, Patience},
    rank::timestamp,
    transport::{
        control::{Address, BoxStream, Listener},
        handshake::{HandshakeError, Key, Purpose},
        line::{Inlet, Outlet},
        lobby::{Guest, Lobby},
        shm,
    },
};
use everfold_master::{Action, Coordinator, Event, Intake, Master, Policy, event::Notice};
use everfold_protocol::{
    AgentId, Epoch, JobId, ProcessId, ReductionId, ReductionSpec, Timestamp,
    board::{Clerk, PATIENCE, can_have},
    frame::FrameError,
    locating::{FromLocator, ToLocator},
    message::{FromAgent, Header, MASTER, News, Peer, ToAgent, ToMaster, ToWorker},
    parcel::Carry,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{mpsc, oneshot};

/// The master of a job and the thread it lives on.
#[derive(Debug)]
pub struct MasterThread {
    input: mpsc::UnboundedSender<Input>,
    thread: Option<JoinHandle<()>>,
}

impl MasterThread {
    /// Ends the master at once. Every worker learns it from its broken connection.
    pub fn abandon(&self) {
        let _ = self.input.send(Input::Abandon);
    }
}

impl Drop for MasterThread {
    /// Waits until the master has nothing more to do; a panicking thread does not.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            let _ = thread.join();
        }
    }
}

/// What a master must know of its job.
#[derive(Clone, Debug)]
pub struct MasterConfig {
    /// Which job.
    pub job: JobId,
    /// Its secret.
    pub key: Key,
    /// Number of its processes.
    pub size: u32,
    /// Where to listen.
    pub rendezvous: Address,
    /// Sizes and depths that it schedules with, and the limits of the job.
    pub policy: Policy,
    /// Where the ranks of this host put short contributions.
    pub board: Option<Arc<OwnBoard>>,
    /// The node of this host that locates faults.
    pub(crate) locator: Locator,
}

impl MasterThread {
    /// Listens at the rendezvous.
    ///
    /// # Errors
    /// The address is taken, or not of this machine.
    pub fn start(config: MasterConfig) -> io::Result<Self> {
        let (ready, listening) = std::sync::mpsc::channel();
        let (input, inputs) = mpsc::unbounded_channel();
        let from_connections = input.clone();
        let thread = std::thread::Builder::new().name("everfold-master".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(host(config, ready, from_connections, inputs)),
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        listening.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { input, thread: Some(thread) })
    }
}

/// The number of a connection. A process that was turned away may be followed by another in its place, of
/// which it must not say or end anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ConnectionId(u64);

/// Something a connection has to say.
enum Input {
    Connected {
        process: ProcessId,
        outlet: Outlet<ToWorker>,
        /// Gets the outlet back if the process is not taken in.
        answer: oneshot::Sender<Result<ConnectionId, Outlet<ToWorker>>>,
    },
    AgentConnected(AgentId, Outlet<ToAgent>),
    FromAgent(AgentId, Vec<FromAgent>),
    AgentGone(AgentId),
    Messages(ConnectionId, Header, Vec<ToMaster>),
    Disconnected(ConnectionId, ProcessId),
    Abandon,
}

async fn host(
    config: MasterConfig,
    ready: std::sync::mpsc::Sender<io::Result<()>>,
    input: mpsc::UnboundedSender<Input>,
    inputs: mpsc::UnboundedReceiver<Input>,
) {
    let listener = match Listener::bind(&config.rendezvous).await {
        Ok(listener) => listener,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let _ = ready.send(Ok(()));
    let config = Arc::new(config);
    let accepting = tokio::spawn(accept(listener, config.clone(), input));
    let connections = MasterDriver::new(&config).drive(inputs).await;
    accepting.abort();
    // Farewells may still be on their way.
    let (ranks, agents) = connections;
    for connection in ranks.into_values() {
        connection.end().await;
    }
    for connection in agents.into_values() {
        connection.end().await;
    }
}

/// Arrays up to this length come in messages that are not cut up on their way.
const SHORT_BYTES: u64 = 4 << 10;

/// How long last messages to a worker may take.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// The way to one worker or agent.
struct Connection<M> {
    number: ConnectionId,
    outlet: Arc<Mutex<Outlet<M>>>,
    /// Held by the one that waits for the other side to take more.
    flushing: Arc<tokio::sync::Mutex<()>>,
}

impl<M> Clone for Connection<M> {
    fn clone(&self) -> Self {
        Self { number: self.number, outlet: self.outlet.clone(), flushing: self.flushing.clone() }
    }
}

impl<M: Serialize + Carry + Send + 'static> Connection<M> {
    fn new(number: ConnectionId, outlet: Outlet<M>) -> Self {
        Self { number, outlet: Arc::new(Mutex::new(outlet)), flushing: Arc::default() }
    }

    fn outlet(&self) -> MutexGuard<'_, Outlet<M>> {
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `messages` as far as the other side takes them now, the rest behind them as soon as it does.
    fn send(&self, header: &Header, messages: Vec<M>, frame_bytes_max: u64) -> Result<(), FrameError> {
        let mut outlet = self.outlet();
        let was_blocked = outlet.is_blocked();
        messages.into_iter().for_each(|message| outlet.push(message));
        outlet.send(header, frame_bytes_max)?;
        if outlet.is_blocked() && !was_blocked {
            tokio::spawn(self.clone().flush());
        }
        Ok(())
    }

    /// Sends what the other side has not taken yet.
    async fn flush(self) {
        let _turn = self.flushing.lock().await;
        while self.outlet().is_blocked() {
            let line = self.outlet().register();
            match line {
                Ok(line) => drop(line.writable().await),
                // Out of descriptors, most likely.
                Err(_) => tokio::time::sleep(descriptors::PAUSE).await,
            }
            self.outlet().go_on();
        }
    }

    /// Says no more than what has been said, as far as the worker takes it in time. It sees that nobody
    /// listens any more.
    async fn end(self) {
        let _ = tokio::time::timeout(FAREWELL_TIMEOUT, self.clone().flush()).await;
        self.outlet().close(Shutdown::Write);
    }
}

/// The ways to all workers.
type Connections = BTreeMap<ProcessId, Connection<ToWorker>>;

struct MasterDriver {
    job: JobId,
    origin: Instant,
    frame_bytes_max: u64,
    coordinator: Coordinator<SharedWords>,
    board: Option<Arc<OwnBoard>>,
    /// What locates faults sees from here.
    locating: AtMaster,
    connections: Connections,
    agents: BTreeMap<AgentId, Connection<ToAgent>>,
    /// What agents have said of the ends of processes whose connections have not broken yet.
    ends: BTreeMap<ProcessId, (AgentId, FromAgent)>,
    /// Of the latest connection.
    number: ConnectionId,
    patience: Patience,
    /// The latest short array that somebody has called since messages were sent last.
    short_call: Option<ReductionId>,
    /// What was taken in, or said, since the latest look at the timers.
    intake: Intake,
    /// Whether the machine wants nothing more, ever.
    done: bool,
}

impl MasterDriver {
    fn new(config: &MasterConfig) -> Self {
        let origin = Instant::now();
        let master = Master::new(timestamp(origin), config.job, config.size, config.policy);
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
            ends: BTreeMap::new(),
            number: ConnectionId::default(),
            patience: Patience::default(),
            short_call: None,
            intake: Intake::default(),
            done: false,
        }
    }

    /// Runs until the machine is done; returns the connections that are left.
    async fn drive(
        mut self,
        mut inputs: mpsc::UnboundedReceiver<Input>,
    ) -> (Connections, BTreeMap<AgentId, Connection<ToAgent>>) {
        let mut batch = Vec::new();
        let mut next_look = tokio::time::Instant::now();
        while !self.act() {
            self.watch(&inputs).await;
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

    /// If others are about to call what somebody has called just now, waits for them for a short while
    /// without going to sleep.
    async fn watch(&mut self, inputs: &mpsc::UnboundedReceiver<Input>) {
        let latest = self.short_call.take().filter(|latest| self.coordinator.master().awaits_calls(*latest));
        if latest.is_some() && inputs.is_empty() && self.patience.takes_chance() {
            let mut looks = patience::looks();
            while inputs.is_empty() && looks.next().is_some() {
                // Connections are heard.
                tokio::task::yield_now().await;
            }
            self.patience.learn(inputs.is_empty());
        }
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

    /// Lets the master take in what comes, and wakes ranks up that may have slept too long.
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
            Input::Connected { process, outlet, answer } => {
                let taken_in = match self.connections.entry(process) {
                    Entry::Occupied(_) => Err(outlet),
                    Entry::Vacant(entry) => {
                        self.number.0 += 1;
                        entry.insert(Connection::new(self.number, outlet));
                        Ok(self.number)
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
            Input::Messages(_, header, messages) => {
                let process = header.sender;
                for message in messages {
                    if let ToMaster::Contribute(call) = &message
                        && is_short(&call.spec)
                    {
                        self.short_call = Some(call.reduction);
                    }
                    let now = timestamp(self.origin);
                    self.locating.hear(now, process, &message);
                    self.coordinator.hear(Event::Message { header, message });
                    self.take_in(now);
                    if self.intake.take(now) {
                        self.let_time_pass();
                        self.act();
                        tokio::task::yield_now().await;
                    }
                }
            }
            Input::AgentConnected(agent, outlet) => {
                self.agents.insert(agent, Connection::new(ConnectionId::default(), outlet));
                if let Some(hosts) = self.locating.hosts() {
                    self.tell_agents(&[agent], ToLocator::Hosts(hosts));
                }
            }
            Input::FromAgent(agent, messages) => {
                self.locating.hear_agent(timestamp(self.origin), agent);
                for message in messages {
                    if let FromAgent::Locating(said) = message {
                        self.pass_on(agent, said);
                        continue;
                    }
                    if let FromAgent::Ended { process, .. } = &message
                        && self.connections.contains_key(process)
                    {
                        // What it has said before may still be on its way. And if it was only a wrapper that
                        // has ended, the connection does not break.
                        self.ends.insert(*process, (agent, message));
                        continue;
                    }
                    self.coordinator.hear(Event::Agent(agent, message));
                    self.take_in(timestamp(self.origin));
                }
            }
            Input::AgentGone(agent) => {
                if self.agents.remove(&agent).is_some() && !self.done {
                    self.locating.lose_agent(agent);
                }
                self.coordinator.hear(Event::AgentLost(agent));
                self.take_in(timestamp(self.origin));
            }
            Input::Disconnected(_, process) => {
                self.hang_up(process);
                self.coordinator.hear(Event::Disconnected(process));
                if let Some((agent, ended)) = self.ends.remove(&process) {
                    self.coordinator.hear(Event::Agent(agent, ended));
                }
                self.take_in(timestamp(self.origin));
            }
            Input::Abandon => {}
        }
    }

    /// Whether another connection speaks for `process` by now.
    fn is_followed(&self, number: ConnectionId, process: ProcessId) -> bool {
        self.connections.get(&process).is_some_and(|connection| connection.number != number)
    }

    /// Does what the machine wants done. Returns true when it wants nothing more, ever.
    fn act(&mut self) -> bool {
        while self.act_for_a_while() {
            self.let_time_pass();
        }
        self.done
    }

    /// Does some of it. Returns whether there may be more.
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
                    if let (ToWorker::Welcome { peers, .. }, Some(own)) = (&message, &self.board)
                        && to.rank.0 == 0
                        && can_have(peers)
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
                Action::Notice(notice) => tell(&notice),
                Action::Report(report) => unreachable!("the master of a job is no deputy: {report:?}"),
                Action::Done => self.done = true,
            }
        }
        let header = self.header();
        for (to, messages) in to_agents {
            let sent = self.agents.get(&to).map(|it| it.send(&header, messages, self.frame_bytes_max));
            if let Some(Err(error)) = sent {
                tracing::error!(%to, %error, "cannot tell an agent");
            }
        }
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
        for process in refused {
            self.hang_up(process);
        }
        self.intake.begin(timestamp(self.origin));
        more
    }

    /// Passes on what the node of a host that locates faults has to say.
    fn pass_on(&mut self, from: AgentId, said: FromLocator) {
        let all: Vec<AgentId> = self.agents.keys().copied().collect();
        match said {
            FromLocator::Starved(percent) => self.locating.take_starved(from, percent),
            FromLocator::Rules(text) => self.tell_agents(&all, ToLocator::Rules(text)),
            FromLocator::Located(located) => {
                let header = self.header();
                for connection in self.connections.values() {
                    let news = ToWorker::News(News::Located(located.clone()));
                    if let Err(error) = connection.send(&header, vec![news], self.frame_bytes_max) {
                        tracing::error!(%error, "cannot tell a worker of a fault");
                    }
                }
                tracing::warn!(%located);
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

    fn header(&self) -> Header {
        Header { job: self.job, epoch: self.coordinator.master().epoch(), sender: MASTER }
    }

    /// Talks no more to `process` once it has heard what was said.
    fn hang_up(&mut self, process: ProcessId) {
        if let Some(connection) = self.connections.remove(&process) {
            tokio::spawn(connection.end());
        }
    }
}

/// Whether it is about an array that comes in one piece.
fn is_short(spec: &ReductionSpec) -> bool {
    spec.kind.array_bytes().is_some_and(|(bytes, _)| bytes <= SHORT_BYTES)
}

fn tell(notice: &Notice) {
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

async fn accept(listener: Listener, config: Arc<MasterConfig>, input: mpsc::UnboundedSender<Input>) {
    let lobby = Lobby::for_job(config.size);
    loop {
        let (stream, guest) = lobby.next(&listener).await;
        tokio::spawn(connection(stream, guest, config.clone(), input.clone()));
    }
}

/// Serves one worker's connection from handshake to hang-up.
async fn connection(
    mut stream: BoxStream,
    guest: Guest,
    config: Arc<MasterConfig>,
    input: mpsc::UnboundedSender<Input>,
) {
    let (hello, seals) = match guest.prove(&mut stream, &config.key, config.job).await {
        Ok(accepted) => accepted,
        Err(error) => return tracing::warn!(%error, "dropped a connection"),
    };
    let socket = match stream.into_socket() {
        Ok(socket) => Arc::new(socket),
        Err(error) => return tracing::warn!(%error, "dropped a connection"),
    };
    let process = hello.process;
    if let Purpose::Agent(agent) = hello.purpose {
        let _ = input.send(Input::AgentConnected(agent, Outlet::new(socket.clone(), seals.outward)));
        let inlet = Inlet::new(socket, seals.inward);
        let frame = |_, messages| drop(input.send(Input::FromAgent(agent, messages)));
        let error = hear(&inlet, process, &config, frame).await;
        tracing::debug!(%agent, %error, "connection ended");
        return drop(input.send(Input::AgentGone(agent)));
    }
    let outlet = Outlet::new(socket.clone(), seals.outward);
    if hello.purpose != Purpose::Control || process.rank.0 >= config.size {
        let size = config.size;
        return turn_away(
            outlet,
            &config,
            format!(
                "rank 0 was started for a job of {size}, which has no rank {}; give all processes the same EVERFOLD_SIZE",
                process.rank
            ),
        );
    }
    let (answer, accepted) = oneshot::channel();
    if input.send(Input::Connected { process, outlet, answer }).is_err() {
        return;
    }
    // What the driver does not take in it gives back.
    let number = match accepted.await {
        Ok(Ok(number)) => number,
        Ok(Err(outlet)) => {
            return turn_away(
                outlet,
                &config,
                format!(
                    "another process is {process} already. Give each process a rank of its own (EVERFOLD_RANK). If this \
                     one was started by a process of the job, it has inherited EVERFOLD_RENDEZVOUS, EVERFOLD_RANK and \
                     EVERFOLD_SIZE: unset them to start a job of its own"
                ),
            );
        }
        Err(_) => return,
    };
    let inlet = Arc::new(Inlet::new(socket, seals.inward));
    let voice =
        Voice { number, process, frame_bytes_max: config.policy.limits.frame_bytes_max, inlet, input };
    let frame = |header, messages: Vec<ToMaster>| {
        for message in &messages {
            if let ToMaster::Join { peer, .. } = message {
                voice.watch_life(peer);
            }
        }
        voice.says(header, messages);
    };
    let error = hear(&voice.inlet, process, &config, frame).await;
    tracing::debug!(%process, %error, "connection ended");
    voice.falls_silent();
}

/// What a process says over its connection. Any thread may pass it on to the driver.
#[derive(Clone)]
struct Voice {
    number: ConnectionId,
    process: ProcessId,
    frame_bytes_max: u64,
    inlet: Arc<Inlet>,
    /// A driver that has ended hears nothing; it ends the tasks of its connections, too.
    input: mpsc::UnboundedSender<Input>,
}

impl Voice {
    fn says(&self, header: Header, messages: Vec<ToMaster>) {
        let _ = self.input.send(Input::Messages(self.number, header, messages));
    }

    fn falls_silent(&self) {
        let _ = self.input.send(Input::Disconnected(self.number, self.process));
    }

    /// Hears of the death of a process on this host before its connection breaks.
    fn watch_life(&self, peer: &Peer) {
        let Some(region) = peer.region.filter(|_| shm::host_id().is_ok_and(|host| host == peer.host)) else {
            return;
        };
        let (voice, process, pid) = (self.clone(), self.process, peer.pid);
        let watch = move || match lifeline::outlive(pid, &region) {
            Ok(Ending::Death) => voice.ends(),
            Ok(Ending::Good) => {}
            Err(error) => tracing::debug!(%process, %error, "cannot watch its life"),
        };
        // It sleeps until that process ends. Without it the broken connection tells the same, later.
        let thread = std::thread::Builder::new().name("everfold-watch".to_owned()).stack_size(256 << 10);
        if let Err(error) = thread.spawn(watch) {
            tracing::debug!(%process, %error, "cannot watch its life");
        }
    }

    /// The process has died. What it has said before is on its connection, and counts.
    fn ends(&self) {
        let says = |header, messages| self.says(header, messages);
        while let Ok(true) = hear_now(&self.inlet, self.process, self.frame_bytes_max, says) {}
        self.falls_silent();
    }
}

/// Says why a process is not taken in, and hangs up.
fn turn_away(mut outlet: Outlet<ToWorker>, config: &MasterConfig, reason: String) {
    tracing::warn!(reason, "turned a process away");
    let header = Header { job: config.job, epoch: Epoch(0), sender: MASTER };
    outlet.push(ToWorker::Unwelcome { reason });
    // So short a message fits into any connection that has carried little so far.
    let _ = outlet.send(&header, config.policy.limits.frame_bytes_max);
    outlet.close(Shutdown::Write);
}

/// Tells `each` frame of `process` until the connection ends; returns why.
async fn hear<M: DeserializeOwned + Carry>(
    inlet: &Inlet,
    process: ProcessId,
    config: &MasterConfig,
    mut each: impl FnMut(Header, Vec<M>),
) -> HandshakeError {
    let line = match patiently(|| inlet.register()).await {
        Ok(line) => line,
        Err(error) => return error.into(),
    };
    loop {
        let mut ready = match line.readable().await {
            Ok(ready) => ready,
            Err(error) => return error.into(),
        };
        match hear_now(inlet, process, config.policy.limits.frame_bytes_max, &mut each) {
            // The others have their turn.
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => ready.clear_ready(),
            Err(error) => return error,
        }
    }
}

/// Tells `each` frame of `process` that has come. Returns whether there may be more.
///
/// # Errors
/// The connection broke, or what comes is no frame of that process.
fn hear_now<M: DeserializeOwned + Carry>(
    inlet: &Inlet,
    process: ProcessId,
    frame_bytes_max: u64,
    mut each: impl FnMut(Header, Vec<M>),
) -> Result<bool, HandshakeError> {
    let mut stranger = None;
    let heard = inlet.hear(frame_bytes_max, |header, messages| match header.sender == process {
        true => each(header, messages),
        false => stranger = Some(header.sender),
    });
    match stranger {
        Some(stranger) => Err(io::Error::other(format!("it speaks for {stranger}")).into()),
        None => heard,
    }
}
