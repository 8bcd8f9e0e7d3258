//! What all ranks know alike of a call: it follows from the results and reports of its rounds. Pure.

use std::{collections::BTreeMap, fmt, time::Duration};

use everfold_protocol::{Rank, report::Report};

use super::{
    error::SegmentError,
    grains::Grains,
    indices::Indices,
    partials::{Partials, Twice},
    report::SegmentReport,
    round::{Paces, Round, Work, duration, weights},
};
use crate::{body::ReducerBody, group::Group};

/// What ranks have to agree on beside the indices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) is_fixed: bool,
    pub(super) balance: bool,
    /// After how many grains each rank leaves what it has folded.
    pub(super) progress: Option<u64>,
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_fixed, balance, progress } = self;
        f.write_str(if *is_fixed { " in the fixed order" } else { "" })?;
        f.write_str(if *balance { ", balanced" } else { "" })?;
        progress.map_or(Ok(()), |grains| write!(f, ", progress after {grains}"))
    }
}

/// What ranks do in a round, before they reduce.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// They fold their shares. Who has taken longer than `limit` contributes what it has.
    Compute { shares: Vec<(Rank, Indices)>, limit: Option<Duration> },
    /// They read what others had folded when they died.
    Salvage(Vec<Left>),
}

/// What a rank had been given when it died.
#[derive(Clone, Debug)]
pub(super) struct Left {
    pub(super) of: Rank,
    pub(super) share: Indices,
    /// In which round.
    pub(super) round: usize,
    /// Who reads what it has left.
    pub(super) reader: Rank,
}

/// Of all grains, the first round of a balanced segment has one in this many: the ranks learn their paces.
const FIRST_PART: u64 = 64;
/// Of what is open, a round has one in this many as long as paces change.
const PART: u64 = 4;
/// Paces have changed if one did by more than one in this many. So much longer than promised a rank may take.
const TOLERANCE: u64 = 8;
/// Rounds after which ranks are not relieved any more.
const BALANCED_ROUNDS: usize = 16;
/// It is not worth the while to stop a rank earlier.
const LIMIT_LEAST: Duration = Duration::from_millis(5);

/// See the module.
pub(super) struct Ledger<'a, B> {
    grains: &'a Grains,
    rules: Rules,
    /// What is computed.
    done: Partials<B>,
    /// Grains that are not.
    open: Indices,
    /// Who is given shares: a rank that was missing once, or has died, is given none any more.
    able: Group,
    paces: Paces,
    /// Whether paces have changed in the last round.
    is_unsteady: bool,
    /// What is to be salvaged.
    left: Vec<Left>,
    report: SegmentReport,
}

impl<'a, B: ReducerBody> Ledger<'a, B> {
    pub(super) fn new(group: &Group, grains: &'a Grains, rules: Rules) -> Self {
        Self {
            grains,
            rules,
            done: Partials::new(rules.is_fixed),
            open: Indices::range(grains.all()),
            able: group.clone(),
            paces: Paces::new(),
            is_unsteady: true,
            left: Vec::new(),
            report: SegmentReport::default(),
        }
    }

    /// How many rounds are over.
    pub(super) fn rounds(&self) -> usize {
        self.report.rounds.len()
    }

    /// What ranks do next.
    pub(super) fn next(&self) -> Step {
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
    pub(super) fn enter(
        &mut self,
        step: &Step,
        round: Round<B>,
        report: Report,
    ) -> Result<Option<B>, SegmentError> {
        let twice = |grain| SegmentError::Twice { index: self.grains.indices(grain).start };
        match round.twice.map_or_else(|| self.done.unite(round.partials), |grain| Err(Twice(grain))) {
            Ok(()) => {}
            Err(Twice(grain)) => return Err(twice(grain)),
        }
        let before = self.open.count();
        self.open = self.done.grains().holes(self.grains.all());
        for (rank, work) in &round.work {
            self.report.add(Rank(*rank), work.indices);
        }
        let goes_on = |rank| report.contributors.contains(rank) && !report.survived.contains(rank);
        self.able = self.able.filter(goes_on);
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
            // A round either computes something, or loses a rank, or leaves nothing more to salvage: they come
            // to an end.
            let goes_on = has_lost || self.open.count() < before || matches!(step, Step::Salvage(_));
            return match !goes_on || self.able.is_empty() {
                true => Err(SegmentError::Incomplete { indices: self.grains.indices_of(&self.open) }),
                false => Ok(None),
            };
        }
        let done = std::mem::replace(&mut self.done, Partials::new(false));
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
    pub(super) fn close(mut self, group: &Group, may_return: bool) -> SegmentReport {
        if let Some(last) = self.report.rounds.last() {
            // A rank that has died after it contributed comes back, if ranks do.
            let stays =
                |rank| last.contributors.contains(rank) && (may_return || !last.survived.contains(rank));
            self.report.survivors = group.iter().filter(|rank| stays(*rank)).collect();
        }
        self.report
    }
}

/// Who reads what of those that were lost: `able` ranks in turn.
fn salvage(lost: Vec<&(Rank, Indices)>, round: usize, able: &Group) -> Vec<Left> {
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
