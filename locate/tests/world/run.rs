//! Virtual time: messages with delays and losses, until all symptoms had time to be analysed.

use std::collections::BTreeMap;

use everfold_locate::{
    learn::record::{Event, Line},
    place::{Host, Place},
    probe::{Answer, Reading},
    register::Register,
    rules::RuleBase,
    symptom::{Kind, Symptom},
    tfa::{self, Finding, Question, Verdict},
    tfd::{self, Ticket},
    tree::{Absence, Tree},
};
use everfold_protocol::{Rank, time::Timestamp};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    host::Node,
    injected::{Injected, USUAL},
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
}

enum Message {
    Symptom { from: u32, ticket: Ticket, symptom: Symptom },
    Received(Ticket),
    Answer(Question, Answer),
    Report(Host, Verdict),
}

pub struct World {
    random: ChaCha8Rng,
    settings: Settings,
    nodes: Vec<Node>,
    register: Register,
    agenda: BTreeMap<(u64, u64), (u32, Message)>,
    number: u64,
    now_ms: u64,
    /// What the nodes have recorded.
    pub record: Vec<Line>,
}

impl World {
    pub fn random(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let hosts = random.random_range(8..60);
        let count = random.random_range(0..4);
        let mut victims: Vec<u32> = Vec::new();
        let mut faults = Vec::new();
        for _ in 0..count {
            // The root is where the master is: the job ends with it.
            let host = random.random_range(1..hosts);
            let to = (host + random.random_range(1..hosts)) % hosts;
            if victims.contains(&host) || victims.contains(&to) {
                continue;
            }
            victims.extend([host, to]);
            let all = [
                Injected::Dead(host),
                Injected::Frozen(host),
                Injected::Overloaded(host),
                Injected::DiskFull(host),
                Injected::DiskFailing(host),
                Injected::OutOfMemory(host),
                Injected::Crashed(host),
                Injected::Diverging(host),
                Injected::Unbalanced(host),
                Injected::NeverCalled(host),
                Injected::LinkSlow(host, to),
                Injected::LinkLossy(host, to),
            ];
            faults.push((random.random_range(0..5000), *all.choose(&mut random).unwrap()));
        }
        let noise = random.random_range(0.0..0.1);
        Self::new(seed, Settings { hosts, faults, noise })
    }

    pub fn new(seed: u64, settings: Settings) -> Self {
        let tree = Tree::new(settings.hosts, CHILDREN).unwrap();
        let rules = RuleBase::default();
        let nodes = (0..settings.hosts).map(|me| Node::new(me, tree, &rules)).collect();
        Self {
            random: ChaCha8Rng::seed_from_u64(seed ^ 0x5eed),
            settings,
            nodes,
            register: Register::new(rules, BTreeMap::new()),
            agenda: BTreeMap::new(),
            number: 0,
            now_ms: 0,
            record: Vec::new(),
        }
    }

    pub fn run(&mut self) {
        while self.now_ms < END_MS {
            if self.now_ms.is_multiple_of(PERIOD_MS) {
                self.observe();
            }
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

    /// Gives all nodes other rules.
    pub fn deploy(&mut self, rules: RuleBase) {
        let now = self.now();
        self.nodes.iter_mut().for_each(|node| node.tfa.deploy(now, rules.clone()));
        self.register.deploy(rules);
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

    pub fn confirmed(&self) -> impl Iterator<Item = &Verdict> {
        self.register.faults().filter(|verdict| verdict.finding == Finding::Confirmed)
    }

    pub fn check(&self) -> Result<(), String> {
        for verdict in self.confirmed() {
            let explains =
                |it: Injected| it.fault() == verdict.fault || it.looks_like() == Some(&*verdict.fault);
            if !self.injected().any(|it| it.place() == verdict.place && explains(it)) {
                return Err(format!(
                    "{} of {} was not injected: {:?}",
                    verdict.fault, verdict.place, self.settings.faults
                ));
            }
        }
        for fault in self.injected() {
            if !self.register.faults().any(|it| it.fault == fault.fault() && it.place == fault.place()) {
                return Err(format!("{fault:?} was not confirmed: {:?}", self.settings.faults));
            }
        }
        Ok(())
    }

    /// Faults that were injected.
    pub fn injected(&self) -> impl Iterator<Item = Injected> {
        self.settings.faults.iter().map(|&(_, fault)| fault)
    }

    /// The mean, and that of the busiest host but the root.
    pub fn messages_per_host_and_second(&self) -> (f64, f64) {
        let seconds = END_MS as f64 / 1000.0;
        let all: u64 = self.nodes.iter().map(|node| node.messages).sum();
        let worst = self.nodes.iter().skip(1).map(|node| node.messages).max().unwrap_or(0);
        (all as f64 / self.nodes.len() as f64 / seconds, worst as f64 / seconds)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos((self.now_ms + 1_000_000) * MS)
    }

    fn active(&self) -> impl Iterator<Item = Injected> {
        self.settings.faults.iter().filter(|(at, _)| *at <= self.now_ms).map(|&(_, fault)| fault)
    }

    fn runs(&self, host: u32) -> bool {
        !self.active().any(|fault| fault.stops() && fault.host() == host)
    }

    fn observe(&mut self) {
        for fault in self.active().collect::<Vec<_>>() {
            for &(kind, by_peers) in fault.symptoms() {
                let peers: Vec<u32> = if by_peers {
                    let hosts = self.settings.hosts;
                    (1..4).map(|_| (fault.host() + self.random.random_range(1..hosts)) % hosts).collect()
                } else {
                    vec![fault.observer()]
                };
                for witness in peers {
                    self.observed(witness, kind, fault.place());
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
            if self.runs(to) {
                self.hear(to, message);
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
                drop(self.register.handle_verdict(now, from, verdict, &mut self.nodes[to as usize].tfa))
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
                tfa::Action::Ask { question, place, .. } => self.probe(host, question, place),
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

    /// The suspect answers if it runs; the system of a frozen host still accepts connections. Probes are not
    /// lost: drivers repeat them.
    fn probe(&mut self, asker: u32, question: Question, place: Place) {
        let host = place.host().unwrap().0;
        self.nodes[asker as usize].messages += 1;
        if self.active().any(|fault| fault == Injected::Frozen(host)) {
            let answer = Answer(vec![(Reading::Answers, 0.0), (Reading::Connects, 1.0)]);
            self.post(asker, asker, Message::Answer(question, answer));
        } else if self.runs(host) {
            let wrong =
                self.active().filter(|fault| fault.place() == place).flat_map(|fault| fault.readings());
            let answer = Answer(USUAL.iter().chain(wrong).copied().collect());
            self.post(host, asker, Message::Answer(question, answer));
        }
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
        self.number += 1;
        let at = self.now_ms + self.random.random_range(1..20);
        self.agenda.insert((at, self.number), (to, message));
    }
}
