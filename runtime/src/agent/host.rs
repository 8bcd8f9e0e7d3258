//! The thread of a host's agent: lets its machine act on sockets, memory and processes.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs, io,
    net::{IpAddr, SocketAddr},
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener as StdUnixListener},
    },
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use everfold_agent::{Action, Agent, Event};
use everfold_locate::rules::RuleBase;
use everfold_protocol::{
    AgentId, Epoch, JobId, ProcessId, Rank,
    locating::FromLocator,
    message::{Ending, FromAgent, Header, Lodging, MASTER, Origin, RegionRef, ToAgent},
    spec::Limits,
};
use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    line::{Answer, Hail, Line, NoAgent, Serve, Serving, Welcome},
    remains::Remains,
};
use crate::{
    descriptors::{self, patiently},
    locating::{self, Faults, Locator, NodeConfig},
    master::{MasterConfig, MasterThread},
    memory::{board::OwnBoard, peer_region::PeerRegion},
    replica::holding::{self, Replicas},
    transport::{
        control::{Address, Listener, connect_until, is_own},
        handshake::{self, HandshakeError, Key, Purpose},
        line::{Inlet, Outlet, register},
        lobby::{self, Lobby},
        tcp,
    },
};

/// How long an agent that ranks have started waits for the first of them, and looks for the master.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to tell the last of them what there is to tell.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// Processes of one host for which connections wait that have proved nothing yet.
const RANKS_EXPECTED: u32 = 1024;

/// What an agent must know of its job.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Where it listens: a name in the abstract namespace of Unix sockets.
    pub name: String,
    /// Which job.
    pub job: JobId,
    /// Its secret.
    pub key: Key,
    /// Where the master listens, or is to listen if rank 0 comes to this agent.
    pub rendezvous: Address,
    /// Where to ask its own process, if that has started the ranks. It [tells](Ends) how they end.
    pub parent: Option<mpsc::UnboundedSender<ToParent>>,
    /// Whether no rank runs here until the master says so. Then the agent looks for the master by itself.
    pub is_spare: bool,
    /// Label of what this host shares with others that may fail together.
    pub domain: Option<String>,
    /// How faults are located.
    pub rules: RuleBase,
}

/// What an agent says to the process that has started the ranks of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToParent {
    /// Start this process.
    Start(ProcessId),
    /// The rank of this process goes on on another host: how it has ended, or ends, does not count.
    Forgive(ProcessId),
}

/// An agent and the thread on which it lives.
#[derive(Debug)]
pub struct AgentThread {
    input: mpsc::UnboundedSender<Input>,
    /// Whether it may ask for processes to be started.
    may_ask: Arc<AtomicBool>,
    faults: Faults,
    thread: Option<JoinHandle<()>>,
}

impl AgentThread {
    /// Listens for the ranks of this host.
    ///
    /// # Errors
    /// The name is taken, or what the system says.
    pub fn start(config: AgentConfig) -> io::Result<Self> {
        let listener = StdUnixListener::bind_addr(&UnixAddr::from_abstract_name(&config.name)?)?;
        listener.set_nonblocking(true)?;
        let id = AgentId(getrandom::u64().map_err(io::Error::other)?);
        let (input, inputs) = mpsc::unbounded_channel();
        let (from_others, may_ask) = (input.clone(), Arc::new(AtomicBool::new(false)));
        let (asks, faults) = (may_ask.clone(), Faults::default());
        let located = faults.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("everfold-agent".to_owned()).spawn(move || {
            runtime.block_on(async {
                let host = Host::new(id, config, from_others, (asks, located));
                match UnixListener::from_std(listener) {
                    Ok(listener) => host.run(listener, inputs).await,
                    Err(error) => tracing::error!(%error, "the agent cannot listen"),
                }
            });
        })?;
        Ok(Self { input, may_ask, faults, thread: Some(thread) })
    }

    /// Where to say how processes end.
    pub fn ends(&self) -> Ends {
        Ends { input: self.input.clone(), oom_kills: Arc::new(AtomicU64::new(oom_kills())) }
    }

    /// The faults that were located in the job, also once the agent has ended.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Whether it may ask for processes to be started: where ranks come back.
    pub fn may_ask(&self) -> bool {
        self.may_ask.load(Ordering::Relaxed)
    }

    /// Lets no more processes come than those that are here, unless it asks for them.
    pub fn expect_nobody(&self) {
        let _ = self.input.send(Input::Event(Event::Alone));
    }

    /// Waits until nobody needs the agent, to whom no more processes come.
    pub fn outlast(mut self) {
        self.expect_nobody();
        self.join();
    }

    /// Waits until nobody needs the agent.
    pub fn run(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tells an agent how the processes have ended that its own process has started.
#[derive(Clone, Debug)]
pub struct Ends {
    input: mpsc::UnboundedSender<Input>,
    /// How many processes the system had killed for want of memory when it was looked last.
    oom_kills: Arc<AtomicU64>,
}

impl Ends {
    /// Takes in how one has ended. A kill for want of memory looks like any other, but the system counts it.
    pub fn ended(&self, process: ProcessId, ending: Ending) {
        let now = oom_kills();
        let ending = match ending {
            Ending::Signal(libc::SIGKILL) if self.oom_kills.swap(now, Ordering::Relaxed) < now => {
                Ending::OutOfMemory
            }
            ending => ending,
        };
        let _ = self.input.send(Input::Event(Event::Ended(process, ending)));
    }
}

/// How many processes of this container, or of this machine, the system has killed for want of memory.
fn oom_kills() -> u64 {
    let files = ["/sys/fs/cgroup/memory.events", "/proc/vmstat"];
    let count = |path: &&str| {
        let text = fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    };
    files.iter().find_map(count).unwrap_or_default()
}

impl Drop for AgentThread {
    /// Ends the agent, and the master if it is here: no process of the job is left.
    fn drop(&mut self) {
        let _ = self.input.send(Input::Finish);
        self.join();
    }
}

/// Makes the system end other processes first if memory is short, where that is allowed.
pub(super) fn be_hard_to_kill() {
    if let Err(error) = fs::write("/proc/self/oom_score_adj", "-900") {
        tracing::debug!(%error, "the system may end the agent if memory is short");
    }
}

/// Something that the agent's thread is told.
enum Input {
    Hailed(Box<Caller>),
    Serve(IpAddr, oneshot::Sender<Serving>),
    /// This host has that address on the way to it, if it may be on another one.
    MasterFound(Outlet<FromAgent>, Option<IpAddr>),
    Locating(FromLocator),
    Event(Event),
    Finish,
}

/// A process that wants to be taken in.
struct Caller {
    process: ProcessId,
    hail: Hail,
    region: Option<(OwnedFd, RegionRef)>,
    /// Its process id, and what tells when it has ended.
    pid: Option<i32>,
    end: Option<OwnedFd>,
    answer: oneshot::Sender<(Answer, Handed)>,
}

/// Descriptors that a process is handed with its welcome.
#[derive(Debug, Default)]
struct Handed {
    /// The board, if the process is to show it to the others.
    board: Option<Arc<OwnBoard>>,
    /// The files of its rank's vault.
    vault: Option<Arc<Vault>>,
}

/// The files of a rank's vault, which outlive its processes.
type Vault = [OwnedFd; 2];

struct Host {
    id: AgentId,
    /// Whether ranks come back in this job.
    may_ask: Arc<AtomicBool>,
    config: Arc<AgentConfig>,
    machine: Agent,
    remains: Arc<Remains>,
    /// Of ranks that come back.
    vaults: BTreeMap<Rank, Arc<Vault>>,
    /// Where the vaults of processes come from that are about to be started here.
    origins: BTreeMap<Rank, (ProcessId, Option<Origin>)>,
    /// Of ranks of other hosts.
    replicas: Arc<Replicas>,
    input: mpsc::UnboundedSender<Input>,
    /// The process that is being taken in.
    caller: Option<Box<Caller>>,
    /// How long a process may be silent in this job, as the processes say that have come.
    silence_max: Duration,
    /// At which ports the memory of this host is served, by the address that somebody has asked for.
    ports: BTreeMap<IpAddr, u16>,
    to_master: Option<Outlet<FromAgent>>,
    master: Option<(MasterThread, Option<Arc<OwnBoard>>)>,
    locator: Locator,
}

impl Host {
    fn new(
        id: AgentId,
        config: AgentConfig,
        input: mpsc::UnboundedSender<Input>,
        (may_ask, faults): (Arc<AtomicBool>, Faults),
    ) -> Self {
        let config = Arc::new(config);
        let locator = locating::start(NodeConfig {
            agent: config.clone(),
            id,
            began: std::time::Instant::now(),
            faults,
            tell: {
                let input = input.clone();
                Box::new(move |said| drop(input.send(Input::Locating(said))))
            },
        });
        Self {
            id,
            may_ask,
            machine: Agent::new(config.parent.is_some()),
            config,
            locator,
            remains: Arc::default(),
            vaults: BTreeMap::new(),
            origins: BTreeMap::new(),
            replicas: Arc::default(),
            input,
            caller: None,
            silence_max: Limits::default().silence_max(),
            ports: BTreeMap::new(),
            to_master: None,
            master: None,
        }
    }

    async fn run(mut self, listener: UnixListener, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let (attending, mut all_served) = mpsc::channel(1);
        let accepting = tokio::spawn(accept(listener, self.config.clone(), self.input.clone(), attending));
        let alone = tokio::time::sleep(PATIENCE);
        let mut alone = std::pin::pin!(alone);
        let mut waits = self.config.parent.is_none();
        let mut is_finished = false;
        if self.config.is_spare {
            self.seek_master();
        }
        while !self.machine.is_done() && !is_finished {
            let input = tokio::select! {
                input = inputs.recv() => input,
                () = &mut alone, if waits => {
                    waits = false;
                    Some(Input::Event(Event::Alone))
                }
            };
            match input {
                None | Some(Input::Finish) => is_finished = true,
                Some(input) => self.take(input).await,
            }
        }
        accepting.abort();
        self.locator.conclude().await;
        // Those who were refused are still to hear why.
        let _ = tokio::time::timeout(FAREWELL_TIMEOUT, all_served.recv()).await;
        // Ranks of other hosts may need it yet, though nobody does here.
        if let Some((master, _)) = self.master.as_ref().filter(|_| is_finished) {
            master.abandon();
        }
    }

    async fn take(&mut self, input: Input) {
        match input {
            Input::Hailed(caller) => {
                let process = caller.process;
                let limits = &caller.hail.policy.limits;
                self.silence_max = limits.silence_max();
                self.may_ask.store(limits.ranks_return, Ordering::Relaxed);
                self.caller = Some(caller);
                self.handle(Event::Hailed(process));
            }
            Input::Serve(ip, answer) => {
                let address = self.serve(ip).await;
                let address = address.map(|port| SocketAddr::from((ip, port)).to_string());
                let _ = answer.send(Serving { address: address.map_err(|error| error.to_string()) });
            }
            Input::MasterFound(outlet, own_ip) => {
                self.to_master = Some(outlet);
                let address = match own_ip {
                    Some(ip) if self.config.parent.is_some() => self.serve(ip).await.map(Some),
                    _ => Ok(None),
                };
                let address = address.unwrap_or_else(|error| {
                    tracing::warn!(%error, "this host takes no ranks of others");
                    None
                });
                let address = address.zip(own_ip).map(|(port, ip)| SocketAddr::from((ip, port)).to_string());
                let domain = self.config.domain.clone();
                self.handle(Event::MasterFound(Lodging { address, domain }));
            }
            Input::Locating(said) => self.tell(FromAgent::Locating(said)),
            Input::Event(event) => self.handle(event),
            Input::Finish => {}
        }
    }

    fn handle(&mut self, event: Event) {
        match &event {
            Event::Ended(process, ending) => self.locator.tell(locating::Input::Ended(*process, *ending)),
            Event::Master(ToAgent::Locating(said)) => {
                return self.locator.tell(locating::Input::Master(said.clone()));
            }
            _ => {}
        }
        self.machine.handle(event);
        while let Some(action) = self.machine.poll_action() {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::HostMaster(process) => self.host_master(process),
            Action::Welcome(process) => self.welcome(process),
            Action::Refuse(_) => {
                if let Some(caller) = self.caller.take() {
                    let _ = caller.answer.send((Err(NoAgent::PlaceTaken), Handed::default()));
                }
            }
            Action::Tell(message) => self.tell(message),
            Action::Release(process) => self.remains.release(process),
            Action::Thin(process) => self.remains.thin(process),
            Action::Start { process, origin } => self.start(process, origin),
            Action::Forgive(process) => {
                let told = self.config.parent.as_ref().map(|parent| parent.send(ToParent::Forgive(process)));
                tracing::debug!(%process, ?told, "its rank goes on on another host");
            }
            Action::Hold(limits) => {
                self.may_ask.store(limits.ranks_return, Ordering::Relaxed);
                self.silence_max = limits.silence_max();
                self.replicas.limit(limits.replica_bytes_max);
            }
            Action::DropReplica(process) => self.replicas.release(process),
            Action::Done => {}
        }
    }

    /// Has a process started by the parent of those here.
    fn start(&mut self, process: ProcessId, origin: Option<Origin>) {
        self.origins.insert(process.rank, (process, origin));
        let asked = self.config.parent.as_ref().map(|parent| parent.send(ToParent::Start(process)));
        if !matches!(asked, Some(Ok(()))) {
            self.machine.handle(Event::Ended(process, Ending::Unknown));
        }
    }

    /// Runs the master here, as the process that is being taken in has it.
    fn host_master(&mut self, process: ProcessId) {
        let Some(caller) = self.caller.take() else { return };
        let Hail { size, policy, board, .. } = &caller.hail;
        let board = if *board { OwnBoard::for_job(*size).map(Arc::new) } else { None };
        let AgentConfig { job, key, rendezvous, .. } = &*self.config;
        let (job, key, rendezvous) = (*job, *key, rendezvous.clone());
        let locator = self.locator.clone();
        let config = MasterConfig {
            job,
            key,
            size: *size,
            rendezvous,
            policy: *policy,
            board: board.clone(),
            locator,
        };
        match MasterThread::start(config) {
            Ok(master) => {
                self.master = Some((master, board));
                self.caller = Some(caller);
                self.machine.handle(Event::MasterStarted(process));
            }
            Err(error) => {
                let (reason, code) = (error.to_string(), error.raw_os_error());
                let _ = caller.answer.send((Err(NoAgent::CannotListen { reason, code }), Handed::default()));
                self.machine.handle(Event::MasterFailed);
            }
        }
    }

    fn welcome(&mut self, process: ProcessId) {
        let Some(caller) = self.caller.take() else { return };
        let Caller { region, pid, end, answer, hail, .. } = *caller;
        self.locator.tell(locating::Input::Came(process, pid));
        let is_first = process.rank == everfold_agent::FIRST_RANK;
        if let Some((file, region)) = region {
            match PeerRegion::adopt(file, &region) {
                Ok(region) => self.remains.hold(process, region),
                Err(error) => tracing::warn!(%process, %error, "cannot hold its memory"),
            }
        }
        if let Some(end) = end {
            tokio::spawn(watch(process, end, self.input.clone()));
        }
        let board = self.master.as_ref().and_then(|(_, board)| board.clone()).filter(|_| is_first);
        let origin = self.origins.get(&process.rank).filter(|(expected, _)| *expected == process);
        let origin = origin.and_then(|(_, origin)| origin.clone());
        if origin.is_some() {
            // What an earlier process has left here, or has not taken as a whole, is not what counts.
            self.vaults.remove(&process.rank);
        }
        let returns = hail.policy.limits.ranks_return;
        let vault = if returns { self.vault_of(process, origin.is_some()) } else { None };
        let welcome = Welcome { id: self.id, board: board.is_some(), vault: vault.is_some(), origin };
        let _ = answer.send((Ok(welcome), Handed { board, vault }));
    }

    /// The vault of a rank, which its first process finds empty, and one that fills it from a replica. If there
    /// was none for the first one, a later one has none either: it would begin anew, and call what is over.
    fn vault_of(
        &mut self,
        ProcessId { rank, incarnation }: ProcessId,
        is_filled: bool,
    ) -> Option<Arc<Vault>> {
        match self.vaults.entry(rank) {
            Entry::Occupied(held) => Some(held.get().clone()),
            Entry::Vacant(_) if incarnation.0 > 0 && !is_filled => None,
            Entry::Vacant(place) => {
                let file = || memfd_create(c"everfold-vault", MFdFlags::MFD_CLOEXEC);
                let files = file().and_then(|first| Ok([first, file()?]));
                let files = files.inspect_err(|error| tracing::warn!(%rank, %error, "no vault"));
                Some(place.insert(Arc::new(files.ok()?)).clone())
            }
        }
    }

    fn tell(&mut self, message: FromAgent) {
        let Some(outlet) = &mut self.to_master else { return };
        // What the master did not take before goes first; a ping comes soon, and with it the next try.
        outlet.go_on();
        outlet.push(message);
        let header = Header { job: self.config.job, epoch: Epoch(0), sender: MASTER };
        if let Err(error) = outlet.send(&header, Limits::default().frame_bytes_max) {
            tracing::error!(%error, "cannot tell the master");
        }
    }

    /// Serves the memory of this host at that address, and looks for the master, from the first time on.
    /// Returns the port.
    async fn serve(&mut self, ip: IpAddr) -> io::Result<u16> {
        if let Some(port) = self.ports.get(&ip) {
            return Ok(*port);
        }
        let listener = Listener::bind(&Address::Tcp(SocketAddr::from((ip, 0)).to_string())).await?;
        let address = listener.tcp_address()?.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let server = Server {
            id: self.id,
            config: self.config.clone(),
            remains: self.remains.clone(),
            replicas: self.replicas.clone(),
        };
        tokio::spawn(serve(listener, server, self.silence_max, self.locator.clone()));
        if self.ports.is_empty() && !self.config.is_spare {
            self.seek_master();
        }
        self.ports.insert(ip, address.port());
        Ok(address.port())
    }

    /// Looks for the master.
    fn seek_master(&mut self) {
        self.handle(Event::MasterSought);
        tokio::spawn(attend_master(self.id, self.config.clone(), self.silence_max, self.input.clone()));
    }
}

/// Waits until a process has ended.
async fn watch(process: ProcessId, end: OwnedFd, input: mpsc::UnboundedSender<Input>) {
    let end = Arc::new(end);
    let watched = patiently(|| register(&end, Interest::READABLE)).await;
    match watched {
        Ok(watched) => {
            let ended: io::Result<_> = AsyncFd::readable(&watched).await.map(drop);
            if ended.is_ok() {
                let _ = input.send(Input::Event(Event::Ended(process, Ending::Unknown)));
            }
        }
        Err(error) => tracing::warn!(%process, %error, "cannot see its end"),
    }
}

/// What becomes readable when the process at the other end of `stream` has ended.
fn end_of(stream: &UnixStream) -> io::Result<OwnedFd> {
    let pid = stream.peer_cred()?.pid().ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: this call takes plain integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    match descriptor {
        // SAFETY: the system has just opened it for this process, and nobody else knows of it.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The same, if the system can tell.
fn seen_end(stream: &UnixStream, process: ProcessId) -> Option<OwnedFd> {
    let end = end_of(stream);
    end.inspect_err(|error| tracing::warn!(%process, %error, "its end will not be seen")).ok()
}

/// Serves the processes of this host. As long as one is served, there is an `attending`.
async fn accept(
    listener: UnixListener,
    config: Arc<AgentConfig>,
    input: mpsc::UnboundedSender<Input>,
    attending: mpsc::Sender<()>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (config, input, attending) = (config.clone(), input.clone(), attending.clone());
                tokio::spawn(async move {
                    let _attending: mpsc::Sender<()> = attending;
                    if let Err(error) = attend(stream, &config, &input).await {
                        tracing::debug!(%error, "dropped a connection");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(descriptors::PAUSE).await;
            }
        }
    }
}

/// Serves one process of this host until it hangs up.
async fn attend(
    mut stream: UnixStream,
    config: &AgentConfig,
    input: &mpsc::UnboundedSender<Input>,
) -> Result<(), HandshakeError> {
    is_own(&stream)?;
    let (hello, seals) = handshake::accept(&mut stream, &config.key, config.job).await?;
    let process = hello.process;
    if hello.purpose != Purpose::Hail {
        return Err(io::Error::other(format!("{process} was led astray: {:?}", hello.purpose)).into());
    }
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let end = if config.parent.is_some() { None } else { seen_end(&stream, process) };
    let mut line = Line::new(stream, seals);
    let hail: Hail = line.hear().await?;
    let region = match hail.region {
        Some(region) => Some((line.take().await?, region)),
        None => None,
    };
    let (answer, answered) = oneshot::channel();
    let _ = input.send(Input::Hailed(Box::new(Caller { process, hail, region, pid, end, answer })));
    let Ok((answer, handed)) = answered.await else { return Ok(()) };
    if answer.is_err() {
        return line.tell(&answer).await;
    }
    let served = serve_rank(line, answer, handed, input).await;
    let _ = input.send(Input::Event(Event::HungUp(process)));
    served
}

/// Serves a process that was taken in, until it hangs up.
async fn serve_rank(
    mut line: Line,
    answer: Answer,
    Handed { board, vault }: Handed,
    input: &mpsc::UnboundedSender<Input>,
) -> Result<(), HandshakeError> {
    line.tell(&answer).await?;
    if let Some(board) = board {
        line.hand_over(board.file()).await?;
    }
    for file in vault.iter().flat_map(|files| files.iter()) {
        line.hand_over(file.as_fd()).await?;
    }
    while let Ok(Serve { ip }) = line.hear().await {
        let (answer, answered) = oneshot::channel();
        let _ = input.send(Input::Serve(ip, answer));
        if let Ok(serving) = answered.await {
            line.tell(&serving).await?;
        }
    }
    Ok(())
}

/// What an agent serves to other hosts.
#[derive(Clone)]
struct Server {
    id: AgentId,
    config: Arc<AgentConfig>,
    remains: Arc<Remains>,
    replicas: Arc<Replicas>,
}

/// Serves what processes of this host have left, and replicas of ranks of other hosts, and lets other nodes talk
/// to the one here.
async fn serve(listener: Listener, server: Server, silence_max: Duration, locator: Locator) {
    let lobby = Lobby::for_job(RANKS_EXPECTED);
    loop {
        let (mut stream, guest) = lobby.next(&listener).await;
        let (Server { id, config, remains, replicas }, locator) = (server.clone(), locator.clone());
        tokio::spawn(async move {
            let (hello, seals) = match guest.prove(&mut stream, &config.key, config.job).await {
                Ok(proved) => proved,
                Err(error) => return tracing::debug!(%error, "dropped a connection"),
            };
            let served = async {
                stream.bound_silence(silence_max)?;
                match hello.purpose {
                    Purpose::Remains(process) => tcp::serve(stream, seals, remains.of(process)).await,
                    Purpose::Replica(to) if to == id => {
                        holding::serve(&replicas, hello.process, stream, seals).await
                    }
                    Purpose::Locate(to) if to == id => locating::listen(stream, seals, locator).await,
                    Purpose::Link(to) if to == id => locating::show_link(stream).await,
                    purpose => Err(io::Error::other(format!("it was led astray: {purpose:?}")).into()),
                }
            };
            if let Err(error) = served.await {
                tracing::debug!(%error, "dropped a connection");
            }
        });
    }
}

/// Finds the master, and hears it until it says nothing more.
async fn attend_master(
    id: AgentId,
    config: Arc<AgentConfig>,
    silence_max: Duration,
    input: mpsc::UnboundedSender<Input>,
) {
    if let Err(error) = hear_master(id, &config, silence_max, &input).await {
        tracing::debug!(%error, "no connection to the master");
    }
    let _ = input.send(Input::Event(Event::MasterLost));
}

async fn hear_master(
    id: AgentId,
    config: &AgentConfig,
    silence_max: Duration,
    input: &mpsc::UnboundedSender<Input>,
) -> Result<(), HandshakeError> {
    let AgentConfig { rendezvous, key, job, .. } = config;
    let deadline = Instant::now() + PATIENCE;
    let knock = || connect_until(rendezvous, deadline);
    let (stream, seals) = lobby::knock(knock, key, *job, MASTER, Purpose::Agent(id)).await?;
    // A master whose host has vanished does not say so.
    stream.bound_silence(silence_max)?;
    let own_ip = stream.own_ip()?;
    let socket = Arc::new(stream.into_socket()?);
    let inlet = Inlet::new(socket.clone(), seals.inward);
    let _ = input.send(Input::MasterFound(Outlet::new(socket, seals.outward), own_ip));
    let line = patiently(|| inlet.register()).await?;
    loop {
        let mut ready = line.readable().await?;
        let frame = |_: Header, messages: Vec<ToAgent>| {
            for message in messages {
                let _ = input.send(Input::Event(Event::Master(message)));
            }
        };
        match inlet.hear(Limits::default().frame_bytes_max, frame) {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => ready.clear_ready(),
            Err(error) => return Err(error),
        }
    }
}
