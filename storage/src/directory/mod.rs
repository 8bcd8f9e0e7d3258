//! A directory of checkpoints that outlives the job: what a job goes on from when everything was switched off.
//!
//! ```text
//! DIR/everfold-checkpoints                   says that the directory is one of these, and its format
//! DIR/<generation>-<job>/rank-00003.part     the state of one rank: half a vault without its log
//! DIR/<generation>-<job>/manifest            written last: all ranks have their parts; lengths and checksums
//! ```
//!
//! It may be on a file system that all hosts share, or each host has one with the parts of its ranks.
//!
//! | module | holds |
//! |---|---|
//! | `manifest` | what says that a generation is complete |
//! | `generation` | one generation in the directory: writing and reading its files |
//! | `listing` | the directory as a whole: what is there, what is removed |
//! | `error` | why it cannot be used |
//!
//! # Invariants
//! - A generation is complete or absent (I10): it is there once its manifest is, which is written when the parts
//!   of all ranks are on disk, and removed before the first of them is.
//! - A file appears under its name when the disk holds all of it.
//! - Parts of two jobs never meet: each job has directories of its own, also for a generation of the same number.
//! - What is not everfold's is neither read nor removed.
//!
//! # Manifest
//! | offset | bytes | holds |
//! |---|---|---|
//! | 0 | 4 | magic `evmf` |
//! | 4 | 2 | version of the format |
//! | 6 | 2 | zero |
//! | 8 | 8 | length of the rest without the checksum in bytes, *n* |
//! | 16 | *n* | a [`Manifest`], encoded |
//! | 16 + *n* | 8 | xxh3 of all before |
//!
//! # Deliberately absent
//! When a checkpoint is taken, and whether all ranks have one: that is agreed on by reductions in the crate
//! `everfold`.

mod error;
mod generation;
mod listing;
mod manifest;

pub use self::{
    error::DirectoryError,
    generation::{Generations, Place},
    listing::{Directory, Found, Status},
    manifest::Manifest,
};
