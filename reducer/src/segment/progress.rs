//! Progress inside a share (PR-7): what a rank has folded, left in its shared memory for the case that it dies.
//!
//! It lies in the [catalogue](everfold_runtime::memory::catalogue) of the rank's region, replaced as a whole. One
//! survivor, on whom all agree, reads it after the round in which the rank is missing, and contributes it in
//! the next round. So it counts at most once: a rank that is missing in a round has contributed nothing to it,
//! and one that has contributed is not read. Progress of another call or round has another tag.

use everfold_protocol::Rank;
use everfold_runtime::memory::catalogue;
use everfold_segment::{grains::Grains, ledger::Left, partials::Partials, round::Round};

use super::value::Value;
use crate::{body::ReducerBody, encoding, session::Session};

/// The progress of one call. It goes with this.
pub(super) struct Progress<'a> {
    session: &'a Session,
    name: u64,
    /// Whether any is left at all.
    is_left: bool,
}

impl<'a> Progress<'a> {
    /// The progress of `call`, if any is left.
    pub(super) fn new(session: &'a Session, call: &str, is_left: bool) -> Self {
        Self { session, name: catalogue::name(&format!("progress {call}")), is_left }
    }

    /// The progress of this rank in a round.
    pub(super) fn of_round(&self, round: usize) -> Saving<'_> {
        Saving { of: self, round, is_over: !self.is_left }
    }

    /// What a rank had folded when it died, if it has left anything that can be read and counts.
    pub(super) async fn read<B: ReducerBody>(
        &self,
        left: &Left,
        is_fixed: bool,
        grains: &Grains,
    ) -> Option<Round<Value<B>>> {
        let found = match self.session.handle().kept(left.of, self.name).await {
            Ok(found) => found.filter(|found| left.is_of_round(found.entry.tag))?,
            Err(error) => return nothing(left.of, &error),
        };
        match encoding::decode::<Partials<Value<B>>>(&found.bytes) {
            Ok(partials) => left
                .counts(partials, is_fixed, grains)
                .or_else(|| nothing(left.of, &"it holds other grains than its rank was given")),
            Err(error) => nothing(left.of, &error),
        }
    }
}

fn nothing<T>(of: Rank, why: &dyn std::fmt::Display) -> Option<T> {
    tracing::info!(rank = %of, %why, "the progress of a dead rank cannot be read: its grains are computed again");
    None
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.is_left {
            self.session.handle().release_kept(self.name);
        }
    }
}

/// The progress of this rank in a round.
pub(super) struct Saving<'a> {
    of: &'a Progress<'a>,
    round: usize,
    /// Whether nothing is left any more.
    is_over: bool,
}

impl Saving<'_> {
    /// Leaves what is folded so far.
    pub(super) fn save<B: ReducerBody>(&mut self, partials: &Partials<Value<B>>) {
        if self.is_over {
            return;
        }
        // What cannot be encoded is refused when it is contributed.
        let Ok(bytes) = encoding::encode(partials) else { return };
        if let Err(error) = self.of.session.handle().keep(self.of.name, self.round as u64, &bytes) {
            tracing::warn!(%error, "this rank leaves no progress");
            self.is_over = true;
        }
    }
}
