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
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::{
    AgentConfig, BRIEFLY, PATIENCE, ToParent,
    callers::{self, Caller, Handed, Vault},
    hosting::Hosting,
    to_master::{self, Terms},
    to_others::{self, Server},
};
use crate::{
    agent::{
        line::{NoAgent, Serving, Welcome},
        remains::Remains,
    },
    locating::{self, Faults, Locator, NodeConfig},
    memory::peer_region::PeerRegion,
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
    /// Whether it hangs up on all processes here.
    over: watch::Sender<bool>,
    /// How the master is looked for and heard, from when it is looked for.
    terms: Option<watch::Sender<Terms>>,
    hosting: Hosting,
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
            machine: match config.has_others {
                true => Agent::among_others(),
                false => Agent::new(config.parent.is_some()),
            },
            hosting: Hosting::new(config.clone(), locator.clone()),
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
            over: watch::channel(false).0,
            terms: None,
        }
    }

    pub(super) async fn run(mut self, listener: UnixListener, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let (attending, mut all_served) = mpsc::channel(1);
        let serving = callers::Serving {
            config: self.config.clone(),
            input: self.input.clone(),
            over: self.over.subscribe(),
        };
        let accepting = tokio::spawn(callers::accept(listener, serving, attending));
        if self.config.is_first {
            self.hosting.open();
        }
        let alone = tokio::time::sleep(PATIENCE);
        let mut alone = std::pin::pin!(alone);
        let mut waits = self.config.parent.is_none();
        let mut is_finished = false;
        if self.config.is_spare {
            self.handle(Event::MasterSought);
            self.seek_master(Some(PATIENCE));
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
        if is_finished {
            self.hosting.abandon();
        }
    }

    async fn take(&mut self, input: Input) {
        match input {
            Input::Hailed(caller) => {
                let connection = caller.connection;
                let limits = caller.hail.policy.limits;
                self.may_ask.store(limits.ranks_return, Ordering::Relaxed);
                self.tolerate(limits.silence_max());
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
                tracing::debug!("the first host knows of this one");
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
            Action::Refuse(_) => self.refuse(NoAgent::PlaceTaken),
            Action::TurnAway(_) => self.refuse(NoAgent::NoMaster),
            Action::Tell(message) => self.tell(message),
            Action::Release(process) => self.remains.release(process),
            Action::Thin(process) => self.remains.thin(process),
            Action::Start { process, origin, stands_by } => {
                self.start(Arrival { process, origin, stands_by });
            }
            Action::Promote(process) => self.promote(process),
            Action::End(process) => {
                self.locator.tell(locating::Input::Unwanted(process));
                self.tell_parent(ToParent::End(process));
            }
            Action::Forgive(process) => {
                self.tell_parent(ToParent::Forgive(process));
                tracing::debug!(%process, "its rank goes on on another host");
            }
            Action::Hold(limits) => {
                self.may_ask.store(limits.ranks_return, Ordering::Relaxed);
                self.tolerate(limits.silence_max());
                self.replicas.limit(limits.replica_bytes_max);
            }
            Action::DropReplica(process) => self.replicas.release(process),
            Action::Masterless => self.tell_parent(ToParent::Masterless),
            Action::CallOff => self.call_off(),
            Action::HangUp => drop(self.over.send_replace(true)),
            Action::SeekMaster => self.seek_master(None),
            Action::SeekMasterBriefly => self.seek_master(Some(BRIEFLY)),
            Action::Done => {}
        }
    }

    fn refuse(&mut self, why: NoAgent) {
        if let Some(caller) = self.caller.take() {
            let _ = caller.answer.send((Err(why), Handed::default()));
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
        match self.hosting.start(&caller.hail) {
            Ok(()) => {
                self.caller = Some(caller);
                self.machine.handle(Event::MasterStarted(connection));
            }
            Err(why) => {
                let _ = caller.answer.send((Err(why), Handed::default()));
                self.machine.handle(Event::MasterFailed);
            }
        }
    }

    fn call_off(&mut self) {
        if let Err(error) = self.hosting.call_off() {
            tracing::warn!(%error, "other hosts do not hear that rank 0 has ended");
            self.tell_parent(ToParent::Masterless);
        }
    }

    fn welcome(&mut self, process: ProcessId) {
        let Some(caller) = self.caller.take() else { return };
        let Caller { region, pid, answer, hail, .. } = *caller;
        self.locator.tell(locating::Input::Came(process, pid));
        if let Some((file, region)) = region {
            match PeerRegion::adopt(file, &region) {
                Ok(region) => self.remains.hold(process, region),
                Err(error) => {
                    tracing::warn!(%process, %error, "this agent cannot hold the memory of a process")
                }
            }
        }
        let arrival = self.origins.get(&process.rank).filter(|arrival| arrival.process == process);
        let stands_by = arrival.is_some_and(|arrival| arrival.stands_by);
        let origin = arrival.and_then(|arrival| arrival.origin.clone());
        if origin.is_some() {
            // What an earlier process has left here, or has not taken as a whole, is not what counts.
            self.vaults.remove(&process.rank);
        }
        let returns = hail.policy.limits.ranks_return;
        let is_first = process.rank == everfold_agent::FIRST_RANK;
        let board = self.hosting.board().filter(|_| is_first || returns);
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
                let files = files.inspect_err(
                    |error| tracing::warn!(%rank, %error, "no memory for a vault: its rank cannot come back"),
                );
                Some(place.insert(Arc::new(files.ok()?)).clone())
            }
        }
    }

    fn tell(&mut self, message: FromAgent) {
        let Some(outlet) = &mut self.to_master else { return };
        // Messages that the master did not take before go first. The next try comes with the next message,
        // such as the answer to a ping.
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
        match &self.terms {
            Some(terms) => terms.send_modify(|_| {}),
            None => {
                self.handle(Event::MasterSought);
                self.seek_master(Some(PATIENCE));
            }
        }
        self.ports.insert(ip, address.port());
        Ok(address.port())
    }

    /// Looks for the master, for `patience` from now on if that ends.
    fn seek_master(&mut self, patience: Option<Duration>) {
        let until = patience.map(|patience| Instant::now() + patience);
        if let Some(terms) = &self.terms {
            return terms.send_modify(|terms| terms.until = until);
        }
        let (terms, seen) = watch::channel(Terms { until, silence_max: self.silence_max });
        self.terms = Some(terms);
        tokio::spawn(to_master::attend(self.id, self.config.clone(), seen, self.input.clone()));
    }

    /// Takes in how long a process may be silent in this job.
    fn tolerate(&mut self, silence_max: Duration) {
        self.silence_max = silence_max;
        self.terms.iter().for_each(|terms| terms.send_modify(|terms| terms.silence_max = silence_max));
    }
}
