//! Timers.

use alloc::collections::BTreeSet;

use everfold_protocol::{AgentId, ProcessId, Rank, ReductionId, SegmentId, Timestamp};

/// Something that is due at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The job waits no longer for its processes.
    Join,
    /// A reduction's deadline passes.
    Deadline(ReductionId),
    /// A reduction waits no longer until all its partials can meet at once.
    Gathered(ReductionId),
    /// Partials that could not be reached are tried again.
    Retry(SegmentId),
    /// A result that could not be copied as a whole is tried again.
    Collect(ReductionId),
    /// It is looked whether anything comes of a pipeline.
    Pipeline(ReductionId),
    /// A reduction has lasted so long that its originals are worth a copy.
    Copy(ReductionId),
    /// The copy of this rank's original is looked after: there may be no keeper, or a silent one.
    Keeper(ReductionId, Rank),
    /// Nothing may have come of an attempt in teams for long.
    Dissolve(ReductionId),
    /// This agent is to start this process, whose rank is to come back.
    Start(AgentId, ProcessId),
    /// This process, whose rank is to come back, was to be here by now.
    Return(ProcessId),
    /// This process, whose connection has broken, was to have ended by now, so that its rank can come back.
    End(ProcessId),
    /// This process is to be started, to stand by.
    StandBy(ProcessId),
    /// Pings are sent, silence and late tasks are looked for.
    Alarm,
    /// Own detectors want to be woken.
    Own,
}

/// All timers that are set, in the order in which they are due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Timestamp, Timer)>);

impl Timers {
    /// Lets `timer` be due `at` that time.
    pub fn set(&mut self, at: Timestamp, timer: Timer) {
        self.0.insert((at, timer));
    }

    /// Calls off the `timer` that is due `at` that time.
    pub fn call_off(&mut self, at: Timestamp, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    /// Calls off `timer`, whenever it is due.
    pub fn call_off_all(&mut self, timer: Timer) {
        self.0.retain(|(_, other)| *other != timer);
    }

    /// When the first of them is due.
    pub fn next(&self) -> Option<Timestamp> {
        self.0.first().map(|(at, _)| *at)
    }

    /// How many are due.
    pub fn count_due(&self, now: Timestamp) -> usize {
        self.0.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// Takes the first that is due.
    pub fn take_due(&mut self, now: Timestamp) -> Option<Timer> {
        self.0.first().filter(|(at, _)| *at <= now)?;
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
