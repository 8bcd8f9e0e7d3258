//! What is to happen, and whether something is under way.

use std::time::Duration;

use everfold_protocol::Timestamp;

use crate::{events::Happening, heap::Heap};

/// Virtual time, and what happens in it.
#[derive(Debug)]
pub(crate) struct Agenda {
    now: Timestamp,
    heap: Heap<Happening>,
    /// Happenings under way that are not idle.
    busy: usize,
    /// When something happened that was not idle.
    progress: Timestamp,
    /// When nothing has happened for this long, nothing will.
    quiet: Duration,
    /// Events that have happened.
    events: u64,
}

impl Agenda {
    /// Nothing is to happen yet. When nothing has happened for `quiet`, nothing will.
    pub fn new(quiet: Duration) -> Self {
        let now = Timestamp::ZERO;
        Self { now, heap: Heap::new(), busy: 0, progress: now, quiet, events: 0 }
    }

    /// Virtual time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Events that have happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Whether nothing is under way but the passing of time.
    pub fn is_at_rest(&self) -> bool {
        self.busy == 0
    }

    /// Whether nothing has happened for so long that nothing will.
    pub fn is_quiet(&self) -> bool {
        self.is_at_rest() && self.now.since(self.progress) > self.quiet
    }

    /// Waits for `time` at least before it takes the silence for the end.
    pub fn be_patient(&mut self, time: Duration) {
        self.quiet = self.quiet.max(time);
    }

    /// Adds something that happens `at` a time that is not over.
    pub fn schedule(&mut self, at: Timestamp, what: Happening) {
        self.busy += usize::from(!what.is_idle());
        self.heap.push(at, what);
    }

    /// Lets time pass until the next thing happens, and takes that out.
    pub fn next(&mut self) -> Option<Happening> {
        let (at, what) = self.heap.pop()?;
        assert!(at >= self.now, "time never runs back");
        self.now = at;
        self.events += 1;
        if !what.is_idle() {
            self.busy -= 1;
            self.progress = at;
        }
        Some(what)
    }
}
