//! How long things take: the only place in the world that knows.

mod drawn;

use std::time::Duration;

use everfold_protocol::{ProcessId, Timestamp, message::TaskCounters};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::{
    events::{Happening, Work},
    settings::Settings,
};
use drawn::Drawn;

/// What a piece of work took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Spent {
    /// From taking it up to its end.
    pub all: Duration,
    /// Of these, spent on reading peers.
    pub fetching: Duration,
}

impl Spent {
    /// What a worker observes of a task for which it read `fetched_bytes`.
    pub fn counters(self, fetched_bytes: u64) -> TaskCounters {
        let [task_ns, fetch_ns] = [self.all, self.fetching].map(|time| time.as_nanos() as u64);
        TaskCounters { task_ns, fetch_ns, fetched_bytes }
    }
}

/// Answers how long things take.
#[derive(Debug)]
pub(crate) enum Timing {
    /// Whatever the seed says: order and delays that no network would have.
    Drawn(Drawn),
}

impl Timing {
    pub fn new(settings: &Settings) -> Self {
        Self::Drawn(Drawn::new(settings))
    }

    /// When a message sent now arrives. Messages between two processes keep their order.
    pub fn message(
        &mut self,
        now: Timestamp,
        random: &mut ChaCha8Rng,
        from: ProcessId,
        to: ProcessId,
    ) -> Timestamp {
        match self {
            Self::Drawn(drawn) => drawn.message(now, random, from, to),
        }
    }

    /// Lets `process` begin with `work`; what will happen then goes to `schedule`.
    pub fn begin(
        &mut self,
        now: Timestamp,
        random: &mut ChaCha8Rng,
        process: ProcessId,
        work: Work,
        schedule: &mut impl FnMut(Timestamp, Happening),
    ) {
        match self {
            Self::Drawn(drawn) => {
                let spent = drawn.work(random, process, &work);
                schedule(now + spent.all, Happening::Done(process, Box::new((work, spent))));
            }
        }
    }
}
