//! A rank's knowledge of one of its reductions.

use alloc::{boxed::Box, collections::BTreeMap, string::String};

use everfold_protocol::{
    Path, ProcessId, SegmentIndex, Timestamp,
    message::{Finished, ToMaster},
    report::Report,
    spec::{Delivery, ReductionSpec},
};

use super::{
    attempt::Way,
    event::{End, ExecutionError},
};

/// How often a rank tries to make room for a result beside its contribution. The master has it wait before
/// each.
const CROWDED_MAX: u32 = 50;

/// This rank's knowledge of one of its reductions.
#[derive(Debug)]
pub(super) struct Local {
    pub name: String,
    pub spec: ReductionSpec,
    pub called: Timestamp,
    /// Whether the master wants to know how long it took.
    pub is_timed: bool,
    /// The path of this rank's partial of each segment, if it holds more than the rank's own original.
    pub held: BTreeMap<SegmentIndex, Path>,
    /// Whether others may have to copy the result from here, too.
    pub lends: bool,
    /// Whether the result that was told last is copied beside this rank's contribution.
    pub beside: bool,
    /// How often there was no room for the result here.
    pub crowded: u32,
    /// Whose contributions are in the result that was told last.
    pub contributors: Option<Path>,
    /// A result that is to be copied over partials on which tasks that were given up still work, or of which parts
    /// are still copied beforehand.
    pub awaited: Option<Box<Finished>>,
    /// How many parts of the result are copied beforehand.
    pub prefetches: usize,
    pub way: Way,
    pub state: State,
}

impl Local {
    /// Whether there is still no room for the result at `me`, after it was tried often enough: the others get
    /// theirs without this rank.
    pub(super) fn has_no_room(&mut self, error: &ExecutionError, me: ProcessId) -> bool {
        // Of one that is the only one to have it, the master has to hear that it has not.
        if !matches!(self.spec.delivery, Delivery::All) {
            return false;
        }
        self.crowded += u32::from(error.culprit == me);
        self.crowded > CROWDED_MAX
    }
}

/// The end of a call, and the message that the master is to hear once that end is noted.
#[derive(Debug)]
pub(super) struct Noting {
    pub end: End,
    pub said: Option<ToMaster>,
}

#[derive(Debug)]
pub(super) enum State {
    /// The future is open.
    Running,
    /// This rank's partial is the result as soon as its last task is done.
    Folding { report: Box<Report> },
    /// The result is being copied here; tell the master afterwards if peers' windows wait for it.
    Collecting { report: Box<Report>, announce: bool },
    /// How it has ended is being noted; then the future ends, and this is said. Nothing is said if the master
    /// waits for it no longer.
    Noting(Box<Noting>),
    /// The result is here, and stays until no other rank copies it any more.
    Lending { report: Box<Report> },
    /// The future has ended; peers may still read this rank's windows.
    Serving,
}
