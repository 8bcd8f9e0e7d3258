//! The result log of a process that follows an earlier one of its rank, which lives.
//!
//! What that one notes comes here, too. A call whose outcome has not come yet waits: on the thread that makes it,
//! as what the program does next may depend on it. Nobody waits for this process meanwhile.

use std::{
    collections::BTreeSet,
    mem,
    sync::{MutexGuard, PoisonError},
    time::Instant,
};

use everfold_protocol::{ReductionId, codec, message::Comeback};
use everfold_storage::vault::{Generation, KeyAndValue};

use super::{Inner, LogError, ResultLog, Returning, entry::Line};

/// What has come from an earlier process.
///
/// Where that one has written a checkpoint while it went on, the log behind it begins with outcomes from the end of the
/// log before.
pub(super) struct Came {
    generation: Generation,
    /// What was in the log behind the generation before.
    before: BTreeSet<ReductionId>,
    /// What is in the log behind this one.
    now: BTreeSet<ReductionId>,
}

impl Came {
    /// So much is in the log behind this generation.
    fn new(generation: Generation, noted: BTreeSet<ReductionId>) -> Self {
        Self { generation, before: BTreeSet::new(), now: noted }
    }

    /// Takes in that an outcome is in the log behind a generation. Says whether it was in none before.
    fn is_new(&mut self, behind: Generation, reduction: ReductionId) -> bool {
        if behind != self.generation {
            self.generation = behind;
            self.before = mem::take(&mut self.now);
        }
        self.now.insert(reduction) && !self.before.contains(&reduction)
    }
}

impl Inner {
    pub(super) fn stands_by(&self) -> bool {
        self.came.is_some()
    }
}

impl ResultLog {
    /// This process follows an earlier one from now on.
    pub(crate) fn stand_by(&self) {
        let mut inner = self.lock();
        let noted = inner.known.keys().copied().collect();
        inner.came = Some(Came::new(inner.vault.generation(), noted));
        // What it costs counts from when it takes a place.
        inner.returning = None;
    }

    /// Takes in an outcome that is in the log behind a generation of the earlier process. One that was in the log behind
    /// the generation before, too, has been taken in.
    ///
    /// # Errors
    /// There is no room, or it is damaged. This process cannot go on then.
    pub(crate) fn take_over(&self, behind: Generation, (key, value): KeyAndValue) -> Result<(), LogError> {
        let mut inner = self.lock();
        let line: Line = codec::decode(&key)?;
        if inner.came.as_mut().is_some_and(|came| !came.is_new(behind, line.reduction)) {
            return Ok(());
        }
        let outcome = inner.vault.take_over(key, &value)?;
        self.bytes.store(inner.vault.log_bytes(), std::sync::atomic::Ordering::Relaxed);
        let reduction = line.reduction;
        inner.known.insert(reduction, (line, outcome));
        inner.remember(reduction);
        self.grown.notify_all();
        Ok(())
    }

    /// Takes in that the earlier process notes nothing more: this one takes its place.
    pub(crate) fn take_place(&self) {
        let comeback = Comeback::default();
        self.lock().returning = Some(Returning { comeback, loaded: Instant::now() });
    }

    /// Lets calls go to the master that are not here.
    pub(crate) fn stand_by_no_more(&self) {
        self.lock().came = None;
        self.grown.notify_all();
    }

    /// Waits until there is an answer to this call, or none will come.
    pub(super) fn wait_for(&self, reduction: ReductionId) -> MutexGuard<'_, Inner> {
        let waits = |inner: &mut Inner| inner.stands_by() && !inner.known.contains_key(&reduction);
        self.grown.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_seal_has_carried_is_not_new() {
        let call = |sequence| ReductionId::new("call", sequence);
        let mut came = Came::new(Generation(3), [call(0), call(1)].into());
        assert!(came.is_new(Generation(3), call(2)) && !came.is_new(Generation(3), call(2)));
        let behind_a_seal: Vec<bool> = (1..=4).map(|at| came.is_new(Generation(4), call(at))).collect();
        assert_eq!(behind_a_seal, [false, false, true, true]);
        // One more that was begun behind the last outcome but one.
        let behind_the_next: Vec<bool> = (3..=6).map(|at| came.is_new(Generation(6), call(at))).collect();
        assert_eq!(behind_the_next, [false, false, true, true]);
    }
}
