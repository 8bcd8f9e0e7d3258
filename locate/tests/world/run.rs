//! Virtual time: messages with delays and losses, until all symptoms had time to be analysed.

use std::collections::{BTreeMap, BTreeSet};

use everfold_locate::{
    learn::record::{Event, Line},
    place::{Domain, Host, Place},
    probe::{Answer, Probe, Reading},
    register::Register,
    rules::RuleBase,
    symptom::{Kind, Symptom},
    tfa::{self, Finding, Question, Verdict},
    tfd::{self, Ticket},
    tree::{Absence, ROOT, Tree},
};
use everfold_protocol::{Rank, time::Timestamp};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    host::Node,
    injected::{Injected, USUAL, Witness},
};

const MS: u64 = 1_000_000;
/// The agents look for symptoms this often.
const PERIOD_MS: u64 = 500;
const END_MS: u64 = 12_000;
const LOSS: f64 = 0.01;
const CHILDREN: u32 = 3;

pub struct Settings {
    pub hosts: u32,
    /// When, in milliseconds, and what.
    pub faults: Vec<(u64, Injected)>,
    /// How many symptoms without a cause a host observes in each period.
    pub noise: f64,
    pub domains: BTreeMap<Host, Domain>,
    /// When, in milliseconds, all hosts are given other rules.
    pub rules: Option<(u64, RuleBase)>,
}

impl Settings {
    pub fn new(hosts: u32, faults: Vec<(u64, Injected)>) -> Self {
        Self { hosts, faults, noise: 0.0, domains: BTreeMap::new(), rules: None }
    }
}

/// Messages per host and second: of all, of the busiest but the root, and of the root.
pub struct Rates {
    pub mean: f64,
    pub busiest: f64,
    pub root: f64,
}

enum Message {
    Symptom {
        from: u32,
        ticket: Ticket,
        symptom: Symptom,
    },
    Received(Ticket),
    Answer(Question, Answer),
    Report(Host, Verdict),
    Rules(RuleBase),
    /// The root has told this.
    Located(Verdict),
}

pub struct World {
    random: ChaCha8Rng,
    settings: Settings,
    nodes: Vec<Node>,
    register: Register,
    /// The newest rules.
    rules: RuleBase,
    agenda: BTreeMap<(u64, u64), (u32, Message)>,
    number: u64,
    now_ms: u64,
    /// What the nodes have recorded.
    pub record: Vec<Line>,
    /// What the root has told first of all that was wrong.
    pub wrong: Option<String>,
}

impl World {
    pub fn new(seed: u64, settings: Settings) -> Self {
        let tree = Tree::new(settings.hosts, CHILDREN).unwrap();
        let rules = RuleBase::default();
        let nodes = (0..settings.hosts).map(|me| Node::new(me, tree, &rules)).collect();
        Self {
            random: ChaCha8Rng::seed_from_u64(seed ^ 0x5eed),
            register: Register::new(rules.clone(), settings.domains.clone()),
            rules,
            settings,
            nodes,
            agenda: BTreeMap::new(),
            number: 0,
            now_ms: 0,
            record: Vec::new(),
            wrong: None,
        }
    }

    pub fn run(&mut self) {
        while self.now_ms < END_MS {
            if self.now_ms.is_multiple_of(PERIOD_MS) {
                self.observe();
            }
            self.change_rules();
            self.deliver();
            self.now_ms += 10;
        }
    }

    /// Ends all noise, and all faults but those of hosts with even numbers, and lets time pass.
    pub fn recover(&mut self) {
        self.settings.faults.retain(|(_, fault)| fault.host() % 2 == 0);
        self.settings.noise = 0.0;
        self.go_on();
    }

    /// Gives all nodes other rules, once and for all.
    pub fn deploy(&mut self, rules: RuleBase) {
        self.settings.rules = None;
        self.rules = rules.clone();
        (0..self.settings.hosts).for_each(|host| self.use_rules(host, rules.clone()));
    }

    fn use_rules(&mut self, host: u32, rules: RuleBase) {
        let now = self.now();
        self.nodes[host as usize].tfa.deploy(now, rules.clone());
        if host == ROOT.0 {
            let news = self.register.deploy(rules);
            self.tell(&news);
        }
    }

    /// Each host hears of other rules at a time of its own.
    fn change_rules(&mut self) {
        if let Some((_, rules)) = self.settings.rules.take_if(|(at, _)| *at <= self.now_ms) {
            self.rules = rules.clone();
            for host in 0..self.settings.hosts {
                self.arrive(host, Message::Rules(rules.clone()));
            }
        }
    }

    /// Lets time pass until nobody believes in a fault that is over.
    pub fn go_on(&mut self) {
        let quiet_ms = u64::from(RuleBase::default().trigger().quiet_ms);
        // A fault that was explained by another one is looked at when that is over.
        let end = self.now_ms + 2 * quiet_ms + END_MS;
        while self.now_ms < end {
            if self.now_ms.is_multiple_of(PERIOD_MS) {
                self.observe();
            }
            self.deliver();
            self.now_ms += 10;
        }
    }

    /// All that the root knows.
    pub fn listed(&self) -> impl Iterator<Item = &Verdict> {
        self.register.faults()
    }

    pub fn confirmed(&self) -> impl Iterator<Item = &Verdict> {
        self.listed().filter(|verdict| verdict.finding == Finding::Confirmed)
    }

    /// Faults that were injected.
    pub fn injected(&self) -> impl Iterator<Item = Injected> {
        self.settings.faults.iter().map(|&(_, fault)| fault)
    }

    /// All that is injected, for people.
    pub fn faults(&self) -> &[(u64, Injected)] {
        &self.settings.faults
    }

    /// Whether the newest rules have this fault.
    pub fn has_rule(&self, fault: &str) -> bool {
        self.rules.rules().iter().any(|rule| rule.fault == fault)
    }

    pub fn domains(&self) -> impl Iterator<Item = Domain> {
        let domains: BTreeSet<Domain> = self.settings.domains.values().copied().collect();
        domains.into_iter()
    }

    pub fn domain_of(&self, host: Host) -> Option<Domain> {
        self.settings.domains.get(&host).copied()
    }

    pub fn hosts_of(&self, domain: Domain) -> Vec<Host> {
        let domains = self.settings.domains.iter();
        domains.filter(|(_, of)| **of == domain).map(|(host, _)| *host).collect()
    }

    /// How much hosts have said.
    pub fn messages_per_host_and_second(&self) -> Rates {
        let rate = |messages: u64| messages as f64 / (END_MS as f64 / 1000.0);
        let all: u64 = self.nodes.iter().map(|node| node.messages).sum();
        let busiest = self.nodes.iter().skip(1).map(|node| node.messages).max().unwrap_or(0);
        Rates {
            mean: rate(all) / self.nodes.len() as f64,
            busiest: rate(busiest),
            root: rate(self.nodes[0].messages),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos((self.now_ms + 1_000_000) * MS)
    }

    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Faults that have begun.
    pub fn active(&self) -> impl Iterator<Item = Injected> {
        self.settings.faults.iter().filter(|(at, _)| *at <= self.now_ms).map(|&(_, fault)| fault)
    }

    pub fn runs(&self, host: u32) -> bool {
        !self.active().any(|fault| fault.stops() && fault.host() == host)
    }

    fn observe(&mut self) {
        // Where nothing runs, nothing else shows.
        let begun = self.settings.faults.iter().filter(|(at, _)| *at <= self.now_ms);
        let shows = begun.filter(|(_, fault)| fault.stops() || self.runs(fault.host()));
        for (at, fault) in shows.copied().collect::<Vec<_>>() {
            for (kind, place, witness) in fault.symptoms(self.now_ms - at) {
                let hosts = self.settings.hosts;
                let witnesses: Vec<u32> = match witness {
                    Witness::Peers => {
                        (1..4).map(|_| (fault.host() + self.random.random_range(1..hosts)) % hosts).collect()
                    }
                    Witness::One(witness) => vec![witness],
                };
                for witness in witnesses {
                    self.observed(witness, kind, place);
                }
            }
            if let Injected::Overloaded(host) = fault {
                let now = self.now();
                let learns = (0..self.settings.hosts.min(200)).filter(|it| *it != host).collect::<Vec<_>>();
                for other in learns {
                    self.nodes[other as usize].tfd.handle_absent(now, Host(host), Absence::Overloaded);
                }
            }
        }
        for witness in 0..self.settings.hosts {
            if self.random.random_bool(self.settings.noise) {
                let about = self.random.random_range(0..self.settings.hosts);
                let host = Host(about);
                let rank = Place::Rank { rank: Rank(about), host };
                let link = Place::Link { from: host, to: Host(witness) };
                let kinds = [
                    (Kind::Silence, Place::Host(host)),
                    (Kind::MemoryPressure, Place::Host(host)),
                    (Kind::Steal, Place::Host(host)),
                    (Kind::DiskSlow, Place::Host(host)),
                    (Kind::Late, rank),
                    (Kind::NotCalled, rank),
                    (Kind::SlowRead, link),
                    (Kind::FailedRead, link),
                ];
                let &(kind, place) = kinds.choose(&mut self.random).unwrap();
                self.observed(witness, kind, place);
            }
        }
    }

    fn observed(&mut self, witness: u32, kind: Kind, suspect: Place) {
        if self.runs(witness) {
            let now = self.now();
            let ago = std::time::Duration::from_millis(self.random.random_range(0..200));
            // Of the time in which a healthy rank does not compute, it is not late.
            let (value, threshold) = if kind == Kind::Late { (0.7, 0.35) } else { (2.0, 1.0) };
            let symptom = Symptom { kind, suspect, witness: Host(witness), ago, value, threshold };
            self.nodes[witness as usize].tfd.handle_symptom(now, symptom);
        }
    }

    fn deliver(&mut self) {
        let now = self.now();
        let later = self.agenda.split_off(&(self.now_ms + 1, 0));
        for (to, message) in std::mem::replace(&mut self.agenda, later).into_values() {
            let is_frozen = self.active().any(|fault| fault == Injected::Frozen(to));
            // A host that comes back is told the newest rules.
            if self.runs(to) || matches!(message, Message::Rules(_)) {
                self.hear(to, message);
            } else if is_frozen {
                // It waits in a connection until the host runs again.
                self.arrive_after(PERIOD_MS, to, message);
            }
        }
        for host in 0..self.settings.hosts {
            if self.runs(host) {
                self.nodes[host as usize].tick(now);
                self.act(host);
            }
        }
    }

    fn hear(&mut self, to: u32, message: Message) {
        let now = self.now();
        match message {
            Message::Symptom { from, ticket, symptom } => {
                self.collect(to, &symptom);
                self.send(to, from, Message::Received(ticket));
            }
            Message::Received(ticket) => self.nodes[to as usize].tfd.handle_received(ticket),
            Message::Answer(question, answer) => {
                self.nodes[to as usize].tfa.handle_answer(now, question, answer)
            }
            Message::Report(from, verdict) => {
                let root = &mut self.nodes[to as usize].tfa;
                let news = self.register.handle_verdict(now, from, verdict, root);
                self.tell(&news);
            }
            Message::Rules(rules) => self.use_rules(to, rules),
            Message::Located(Verdict { place, finding, .. }) => {
                if let Place::Host(host) = place {
                    self.nodes[to as usize].tfd.handle_stopped(now, host, finding == Finding::Over);
                }
            }
        }
    }

    /// The root tells what is new: the master passes it on to all hosts.
    fn tell(&mut self, news: &[Verdict]) {
        for verdict in news {
            let judged = self.judge(verdict);
            self.wrong = self.wrong.take().or(judged.err());
            if self.rules.stops(&verdict.fault) {
                (0..self.settings.hosts)
                    .for_each(|host| self.arrive(host, Message::Located(verdict.clone())));
            }
        }
    }

    fn act(&mut self, host: u32) {
        let now = self.now();
        while let Some(action) = self.nodes[host as usize].tfd.poll_action() {
            match action {
                tfd::Action::Keep(symptom) => self.collect(host, &symptom),
                tfd::Action::Send { to, ticket, symptom } => {
                    self.send(host, to.0, Message::Symptom { from: host, ticket, symptom });
                }
            }
        }
        while let Some(action) = self.nodes[host as usize].tfa.poll_action() {
            match action {
                tfa::Action::Ask { question, probe, place } => self.probe(host, question, probe, place),
                // What the root has to know goes over a connection that does not lose anything.
                tfa::Action::Report(verdict) => {
                    self.note(host, now, Event::from(&verdict));
                    self.post(host, 0, Message::Report(Host(host), verdict));
                }
            }
        }
    }

    fn collect(&mut self, host: u32, symptom: &Symptom) {
        let now = self.now();
        self.note(host, now - symptom.ago, Event::from(symptom));
        self.nodes[host as usize].tfa.handle_symptom(now, symptom);
    }

    fn note(&mut self, host: u32, at: Timestamp, event: Event) {
        self.record.push(Line { node: host, at: std::time::Duration::from_nanos(at.as_nanos()), event });
    }

    /// The suspect answers if it runs; the system of a frozen host still accepts connections.
    fn probe(&mut self, asker: u32, question: Question, probe: Probe, place: Place) {
        let host = place.host().unwrap().0;
        self.nodes[asker as usize].messages += 1;
        let runs = f64::from(u8::from(self.runs(host)));
        if probe == Probe::Response {
            // The asker tries itself, more than once.
            let connects = if self.active().any(|it| it == Injected::Dead(host)) { 0.0 } else { 1.0 };
            let answer = Answer(vec![(Reading::Answers, runs), (Reading::Connects, connects)]);
            return self.post(asker, asker, Message::Answer(question, answer));
        }
        let executor = match (probe, place) {
            (Probe::Link, Place::Link { to, .. }) => to.0,
            (Probe::Link, _) if asker != host => asker,
            (Probe::Link, _) => (asker + 1) % self.settings.hosts,
            _ => host,
        };
        if !self.runs(executor) || self.random.random_bool(LOSS) {
            return;
        }
        let answer = if self.runs(host) {
            let wrong = self.active().flat_map(|fault| fault.readings(place));
            USUAL.iter().chain(wrong).copied().collect()
        } else {
            vec![(Reading::Answers, 1.0)]
        };
        self.send(executor, asker, Message::Answer(question, Answer(answer)));
    }

    fn send(&mut self, from: u32, to: u32, message: Message) {
        if self.random.random_bool(LOSS) {
            self.nodes[from as usize].messages += 1;
        } else {
            self.post(from, to, message);
        }
    }

    fn post(&mut self, from: u32, to: u32, message: Message) {
        self.nodes[from as usize].messages += 1;
        self.arrive(to, message);
    }

    fn arrive(&mut self, to: u32, message: Message) {
        let delay_ms = self.random.random_range(1..20);
        self.arrive_after(delay_ms, to, message);
    }

    fn arrive_after(&mut self, delay_ms: u64, to: u32, message: Message) {
        self.number += 1;
        self.agenda.insert((self.now_ms + delay_ms, self.number), (to, message));
    }
}
