//! What waits for a master that takes messages in batches.

use crate::events::Happening;

/// What has come to the master, which takes it in later.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Vec<Happening>,
    /// How often the master has taken in several things.
    batches: u64,
}

impl Inbox {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts something behind what waits already.
    pub fn put(&mut self, what: Happening) {
        self.waiting.push(what);
    }

    /// Takes out everything, in the order in which it came.
    pub fn take(&mut self) -> Vec<Happening> {
        self.batches += u64::from(self.waiting.len() > 1);
        std::mem::take(&mut self.waiting)
    }

    /// Batches of several things that were taken out.
    pub fn batches(&self) -> u64 {
        self.batches
    }
}
