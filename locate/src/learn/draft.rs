//! Writes what was learnt as a rule base, which people read before a job uses it.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use core::fmt;

use super::{Learnt, LearntRule, Share};
use crate::{
    rules::{Rule, RuleBase, Trigger},
    symptom::Kind,
};

impl Learnt {
    /// A rule base in TOML. The trigger, and how a fault is probed and what it explains, are those of
    /// `rules`. A fault has one rule: about the kind of place of which most was learnt.
    ///
    /// It has no rule, and so is none, if [nothing was learnt](Self::is_empty).
    pub fn draft(&self, rules: &RuleBase) -> String {
        let mut text = String::from(HEAD);
        let written = self.written();
        text += &trigger(rules.trigger(), &alone(written.values().copied()));
        for rule in written.values() {
            let known = rules.rules().iter().find(|it| (&it.fault, it.about) == (&rule.fault, rule.about));
            text += &self.rule(rule, known);
        }
        for LearntRule { fault, about, occurrences, when, .. } in &self.0 {
            let of = format!("{fault} of a {}, confirmed {occurrences} times", name(about));
            if when.is_empty() {
                text += &format!("\n# No symptoms go with {of}.\n");
            } else if written.get(fault.as_str()).is_some_and(|rule| rule.about != *about) {
                text += &format!("\n# No rule about {of}: a fault has one rule. Rename it in the records.\n");
            }
        }
        text
    }

    /// The rules to write, by name of the fault. Of several about one fault the one with the most support.
    fn written(&self) -> BTreeMap<&str, &LearntRule> {
        let mut written = BTreeMap::<&str, &LearntRule>::new();
        for rule in self.0.iter().filter(|rule| !rule.when.is_empty()) {
            let most = written.entry(&rule.fault).or_insert(rule);
            if rule.share.support > most.share.support {
                *most = rule;
            }
        }
        written
    }

    fn concludes(&self, fault: &str) -> bool {
        self.0.iter().any(|rule| rule.fault == fault && !rule.when.is_empty())
    }

    fn rule(&self, rule: &LearntRule, known: Option<&Rule>) -> String {
        let LearntRule { fault, about, occurrences, when, share, sequences } = rule;
        let Share { support, .. } = share;
        let mut text = format!(
            "\n# {support} of {occurrences} occurrences had these symptoms, with which it was confirmed in {}.\n",
            Told(*share)
        );
        for sequence in sequences {
            text += &format!("# Came before it: {sequence}: {}.\n", Told(sequence.share));
        }
        if known.is_none() {
            text += "# Nothing is probed, so symptoms alone confirm it. Are there probes that would, or would not?\n";
        }
        let says = known.map(|known| format!("{}; ", known.says)).unwrap_or_default();
        let plural = if *support == 1 { "" } else { "s" };
        let says = format!("{says}learnt from {support} occurrence{plural}");
        let when: Vec<String> = when.iter().map(|set| format!("{set}")).collect();
        text += &format!("[[rule]]\nfault = {fault:?}\nsays = {says:?}\nabout = \"{}\"\n", name(about));
        text += &format!("when = {:?}\n", when.join(" || "));
        text += &format!("confidence = {:.2}\n", share.confidence().max(0.01));
        if let Some(known) = known {
            text += &self.like(known);
        }
        text
    }

    /// What is not learnt, but stays as it is in a rule about the same fault.
    fn like(&self, known: &Rule) -> String {
        let mut text = String::new();
        if let Some(confirm) = &known.confirm {
            let probes: Vec<String> =
                known.probes.iter().map(|probe| format!("\"{}\"", name(probe))).collect();
            text += &format!("probes = [{}]\nconfirm = \"{confirm}\"\n", probes.join(", "));
        }
        let covers = known.covers.iter().filter(|fault| self.concludes(fault));
        let covers: Vec<String> = covers.map(|fault| format!("{fault:?}")).collect();
        if !covers.is_empty() {
            text += &format!("covers = [{}]\n", covers.join(", "));
        }
        for (key, is) in [("harmless", known.harmless), ("stops", known.stops)] {
            if is {
                text += &format!("{key} = true\n");
            }
        }
        text
    }
}

/// Symptoms of which one alone concludes a fault.
fn alone<'a>(rules: impl Iterator<Item = &'a LearntRule>) -> Vec<Kind> {
    let sets = rules.flat_map(|rule| &rule.when).map(|set| set.items().collect::<Vec<_>>());
    sets.filter(|items| items.len() == 1).map(|items| items[0].kind).collect()
}

const HEAD: &str = "\
# Learnt from recorded symptoms. A draft: read it, and add rules about faults that are missing, before a job uses it.

";

fn trigger(trigger: &Trigger, alone: &[Kind]) -> String {
    let Trigger { symptoms, at_once, settle_ms, window_ms, probe_ms, quiet_ms } = trigger;
    let at_once = Kind::ALL.iter().filter(|kind| at_once.contains(kind) || alone.contains(kind));
    let at_once: Vec<String> = at_once.map(|kind| format!("{:?}", kind.name())).collect();
    format!(
        "[trigger]\nsymptoms = {symptoms}\nat_once = [{}]\nsettle_ms = {settle_ms}\nwindow_ms = {window_ms}\n\
         probe_ms = {probe_ms}\nquiet_ms = {quiet_ms}\n",
        at_once.join(", ")
    )
}

/// A name of a unit variant in a rule base.
fn name(of: impl fmt::Debug) -> String {
    format!("{of:?}").to_lowercase()
}

/// A share for people.
struct Told(Share);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Share { support, windows } = self.0;
        write!(f, "{support} of {windows} windows, {:.0} %", self.0.confidence() * 100.0)
    }
}
