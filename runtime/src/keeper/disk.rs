//! The files of one process.
//!
//! Nothing touches the disk before the first call needs it. All calls block; reads do not wait for writes.
//! The last holder closes the store and removes its files.

use std::{
    path::PathBuf,
    sync::{Mutex, Once, PoisonError, RwLock, RwLockReadGuard},
};

use bytes::Bytes;
use everfold_protocol::ReductionId;
use everfold_storage::{HAS_DISK, JobDirectory, Kind, RecordKey, Store, StoreError, job_directory};

use super::{
    config::KeeperConfig,
    error::{DiskError, KeepError},
};

/// See the module.
#[derive(Debug)]
pub(super) struct Disk {
    config: KeeperConfig,
    orphans: Once,
    directory: Mutex<Option<JobDirectory>>,
    /// Locked for writing only to open and to close it.
    store: RwLock<Option<Store>>,
}

impl Disk {
    pub(super) fn new(config: KeeperConfig) -> Self {
        Store::prepare();
        Self { config, orphans: Once::new(), directory: Mutex::default(), store: RwLock::default() }
    }

    /// Opens this process's store, unless it is open. Only one thread may call it.
    pub(super) fn open(&self) -> Result<(), DiskError> {
        if self.is_open() {
            return Ok(());
        }
        if !HAS_DISK {
            return Err(StoreError::NoDisk.into());
        }
        // First of all, because they may be what fills the disk.
        self.orphans.call_once(|| self.remove_orphans());
        let store = Store::open(&self.store_path()?)?;
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

    /// Where the store lies. From now on, nobody else takes the job for dead and removes its files.
    fn store_path(&self) -> Result<PathBuf, DiskError> {
        let KeeperConfig { base, job, process: me, .. } = &self.config;
        let mut directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = match &mut *directory {
            Some(directory) => directory,
            none => none.insert(JobDirectory::join(base, *job, *me)?),
        };
        Ok(directory.store_path())
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

    /// Closes the store and removes this process's files.
    pub(super) fn close(&self) {
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
