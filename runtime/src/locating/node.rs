//! Lets a host's machines act: the node of the host in the tree of those that locate faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use everfold_locate::{
    learn::record::Event,
    load::Load,
    message::Message,
    place::{Domain, Host, Place},
    probe::{Answer, Probe, Reading},
    register::Register,
    rules::RuleBase,
    symptom::Symptom,
    tfa::{self, Finding, Question, Tfa, Verdict},
    tfd::{self, Pace, Tfd, Ticket},
    tree::{ROOT, Tree},
};
use everfold_protocol::{
    Timestamp,
    locating::{Component, FromLocator, HostRef, Located, ToLocator},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior},
};

use super::{
    Faults, Input, Locator, NodeConfig,
    ask::{About, Asked, Reply},
    counters,
    history::History,
    injected::Injected,
    links::Links,
    probes,
    recorder::Recorder,
    told,
};
use crate::driver::timestamp;

/// How often the counters of the host are read.
const PERIOD: Duration = Duration::from_secs(1);
/// How many hosts have the same parent in the tree.
const CHILDREN: u32 = 8;
/// A verdict that the root has not acknowledged is said again after this long.
const REPEAT: Duration = Duration::from_secs(1);
/// How long it may take to conclude when the job is over.
const CONCLUSION: Duration = Duration::from_millis(1200);
/// Ranks that starve for less of the time, in percent, are not told of.
const STARVED_LEAST: u8 = 10;

/// The node of one host.
pub(super) struct Node {
    config: NodeConfig,
    locator: Locator,
    origin: std::time::Instant,
    rules: RuleBase,
    history: History,
    place: Option<Standing>,
    /// Users who wait until their rules hold.
    pushes: Vec<(Arc<str>, oneshot::Sender<Reply>)>,
    /// Who waits until all is concluded, and how long.
    over: Option<(oneshot::Sender<()>, Instant)>,
}

/// Where the node stands in a job that has begun.
struct Standing {
    me: Host,
    hosts: Arc<[HostRef]>,
    tfd: Tfd,
    tfa: Tfa,
    register: Register,
    load: Load,
    links: Links,
    recorder: Recorder,
    /// Verdicts that the root has not acknowledged, and when to say them again.
    reports: BTreeMap<Ticket, (Verdict, Timestamp)>,
    next_report: u64,
    starved: u8,
}

impl Standing {
    /// Takes in a symptom of a host whose symptoms are collected here.
    fn collect(&mut self, now: Timestamp, symptom: &Symptom) {
        self.recorder.note(now - symptom.ago, Event::from(symptom));
        self.tfa.handle_symptom(now, symptom);
    }
}

impl Node {
    pub fn new(config: NodeConfig, locator: Locator) -> Self {
        let rules = config.agent.rules.clone();
        let origin = std::time::Instant::now();
        let history = History::default();
        Self { config, locator, origin, rules, history, place: None, pushes: Vec::new(), over: None }
    }

    /// Locates faults until the agent ends.
    pub async fn run(mut self, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let mut sampling = tokio::time::interval(PERIOD);
        sampling.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut injected = Injected::from_env();
        loop {
            let due = self.next_timeout();
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => self.take(input),
                    None => return,
                },
                _ = sampling.tick() => self.sample(),
                () = injected.due() => self.inject(&mut injected),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
            self.let_time_pass();
            self.act();
            self.end_if_concluded();
        }
    }

    fn now(&self) -> Timestamp {
        timestamp(self.origin)
    }

    fn take(&mut self, input: Input) {
        let now = self.now();
        match input {
            Input::Master(said) => self.hear_master(said),
            Input::Came(process, pid) => self.history.came(process, pid),
            Input::Ended(process, ending) => self.history.ended(process, ending),
            Input::Unwanted(process) => self.history.is_unwanted(process),
            Input::Observed(symptom) => {
                tracing::debug!(?symptom, "observed");
                self.place.iter_mut().for_each(|it| it.tfd.handle_symptom(now, symptom));
            }
            Input::Said(from, message) => self.hear(from, message),
            Input::Probed(asker, question, answer) => self.answer(asker, question, answer),
            Input::Asked(asked) => self.tell_user(asked),
            Input::Over(done) => {
                self.place.iter_mut().for_each(|it| it.tfa.handle_end(now));
                self.over = Some((done, Instant::now() + CONCLUSION));
            }
        }
    }

    fn hear_master(&mut self, said: ToLocator) {
        match said {
            ToLocator::Hosts(hosts) => self.begin(hosts),
            // The root has listed it before it told the master.
            ToLocator::Located(_) if self.is_root() => {}
            ToLocator::Located(located) => {
                self.heed(&located);
                self.config.faults.note(located);
            }
            ToLocator::Rules(text) => self.deploy(&text),
        }
    }

    fn is_root(&self) -> bool {
        self.place.as_ref().is_some_and(|it| it.me == ROOT)
    }

    fn begin(&mut self, hosts: Arc<[HostRef]>) {
        let Some(me) = (0..).map(Host).zip(&*hosts).find(|(_, it)| it.agent.id == self.config.id) else {
            return;
        };
        let (me, count) = (me.0, u32::try_from(hosts.len()).unwrap_or(u32::MAX));
        let Ok(tree) = Tree::new(count, CHILDREN) else { return };
        if self.place.is_some() {
            return;
        }
        let domains = (0..).map(Domain).zip(told::domains(&hosts));
        let domains =
            domains.flat_map(|(domain, (_, inside))| inside.into_iter().map(move |host| (host, domain)));
        self.place = Some(Standing {
            me,
            tfd: Tfd::new(me, tree, Pace::default()),
            tfa: Tfa::new(self.rules.clone()),
            register: Register::new(self.rules.clone(), domains.collect()),
            load: Load::new(me),
            links: Links::new(self.config.agent.clone(), me, hosts.clone()),
            recorder: Recorder::begin(
                self.config.agent.symptoms.as_deref(),
                self.config.agent.job,
                me,
                &hosts,
            ),
            reports: BTreeMap::new(),
            next_report: 0,
            starved: 0,
            hosts,
        });
    }

    /// Uses other rules from now on. The agent that has sent them has compiled them, too.
    fn deploy(&mut self, text: &Arc<str>) {
        let now = self.now();
        match RuleBase::parse(text) {
            Ok(rules) => {
                self.rules = rules;
                if let Some(it) = &mut self.place {
                    it.tfa.deploy(now, self.rules.clone());
                    let news = it.register.deploy(self.rules.clone());
                    self.tell(news);
                }
                tracing::info!(rules = self.rules.rules().len(), "other rules locate faults from now on");
            }
            Err(error) => tracing::error!(%error, "rules that another agent has compiled are none here"),
        }
        let (here, others) =
            std::mem::take(&mut self.pushes).into_iter().partition(|(pushed, _)| pushed == text);
        self.pushes = others;
        let told: Vec<(Arc<str>, oneshot::Sender<Reply>)> = here;
        told.into_iter().for_each(|(_, user)| drop(user.send(Reply::Deployed)));
    }

    fn hear(&mut self, from: Host, message: Message) {
        let now = self.now();
        let Some(it) = &mut self.place else { return };
        match message {
            Message::Symptom { ticket, symptom } => {
                it.collect(now, &symptom);
                it.links.send(from, Message::Received(ticket));
            }
            Message::Received(ticket) => it.tfd.handle_received(ticket),
            Message::Ask { question, probe, place } => self.probe(from, question, probe, place),
            Message::Answer { question, answer } => it.tfa.handle_answer(now, question, answer),
            Message::Verdict { ticket, verdict } => {
                it.links.send(from, Message::Noted(ticket));
                self.register(from, verdict);
            }
            Message::Noted(ticket) => drop(it.reports.remove(&ticket)),
        }
    }

    fn answer(&mut self, asker: Host, question: Question, answer: Answer) {
        tracing::debug!(?asker, ?question, ?answer, "probed");
        let now = self.now();
        let Some(it) = &mut self.place else { return };
        match asker == it.me {
            true => it.tfa.handle_answer(now, question, answer),
            false => it.links.send(asker, Message::Answer { question, answer }),
        }
    }

    fn tell_user(&mut self, Asked { about, user }: Asked) {
        let reply = match about {
            About::Job => Reply::Job(self.config.describe(self.place.as_ref().map(|it| (it.me, &*it.hosts)))),
            About::Faults => Reply::Faults(self.config.faults.list().iter().map(Into::into).collect()),
            About::Rules(text) => match RuleBase::parse(&text) {
                Ok(_) if self.place.is_none() => {
                    Reply::Refused("the job has not begun yet; try again".to_owned())
                }
                Ok(_) => {
                    let text: Arc<str> = text.into();
                    (self.config.tell)(FromLocator::Rules(text.clone()));
                    return self.pushes.push((text, user));
                }
                Err(error) => Reply::Refused(error.to_string()),
            },
        };
        let _ = user.send(reply);
    }

    /// Reads the counters of the host.
    fn sample(&mut self) {
        let now = self.now();
        let Some(it) = &mut self.place else { return };
        let symptoms = it.load.handle_sample(now, counters::read(self.history.running()));
        symptoms.iter().for_each(|symptom| tracing::debug!(?symptom, "counted"));
        symptoms.into_iter().for_each(|symptom| it.tfd.handle_symptom(now, symptom));
        let starved = (it.load.starved() * 100.0) as u8;
        let starved = if starved < STARVED_LEAST { 0 } else { starved };
        if std::mem::replace(&mut it.starved, starved) != starved {
            (self.config.tell)(FromLocator::Starved(starved));
        }
    }

    fn inject(&mut self, injected: &mut Injected) {
        let now = self.now();
        let Some(it) = &mut self.place else { return };
        if let Some(symptom) = injected.symptom(it.me, &it.hosts) {
            it.tfd.handle_symptom(now, symptom);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let it = self.place.as_ref()?;
        let reports = it.reports.values().map(|(_, due)| *due).min();
        let due = [it.tfd.next_timeout(), it.tfa.next_timeout(), reports].into_iter().flatten().min();
        let due = due.map(|due| Instant::from_std(self.origin + Duration::from_nanos(due.as_nanos())));
        due.into_iter().chain(self.over.as_ref().map(|(_, until)| *until)).min()
    }

    fn let_time_pass(&mut self) {
        let now = self.now();
        let Some(it) = &mut self.place else { return };
        if it.tfd.next_timeout().is_some_and(|due| due <= now) {
            it.tfd.handle_timeout(now);
        }
        if it.tfa.next_timeout().is_some_and(|due| due <= now) {
            it.tfa.handle_timeout(now);
        }
        for (ticket, (verdict, due)) in it.reports.iter_mut().filter(|(_, (_, due))| *due <= now) {
            *due = now + REPEAT;
            it.links.send(ROOT, Message::Verdict { ticket: *ticket, verdict: verdict.clone() });
        }
    }

    /// Does what the machines say.
    fn act(&mut self) {
        let now = self.now();
        while let Some(it) = &mut self.place {
            if let Some(action) = it.tfd.poll_action() {
                match action {
                    tfd::Action::Keep(symptom) => it.collect(now, &symptom),
                    tfd::Action::Send { to, ticket, symptom } => {
                        it.links.send(to, Message::Symptom { ticket, symptom });
                    }
                }
                continue;
            }
            match it.tfa.poll_action() {
                Some(tfa::Action::Ask { question, probe, place }) => self.ask(question, probe, place),
                Some(tfa::Action::Report(verdict)) => self.report(verdict),
                None => return,
            }
        }
    }

    fn report(&mut self, verdict: Verdict) {
        tracing::debug!(?verdict);
        let now = self.now();
        self.place.iter_mut().for_each(|it| it.recorder.note(now, Event::from(&verdict)));
        if !matches!(verdict.finding, Finding::Confirmed | Finding::Over) {
            return;
        }
        if self.is_root() {
            return self.register(ROOT, verdict);
        }
        let Some(it) = &mut self.place else { return };
        let ticket = Ticket(it.next_report);
        it.next_report += 1;
        it.reports.insert(ticket, (verdict, now));
        self.let_time_pass();
    }

    /// At the root: lists what was located.
    fn register(&mut self, from: Host, verdict: Verdict) {
        let now = self.now();
        let Some(it) = &mut self.place else { return };
        let news = it.register.handle_verdict(now, from, verdict, &mut it.tfa);
        self.tell(news);
    }

    /// At the root: tells everybody what is new.
    fn tell(&mut self, news: Vec<Verdict>) {
        let Some(it) = self.place.as_ref().filter(|it| it.me == ROOT) else { return };
        let hosts = it.hosts.clone();
        for news in news {
            let located = Arc::new(told::located(&news, &hosts));
            self.heed(&located);
            self.config.faults.note(located.clone());
            (self.config.tell)(FromLocator::Located(located));
        }
    }

    /// Nothing runs on a host, or again: its node collects no symptoms meanwhile.
    fn heed(&mut self, located: &Located) {
        let now = self.now();
        let Some(it) = &mut self.place else { return };
        if let (Some(host), true) = (host_of(located, &it.hosts), self.rules.stops(&located.fault)) {
            it.tfd.handle_stopped(now, host, located.over);
        }
    }

    /// Has a question answered by the host that can.
    fn ask(&mut self, question: Question, probe: Probe, place: Place) {
        let Some(it) = &mut self.place else { return };
        let (me, stopped) = (it.me, stopped(&self.config.faults, &self.rules, &it.hosts));
        match executor(probe, place, me, it.hosts.len() as u32, &stopped) {
            Some(host) if host == me => self.probe(me, question, probe, place),
            Some(host) => it.links.send(host, Message::Ask { question, probe, place }),
            None => self.answer(me, question, Answer::default()),
        }
    }

    /// Executes a probe for a host.
    fn probe(&mut self, asker: Host, question: Question, probe: Probe, place: Place) {
        let Some(it) = &mut self.place else { return };
        let (Some(suspect), locator) = (place.host(), self.locator.clone()) else { return };
        let Some(host) = it.hosts.get(suspect.0 as usize).cloned() else { return };
        let config = self.config.agent.clone();
        let done = move |answer| locator.tell(Input::Probed(asker, question, answer));
        match probe {
            Probe::Response if suspect != it.me => {
                tokio::spawn(async move { done(probes::response(config, host).await) });
            }
            Probe::Link => {
                let stopped = stopped(&self.config.faults, &self.rules, &it.hosts);
                let other = other_than(it.me, suspect, it.hosts.len() as u32, &stopped);
                let other = other.and_then(|other| it.hosts.get(other.0 as usize).cloned());
                tokio::spawn(async move { done(probes::link(config, host, other).await) });
            }
            Probe::Disk => {
                tokio::spawn(async move { done(probes::disk().await) });
            }
            Probe::Response | Probe::State | Probe::Log | Probe::Cpu => {
                let mut readings = vec![(Reading::Answers, 1.0)];
                readings.extend(it.load.state());
                if let Place::Rank { rank, .. } = place {
                    readings.extend(self.history.readings(rank));
                    readings.extend(it.load.computes(rank).map(|share| (Reading::Computes, share)));
                }
                // At once: when the job ends, nobody waits for long.
                self.answer(asker, question, Answer(readings));
            }
        }
    }

    fn end_if_concluded(&mut self) {
        let waits = self.place.as_ref().is_some_and(|it| it.tfa.waits());
        if self.over.as_ref().is_some_and(|(_, until)| !waits || *until <= Instant::now()) {
            self.over = None;
        }
    }
}

/// The host that a located fault is about, if it is about one.
fn host_of(located: &Located, hosts: &[HostRef]) -> Option<Host> {
    let Component::Host(name) = &located.component else { return None };
    (0..).map(Host).zip(hosts).find(|(_, host)| host.ranks == name.ranks).map(|(host, _)| host)
}

/// Hosts on which nothing runs, as far as was told here: they answer no question.
fn stopped(faults: &Faults, rules: &RuleBase, hosts: &[HostRef]) -> BTreeSet<Host> {
    let listed = faults.list();
    let stopping = listed.iter().filter(|it| it.over.is_none() && rules.stops(&it.located.fault));
    stopping.filter_map(|it| host_of(&it.located, hosts)).collect()
}

/// The host that executes a probe of a place for host `me`.
fn executor(probe: Probe, place: Place, me: Host, hosts: u32, stopped: &BTreeSet<Host>) -> Option<Host> {
    match (probe, place) {
        (Probe::Response, _) => Some(me),
        (Probe::Link, Place::Link { to, .. }) => Some(to),
        (Probe::Link, _) if place.host() != Some(me) => Some(me),
        // Whether this host is slow is for another one to say.
        (Probe::Link, _) => other_than(me, me, hosts, stopped),
        _ => place.host(),
    }
}

/// The host after `me` that is not the other one either, and has not stopped.
fn other_than(me: Host, suspect: Host, hosts: u32, stopped: &BTreeSet<Host>) -> Option<Host> {
    let mut others = (1..hosts).map(|step| Host((me.0 + step) % hosts));
    others.find(|host| *host != suspect && !stopped.contains(host))
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{AgentId, Rank, message::AgentRef};

    use super::*;

    #[test]
    fn a_host_that_has_stopped_is_neither_asked_nor_compared_with() {
        let host = |rank: u32| HostRef {
            agent: AgentRef { id: AgentId(rank.into()), address: "127.0.0.1:1".to_owned() },
            ranks: [Rank(rank)].into_iter().collect(),
            domain: None,
        };
        let hosts: Vec<HostRef> = (0..4).map(host).collect();
        let (faults, rules) = (Faults::default(), RuleBase::default());
        let tell = |fault: &str, over| {
            faults.note(Arc::new(Located {
                fault: fault.to_owned(),
                says: String::new(),
                component: Component::Host(told::name(Host(1), &hosts)),
                age: Duration::ZERO,
                confidence: 90,
                evidence: Vec::new(),
                harmless: false,
                over,
            }));
        };
        let chosen = || {
            let (me, stopped) = (Host(0), stopped(&faults, &rules, &hosts));
            let asked = executor(Probe::Link, Place::Host(me), me, 4, &stopped);
            [asked, other_than(me, Host(3), 4, &stopped)]
        };
        tell("disk_full", false);
        assert_eq!(chosen(), [Some(Host(1)); 2], "it runs");
        tell("host_dead", false);
        assert_eq!(chosen(), [Some(Host(2)); 2]);
        tell("host_dead", true);
        assert_eq!(chosen(), [Some(Host(1)); 2], "it is back");
    }
}
