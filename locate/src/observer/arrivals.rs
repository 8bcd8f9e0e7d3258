//! Ranks that keep their group waiting again and again, that have not called, or whose calls differ from
//! most.
//!
//! An allreduce makes all ranks equally late, so times at ranks show no culprit. The master sees which ranks
//! *arrive* late. A rank is guilty of the time between the arrival of the median rank of its group and its
//! own. Overlapping reductions count once.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::time::Duration;

use everfold_protocol::{
    ProcessId, Rank, ReductionId, ReductionSpec, message::Contribution, time::Timestamp,
};

use crate::{peers, symptom::Kind};

/// The share of the time for which a rank may keep its group waiting ...
const LATE_SHARE: f64 = 0.25;
/// ... or this many times the share of the median rank, if that is more: where cores are short, all ranks are
/// late at times.
const LATE_RATIO: f64 = 2.5;
/// ... in the mean of this number of looks: where steps take as long as a look, single looks differ much.
const LATE_MEAN: usize = 3;
/// In how many looks in a row that has to be, and with how many late calls in them. A rank that does not come
/// at all is another case.
const LATE_LOOKS: u32 = 4;
const LATE_CALLS: u32 = 2;
/// How long most of a group may wait for a rank that has not called.
const NOT_CALLED: Duration = Duration::from_secs(3);
/// How long to wait for more calls before it is decided whose differ.
const SETTLE: Duration = Duration::from_millis(300);
/// After this long, what only ranks that have come back have called is over, most likely.
const STALE: Duration = Duration::from_secs(60);
/// How many reductions that have not ended are observed. More are not: there are enough to learn from.
const ROUNDS_MAX: usize = 4096;

#[derive(Debug)]
struct Round {
    spec: ReductionSpec,
    /// In the order in which they came.
    came: Vec<(Rank, Timestamp)>,
    /// Whose calls differ from the first.
    differ: Vec<Rank>,
    /// Since when it is known that calls differ.
    disagrees: Option<Timestamp>,
    /// Whether somebody has called who has not come back. Others call what is over already.
    is_new: bool,
}

#[derive(Debug)]
pub(super) struct Arrivals {
    rounds: BTreeMap<ReductionId, Round>,
    /// For how long others have waited for a rank since the last look, and up to when that is counted.
    waited: BTreeMap<Rank, (Duration, Timestamp)>,
    /// In the latest looks, for which share of the time others have waited for each rank.
    shares: VecDeque<BTreeMap<Rank, f64>>,
    /// Whose share was too large in the latest looks.
    late: BTreeMap<Rank, Streak>,
    /// How often each has come late since the last look.
    calls: BTreeMap<Rank, u32>,
    looked: Timestamp,
}

/// Looks in a row in which others had to wait for a rank, and late calls in them.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    looks: u32,
    calls: u32,
}

impl Round {
    /// When the median rank of the group came, if it has.
    fn median(&self) -> Option<Timestamp> {
        let median = (self.spec.group.len().max(1) - 1) / 2;
        self.came.get(median).map(|(_, at)| *at)
    }

    /// Whose calls differ from those of most; nobody's if there is no most.
    fn minority(&self) -> Vec<Rank> {
        let others = || self.came.iter().map(|(rank, _)| *rank).filter(|rank| !self.differ.contains(rank));
        match (2 * self.differ.len()).cmp(&self.came.len()) {
            core::cmp::Ordering::Less => self.differ.clone(),
            core::cmp::Ordering::Equal => Vec::new(),
            core::cmp::Ordering::Greater => others().collect(),
        }
    }
}

impl Arrivals {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            rounds: BTreeMap::new(),
            waited: BTreeMap::new(),
            shares: VecDeque::new(),
            late: BTreeMap::new(),
            calls: BTreeMap::new(),
            looked: now,
        }
    }

    /// A rank contributes.
    pub(super) fn handle_call(&mut self, now: Timestamp, sender: ProcessId, call: &Contribution) {
        let rank = sender.rank;
        let is_known = self.rounds.contains_key(&call.reduction);
        if !is_known && (self.rounds.len() >= ROUNDS_MAX || call.spec.group.len() < 2) {
            return;
        }
        let round = self.rounds.entry(call.reduction).or_insert_with(|| Round {
            spec: call.spec.clone(),
            came: Vec::new(),
            differ: Vec::new(),
            disagrees: None,
            is_new: false,
        });
        round.is_new |= sender.incarnation.0 == 0;
        if round.came.iter().any(|(other, _)| *other == rank) {
            return;
        }
        if round.spec != call.spec && round.spec.disagreement(&call.spec).is_some() {
            round.differ.push(rank);
        }
        round.came.push((rank, now));
        if let Some(median) = round.median().filter(|median| *median < now) {
            self.blame(rank, median, now);
            *self.calls.entry(rank).or_default() += 1;
        }
    }

    /// Calls of a reduction differ.
    pub(super) fn disagree(&mut self, now: Timestamp, reduction: ReductionId) {
        if let Some(round) = self.rounds.get_mut(&reduction) {
            round.disagrees.get_or_insert(now);
        }
    }

    pub(super) fn forget(&mut self, reduction: ReductionId) {
        if self.rounds.get(&reduction).is_some_and(|round| round.disagrees.is_none()) {
            self.rounds.remove(&reduction);
        }
    }

    /// What has come to light of these ranks, in order, since the last look: kind, rank, value and threshold.
    pub(super) fn look(&mut self, now: Timestamp, ranks: &[Rank]) -> Vec<(Kind, Rank, f64, f64)> {
        let mut found = Vec::new();
        let is_settled = |round: &Round| round.disagrees.is_some_and(|since| now.since(since) >= SETTLE);
        for round in self.rounds.values().filter(|round| is_settled(round)) {
            found.extend(round.minority().into_iter().map(|rank| (Kind::Diverging, rank, 1.0, 1.0)));
        }
        let is_stale = |round: &Round| {
            let since = round.came.last().map_or(now, |(_, at)| *at);
            !round.is_new && now.since(since) >= STALE
        };
        self.rounds.retain(|_, round| !is_settled(round) && !is_stale(round));
        for (rank, since) in self.missing(ranks) {
            self.blame(rank, since, now);
            let waiting = now.since(since);
            if waiting >= NOT_CALLED {
                found.push((Kind::NotCalled, rank, waiting.as_secs_f64(), NOT_CALLED.as_secs_f64()));
            }
        }
        let shares = self.shares(now, ranks);
        let limit = (peers::median(&shares).unwrap_or(0.0) * LATE_RATIO).max(LATE_SHARE);
        let late: BTreeMap<Rank, f64> =
            ranks.iter().copied().zip(shares).filter(|(_, share)| *share >= limit).collect();
        self.late.retain(|rank, _| late.contains_key(rank));
        let calls = core::mem::take(&mut self.calls);
        for (rank, share) in late {
            let streak = self.late.entry(rank).or_default();
            streak.looks += 1;
            streak.calls = streak.calls.saturating_add(calls.get(&rank).copied().unwrap_or_default());
            if streak.looks >= LATE_LOOKS && streak.calls >= LATE_CALLS {
                found.push((Kind::Late, rank, share, limit));
            }
        }
        found
    }

    /// For which share of the time others have waited for each of these ranks, in the mean of the latest
    /// looks.
    fn shares(&mut self, now: Timestamp, ranks: &[Rank]) -> Vec<f64> {
        let period = now.since(self.looked).as_secs_f64().max(f64::MIN_POSITIVE);
        self.looked = now;
        let waited = core::mem::take(&mut self.waited).into_iter();
        let share = |(rank, (waited, _)): (Rank, (Duration, Timestamp))| {
            (rank, (waited.as_secs_f64() / period).min(1.0))
        };
        self.shares.push_front(waited.map(share).collect());
        self.shares.truncate(LATE_MEAN);
        let sum = |rank: &Rank| self.shares.iter().filter_map(|look| look.get(rank)).sum::<f64>();
        ranks.iter().map(|rank| sum(rank) / LATE_MEAN as f64).collect()
    }

    /// Ranks for which most of a group wait, and since when.
    fn missing(&self, ranks: &[Rank]) -> Vec<(Rank, Timestamp)> {
        let mut missing: BTreeMap<Rank, Timestamp> = BTreeMap::new();
        for round in self.rounds.values().filter(|round| round.is_new && round.disagrees.is_none()) {
            let Some(median) = round.median() else { continue };
            if round.came.len() == round.spec.group.len() {
                continue;
            }
            let came = |rank: Rank| round.came.iter().any(|(other, _)| *other == rank);
            let waits_for = |rank: &Rank| ranks.binary_search(rank).is_ok();
            for rank in round.spec.group.iter().filter(|rank| waits_for(rank) && !came(*rank)) {
                let since = missing.entry(rank).or_insert(median);
                *since = median.min(*since);
            }
        }
        missing.into_iter().collect()
    }

    /// Others wait for a rank, or have waited, from then to now.
    fn blame(&mut self, rank: Rank, from: Timestamp, now: Timestamp) {
        let looked = self.looked;
        let (waited, until) = self.waited.entry(rank).or_insert((Duration::ZERO, looked));
        let from = from.max(*until);
        *waited += now.since(from);
        *until = now.max(*until);
    }
}
