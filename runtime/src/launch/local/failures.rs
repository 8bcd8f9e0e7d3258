//! How processes have failed, and which failure counts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everfold_protocol::Rank;

use crate::launch::rollback::ROLLED_BACK;

/// How processes have failed, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(Arc<Mutex<Vec<(Rank, u8)>>>);

impl Failures {
    /// Takes in that the process of a rank has failed.
    pub(super) fn note(&self, rank: Rank, code: u8) {
        self.lock().push((rank, code));
    }

    /// Takes in that a rank is started anew.
    pub(super) fn forgive(&self, rank: Rank) {
        self.lock().retain(|(failed, _)| *failed != rank);
    }

    /// Takes in that all ranks are started anew.
    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    /// The exit code of the first that counts. Who ends because another one has failed comes last.
    pub(super) fn first(&self) -> Option<u8> {
        let failed = self.lock();
        let first = failed.iter().find(|(_, code)| *code != ROLLED_BACK).or(failed.first());
        first.map(|(_, code)| *code)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Rank, u8)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
