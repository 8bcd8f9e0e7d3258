//! The root's list of located faults: each once, and those of a whole domain concluded from those of its hosts.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use crate::{
    place::{Domain, Host, Place, Scope},
    rules::{Name, RuleBase},
    tfa::{Finding, Verdict},
};

/// What the root knows.
#[derive(Debug)]
pub struct Register {
    rules: RuleBase,
    domains: BTreeMap<Host, Domain>,
    faults: BTreeMap<(String, Place), Verdict>,
}

impl Register {
    /// A register for hosts in these domains.
    pub fn new(rules: RuleBase, domains: BTreeMap<Host, Domain>) -> Self {
        Self { rules, domains, faults: BTreeMap::new() }
    }

    /// A localisation node has reported. Returns what is new: the user and the scheduler are to be told.
    pub fn handle_verdict(&mut self, verdict: Verdict) -> Vec<Verdict> {
        let key = (verdict.fault.clone(), verdict.place);
        if verdict.finding != Finding::Confirmed || self.faults.contains_key(&key) {
            return Vec::new();
        }
        let mut news = Vec::from([verdict.clone()]);
        let domain = verdict.place.host().and_then(|host| self.domains.get(&host).copied());
        self.faults.insert(key, verdict);
        news.extend(domain.into_iter().flat_map(|domain| self.conclude(domain)));
        news
    }

    /// A fault is over. If it comes again, it is news.
    pub fn handle_over(&mut self, fault: &str, place: Place) {
        self.faults.remove(&(fault.into(), place));
    }

    /// Swaps the rules. What is known stays.
    pub fn deploy(&mut self, rules: RuleBase) {
        self.rules = rules;
    }

    /// All that is known.
    pub fn faults(&self) -> impl Iterator<Item = &Verdict> {
        self.faults.values()
    }

    /// Applies the rules about domains to one of them.
    fn conclude(&mut self, domain: Domain) -> Vec<Verdict> {
        let place = Place::Domain(domain);
        let is_inside = |at: &Host| self.domains.get(at) == Some(&domain);
        let hosts = self.domains.values().filter(|of| **of == domain).count();
        let confirmed = |fault: &str| {
            let of = |known: &&Verdict| {
                known.fault == fault && known.place.host().is_some_and(|host| is_inside(&host))
            };
            self.faults.values().filter(of).count()
        };
        let value = |name: &Name| match name {
            Name::Hosts => Some(hosts as f64),
            Name::Confirmed(fault) => Some(confirmed(fault) as f64),
            _ => None,
        };
        let about = self.rules.rules().iter().filter(|rule| rule.about == Scope::Domain);
        let new = about.filter(|rule| !self.faults.contains_key(&(rule.fault.clone(), place)));
        let found: Vec<_> = new.filter(|rule| rule.when.holds(&value) == Some(true)).cloned().collect();
        let mut news = Vec::new();
        for rule in found {
            for known in self.faults.values_mut() {
                let is_inside =
                    known.place.host().is_some_and(|host| self.domains.get(&host) == Some(&domain));
                if is_inside && rule.covers.contains(&known.fault) {
                    known.finding = Finding::Superseded;
                }
            }
            let verdict = Verdict::new(&rule, place, Finding::Confirmed);
            self.faults.insert((rule.fault, place), verdict.clone());
            news.push(verdict);
        }
        news
    }
}
