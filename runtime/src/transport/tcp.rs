//! One-sided reads from anywhere: a client that asks, and a server that answers from its windows.
//!
//! The server runs on the worker's I/O thread; the application computes on. There is one connection per
//! reader and owner. Requests are sent without waiting for answers, and answered in the order in which they
//! came: what was asked for first is complete first, however much is under way. Only what has to be read from
//! a disk comes when it is there.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use dashmap::DashMap;
use everfold_protocol::{
    Generation, JobId, ProcessId, RegionOffset, WindowId, frame,
    message::{AgentRef, ByteRange, Peer, WindowRef},
    seal::{Seal, Tag},
    spec::Limits,
};
use futures::{
    FutureExt,
    future::{self, BoxFuture},
    stream::{FuturesUnordered, StreamExt},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, ReadBuf, ReadHalf, WriteHalf},
    sync::{Notify, mpsc, oneshot},
    task::JoinHandle,
};

use super::{
    Fetched, OneSidedRead, ReadError, check_range,
    control::{Address, BoxStream, Stream, connect, read_frame},
    handshake::{HandshakeError, Key, Purpose, Seals},
    lobby,
    staging::{Pool, Staging},
};
use crate::memory::window::{Shelf, WindowError};

/// Requests and answers are short; the bytes of a window follow outside of frames.
const FRAME_BYTES_MAX: u64 = 1 << 10;
/// What is read ahead of short frames.
const READ_AHEAD_BYTES: usize = 16 << 10;

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    /// Comes back with the answer.
    number: u64,
    window: WindowId,
    generation: Generation,
    range: ByteRange,
    /// Where the window begins in its region, if an agent is asked.
    at: Option<RegionOffset>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    number: u64,
    result: Result<Bytes, Refused>,
}

/// As many bytes as were asked for follow.
#[derive(Debug, Serialize, Deserialize)]
struct Bytes {
    tag: Tag,
}

#[derive(Debug, Serialize, Deserialize)]
enum Refused {
    Released,
    OutOfRange,
    Damaged,
    NoRoom(String),
}

/// Reads windows through their owners' servers.
#[derive(Debug)]
pub struct Tcp {
    key: Key,
    job: JobId,
    me: ProcessId,
    links: DashMap<Owner, Link>,
    pool: Pool,
    limits: OnceLock<Limits>,
}

/// Whose windows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    /// Those of this process, from itself.
    Process(ProcessId),
    /// Those that this process has left, from the agent of its host.
    Left(ProcessId),
    /// What this process keeps, from the agent of its host.
    Kept(ProcessId),
}

/// The connection to one owner. Dropping it gives up what is under way there.
#[derive(Debug)]
struct Link {
    asked: mpsc::UnboundedSender<Asked>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A read that somebody waits for.
#[derive(Debug)]
struct Asked {
    window: WindowId,
    generation: Generation,
    range: ByteRange,
    at: Option<RegionOffset>,
    answer: oneshot::Sender<Result<Staging, ReadError>>,
}

/// A read under way.
type Read = (ByteRange, oneshot::Sender<Result<Staging, ReadError>>);

/// The reads under way over one connection.
#[derive(Debug, Default)]
struct Pending {
    reads: Mutex<HashMap<u64, Read>>,
    added: Notify,
}

impl Pending {
    fn add(&self, number: u64, read: Read) {
        self.lock().insert(number, read);
        self.added.notify_one();
    }

    fn take(&self, number: u64) -> Option<Read> {
        self.lock().remove(&number)
    }

    /// The bytes of the longest read, if there is one.
    fn longest(&self) -> Option<u64> {
        self.lock().values().map(|(range, _)| range.len).max()
    }

    /// As [`longest`](Self::longest), once there is one.
    async fn some(&self) -> u64 {
        loop {
            match self.longest() {
                Some(longest) => return longest,
                None => self.added.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Read>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tcp {
    /// A reader without connections.
    pub fn new(key: Key, job: JobId, me: ProcessId) -> Self {
        Self { key, job, me, links: DashMap::new(), pool: Pool::default(), limits: OnceLock::new() }
    }

    /// Learns how long a process may be silent in this job, and a read may bring nothing. Without it there is
    /// no bound but the system's.
    pub fn meet(&self, limits: &Limits) {
        let _ = self.limits.set(*limits);
    }

    /// Forgets a process that died. Reads that wait for an answer of it hear that none comes.
    pub fn forget(&self, process: ProcessId) {
        self.links.remove(&Owner::Process(process));
    }

    /// Forgets what a process has left, which nobody needs any more.
    pub fn forget_left(&self, process: ProcessId) {
        self.links.remove(&Owner::Left(process));
    }

    /// Reads what a process has left at `offset` of its region, from the agent of its host.
    ///
    /// # Errors
    /// As [`OneSidedRead::read`].
    pub async fn read_left(
        &self,
        (process, agent): (ProcessId, &AgentRef),
        (window, offset): (&WindowRef, RegionOffset),
        range: ByteRange,
    ) -> Result<Fetched, ReadError> {
        self.read_at((Owner::Left(process), &agent.address), (window, Some(offset)), range).await
    }

    /// Reads what a process keeps at `offset` of its region, from the agent of its host. It is not
    /// [forgotten](Self::forget_left) with what else the process has left.
    ///
    /// # Errors
    /// As [`OneSidedRead::read`].
    pub async fn read_kept(
        &self,
        (process, agent): (ProcessId, &AgentRef),
        (window, offset): (&WindowRef, RegionOffset),
        range: ByteRange,
    ) -> Result<Fetched, ReadError> {
        self.read_at((Owner::Kept(process), &agent.address), (window, Some(offset)), range).await
    }

    async fn read_at(
        &self,
        (owner, address): (Owner, &str),
        (window, at): (&WindowRef, Option<RegionOffset>),
        range: ByteRange,
    ) -> Result<Fetched, ReadError> {
        check_range(window, range)?;
        let (answer, answered) = oneshot::channel();
        let (window, generation) = (window.window, window.generation);
        self.ask(owner, address, Asked { window, generation, range, at, answer });
        let broken = |_| io::Error::new(io::ErrorKind::ConnectionReset, "the connection broke");
        answered.await.map_err(broken)?.map(Fetched::Staged)
    }

    fn ask(&self, owner: Owner, address: &str, asked: Asked) {
        let mut link = self.links.entry(owner).or_insert_with(|| self.link(owner, address));
        if let Err(mpsc::error::SendError(asked)) = link.asked.send(asked) {
            // That connection broke before.
            *link = self.link(owner, address);
            let _ = link.asked.send(asked);
        }
    }

    fn link(&self, owner: Owner, address: &str) -> Link {
        let (key, job, me) = (self.key, self.job, self.me);
        let silence_max = self.limits.get().map(Limits::silence_max);
        let purpose = match owner {
            Owner::Process(process) => Purpose::Data(process),
            Owner::Left(process) | Owner::Kept(process) => Purpose::Remains(process),
        };
        let address = Address::Tcp(address.to_owned());
        self.link_over(async move {
            let (stream, seals) = lobby::knock(|| connect(&address), &key, job, me, purpose).await?;
            silence_max.map(|silence_max| stream.bound_silence(silence_max)).transpose()?;
            Ok((stream, seals))
        })
    }

    /// Reads windows of `process` over this connection, which has passed the handshake, as long as it lasts.
    #[doc(hidden)]
    pub fn attach(&self, process: ProcessId, stream: BoxStream, seals: Seals) {
        self.links.insert(Owner::Process(process), self.link_over(future::ready(Ok((stream, seals)))));
    }

    fn link_over(
        &self,
        connected: impl Future<Output = Result<(BoxStream, Seals), HandshakeError>> + Send + 'static,
    ) -> Link {
        let (asked, mut requests) = mpsc::unbounded_channel();
        let pool = self.pool.clone();
        let patience = self.limits.get().map(Limits::read_patience).filter(|patience| !patience.is_zero());
        let patience = patience.map(|patience| patience.max(PATIENCE_LEAST));
        let task = tokio::spawn(async move {
            let connected = within(patience, connected).await.map_err(|error| match error {
                HandshakeError::Io(error) => ReadError::Unreachable(error),
                error => error.into(),
            });
            match connected {
                Ok((stream, seals)) => converse(stream, seals, requests, &pool, patience).await,
                Err(error) => {
                    if let Some(asked) = requests.recv().await {
                        let _ = asked.answer.send(Err(error));
                    }
                }
            }
        });
        Link { asked, task }
    }
}

/// However short the silence that a job tolerates: what is lost on the way has to be sent again in time.
const PATIENCE_LEAST: Duration = Duration::from_secs(2);

/// Waits for a connection no longer than for what is read over it.
async fn within<T>(
    patience: Option<Duration>,
    connected: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, HandshakeError> {
    match patience {
        None => connected.await,
        Some(patience) => {
            tokio::time::timeout(patience, connected).await.unwrap_or(Err(HandshakeError::TimedOut))
        }
    }
}

/// Asks and listens until the connection breaks, or brings nothing for too long although reads wait. They
/// then hear it, because nobody is left to answer.
async fn converse(
    stream: BoxStream,
    Seals { outward, inward }: Seals,
    mut requests: mpsc::UnboundedReceiver<Asked>,
    pool: &Pool,
    patience: Option<Duration>,
) {
    let (reader, writer) = tokio::io::split(stream);
    let (pending, heard_bytes) = (Pending::default(), AtomicU64::new(0));
    let reader = Counted { reader, bytes: &heard_bytes };
    let result = tokio::select! {
        asked = ask(writer, outward, &mut requests, &pending) => asked,
        heard = hear(reader, inward, &pending, pool) => heard,
        () = lose_patience(patience, &heard_bytes, &pending) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "it brings nothing").into())
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection for reading broke");
    }
}

/// Counts the bytes that come.
struct Counted<'a, R> {
    reader: R,
    bytes: &'a AtomicU64,
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<'_, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.reader).poll_read(context, into);
        self.bytes.fetch_add((into.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

/// What a slow disk reads in a millisecond, in bytes. What lies on one is read as a whole before the first
/// byte is sent.
const DISK_BYTES_PER_MS: u64 = 32 << 10;

/// How often in the time for which a connection may bring nothing that is looked at.
const LOOKS: u32 = 4;

/// Whether a connection that somebody waits for still brings bytes. Looks are counted, and not time: a
/// process that is stopped and goes on has looked once.
#[derive(Debug, Default)]
struct Progress {
    bytes: u64,
    in_vain: u32,
}

impl Progress {
    /// Takes in how many bytes have come so far, and whether somebody waits for some. Returns whether there
    /// is no use in waiting.
    fn look(&mut self, bytes: u64, waits: bool) -> bool {
        let is_still = waits && bytes == self.bytes;
        self.in_vain = if is_still { self.in_vain + 1 } else { 0 };
        self.bytes = bytes;
        self.in_vain > LOOKS
    }
}

/// Ends once nothing has come for too long although somebody waits.
async fn lose_patience(patience: Option<Duration>, bytes: &AtomicU64, pending: &Pending) {
    let Some(patience) = patience else { return future::pending().await };
    let mut progress = Progress::default();
    loop {
        let reading = Duration::from_millis(pending.some().await / DISK_BYTES_PER_MS);
        tokio::time::sleep((patience + reading) / LOOKS).await;
        if progress.look(bytes.load(Ordering::Relaxed), pending.longest().is_some()) {
            return;
        }
    }
}

async fn ask(
    mut writer: WriteHalf<BoxStream>,
    mut seal: Seal,
    requests: &mut mpsc::UnboundedReceiver<Asked>,
    pending: &Pending,
) -> Result<(), HandshakeError> {
    let mut batch = Vec::new();
    let mut bytes = Vec::new();
    let mut next = 0;
    while requests.recv_many(&mut batch, 64).await > 0 {
        bytes.clear();
        for Asked { window, generation, range, at, answer } in batch.drain(..) {
            // Nobody waits for reads that were given up.
            if !answer.is_closed() {
                let request = Request { number: next, window, generation, range, at };
                frame::encode_into(&request, FRAME_BYTES_MAX, &mut seal, &mut bytes)?;
                pending.add(next, (range, answer));
                next += 1;
            }
        }
        writer.write_all(&bytes).await?;
    }
    Ok(())
}

async fn hear(
    reader: impl AsyncRead + Unpin,
    mut seal: Seal,
    pending: &Pending,
    pool: &Pool,
) -> Result<(), HandshakeError> {
    let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, reader);
    loop {
        let Answer { number, result } = read_frame(&mut reader, FRAME_BYTES_MAX, &mut seal).await?;
        let asked = pending.take(number);
        let unasked = || io::Error::new(io::ErrorKind::InvalidData, "an answer to no request");
        let (range, answer) = asked.ok_or_else(unasked)?;
        let result = match result {
            Ok(Bytes { tag }) => {
                let mut staging = pool.take(range.len as usize);
                reader.read_exact(&mut staging).await?;
                seal.check_content(&staging, &tag).map(|()| staging).map_err(|_| ReadError::Checksum)
            }
            Err(Refused::Released) => Err(ReadError::Released),
            Err(Refused::OutOfRange) => Err(ReadError::Range { start: range.start, end: range.end() }),
            Err(Refused::Damaged) => Err(ReadError::Damaged),
            Err(Refused::NoRoom(reason)) => Err(ReadError::NoRoom(reason)),
        };
        let _ = answer.send(result);
    }
}

impl OneSidedRead for Tcp {
    fn read<'a>(
        &'a self,
        peer: &'a Peer,
        window: &'a WindowRef,
        range: ByteRange,
    ) -> BoxFuture<'a, Result<Fetched, ReadError>> {
        self.read_at((Owner::Process(peer.process), &peer.address), (window, None), range).boxed()
    }
}

/// Requests that wait for the answers before them; further ones wait at their reader.
const REQUESTS_MAX: usize = 64;
/// Answers that are read from a disk at the same time.
const DISK_READS_MAX: usize = 16;

/// Answers one connection until the peer hangs up.
///
/// A range is leased when its answer is about to be written, one at a time: a reader that asks and does not
/// listen holds up one range of one window.
///
/// # Errors
/// The connection broke in the middle of something, or the peer does not keep to the protocol.
pub async fn serve(
    stream: impl Stream,
    Seals { outward, inward }: Seals,
    shelf: Arc<impl Shelf>,
) -> Result<(), HandshakeError> {
    let (reader, writer) = tokio::io::split(stream);
    let (asked, requests) = mpsc::channel(REQUESTS_MAX);
    tokio::select! {
        heard = take_requests(reader, inward, asked) => heard,
        told = answer(writer, outward, requests, shelf) => told,
    }
}

async fn take_requests(
    reader: ReadHalf<impl Stream>,
    mut seal: Seal,
    asked: mpsc::Sender<Request>,
) -> Result<(), HandshakeError> {
    let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, reader);
    loop {
        match read_frame(&mut reader, FRAME_BYTES_MAX, &mut seal).await {
            Err(HandshakeError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            request => drop(asked.send(request?).await),
        }
    }
}

async fn answer(
    mut writer: WriteHalf<impl Stream>,
    mut seal: Seal,
    mut requests: mpsc::Receiver<Request>,
    shelf: Arc<impl Shelf>,
) -> Result<(), HandshakeError> {
    let mut bytes = Vec::new();
    let mut from_disk = FuturesUnordered::new();
    loop {
        let (number, read) = tokio::select! {
            Some(read) = from_disk.next() => read,
            Some(Request { number, window, generation, range, at }) = requests.recv(),
                if from_disk.len() < DISK_READS_MAX =>
            {
                let shelf = shelf.clone();
                let mut read =
                    Box::pin(async move { (number, shelf.read(window, generation, range, at).await) });
                match (&mut read).now_or_never() {
                    Some(read) => read,
                    None => {
                        from_disk.push(read);
                        continue;
                    }
                }
            }
            else => return Ok(()),
        };
        let (result, held) = match read {
            Ok(held) => (Ok(Bytes { tag: seal.seal_content(&held) }), Some(held)),
            Err(WindowError::Released) => (Err(Refused::Released), None),
            Err(WindowError::Range { .. }) => (Err(Refused::OutOfRange), None),
            Err(WindowError::Damaged) => (Err(Refused::Damaged), None),
            Err(WindowError::NoRoom(reason)) => (Err(Refused::NoRoom(reason)), None),
        };
        bytes.clear();
        frame::encode_into(&Answer { number, result }, FRAME_BYTES_MAX, &mut seal, &mut bytes)?;
        let content = held.as_deref().unwrap_or_default();
        writer.write_all_buf(&mut Buf::chain(&bytes[..], content)).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::memory::{
        buffer::Buffer,
        window::{Content, Windows},
    };

    #[test]
    fn what_brings_nothing_is_given_up_only_if_somebody_waits() {
        let mut progress = Progress::default();
        let mut looks = |count: u32, bytes: u64, waits| (0..count).any(|_| progress.look(bytes, waits));
        assert!(!looks(100, 0, false), "nobody waits");
        assert!(!looks(LOOKS, 0, true));
        assert!(!looks(1, 1, true), "something has come");
        assert!(!looks(LOOKS, 1, true));
        assert!(looks(1, 1, true));
    }

    /// An owner that takes requests and never answers: whoever waits hears that, and nobody waits for the
    /// system.
    #[tokio::test]
    async fn who_never_answers_is_given_up() {
        let (bytes, pending) = (AtomicU64::new(0), Pending::default());
        let (answer, answered) = oneshot::channel();
        let range = ByteRange { start: 0, len: 1 };
        pending.add(0, (range, answer));
        lose_patience(Some(Duration::from_nanos(1)), &bytes, &pending).await;
        drop(pending);
        assert!(answered.await.is_err());
    }

    /// A reader that asks and asks, and takes no answer.
    #[tokio::test]
    async fn who_does_not_listen_holds_up_one_range() {
        const RANGES: u64 = 1000;
        let windows = Arc::new(Windows::new(None));
        let buffer = Buffer::new(Box::new(vec![1u8; RANGES as usize]));
        let window = windows.publish(Content::Buffer(buffer.clone())).unwrap();
        let (mut reader, server) = tokio::io::duplex(8);
        let seals = || Seals { outward: Seal::of_strangers(), inward: Seal::of_strangers() };
        tokio::spawn(serve(server, seals(), windows));
        let asking = tokio::spawn(async move {
            let mut seal = Seal::of_strangers();
            for start in 0..RANGES {
                let range = ByteRange { start, len: 1 };
                let (window, generation) = (window.window, window.generation);
                let request = Request { number: start, window, generation, range, at: None };
                let mut bytes = Vec::new();
                frame::encode_into(&request, FRAME_BYTES_MAX, &mut seal, &mut bytes).unwrap();
                reader.write_all(&bytes).await.unwrap();
            }
            reader
        });
        // Everything happens on this thread: until nothing more does.
        for _ in 0..100 * RANGES {
            tokio::task::yield_now().await;
        }
        let held = (0..RANGES).filter(|start| buffer.write(*start, 1).is_err()).count();
        assert_eq!(held, 1);
        assert!(!asking.is_finished(), "the server takes no request before it can answer");
    }
}
