//! What is told about a recovery segment.

use alloc::vec::Vec;
use core::fmt;

use everfold_protocol::{Path, Rank, report::Report};

/// What happened in a recovery segment. All ranks receive the same, but for the reports of the reductions,
/// which may list tasks at some ranks only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentReport {
    /// How many indices each rank has computed that count, for the ranks that have computed any; in ascending
    /// order of ranks.
    pub computed: Vec<(Rank, u64)>,
    /// Indices that a second rank was given because the first has died, and what it had computed of them went
    /// with it. An index that was given to several ranks in turn counts each time.
    pub again: u64,
    /// Indices whose ranks have died before they contributed, and which count all the same: they were in what
    /// these ranks had left of their progress.
    pub salvaged: u64,
    /// Indices that slow ranks were relieved of before they had begun them.
    /// An index that was taken from several ranks in turn counts each time.
    pub relieved: u64,
    /// Ranks whose share went to others.
    pub lost: Path,
    /// Ranks that took part until the end, as far as the last report knows.
    pub survivors: Path,
    /// The reports of the reductions, one per round. Without a death there is one round.
    pub rounds: Vec<Report>,
}

impl SegmentReport {
    /// Adds to what `rank` has computed.
    pub fn add(&mut self, rank: Rank, indices: u64) {
        if indices == 0 {
            return;
        }
        match self.computed.binary_search_by_key(&rank, |(rank, _)| *rank) {
            Ok(at) => self.computed[at].1 += indices,
            Err(at) => self.computed.insert(at, (rank, indices)),
        }
    }

    /// Adds ranks whose shares were not contributed.
    pub fn lost(&mut self, ranks: impl Iterator<Item = Rank>) {
        // A rank is given nothing after the round in which its share was lost.
        ranks.for_each(|rank| self.lost.insert(rank).expect("a share is lost once"));
    }
}

impl fmt::Display for SegmentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indices: u64 = self.computed.iter().map(|(_, indices)| indices).sum();
        write!(f, "{indices} indices on {} ranks", self.computed.len())?;
        if !self.lost.is_empty() {
            write!(f, "; {} of them computed again for ranks {}", self.again, self.lost)?;
        }
        if self.salvaged > 0 {
            write!(f, "; {} were in what they had left", self.salvaged)?;
        }
        if self.relieved > 0 {
            write!(f, "; slow ranks were relieved of {}", self.relieved)?;
        }
        if self.rounds.len() > 1 {
            write!(f, "; {} rounds", self.rounds.len())?;
        }
        if let Some(last) = self.rounds.last() {
            write!(f, "; {last}")?;
        }
        Ok(())
    }
}
