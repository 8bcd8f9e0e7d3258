//! What all ranks know alike of a call: it follows from the results and reports of its rounds. Pure.

use alloc::{collections::BTreeMap, vec::Vec};
use core::{fmt, time::Duration};

use everfold_protocol::{Path, Rank, report::Report};

use crate::{
    Combine,
    grains::Grains,
    indices::Indices,
    partials::{Partials, Twice},
    report::SegmentReport,
    round::{Paces, Round, Work, duration, weights},
};

/// What ranks have to agree on beside the indices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Whether grains meet as a tree says, and not as they come.
    pub is_fixed: bool,
    /// Whether slow ranks are relieved.
    pub balance: bool,
    /// After how many grains each rank leaves what it has folded.
    pub progress: Option<u64>,
    /// Whether ranks that have died come back.
    pub ranks_return: bool,
}

/// Whether a rank goes on after the round of `report`. A rank that has died after it contributed comes back,
/// if ranks do; if it does not, it is missing in the next round.
pub fn stays(rank: Rank, report: &Report, ranks_return: bool) -> bool {
    report.contributors.contains(rank) && (ranks_return || !report.survived.contains(rank))
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_fixed, balance, progress, ranks_return: _ } = self;
        f.write_str(if *is_fixed { " in the fixed order" } else { "" })?;
        f.write_str(if *balance { ", balanced" } else { "" })?;
        progress.map_or(Ok(()), |grains| write!(f, ", progress after {grains}"))
    }
}

/// What ranks do in a round, before they reduce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// They fold their shares. Who has taken longer than `limit` contributes what it has.
    Compute {
        /// The grains of each rank.
        shares: Vec<(Rank, Indices)>,
        /// When who is slow stops.
        limit: Option<Duration>,
    },
    /// They read what others had folded when they died.
    Salvage(Vec<Left>),
}

/// What a rank had been given when it died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Who.
    pub of: Rank,
    /// Which grains.
    pub share: Indices,
    /// In which round.
    pub round: usize,
    /// Who reads what it has left.
    pub reader: Rank,
}

/// Of all grains, the first round of a balanced segment has one in this many: the ranks learn their paces.
const FIRST_PART: u64 = 128;
/// Of what is open, a round has one in this many as long as paces change.
const PART: u64 = 2;
/// Paces have changed if one did by more than one in this many. So much longer than promised a rank may take.
const TOLERANCE: u64 = 8;
/// Rounds after which ranks are not relieved any more.
const BALANCED_ROUNDS: usize = 16;
/// It is not worth the while to stop a rank earlier.
const LIMIT_LEAST: Duration = Duration::from_millis(5);

/// Why a segment ends without a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Two ranks have computed the same indices.
    #[error("indices from {index} on were computed by two ranks")]
    Twice {
        /// The first such index.
        index: u64,
    },
    /// Nobody is left who could compute the rest.
    #[error("indices {indices} are missing, and no rank is left to compute them")]
    Incomplete {
        /// What is missing.
        indices: Indices,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Ledger<B> {
    grains: Grains,
    rules: Rules,
    /// What is computed.
    done: Partials<B>,
    /// Grains that are not.
    open: Indices,
    /// Who is given shares: a rank that was missing once, or has died where ranks do not come back, is given
    /// none any more.
    able: Path,
    paces: Paces,
    /// Whether paces have changed in the last round.
    is_unsteady: bool,
    /// What is to be salvaged.
    left: Vec<Left>,
    report: SegmentReport,
}

impl<B: Combine> Ledger<B> {
    /// A segment that begins: the ranks of `group` fold `grains`.
    pub fn new(group: &Path, grains: Grains, rules: Rules) -> Self {
        Self {
            rules,
            done: Partials::new(rules.is_fixed),
            open: Indices::range(grains.all()),
            grains,
            able: group.clone(),
            paces: Paces::new(),
            is_unsteady: true,
            left: Vec::new(),
            report: SegmentReport::default(),
        }
    }

    /// How many rounds are over.
    pub fn rounds(&self) -> usize {
        self.report.rounds.len()
    }

    /// What ranks do next.
    pub fn step(&self) -> Step {
        if !self.left.is_empty() {
            return Step::Salvage(self.left.clone());
        }
        let ranks: Vec<Rank> = self.able.iter().collect();
        let (open, part) = (self.open.count(), self.part());
        let given = (open / part).max(ranks.len() as u64).min(open);
        let weights = weights(ranks.iter().copied(), &self.paces);
        let limit = self.is_balanced() && !self.paces.is_empty();
        let limit = limit.then(|| {
            let promised = duration(given, &weights);
            (promised + promised / TOLERANCE as u32).max(LIMIT_LEAST)
        });
        let shares = self.open.first(given).divide(&weights);
        Step::Compute { shares: ranks.into_iter().zip(shares).collect(), limit }
    }

    fn is_balanced(&self) -> bool {
        self.rules.balance && self.rounds() < BALANCED_ROUNDS
    }

    /// One in how many of the open grains the next round has.
    fn part(&self) -> u64 {
        match () {
            () if !self.is_balanced() => 1,
            () if self.paces.is_empty() => FIRST_PART,
            () if self.is_unsteady => PART,
            () => 1,
        }
    }

    /// Takes in the result of a round, and gives the value if nothing is open any more.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn enter(&mut self, step: &Step, round: Round<B>, report: Report) -> Result<Option<B>, LedgerError> {
        let twice = |grain| LedgerError::Twice { index: self.grains.indices(grain).start };
        match round.twice.map_or_else(|| self.done.unite(round.partials), |grain| Err(Twice(grain))) {
            Ok(()) => {}
            Err(Twice(grain)) => return Err(twice(grain)),
        }
        let before = self.open.count();
        self.open = self.done.grains().holes(self.grains.all());
        for (rank, work) in &round.work {
            self.report.add(Rank(*rank), work.indices);
        }
        self.able = self.able.iter().filter(|rank| stays(*rank, &report, self.rules.ranks_return)).collect();
        let is_lost = |rank| !report.contributors.contains(rank);
        let indices = |share: &Indices| self.grains.indices_of(share).count();
        let folded = |rank: Rank| round.work.get(&rank.0).map_or(0, |work| work.indices);
        self.left.clear();
        let mut has_lost = false;
        match step {
            Step::Compute { shares, .. } => {
                let shares = shares.iter().filter(|(_, share)| !share.is_empty());
                let (lost, counted): (Vec<_>, Vec<_>) = shares.partition(|(rank, _)| is_lost(*rank));
                has_lost = !lost.is_empty();
                for (rank, share) in counted {
                    self.report.relieved += indices(share) - folded(*rank);
                }
                self.report.lost(lost.iter().map(|(rank, _)| *rank));
                match self.rules.progress {
                    None => self.report.again += lost.iter().map(|(_, share)| indices(share)).sum::<u64>(),
                    Some(_) => self.left = salvage(lost, self.report.rounds.len(), &self.able),
                }
                self.learn(&round.work);
            }
            Step::Salvage(left) => {
                for left in left {
                    self.report.salvaged += folded(left.of);
                    self.report.again += indices(&left.share) - folded(left.of);
                }
            }
        }
        self.report.rounds.push(report);
        if !self.open.is_empty() {
            // A round either computes something, or loses a rank, or leaves nothing more to salvage: they
            // come to an end.
            let goes_on = has_lost || self.open.count() < before || matches!(step, Step::Salvage(_));
            return match !goes_on || self.able.is_empty() {
                true => Err(LedgerError::Incomplete { indices: self.grains.indices_of(&self.open) }),
                false => Ok(None),
            };
        }
        let done = core::mem::replace(&mut self.done, Partials::new(false));
        Ok(Some(done.into_value().expect("a segment has at least one grain")))
    }

    /// Learns how fast ranks are.
    fn learn(&mut self, work: &BTreeMap<u32, Work>) {
        let changes = |(rank, pace): (&u32, u64)| {
            self.paces.get(rank).is_none_or(|before| before.abs_diff(pace) > before / TOLERANCE)
        };
        let paces = work.iter().map(|(rank, work)| (rank, work.pace));
        self.is_unsteady = paces.clone().any(changes);
        self.paces.extend(paces.map(|(rank, pace)| (*rank, pace)));
    }

    /// The whole report.
    pub fn close(mut self, group: &Path) -> SegmentReport {
        if let Some(last) = self.report.rounds.last() {
            let stays = |rank: &Rank| stays(*rank, last, self.rules.ranks_return);
            self.report.survivors = group.iter().filter(stays).collect();
        }
        self.report
    }
}

/// Who reads what of those that were lost: `able` ranks in turn.
fn salvage(lost: Vec<&(Rank, Indices)>, round: usize, able: &Path) -> Vec<Left> {
    let readers = able.iter().collect::<Vec<_>>().into_iter().cycle();
    let left = |((of, share), reader): (&(Rank, Indices), Rank)| Left {
        of: *of,
        share: share.clone(),
        round,
        reader,
    };
    lost.into_iter().zip(readers).map(left).collect()
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
