//! What one process keeps for others and of its own: originals and replicas, in memory or on its disk.
//!
//! | module | holds |
//! |---|---|
//! | [`front`] | the keeper: what is kept, what is released, how much at most |
//! | `config` | how much it may use, and where |
//! | `writer` | the one thread that writes to disk; it gives way to folding |
//! | `disk` | this process's store, and those that dead processes of this host left |
//! | [`kept`] | a contribution that a keeper holds, as a window shows it |
//! | [`error`] | why something could not be kept or read |
//!
//! Invariants: what was acknowledged is held with the stated durability until its reduction is released (I5);
//! nothing of a released reduction comes back; memory and queue have limits (I6); a broken disk costs
//! protection and nothing else.
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
