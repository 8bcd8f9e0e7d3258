//! What can be read in spite of what goes wrong, and what is read then.

use everfold_protocol::{
    ProcessId, Rank, ReductionId, ReductionSpec,
    message::{Data, Fault, Source, Task, WindowRef},
};
use everfold_worker::machine::ExecutionError;
use rand::Rng;

use super::World;
use crate::{
    evidence::NONSENSE,
    faults::{Reach, failure},
    process::{is_copy, is_in_region, shows_copy},
};

impl World {
    /// Whether `reader` gets at data of `owner`: it lives, or what it has left can be read, mapped on its
    /// host or at its agent.
    pub(super) fn reaches(
        &self,
        reader: Rank,
        owner: ProcessId,
        data: &Data,
        reduction: ReductionId,
    ) -> Reach {
        let Data::Window(window) = data else { return Reach::Now };
        let process = self.of(owner);
        let is_copy = shows_copy(window);
        let is_closed = [reduction, reduction.called()].iter().any(|id| process.released.contains(id))
            || (!is_copy && process.windows.find(window.window, window.generation).is_none());
        match self.reaches_memory(reader, owner, window) {
            Reach::Now if is_closed => Reach::Gone,
            reach => reach,
        }
    }

    /// Whether `reader` gets at the memory of `owner` in which a window is, or was.
    fn reaches_memory(&self, reader: Rank, owner: ProcessId, window: &WindowRef) -> Reach {
        let (process, home, host) = (self.of(owner), self.home(reader), self.host_of(owner));
        let knows = self.process(reader);
        // A replica on disk is its keeper's alone.
        let shares = home == host && (is_in_region(window) || !shows_copy(window));
        // Who ends takes its own memory along; its region stays mapped until nobody needs it.
        let is_there = process.worker.is_some()
            || process.lives_on
            || (is_in_region(window) && !knows.forgotten.contains(&owner));
        // Whoever knows that it has died, and has left its memory, reads that from its agent.
        let departed = knows.departed.get(&owner);
        let is_left = departed.is_some_and(|evidence| evidence.leaves_memory());
        let of_agent = self.settings.agents && is_left && is_in_region(window);
        match () {
            () if shares && is_there => Reach::Now,
            () if departed.is_some() && !of_agent => Reach::Never,
            () if of_agent && knows.hosts_lost.contains(&host) => Reach::Never,
            () if let Some(reach) = self.cut_between(home, host) => reach,
            () if of_agent => self.agents[&host].shows(owner),
            // Whether it is only slow to answer shows when it is declared failed.
            () if process.vanished => Reach::Later,
            () if process.worker.is_none() => Reach::Never,
            () if process.frozen.is_some() => Reach::Later,
            () => Reach::Now,
        }
    }

    /// What the network lets through between two hosts, if it is cut between them.
    pub(super) fn cut_between(&self, home: u64, host: u64) -> Option<Reach> {
        if self.outages.separates(home, host) {
            return Some(Reach::Later);
        }
        let gap = self.outages.gap(home, host)?;
        Some(if gap.at_once { Reach::Never } else { Reach::Later })
    }

    /// Where a process has no window for its partial, a task comes to nothing.
    pub(super) fn has_no_window(
        &self,
        spec: &ReductionSpec,
        process: ProcessId,
        task: &Task,
    ) -> Option<ExecutionError> {
        let executor = self.process(process.rank);
        let reduction = task.segment.reduction;
        let stays = spec.delivery.root() == Some(process.rank) || executor.shares[&reduction.called()].inline;
        if stays || !executor.is_windowless || executor.has_partial(reduction) {
            return None;
        }
        Some(failure(process, Fault::Unfit, "there is no window left for another one"))
    }

    /// Whether what `reader` reads of what lies in another process's own memory arrives damaged, however
    /// often it does.
    pub(super) fn stays_damaged(&self, reader: Rank, owner: ProcessId, data: &Data) -> bool {
        let Data::Window(window) = data else { return false };
        let (is_far, is_copy) = (self.home(reader) != self.host_of(owner), shows_copy(window));
        self.of(owner).damage.iter().any(|damage| damage.hits(reader, is_far, is_copy))
    }

    /// Whether what `reader` reads of what lies in another process's memory arrives damaged this time.
    pub(super) fn is_garbled(&mut self, reader: Rank, owner: ProcessId, data: &Data) -> bool {
        let Data::Window(window) = data else { return false };
        let is_far = self.home(reader) != self.host_of(owner);
        let stays_damaged = self.stays_damaged(reader, owner, data);
        let owner = self.of_mut(owner);
        let is_once = !stays_damaged && is_far && !shows_copy(window) && owner.garbled > 0;
        let is_damaged = stays_damaged || is_once;
        owner.garbled -= u32::from(is_once);
        owner.was_garbled |= is_damaged && !shows_copy(window);
        owner.stayed_damaged |= stays_damaged && !shows_copy(window);
        self.failed_reads.1 += u64::from(is_damaged);
        is_damaged
    }

    /// What goes wrong with a task although everybody lives.
    pub(super) fn mishap(
        &mut self,
        spec: &ReductionSpec,
        process: ProcessId,
        task: &Task,
    ) -> Option<ExecutionError> {
        for source in &task.sources {
            if self.is_garbled(process.rank, source.process, &source.data) {
                self.doubt_sources(source.process, task);
                return Some(damaged(source.process));
            }
        }
        let is_damaged = |source: &&Source| {
            let owner = source.path.first().unwrap_or(NONSENSE);
            is_copy(source) && self.of(source.process).replicas.is_damaged(owner, task.segment)
        };
        if let Some(culprit) = task.sources.iter().find(is_damaged).map(|source| source.process) {
            self.copying.meet("copies that were found to be damaged");
            self.damage_sources(culprit, task);
            return Some(damaged(culprit));
        }
        if self.settings.damage == 0 || !self.courier.random().random_ratio(self.settings.damage, 100) {
            return None;
        }
        let rank = process.rank;
        if let Some(copy) = task.sources.iter().find(|source| is_copy(source)) {
            let culprit = copy.process;
            self.damage_sources(culprit, task);
            return Some(damaged(culprit));
        }
        // What the root and inlined bodies spoil is in place of the original, and ends the reduction.
        let executor = self.process(rank);
        let in_place =
            spec.delivery.root() == Some(rank) || executor.shares[&task.segment.reduction.called()].inline;
        let grows = executor.partials.contains_key(&task.segment);
        let source = task.sources.first().filter(|_| !in_place && grows)?;
        self.process_mut(rank).torn.insert(task.segment);
        Some(failure(source.process, Fault::Torn, "it changed"))
    }
}

/// What lies at `culprit` arrived damaged.
fn damaged(culprit: ProcessId) -> ExecutionError {
    failure(culprit, Fault::Damaged, "it is damaged")
}
