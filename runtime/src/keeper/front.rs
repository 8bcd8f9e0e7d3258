//! The keeper: keeping and releasing replicas, within limits.
//!
//! A reduction is known from its first replica here until it is released. Releasing it drops its replicas in
//! memory and one end of a channel, whose other ends are with its replicas on their way to disk: so these are
//! dropped, too. Jobs are queued under the same lock, so that the removal of a reduction's records comes
//! after the last of them.

use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use everfold_protocol::ReductionId;
use everfold_storage::{Kind, RecordKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::{
    config::KeeperConfig,
    disk::Disk,
    error::{DiskError, KeepError},
    writer::{Job, Put, Writer},
};

/// Released reductions that are remembered, to refuse late replicas. A late replica of a forgotten one costs
/// room until the keeper is closed, and does no other harm: an id never names two reductions.
const RELEASED_MAX: usize = 4096;
/// Bytes from which giving memory back takes longer than handing that over to another thread.
const LONG_DROP_BYTES: u64 = 1 << 20;

/// Where something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// In the memory of this process, as it was given: nothing is copied. Lost when the process dies.
    Memory,
    /// In this process's store, as durable as its configuration says.
    Disk,
}

/// What one process keeps. Making it costs nothing; the first record for the disk makes the thread and the
/// files.
///
/// Dropping it does the work of [`close`](Self::close) in its own time; a process that ends before leaves the
/// files to be found by others.
pub struct Keeper {
    memory_bytes_max: u64,
    queue_bytes_max: u32,
    state: Mutex<State>,
    room: Arc<Semaphore>,
    disk: Arc<Disk>,
}

#[derive(Default)]
struct State {
    reductions: HashMap<ReductionId, Reduction>,
    released: VecDeque<ReductionId>,
    held_bytes: u64,
    writer: Option<Writer>,
    closed: bool,
}

/// What is kept of one reduction.
struct Reduction {
    memory: HashMap<(Kind, RecordKey), Bytes>,
    /// Whether anything of it was ever queued for the disk.
    on_disk: bool,
    /// Dropped with this; never sent to.
    released: watch::Sender<()>,
}

impl State {
    /// The entry of `reduction`, made if need be.
    fn reduction(&mut self, reduction: ReductionId) -> Result<&mut Reduction, KeepError> {
        if self.closed {
            return Err(KeepError::Closed);
        }
        if !self.reductions.contains_key(&reduction) && self.released.contains(&reduction) {
            return Err(KeepError::Released);
        }
        Ok(self.reductions.entry(reduction).or_insert_with(|| Reduction {
            memory: HashMap::new(),
            on_disk: false,
            released: watch::channel(()).0,
        }))
    }

    /// Takes the entry of `reduction` out and accepts nothing more of it.
    fn release(&mut self, reduction: ReductionId) -> Option<Reduction> {
        if self.released.len() == RELEASED_MAX {
            self.released.pop_front();
        }
        self.released.push_back(reduction);
        self.reductions.remove(&reduction)
    }
}

impl Keeper {
    /// A keeper that keeps nothing yet.
    pub fn new(config: KeeperConfig) -> Self {
        let queue_bytes_max = u32::try_from(config.queue_bytes_max).unwrap_or(u32::MAX).max(1);
        Self {
            memory_bytes_max: config.memory_bytes_max,
            queue_bytes_max,
            state: Mutex::default(),
            room: Arc::new(Semaphore::new(queue_bytes_max as usize)),
            disk: Arc::new(Disk::new(config)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `bytes` under `key` until its reduction is [released](Self::release), instead of what was there
    /// before. When it returns, they are kept as `medium` says (I5). Waits while too much is on its way to
    /// disk.
    ///
    /// # Errors
    /// Nothing new is kept: [`KeepError::Full`], [`KeepError::Disk`], [`KeepError::Released`] or
    /// [`KeepError::Closed`].
    pub async fn keep<B>(&self, kind: Kind, key: RecordKey, bytes: B, medium: Medium) -> Result<(), KeepError>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let bytes = Bytes::from_owner(bytes);
        match medium {
            Medium::Memory => self.hold(kind, key, bytes),
            Medium::Disk => self.store(kind, key, bytes).await,
        }
    }

    fn hold(&self, kind: Kind, key: RecordKey, bytes: Bytes) -> Result<(), KeepError> {
        let mut state = self.state();
        let held = state.held_bytes;
        let memory = &mut state.reduction(key.reduction)?.memory;
        let name = (kind, key);
        let others = held - memory.get(&name).map_or(0, |old| old.len() as u64);
        let (bytes, new) = (bytes.len() as u64, bytes);
        if bytes > self.memory_bytes_max.saturating_sub(others) {
            return Err(KeepError::Full { bytes, held: others, limit: self.memory_bytes_max });
        }
        let old = memory.insert(name, new);
        state.held_bytes = others + bytes;
        // What the owner does when it is dropped must not happen under the lock.
        drop(state);
        drop(old);
        Ok(())
    }

    async fn store(&self, kind: Kind, key: RecordKey, bytes: Bytes) -> Result<(), KeepError> {
        let mut released = self.state().reduction(key.reduction)?.released.subscribe();
        let needed = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(self.queue_bytes_max);
        let room = tokio::select! {
            biased;
            _ = released.changed() => return Err(self.why_released()),
            room = self.room.clone().acquire_many_owned(needed) => room.map_err(|_| KeepError::Closed)?,
        };
        let answer = self.queue(kind, key, bytes, room, released.clone())?;
        tokio::select! {
            biased;
            _ = released.changed() => Err(self.why_released()),
            answer = answer => Ok(answer.unwrap_or_else(|_| Err(Arc::new(no_writer())))?),
        }
    }

    fn queue(
        &self,
        kind: Kind,
        key: RecordKey,
        bytes: Bytes,
        room: OwnedSemaphorePermit,
        released: watch::Receiver<()>,
    ) -> Result<oneshot::Receiver<Result<(), Arc<DiskError>>>, KeepError> {
        let mut state = self.state();
        let State { reductions, writer, closed, .. } = &mut *state;
        let reduction = match reductions.get_mut(&key.reduction) {
            Some(reduction) if released.has_changed().is_ok() => reduction,
            _ if *closed => return Err(KeepError::Closed),
            _ => return Err(KeepError::Released),
        };
        let writer = match writer {
            Some(writer) => writer,
            none => none.insert(Writer::start(self.disk.clone()).map_err(DiskError::from)?),
        };
        let (answer, answered) = oneshot::channel();
        reduction.on_disk = true;
        writer.send(Job::Put(Put { kind, key, bytes, released, answer, room }));
        Ok(answered)
    }

    fn why_released(&self) -> KeepError {
        if self.state().closed { KeepError::Closed } else { KeepError::Released }
    }

    /// Forgets what is kept in memory under `key`, because it is on disk, too.
    pub fn unload(&self, kind: Kind, key: RecordKey) {
        let mut state = self.state();
        let reduction = state.reductions.get_mut(&key.reduction);
        let bytes = reduction.and_then(|reduction| reduction.memory.remove(&(kind, key)));
        state.held_bytes -= bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        // What the owner does when it is dropped must not happen under the lock.
        drop(state);
        drop(bytes);
    }

    /// Forgets all that is kept of `reduction`, gives up what is on its way to disk, and takes nothing more
    /// of it. Does not wait; room on disk is free some time later.
    pub fn release(&self, reduction: ReductionId) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        let Some(kept) = state.release(reduction) else { return };
        let bytes: u64 = kept.memory.values().map(|bytes| bytes.len() as u64).sum();
        state.held_bytes -= bytes;
        if let Some(writer) = state.writer.as_ref().filter(|_| kept.on_disk) {
            writer.send(Job::Release(reduction));
        }
        drop(state);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if bytes >= LONG_DROP_BYTES => drop(runtime.spawn_blocking(move || drop(kept))),
            _ => drop(kept),
        }
    }

    /// What is kept under `key`: once [`keep`](Self::keep) has returned, and until the release. Does not wait
    /// for what is on its way to disk.
    ///
    /// # Errors
    /// [`KeepError::Damaged`], [`KeepError::Disk`] or [`KeepError::Closed`].
    pub async fn read(&self, kind: Kind, key: RecordKey) -> Result<Option<Bytes>, KeepError> {
        {
            let state = self.state();
            if state.closed {
                return Err(KeepError::Closed);
            }
            let Some(kept) = state.reductions.get(&key.reduction) else { return Ok(None) };
            if let Some(bytes) = kept.memory.get(&(kind, key)) {
                return Ok(Some(bytes.clone()));
            }
            if !kept.on_disk {
                return Ok(None);
            }
        }
        let disk = self.disk.clone();
        blocking(move || disk.read(kind, key)).await
    }

    /// Forgets everything, ends the thread, closes the store and removes its files. A thread that still waits
    /// for something to be kept hears [`KeepError::Closed`]. A second call does nothing.
    pub async fn close(&self) {
        let (reductions, writer) = {
            let mut state = self.state();
            if std::mem::replace(&mut state.closed, true) {
                return;
            }
            state.held_bytes = 0;
            (std::mem::take(&mut state.reductions), state.writer.take())
        };
        let disk = self.disk.clone();
        let done = tokio::task::spawn_blocking(move || {
            drop(reductions);
            if let Some(writer) = writer {
                writer.end();
            }
            disk.close();
        });
        if let Err(error) = done.await {
            tracing::warn!(%error, "cannot close the keeper");
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(f, "{} bytes in memory, of {} reductions", state.held_bytes, state.reductions.len())
    }
}

/// Runs `work` on a thread that may wait for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeepError> + Send + 'static,
) -> Result<T, KeepError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(DiskError::Thread(io::Error::other(error)).into()))
}

fn no_writer() -> DiskError {
    DiskError::Thread(io::Error::other("it is gone"))
}
