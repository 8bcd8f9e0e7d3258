//! The result log of a process that follows an earlier one of its rank, which lives.
//!
//! What that one notes comes here, too. A call whose outcome has not come yet waits: on the thread that makes it,
//! as what the program does next may depend on it. Nobody waits for this process meanwhile.

use std::{
    sync::{MutexGuard, PoisonError},
    time::Instant,
};

use everfold_protocol::{ReductionId, codec, message::Comeback};
use everfold_storage::vault::KeyAndValue;

use super::{Inner, LogError, ResultLog, Returning, entry::Line};

impl ResultLog {
    /// This process follows an earlier one from now on.
    pub(crate) fn stand_by(&self) {
        let mut inner = self.lock();
        inner.stands_by = true;
        // What it costs counts from when it takes a place.
        inner.returning = None;
    }

    /// Takes in an outcome that the earlier process has noted.
    ///
    /// # Errors
    /// There is no room, or it is damaged. This process cannot go on then.
    pub(crate) fn take_over(&self, (key, value): KeyAndValue) -> Result<(), LogError> {
        let mut inner = self.lock();
        let line: Line = codec::decode(&key)?;
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
        self.lock().stands_by = false;
        self.grown.notify_all();
    }

    /// Waits until there is an answer to this call, or none will come.
    pub(super) fn wait_for(&self, reduction: ReductionId) -> MutexGuard<'_, Inner> {
        let waits = |inner: &mut Inner| inner.stands_by && !inner.known.contains_key(&reduction);
        self.grown.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner)
    }
}
