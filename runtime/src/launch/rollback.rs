//! How often all ranks of a job go back to their last checkpoint together.

use std::{path::PathBuf, time::UNIX_EPOCH};

use everfold_master::recovery::{Restart, rollback};
use everfold_storage::directory::Directory;

use super::events::Complete;

/// The exit code of a process that ends because all ranks go back; `EX_TEMPFAIL` of `sysexits.h`.
pub const ROLLED_BACK: u8 = 75;

/// All ranks go back to the last complete checkpoint when the process of one has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// The directory of checkpoints.
    pub directory: PathBuf,
    /// How often, and after which pauses. Progress is a new complete checkpoint.
    pub limits: Restart,
}

/// What has come of it so far.
#[derive(Debug)]
pub(super) struct Rollbacks {
    directory: PathBuf,
    rule: rollback::Rollbacks<Complete>,
}

/// What is done now that a process has ended.
pub(super) type Next = rollback::Next<Complete>;

impl Rollbacks {
    pub fn new(choice: Rollback) -> Self {
        let Rollback { directory, limits } = choice;
        let rule = rollback::Rollbacks::new(limits, newest(&directory));
        Self { directory, rule }
    }

    /// How often all ranks have gone back.
    pub fn all(&self) -> u32 {
        self.rule.all()
    }

    pub fn next(&mut self) -> Next {
        self.rule.decide(newest(&self.directory), |checkpoint| checkpoint.generation)
    }
}

/// The newest complete checkpoint; of a directory that cannot be read the processes tell more.
fn newest(directory: &PathBuf) -> Option<Complete> {
    let complete = Directory::open(directory).and_then(|directory| directory.complete()).ok()?;
    let (place, _) = complete.last()?;
    let saved = place.completed()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Complete { generation: place.generation.0, saved_unix_ms: saved.as_millis() as u64 })
}
