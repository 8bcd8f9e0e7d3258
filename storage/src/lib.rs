//! The keeping part of everfold: originals and replicas on local disks, and what a rank needs to come back.
//!
//! | module | holds |
//! |---|---|
//! | [`key`] | under which name a record is kept |
//! | [`record`] | how a record looks on disk, and how damage is told |
//! | [`store`] | one RocksDB database per process: put, get, release |
//! | [`durability`] | what an acknowledgement means |
//! | `options` | how the database is set up |
//! | `ending` | what an exit does to calls under way |
//! | [`error`] | why a store could not do it, or a job's directory could not be used |
//! | [`job_directory`] | where a job keeps its files, and how those of crashed jobs are found |
//! | `own_directory` | directories that no other user can change |
//! | [`directory`] | checkpoints of a whole job, in a directory that outlives it |
//! | [`vault`] | the last checkpoint of a rank and the outcomes since, in files that outlive its process |
//!
//! Invariants: a record is read exactly as it was put or not at all; an acknowledgement means what
//! [`Durability`] says and nothing more; files of a living job are never removed; a checkpoint is complete or
//! absent.
//!
//! Without the feature `disk` there is no RocksDB: job directories are found and removed as ever, and no
//! store can be opened. A vault takes files of any kind, and is there in every build.
//!
//! Deliberately absent: sending replicas to other ranks, and any decision about when to store, to restore or
//! to do without.

pub mod directory;
pub mod durability;
#[cfg(feature = "disk")]
pub mod ending;
pub mod error;
pub mod job_directory;
pub mod key;
#[cfg(feature = "disk")]
mod options;
mod own_directory;
pub mod record;
#[cfg(feature = "disk")]
pub mod store;
#[cfg(not(feature = "disk"))]
#[path = "no_store.rs"]
pub mod store;
pub mod vault;

pub use durability::Durability;
pub use error::{JobDirectoryError, StoreError};
pub use job_directory::JobDirectory;
pub use key::{Kind, RecordKey};
pub use store::Store;

/// Whether this build keeps records on disk: the feature `disk`.
pub const HAS_DISK: bool = cfg!(feature = "disk");
