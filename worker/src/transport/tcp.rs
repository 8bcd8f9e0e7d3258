//! One-sided reads from anywhere: a client that asks, and a server that answers from its windows.
//!
//! The server runs on the worker's I/O thread; the application computes on. Each connection carries one request at a
//! time, and a client keeps as many connections as it has requests under way, so that a read that is given up never
//! leaves another one with its bytes.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use dashmap::DashMap;
use everfold_protocol::{
    Generation, JobId, ProcessId, WindowId,
    message::{ByteRange, Peer, WindowRef},
};
use futures::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Semaphore,
};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Fetched, OneSidedRead, ReadError, check_range,
    control::{Address, BoxStream, Stream, connect, read_frame, write_frame},
    handshake::{self, HandshakeError, Key, Purpose},
    staging::Pool,
};
use crate::memory::window::{WindowError, Windows};

/// Requests and answers are short; the bytes of a window follow outside of frames.
const FRAME_BYTES_MAX: u64 = 1 << 10;

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    window: WindowId,
    generation: Generation,
    range: ByteRange,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// As many bytes as were asked for follow.
    Bytes {
        checksum: u64,
    },
    Released,
    OutOfRange,
    Damaged,
}

/// Reads windows through their owners' servers.
#[derive(Debug)]
pub struct Tcp {
    key: Key,
    job: JobId,
    me: ProcessId,
    idle: DashMap<ProcessId, Arc<Idle>>,
    pool: Pool,
}

/// Connections to one peer: those that nobody uses right now, and leave for those that someone does.
struct Idle {
    streams: Mutex<Vec<BoxStream>>,
    leave: Semaphore,
}

/// Most requests under way to one peer. More would not make the link faster, and each takes a descriptor at both ends.
const REQUESTS_MAX: usize = 4;

impl Default for Idle {
    fn default() -> Self {
        Self { streams: Mutex::default(), leave: Semaphore::new(REQUESTS_MAX) }
    }
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Idle")
    }
}

impl Tcp {
    /// A reader without connections.
    pub fn new(key: Key, job: JobId, me: ProcessId) -> Self {
        Self { key, job, me, idle: DashMap::new(), pool: Pool::default() }
    }

    /// Forgets a process that died.
    pub fn forget(&self, process: ProcessId) {
        self.idle.remove(&process);
    }

    async fn connection(&self, peer: &Peer, idle: &Idle) -> Result<BoxStream, ReadError> {
        if let Some(stream) = idle.streams.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(stream);
        }
        let mut stream = connect(&Address::Tcp(peer.address.clone())).await?;
        handshake::connect(&mut stream, &self.key, self.job, self.me, Purpose::Data).await?;
        Ok(stream)
    }
}

impl OneSidedRead for Tcp {
    fn read<'a>(
        &'a self,
        peer: &'a Peer,
        window: &'a WindowRef,
        range: ByteRange,
    ) -> BoxFuture<'a, Result<Fetched, ReadError>> {
        async move {
            check_range(window, range)?;
            let idle = self.idle.entry(peer.process).or_default().clone();
            let _leave = idle.leave.acquire().await.map_err(io::Error::other)?;
            let mut stream = self.connection(peer, &idle).await?;
            let request = Request { window: window.window, generation: window.generation, range };
            write_frame(&mut stream, &request, FRAME_BYTES_MAX).await?;
            let result = match read_frame(&mut stream, FRAME_BYTES_MAX).await? {
                Answer::Bytes { checksum } => {
                    let mut staging = self.pool.take(range.len as usize);
                    stream.read_exact(&mut staging).await?;
                    if xxh3_64(&staging) != checksum {
                        return Err(ReadError::Checksum);
                    }
                    Ok(Fetched::Staged(staging))
                }
                Answer::Released => Err(ReadError::Released),
                Answer::OutOfRange => Err(ReadError::Range { start: range.start, end: range.end() }),
                Answer::Damaged => Err(ReadError::Damaged),
            };
            idle.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
            result
        }
        .boxed()
    }
}

/// Answers one connection until the peer hangs up.
///
/// # Errors
/// The connection broke in the middle of something, or the peer does not keep to the protocol.
pub async fn serve(mut stream: impl Stream, windows: Arc<Windows>) -> Result<(), HandshakeError> {
    loop {
        let request: Request = match read_frame(&mut stream, FRAME_BYTES_MAX).await {
            Err(HandshakeError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            request => request?,
        };
        let (answer, held) = match windows.read(request.window, request.generation, request.range).await {
            Ok(held) => (Answer::Bytes { checksum: xxh3_64(&held) }, Some(held)),
            Err(WindowError::Released) => (Answer::Released, None),
            Err(WindowError::Range { .. }) => (Answer::OutOfRange, None),
            Err(WindowError::Damaged) => (Answer::Damaged, None),
        };
        write_frame(&mut stream, &answer, FRAME_BYTES_MAX).await?;
        if let Some(held) = held {
            stream.write_all(&held).await?;
            stream.flush().await?;
        }
    }
}
