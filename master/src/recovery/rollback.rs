//! How often all ranks of a job go back to their last checkpoint together.

use core::time::Duration;

use super::Restart;

/// How often ranks have gone back so far. `C` is a complete checkpoint.
#[derive(Debug)]
pub struct Rollbacks<C> {
    limits: Restart,
    all: u32,
    /// Since a checkpoint was complete.
    fruitless: u32,
    newest: Option<C>,
}

/// The next step now that a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<C> {
    /// All go back to this checkpoint, if there is one, after this pause.
    Back(Option<C>, Duration),
    /// They have gone back as often as is allowed.
    Enough(u32),
    /// They have gone back so often in a row without a new checkpoint.
    Fruitless(u32),
}

impl<C: Copy> Rollbacks<C> {
    /// No rollback yet; `newest` was complete before the job began.
    pub fn new(limits: Restart, newest: Option<C>) -> Self {
        Self { limits, all: 0, fruitless: 0, newest }
    }

    /// How often all ranks have gone back.
    pub fn all(&self) -> u32 {
        self.all
    }

    /// Takes in that a process has ended, and which checkpoint is the newest complete one. `generation` tells
    /// its number: a new one is progress.
    pub fn decide(&mut self, newest: Option<C>, generation: impl Fn(&C) -> u64) -> Next<C> {
        if newest.as_ref().map(&generation) > self.newest.as_ref().map(&generation) {
            self.fruitless = 0;
        }
        self.newest = newest;
        if self.all >= self.limits.starts_max {
            return Next::Enough(self.all);
        }
        if self.fruitless >= self.limits.fruitless_max {
            return Next::Fruitless(self.fruitless);
        }
        let pause = self.limits.pause_after(self.fruitless);
        self.all += 1;
        self.fruitless += 1;
        Next::Back(newest, pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_new_checkpoint_it_ends_after_pauses() {
        let limits = Restart { starts_max: 5, fruitless_max: 2, ..Restart::USUAL };
        let mut rollbacks = Rollbacks::new(limits, None);
        let mut decide = |newest: Option<u64>| rollbacks.decide(newest, |generation| *generation);
        let pause = Duration::from_millis(100);
        assert_eq!(decide(None), Next::Back(None, Duration::ZERO));
        assert_eq!(decide(Some(1)), Next::Back(Some(1), Duration::ZERO));
        assert_eq!(decide(Some(1)), Next::Back(Some(1), pause));
        assert_eq!(decide(Some(1)), Next::Fruitless(2));
        assert_eq!(decide(Some(4)), Next::Back(Some(4), Duration::ZERO));
        assert_eq!(decide(Some(5)), Next::Back(Some(5), Duration::ZERO));
        assert_eq!(decide(Some(6)), Next::Enough(5));
    }
}
