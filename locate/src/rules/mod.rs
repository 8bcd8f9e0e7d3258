//! The rule base (FL-6): a TOML file, compiled completely or not at all.
//!
//! [`RuleBase::parse`] either returns a rule base that every machine can use, or says in which line and at
//! which key it is wrong. A machine swaps a whole rule base for another, so that a bad file changes nothing.

mod condition;
mod name;

use alloc::{
    collections::BTreeSet,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::{ops::Range, time::Duration};

use serde::Deserialize;
use toml::Spanned;

pub use self::{
    condition::{Condition, ConditionError},
    name::{Name, What},
};
use crate::{place::Scope, probe::Probe, symptom::Kind};

/// The rules that everfold comes with.
pub const DEFAULT: &str = include_str!("default.toml");

/// When and how symptoms are analysed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// So many different symptoms of one host begin an analysis.
    pub symptoms: u32,
    /// Each symptom of these kinds begins one alone.
    pub at_once: Vec<Kind>,
    /// How long the analysis waits for more, in milliseconds.
    pub settle_ms: u32,
    /// How long a symptom counts, in milliseconds (the paper's T).
    pub window_ms: u32,
    /// How long a probe may take, in milliseconds.
    pub probe_ms: u32,
    /// After how long without symptoms probes look whether a located fault is over, in milliseconds. While it
    /// lasts, they look again after the same time, so that this is at least 100.
    pub quiet_ms: u32,
}

/// With a shorter [`Trigger::quiet_ms`] a node would do little but probe what it has located.
const QUIET_MS_LEAST: u32 = 100;

impl Trigger {
    /// Why it cannot be used.
    fn unfit(&self) -> Option<String> {
        if self.symptoms == 0 || self.window_ms <= self.settle_ms || self.probe_ms == 0 {
            let reason = "symptoms and probe_ms have to be at least 1, and window_ms longer than settle_ms";
            return Some(reason.to_string());
        }
        (self.quiet_ms < QUIET_MS_LEAST).then(|| {
            format!("quiet_ms has to be at least {QUIET_MS_LEAST}: located faults are probed that often")
        })
    }

    pub(crate) fn settle(&self) -> Duration {
        Duration::from_millis(self.settle_ms.into())
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms.into())
    }

    pub(crate) fn probe(&self) -> Duration {
        Duration::from_millis(self.probe_ms.into())
    }

    pub(crate) fn quiet(&self) -> Duration {
        Duration::from_millis(self.quiet_ms.into())
    }
}

/// Whether a rule may call a fault so: in `snake_case`.
pub fn is_fault(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// IF a condition holds THEN there may be a fault; probes confirm it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The fault, in `snake_case`.
    pub fault: String,
    /// What it says to people.
    pub says: String,
    /// What kind of place has the fault.
    pub about: Scope,
    /// When it may be.
    pub when: Condition,
    /// How sure the rule is before anything is probed, between 0 and 1.
    pub confidence: f64,
    /// What to ask, in this order.
    pub probes: Vec<Probe>,
    /// When answers confirm it. A rule without probes needs none.
    pub confirm: Option<Condition>,
    /// Faults of this place, or of anything on this host, that it explains: they are superseded once it is
    /// confirmed.
    pub covers: Vec<String>,
    /// Whether it is the application's doing, and no fault of a component.
    pub harmless: bool,
    /// Whether nothing runs on the host meanwhile, so that it does not locate faults either.
    pub stops: bool,
}

/// Rules that were compiled together.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleBase {
    trigger: Trigger,
    rules: Vec<Rule>,
}

/// Why a text is no rule base. Nothing was changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {key}: {reason}")]
pub struct RuleError {
    /// The line, from 1.
    pub line: usize,
    /// The key, or the rule's fault and the key.
    pub key: String,
    /// What is wrong.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    trigger: Spanned<Trigger>,
    rule: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    fault: Spanned<String>,
    says: String,
    about: Scope,
    when: Spanned<String>,
    confidence: Spanned<f64>,
    #[serde(default)]
    probes: Vec<Probe>,
    confirm: Option<Spanned<String>>,
    #[serde(default)]
    covers: Vec<Spanned<String>>,
    #[serde(default)]
    harmless: bool,
    stops: Option<Spanned<bool>>,
}

impl RuleBase {
    /// Compiles a rule base.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and key.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let file: File = toml::from_str(text).map_err(|error| RuleError {
            line: line(text, &error.span().unwrap_or(0..0)),
            key: "the file".to_string(),
            reason: error.message().to_string(),
        })?;
        let trigger = file.trigger.get_ref();
        if let Some(reason) = trigger.unfit() {
            return Err(RuleError {
                line: line(text, &file.trigger.span()),
                key: "trigger".to_string(),
                reason,
            });
        }
        let mut names = BTreeSet::new();
        if let Some(again) = file.rule.iter().find(|rule| !names.insert(rule.fault.get_ref())) {
            return Err(RuleError {
                line: line(text, &again.fault.span()),
                key: format!("rule {}: fault", again.fault.get_ref()),
                reason: "an earlier rule concludes it: join their conditions with ||, or rename one of them"
                    .to_string(),
            });
        }
        let faults: Vec<&str> = file.rule.iter().map(|rule| rule.fault.get_ref().as_str()).collect();
        let rules = file.rule.iter().map(|rule| rule.compile(text, &faults)).collect::<Result<_, _>>()?;
        Ok(Self { trigger: trigger.clone(), rules })
    }

    /// When and how symptoms are analysed.
    pub fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    /// The rules, in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether nothing runs on a host with this fault.
    pub fn stops(&self, fault: &str) -> bool {
        self.position(fault).is_some_and(|index| self.rules[index].stops)
    }

    /// Whether a fault explains another one of the same place, or of its host.
    pub(crate) fn covers(&self, fault: &str, other: &str) -> bool {
        let rule = self.position(fault).map(|index| &self.rules[index]);
        rule.is_some_and(|rule| rule.covers.iter().any(|covered| covered == other))
    }

    /// Where the rule about this fault stands among them.
    pub(crate) fn position(&self, fault: &str) -> Option<usize> {
        self.rules.iter().position(|rule| rule.fault == fault)
    }
}

impl Default for RuleBase {
    fn default() -> Self {
        Self::parse(DEFAULT).expect("a test compiles the rules that everfold comes with")
    }
}

impl Written {
    fn compile(&self, text: &str, faults: &[&str]) -> Result<Rule, RuleError> {
        let fault = self.fault.get_ref();
        let error = |key: &str, span: Range<usize>, reason: String| RuleError {
            line: line(text, &span),
            key: format!("rule {fault}: {key}"),
            reason,
        };
        let condition = |key: &str, written: &Spanned<String>| {
            let compiled = Condition::parse(written.get_ref());
            let compiled = compiled.map_err(|wrong| error(key, written.span(), wrong.to_string()))?;
            let unfit = self.unfit(key, &compiled, faults);
            unfit.map_or(Ok(compiled), |reason| Err(error(key, written.span(), reason)))
        };
        if !is_fault(fault) {
            return Err(error("fault", self.fault.span(), "a fault is written in snake_case".to_string()));
        }
        let confidence = *self.confidence.get_ref();
        if !(confidence > 0.0 && confidence <= 1.0) {
            return Err(error(
                "confidence",
                self.confidence.span(),
                "has to be over 0 and at most 1".to_string(),
            ));
        }
        if self.probes.is_empty() != self.confirm.is_none() {
            let reason = "probes need confirm, and confirm needs probes".to_string();
            return Err(error("confirm", self.fault.span(), reason));
        }
        if self.about == Scope::Domain && !self.probes.is_empty() {
            let reason = "a fault of a domain follows from confirmed ones, and is not probed".to_string();
            return Err(error("probes", self.fault.span(), reason));
        }
        let stops = self.stops.as_ref().filter(|stops| *stops.get_ref());
        if let Some(stops) = stops
            && self.about != Scope::Host
        {
            return Err(error("stops", stops.span(), "only a host can stop".to_string()));
        }
        if let Some(unknown) =
            self.covers.iter().find(|covered| !faults.contains(&covered.get_ref().as_str()))
        {
            let reason = format!("no rule concludes {:?}", unknown.get_ref());
            return Err(error("covers", unknown.span(), reason));
        }
        Ok(Rule {
            fault: fault.clone(),
            says: self.says.clone(),
            about: self.about,
            when: condition("when", &self.when)?,
            confidence,
            probes: self.probes.clone(),
            confirm: self.confirm.as_ref().map(|written| condition("confirm", written)).transpose()?,
            covers: self.covers.iter().map(|covered| covered.get_ref().clone()).collect(),
            harmless: self.harmless,
            stops: stops.is_some(),
        })
    }

    /// Why a condition cannot be used here.
    fn unfit(&self, key: &str, condition: &Condition, faults: &[&str]) -> Option<String> {
        let mut reason = None;
        condition.names(&mut |name| {
            let of_domain = matches!(name, Name::Hosts | Name::Confirmed(_));
            let found = match name {
                Name::Found(fault) | Name::Confirmed(fault) if !faults.contains(&fault.as_str()) => {
                    format!("no rule concludes {fault:?}")
                }
                Name::Probe(_) if key == "when" => {
                    "nothing is probed yet; use probe.… in confirm".to_string()
                }
                _ if key == "when" && of_domain != (self.about == Scope::Domain) => {
                    "hosts and confirmed.… are for rules about a domain, all else for the others".to_string()
                }
                Name::Found(_) if key == "confirm" => {
                    "what else is concluded is for when; use symptoms and probe.… in confirm".to_string()
                }
                _ if key == "confirm" && of_domain => {
                    "hosts and confirmed.… are for rules about a domain".to_string()
                }
                _ => return,
            };
            reason.get_or_insert(found);
        });
        reason
    }
}

fn line(text: &str, span: &Range<usize>) -> usize {
    text.bytes().take(span.start).filter(|&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_that_come_with_everfold_locate_each_kind() {
        let rules = RuleBase::parse(DEFAULT).unwrap();
        for fault in [
            "process_crashed",
            "out_of_memory",
            "host_dead",
            "host_frozen",
            "host_overloaded",
            "link_slow",
            "link_lossy",
            "domain_bad",
            "disk_failing",
            "disk_full",
            "rank_diverges",
            "unbalanced",
            "never_called",
        ] {
            assert!(rules.rules().iter().any(|rule| rule.fault == fault), "{fault}");
        }
    }

    #[test]
    fn an_error_names_line_and_key() {
        for (from, to, key) in [
            ("broken.count > 0", "brocken.count > 0", "rule host_dead: when"),
            ("probe.answers == 0 &&", "probe.answers &&", "rule host_dead: confirm"),
            ("probe.answers == 0 &&", "found.host_frozen > 0 &&", "rule host_dead: confirm"),
            ("confidence = 0.9", "confidence = 9.0", "rule host_dead: confidence"),
        ] {
            let at = DEFAULT.find("fault = \"host_dead\"").unwrap();
            let (before, after) = DEFAULT.split_at(at);
            assert!(after.contains(from), "{from}");
            let text = format!("{before}{}", after.replacen(from, to, 1));
            let error = RuleBase::parse(&text).unwrap_err();
            assert_eq!(error.key, key);
            let wrong = text.lines().nth(error.line - 1).unwrap();
            assert!(wrong.contains(to), "line {} is {wrong}", error.line);
        }
    }

    #[test]
    fn a_located_fault_that_would_be_probed_without_pause_is_refused() {
        for (quiet_ms, is_refused) in [(0, true), (QUIET_MS_LEAST - 1, true), (QUIET_MS_LEAST, false)] {
            let parsed =
                RuleBase::parse(&DEFAULT.replace("quiet_ms = 30000", &format!("quiet_ms = {quiet_ms}")));
            let error = parsed.err().map(|error| (error.key, error.reason.contains("quiet_ms")));
            assert_eq!(error, is_refused.then(|| ("trigger".to_string(), true)), "{quiet_ms}");
        }
    }

    #[test]
    fn a_fault_of_two_rules_is_refused_where_it_stands_again() {
        let name = "fault = \"host_dead\"";
        let text = DEFAULT.replace("fault = \"host_frozen\"", name);
        let error = RuleBase::parse(&text).unwrap_err();
        assert_eq!(error.key, "rule host_dead: fault");
        let named: Vec<usize> = (1..).zip(text.lines()).filter(|it| it.1 == name).map(|it| it.0).collect();
        assert_eq!(named.len(), 2);
        assert_eq!(error.line, named[1]);
    }

    #[test]
    fn a_fault_that_no_rule_concludes_is_refused() {
        let text = DEFAULT.replace("confirmed.host_dead", "confirmed.host_ded");
        assert!(RuleBase::parse(&text).unwrap_err().reason.contains("host_ded"));
    }
}
