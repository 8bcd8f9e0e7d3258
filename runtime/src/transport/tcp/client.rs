//! One reader's connections.

use std::{io, sync::OnceLock, time::Duration};

use dashmap::DashMap;
use everfold_protocol::{
    JobId, ProcessId, RegionOffset,
    message::{AgentRef, ByteRange, Peer, WindowRef},
    spec::Limits,
};
use futures::{
    FutureExt,
    future::{self, BoxFuture},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::{
    super::{
        Fetched, OneSidedRead, ReadError, check_range,
        control::{Address, BoxStream, connect},
        handshake::{HandshakeError, Key, Purpose, Seals},
        lobby,
        staging::Pool,
    },
    conversation::{Asked, converse},
};

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
            let late =
                |_| io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {patience:?}"));
            tokio::time::timeout(patience, connected).await.map_err(late)?
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_is_not_made_in_time_is_told_for_what_it_is() {
        let never = future::pending::<Result<(), HandshakeError>>();
        let late = within(Some(Duration::from_millis(1)), never).await;
        let Err(HandshakeError::Io(error)) = &late else { panic!("{late:?}") };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "no connection within 1ms");
    }
}
