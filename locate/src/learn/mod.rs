//! Rules from history (FL-6): which symptoms went with which faults that were confirmed, in the records of
//! earlier jobs.
//!
//! | module | does |
//! |---|---|
//! | [`record`] | the lines in which localisation nodes, and people, note symptoms and confirmed faults |
//! | `window` | cuts them into windows: the symptoms of one host within the trigger's window |
//! | `sets` | finds the symptoms that go with a fault: association rules, by Apriori |
//! | `sequences` | finds the orders in which symptoms come before a fault |
//! | `draft` | writes a rule base |
//!
//! Deliberately absent: conditions that a symptom is *not* there, values and witnesses, and faults of
//! domains.

mod draft;
pub mod record;
mod sequences;
mod sets;
mod window;

use alloc::{collections::BTreeSet, string::String, vec::Vec};

use self::{record::Line, window::Window};
pub use self::{
    sequences::Sequence,
    sets::{Item, Set},
};
use crate::{place::Scope, rules::RuleBase};

/// What has to be there before a rule is learnt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Least {
    /// The fewest occurrences of a fault.
    pub support: u32,
    /// The least share of the windows with the symptoms in which the fault was confirmed, between 0 and 1.
    pub confidence: f64,
}

impl Default for Least {
    fn default() -> Self {
        Self { support: 3, confidence: 0.3 }
    }
}

/// How often symptoms were seen, and how often a fault was confirmed then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Windows with the symptoms in which the fault was confirmed.
    pub support: u32,
    /// All windows with the symptoms.
    pub windows: u32,
}

impl Share {
    /// The share of the windows with the symptoms in which the fault was confirmed.
    pub fn confidence(self) -> f64 {
        f64::from(self.support) / f64::from(self.windows.max(1))
    }

    fn is_enough(self, least: Least) -> bool {
        self.support >= least.support && self.confidence() >= least.confidence
    }

    /// Counts, of windows with the symptoms, whether the fault was confirmed.
    fn of(windows: impl Iterator<Item = bool>) -> Self {
        windows.fold(Self::default(), |it, is_confirmed| Self {
            support: it.support + u32::from(is_confirmed),
            windows: it.windows + 1,
        })
    }
}

/// What was learnt about a fault.
#[derive(Clone, Debug, PartialEq)]
pub struct LearntRule {
    /// The fault.
    pub fault: String,
    /// What kind of place has it.
    pub about: Scope,
    /// How often it was confirmed.
    pub occurrences: u32,
    /// The symptoms that go with it. One of the sets has to be there; if there is none, no rule was learnt.
    pub when: Vec<Set>,
    /// How often one of the sets was there, and the fault with it.
    pub share: Share,
    /// Orders in which symptoms came before it: those with the most support.
    pub sequences: Vec<Sequence>,
}

/// What was learnt, by name of the fault.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learnt(pub Vec<LearntRule>);

impl Learnt {
    /// Whether there is not one rule.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|rule| rule.when.is_empty())
    }
}

/// Learns from records what `rules` with that trigger could have concluded.
pub fn learn(lines: &[Line], rules: &RuleBase, least: Least) -> Learnt {
    let windows = window::cut(lines, rules.trigger().window());
    let faults: BTreeSet<(&str, Scope)> = windows.iter().flat_map(Window::faults).collect();
    let rule = |(fault, about): (&str, Scope)| {
        let cases = window::cases(&windows, about);
        let (when, share) = sets::learn(&cases, fault, least);
        let occurrences = cases.iter().filter(|case| case.faults.contains(fault)).count() as u32;
        let sequences = sequences::learn(&windows, (fault, about), least);
        LearntRule { fault: fault.into(), about, occurrences, when, share, sequences }
    };
    Learnt(faults.into_iter().map(rule).collect())
}
