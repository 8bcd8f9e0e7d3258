//! How processes have failed, and which failure counts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use everfold_protocol::{Incarnation, ProcessId, Rank};

use crate::launch::rollback::ROLLED_BACK;

/// How processes have failed, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    codes: Vec<(ProcessId, u8)>,
    /// Deaths that are no failures as long as others survive.
    deaths: Vec<(ProcessId, u8)>,
    has_survivor: bool,
    /// Of each rank that has come back the first process that counts.
    counting: BTreeMap<Rank, Incarnation>,
}

impl Failures {
    /// Takes in that a process has failed.
    pub(super) fn note(&self, process: ProcessId, code: u8) {
        self.lock().codes.push((process, code));
    }

    /// Takes in that a process was killed, which others are to survive.
    pub(super) fn note_death(&self, process: ProcessId, code: u8) {
        self.lock().deaths.push((process, code));
    }

    /// Takes in that a process has ended well.
    pub(super) fn note_survivor(&self) {
        self.lock().has_survivor = true;
    }

    /// Takes in that the rank of a process goes on on another host: neither that process counts nor those before.
    pub(super) fn forgive(&self, ProcessId { rank, incarnation }: ProcessId) {
        self.lock().counting.insert(rank, Incarnation(incarnation.0 + 1));
    }

    /// Takes in that a process is started in place of those before it, which do not count.
    pub(super) fn forgive_before(&self, ProcessId { rank, incarnation }: ProcessId) {
        self.lock().counting.insert(rank, incarnation);
    }

    /// Takes in that all ranks are started anew.
    pub(super) fn forget(&self) {
        *self.lock() = Inner::default();
    }

    /// The exit code of the first failure that counts. A process that ends because another one has failed
    /// comes last.
    pub(super) fn first(&self) -> Option<u8> {
        let inner = self.lock();
        let counting = || inner.counting_of(&inner.codes);
        counting().find(|code| *code != ROLLED_BACK).or(counting().next())
    }

    /// The exit code of the first death that counts, if no process has survived.
    pub(super) fn first_death(&self) -> Option<u8> {
        let inner = self.lock();
        inner.counting_of(&inner.deaths).next().filter(|_| !inner.has_survivor)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The codes of the processes that count.
    fn counting_of(&self, ends: &[(ProcessId, u8)]) -> impl Iterator<Item = u8> {
        let counts = |process: &ProcessId| {
            self.counting.get(&process.rank).is_none_or(|first| process.incarnation >= *first)
        };
        ends.iter().filter(move |(process, _)| counts(process)).map(|(_, code)| *code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_goes_on_has_not_failed_whenever_that_is_heard() {
        let failures = Failures::default();
        let life = |incarnation| ProcessId { rank: Rank(1), incarnation: Incarnation(incarnation) };
        failures.note(life(0), 137);
        failures.forgive_before(life(1));
        assert_eq!(failures.first(), None);
        // Its agent hears of the next host before the end of the process is seen.
        failures.forgive(life(1));
        failures.note(life(1), 137);
        assert_eq!(failures.first(), None);
        failures.note(ProcessId::first(2), ROLLED_BACK);
        failures.note(life(2), 3);
        assert_eq!(failures.first(), Some(3));
    }
}
