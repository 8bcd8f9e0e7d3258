//! The thread that does a process's input and output: it hears the master, and serves windows to peers. It
//! never folds anything long and never waits for the application. [`start`] makes it.

use std::{
    fs::File,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use everfold_protocol::{JobId, ProcessId, message::Peer};

use crate::{
    agent::{About, HailError, OwnAgent, hail},
    driver::{Driver, Joined, Left},
    keeper::{Keeper, KeeperConfig},
    launch::{Transport, held::Held},
    memory::{lifeline::Lifeline, region::Region, window::Windows},
    peers::Peers,
    replica::{self, Followed},
    result_log::{LogError, ResultLog, own_files},
    serving::Server,
    transport::{
        control::{Address, BoxStream, Listener, Stranger},
        handshake::{HandshakeError, Key, Purpose, Seals},
        lobby::{self, Lobby},
        shm,
        tcp::Tcp,
    },
};

pub use crate::{
    call::{Call, CallError, Completed, JoinError, Pending, RankConfig},
    driver::timestamp,
    handle::{Handle, Waiting},
};

/// Stack of a thread that folds. Objects are nested as deep as the stacks of small threads allow, but what
/// `combine` makes of several may be deeper before it is refused. Pages that are never touched cost nothing.
const FOLD_STACK_BYTES: usize = 8 << 20;

/// Joins the job and waits until everyone has.
///
/// # Errors
/// See [`JoinError`].
pub fn start(config: RankConfig) -> Result<Handle, JoinError> {
    let (ready, welcome) = mpsc::channel();
    let thread = std::thread::Builder::new().name("everfold-io".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(config.threads)
            .thread_keep_alive(Duration::from_secs(60))
            .thread_name("everfold-fold")
            .thread_stack_size(FOLD_STACK_BYTES)
            .build();
        match runtime {
            Ok(runtime) => runtime.block_on(work(config, ready)),
            Err(error) => drop(ready.send(Err(error.into()))),
        }
    })?;
    let joined = welcome.recv().unwrap_or(Err(JoinError::MasterLost))?;
    Ok(Handle::new(joined, thread))
}

/// Joins the job, and works until this process has left it.
async fn work(config: RankConfig, ready: mpsc::Sender<Result<Joined, JoinError>>) {
    let (members, incoming) = tokio::sync::mpsc::unbounded_channel();
    // As long as it is held, the agent knows that this process takes part.
    let (driver, _agent, standby) = match connect(config, members, ready.clone()).await {
        Ok(connected) => connected,
        Err(error) => return drop(ready.send(Err(error))),
    };
    // Without it the broken connection tells the same, later.
    let _lifeline = driver.windows.region().and_then(|region| {
        Lifeline::hold(region)
            .inspect_err(|error| tracing::warn!(%error, "no lifeline: a death is noticed a little later"))
            .ok()
    });
    if let Some((followed, held)) = standby
        && !driver.stand_by(followed, held).await
    {
        return;
    }
    driver.run(incoming).await;
}

/// What a process follows that stands by, and what it holds back.
type Standby = (Followed, Option<Held>);

async fn connect(
    config: RankConfig,
    members: Members,
    ready: mpsc::Sender<Result<Joined, JoinError>>,
) -> Result<(Arc<Driver>, OwnAgent, Option<Standby>), JoinError> {
    let deadline = tokio::time::Instant::now() + config.join_timeout;
    let (host, region) = memory(&config);
    let hailing = hail(&config.environment, about(&config, region.as_deref()), deadline);
    let no_answer = |_| HailError::NotFound(io::ErrorKind::TimedOut.into());
    let mut agent = tokio::time::timeout_at(deadline, hailing).await.map_err(no_answer)??;
    let RankConfig { process, job, key, .. } = config;
    let (control, seals) = reach_master(&config, &mut agent, deadline).await?;
    // Before the job has begun the master does not ping, and one whose host has vanished does not say so.
    control.bound_silence(config.policy.limits.silence_max())?;
    // Others find this host at the address that leads to the master.
    let own_ip = control.own_ip()?.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let listener = Listener::bind(&Address::Tcp(SocketAddr::from((own_ip, 0)).to_string())).await?;
    let own_address =
        listener.tcp_address()?.ok_or(io::ErrorKind::AddrNotAvailable).map_err(io::Error::from)?;
    let windows = Arc::new(Windows::new(region));
    let lobby = Lobby::for_job(config.size);
    let server = Arc::new(Server::new(windows.clone()));
    tokio::spawn(serve(listener, lobby, (key, job, process), server.clone(), members));
    let me = Peer {
        process,
        host,
        pid: std::process::id(),
        region: windows.region().map(|region| region.handle()),
        bell: None,
        board: agent.board().map(AsRawFd::as_raw_fd),
        address: own_address.to_string(),
        domain: config.domain.clone(),
        agent: Some(agent.serve(own_ip).await?),
    };
    let (log, standby) = open_log(&config, &mut agent).await?;
    let board = agent.board().filter(|_| log.is_some()).map(File::try_clone).transpose()?;
    let keeper = Arc::new(Keeper::new(KeeperConfig::new(config.storage.clone(), job, process)));
    let tcp = Tcp::new(key, job, process);
    let peers = Arc::new(Peers::new(&me, windows.clone(), tcp, config.second.clone()));
    let driver = Driver::new(
        config,
        me,
        server,
        (keeper, peers),
        (control.into_socket()?, seals),
        Left { log, board },
        ready,
    )?;
    Ok((driver, agent, standby))
}

/// Connects to the master, which may not be there yet. An agent that hangs up knows that it will not be.
async fn reach_master(
    config: &RankConfig,
    agent: &mut OwnAgent,
    deadline: tokio::time::Instant,
) -> Result<(BoxStream, Seals), JoinError> {
    let RankConfig { process, job, key, ref rendezvous, join_timeout, .. } = *config;
    let address = || rendezvous.clone();
    let knock = lobby::knock_until(rendezvous, deadline, (&key, job, process), Purpose::Control);
    let knocked = tokio::select! {
        biased;
        knocked = knock => knocked,
        () = agent.hung_up() => return Err(JoinError::MasterLost),
    };
    knocked.map_err(|source| match source {
        HandshakeError::Io(source) => match Stranger::behind(&source) {
            Some(stranger) => JoinError::Squatted { address: address(), stranger },
            None => JoinError::NoMaster { address: address(), timeout: join_timeout, source },
        },
        source => JoinError::Handshake { address: address(), source },
    })
}

/// Opens the result log of a process, if it has one. If the vault is to be filled from the replica of an
/// earlier process, it takes the replica, or follows it if it stands by.
async fn open_log(
    config: &RankConfig,
    agent: &mut OwnAgent,
) -> Result<(Option<ResultLog>, Option<Standby>), JoinError> {
    let RankConfig { process, job, key, log_bytes_max, .. } = *config;
    let files = match agent.take_vault() {
        None if config.saves && process.incarnation.0 == 0 => Some(own_files()?),
        files => files,
    };
    let (mut transfer, mut standby, silence_max) = (Duration::ZERO, None, config.policy.limits.silence_max());
    if let (Some(origin), Some(files)) = (agent.origin(), &files) {
        let (began, us) = (Instant::now(), (key, job, process));
        if agent.stands_by() {
            let held = Held::begin();
            let held = held
                .inspect_err(|error| tracing::warn!(%error, "the output of this standby comes twice"))
                .ok();
            standby = Some((replica::follow(origin, us, silence_max, files).await?, held));
        } else {
            replica::take(origin, us, silence_max, files).await?;
        }
        transfer = began.elapsed();
    }
    let log = files.map(|files| ResultLog::open(files, job, process, log_bytes_max)).transpose()?;
    log.iter().for_each(|log| log.arrived(transfer));
    log.iter().filter(|_| standby.is_some()).for_each(ResultLog::stand_by);
    if log.is_none() && process.incarnation.0 > 0 {
        return Err(LogError::Absent.into());
    }
    Ok((log, standby))
}

/// The host of this process as peers see it that may map its memory, and that memory.
fn memory(config: &RankConfig) -> (u64, Option<Arc<Region>>) {
    let apart = shm::host_apart(config.process);
    let region = Region::new();
    let shared = match config.transport {
        Transport::Auto | Transport::Shm => shm::host_id().and_then(|host| Ok((host, region?))),
        // The agent of this host holds it all the same.
        Transport::Tcp => region.map(|region| (apart, region)),
    };
    match shared {
        Ok((host, region)) => {
            if let Some(second) = &config.second {
                let shown = second.show(&region);
                shown.unwrap_or_else(|error| tracing::warn!(%error, "others read this process over TCP"));
            }
            (host, Some(region))
        }
        Err(error) => {
            // Everything still works over TCP.
            tracing::warn!(%error, "no shared memory: all goes over TCP, and nothing outlives this process");
            (apart, None)
        }
    }
}

/// What the agent of this host is to know of this process.
fn about<'a>(config: &'a RankConfig, region: Option<&'a Region>) -> About<'a> {
    let RankConfig { process, job, size, ref key, ref policy, ref detectors, transport, .. } = *config;
    About { key, job, process, size, policy, detectors, region, board: transport != Transport::Tcp }
}

/// Members of a team that have connected to the deputy here.
type Members = tokio::sync::mpsc::UnboundedSender<(ProcessId, BoxStream, Seals)>;

/// Answers peers that read this process's windows, and lets members of its team in.
async fn serve(
    listener: Listener,
    lobby: Lobby,
    (key, job, me): (Key, JobId, ProcessId),
    server: Arc<Server>,
    members: Members,
) {
    loop {
        let (mut stream, guest) = lobby.next(&listener).await;
        let (server, members) = (server.clone(), members.clone());
        tokio::spawn(async move {
            let (hello, seals) = match guest.prove(&mut stream, &key, job).await {
                Ok(proved) => proved,
                Err(error) => return tracing::debug!(%error, "dropped a connection"),
            };
            match hello.purpose {
                // Nobody hears it when this process is about to end.
                Purpose::Team(to) if to == me => drop(members.send((hello.process, stream, seals))),
                Purpose::Data(to) if to == me => {
                    if let Err(error) = server.serve(hello.process, stream, seals).await {
                        tracing::debug!(%error, "dropped a connection");
                    }
                }
                purpose => {
                    tracing::warn!(process = %hello.process, ?purpose, "dropped a connection for another use")
                }
            }
        });
    }
}
