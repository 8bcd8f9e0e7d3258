//! What a run did, for tests that follow it and for comparing runs.

use everfold_protocol::{
    Path, ProcessId, Rank, Timestamp, codec,
    message::{ToMaster, ToWorker},
};
use xxhash_rust::xxh3::Xxh3;

use crate::events::Happening;

/// Something that was decided, for tests that follow a run step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The master queued a reduction message of this rank with this path.
    Message(Rank, Path),
    /// The master gave `executor` the task to fold the paths of `sources` into its own.
    Task {
        /// Who folds.
        executor: Rank,
        /// What it holds.
        own: Path,
        /// What it reads, and from whom.
        sources: Vec<(Rank, Path)>,
    },
    /// The master broadcast the end.
    End,
}

/// What happened so far.
#[derive(Default)]
pub(crate) struct Trace {
    pub steps: Vec<Step>,
    hash: Xxh3,
    /// Reused from event to event.
    bytes: Vec<u8>,
}

impl Trace {
    /// Takes in that something happens.
    pub fn happens(&mut self, now: Timestamp, what: &Happening) {
        self.bytes.clear();
        self.bytes.extend(now.as_nanos().to_le_bytes());
        codec::encode_into(what, &mut self.bytes).expect("messages can be encoded");
        self.hash.update(&self.bytes);
        let (sender, path) = match what {
            Happening::ToMaster(sender, _, message) => match &**message {
                ToMaster::Contribute(_) => (sender.rank, Path::single(sender.rank)),
                ToMaster::PartialReady(done) => (sender.rank, done.path.clone()),
                _ => return,
            },
            _ => return,
        };
        self.steps.push(Step::Message(sender, path));
    }

    /// Takes in what the master says.
    pub fn said(&mut self, to: ProcessId, message: &ToWorker) {
        match message {
            ToWorker::Task(task) => self.steps.push(Step::Task {
                executor: to.rank,
                own: task.own.clone(),
                sources: task.sources.iter().map(|s| (s.process.rank, s.path.clone())).collect(),
            }),
            ToWorker::Finished(_) if self.steps.last() != Some(&Step::End) => self.steps.push(Step::End),
            _ => {}
        }
    }

    /// xxh3 of all that happened, and when.
    pub fn hash(&self) -> u64 {
        self.hash.digest()
    }
}
