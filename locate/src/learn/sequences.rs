//! Frequent sequences: orders in which symptoms of a host come before a fault. Conditions have no order, so
//! these are for people.

use alloc::{collections::BTreeMap, vec::Vec};
use core::{fmt, time::Duration};

use super::{Least, Share, window::Window};
use crate::{place::Scope, symptom::Kind};

/// Longest sequence.
const KINDS_MAX: usize = 3;
/// Sequences that are told of one fault, at most.
const TOLD_MAX: usize = 5;

/// Symptoms that were seen one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// In this order.
    pub kinds: Vec<Kind>,
    /// How often, and how often the fault followed.
    pub share: Share,
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.kinds.iter().map(|kind| kind.name()).collect();
        f.write_str(&names.join(", then "))
    }
}

/// When each kind was first seen in a window.
type Firsts = BTreeMap<Kind, Duration>;

/// The sequences before a fault that have enough support and confidence: those with the most support, and of
/// longer and shorter ones that are there equally often the longer.
pub(super) fn learn(windows: &[Window<'_>], fault: (&str, Scope), least: Least) -> Vec<Sequence> {
    let windows: Vec<(Firsts, bool)> =
        windows.iter().map(|window| (firsts(window), window.faults().any(|it| it == fault))).collect();
    let mut found = Vec::<Sequence>::new();
    let mut frequent: Vec<Vec<Kind>> = Kind::ALL.iter().map(|&kind| Vec::from([kind])).collect();
    for _ in 1..KINDS_MAX {
        let longer = frequent.iter().flat_map(|kinds| {
            let others = Kind::ALL.iter().filter(|kind| !kinds.contains(kind));
            others.map(|kind| [&kinds[..], &[*kind]].concat())
        });
        let share = |kinds: &[Kind]| {
            let there = windows.iter().filter(|(firsts, _)| is_ordered(firsts, kinds));
            Share::of(there.map(|(_, is_confirmed)| *is_confirmed))
        };
        let longer = longer.map(|kinds| Sequence { share: share(&kinds), kinds });
        let longer: Vec<Sequence> = longer.filter(|it| it.share.support >= least.support).collect();
        frequent = longer.iter().map(|it| it.kinds.clone()).collect();
        found.retain(|it| !longer.iter().any(|longer| it.is_told_by(longer)));
        found.extend(longer);
    }
    found.retain(|it| it.share.is_enough(least));
    found.sort_by_key(|it| (core::cmp::Reverse(it.share.support), it.share.windows));
    found.truncate(TOLD_MAX);
    found
}

fn firsts(window: &Window<'_>) -> Firsts {
    let mut firsts = Firsts::new();
    for &(at, kind, _) in &window.seen {
        firsts.entry(kind).or_insert(at);
    }
    firsts
}

fn is_ordered(firsts: &Firsts, kinds: &[Kind]) -> bool {
    let times: Option<Vec<&Duration>> = kinds.iter().map(|kind| firsts.get(kind)).collect();
    times.is_some_and(|times| times.is_sorted_by(|a, b| a < b))
}

impl Sequence {
    /// Whether a longer one says the same and more.
    fn is_told_by(&self, longer: &Self) -> bool {
        let mut kinds = longer.kinds.iter();
        self.share == longer.share && self.kinds.iter().all(|kind| kinds.any(|it| it == kind))
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::String};

    use super::{
        super::{record, window},
        *,
    };

    #[test]
    fn the_longest_of_what_is_there_equally_often_is_told_and_what_is_there_more_often_before_it() {
        let mut text = String::new();
        for (begin, kinds) in [(100, 3), (200, 3), (300, 2), (400, 1)] {
            for (after, kind) in ["steal", "late", "ended"].into_iter().enumerate().take(kinds) {
                text += &format!("ab {begin}.{after} seen {kind} host0 by host0 value 1\n");
            }
            text += &format!("ab {begin}.9 confirmed worn host0\nab {begin}.9 over worn host0\n");
        }
        let lines = record::parse(&text).unwrap();
        let windows = window::cut(&lines, Duration::from_secs(3));
        let found = learn(&windows, ("worn", Scope::Host), Least { support: 2, confidence: 1.0 });
        let told: Vec<String> = found.iter().map(|it| format!("{it} {}", it.share.support)).collect();
        assert_eq!(told, ["steal, then late 3", "steal, then late, then ended 2"]);
    }
}
