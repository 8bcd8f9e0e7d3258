//! Whether what the root tells is right.

use everfold_locate::{
    place::{Domain, Place},
    rules::RuleBase,
    tfa::{Finding, Verdict},
};

use super::{draw::RENAMED, injected::Injected, run::World};

const DOMAIN_BAD: &str = "domain_bad";

impl World {
    /// The root tells something new.
    pub fn judge(&self, news: &Verdict) -> Result<(), String> {
        let fault = original(&news.fault);
        let is_right = match (news.finding, news.place) {
            (Finding::Confirmed, Place::Domain(domain)) => fault == DOMAIN_BAD && self.is_bad(domain),
            // Where its hosts' faults have other names now, it is looked for again.
            (Finding::Over, Place::Domain(domain)) => {
                ["host_dead", "host_frozen"].iter().any(|it| !self.has_rule(it)) || !self.is_bad(domain)
            }
            (Finding::Over, place) => {
                !self.has_rule(&news.fault)
                    || !self.active().any(|it| it.fault() == fault && it.place() == place && self.shows(it))
            }
            (_, place) => self.active().any(|it| {
                let is_part = place.host() == it.place().host() && it.explains().contains(&fault);
                it.fault() == fault && it.place() == place || is_part && !self.has_told(it)
            }),
        };
        is_right.then_some(()).ok_or_else(|| format!("at {} ms: {news:?}", self.now_ms()))
    }

    /// All has been analysed that was observed: what was injected is known, and nothing else.
    pub fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(format!("{wrong}: {:?}", self.faults()));
        }
        for fault in self.injected().filter(|fault| !self.is_explained(*fault)) {
            if !self.listed().any(|it| original(&it.fault) == fault.fault() && it.place == fault.place()) {
                return Err(format!("{fault:?} was not confirmed: {:?}", self.faults()));
            }
        }
        for domain in self.domains().filter(|domain| self.has_rule(DOMAIN_BAD) && self.is_bad(*domain)) {
            if !self.confirmed().any(|it| it.place == Place::Domain(domain)) {
                return Err(format!("domain {} was not found bad: {:?}", domain.0, self.faults()));
            }
        }
        if let Some(old) = self.listed().find(|it| !self.has_rule(&it.fault)) {
            return Err(format!("there is no rule about {} of {}", old.fault, old.place));
        }
        self.check_domains()
    }

    /// Of a host whose domain is bad, the domain is told, and not the host.
    fn check_domains(&self) -> Result<(), String> {
        let is_told = |it: &&Verdict| {
            let domain = it.place.host().and_then(|host| self.domain_of(host));
            let stops = ["host_dead", "host_frozen"].contains(&original(&it.fault));
            stops && domain.is_some_and(|domain| self.has_rule(DOMAIN_BAD) && self.is_bad(domain))
        };
        match self.confirmed().find(is_told) {
            Some(twice) => Err(format!("its domain explains {} of {}", twice.fault, twice.place)),
            None => Ok(()),
        }
    }

    /// Whether rules may say that another fault of its host explains it, or it shows nothing, as nothing
    /// runs.
    fn is_explained(&self, fault: Injected) -> bool {
        let rules = RuleBase::default();
        let covers = |it: Injected| {
            let rule = rules.rules().iter().find(|rule| rule.fault == it.fault());
            rule.is_some_and(|rule| rule.stops || rule.covers.iter().any(|covered| covered == fault.fault()))
        };
        self.injected().any(|it| it != fault && it.host() == fault.host() && covers(it))
    }

    /// Whether it would be seen if it were over: of what nobody can ask, symptoms alone tell.
    fn shows(&self, fault: Injected) -> bool {
        self.runs(fault.host()) || !matches!(fault, Injected::Diverging(_))
    }

    /// Whether most hosts of a domain have stopped.
    fn is_bad(&self, domain: Domain) -> bool {
        let inside = self.hosts_of(domain);
        let stopped = inside.iter().filter(|host| !self.runs(host.0)).count();
        inside.len() > 1 && stopped > inside.len() / 2
    }

    fn has_told(&self, fault: Injected) -> bool {
        self.listed().any(|it| original(&it.fault) == fault.fault() && it.place == fault.place())
    }
}

/// What rules called a fault before another one had a new name.
pub fn original(fault: &str) -> &str {
    fault.strip_suffix(RENAMED).unwrap_or(fault)
}
