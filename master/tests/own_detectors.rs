//! Detectors of a programmer's own, in a master that is driven by hand.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::{
    iter,
    sync::{Arc, Mutex},
    time::Duration,
};

use everfold_master::{
    Action, Event, Master, Notice, Policy,
    recovery::{Candidate, Chain, Death, Detector, Recoveries, Recovery, Repeated, Seen, Sign},
};
use everfold_protocol::{
    AgentId, Epoch, Incarnation, JobId, ProcessId, Rank, Timestamp,
    message::{
        AgentRef, Comeback, Ending, Evidence, FromAgent, Header, Lodging, News, NoReturn, Peer, ToAgent,
        ToMaster,
    },
    spec::Limits,
};

const JOB: JobId = JobId(1);
/// One on each host.
const RANKS: u32 = 3;
const ENDED: Evidence = Evidence::Ended(Ending::Signal(9));

type Log = Arc<Mutex<Vec<String>>>;

/// Chooses the same each time, and writes down what it hears.
#[derive(Debug, Default)]
struct Scribe {
    chosen: Option<Chain>,
    host: Option<AgentId>,
    due: Option<Timestamp>,
    log: Log,
}

impl Scribe {
    fn write(&self, line: String) {
        self.log.lock().unwrap().push(line);
    }
}

impl Detector for Scribe {
    fn judge(&mut self, _: Timestamp, death: &Death) -> Option<Chain> {
        self.write(format!("judge {:?} at {:?}: {:?}", death.process.rank, death.agent, death.evidence));
        self.chosen
    }

    fn choose_host(
        &mut self,
        _: Timestamp,
        _: ProcessId,
        _: AgentId,
        hosts: &[Candidate<'_>],
    ) -> Option<AgentId> {
        assert!(hosts.iter().all(|host| host.ranks == 1));
        self.host
    }

    fn see(&mut self, _: Timestamp, seen: Seen<'_>) {
        match seen {
            Seen::HostCame { agent, domain } => self.write(format!("came {agent:?} {domain:?}")),
            Seen::HostLost { agent, domain } => self.write(format!("lost {agent:?} {domain:?}")),
            Seen::Died { process, evidence } => self.write(format!("died {:?}: {evidence:?}", process.rank)),
            Seen::CameBack { process, lost, .. } => self.write(format!("back {:?} {lost:?}", process.rank)),
            Seen::Message { from, message: ToMaster::Leave } => self.write(format!("leaves {:?}", from.rank)),
            Seen::AgentSaid { agent, message: FromAgent::Ended { .. } } => {
                self.write(format!("says {agent:?}"));
            }
            Seen::Message { .. } | Seen::AgentSaid { .. } => {}
        }
    }

    fn wake_at(&self) -> Option<Timestamp> {
        self.due
    }

    fn wake(&mut self, now: Timestamp) {
        self.due = None;
        self.write(format!("woken at {now:?}"));
    }
}

/// A job in which ranks come back on their hosts, and migrate if these are lost. All have replicas.
struct Job {
    master: Master,
    now: Timestamp,
}

fn agent(host: u32) -> AgentId {
    AgentId(100 + u64::from(host))
}

fn process(rank: u32) -> ProcessId {
    ProcessId::first(Rank(rank))
}

impl Job {
    fn new(own: Vec<Box<dyn Detector>>) -> Self {
        let limits = Limits { ranks_return: true, replica_bytes_max: 1 << 20, ..Limits::default() };
        let policy = Policy { limits, recoveries: Recoveries::MIGRATE, ..Policy::default() };
        let master = Master::new(Timestamp::ZERO, JOB, RANKS, policy).with_detectors(own);
        let mut job = Self { master, now: Timestamp::ZERO };
        for host in 0..RANKS {
            let lodging =
                Lodging { address: Some(format!("host{host}:1")), domain: Some(format!("d{host}")) };
            job.hear(Event::Agent(agent(host), FromAgent::Join(lodging)));
        }
        for rank in 0..RANKS {
            job.say(process(rank), ToMaster::Join { peer: peer(process(rank), rank), size: RANKS });
        }
        for rank in 0..RANKS {
            // Only the one counts that the rank was told to take.
            for agent in [1, 2].map(|next| agent((rank + next) % RANKS)) {
                job.say(process(rank), ToMaster::Replicated { agent });
            }
        }
        job
    }

    fn hear(&mut self, event: Event) -> Vec<Action> {
        self.master.handle_event(self.now, event);
        let actions = iter::from_fn(|| self.master.poll_action()).collect();
        self.master.check();
        actions
    }

    fn say(&mut self, sender: ProcessId, message: ToMaster) -> Vec<Action> {
        let header = Header { job: JOB, epoch: Epoch(0), sender };
        self.hear(Event::Message { header, message })
    }

    /// Lets this time pass, in which all but rank 2 answer pings.
    fn wait(&mut self, time: Duration) -> Vec<Action> {
        let (end, mut actions) = (self.now + time, Vec::new());
        while let Some(due) = self.master.poll_timeout().filter(|due| *due <= end) {
            self.now = due;
            self.master.handle_timeout(due);
            actions.extend(iter::from_fn(|| self.master.poll_action()));
            for host in 0..RANKS {
                actions.extend(self.hear(Event::Agent(agent(host), FromAgent::Pong { number: 0 })));
            }
            for rank in [0, 1] {
                actions.extend(self.say(process(rank), ToMaster::Pong { number: 0 }));
            }
        }
        actions
    }

    /// The process of rank 2 ends, on its host.
    fn end(&mut self) -> Vec<Action> {
        let said = FromAgent::Ended { process: process(2), ending: Ending::Signal(9) };
        self.hear(Event::Agent(agent(2), said))
    }
}

fn peer(process: ProcessId, host: u32) -> Peer {
    let agent = Some(AgentRef { id: agent(host), address: String::new() });
    let (region, bell, board) = (None, None, None);
    let (address, domain) = (String::new(), None);
    Peer { process, host: host.into(), pid: 1, region, bell, board, address, domain, agent }
}

/// Who is told to start rank 2.
fn starters(actions: &[Action]) -> Vec<AgentId> {
    let starter = |action: &Action| match action {
        Action::SendAgent { to, message: ToAgent::Start { process, .. } } if process.rank == Rank(2) => {
            Some(*to)
        }
        _ => None,
    };
    actions.iter().filter_map(starter).collect()
}

/// Who is told to end which process.
fn ended(actions: &[Action]) -> Vec<(AgentId, ProcessId)> {
    let end = |action: &Action| match action {
        Action::SendAgent { to, message: ToAgent::End { process } } => Some((*to, *process)),
        _ => None,
    };
    actions.iter().filter_map(end).collect()
}

/// The reasons why recoveries of rank 2 are passed, or it does not return.
fn reasons(actions: &[Action]) -> Vec<NoReturn> {
    let reason = |action: &Action| match action {
        Action::Notice(Notice::News(
            News::Passed { reason, .. } | News::NotReturned { rank: Rank(2), reason },
        )) => Some(*reason),
        _ => None,
    };
    actions.iter().filter_map(reason).collect()
}

fn choosing(chosen: Chain) -> Box<Scribe> {
    Box::new(Scribe { chosen: Some(chosen), ..Scribe::default() })
}

#[test]
fn own_detectors_are_asked_before_the_built_in_ones() {
    assert_eq!(starters(&Job::new(Vec::new()).end()), [agent(2)], "the built-in one restarts it");
    let silent = || Box::new(Scribe::default());
    assert_eq!(starters(&Job::new(vec![silent()]).end()), [agent(2)], "it is handed over");
    let migrates = choosing(Chain::of(Recovery::Migrate));
    assert_eq!(starters(&Job::new(vec![silent(), migrates]).end()), [agent(0)]);
    let ignores = choosing(Chain::of(Recovery::Ignore));
    let actions = Job::new(vec![ignores, choosing(Chain::of(Recovery::Migrate))]).end();
    assert_eq!((starters(&actions), reasons(&actions)), (vec![], vec![NoReturn::Ignored]));
}

#[test]
fn a_recovery_that_cannot_be_done_is_passed() {
    let chain = Chain::then(Recovery::Promote, Recovery::Restart);
    let actions = Job::new(vec![choosing(chain)]).end();
    assert_eq!((starters(&actions), reasons(&actions)), (vec![agent(2)], vec![NoReturn::NoStandby]));
    let mut job = Job::new(vec![choosing(Chain::of(Recovery::Restart))]);
    let actions = job.hear(Event::AgentLost(agent(2)));
    assert_eq!((starters(&actions), reasons(&actions)), (vec![], vec![NoReturn::HostLost]));
}

#[test]
fn the_choice_of_the_host_is_followed_if_it_can_take_the_rank() {
    let start = |host| {
        let detector = Scribe { host: Some(host), ..Scribe::default() };
        starters(&Job::new(vec![Box::new(detector)]).hear(Event::AgentLost(agent(2))))
    };
    assert_eq!(start(agent(1)), [agent(1)]);
    assert_eq!(start(agent(2)), [agent(0)], "it is lost");
    assert_eq!(start(agent(7)), [agent(0)], "nobody knows it");
}

#[test]
fn own_detectors_hear_of_all_that_the_master_sees() {
    let log = Log::default();
    let detector = Scribe { log: log.clone(), ..Scribe::default() };
    let mut job = Job::new(vec![Box::new(detector)]);
    let heard = || core::mem::take(&mut *log.lock().unwrap());
    let came = |host| format!("came {:?} Some(\"d{host}\")", agent(host));
    assert_eq!(heard(), [came(0), came(1), came(2)]);
    job.end();
    let (rank, home) = (Rank(2), agent(2));
    let (judged, died) =
        (format!("judge {rank:?} at {home:?}: {:?}", Some(ENDED)), format!("died {rank:?}: {ENDED:?}"));
    assert_eq!(heard(), [format!("says {home:?}"), judged, died]);
    job.now = job.now + Duration::from_millis(30);
    let second = ProcessId { incarnation: Incarnation(1), ..process(2) };
    job.say(second, ToMaster::Join { peer: peer(second, 2), size: RANKS });
    job.say(second, ToMaster::CaughtUp(Comeback::default()));
    assert_eq!(heard(), [format!("back {rank:?} 30ms")]);
    job.hear(Event::AgentLost(home));
    let lost = Evidence::HostLost;
    let (judged, died) =
        (format!("judge {rank:?} at {home:?}: {:?}", Some(lost)), format!("died {rank:?}: {lost:?}"));
    assert_eq!(heard(), [format!("lost {home:?} Some(\"d2\")"), judged, died]);
    job.say(process(1), ToMaster::Leave);
    assert_eq!(heard(), [format!("leaves {:?}", Rank(1))]);
}

#[test]
fn own_detectors_are_woken_when_they_want() {
    let (log, due) = (Log::default(), Timestamp::ZERO + Duration::from_micros(1500));
    let detector = Scribe { log: log.clone(), due: Some(due), ..Scribe::default() };
    let mut job = Job::new(vec![Box::new(detector)]);
    log.lock().unwrap().clear();
    assert_eq!(job.master.poll_timeout(), Some(due), "nothing else is due so soon");
    job.master.handle_timeout(due);
    assert_eq!(*log.lock().unwrap(), [format!("woken at {due:?}")]);
    assert!(job.master.poll_timeout().is_none_or(|next| next > due));
}

#[test]
fn a_process_that_was_only_silent_is_ended_before_its_rank_comes_back() {
    let log = Log::default();
    let chosen = Some(Chain::of(Recovery::Restart));
    let mut job = Job::new(vec![Box::new(Scribe { log: log.clone(), chosen, ..Scribe::default() })]);
    let mut actions = Vec::new();
    while starters(&actions).is_empty() {
        job.now = job.master.poll_timeout().unwrap();
        job.master.handle_timeout(job.now);
        actions.extend(iter::from_fn(|| job.master.poll_action()));
        for host in 0..RANKS {
            job.hear(Event::Agent(agent(host), FromAgent::Pong { number: 0 }));
        }
        for rank in [0, 1] {
            job.say(process(rank), ToMaster::Pong { number: 0 });
        }
    }
    let orders = |action: &Action| match action {
        Action::SendAgent { to, message: ToAgent::End { process } } => Some((*to, "end", *process)),
        Action::SendAgent { to, message: ToAgent::Start { process, .. } } => Some((*to, "start", *process)),
        _ => None,
    };
    let orders: Vec<_> = actions.iter().filter_map(orders).collect();
    let next = ProcessId { incarnation: Incarnation(1), ..process(2) };
    assert_eq!(orders, [(agent(2), "end", process(2)), (agent(2), "start", next)]);
    let heard = log.lock().unwrap().join("\n");
    assert!(heard.contains("judge") && heard.contains("Silent"), "{heard}");
}

#[test]
fn a_process_whose_connection_alone_has_broken_is_ended_so_that_its_rank_comes_back() {
    for is_seen_to_end in [false, true] {
        let mut job = Job::new(Vec::new());
        let actions = job.hear(Event::Disconnected(process(2)));
        assert_eq!(starters(&actions), [agent(2)]);
        assert_eq!(ended(&actions), [], "it may be about to end, and has something to say");
        if is_seen_to_end {
            job.end();
        }
        let expected = if is_seen_to_end { vec![] } else { vec![(agent(2), process(2))] };
        let actions = job.wait(Recoveries::MIGRATE.restart.join_timeout / 2);
        assert_eq!((ended(&actions), reasons(&actions)), (expected, vec![]));
    }
}

#[test]
fn a_process_that_does_not_come_in_time_is_ended_or_not_started_any_more() {
    let mut job = Job::new(Vec::new());
    assert_eq!(starters(&job.end()), [agent(2)]);
    let join_timeout = Recoveries::MIGRATE.restart.join_timeout;
    let actions = job.wait(join_timeout);
    assert_eq!(reasons(&actions), [NoReturn::Late(join_timeout)]);
    let missed = ProcessId { incarnation: Incarnation(1), ..process(2) };
    assert_eq!(ended(&actions), [(agent(2), missed)]);
}

#[test]
fn deaths_that_own_detectors_have_judged_count_for_the_built_in_ones() {
    #[derive(Debug, Default)]
    struct First(bool);
    impl Detector for First {
        fn judge(&mut self, _: Timestamp, death: &Death) -> Option<Chain> {
            assert!(matches!(death.sign, Sign::Process(_)));
            (!std::mem::replace(&mut self.0, true)).then(|| Chain::of(Recovery::Restart))
        }
    }
    let repeated = Repeated { faults: 1, within: Duration::from_secs(1), recovery: Recovery::Ignore.into() };
    let limits = Limits { ranks_return: true, ..Limits::default() };
    let recoveries = Recoveries { repeated: Some(repeated), ..Recoveries::RESTART };
    let policy = Policy { limits, recoveries, ..Policy::default() };
    let master =
        Master::new(Timestamp::ZERO, JOB, RANKS, policy).with_detectors(vec![Box::<First>::default()]);
    let mut job = Job { master, now: Timestamp::ZERO };
    for rank in 0..RANKS {
        job.hear(Event::Agent(agent(rank), FromAgent::Join(Lodging::default())));
        job.say(process(rank), ToMaster::Join { peer: peer(process(rank), rank), size: RANKS });
    }
    assert_eq!(starters(&job.end()), [agent(2)], "the own one says so");
    let missed = ProcessId { incarnation: Incarnation(1), ..process(2) };
    let said = FromAgent::Ended { process: missed, ending: Ending::Signal(9) };
    let actions = job.hear(Event::Agent(agent(2), said));
    let within = repeated.within;
    assert_eq!(reasons(&actions), [NoReturn::Repeated { faults: 1, within }], "it is the second one");
}
