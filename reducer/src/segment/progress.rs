//! Progress inside a share (PR-7): what a rank has folded, left in its shared memory for the case that it dies.
//!
//! It lies in the [catalogue](everfold_runtime::memory::catalogue) of the rank's region, replaced as a whole. One
//! survivor, on whom all agree, reads it after the round in which the rank is missing, and contributes it in
//! the next round. So it counts at most once: a rank that is missing in a round has contributed nothing to it,
//! and one that has contributed is not read. Progress of another call or round has another tag.

use everfold_protocol::Rank;
use everfold_runtime::memory::catalogue;

use super::{ledger::Left, partials::Partials};
use crate::{body::ReducerBody, encoding, session::Session};

/// The progress of one call. It goes with this.
pub(super) struct Progress<'a> {
    session: &'a Session,
    name: u64,
    /// Grains from one time to the next, if any is left at all.
    every: Option<u64>,
}

impl<'a> Progress<'a> {
    /// The progress of `call`, left after each `every` grains.
    pub(super) fn new(session: &'a Session, call: &str, every: Option<u64>) -> Self {
        Self { session, name: catalogue::name(&format!("progress {call}")), every }
    }

    /// The progress of this rank in a round.
    pub(super) fn of_round(&self, round: usize) -> Saving<'_> {
        Saving { of: self, round, folded: 0, is_over: self.every.is_none() }
    }

    /// What a rank had folded when it died, if it has left anything that can be read.
    pub(super) async fn read<B: ReducerBody>(&self, left: &Left, is_fixed: bool) -> Option<Partials<B>> {
        let Left { of, ref share, round, .. } = *left;
        let found = match self.session.handle().kept(of, self.name).await {
            Ok(found) => found.filter(|found| found.entry.tag == round as u64)?,
            Err(error) => return nothing(of, &error),
        };
        match encoding::decode::<Partials<B>>(&found.bytes) {
            Ok(partials) if partials.is_of(share, is_fixed) => Some(partials),
            Ok(_) => nothing(of, &"it holds other grains than its rank was given"),
            Err(error) => nothing(of, &error),
        }
    }
}

fn nothing<T>(of: Rank, why: &dyn std::fmt::Display) -> Option<T> {
    tracing::info!(rank = %of, %why, "no progress of a dead rank");
    None
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.every.is_some() {
            self.session.handle().release_kept(self.name);
        }
    }
}

/// The progress of this rank in a round.
pub(super) struct Saving<'a> {
    of: &'a Progress<'a>,
    round: usize,
    /// Grains since the last time.
    folded: u64,
    /// Whether nothing is left any more.
    is_over: bool,
}

impl Saving<'_> {
    /// Takes in that `partials` have one grain more.
    pub(super) fn fold<B: ReducerBody>(&mut self, partials: &Partials<B>) {
        self.folded += 1;
        if self.is_over || self.of.every.is_some_and(|every| self.folded < every) {
            return;
        }
        self.folded = 0;
        // What cannot be encoded is refused when it is contributed.
        let Ok(bytes) = encoding::encode(partials) else { return };
        if let Err(error) = self.of.session.handle().keep(self.of.name, self.round as u64, &bytes) {
            tracing::warn!(%error, "this rank leaves no progress");
            self.is_over = true;
        }
    }
}
