//! Association rules: sets of symptoms that go with a fault.
//!
//! Apriori: a set is looked at only if all that is in it has enough support, and not any more once a part of
//! it suffices. Of these minimal sets a few are chosen that explain the most.

use alloc::vec::Vec;
use core::fmt;

use super::{Least, Share, window::Case};
use crate::symptom::Kind;

/// More symptoms in one set are for nobody to read.
const ITEMS_MAX: u32 = 3;
/// Bits for kinds of symptoms of the place; as many follow for those of its host.
const KINDS: u32 = u64::BITS / 2;
const _: () = assert!(Kind::ALL.len() <= KINDS as usize);

/// A symptom in a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which.
    pub kind: Kind,
    /// Of any place of the host, and not only of the place itself.
    pub around: bool,
}

/// Symptoms that are there together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u64);

impl FromIterator<Item> for Set {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Self {
        let bit = |Item { kind, around }| 1 << (kind as u32 + if around { KINDS } else { 0 });
        Self(items.into_iter().map(bit).fold(0, |all, bit: u64| all | bit))
    }
}

impl FromIterator<Set> for Set {
    fn from_iter<I: IntoIterator<Item = Set>>(sets: I) -> Self {
        Self(sets.into_iter().fold(0, |all, set| all | set.0))
    }
}

impl Set {
    /// What it says of a place that a symptom was seen of the place, or else around it.
    pub(super) fn of_seen(kind: Kind, is_here: bool) -> Self {
        let items = [Item { kind, around: true }, Item { kind, around: false }];
        items.into_iter().take(1 + usize::from(is_here)).collect()
    }

    /// The symptoms, those of the place first.
    pub fn items(self) -> impl Iterator<Item = Item> {
        let all = [false, true]
            .into_iter()
            .flat_map(|around| Kind::ALL.iter().map(move |&kind| Item { kind, around }));
        all.filter(move |&item| self.holds([item].into_iter().collect()))
    }

    /// Whether all of another set is in it.
    fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The sets with one symptom more, each of which comes of one set only. A symptom of the place is one of
    /// its host, too.
    fn wider(self) -> impl Iterator<Item = Self> {
        let next = u64::BITS - self.0.leading_zeros();
        let wider = (next..u64::BITS).map(move |bit| Self(self.0 | 1 << bit));
        wider.filter(|set| set.0 & (set.0 >> KINDS) & ((1 << KINDS) - 1) == 0)
    }
}

/// The condition that they are there.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Item { kind, around }) in self.items().enumerate() {
            let (and, host) = (if at > 0 { " && " } else { "" }, if around { "host." } else { "" });
            write!(f, "{and}{host}{}.count > 0", kind.name())?;
        }
        Ok(())
    }
}

/// The sets that go with a fault, and how often one of them was there.
pub(super) fn learn(cases: &[Case<'_>], fault: &str, least: Least) -> (Vec<Set>, Share) {
    let share = |is_there: &dyn Fn(Set) -> bool| {
        let there = cases.iter().filter(|case| is_there(case.seen));
        Share::of(there.map(|case| case.faults.contains(fault)))
    };
    let minimal = minimal(least, |set| share(&|seen| seen.holds(set)));
    let occurrences = cases.iter().filter(|case| case.faults.contains(fault)).map(|case| case.seen);
    let chosen = choose(&minimal, occurrences.collect(), least);
    let all = share(&|seen| chosen.iter().any(|&set| seen.holds(set)));
    (chosen, all)
}

/// The sets with enough support and confidence of which no part has them.
fn minimal(least: Least, share: impl Fn(Set) -> Share) -> Vec<(Set, Share)> {
    let mut minimal = Vec::<(Set, Share)>::new();
    let mut frequent = Vec::from([Set::default()]);
    for _ in 0..ITEMS_MAX {
        let mut next = Vec::new();
        for set in frequent.iter().flat_map(|set| set.wider()) {
            if minimal.iter().any(|(part, _)| set.holds(*part)) {
                continue;
            }
            match share(set) {
                enough if enough.is_enough(least) => minimal.push((set, enough)),
                share if share.support >= least.support => next.push(set),
                _ => {}
            }
        }
        frequent = next;
    }
    minimal
}

/// Of these sets the one that explains the most occurrences most surely, then the one that does of those that
/// are left, and so on, as long as each explains enough. Of equal ones the first.
fn choose(minimal: &[(Set, Share)], mut left: Vec<Set>, least: Least) -> Vec<Set> {
    let mut chosen = Vec::new();
    loop {
        let explained = |set: Set| left.iter().filter(|seen| seen.holds(set)).count() as u32;
        let weight = |(set, share): &(Set, Share)| f64::from(explained(*set)) * share.confidence();
        let enough = minimal.iter().filter(|(set, _)| explained(*set) >= least.support);
        // Of equal ones the last is the greatest.
        let best = enough.rev().max_by(|a, b| weight(a).total_cmp(&weight(b)));
        let Some(&(best, _)) = best else { return chosen };
        chosen.push(best);
        left.retain(|seen| !seen.holds(best));
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;

    const LEAST: Least = Least { support: 3, confidence: 0.5 };

    /// A number of cases, the kinds that were seen of the place, those around it, and whether the fault was
    /// there.
    type Seen<'a> = (usize, &'a [Kind], &'a [Kind], bool);

    fn learnt(seen: &[Seen<'_>]) -> String {
        let case = |&(count, here, around, is_faulty): &Seen<'_>| {
            let here = here.iter().map(|&kind| Set::of_seen(kind, true));
            let seen = here.chain(around.iter().map(|&kind| Set::of_seen(kind, false))).collect();
            (0..count).map(move |_| Case { seen, faults: is_faulty.then_some("fault").into_iter().collect() })
        };
        let cases: Vec<Case<'_>> = seen.iter().flat_map(case).collect();
        let (sets, _) = learn(&cases, "fault", LEAST);
        sets.iter().map(Set::to_string).collect::<Vec<_>>().join(" || ")
    }

    #[test]
    fn the_sets_that_suffice_are_chosen() {
        use Kind::{Broken, Ended, Late, Steal};
        let table: &[(&[Seen<'_>], &str)] = &[
            (&[(3, &[Late], &[], true)], "late.count > 0"),
            // Too rare, or too often without the fault.
            (&[(2, &[Late], &[], true)], ""),
            (&[(3, &[Late], &[], true), (4, &[Late], &[], false)], ""),
            // Both together only.
            (
                &[(3, &[Late], &[Steal], true), (4, &[Late], &[], false), (4, &[], &[Steal], false)],
                "late.count > 0 && host.steal.count > 0",
            ),
            // A part that suffices is preferred, although the whole is surer.
            (
                &[
                    (2, &[Late], &[], true),
                    (4, &[Late, Ended], &[], true),
                    (4, &[Late], &[], false),
                    (5, &[Ended], &[], false),
                ],
                "late.count > 0",
            ),
            // What is surer is, although the other explains more.
            (&[(6, &[Late], &[], true), (1, &[], &[Late], true), (5, &[], &[Late], false)], "late.count > 0"),
            // Each explains some; what is there beside them explains nothing more.
            (
                &[(4, &[Ended], &[], true), (3, &[Broken, Steal], &[], true), (1, &[Steal], &[], false)],
                "ended.count > 0 || broken.count > 0",
            ),
        ];
        for (seen, expected) in table {
            assert_eq!(learnt(seen), *expected, "{seen:?}");
        }
    }
}
