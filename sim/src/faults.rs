//! What goes wrong, and what can be reached in spite of it.

use std::time::Duration;

use everfold_protocol::{
    ProcessId, Rank, ReductionId, ReductionSpec,
    message::{Data, Fault, Task},
};
use everfold_worker::machine::ExecutionError;
use rand::Rng;

use crate::{
    events::Happening,
    process::{COPIES, is_copy},
    world::World,
};

/// How often a reader looks whether a frozen process is back.
pub(crate) const RETRY: Duration = Duration::from_millis(20);

/// Whether memory can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    Now,
    Later,
    Never,
}

impl World {
    /// Kills a process `after` now; the master sees its connection break.
    pub fn kill(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now + after, Happening::Die(ProcessId::first(rank)));
    }

    /// Stops a process `after` now, for `time`; messages to it wait.
    pub fn freeze(&mut self, after: Duration, rank: Rank, time: Duration) {
        self.schedule(self.now + after, Happening::Freeze(rank));
        self.schedule(self.now + after + time, Happening::Thaw(rank));
    }

    pub(crate) fn die(&mut self, process: ProcessId) {
        let dead = self.process_mut(process.rank);
        let open = dead.shares.values().filter(|share| share.ended.is_none()).count() as u64;
        let lived = dead.worker.take().is_some();
        dead.copies.clear();
        self.calls_ended += if lived { open } else { 0 };
        drop(self.thaw(process.rank));
        // What it had sent still arrives, and then the end of the connection.
        self.hang_up(process);
    }

    pub(crate) fn stop(&mut self, rank: Rank) {
        let process = self.process_mut(rank);
        if process.frozen.is_none() {
            process.frozen = Some(Vec::new());
            self.frozen += 1;
        }
    }

    /// Ends a freeze; tells what waited for it.
    pub(crate) fn thaw(&mut self, rank: Rank) -> Vec<Happening> {
        let waiting = self.process_mut(rank).frozen.take();
        self.frozen -= usize::from(waiting.is_some());
        waiting.unwrap_or_default()
    }

    /// Whether `reader` gets at data of `owner`: it lives, or it died and shares memory.
    pub(crate) fn reaches(
        &self,
        reader: Rank,
        owner: ProcessId,
        data: &Data,
        reduction: ReductionId,
    ) -> Reach {
        let Data::Window(window) = data else { return Reach::Now };
        let shares = self.settings.host(reader) == self.settings.host(owner.rank) && window.window.0 < COPIES;
        let process = self.process(owner.rank);
        match () {
            () if process.released.contains(&reduction) => Reach::Never,
            () if shares => Reach::Now,
            () if self.process(reader).departed.contains(&owner.rank) => Reach::Never,
            () if process.worker.is_none() => Reach::Never,
            () if process.frozen.is_some() => Reach::Later,
            () => Reach::Now,
        }
    }

    /// What goes wrong with a task although everybody lives.
    pub(crate) fn mishap(
        &mut self,
        spec: &ReductionSpec,
        process: ProcessId,
        task: &Task,
    ) -> Option<ExecutionError> {
        if self.settings.damage == 0 || !self.random.random_ratio(self.settings.damage, 100) {
            return None;
        }
        let rank = process.rank;
        if let Some(copy) = task.sources.iter().find(|source| is_copy(source)) {
            self.process_mut(rank).torn.remove(&task.segment);
            let reason = "it is damaged".to_owned();
            return Some(ExecutionError { culprit: copy.process, fault: Fault::Damaged, reason });
        }
        // What the root and inlined bodies spoil is in place of the original, and ends the reduction.
        let executor = self.process(rank);
        let in_place = spec.delivery.root() == Some(rank) || executor.shares[&task.segment.reduction].inline;
        let grows = executor.partials.contains_key(&task.segment);
        let source = task.sources.first().filter(|_| !in_place && grows)?;
        // The partial stays torn.
        let reason = "it changed".to_owned();
        Some(ExecutionError { culprit: source.process, fault: Fault::Torn, reason })
    }
}
