//! Draws a world from its seed.

use std::collections::BTreeMap;

use everfold_locate::{
    place::{Domain, Host},
    rules::{DEFAULT, RuleBase},
};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    injected::Injected,
    run::{Settings, World},
};

/// Faults begin within this time.
const BEGIN_MS: std::ops::Range<u64> = 0..5000;
/// What a rule is called that has another name than before.
pub const RENAMED: &str = "_too";

impl World {
    pub fn random(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let hosts = random.random_range(8..60);
        let mut draw = Draw { hosts, victims: vec![], faults: vec![], domains: domains(&mut random, hosts) };
        if random.random_bool(0.15) {
            draw.domain(&mut random);
        }
        for _ in 0..random.random_range(0..4) {
            draw.fault(&mut random);
        }
        let noise = random.random_range(0.0..0.1);
        let rules = random.random_bool(0.2).then(|| {
            let fault = draw.faults.choose(&mut random).map(|(_, fault)| *fault);
            (random.random_range(500..7000), other_rules(&mut random, fault))
        });
        Self::new(seed, Settings { hosts, faults: draw.faults, noise, domains: draw.domains, rules })
    }
}

struct Draw {
    hosts: u32,
    /// Hosts with a fault, or at the other end of one.
    victims: Vec<u32>,
    faults: Vec<(u64, Injected)>,
    domains: BTreeMap<Host, Domain>,
}

impl Draw {
    /// A host that has no fault. The root is where the master is: the job ends with it.
    fn host(&mut self, random: &mut ChaCha8Rng) -> Option<u32> {
        let host = random.random_range(1..self.hosts);
        (!self.victims.contains(&host)).then(|| {
            self.victims.push(host);
            host
        })
    }

    /// A fault of one host, and at times another one of the same.
    fn fault(&mut self, random: &mut ChaCha8Rng) {
        let Some(host) = self.host(random) else { return };
        let first = self.of(random, host);
        let Some(first) = first else { return };
        self.faults.push((random.random_range(BEGIN_MS), first));
        if let (true, Some(second)) = (random.random_bool(0.3), self.of(random, host))
            && may_come_together(first, second)
        {
            self.faults.push((random.random_range(BEGIN_MS), second));
        }
    }

    fn of(&mut self, random: &mut ChaCha8Rng, host: u32) -> Option<Injected> {
        let to = (host + random.random_range(1..self.hosts)) % self.hosts;
        let all = [
            Injected::Dead(host),
            Injected::Frozen(host),
            Injected::Overloaded(host),
            Injected::MemoryShort(host),
            Injected::DiskFull(host),
            Injected::DiskFailing(host),
            Injected::OutOfMemory(host),
            Injected::Crashed(host),
            Injected::Diverging(host),
            Injected::Unbalanced(host),
            Injected::NeverCalled(host),
            Injected::LinkSlow(host, to),
            Injected::LinkLossy(host, to),
            Injected::NetworkSlow(host, to),
            Injected::NetworkLossy(host, to),
        ];
        let fault = *all.choose(random).unwrap();
        if matches!(class(fault), Class::Link | Class::Network) {
            if self.victims.contains(&to) {
                return None;
            }
            self.victims.push(to);
        }
        Some(fault)
    }

    /// Some hosts of a domain stop within a second: few, most or all.
    fn domain(&mut self, random: &mut ChaCha8Rng) {
        let root = self.domains[&Host(0)];
        let all: Vec<Domain> = self.domains.values().copied().filter(|domain| *domain != root).collect();
        let Some(&domain) = all.choose(random) else { return };
        let mut inside: Vec<u32> =
            self.domains.iter().filter(|(_, of)| **of == domain).map(|(host, _)| host.0).collect();
        inside.truncate(random.random_range(1..=inside.len()));
        let begin = random.random_range(BEGIN_MS);
        for host in inside {
            let fault = if random.random_bool(0.7) { Injected::Dead(host) } else { Injected::Frozen(host) };
            self.victims.push(host);
            self.faults.push((begin + random.random_range(0..1000), fault));
        }
    }
}

/// Hosts side by side are in one domain; some are in none.
fn domains(random: &mut ChaCha8Rng, hosts: u32) -> BTreeMap<Host, Domain> {
    let size = random.random_range(1..7);
    let all = (0..hosts).map(|host| (Host(host), Domain(host / size)));
    all.filter(|(host, _)| host.0 == 0 || random.random_bool(0.95)).collect()
}

/// The same rules in the same or the reverse order, and at times with another name for one fault.
fn other_rules(random: &mut ChaCha8Rng, fault: Option<Injected>) -> RuleBase {
    // The end of a process is told once: what is known of it has to be known to the rules.
    let lasts = |fault: &Injected| !matches!(fault, Injected::Crashed(_) | Injected::OutOfMemory(_));
    let renamed = fault.filter(lasts).filter(|_| random.random_bool(0.5)).map(Injected::fault);
    let mut parts = DEFAULT.split("[[rule]]");
    let trigger = parts.next().unwrap();
    let mut rules: Vec<String> = parts.map(|rule| rename(rule, renamed)).collect();
    if random.random_bool(0.5) {
        rules.reverse();
    }
    RuleBase::parse(&format!("{trigger}[[rule]]{}", rules.join("\n[[rule]]"))).unwrap()
}

fn rename(rule: &str, fault: Option<&str>) -> String {
    let Some(fault) = fault else { return rule.to_owned() };
    let rule = rule.replace(&format!("\"{fault}\""), &format!("\"{fault}{RENAMED}\""));
    rule.replace(&format!("confirmed.{fault}"), &format!("confirmed.{fault}{RENAMED}"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Stop,
    Cores,
    DiskFull,
    DiskFailing,
    Process,
    Link,
    Network,
}

fn class(fault: Injected) -> Class {
    match fault {
        Injected::Dead(_) | Injected::Frozen(_) => Class::Stop,
        Injected::Overloaded(_) | Injected::MemoryShort(_) => Class::Cores,
        Injected::DiskFull(_) => Class::DiskFull,
        Injected::DiskFailing(_) => Class::DiskFailing,
        Injected::LinkSlow(..) | Injected::LinkLossy(..) => Class::Link,
        Injected::NetworkSlow(..) | Injected::NetworkLossy(..) => Class::Network,
        Injected::OutOfMemory(_) | Injected::Crashed(_) | Injected::Diverging(_) => Class::Process,
        Injected::Unbalanced(_) | Injected::NeverCalled(_) => Class::Process,
    }
}

/// Whether one of the two says nothing about the other. Where cores are short, slow reads say nothing.
fn may_come_together(one: Injected, other: Injected) -> bool {
    match (class(one), class(other)) {
        (Class::Link, Class::Link) => one.place() != other.place(),
        (Class::Link | Class::Network, Class::Network | Class::Cores) => false,
        (Class::Network | Class::Cores, Class::Link | Class::Network) => false,
        (one, other) => one != other,
    }
}
