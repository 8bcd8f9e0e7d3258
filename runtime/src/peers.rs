//! The way to other processes' windows.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dashmap::{DashMap, DashSet};
use everfold_protocol::{
    AgentId, ProcessId, Rank,
    message::{ByteRange, Data, Fault, Peer, Place, Source, WindowRef},
    spec::Limits,
};
use everfold_worker::machine::ExecutionError;
use tokio::sync::watch;

use crate::{
    memory::{
        catalogue::{self, Entry, Search, Sight},
        window::Windows,
    },
    transport::{
        Fetched, OneSidedRead, ReadError,
        second::{SecondWay, Ways},
        shm::{self, Shm},
        tcp::Tcp,
    },
};

/// A connection that breaks within this time tells of the end of a process. One that has brought nothing for
/// longer leads to a host that is out of reach, and so is its agent.
const QUICKLY: Duration = Duration::from_millis(500);

/// Reads windows of any peer, by the shortest way.
#[derive(Debug)]
pub struct Peers {
    me: ProcessId,
    /// The agent of this host.
    agent: Option<AgentId>,
    host: u64,
    known: DashMap<ProcessId, Known>,
    /// The latest process of each rank, and the agents that are gone: kept state is read by these.
    latest: DashMap<Rank, Peer>,
    lost: DashSet<AgentId>,
    windows: Arc<Windows>,
    shm: Shm,
    tcp: Tcp,
    /// Ways beside TCP, if there is a second one.
    ways: Option<Ways>,
}

/// A process, and whether it was declared failed.
#[derive(Clone, Debug)]
struct Known {
    peer: Peer,
    failed: watch::Sender<bool>,
}

impl Peers {
    /// Knows no peer yet.
    pub fn new(me: &Peer, windows: Arc<Windows>, tcp: Tcp, second: Option<Arc<dyn SecondWay>>) -> Self {
        Self {
            me: me.process,
            agent: me.agent.as_ref().map(|agent| agent.id),
            host: me.host,
            known: DashMap::new(),
            latest: DashMap::new(),
            lost: DashSet::new(),
            windows,
            shm: Shm::new(),
            tcp,
            ways: second.map(Ways::new),
        }
    }

    /// Lets those of `peers` that are on this host read this process.
    pub(crate) fn allow(&self, peers: &[Peer]) {
        let here = peers.iter().filter(|peer| peer.host == self.host).map(|peer| peer.pid);
        shm::allow_peers(&here.collect::<Vec<_>>());
    }

    /// Learns of processes, and of the job's limits on silence. Maps the memory of those on this host, which
    /// thus outlives them.
    pub fn meet(&self, peers: Vec<Peer>, limits: &Limits) {
        self.tcp.meet(limits);
        peers.into_iter().for_each(|peer| self.learn(peer));
    }

    /// Learns of a process that has come in place of an earlier one.
    pub fn take_back(&self, peer: Peer) {
        self.learn(peer);
    }

    fn learn(&self, peer: Peer) {
        if peer.host == self.host && peer.process != self.me {
            self.shm.map(&peer);
        }
        self.latest.insert(peer.process.rank, peer.clone());
        self.known.insert(peer.process, Known { peer, failed: watch::Sender::new(false) });
    }

    /// How to reach a process, unless it was declared failed.
    pub(crate) fn find(&self, process: ProcessId) -> Option<Peer> {
        let known = self.known.get(&process).filter(|known| !*known.failed.borrow());
        known.map(|known| known.peer.clone())
    }

    /// Expects no more answers from a process that was declared failed; readers that wait for one hear it.
    /// What `died` on this host leaves its shared memory behind, to be read on until it is
    /// [forgotten](Self::forget_memory).
    pub fn forget(&self, process: ProcessId, died: bool) {
        self.tcp.forget(process);
        if let Some(known) = self.known.get(&process) {
            known.failed.send_replace(true);
        }
        if !died {
            self.forget_memory(process);
        }
    }

    /// Unmaps the memory of a process that was declared failed, once no thread reads it any more.
    pub fn forget_memory(&self, process: ProcessId) {
        self.known.remove(&process);
        self.shm.forget(process);
        self.tcp.forget_left(process);
    }

    /// Reads nothing more of what failed processes have left with this agent, which is gone.
    pub fn forget_host(&self, agent: AgentId) {
        self.lost.insert(agent);
        let is_there = |known: &Known| {
            *known.failed.borrow() && known.peer.agent.as_ref().is_some_and(|it| it.id == agent)
        };
        let left: Vec<ProcessId> =
            self.known.iter().filter(|known| is_there(known)).map(|known| *known.key()).collect();
        left.into_iter().for_each(|process| self.forget_memory(process));
    }

    /// Reads `range` of `data`, or all of it.
    pub(crate) async fn fetch(
        &self,
        owner: ProcessId,
        data: &Data,
        range: Option<ByteRange>,
    ) -> Result<Fetched, ExecutionError> {
        let window = match data {
            Data::Inline(bytes) => return Ok(Fetched::Inline(bytes.clone())),
            Data::Window(window) => window,
            Data::Private => return Err(ExecutionError::blame(owner, "its data is private")),
        };
        let range = range.unwrap_or(ByteRange { start: 0, len: window.bytes });
        let fault = |error: ReadError| {
            let fault = match error {
                ReadError::Checksum | ReadError::Damaged => Fault::Damaged,
                ReadError::Released => Fault::Gone,
                _ => Fault::Unreachable,
            };
            ExecutionError { fault, ..ExecutionError::blame(owner, error) }
        };
        let fetched = self.read(owner, window, range).await.map_err(fault)?;
        // Objects are decoded later, on another thread, where nobody asks any more whether they are still
        // what they were.
        let fetched = match window.checksum {
            Some(_) => steady(fetched).await.ok_or_else(|| fault(ReadError::Released))?,
            None => fetched,
        };
        let whole = range.start == 0 && range.len == window.bytes;
        match window.checksum {
            Some(checksum) if whole && xxhash_rust::xxh3::xxh3_64(&fetched) != checksum => {
                Err(ExecutionError {
                    fault: Fault::Damaged,
                    ..ExecutionError::blame(owner, ReadError::Checksum)
                })
            }
            _ => Ok(fetched),
        }
    }

    /// Copies `range` of a source, or all of it, from its owner, or from the agent that holds the memory of a
    /// dead owner.
    pub(crate) async fn copy(
        &self,
        source: &Source,
        range: Option<ByteRange>,
    ) -> Result<Bytes, ExecutionError> {
        let fetched = steady(self.fetch(source.process, &source.data, range).await?).await;
        let gone = || ExecutionError {
            fault: Fault::Unreachable,
            ..ExecutionError::blame(source.process, ReadError::Released)
        };
        fetched.map(Bytes::from_owner).ok_or_else(gone)
    }

    /// Reads the state that the latest process of `rank` keeps under `name`, if any, from the agent of its
    /// host. It does not matter whether the process lives.
    ///
    /// # Errors
    /// The agent is gone, or does not answer for `silence_max`. [`ReadError::Checksum`] if it is replaced
    /// again and again.
    pub(crate) async fn kept(
        &self,
        rank: Rank,
        name: u64,
        silence_max: Duration,
    ) -> Result<Option<Found>, ReadError> {
        let gone = || ReadError::Unreachable(io::Error::new(io::ErrorKind::NotFound, "its host is lost"));
        let peer = self.latest.get(&rank).map(|peer| peer.clone()).ok_or_else(gone)?;
        let agent = peer.agent.as_ref().filter(|agent| !self.lost.contains(&agent.id)).ok_or_else(gone)?;
        let (owner, is_here) = ((peer.process, agent), self.agent == Some(agent.id));
        let late = |_| ReadError::Unreachable(io::ErrorKind::TimedOut.into());
        let mut search = Search::new(name);
        // What is replaced meanwhile is looked for once more.
        for _ in 0..KEPT_TRIES {
            let (window, at, range) = catalogue::window();
            let read = self.tcp.read_kept(owner, (&window, at), range);
            // A connection that is there sees by itself that nothing comes.
            let catalogue = match tokio::time::timeout(silence_max, read).await.map_err(late)? {
                Err(ReadError::Released) => return Ok(None),
                read => read?,
            };
            let entry = match search.look(&catalogue) {
                Sight::Kept(entry) => entry,
                Sight::Nothing => return Ok(None),
                Sight::Unsure => continue,
            };
            let (window, at) = catalogue::window_of(&entry);
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < entry.bytes() {
                let start = bytes.len() as u64;
                let range = ByteRange { start, len: KEPT_READ_BYTES.min(entry.bytes() - start) };
                bytes.extend_from_slice(&self.tcp.read_kept(owner, (&window, at), range).await?);
            }
            if entry.is(&bytes) {
                return Ok(Some(Found { entry, bytes, is_here }));
            }
        }
        Err(ReadError::Checksum)
    }

    async fn read(
        &self,
        owner: ProcessId,
        window: &WindowRef,
        range: ByteRange,
    ) -> Result<Fetched, ReadError> {
        if owner == self.me {
            let held = self.windows.read(window.window, window.generation, range).await;
            return held.map(Fetched::Own).map_err(ReadError::from);
        }
        let gone = || ReadError::Unreachable(io::Error::new(io::ErrorKind::NotFound, "it is not in the job"));
        let Known { peer, failed } = self.known.get(&owner).map(|known| known.clone()).ok_or_else(gone)?;
        if peer.host == self.host {
            match self.shm.read(&peer, window, range).await {
                // Reading other processes' memory is forbidden here; their servers still answer.
                Err(ReadError::Unreachable(error)) => tracing::debug!(%owner, %error, "falling back to tcp"),
                result => return result,
            }
        }
        let mut failed = failed.subscribe();
        let begun = Instant::now();
        let read = tokio::select! {
            biased;
            _ = failed.wait_for(|failed| *failed) => Err(gone()),
            result = self.read_far(&peer, window, range) => result,
        };
        // What a process has in its region its agent shows, too, and when the process has ended.
        match (read, &peer.agent, window.place) {
            (Err(ReadError::Unreachable(error)), Some(agent), Place::Region(offset))
                if self.known.contains_key(&owner) && (*failed.borrow() || begun.elapsed() < QUICKLY) =>
            {
                tracing::debug!(%owner, %error, "reading from its agent");
                self.tcp.read_left((owner, agent), (window, offset), range).await
            }
            (result, ..) => result,
        }
    }

    /// Reads a window of a process that lives, on another host.
    async fn read_far(
        &self,
        peer: &Peer,
        window: &WindowRef,
        range: ByteRange,
    ) -> Result<Fetched, ReadError> {
        let first = self.tcp.read(peer, window, range);
        match &self.ways {
            Some(ways) => ways.read(peer, window, range, first).await,
            None => first.await,
        }
    }
}

/// A state that a rank has kept.
#[derive(Debug)]
pub struct Found {
    /// What its process says of it.
    pub entry: Entry,
    /// The state.
    pub bytes: Vec<u8>,
    /// Whether its process is on the host of the reader, or was when it died.
    pub is_here: bool,
}

/// How often a state is looked for that is replaced again and again.
const KEPT_TRIES: usize = 8;
/// So much of it is read at once.
const KEPT_READ_BYTES: u64 = 8 << 20;

/// Copies what is mapped, so that it stays as it is; nothing, if it did not stay so meanwhile.
async fn steady(fetched: Fetched) -> Option<Fetched> {
    if !matches!(fetched, Fetched::Mapped(_)) {
        return Some(fetched);
    }
    let copy = move || {
        let bytes = Bytes::copy_from_slice(&fetched);
        fetched.is_still_valid().then_some(Fetched::Inline(bytes))
    };
    tokio::task::spawn_blocking(copy).await.ok().flatten()
}
