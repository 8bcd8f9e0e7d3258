//! How often all ranks of a job go back to their last checkpoint together.

use std::{
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use everfold_master::recovery::Restart;
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
    choice: Rollback,
    all: u32,
    /// Since a checkpoint was complete.
    fruitless: u32,
    newest: Option<Complete>,
}

/// What is done now that a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// All go back to this checkpoint, if there is one, after this pause.
    Back(Option<Complete>, Duration),
    /// They have gone back as often as is allowed.
    Enough(u32),
    /// They have gone back so often in a row without a new checkpoint.
    Fruitless(u32),
}

impl Rollbacks {
    pub fn new(choice: Rollback) -> Self {
        let newest = newest(&choice.directory);
        Self { choice, all: 0, fruitless: 0, newest }
    }

    /// How often all ranks have gone back.
    pub fn all(&self) -> u32 {
        self.all
    }

    pub fn next(&mut self) -> Next {
        let newest = newest(&self.choice.directory);
        self.decide(newest)
    }

    fn decide(&mut self, newest: Option<Complete>) -> Next {
        if generation(newest) > generation(self.newest) {
            self.fruitless = 0;
        }
        self.newest = newest;
        let limits = &self.choice.limits;
        if self.all >= limits.starts_max {
            return Next::Enough(self.all);
        }
        if self.fruitless >= limits.fruitless_max {
            return Next::Fruitless(self.fruitless);
        }
        let pause = limits.pause_after(self.fruitless);
        self.all += 1;
        self.fruitless += 1;
        Next::Back(newest, pause)
    }
}

fn generation(checkpoint: Option<Complete>) -> Option<u64> {
    checkpoint.map(|checkpoint| checkpoint.generation)
}

/// The newest complete checkpoint; of a directory that cannot be read the processes tell more.
fn newest(directory: &PathBuf) -> Option<Complete> {
    let complete = Directory::open(directory).and_then(|directory| directory.complete()).ok()?;
    let (place, _) = complete.last()?;
    let saved = place.completed()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Complete { generation: place.generation.0, saved_unix_ms: saved.as_millis() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_new_checkpoint_it_ends_after_pauses() {
        let limits = Restart { starts_max: 5, fruitless_max: 2, ..Restart::USUAL };
        let mut rollbacks = Rollbacks::new(Rollback { directory: "/nowhere".into(), limits });
        let pause = Duration::from_millis(100);
        let newest = |generation| Some(Complete { generation, saved_unix_ms: 0 });
        assert_eq!(rollbacks.decide(None), Next::Back(None, Duration::ZERO));
        assert_eq!(rollbacks.decide(newest(1)), Next::Back(newest(1), Duration::ZERO));
        assert_eq!(rollbacks.decide(newest(1)), Next::Back(newest(1), pause));
        assert_eq!(rollbacks.decide(newest(1)), Next::Fruitless(2));
        assert_eq!(rollbacks.decide(newest(4)), Next::Back(newest(4), Duration::ZERO));
        assert_eq!(rollbacks.decide(newest(5)), Next::Back(newest(5), Duration::ZERO));
        assert_eq!(rollbacks.decide(newest(6)), Next::Enough(5));
    }
}
