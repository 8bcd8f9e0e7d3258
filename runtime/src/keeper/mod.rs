//! What one process keeps for others and of its own: originals and replicas, in memory or on its disk.
//!
//! | module | holds |
//! |---|---|
//! | [`front`] | the keeper: keeping and releasing replicas, within limits |
//! | `config` | its limits, and its directory |
//! | `writer` | the one thread that writes to disk; it gives way to folding |
//! | `disk` | this process's store, and those that dead processes of this host left |
//! | [`kept`] | a contribution that a keeper holds, as a window shows it |
//! | [`error`] | why a replica could not be kept or read |
//!
//! Invariants: an acknowledged replica is held with the stated durability until its reduction is released
//! (I5); no replica of a released reduction comes back; memory and queue have limits (I6); a broken disk
//! costs protection and nothing else.
//!
//! Deliberately absent: any decision about what to keep and where, and sending it to other processes.

mod config;
mod disk;
pub mod error;
pub mod front;
pub mod kept;
mod writer;

pub use config::KeeperConfig;
pub use error::{DiskError, KeepError};
pub use front::{Keeper, Medium};
pub use kept::Kept;
