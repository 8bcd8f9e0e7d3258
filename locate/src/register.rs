//! The root's list of located faults: each once, and those of a whole domain concluded from those of its hosts.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};

use everfold_protocol::time::Timestamp;

use crate::{
    place::{Domain, Host, Place, Scope},
    rules::{Name, Rule, RuleBase},
    tfa::{Finding, Tfa, Verdict},
    tree::ROOT,
};

/// What the root knows.
#[derive(Debug)]
pub struct Register {
    rules: RuleBase,
    domains: BTreeMap<Host, Domain>,
    faults: BTreeMap<(String, Place), Fault>,
}

/// A fault that is known.
#[derive(Debug)]
struct Fault {
    verdict: Verdict,
    /// The hosts whose nodes have confirmed it. It is over once all of them have found that out.
    nodes: BTreeSet<Host>,
}

impl Register {
    /// A register for hosts in these domains.
    pub fn new(rules: RuleBase, domains: BTreeMap<Host, Domain>) -> Self {
        Self { rules, domains, faults: BTreeMap::new() }
    }

    /// The localisation node of a host has reported. Returns what is new: faults that were not known, and
    /// those that are over. One that comes again is news.
    ///
    /// A node may be lost with its host before a fault is over that it has confirmed. So once a host is found
    /// to have [stopped](Rule::stops), the `root` watches what its node has confirmed.
    pub fn handle_verdict(
        &mut self,
        now: Timestamp,
        from: Host,
        verdict: Verdict,
        root: &mut Tfa,
    ) -> Vec<Verdict> {
        let place = verdict.place;
        let mut news = self.list(from, verdict);
        for host in [Place::Host(from), place].into_iter().filter_map(host_itself) {
            news.extend(self.hand_over(now, host, root));
        }
        news
    }

    /// Lets the root watch what the node of a host has confirmed, if the host has stopped. Returns what is
    /// over, as there is no rule about it any more.
    fn hand_over(&mut self, now: Timestamp, host: Host, root: &mut Tfa) -> Vec<Verdict> {
        if !self.faults.keys().any(|(fault, place)| *place == Place::Host(host) && self.rules.stops(fault)) {
            return Vec::new();
        }
        let mut gone = Vec::new();
        for ((fault, place), known) in &mut self.faults {
            if !known.nodes.remove(&host) {
                continue;
            }
            match self.rules.position(fault) {
                Some(_) => {
                    known.nodes.insert(ROOT);
                    root.watch(now, fault, *place);
                }
                None => gone.push(Verdict { finding: Finding::Over, ..known.verdict.clone() }),
            }
        }
        gone.into_iter().flat_map(|over| self.list(host, over)).collect()
    }

    fn list(&mut self, from: Host, verdict: Verdict) -> Vec<Verdict> {
        let key = (verdict.fault.clone(), verdict.place);
        let is_news = match verdict.finding {
            Finding::Confirmed => match self.faults.get_mut(&key) {
                Some(known) => {
                    known.nodes.insert(from);
                    false
                }
                None => !self.is_explained(&verdict),
            },
            Finding::Over => self
                .faults
                .get_mut(&key)
                .is_some_and(|known| known.nodes.remove(&from) && known.nodes.is_empty()),
            Finding::Rejected | Finding::Superseded => false,
        };
        if !is_news {
            return Vec::new();
        }
        let domain = verdict.place.host().and_then(|host| self.domains.get(&host).copied());
        let mut news = Vec::from([verdict.clone()]);
        match verdict.finding {
            Finding::Confirmed => drop(self.faults.insert(key, Fault { verdict, nodes: [from].into() })),
            _ => drop(self.faults.remove(&key)),
        }
        news.extend(domain.into_iter().flat_map(|domain| self.conclude(domain)));
        news
    }

    /// Whether a known fault of the same host explains this one. Its node did not know of that: symptoms of
    /// one host may go to different nodes while one of them is away.
    fn is_explained(&self, verdict: &Verdict) -> bool {
        let explains = |(fault, place): &(String, Place)| {
            place.contains(verdict.place) && self.rules.covers(fault, &verdict.fault)
        };
        self.faults.keys().any(explains)
    }

    /// Swaps the rules, and returns what is news by the new ones about domains. What is known of hosts stays
    /// until their nodes say otherwise.
    pub fn deploy(&mut self, rules: RuleBase) -> Vec<Verdict> {
        self.rules = rules;
        let is_gone =
            |key: &&(String, Place)| key.1.scope() == Scope::Domain && self.rules.position(&key.0).is_none();
        let gone: Vec<(String, Place)> = self.faults.keys().filter(is_gone).cloned().collect();
        let gone = gone.iter().filter_map(|key| self.faults.remove(key));
        let over = |known: Fault| Verdict { finding: Finding::Over, ..known.verdict };
        let mut news: Vec<Verdict> = gone.map(over).collect();
        let domains: BTreeSet<Domain> = self.domains.values().copied().collect();
        news.extend(domains.into_iter().flat_map(|domain| self.conclude(domain)));
        news
    }

    /// All that is known.
    pub fn faults(&self) -> impl Iterator<Item = &Verdict> {
        self.faults.values().map(|known| &known.verdict)
    }

    /// Applies the rules about domains to one of them: what they conclude now, and what they did.
    fn conclude(&mut self, domain: Domain) -> Vec<Verdict> {
        let place = Place::Domain(domain);
        let is_inside = |at: &Host| self.domains.get(at) == Some(&domain);
        let hosts = self.domains.values().filter(|of| **of == domain).count();
        let confirmed = |fault: &str| {
            let of = |known: &&Verdict| {
                known.fault == fault && known.place.host().is_some_and(|host| is_inside(&host))
            };
            self.faults().filter(of).count()
        };
        let value = |name: &Name| match name {
            Name::Hosts => Some(hosts as f64),
            Name::Confirmed(fault) => Some(confirmed(fault) as f64),
            _ => None,
        };
        let about = self.rules.rules().iter().filter(|rule| rule.about == Scope::Domain);
        let changes = |rule: &&Rule| {
            let is_known = self.faults.contains_key(&(rule.fault.clone(), place));
            is_known != (rule.when.holds(&value) == Some(true))
        };
        let changed: Vec<_> = about.filter(changes).cloned().collect();
        let mut news = Vec::new();
        for rule in changed {
            if self.faults.remove(&(rule.fault.clone(), place)).is_some() {
                news.push(Verdict::new(&rule, place, Finding::Over));
                continue;
            }
            let verdict = Verdict::new(&rule, place, Finding::Confirmed);
            self.faults.insert((rule.fault, place), Fault { verdict: verdict.clone(), nodes: [ROOT].into() });
            news.push(verdict);
        }
        self.mark(domain);
        news
    }

    /// What a known fault of a domain explains is superseded as long as it lasts.
    fn mark(&mut self, domain: Domain) {
        let of_domain = self.faults().filter(|known| known.place == Place::Domain(domain));
        let known: Vec<String> = of_domain.map(|known| known.fault.clone()).collect();
        for Fault { verdict, .. } in self.faults.values_mut() {
            let is_inside = verdict.place.host().is_some_and(|host| self.domains.get(&host) == Some(&domain));
            if is_inside {
                let is_explained = known.iter().any(|fault| self.rules.covers(fault, &verdict.fault));
                verdict.finding = if is_explained { Finding::Superseded } else { Finding::Confirmed };
            }
        }
    }
}

fn host_itself(place: Place) -> Option<Host> {
    match place {
        Place::Host(host) => Some(host),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: Domain = Domain(0);

    fn verdict(host: u32, finding: Finding) -> Verdict {
        let rules = RuleBase::default();
        let rule = rules.rules().iter().find(|rule| rule.fault == "host_dead").unwrap();
        Verdict::new(rule, Place::Host(Host(host)), finding)
    }

    fn told(news: &[Verdict]) -> Vec<(&str, Place, Finding)> {
        news.iter().map(|it| (&*it.fault, it.place, it.finding)).collect()
    }

    #[test]
    fn a_domain_is_bad_while_most_of_its_hosts_are_dead() {
        let domains = [0, 1, 2].map(|host| (Host(host), DOMAIN)).into();
        let mut register = Register::new(RuleBase::default(), domains);
        let mut root = Tfa::default();
        let mut hear = |register: &mut Register, verdict| {
            register.handle_verdict(Timestamp::default(), ROOT, verdict, &mut root)
        };
        let [first, second] = [1, 2].map(|host| ("host_dead", Place::Host(Host(host))));
        let all = ("domain_bad", Place::Domain(DOMAIN));
        let with = |(fault, place), finding| (fault, place, finding);

        let news = hear(&mut register, verdict(1, Finding::Confirmed));
        assert_eq!(told(&news), [with(first, Finding::Confirmed)]);
        assert!(hear(&mut register, verdict(1, Finding::Confirmed)).is_empty(), "that is known");
        let news = hear(&mut register, verdict(2, Finding::Confirmed));
        assert_eq!(told(&news), [with(second, Finding::Confirmed), with(all, Finding::Confirmed)]);

        let news = hear(&mut register, verdict(1, Finding::Over));
        assert_eq!(told(&news), [with(first, Finding::Over), with(all, Finding::Over)]);
        assert!(hear(&mut register, verdict(1, Finding::Over)).is_empty(), "that is known, too");
        assert_eq!(register.faults().count(), 1);
        let news = hear(&mut register, verdict(1, Finding::Confirmed));
        assert_eq!(told(&news), [with(first, Finding::Confirmed), with(all, Finding::Confirmed)]);
    }
}
