//! TFA (FL-4, algorithm 2 of the paper): purify, group, reason, and probe until faults are confirmed.

mod evidence;
mod reason;

use alloc::{
    collections::{BTreeMap, VecDeque},
    format,
    string::String,
    vec::Vec,
};

use core::time::Duration;

use everfold_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use self::{evidence::Evidence, reason::Candidate};
use crate::{
    place::{Host, Place},
    probe::{Answer, Probe, Reading},
    rules::{Name, Rule, RuleBase},
    symptom::{Kind, Symptom},
};

/// A probe of a link loads that link. So a link that was probed, and found to be well, is not probed again for
/// this many times as long as the probe took, or [`quiet_ms`](crate::rules::Trigger::quiet_ms) if that is
/// shorter: however often a symptom speaks against it, probes take about a hundredth of its time.
const LINK_RESTS: u32 = 100;

/// Names a probe until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Question(pub u64);

/// What has become of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finding {
    /// Probes have confirmed it.
    Confirmed,
    /// Probes speak against it.
    Rejected,
    /// A fault that was confirmed explains it.
    Superseded,
    /// It was confirmed, and is over: nothing was observed of it for a while, and probes do not confirm it
    /// any more.
    Over,
}

/// Symptoms of one kind and place that one host has observed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// What was observed.
    pub kind: Kind,
    /// What it is about.
    pub place: Place,
    /// The host that has observed it.
    pub witness: Host,
    /// How often.
    pub count: u32,
    /// The worst value.
    pub value: f64,
}

impl Seen {
    /// The same for people, who call the place by this name.
    pub fn told(&self, place: &str) -> String {
        let Self { kind, count, value, .. } = self;
        let mut told = format!("{} of {place}", kind.name());
        match kind.unit() {
            "" => {}
            unit if unit.starts_with("of the time") || unit == "used" => {
                told += &format!(", {:.0} % {unit}", value * 100.0);
            }
            unit => told += &format!(", {value:.1} {unit}"),
        }
        if *count > 1 {
            told += &format!(", {count} times");
        }
        told
    }
}

/// A candidate that was decided about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Which fault, as rules call it.
    pub fault: String,
    /// What it says to people.
    pub says: String,
    /// Where it is.
    pub place: Place,
    /// For how long its symptoms had been observed when it was decided about.
    pub age: Duration,
    /// What speaks for it.
    pub evidence: Vec<Seen>,
    /// How sure the rule was before it was probed.
    pub confidence: f64,
    /// What has become of it.
    pub finding: Finding,
    /// Whether it is the application's doing.
    pub harmless: bool,
}

impl Verdict {
    pub(crate) fn new(rule: &Rule, place: Place, finding: Finding) -> Self {
        Self {
            fault: rule.fault.clone(),
            says: rule.says.clone(),
            place,
            age: Duration::ZERO,
            evidence: Vec::new(),
            confidence: rule.confidence,
            finding,
            harmless: rule.harmless,
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ask, and call [`Tfa::handle_answer`].
    Ask {
        /// What to answer to.
        question: Question,
        /// What to ask.
        probe: Probe,
        /// About what.
        place: Place,
    },
    /// Tell the root.
    Report(Verdict),
}

/// The machine of a localisation node.
#[derive(Debug, Default)]
pub struct Tfa {
    rules: RuleBase,
    cases: BTreeMap<Host, Case>,
    next: u64,
    outbox: VecDeque<Action>,
}

/// What is going on about one host.
#[derive(Debug, Default)]
struct Case {
    evidence: Evidence,
    begins: Option<Timestamp>,
    candidates: VecDeque<Candidate>,
    asked: Option<Asked>,
    /// What was answered since this analysis began: nothing is asked twice.
    answered: Vec<(Probe, Place, Answer)>,
    /// What was confirmed.
    known: Vec<Known>,
    /// Places that are not to be probed for faults of links before these times.
    resting: Vec<(Place, Timestamp)>,
}

/// A fault that was confirmed, and when its symptoms, or else probes, last spoke for it.
#[derive(Clone, Copy, Debug)]
struct Known {
    fault: Candidate,
    since: Timestamp,
}

#[derive(Debug)]
struct Asked {
    question: Question,
    since: Timestamp,
    due: Timestamp,
    step: usize,
    answers: Vec<(Reading, f64)>,
}

impl Case {
    /// When it is to be analysed, or a fault looked at again, if no question about it is open.
    fn due(&self, quiet: Duration) -> Option<Timestamp> {
        self.known.iter().map(|known| known.since + quiet).chain(self.begins).min()
    }

    /// Leaves the links of a place alone, after a probe that took so long. Of several places each rests longer,
    /// as all probes about a host pass its link.
    fn rest(&mut self, now: Timestamp, took: Duration, place: Place, longest: Duration) {
        self.resting.retain(|(other, until)| *other != place && *until > now);
        let places = self.resting.len() as u32 + 1;
        self.resting.push((place, now + (took * LINK_RESTS * places).min(longest)));
    }

    /// Whether the links of a place are left alone.
    fn rests(&self, now: Timestamp, place: Place) -> bool {
        self.resting.iter().any(|(of, until)| *of == place && *until > now)
    }

    fn knows(&self, fault: Candidate) -> bool {
        self.known.iter().any(|known| known.fault == fault)
    }
}

impl Tfa {
    /// A machine that uses these rules.
    pub fn new(rules: RuleBase) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Swaps the rules (FL-6). What was being analysed is analysed again. What was confirmed is over if there
    /// is no rule about it any more.
    pub fn deploy(&mut self, now: Timestamp, rules: RuleBase) {
        let before = core::mem::replace(&mut self.rules, rules);
        for case in self.cases.values_mut() {
            let mut known = Vec::new();
            for Known { fault: Candidate { rule, place }, since } in core::mem::take(&mut case.known) {
                let rule = &before.rules()[rule];
                match self.rules.position(&rule.fault) {
                    Some(rule) => known.push(Known { fault: Candidate { rule, place }, since }),
                    None => self.outbox.push_back(Action::Report(Verdict::new(rule, place, Finding::Over))),
                }
            }
            *case = Case {
                evidence: core::mem::take(&mut case.evidence),
                begins: Some(now + self.rules.trigger().settle()),
                known,
                ..Case::default()
            };
        }
    }

    /// A symptom has arrived, or was observed here.
    pub fn handle_symptom(&mut self, now: Timestamp, symptom: &Symptom) {
        let Some(host) = symptom.suspect.host() else { return };
        let trigger = self.rules.trigger();
        let case = self.cases.entry(host).or_default();
        case.evidence.add(now, symptom);
        case.evidence.expire(now, trigger.window());
        let is_enough =
            case.evidence.len() >= trigger.symptoms as usize || trigger.at_once.contains(&symptom.kind);
        if is_enough && case.begins.is_none() {
            case.begins = Some(now + trigger.settle());
        }
    }

    /// A fault is known that another node has confirmed: sees that it is found out when it is over.
    pub fn watch(&mut self, now: Timestamp, fault: &str, place: Place) {
        let (Some(rule), Some(host)) = (self.rules.position(fault), place.host()) else { return };
        let (case, fault) = (self.cases.entry(host).or_default(), Candidate { rule, place });
        if !case.knows(fault) {
            case.known.push(Known { fault, since: now });
        }
    }

    /// A probe was answered. What nobody has asked, or no longer waits for, is ignored.
    pub fn handle_answer(&mut self, now: Timestamp, question: Question, answer: Answer) {
        let asked = |case: &Case| case.asked.as_ref().is_some_and(|asked| asked.question == question);
        let Some((&host, case)) = self.cases.iter_mut().find(|(_, case)| asked(case)) else { return };
        if let (Some(asked), Some(candidate)) = (&case.asked, case.candidates.front()) {
            let probe = self.rules.rules()[candidate.rule].probes[asked.step];
            let (took, place) = (now.since(asked.since), candidate.place);
            case.answered.push((probe, place, answer.clone()));
            if probe == Probe::Link {
                case.rest(now, took, place, self.rules.trigger().quiet());
            }
        }
        self.weigh(now, host, answer);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.wait_anew(now);
        let due = |case: &Case| case.asked.as_ref().is_some_and(|asked| asked.due <= now);
        let silent: Vec<Host> =
            self.cases.iter().filter(|(_, case)| due(case)).map(|(&host, _)| host).collect();
        for host in silent {
            self.miss(now, host);
        }
        let quiet = self.rules.trigger().quiet();
        let is_due = |case: &Case| case.asked.is_none() && case.due(quiet).is_some_and(|due| due <= now);
        let ready: Vec<Host> =
            self.cases.iter().filter(|(_, case)| is_due(case)).map(|(&host, _)| host).collect();
        for host in ready {
            self.analyse(now, host);
        }
    }

    /// No more symptoms come: whatever has begun is analysed at once.
    pub fn handle_end(&mut self, now: Timestamp) {
        let waits = |case: &Case| case.asked.is_none() && case.begins.is_some();
        let ready: Vec<Host> =
            self.cases.iter().filter(|(_, case)| waits(case)).map(|(&host, _)| host).collect();
        ready.into_iter().for_each(|host| self.analyse(now, host));
    }

    /// Whether it waits for answers.
    pub fn waits(&self) -> bool {
        self.cases.values().any(|case| case.asked.is_some())
    }

    /// When to call [`Tfa::handle_timeout`] next.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let quiet = self.rules.trigger().quiet();
        let due = |case: &Case| case.asked.as_ref().map(|asked| asked.due).or_else(|| case.due(quiet));
        self.cases.values().filter_map(due).min()
    }

    /// What to do next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.outbox.pop_front()
    }

    fn analyse(&mut self, now: Timestamp, host: Host) {
        let Some(case) = self.cases.get_mut(&host) else { return };
        case.begins = None;
        case.evidence.expire(now, self.rules.trigger().window());
        let mut candidates = reason::candidates(&self.rules, host, &case.evidence);
        for Known { fault, since } in &mut case.known {
            if candidates.contains(fault) {
                *since = now;
            }
            candidates.retain(|candidate| fault != candidate && !covers(&self.rules, *fault, *candidate));
        }
        let probes_links =
            |candidate: &Candidate| self.rules.rules()[candidate.rule].probes.contains(&Probe::Link);
        candidates.retain(|candidate| !probes_links(candidate) || !case.rests(now, candidate.place));
        // What nothing was observed of for a while may be over.
        let quiet = self.rules.trigger().quiet();
        let is_quiet = |known: &&Known| now.since(known.since) >= quiet;
        candidates.extend(case.known.iter().filter(is_quiet).map(|known| known.fault));
        case.candidates = candidates.into();
        case.answered.clear();
        self.ask_next(now, host);
    }

    /// Goes on with the next candidate.
    fn ask_next(&mut self, now: Timestamp, host: Host) {
        while let Some(candidate) = self.cases.get(&host).and_then(|case| case.candidates.front().copied()) {
            if !self.rules.rules()[candidate.rule].probes.is_empty() {
                return self.ask(now, host, 0, Vec::new());
            }
            // Symptoms alone speak for it, and of what is known there are none any more.
            let is_new = !self.cases.get(&host).is_some_and(|case| case.knows(candidate));
            self.decide(now, host, is_new);
        }
    }

    fn ask(&mut self, now: Timestamp, host: Host, step: usize, answers: Vec<(Reading, f64)>) {
        let Some(case) = self.cases.get_mut(&host) else { return };
        let Some(candidate) = case.candidates.front() else { return };
        let question = Question(self.next);
        self.next += 1;
        let (probe, place) = (self.rules.rules()[candidate.rule].probes[step], candidate.place);
        let known = case.answered.iter().find(|(of, about, _)| (*of, *about) == (probe, place));
        let known = known.map(|(_, _, answer)| answer.clone());
        case.asked =
            Some(Asked { question, since: now, due: now + self.rules.trigger().probe(), step, answers });
        match known {
            Some(answer) => self.weigh(now, host, answer),
            None => self.outbox.push_back(Action::Ask { question, probe, place }),
        }
    }

    /// A node that hears so late that time has passed was stopped itself, and answers may wait for it.
    fn wait_anew(&mut self, now: Timestamp) {
        let patience = self.rules.trigger().probe();
        for asked in self.cases.values_mut().filter_map(|case| case.asked.as_mut()) {
            if now.since(asked.due) >= patience {
                asked.due = now + patience;
            }
        }
    }

    /// Nobody has answered. That is an answer for all candidates that ask the same. It may be that an answer
    /// was lost: as long as symptoms count, they are analysed again.
    fn miss(&mut self, now: Timestamp, host: Host) {
        let Some(case) = self.cases.get_mut(&host) else { return };
        if let (Some(asked), Some(candidate)) = (&case.asked, case.candidates.front()) {
            let probe = self.rules.rules()[candidate.rule].probes[asked.step];
            case.answered.push((probe, candidate.place, Answer::nothing()));
            case.begins.get_or_insert(now + self.rules.trigger().settle());
        }
        self.weigh(now, host, Answer::nothing());
    }

    fn weigh(&mut self, now: Timestamp, host: Host, answer: Answer) {
        let Some(case) = self.cases.get_mut(&host) else { return };
        let (Some(mut asked), Some(candidate)) = (case.asked.take(), case.candidates.front().copied()) else {
            return;
        };
        asked.answers.extend(answer.0);
        let rule = &self.rules.rules()[candidate.rule];
        let reading = |name: &Name| match name {
            Name::Probe(reading) => {
                asked.answers.iter().rev().find(|(of, _)| of == reading).map(|&(_, value)| value)
            }
            Name::Seen { kind, what, around } => {
                Some(case.evidence.value(*kind, (!around).then_some(candidate.place), *what))
            }
            _ => None,
        };
        let holds = rule.confirm.as_ref().and_then(|confirm| confirm.holds(&reading));
        let is_confirmed = holds == Some(true);
        if !is_confirmed && asked.step + 1 < rule.probes.len() {
            return self.ask(now, host, asked.step + 1, asked.answers);
        }
        // Without an answer nobody knows whether a fault is over.
        let is_unknown = holds.is_none() && case.knows(candidate);
        self.decide(now, host, is_confirmed || is_unknown);
        self.ask_next(now, host);
    }

    /// Decides about the first candidate, and drops those that it explains.
    fn decide(&mut self, now: Timestamp, host: Host, is_confirmed: bool) {
        let Some(case) = self.cases.get_mut(&host) else { return };
        let Some(candidate) = case.candidates.pop_front() else { return };
        let rules = self.rules.rules();
        let known = &case.evidence;
        let mut report = |of: Candidate, finding| {
            let mut verdict = Verdict::new(&rules[of.rule], of.place, finding);
            let (seen, since) = known.of(of.place);
            (verdict.evidence, verdict.age) = (seen, since.map_or(Duration::ZERO, |since| now.since(since)));
            self.outbox.push_back(Action::Report(verdict));
        };
        if let Some(at) = case.known.iter().position(|known| known.fault == candidate) {
            if is_confirmed {
                case.known[at].since = now;
            } else {
                case.known.remove(at);
                report(candidate, Finding::Over);
            }
            return;
        }
        if !is_confirmed {
            return report(candidate, Finding::Rejected);
        }
        report(candidate, Finding::Confirmed);
        case.resting.retain(|(place, _)| *place != candidate.place);
        case.known.push(Known { fault: candidate, since: now });
        case.candidates.retain(|&other| {
            let is_explained = covers(&self.rules, candidate, other);
            if is_explained {
                report(other, Finding::Superseded);
            }
            !is_explained
        });
    }
}

/// Whether a confirmed fault explains another one of the same group.
fn covers(rules: &RuleBase, confirmed: Candidate, other: Candidate) -> bool {
    confirmed.place.contains(other.place)
        && rules.rules()[confirmed.rule].covers.contains(&rules.rules()[other.rule].fault)
}

#[cfg(test)]
mod tests;
