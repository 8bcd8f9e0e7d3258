//! The ledger under deaths at any moment: each grain counts once, whoever dies, stops or is salvaged.

use std::{cell::RefCell, collections::BTreeSet, ops::Range};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use crate::{folding::Folding, round::pace};

/// The grains that are in a value, each as often as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Seen(Vec<u64>);

impl Combine for Seen {
    fn combine(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }
}

/// What chance decides in a run.
struct Chance<'a>(RefCell<std::slice::Iter<'a, u64>>);

impl Chance<'_> {
    /// A number below `below`; 0 once nothing is left to chance.
    fn draw(&self, below: u64) -> u64 {
        self.0.borrow_mut().next().map_or(0, |number| number % below)
    }
}

/// How a rank goes through a round.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// It contributes its whole share.
    Well,
    /// It contributes as much as it had folded when it had to stop.
    Slow(u64),
    /// It dies when it has folded so much, and what it has left can be read or not.
    Dies(u64, bool),
    /// It dies after it has contributed.
    Contributed,
}

/// Ranks that go through a segment together.
struct Run<'a> {
    chance: Chance<'a>,
    grains: &'a Grains,
    rules: Rules,
    alive: BTreeSet<u32>,
    /// Of each rank that has died what can be read, and from which round it is.
    left: BTreeMap<u32, (usize, Partials<Seen>)>,
}

impl Run<'_> {
    fn fate(&self) -> Fate {
        let folded = self.chance.draw(20);
        match self.chance.draw(8) {
            1 | 2 if self.alive.len() > 1 => Fate::Dies(folded, self.chance.draw(4) > 0),
            3 if self.alive.len() > 1 || self.rules.ranks_return => Fate::Contributed,
            4 | 5 if self.rules.balance => Fate::Slow(folded),
            _ => Fate::Well,
        }
    }

    fn fold(&self, rank: u32, share: &Indices, most: u64) -> Round<Seen> {
        let step = Step::Compute { shares: vec![(Rank(rank), share.first(most))], limit: None };
        let mut folding = Folding::new(Rank(rank), &step, self.rules, self.grains);
        while let Some(indices) = folding.grain() {
            folding.fold(Seen(indices.collect()), Duration::ZERO);
        }
        folding.into_round(Duration::ZERO)
    }

    /// What each living rank contributes, and the report of the reduction.
    fn round(&mut self, step: &Step, number: usize) -> (Round<Seen>, Report) {
        let (mut all, mut report) = (Round::nothing(self.rules.is_fixed), Report::default());
        for rank in self.alive.clone() {
            let fate = self.fate();
            let share = match step {
                Step::Compute { shares, .. } => shares.iter().find(|(of, _)| of.0 == rank),
                Step::Salvage(_) => None,
            };
            let share = share.map_or_else(Indices::default, |(_, share)| share.clone());
            if let Fate::Dies(folded, can_be_read) = fate {
                self.alive.remove(&rank);
                let folded = self.fold(rank, &share, folded).partials;
                if can_be_read && !folded.grains().is_empty() {
                    self.left.insert(rank, (number, folded));
                }
                continue;
            }
            let body = match step {
                Step::Compute { .. } => {
                    // Who has a share folds a grain of it at least.
                    let most = if let Fate::Slow(folded) = fate { folded.max(1) } else { u64::MAX };
                    self.fold(rank, &share, most)
                }
                Step::Salvage(left) => self.read(rank, left),
            };
            all.combine(body);
            report.contributors.insert(Rank(rank)).unwrap();
            let is_alone = self.alive.len() == 1;
            let comes_back = self.rules.ranks_return && (is_alone || self.chance.draw(2) > 0);
            if fate == Fate::Contributed && (comes_back || !is_alone) {
                report.survived.insert(Rank(rank)).unwrap();
                if !comes_back {
                    self.alive.remove(&rank);
                }
            }
        }
        (all, report)
    }

    fn read(&mut self, reader: u32, left: &[Left]) -> Round<Seen> {
        let mut round = Round::nothing(self.rules.is_fixed);
        for left in left.iter().filter(|left| left.reader.0 == reader) {
            let Some((number, partials)) = self.left.remove(&left.of.0) else { continue };
            assert!(left.is_of_round(number as u64));
            round.combine(
                left.counts(partials, self.rules.is_fixed, self.grains).expect("it is of its share"),
            );
        }
        round
    }

    /// Until the value is there.
    fn go(mut self, ranks: u32) -> (Seen, SegmentReport) {
        let group = Path::range(0, ranks);
        let mut ledger = Ledger::new(&group, self.grains.clone(), self.rules);
        loop {
            let step = ledger.step();
            let (round, report) = self.round(&step, ledger.rounds());
            match ledger.enter(&step, round, report) {
                Ok(Some(value)) => return (value, ledger.close(&group)),
                Ok(None) => assert!(ledger.rounds() < 500, "it comes to an end"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn each_index_counts_once_whatever_happens(
        ranks in 1..7u32,
        (indices, grain) in (1..200u64, 1..9u64),
        (is_fixed, balance, ranks_return) in any::<(bool, bool, bool)>(),
        progress in prop::option::of(Just(1u64)),
        chance in prop::collection::vec(any::<u64>(), 0..150),
    ) {
        let grains = Grains::new(0..indices, Some(grain)).unwrap();
        let run = Run {
            chance: Chance(RefCell::new(chance.iter())),
            grains: &grains,
            rules: Rules { is_fixed, balance, progress, ranks_return },
            alive: (0..ranks).collect(),
            left: BTreeMap::new(),
        };
        let (Seen(mut value), report) = run.go(ranks);
        if !is_fixed {
            value.sort_unstable();
        }
        prop_assert_eq!(value, (0..indices).collect::<Vec<_>>());
        let computed: u64 = report.computed.iter().map(|(_, indices)| indices).sum();
        prop_assert_eq!(computed, indices);
        prop_assert!(report.lost.is_disjoint(&report.survivors));
        prop_assert!(report.lost.is_empty() || report.rounds.len() > 1);
        prop_assert!(!report.lost.is_empty() || (report.again, report.salvaged) == (0, 0));
        prop_assert!(progress.is_some() || report.salvaged == 0);
        prop_assert!(balance || report.relieved == 0);
        let survived: Path = (0..ranks).map(Rank).filter(|rank| report.survivors.contains(*rank)).collect();
        prop_assert_eq!(survived, report.survivors.clone());
    }
}

/// A ledger of 16 grains of one index each, for 4 ranks.
fn ledger(grains: &Grains, rules: Rules) -> Ledger<Seen> {
    Ledger::new(&Path::range(0, 4), grains.clone(), rules)
}

fn sixteen() -> Grains {
    Grains::new(0..16, Some(1)).unwrap()
}

fn of(rank: u32, grains: Range<u64>, pace: u64) -> Round<Seen> {
    let mut partials = Partials::new(false);
    grains.clone().for_each(|grain| partials.add(grain, Seen(vec![grain])).unwrap());
    let work = BTreeMap::from([(rank, Work { indices: grains.end - grains.start, pace })]);
    Round { partials, work, twice: None }
}

fn report(contributors: impl IntoIterator<Item = u32>) -> Report {
    Report { contributors: contributors.into_iter().map(Rank).collect(), ..Report::default() }
}

fn all(rounds: impl IntoIterator<Item = Round<Seen>>) -> Round<Seen> {
    let mut all = Round::nothing(false);
    rounds.into_iter().for_each(|round| all.combine(round));
    all
}

#[test]
fn what_a_dead_rank_has_left_is_read_once_and_only_the_rest_is_computed_again() {
    let grains = sixteen();
    let mut ledger = ledger(&grains, Rules { progress: Some(1), ..Rules::default() });
    let step = ledger.step();
    let others = [0, 1, 3].map(|rank| of(rank, 4 * u64::from(rank)..4 * u64::from(rank) + 4, 1));
    assert_eq!(ledger.enter(&step, all(others), report([0, 1, 3])).unwrap(), None);
    let step = ledger.step();
    let Step::Salvage(left) = &step else { panic!("{step:?}") };
    let [left] = &left[..] else { panic!("{left:?}") };
    assert_eq!((left.of, left.reader, left.round), (Rank(2), Rank(0), 0));
    let salvaged = Round::salvaged(Rank(2), of(2, 8..11, 1).partials, &grains);
    assert_eq!(ledger.enter(&step, salvaged, report([0, 1, 3])).unwrap(), None);
    let step = ledger.step();
    let Step::Compute { shares, .. } = &step else { panic!("{step:?}") };
    let open: Vec<u64> = shares.iter().flat_map(|(_, share)| share.ranges().flatten()).collect();
    assert_eq!(open, [11]);
    let (last, _) = shares.iter().find(|(_, share)| !share.is_empty()).unwrap();
    let Seen(mut value) = ledger.enter(&step, of(last.0, 11..12, 1), report([0, 1, 3])).unwrap().unwrap();
    value.sort_unstable();
    assert_eq!(value, (0..16).collect::<Vec<_>>());
    let SegmentReport { again, salvaged, lost, computed, .. } = ledger.close(&Path::range(0, 4));
    assert_eq!((again, salvaged, lost.contains(Rank(2)), lost.len()), (1, 3, true, 1));
    assert!(computed.contains(&(Rank(2), 3)), "{computed:?}");
}

#[test]
fn who_comes_back_computes_what_others_have_taken_along() {
    let grains = sixteen();
    // All ranks die; three of them after they have contributed.
    let contributed = [0, 1, 2].map(|rank| of(rank, 4 * u64::from(rank)..4 * u64::from(rank) + 4, 1));
    let died = || Report { survived: Path::range(0, 4), ..report(0..3) };
    let mut returning = ledger(&grains, Rules { ranks_return: true, ..Rules::default() });
    let step = returning.step();
    assert_eq!(returning.enter(&step, all(contributed.clone()), died()).unwrap(), None);
    let Step::Compute { shares, .. } = returning.step() else { panic!("nobody left any progress") };
    assert_eq!(shares.iter().map(|(rank, _)| rank.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(shares.iter().map(|(_, share)| share.count()).sum::<u64>(), 4);
    let mut ending = ledger(&grains, Rules::default());
    let nobody = ending.enter(&step, all(contributed), died());
    assert!(matches!(nobody, Err(LedgerError::Incomplete { .. })), "{nobody:?}");
}

#[test]
fn a_grain_that_comes_twice_ends_the_call() {
    let grains = sixteen();
    let mut ledger = ledger(&grains, Rules { progress: Some(1), ..Rules::default() });
    let step = ledger.step();
    assert_eq!(ledger.enter(&step, of(0, 0..4, 1), report([0, 1, 3])).unwrap(), None);
    let step = ledger.step();
    let again = ledger.enter(&step, of(0, 3..5, 1), report([0, 1, 3]));
    assert!(matches!(again, Err(LedgerError::Twice { index: 3 })), "{again:?}");
}

#[test]
fn slow_ranks_are_given_less_and_nobody_is_relieved_for_a_trifle() {
    let grains = Grains::new(0..12_800, Some(1)).unwrap();
    let rules = Rules { balance: true, ..Rules::default() };
    let mut ledger: Ledger<Seen> = Ledger::new(&Path::range(0, 4), grains.clone(), rules);
    let count = |step: &Step| {
        let Step::Compute { shares, limit } = step else { panic!("{step:?}") };
        let counts = shares.iter().map(|(_, share)| share.count()).collect::<Vec<_>>();
        (counts, *limit)
    };
    let ranges = |step: &Step| {
        let Step::Compute { shares, .. } = step else { panic!("{step:?}") };
        shares.iter().map(|(_, share)| share.ranges().next().unwrap()).collect::<Vec<_>>()
    };
    let first = ledger.step();
    assert_eq!(count(&first), (vec![25; 4], None), "the paces are not known yet");
    // In 1000 seconds; rank 3 is slow.
    let paces = [8_000_000, 8_000_000, 8_000_000, 2_000_000];
    let folded = |step: &Step, paces: [u64; 4]| {
        all((0..).zip(ranges(step)).zip(paces).map(|((rank, range), pace)| of(rank, range, pace)))
    };
    assert_eq!(ledger.enter(&first, folded(&first, paces), report(0..4)).unwrap(), None);
    let second = ledger.step();
    let (given, limit) = count(&second);
    assert_eq!(given.iter().sum::<u64>(), 12_700 / 2, "paces may change yet");
    assert!(given[3] * 4 <= given[0] + 4, "{given:?}");
    let promised = Duration::from_secs(1000) * 6350 / 26_000_000;
    assert_eq!(limit.unwrap(), promised + promised / 8);
    let a_bit_slower = [8_000_000, 8_000_000, 7_500_000, 2_000_000];
    assert_eq!(ledger.enter(&second, folded(&second, a_bit_slower), report(0..4)).unwrap(), None);
    let third = ledger.step();
    assert_eq!(count(&third).0.iter().sum::<u64>(), 12_700 - 6350, "all that is left");
    // Rank 0 has got slower, and has stopped half-way.
    let mut stopped = ranges(&third);
    let relieved = (stopped[0].end - stopped[0].start) / 2;
    stopped[0].end -= relieved;
    let rounds = (0..).zip(&stopped).map(|(rank, range)| of(rank, range.clone(), 4_000_000));
    assert_eq!(ledger.enter(&third, all(rounds), report(0..4)).unwrap(), None);
    assert_eq!(ledger.open.count(), relieved);
    let SegmentReport { relieved: told, again, lost, .. } = ledger.close(&Path::range(0, 4));
    assert_eq!((told, again, lost.is_empty()), (relieved, 0, true));
}

/// How long `ranks` take for `grains` in virtual time, if the last of them needs `slow(time)` seconds for a
/// grain that it begins then, and the others one second.
fn virtual_seconds(ranks: u32, grains: u64, balance: bool, slow: impl Fn(f64) -> f64) -> f64 {
    let grains = Grains::new(0..grains, Some(1)).unwrap();
    let rules = Rules { balance, ..Rules::default() };
    let mut ledger: Ledger<Seen> = Ledger::new(&Path::range(0, ranks), grains.clone(), rules);
    let mut now = 0.0;
    loop {
        let step = ledger.step();
        let Step::Compute { shares, limit } = &step else { panic!("nobody dies") };
        let limit = limit.map_or(f64::INFINITY, |limit| limit.as_secs_f64());
        let (mut round, mut longest) = (Round::nothing(false), 0.0f64);
        for (rank, share) in shares.iter().filter(|(_, share)| !share.is_empty()) {
            let (mut took, mut folded) = (0.0, 0);
            while folded < share.count() && took < limit {
                took += if rank.0 + 1 == ranks { slow(now + took) } else { 1.0 };
                folded += 1;
            }
            let mut partials = Partials::new(false);
            let part = share.first(folded);
            part.ranges().flatten().for_each(|grain| partials.add(grain, Seen(Vec::new())).unwrap());
            let pace = pace(folded, Duration::from_secs_f64(took));
            let work = BTreeMap::from([(rank.0, Work { indices: folded, pace })]);
            round.combine(Round { partials, work, twice: None });
            longest = longest.max(took);
        }
        now += longest;
        if ledger.enter(&step, round, report(0..ranks)).unwrap().is_some() {
            return now;
        }
    }
}

#[test]
fn a_balanced_segment_takes_little_longer_than_the_speed_that_is_left_allows() {
    const GRAINS: u64 = 4096;
    for ranks in [2, 4, 8] {
        let even = GRAINS as f64 / f64::from(ranks);
        assert!(virtual_seconds(ranks, GRAINS, true, |_| 1.0) <= 1.001 * even, "nobody is slow");
        // From the beginning, at a quarter of the others' speed.
        let least = GRAINS as f64 / (f64::from(ranks) - 0.75);
        let balanced = virtual_seconds(ranks, GRAINS, true, |_| 4.0);
        assert!(balanced <= 1.05 * least, "{ranks} ranks take {balanced} s instead of {least} s");
        assert_eq!(virtual_seconds(ranks, GRAINS, false, |_| 4.0), 4.0 * even, "as the slowest");
        // From the middle on.
        let late = |now: f64| if now < even / 2.0 { 1.0 } else { 4.0 };
        let least = even / 2.0 + GRAINS as f64 / 2.0 / (f64::from(ranks) - 0.75);
        let balanced = virtual_seconds(ranks, GRAINS, true, late);
        assert!(balanced <= 1.1 * least, "{ranks} ranks take {balanced} s instead of {least} s");
    }
}
