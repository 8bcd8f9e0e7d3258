//! Feeds the agent's machine, and carries out its actions.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use everfold_agent::{Action, Agent, Connection, Event};
use everfold_protocol::{
    AgentId, Epoch, ProcessId, Rank,
    locating::FromLocator,
    message::{Ending, FromAgent, Header, Lodging, MASTER, Origin, ToAgent},
    spec::Limits,
};
use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio::{
    net::UnixListener,
    sync::{mpsc, oneshot},
};

use super::{
    AgentConfig, BRIEFLY, PATIENCE, ToParent,
    callers::{self, Caller, Handed, Vault},
    to_master,
    to_others::{self, Server},
};
use crate::{
    agent::{
        line::{Hail, NoAgent, Serving, Welcome},
        remains::Remains,
    },
    locating::{self, Faults, Locator, NodeConfig},
    master::{MasterConfig, MasterThread},
    memory::{board::OwnBoard, peer_region::PeerRegion},
    replica::holding::Replicas,
    transport::{
        control::{Address, Listener},
        line::Outlet,
    },
};

/// How long it may take to tell the last of them what there is to tell.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Something that the agent's thread is told.
pub(super) enum Input {
    Hailed(Box<Caller>),
    Serve(IpAddr, oneshot::Sender<Serving>),
    /// This host has that address on the way to it, if it may be on another one.
    MasterFound(Outlet<FromAgent>, Option<IpAddr>),
    Locating(FromLocator),
    Event(Event),
    Finish,
}

/// A process that is about to be started here.
struct Arrival {
    process: ProcessId,
    /// Where its vault comes from.
    origin: Option<Origin>,
    stands_by: bool,
}

pub(super) struct Host {
    id: AgentId,
    /// Whether ranks come back in this job.
    may_ask: Arc<AtomicBool>,
    config: Arc<AgentConfig>,
    machine: Agent,
    remains: Arc<Remains>,
    /// Of ranks that come back.
    vaults: BTreeMap<Rank, Arc<Vault>>,
    /// Where the vaults of processes come from that are about to be started here.
    origins: BTreeMap<Rank, Arrival>,
    /// Of ranks of other hosts.
    replicas: Arc<Replicas>,
    input: mpsc::UnboundedSender<Input>,
    /// The process that is being taken in.
    caller: Option<Box<Caller>>,
    /// How long a process may be silent in this job, as the processes say that have come.
    silence_max: Duration,
    /// The ports at which the memory of this host is served, by the address that was asked for.
    ports: BTreeMap<IpAddr, u16>,
    to_master: Option<Outlet<FromAgent>>,
    /// Whether it has looked for the master.
    has_sought: bool,
    master: Option<(MasterThread, Option<Arc<OwnBoard>>)>,
    locator: Locator,
}

impl Host {
    pub(super) fn new(
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
            has_sought: false,
            master: None,
        }
    }

    pub(super) async fn run(mut self, listener: UnixListener, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let (attending, mut all_served) = mpsc::channel(1);
        let accepting =
            tokio::spawn(callers::accept(listener, self.config.clone(), self.input.clone(), attending));
        let alone = tokio::time::sleep(PATIENCE);
        let mut alone = std::pin::pin!(alone);
        let mut waits = self.config.parent.is_none();
        let mut is_finished = false;
        if self.config.is_spare {
            self.seek_master(PATIENCE);
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
        // Refused processes are still to hear why.
        let _ = tokio::time::timeout(FAREWELL_TIMEOUT, all_served.recv()).await;
        // Ranks of other hosts may need it yet, though none does here.
        if let Some((master, _)) = self.master.as_ref().filter(|_| is_finished) {
            master.abandon();
        }
    }

    async fn take(&mut self, input: Input) {
        match input {
            Input::Hailed(caller) => {
                let connection = caller.connection;
                let limits = &caller.hail.policy.limits;
                self.silence_max = limits.silence_max();
                self.may_ask.store(limits.ranks_return, Ordering::Relaxed);
                self.caller = Some(caller);
                self.handle(Event::Hailed(connection));
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
            Event::Vanished(connection) if self.machine.is_latest(*connection) => {
                self.locator.tell(locating::Input::Ended(connection.process, Ending::Unknown));
            }
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
            Action::HostMaster(connection) => self.host_master(connection),
            Action::Welcome(process) => self.welcome(process),
            Action::Refuse(_) => {
                if let Some(caller) = self.caller.take() {
                    let _ = caller.answer.send((Err(NoAgent::PlaceTaken), Handed::default()));
                }
            }
            Action::Tell(message) => self.tell(message),
            Action::Release(process) => self.remains.release(process),
            Action::Thin(process) => self.remains.thin(process),
            Action::Start { process, origin, stands_by } => {
                self.start(Arrival { process, origin, stands_by });
            }
            Action::Promote(process) => self.promote(process),
            Action::End(process) => self.tell_parent(ToParent::End(process)),
            Action::Forgive(process) => {
                self.tell_parent(ToParent::Forgive(process));
                tracing::debug!(%process, "its rank goes on on another host");
            }
            Action::Hold(limits) => {
                self.may_ask.store(limits.ranks_return, Ordering::Relaxed);
                self.silence_max = limits.silence_max();
                self.replicas.limit(limits.replica_bytes_max);
            }
            Action::DropReplica(process) => self.replicas.release(process),
            Action::Masterless => self.tell_parent(ToParent::Masterless),
            Action::SeekMaster => self.seek_master(BRIEFLY),
            Action::Done => {}
        }
    }

    /// Has a process started by the parent of those here.
    fn start(&mut self, arrival: Arrival) {
        let process = arrival.process;
        let order = if arrival.stands_by { ToParent::StandBy(process) } else { ToParent::Start(process) };
        self.origins.insert(process.rank, arrival);
        let asked = self.config.parent.as_ref().map(|parent| parent.send(order));
        if !matches!(asked, Some(Ok(()))) {
            self.machine.handle(Event::Ended(process, Ending::Unknown));
        }
    }

    /// Lets a process that stands by take the place of the one whose replica it follows.
    fn promote(&mut self, process: ProcessId) {
        self.tell_parent(ToParent::Promoted(process));
        let arrival = self.origins.get(&process.rank).filter(|arrival| arrival.process == process);
        if let Some(origin) = arrival.and_then(|arrival| arrival.origin.as_ref()) {
            self.replicas.conclude(origin.process);
        }
    }

    fn tell_parent(&self, order: ToParent) {
        // If it is gone, so are its processes.
        let _ = self.config.parent.as_ref().map(|parent| parent.send(order));
    }

    /// Runs the master here, as the process that is being taken in has it.
    fn host_master(&mut self, connection: Connection) {
        let Some(caller) = self.caller.take() else { return };
        let Hail { size, policy, detectors, board, .. } = &caller.hail;
        let components = match self.config.components.choose(detectors) {
            Ok(components) => components,
            Err(unknown) => {
                let _ = caller.answer.send((Err(unknown.into()), Handed::default()));
                return self.machine.handle(Event::MasterFailed);
            }
        };
        let board = if *board { OwnBoard::for_job(*size).map(Arc::new) } else { None };
        let AgentConfig { job, key, rendezvous, parent, .. } = &*self.config;
        let (job, key, rendezvous, parent) = (*job, *key, rendezvous.clone(), parent.clone());
        let locator = self.locator.clone();
        let config = MasterConfig {
            job,
            key,
            size: *size,
            rendezvous,
            policy: policy.clone(),
            components,
            board: board.clone(),
            locator,
            parent,
        };
        match MasterThread::start(config) {
            Ok(master) => {
                self.master = Some((master, board));
                self.caller = Some(caller);
                self.machine.handle(Event::MasterStarted(connection));
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
        let Caller { region, pid, answer, hail, .. } = *caller;
        self.locator.tell(locating::Input::Came(process, pid));
        let is_first = process.rank == everfold_agent::FIRST_RANK;
        if let Some((file, region)) = region {
            match PeerRegion::adopt(file, &region) {
                Ok(region) => self.remains.hold(process, region),
                Err(error) => {
                    tracing::warn!(%process, %error, "this agent cannot hold the memory of a process")
                }
            }
        }
        let board = self.master.as_ref().and_then(|(_, board)| board.clone()).filter(|_| is_first);
        let arrival = self.origins.get(&process.rank).filter(|arrival| arrival.process == process);
        let stands_by = arrival.is_some_and(|arrival| arrival.stands_by);
        let origin = arrival.and_then(|arrival| arrival.origin.clone());
        if origin.is_some() {
            // What an earlier process has left here, or has not taken as a whole, is not what counts.
            self.vaults.remove(&process.rank);
        }
        let returns = hail.policy.limits.ranks_return;
        let vault = if returns { self.vault_of(process, origin.is_some()) } else { None };
        let welcome =
            Welcome { id: self.id, board: board.is_some(), vault: vault.is_some(), origin, stands_by };
        let _ = answer.send((Ok(welcome), Handed { board, vault }));
    }

    /// The vault of a rank. It is empty for the rank's first process, and for one that fills it from a
    /// replica. If there was none for the first process, a later one has none either: it would begin anew,
    /// and repeat calls that are over.
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
                let files = files.inspect_err(|error| tracing::warn!(%rank, %error, "there is no memory for the vault of a rank: it cannot come back"));
                Some(place.insert(Arc::new(files.ok()?)).clone())
            }
        }
    }

    fn tell(&mut self, message: FromAgent) {
        let Some(outlet) = &mut self.to_master else { return };
        // Messages that the master did not take before go first; a ping comes soon, and with it the next try.
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
        tokio::spawn(to_others::serve(listener, server, self.silence_max, self.locator.clone()));
        self.seek_master(PATIENCE);
        self.ports.insert(ip, address.port());
        Ok(address.port())
    }

    /// Looks for the master, for `patience` at most, if it has not done so before.
    fn seek_master(&mut self, patience: Duration) {
        if std::mem::replace(&mut self.has_sought, true) {
            return;
        }
        self.handle(Event::MasterSought);
        let (config, input) = (self.config.clone(), self.input.clone());
        tokio::spawn(to_master::attend(self.id, config, patience, self.silence_max, input));
    }
}
