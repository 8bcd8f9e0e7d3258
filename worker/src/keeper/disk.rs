//! The files of one process, and those that dead processes of the same host left.
//!
//! Nothing touches the disk before the first call needs it. All calls block; reads do not wait for writes. The last
//! holder closes the store and removes its files.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, Once, PoisonError, RwLock, RwLockReadGuard},
};

use bytes::Bytes;
use everfold_protocol::{ProcessId, ReductionId};
use everfold_storage::{JobDirectory, Kind, RecordKey, Store, StoreError, job_directory};

use super::{
    error::{DiskError, KeepError},
    front::KeeperConfig,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Disk {
    config: KeeperConfig,
    orphans: Once,
    directory: Mutex<Option<JobDirectory>>,
    /// Locked for writing only to open and to close it.
    store: RwLock<Option<Store>>,
    others: Mutex<HashMap<ProcessId, Arc<Store>>>,
}

impl Disk {
    pub(super) fn new(config: KeeperConfig) -> Self {
        let (directory, store, others) = (Mutex::default(), RwLock::default(), Mutex::default());
        Self { config, orphans: Once::new(), directory, store, others }
    }

    /// Opens this process's store, unless it is open. Only one thread may call it.
    pub(super) fn open(&self) -> Result<(), DiskError> {
        if self.is_open() {
            return Ok(());
        }
        // First of all, because they may be what fills the disk.
        self.orphans.call_once(|| self.remove_orphans());
        let store = Store::open(&self.path_of(self.config.process)?)?;
        tracing::debug!(path = %store.path().display(), "opened the store");
        *self.store.write().unwrap_or_else(PoisonError::into_inner) = Some(store);
        Ok(())
    }

    fn remove_orphans(&self) {
        match job_directory::remove_orphans(&self.config.base) {
            Ok(orphans) => {
                let (removed, in_use) = (orphans.removed.len(), orphans.in_use.len());
                tracing::debug!(removed, in_use, "looked for files of crashed jobs");
                for (job, error) in orphans.failed {
                    tracing::warn!(%job, %error, "cannot remove the files of a crashed job");
                }
            }
            Err(error) => tracing::warn!(%error, "cannot look for files of crashed jobs"),
        }
    }

    /// Where `process` has its store. From now on, nobody else takes the job for dead and removes its files.
    fn path_of(&self, process: ProcessId) -> Result<PathBuf, DiskError> {
        let KeeperConfig { base, job, process: me, .. } = &self.config;
        let mut directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = match &mut *directory {
            Some(directory) => directory,
            none => none.insert(JobDirectory::join(base, *job, *me)?),
        };
        Ok(directory.store_path_of(process))
    }

    pub(super) fn is_open(&self) -> bool {
        self.store().is_some()
    }

    fn store(&self) -> RwLockReadGuard<'_, Option<Store>> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a record into the store, which is opened if need be. Only one thread may call it.
    pub(super) fn put(&self, kind: Kind, key: RecordKey, bytes: &[u8]) -> Result<(), DiskError> {
        self.open()?;
        let store = self.store();
        let store = store.as_ref().expect("a store stays open until the thread that writes has ended");
        store.put(kind, key, bytes, self.config.durability)?;
        Ok(())
    }

    /// Removes the records of `reduction`.
    pub(super) fn release(&self, reduction: ReductionId) -> Result<(), DiskError> {
        // What was never opened holds nothing.
        self.store().as_ref().map_or(Ok(()), |store| store.release(reduction))?;
        Ok(())
    }

    /// A record of this process's store.
    pub(super) fn read(&self, kind: Kind, key: RecordKey) -> Result<Option<Bytes>, KeepError> {
        self.store().as_ref().map_or(Ok(None), |store| read(store, kind, key))
    }

    /// A record of the store that the dead `process` left.
    pub(super) fn read_of(
        &self,
        process: ProcessId,
        kind: Kind,
        key: RecordKey,
    ) -> Result<Option<Bytes>, KeepError> {
        self.store_of(process)?.map_or(Ok(None), |store| read(&store, kind, key))
    }

    /// The store that the dead `process` left, if it did.
    fn store_of(&self, process: ProcessId) -> Result<Option<Arc<Store>>, KeepError> {
        // Held while the store is opened, so that each is opened once, however many segments are asked for.
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = others.get(&process) {
            return Ok(Some(store.clone()));
        }
        let path = self.path_of(process)?;
        if !path.exists() {
            return Ok(None);
        }
        let store = Arc::new(Store::open_read_only(&path).map_err(unreadable)?);
        tracing::debug!(path = %path.display(), "opened the store of a dead process");
        others.insert(process, store.clone());
        Ok(Some(store))
    }

    /// Closes the store that the dead `process` left.
    pub(super) fn forget(&self, process: ProcessId) {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).remove(&process);
    }

    /// Closes all stores and removes this process's files.
    pub(super) fn close(&self) {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).clear();
        // Waits for reads under way.
        drop(self.store.write().unwrap_or_else(PoisonError::into_inner).take());
        let directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner).take();
        match directory.map(JobDirectory::leave) {
            None => {}
            Some(Ok(last)) => tracing::debug!(last, "removed this process's files"),
            Some(Err(error)) => tracing::warn!(%error, "cannot remove this process's files"),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.close();
    }
}

fn read(store: &Store, kind: Kind, key: RecordKey) -> Result<Option<Bytes>, KeepError> {
    Ok(store.get(kind, key).map_err(unreadable)?.map(Bytes::from))
}

fn unreadable(error: StoreError) -> KeepError {
    match error {
        StoreError::Corrupted { .. } => KeepError::Damaged(error),
        error => DiskError::from(error).into(),
    }
}
