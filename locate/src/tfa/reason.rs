//! Reason (FL-4): forward chaining from symptoms to candidates.

use alloc::{vec, vec::Vec};

use super::evidence::Evidence;
use crate::{
    place::{Host, Place, Scope},
    rules::{Name, RuleBase},
};

/// A fault that may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    /// Index of the rule.
    pub(super) rule: usize,
    pub(super) place: Place,
}

/// All that the rules conclude from a group: the surest first, then the widest.
///
/// Rules are applied in the order of the rule base until none concludes anything new. A rule that says `!found.FAULT` therefore
/// stands behind the rule that concludes that fault.
pub(super) fn candidates(rules: &RuleBase, host: Host, evidence: &Evidence) -> Vec<Candidate> {
    let places = evidence.places();
    let mut found: Vec<Candidate> = Vec::new();
    loop {
        let before = found.len();
        for (index, rule) in rules.rules().iter().enumerate() {
            let about = match rule.about {
                Scope::Host => vec![Place::Host(host)],
                scope => places.iter().copied().filter(|place| place.scope() == scope).collect(),
            };
            for place in about {
                let candidate = Candidate { rule: index, place };
                let holds = rule.when.holds(&|name| value(rules, evidence, &found, place, name));
                if holds == Some(true) && !found.contains(&candidate) {
                    found.push(candidate);
                }
            }
        }
        if found.len() == before {
            break;
        }
    }
    let confidence = |candidate: &Candidate| rules.rules()[candidate.rule].confidence;
    found.sort_by(|a, b| confidence(b).total_cmp(&confidence(a)).then(a.place.cmp(&b.place)));
    found
}

fn value(
    rules: &RuleBase,
    evidence: &Evidence,
    found: &[Candidate],
    place: Place,
    name: &Name,
) -> Option<f64> {
    match name {
        Name::Seen { kind, what, around } => Some(evidence.value(*kind, (!around).then_some(place), *what)),
        Name::Found(fault) => {
            let near = |at: Place| at == place || at.scope() == Scope::Host;
            let is = |it: &Candidate| rules.rules()[it.rule].fault == *fault && near(it.place);
            Some(f64::from(u8::from(found.iter().any(is))))
        }
        Name::Probe(_) | Name::Confirmed(_) | Name::Hosts => None,
    }
}
