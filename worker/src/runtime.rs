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
    thread::JoinHandle,
    time::{Duration, Instant},
};

use everfold_protocol::{
    JobId, Path, ProcessId, ReductionId, TaskId,
    message::{Contribution, Data, Header, Peer, TaskCounters, ToWorker},
    report::{Refusal, Report},
    spec::{Limits, ReductionSpec},
};
use futures::FutureExt;
use tokio::{
    io::{AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{mpsc, oneshot},
};

use crate::{
    body::Body,
    executor::{Peers, Returned, Share, ShareError, receives},
    machine::{Action, End, Event, ExecutionError, Worker},
    memory::{region::Region, window::Windows},
    transport::{
        control::{Address, BoxStream, Listener, connect_until, encode_batch, read_frame},
        handshake::{self, HandshakeError, Key, Purpose},
        shm,
        tcp::{self, Tcp},
    },
};

/// How peers' memory is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory where the host is the same, TCP elsewhere.
    #[default]
    Auto,
    /// TCP only, also between processes of one host.
    Tcp,
}

/// What a worker must know to join its job.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who it is.
    pub process: ProcessId,
    /// Which job.
    pub job: JobId,
    /// The job's secret.
    pub key: Key,
    /// Where the master listens.
    pub rendezvous: Address,
    /// How to read peers' memory.
    pub transport: Transport,
    /// How long to wait for the master and for the other processes.
    pub join_timeout: Duration,
    /// Threads that fold.
    pub threads: usize,
}

/// Why a process could not join its job.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nobody answers at the rendezvous.
    #[error("no master at {address} within {timeout:?}: {source}")]
    NoMaster {
        /// Where it should be.
        address: Address,
        /// How long it was tried.
        timeout: Duration,
        /// What the last attempt said.
        source: io::Error,
    },
    /// Whoever answers is not this job's master.
    #[error("the master at {address} refuses this process: {source}")]
    Handshake {
        /// Where it is.
        address: Address,
        /// Why.
        source: HandshakeError,
    },
    /// Other processes did not come.
    #[error("ranks {missing} did not join within {timeout:?}")]
    Incomplete {
        /// Who.
        missing: Path,
        /// How long they were waited for.
        timeout: Duration,
    },
    /// The master does not take this process into the job.
    #[error("the master at {address} does not take this process into the job: {reason}")]
    Unwelcome {
        /// Where it is.
        address: Address,
        /// Why.
        reason: String,
    },
    /// The master went away before everyone was here.
    #[error("the master went away before all processes had joined")]
    MasterLost,
    /// This process lacks something it needs.
    #[error("this process cannot start its worker: {0}")]
    System(#[from] io::Error),
}

/// One call of the application.
#[derive(Debug)]
pub struct Call {
    /// Which reduction.
    pub reduction: ReductionId,
    /// Its name.
    pub name: String,
    /// What all have to agree on.
    pub spec: ReductionSpec,
    /// This rank's contribution.
    pub body: Body,
}

/// How a call ended.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The reduction, or this rank's part in it, was refused; nothing was counted.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The body could not be contributed.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The process that hosts the master is gone.
    #[error("the master is gone")]
    MasterLost,
    /// The session was closed before.
    #[error("the session is closed")]
    Closed,
    /// The result exists, but could not be copied here.
    #[error("the result could not be read: {0}")]
    ResultLost(ExecutionError),
}

/// A call that ended well.
pub struct Completed {
    /// The result, where this rank was to have it.
    pub value: Option<Returned>,
    /// What happened.
    pub report: Report,
}

/// Why a worker takes no more calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    Left,
    MasterLost,
}

impl From<Gone> for CallError {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Left => Self::Closed,
            Gone::MasterLost => Self::MasterLost,
        }
    }
}

/// What [`Handle::call`] promises.
pub type Pending = oneshot::Receiver<Result<Completed, CallError>>;

enum Input {
    Call {
        contribution: Contribution,
        share: Arc<Share>,
        answer: oneshot::Sender<Result<Completed, CallError>>,
    },
    Frame(Header, Vec<ToWorker>),
    MasterLost,
    Executed {
        task: TaskId,
        result: Result<(Data, TaskCounters), ExecutionError>,
    },
    Collected {
        reduction: ReductionId,
        result: Result<(), ExecutionError>,
    },
    Close,
    Abandon,
}

/// Talks to a worker's I/O thread.
#[derive(Debug)]
pub struct Handle {
    process: ProcessId,
    limits: Limits,
    peers: Vec<Peer>,
    windows: Arc<Windows>,
    input: mpsc::UnboundedSender<Input>,
    gone: tokio::sync::watch::Receiver<Option<Gone>>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// This process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// All processes of the job when it began, by rank.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// What holds in this job.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Memory that peers can map, if there is any.
    pub fn region(&self) -> Option<&Arc<Region>> {
        self.windows.region()
    }

    /// Contributes to a reduction. Returns at once.
    ///
    /// # Errors
    /// The body cannot be encoded or shown to peers; nobody has heard of the call then.
    pub fn call(&self, call: Call) -> Result<Pending, ShareError> {
        let Call { reduction, name, spec, body } = call;
        let (share, data) = Share::new(self.process, &spec, body, &self.windows, &self.limits)?;
        let limit = self.limits.body_bytes_max;
        if data.len() > limit {
            share.release();
            return Err(ShareError::TooLarge { bytes: data.len(), limit });
        }
        let contribution = Contribution { reduction, name, spec, data };
        let (answer, pending) = oneshot::channel();
        let sent = self.input.send(Input::Call { contribution, share: Arc::new(share), answer });
        if let Err(mpsc::error::SendError(Input::Call { answer, .. })) = sent {
            let gone = self.gone.borrow().unwrap_or(Gone::MasterLost);
            let _ = answer.send(Err(gone.into()));
        }
        Ok(pending)
    }

    /// Leaves the job once all reductions of this rank have ended. The process that hosts the master waits for all
    /// others, too.
    pub async fn close(&self) {
        let _ = self.input.send(Input::Close);
        let mut gone = self.gone.clone();
        // An error means that the thread has ended, which is as good.
        let _ = gone.wait_for(Option::is_some).await;
    }
}

impl Handle {
    /// Ends this worker at once, as if its process had died: the others learn it from the broken connection.
    pub fn abandon(&self) {
        let _ = self.input.send(Input::Abandon);
    }
}

impl Drop for Handle {
    /// Leaves the job and waits for it, as [`Handle::close`]. A panicking thread leaves as [`Handle::abandon`] does.
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        let _ = self.input.send(if panicking { Input::Abandon } else { Input::Close });
        if let Some(thread) = self.thread.take()
            && !panicking
        {
            let _ = thread.join();
        }
    }
}

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
    spec: ReductionSpec,
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
    master_lost: bool,
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
        let windows = Arc::new(Windows::new(region));
        tokio::spawn(serve(listener, key, job, windows.clone()));
        let me = Peer {
            process,
            host,
            pid: std::process::id(),
            region: windows.region().map(|region| region.handle()),
            address: server.to_string(),
        };
        let peers = Arc::new(Peers::new(&me, windows.clone(), Tcp::new(key, job, process)));
        let (input, inputs) = mpsc::unbounded_channel();
        let (reader, control) = tokio::io::split(control);
        tokio::spawn(listen(reader, input.clone()));
        let driver = Self {
            machine: Worker::new(me),
            peers,
            windows,
            locals: BTreeMap::new(),
            input,
            control,
            outgoing: Vec::new(),
            limits: Limits::default(),
            master_lost: false,
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
            if inputs.recv_many(&mut batch, 256).await == 0 {
                break;
            }
            if batch.iter().any(|input| matches!(input, Input::Abandon)) {
                break;
            }
            for input in batch.drain(..) {
                self.take(input);
            }
        }
        // Whoever calls from now on, or has just called, hears why nothing happens.
        let gone = if self.master_lost { Gone::MasterLost } else { Gone::Left };
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
    }

    fn take(&mut self, input: Input) {
        let event = match input {
            Input::Call { contribution, share, answer } => {
                let local = Local { share, spec: contribution.spec.clone(), answer: Some(answer) };
                self.locals.insert(contribution.reduction, local);
                Event::Call(contribution)
            }
            Input::Frame(header, messages) => {
                for message in messages {
                    self.machine.handle_event(Event::Master { header, message });
                }
                return;
            }
            Input::MasterLost => {
                // After a farewell the master hangs up; that is no loss.
                self.master_lost |= !self.machine.has_left();
                Event::MasterLost
            }
            Input::Executed { task, result } => Event::Executed { task, result },
            Input::Collected { reduction, result } => Event::Collected { reduction, result },
            Input::Close => Event::Close,
            Input::Abandon => return,
        };
        self.machine.handle_event(event);
    }

    /// Does what the machine wants done. Returns true when it wants nothing more, ever.
    async fn act(&mut self) -> bool {
        let mut messages = Vec::new();
        let mut closed = false;
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Send(message) => messages.push(message),
                Action::Meet { peers, limits } => self.meet(peers, limits),
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
                    if let Some(local) = self.locals.remove(&reduction) {
                        local.share.release();
                        if local.share.is_long_to_drop() {
                            tokio::task::spawn_blocking(move || drop(local));
                        }
                    }
                }
                Action::Departed(processes) => {
                    processes.into_iter().for_each(|process| self.peers.forget(process))
                }
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
        } else if let Err(error) = self.control.write_all(&self.outgoing).await {
            // The reading side sees the same and ends everything.
            tracing::debug!(%error, "cannot reach the master");
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
            let result = unless_panicked(me, share.execute(&peers, task)).await;
            // The machine may hand the body back on this event: nobody else may hold it then.
            drop(share);
            let _ = input.send(Input::Executed { task: id, result });
        });
    }

    fn resolve(&mut self, reduction: ReductionId, end: End) {
        let Some(local) = self.locals.get_mut(&reduction) else {
            return;
        };
        let Some(answer) = local.answer.take() else { return };
        let result = match end {
            End::Finished(report) if receives(&local.spec, self.config.process.rank) => {
                let value = local.share.take_body();
                value.map(|value| Completed { value: Some(value), report }).map_err(CallError::ResultLost)
            }
            End::Finished(report) => Ok(Completed { value: None, report }),
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
        Err(ExecutionError { culprit: me, unreachable: false, reason })
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
