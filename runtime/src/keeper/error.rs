//! Why something could not be kept or read.

use std::{io, sync::Arc};

use everfold_storage::{JobDirectoryError, StoreError};

/// Why a keeper could not do what it was asked. It stays as it was, and usable.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It does not fit into the memory that is set aside.
    #[error("{bytes} bytes do not fit beside {held} that are kept in memory already; the limit is {limit}")]
    Full {
        /// Length of what was to be kept.
        bytes: u64,
        /// Bytes that are kept.
        held: u64,
        /// The limit.
        limit: u64,
    },
    /// The reduction was released, before or meanwhile.
    #[error("the reduction was released")]
    Released,
    /// The keeper was closed, before or meanwhile.
    #[error("nothing is kept any more: the keeper is closed")]
    Closed,
    /// The disk does not do it. Shared, because it answers all that wait for the same disk.
    #[error(transparent)]
    Disk(#[from] Arc<DiskError>),
    /// What is stored is not what was kept. It is lost here; asking again does not help.
    #[error(transparent)]
    Damaged(StoreError),
}

/// Why the disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no directory for it.
    #[error(transparent)]
    Directory(#[from] JobDirectoryError),
    /// There is no thread to wait for the disk.
    #[error("no thread can work for the disk: {0}")]
    Thread(#[from] io::Error),
}

impl From<DiskError> for KeepError {
    fn from(error: DiskError) -> Self {
        Self::Disk(Arc::new(error))
    }
}
