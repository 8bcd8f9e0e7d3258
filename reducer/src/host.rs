//! Drives the master's machine in the process of rank 0.
//!
//! One thread accepts the workers' connections, feeds what they say to [`Master`] in batches, and sends out what it
//! decides, one write per worker and batch. A worker that reads slowly delays nobody else: each connection has
//! its own queue and writer.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use everfold_master::{Action, Event, Master, Notice, Policy};
use everfold_protocol::{
    Epoch, JobId, ProcessId,
    message::{Header, MASTER_RANK, Peer, ToMaster, ToWorker},
};
use everfold_worker::{
    memory::lifeline::{self, Ending},
    runtime::timestamp,
    transport::{
        control::{Address, BoxStream, Listener, encode_batch, read_frame, write_frame},
        handshake::{self, HandshakeError, Key, Purpose},
        shm,
    },
};
use tokio::{
    io::{AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{mpsc, oneshot},
};

/// The master of a job and the thread it lives on.
#[derive(Debug)]
pub(crate) struct Host {
    input: mpsc::UnboundedSender<Input>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Ends the master at once. Every worker learns it from its broken connection.
    pub(crate) fn abandon(&self) {
        let _ = self.input.send(Input::Abandon);
    }
}

impl Drop for Host {
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
pub(crate) struct HostConfig {
    pub(crate) job: JobId,
    pub(crate) key: Key,
    pub(crate) size: u32,
    pub(crate) rendezvous: Address,
    pub(crate) policy: Policy,
}

impl Host {
    /// Listens at the rendezvous.
    ///
    /// # Errors
    /// The address is taken, or not of this machine.
    pub(crate) fn start(config: HostConfig) -> io::Result<Self> {
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

/// Something a connection has to say.
enum Input {
    Connected {
        process: ProcessId,
        writer: WriteHalf<BoxStream>,
        /// Gets the writer back if the process is not taken in.
        answer: oneshot::Sender<Option<WriteHalf<BoxStream>>>,
    },
    Messages(Header, Vec<ToMaster>),
    Disconnected(ProcessId),
    Abandon,
}

async fn host(
    config: HostConfig,
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
    let accepting = tokio::spawn(accept(listener, config.clone(), input.clone()));
    let connections = Driver::new(&config, input).drive(inputs).await;
    accepting.abort();
    // Farewells may still be on their way.
    for Connection { outgoing, writer } in connections.into_values() {
        drop(outgoing);
        let _ = tokio::time::timeout(FAREWELL_TIMEOUT, writer).await;
    }
}

/// Messages after which the master says what it has decided so far, however many more there are.
const TURN_MESSAGES: u64 = 2048;

/// How long a last message to a worker may take.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// The way to one worker.
struct Connection {
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    writer: tokio::task::JoinHandle<()>,
}

struct Driver {
    job: JobId,
    /// Which processes run on the same host as this one.
    host: Option<u64>,
    input: mpsc::UnboundedSender<Input>,
    origin: Instant,
    frame_bytes_max: u64,
    machine: Master,
    connections: BTreeMap<ProcessId, Connection>,
    /// Messages so far.
    heard: u64,
    /// Whether the machine wants nothing more, ever.
    done: bool,
}

impl Driver {
    fn new(config: &HostConfig, input: mpsc::UnboundedSender<Input>) -> Self {
        let origin = Instant::now();
        Self {
            job: config.job,
            host: shm::host_id().ok(),
            input,
            origin,
            frame_bytes_max: config.policy.limits.frame_bytes_max,
            machine: Master::new(timestamp(origin), config.job, config.size, config.policy),
            connections: BTreeMap::new(),
            heard: 0,
            done: false,
        }
    }

    /// Runs until the machine is done; returns the connections that are left.
    async fn drive(mut self, mut inputs: mpsc::UnboundedReceiver<Input>) -> BTreeMap<ProcessId, Connection> {
        let mut batch = Vec::new();
        while !self.act() {
            let due = self.machine.poll_timeout();
            let until = due.map(|due| {
                tokio::time::Instant::from_std(self.origin + Duration::from_nanos(due.as_nanos()))
            });
            let received = match until {
                Some(until) => tokio::time::timeout_at(until, inputs.recv_many(&mut batch, 1024)).await.ok(),
                None => Some(inputs.recv_many(&mut batch, 1024).await),
            };
            if received == Some(0) {
                break;
            }
            if batch.iter().any(|input| matches!(input, Input::Abandon)) {
                return BTreeMap::new();
            }
            for input in batch.drain(..) {
                self.take(input).await;
            }
            self.let_time_pass();
        }
        self.connections
    }

    /// However much there is to hear, time passes: whoever hears no pings gives the master up.
    fn let_time_pass(&mut self) {
        let now = timestamp(self.origin);
        if self.machine.poll_timeout().is_some_and(|due| due <= now) {
            self.machine.handle_timeout(now);
        }
    }

    async fn take(&mut self, input: Input) {
        match input {
            Input::Connected { process, writer, answer } => {
                let refused = match self.connections.entry(process) {
                    Entry::Occupied(_) => Some(writer),
                    Entry::Vacant(entry) => {
                        let (outgoing, frames) = mpsc::unbounded_channel();
                        entry.insert(Connection { outgoing, writer: tokio::spawn(write(writer, frames)) });
                        None
                    }
                };
                let _ = answer.send(refused);
            }
            Input::Messages(header, messages) => {
                for message in messages {
                    if let ToMaster::Join(peer) = &message {
                        self.watch(peer);
                    }
                    self.machine.handle_event(timestamp(self.origin), Event::Message { header, message });
                    self.heard += 1;
                    if self.heard.is_multiple_of(TURN_MESSAGES) {
                        self.let_time_pass();
                        self.act();
                        tokio::task::yield_now().await;
                    }
                }
            }
            Input::Disconnected(process) => {
                self.connections.remove(&process);
                self.machine.handle_event(timestamp(self.origin), Event::Disconnected(process));
            }
            Input::Abandon => {}
        }
    }

    /// Hears of the death of a process on this host before its connection breaks.
    fn watch(&self, peer: &Peer) {
        let Some(region) = peer.region.filter(|_| self.host == Some(peer.host)) else { return };
        let (process, pid, input) = (peer.process, peer.pid, self.input.clone());
        let watch = move || match lifeline::outlive(pid, region) {
            Ok(Ending::Death) => drop(input.send(Input::Disconnected(process))),
            Ok(Ending::Good) => {}
            Err(error) => tracing::debug!(%process, %error, "cannot watch its life"),
        };
        // It sleeps until that process ends. Without it the broken connection tells the same, later.
        let thread = std::thread::Builder::new().name("everfold-watch".to_owned()).stack_size(64 << 10);
        if let Err(error) = thread.spawn(watch) {
            tracing::debug!(%process, %error, "cannot watch its life");
        }
    }

    /// Does what the machine wants done. Returns true when it wants nothing more, ever.
    fn act(&mut self) -> bool {
        let mut outgoing: BTreeMap<ProcessId, Vec<ToWorker>> = BTreeMap::new();
        let mut refused = Vec::new();
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Send { to, message } => outgoing.entry(to).or_default().push(message),
                Action::Disconnect(process) => refused.push(process),
                Action::Notice(notice) => tell(&notice),
                Action::Done => self.done = true,
            }
        }
        let sender = ProcessId::first(MASTER_RANK);
        let header = Header { job: self.job, epoch: self.machine.epoch(), sender };
        for (to, messages) in outgoing {
            let Some(connection) = self.connections.get(&to) else {
                continue;
            };
            let mut bytes = Vec::new();
            match encode_batch(&header, &messages, self.frame_bytes_max, &mut bytes) {
                Ok(()) => drop(connection.outgoing.send(bytes)),
                Err(error) => {
                    // A message that cannot be sent must not leave its receiver waiting.
                    tracing::error!(%to, %error, "cannot tell a worker; dropping its connection");
                    refused.push(to);
                }
            }
        }
        for process in refused {
            // Its writer ends, and the worker sees that nobody listens any more.
            self.connections.remove(&process);
        }
        self.done
    }
}

fn tell(notice: &Notice) {
    match notice {
        Notice::Failed { process, evidence } => tracing::warn!(%process, %evidence, "process failed"),
        Notice::News(news) => tracing::info!(%news),
        Notice::Refused { reduction, ranks, refusal } => {
            tracing::info!(?reduction, %ranks, %refusal, "reduction refused");
        }
        Notice::Stale { sender, what } => tracing::debug!(%sender, what, "dropped a stale message"),
        Notice::Complete { .. } | Notice::Left(_) | Notice::Finished(_) => tracing::debug!(?notice),
    }
}

async fn accept(listener: Listener, config: Arc<HostConfig>, input: mpsc::UnboundedSender<Input>) {
    loop {
        match listener.accept().await {
            Ok(stream) => drop(tokio::spawn(connection(stream, config.clone(), input.clone()))),
            Err(error) => {
                // Out of descriptors, most likely: give those in use a chance to be closed.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Serves one worker's connection from handshake to hang-up.
async fn connection(mut stream: BoxStream, config: Arc<HostConfig>, input: mpsc::UnboundedSender<Input>) {
    let hello = match handshake::accept(&mut stream, &config.key, config.job).await {
        Ok(hello) => hello,
        Err(error) => return tracing::warn!(%error, "dropped a connection"),
    };
    let process = hello.process;
    if hello.purpose != Purpose::Control || process.rank.0 >= config.size {
        let reason = format!("there is no {process} in a job of {}", config.size);
        return turn_away(stream, &config, reason).await;
    }
    let (reader, writer) = tokio::io::split(stream);
    let (answer, accepted) = oneshot::channel();
    if input.send(Input::Connected { process, writer, answer }).is_err() {
        return;
    }
    // What the driver does not take in it gives back.
    match accepted.await {
        Ok(None) => {}
        Ok(Some(writer)) => {
            let reason = format!("another process is {process} already");
            return turn_away(reader.unsplit(writer), &config, reason).await;
        }
        Err(_) => return,
    }
    let error = read(reader, process, &config, &input).await;
    tracing::debug!(%process, %error, "connection ended");
    let _ = input.send(Input::Disconnected(process));
}

/// Says why a process is not taken in, and hangs up.
async fn turn_away(mut stream: BoxStream, config: &HostConfig, reason: String) {
    tracing::warn!(reason, "turned a process away");
    let header = Header { job: config.job, epoch: Epoch(0), sender: ProcessId::first(MASTER_RANK) };
    let messages = vec![ToWorker::Unwelcome { reason }];
    let _ = write_frame(&mut stream, &(header, messages), config.policy.limits.frame_bytes_max).await;
    let _ = stream.shutdown().await;
}

/// Passes a worker's messages on until the connection ends; tells why.
async fn read(
    reader: ReadHalf<BoxStream>,
    process: ProcessId,
    config: &HostConfig,
    input: &mpsc::UnboundedSender<Input>,
) -> HandshakeError {
    let mut reader = tokio::io::BufReader::with_capacity(64 << 10, reader);
    loop {
        let frame: Result<(Header, Vec<ToMaster>), _> =
            read_frame(&mut reader, config.policy.limits.frame_bytes_max).await;
        match frame {
            Ok((header, messages)) if header.sender == process => {
                if input.send(Input::Messages(header, messages)).is_err() {
                    return io::Error::from(io::ErrorKind::BrokenPipe).into();
                }
            }
            Ok((header, _)) => return io::Error::other(format!("it speaks for {}", header.sender)).into(),
            Err(error) => return error,
        }
    }
}

/// Sends frames to one worker until the master lets go of it.
async fn write(mut writer: WriteHalf<BoxStream>, mut frames: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if writer.write_all(&frame).await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}
