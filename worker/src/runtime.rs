//! Drives the worker's machine with sockets, threads and memory.
//!
//! One thread per process does all input and output: control messages, and windows served to peers. It never
//! folds anything long and never waits for the application. [`start`] makes it; a [`Handle`] talks to it.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use everfold_protocol::{
    JobId, Path, ProcessId, ReductionId,
    message::{Evidence, Fault, Header, Keep, News, Peer},
    spec::Limits,
    watch::INTERVALS_MOST,
};
use futures::FutureExt;
use tokio::{
    io::{AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{broadcast, mpsc, oneshot},
};

use crate::{
    copier::Copier,
    executor::{Executed, Share},
    handle::Input,
    keeper::{Keeper, KeeperConfig},
    machine::{Action, End, Event, ExecutionError, Gone, Worker},
    memory::{lifeline::Lifeline, region::Region, window::Windows},
    peers::Peers,
    transport::{
        control::{Address, BoxStream, Listener, connect_until, encode_batch, read_frame},
        handshake::{self, Key, Purpose},
        shm,
        tcp::{self, Tcp},
    },
};

pub use crate::handle::{Call, CallError, Completed, Config, Handle, JoinError, Pending, Transport};

/// Pieces of news that are kept for slow listeners.
const NEWS_KEPT: usize = 1024;

/// Joins the job and waits until everyone has.
///
/// # Errors
/// See [`JoinError`].
pub fn start(config: Config) -> Result<Handle, JoinError> {
    let (ready, welcome) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("everfold-io".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(config.threads)
            .thread_keep_alive(Duration::from_secs(60))
            .thread_name("everfold-fold")
            .build();
        match runtime {
            Ok(runtime) => runtime.block_on(Driver::run(config, ready)),
            Err(error) => drop(ready.send(Err(error.into()))),
        }
    })?;
    let mut handle = welcome.recv().unwrap_or(Err(JoinError::MasterLost))?;
    handle.thread = Some(thread);
    Ok(handle)
}

struct Local {
    share: Arc<Share>,
    answer: Option<oneshot::Sender<Result<Completed, CallError>>>,
}

struct Driver {
    config: Config,
    machine: Worker,
    peers: Arc<Peers>,
    windows: Arc<Windows>,
    locals: BTreeMap<ReductionId, Local>,
    input: mpsc::UnboundedSender<Input>,
    control: WriteHalf<BoxStream>,
    outgoing: Vec<u8>,
    limits: Limits,
    origin: Instant,
    keeper: Arc<Keeper>,
    copier: Arc<Copier>,
    /// Tells peers on this host of the end of this thread.
    _lifeline: Option<Lifeline>,
    news: broadcast::Sender<News>,
    failed: tokio::sync::watch::Sender<Path>,
    gone: tokio::sync::watch::Sender<Option<Gone>>,
    ready: Option<std::sync::mpsc::Sender<Result<Handle, JoinError>>>,
}

impl Driver {
    async fn run(config: Config, ready: std::sync::mpsc::Sender<Result<Handle, JoinError>>) {
        match Self::connect(config, ready.clone()).await {
            Ok((mut driver, inputs)) => driver.drive(inputs).await,
            Err(error) => drop(ready.send(Err(error))),
        }
    }

    async fn connect(
        config: Config,
        ready: std::sync::mpsc::Sender<Result<Handle, JoinError>>,
    ) -> Result<(Self, mpsc::UnboundedReceiver<Input>), JoinError> {
        let Config { process, job, key, ref rendezvous, transport, join_timeout, .. } = config;
        let address = || rendezvous.clone();
        let deadline = tokio::time::Instant::now() + join_timeout;
        let mut control = connect_until(rendezvous, deadline)
            .await
            .map_err(|source| JoinError::NoMaster { address: address(), timeout: join_timeout, source })?;
        handshake::connect(&mut control, &key, job, process, Purpose::Control)
            .await
            .map_err(|source| JoinError::Handshake { address: address(), source })?;
        let region = match transport {
            // Without shared memory everything still works over TCP.
            Transport::Auto => {
                Region::new().inspect_err(|error| tracing::warn!(%error, "no shared memory")).ok()
            }
            Transport::Tcp => None,
        };
        let host = match region {
            Some(_) => shm::host_id()?,
            None => u64::from(process.rank) | 1 << 63,
        };
        shm::allow_peers();
        let listener = Listener::bind(&Address::Tcp(format!("{}:0", own_ip(rendezvous)?))).await?;
        let server =
            listener.tcp_address()?.ok_or(io::ErrorKind::AddrNotAvailable).map_err(io::Error::from)?;
        // Without it the broken connection tells the same, later.
        let lifeline = region.as_ref().and_then(|region| {
            Lifeline::hold(region).inspect_err(|error| tracing::warn!(%error, "no lifeline")).ok()
        });
        let windows = Arc::new(Windows::new(region));
        tokio::spawn(serve(listener, key, job, windows.clone()));
        let me = Peer {
            process,
            host,
            pid: std::process::id(),
            region: windows.region().map(|region| region.handle()),
            address: server.to_string(),
            domain: config.domain.clone(),
        };
        let keeper = Arc::new(Keeper::new(KeeperConfig::new(config.storage.clone(), job, process)));
        let peers = Arc::new(Peers::new(&me, windows.clone(), Tcp::new(key, job, process)));
        let (input, inputs) = mpsc::unbounded_channel();
        let (reader, control) = tokio::io::split(control);
        tokio::spawn(listen(reader, input.clone()));
        let driver = Self {
            machine: Worker::new(me),
            origin: Instant::now(),
            copier: Arc::new(Copier::new(keeper.clone(), peers.clone(), {
                let input = input.clone();
                move |kept| drop(input.send(Input::Kept(kept)))
            })),
            keeper,
            _lifeline: lifeline,
            news: broadcast::Sender::new(NEWS_KEPT),
            failed: tokio::sync::watch::Sender::new(Path::empty()),
            peers,
            windows,
            locals: BTreeMap::new(),
            input,
            control,
            outgoing: Vec::new(),
            limits: Limits::default(),
            gone: tokio::sync::watch::channel(None).0,
            ready: Some(ready),
            config,
        };
        Ok((driver, inputs))
    }

    async fn drive(&mut self, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let mut batch = Vec::new();
        loop {
            if self.act().await {
                break;
            }
            let received = match self.machine.poll_timeout() {
                Some(due) => {
                    let until = self.origin + Duration::from_nanos(due.as_nanos());
                    tokio::time::timeout_at(until.into(), inputs.recv_many(&mut batch, 256)).await
                }
                None => Ok(inputs.recv_many(&mut batch, 256).await),
            };
            match received {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => self.machine.handle_timeout(timestamp(self.origin)),
            }
            if batch.iter().any(|input| matches!(input, Input::Abandon)) {
                break;
            }
            for input in batch.drain(..) {
                self.take(input);
            }
        }
        // Whoever calls from now on, or has just called, hears why nothing happens.
        let gone = self.machine.gone().unwrap_or(Gone::Left);
        self.gone.send_replace(Some(gone));
        inputs.close();
        while let Ok(input) = inputs.try_recv() {
            batch.push(input);
        }
        let late = batch.into_iter().filter_map(|input| match input {
            Input::Call { answer, .. } => Some(answer),
            _ => None,
        });
        let open = std::mem::take(&mut self.locals).into_values().filter_map(|local| local.answer);
        for answer in late.chain(open) {
            let _ = answer.send(Err(gone.into()));
        }
        self.keeper.close().await;
    }

    fn take(&mut self, input: Input) {
        let event = match input {
            Input::Call { contribution, share, answer } => {
                let local = Local { share, answer: Some(answer) };
                self.locals.insert(contribution.reduction, local);
                Event::Call(contribution)
            }
            Input::Frame(header, messages) => {
                for message in messages {
                    self.machine.handle_event(timestamp(self.origin), Event::Master { header, message });
                }
                return;
            }
            Input::MasterLost => Event::MasterLost,
            Input::Kept(kept) => Event::Kept(kept),
            Input::Executed { task, result } => Event::Executed { task, result },
            Input::Collected { reduction, result } => Event::Collected { reduction, result },
            Input::Close => Event::Close,
            Input::Abandon => return,
        };
        self.machine.handle_event(timestamp(self.origin), event);
    }

    /// Does what the machine wants done. Returns true when it wants nothing more, ever.
    async fn act(&mut self) -> bool {
        let mut messages = Vec::new();
        let mut closed = false;
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Send(message) => messages.push(message),
                Action::Meet { peers, limits } => self.meet(peers.to_vec(), limits),
                Action::Unwelcome(reason) => {
                    self.refuse_start(JoinError::Unwelcome {
                        address: self.config.rendezvous.clone(),
                        reason,
                    });
                    closed = true;
                }
                Action::Incomplete { missing } => {
                    self.refuse_start(JoinError::Incomplete { missing, timeout: self.config.join_timeout });
                    closed = true;
                }
                Action::Execute(task) => self.execute(task),
                Action::Collect { reduction, pieces } => {
                    let Some(local) = self.locals.get(&reduction) else {
                        continue;
                    };
                    let (share, peers, input) = (local.share.clone(), self.peers.clone(), self.input.clone());
                    let me = self.config.process;
                    tokio::spawn(async move {
                        let result = unless_panicked(me, share.collect(&peers, pieces)).await;
                        drop(share);
                        let _ = input.send(Input::Collected { reduction, result });
                    });
                }
                Action::Resolve { reduction, end } => self.resolve(reduction, end),
                Action::Release(reduction) => {
                    self.keeper.release(reduction);
                    if let Some(local) = self.locals.remove(&reduction) {
                        local.share.release();
                        if local.share.is_long_to_drop() {
                            tokio::task::spawn_blocking(move || drop(local));
                        }
                    }
                }
                Action::Departed { process, evidence } => {
                    self.failed.send_modify(|failed| {
                        *failed = failed.union(&Path::single(process.rank)).unwrap_or_default();
                    });
                    self.peers.forget(process, evidence == Evidence::Disconnected);
                }
                Action::Keep(keep) => self.keep(keep),
                Action::News(news) => self.tell(news),
                Action::Closed => {
                    self.refuse_start(JoinError::MasterLost);
                    closed = true;
                }
            }
        }
        if !messages.is_empty() {
            self.send(&messages).await;
        }
        closed
    }

    async fn send(&mut self, messages: &[everfold_protocol::message::ToMaster]) {
        let Config { job, process: sender, .. } = self.config;
        let header = Header { job, epoch: self.machine.epoch(), sender };
        self.outgoing.clear();
        let encoded = encode_batch(&header, messages, self.limits.frame_bytes_max, &mut self.outgoing);
        if let Err(error) = encoded {
            // Bodies are checked against the limits before; what is left over is a defect, not a reason to hang.
            tracing::error!(%error, "cannot tell the master");
            let _ = self.input.send(Input::MasterLost);
            return;
        }
        // A master that is frozen takes nothing after a while; this thread must not wait for it longer than silence lasts.
        let patience = self.limits.ping_interval * INTERVALS_MOST;
        match tokio::time::timeout(patience, self.control.write_all(&self.outgoing)).await {
            Ok(Ok(())) => {}
            // The reading side sees the same and ends everything.
            Ok(Err(error)) => tracing::debug!(%error, "cannot reach the master"),
            Err(_) => {
                tracing::warn!(?patience, "the master takes no messages");
                let _ = self.input.send(Input::MasterLost);
            }
        }
    }

    fn meet(&mut self, peers: Vec<Peer>, limits: Limits) {
        self.limits = limits;
        self.peers.meet(peers.clone());
        let handle = Handle {
            process: self.config.process,
            limits,
            peers,
            windows: self.windows.clone(),
            input: self.input.clone(),
            gone: self.gone.subscribe(),
            news: self.news.downgrade(),
            failed: self.failed.subscribe(),
            thread: None,
        };
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Ok(handle));
        }
    }

    fn refuse_start(&mut self, error: JoinError) {
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Err(error));
        }
    }

    fn execute(&mut self, task: everfold_protocol::message::Task) {
        let Some(local) = self.locals.get(&task.segment.reduction) else {
            return;
        };
        let (share, peers, input) = (local.share.clone(), self.peers.clone(), self.input.clone());
        let me = self.config.process;
        tokio::spawn(async move {
            let id = task.task;
            let executed = unless_panicked(me, share.execute(&peers, task)).await;
            let result = executed.map(|Executed { data, counters, .. }| (data, counters));
            // The machine may hand the body back on this event: nobody else may hold it then.
            drop(share);
            let _ = input.send(Input::Executed { task: id, result });
        });
    }

    /// Makes copies of an original, in the background.
    fn keep(&self, keep: Keep) {
        let Some(local) = self.locals.get(&keep.reduction) else {
            return;
        };
        let (share, copier, input) = (local.share.clone(), self.copier.clone(), self.input.clone());
        tokio::spawn(async move {
            let kept = copier.copy(&share, keep).await;
            let _ = input.send(Input::Kept(kept));
        });
    }

    /// Tells the application, if it listens.
    fn tell(&self, news: News) {
        tracing::info!(%news);
        let _ = self.news.send(news);
    }

    fn resolve(&mut self, reduction: ReductionId, end: End) {
        let Some(local) = self.locals.get_mut(&reduction) else {
            return;
        };
        let Some(answer) = local.answer.take() else { return };
        let result = match end {
            End::Received(report) => {
                let value = local.share.take_body();
                value.map(|value| Completed { value: Some(value), report }).map_err(CallError::ResultLost)
            }
            End::Finished(report) => Ok(Completed { value: None, report }),
            End::Fenced => Err(CallError::Fenced),
            End::Refused(refusal) => Err(CallError::Refused(refusal)),
            End::MasterLost => Err(CallError::MasterLost),
            End::Closed => Err(CallError::Closed),
            End::ResultLost(error) => Err(CallError::ResultLost(error)),
        };
        // The application may have dropped its future.
        let _ = answer.send(result);
    }
}

/// What `work` yields; if the application's code panics in it, an error instead of nobody's answer.
async fn unless_panicked<T>(
    me: ProcessId,
    work: impl Future<Output = Result<T, ExecutionError>>,
) -> Result<T, ExecutionError> {
    let panicked = |_| {
        let reason = "combining panicked; the panic's message is in this rank's output".to_owned();
        Err(ExecutionError { culprit: me, fault: Fault::Unfit, reason })
    };
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(panicked)
}

/// Passes the master's messages on.
async fn listen(control: ReadHalf<BoxStream>, input: mpsc::UnboundedSender<Input>) {
    let mut control = tokio::io::BufReader::with_capacity(64 << 10, control);
    loop {
        match read_frame(&mut control, Limits::default().frame_bytes_max).await {
            Ok((header, messages)) => {
                if input.send(Input::Frame(header, messages)).is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the master is silent");
                let _ = input.send(Input::MasterLost);
                return;
            }
        }
    }
}

/// Answers peers that read this process's windows.
async fn serve(listener: Listener, key: Key, job: JobId, windows: Arc<Windows>) {
    loop {
        let mut stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                // Out of descriptors, most likely: give those in use a chance to be closed.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let windows = windows.clone();
        tokio::spawn(async move {
            let served = match handshake::accept(&mut stream, &key, job).await {
                Ok(_) => tcp::serve(stream, windows).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::debug!(%error, "dropped a connection");
            }
        });
    }
}

/// The address of this host as the others see it: the one that leads to the master.
fn own_ip(rendezvous: &Address) -> io::Result<IpAddr> {
    let Address::Tcp(place) = rendezvous else {
        return Ok(IpAddr::from([127, 0, 0, 1]));
    };
    // Connecting a datagram socket sends nothing; it only chooses a route.
    let target = std::net::ToSocketAddrs::to_socket_addrs(place)?.next();
    let target = target.ok_or(io::ErrorKind::AddrNotAvailable).map_err(io::Error::from)?;
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

/// Nanoseconds since `origin`, for machines that count from there.
pub fn timestamp(origin: Instant) -> everfold_protocol::Timestamp {
    everfold_protocol::Timestamp::from_nanos(origin.elapsed().as_nanos() as u64)
}
