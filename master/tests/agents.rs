//! Agents, driven by hand: what the master makes of what they say, and of their loss.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::{iter, time::Duration};

use everfold_master::{Action, Event, Master, Notice, Policy};
use everfold_protocol::{
    AgentId, Epoch, Generation, JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec, RegionOffset,
    Timestamp, WindowId,
    message::{
        AgentRef, Contribution, Data, Ending, Evidence, Fault, FromAgent, Header, Kept, Lodging, News,
        NotKept, PartialReady, Peer, Place, Task, TaskCounters, TaskFailed, ToAgent, ToMaster, ToWorker,
        WindowRef,
    },
    report::Refusal,
    spec::{BodyKind, Delivery, ElementType, Limits, Operation, Order, Protection},
};

const JOB: JobId = JobId(1);
const RANKS: u32 = 4;
const KILLED: Ending = Ending::Signal(9);

/// A job of four ranks on two hosts, each with an agent: ranks 0 and 1 on host 0, 2 and 3 on host 1.
struct Job {
    master: Master,
    now: Timestamp,
}

fn agent(host: u64) -> AgentId {
    AgentId(100 + host)
}

fn process(rank: u32) -> ProcessId {
    ProcessId::first(Rank(rank))
}

/// An array in its owner's region.
fn window() -> Data {
    let place = Place::Region(RegionOffset(0));
    Data::Window(WindowRef {
        window: WindowId(0),
        generation: Generation(1),
        bytes: 1 << 16,
        checksum: None,
        place,
    })
}

impl Job {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let limits = Limits { ping_interval: Duration::from_millis(500), ..limits };
        let policy =
            Policy { limits, segment_bytes: 1 << 16, segment_bytes_min: 1 << 16, ..Policy::default() };
        let mut job = Self { master: Master::new(Timestamp::ZERO, JOB, RANKS, policy), now: Timestamp::ZERO };
        job.hear(Event::Agent(agent(0), FromAgent::Join(Lodging::default())));
        (0..RANKS).for_each(|rank| drop(job.join(rank)));
        job.hear(Event::Agent(agent(1), FromAgent::Join(Lodging::default())));
        job
    }

    fn join(&mut self, rank: u32) -> Vec<Action> {
        let host = u64::from(rank / 2);
        let agent = Some(AgentRef { id: agent(host), address: String::new() });
        let (region, bell, board) = (None, None, None);
        let (address, domain) = (String::new(), None);
        let peer = Peer { process: process(rank), host, pid: 1, region, bell, board, address, domain, agent };
        self.say(rank, ToMaster::Join { peer, size: RANKS })
    }

    fn hear(&mut self, event: Event) -> Vec<Action> {
        self.master.handle_event(self.now, event);
        let actions = iter::from_fn(|| self.master.poll_action()).collect();
        self.master.check();
        actions
    }

    fn say(&mut self, rank: u32, message: ToMaster) -> Vec<Action> {
        let header = Header { job: JOB, epoch: Epoch(0), sender: process(rank) };
        self.hear(Event::Message { header, message })
    }

    fn end(&mut self, rank: u32) -> Vec<Action> {
        let said = FromAgent::Ended { process: process(rank), ending: KILLED };
        self.hear(Event::Agent(agent(u64::from(rank / 2)), said))
    }

    fn contribute(&mut self, rank: u32) -> Vec<Action> {
        self.contribute_to(&[0, 2], Protection::None, rank)
    }

    fn contribute_to(&mut self, group: &[u32], protection: Protection, rank: u32) -> Vec<Action> {
        let spec = ReductionSpec {
            group: group.iter().copied().map(Rank).collect(),
            delivery: Delivery::Root(Rank(0)),
            kind: BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length: 1 << 16 },
            order: Order::Arrival,
            deadline: None,
            protection,
            allow_missing: false,
            trace: false,
        };
        self.call(spec, rank)
    }

    fn call(&mut self, spec: ReductionSpec, rank: u32) -> Vec<Action> {
        let data = if spec.delivery.root() == Some(Rank(rank)) { Data::Private } else { window() };
        let (reduction, name) = (ReductionId::new("x", 0), "x".into());
        self.say(rank, ToMaster::Contribute(Box::new(Contribution { reduction, name, spec, data })))
    }

    /// Lets time pass until that moment, in which only `heard` answer pings; tells what the master does.
    fn wait(&mut self, ms: u64, ranks: &[u32], agents: &[u64]) -> Vec<Action> {
        let (end, mut all) = (self.now + Duration::from_millis(ms), Vec::new());
        while let Some(due) = self.master.poll_timeout().filter(|due| *due <= end) {
            self.now = due;
            self.master.handle_timeout(due);
            all.extend(iter::from_fn(|| self.master.poll_action()));
            for rank in ranks {
                all.extend(self.say(*rank, ToMaster::Pong { number: 0 }));
            }
            for host in agents {
                all.extend(self.hear(Event::Agent(agent(*host), FromAgent::Pong { number: 0 })));
            }
        }
        all
    }
}

fn failed(actions: &[Action]) -> Vec<(u32, Evidence)> {
    let failed = actions.iter().filter_map(|action| match action {
        Action::Notice(Notice::Failed { process, evidence }) => Some((process.rank.0, *evidence)),
        _ => None,
    });
    failed.collect()
}

fn tasks(actions: Vec<Action>) -> Vec<(u32, Task)> {
    let task = |action| match action {
        Action::Send { to, message: ToWorker::Task(task) } => Some((to.rank.0, task)),
        _ => None,
    };
    actions.into_iter().filter_map(task).collect()
}

/// The keepers that are asked for copies of what rank 2 has contributed.
fn keepers(actions: &[Action]) -> Vec<u32> {
    let keeper = |action: &Action| match action {
        Action::Send { to, message: ToWorker::Keep(keep) } if keep.source.process == process(2) => {
            Some(to.rank.0)
        }
        _ => None,
    };
    actions.iter().filter_map(keeper).collect()
}

fn to_agents(actions: &[Action]) -> Vec<(AgentId, ToAgent)> {
    let said = actions.iter().filter_map(|action| match action {
        Action::SendAgent { to, message } => Some((*to, message.clone())),
        _ => None,
    });
    said.collect()
}

fn is_news(action: &Action) -> bool {
    matches!(action, Action::Notice(Notice::News(News::Ended { rank: Rank(3), ending: KILLED })))
}

#[test]
fn the_end_of_a_process_is_evidence_at_once_or_told_later() {
    let mut job = Job::new();
    assert_eq!(failed(&job.end(2)), [(2, Evidence::Ended(KILLED))]);
    assert!(job.hear(Event::Disconnected(process(2))).is_empty(), "it is known");
    let actions = job.hear(Event::Disconnected(process(3)));
    assert_eq!(failed(&actions), [(3, Evidence::Disconnected)]);
    let actions = job.end(3);
    assert!(failed(&actions).is_empty() && actions.iter().any(is_news));
    let stranger = FromAgent::Ended { process: process(1), ending: KILLED };
    assert!(failed(&job.hear(Event::Agent(agent(1), stranger))).is_empty(), "it is on another host");
    job.say(1, ToMaster::Leave);
    assert!(job.end(1).is_empty(), "it has left in good order");
}

#[test]
fn an_agent_holds_what_a_process_has_left_for_other_hosts_until_nobody_needs_it() {
    let mut job = Job::new();
    job.contribute(2);
    assert!(to_agents(&job.end(2)).is_empty(), "it is needed");
    let mut granted = tasks(job.contribute(0));
    let (executor, task) = granted.pop().unwrap();
    let reads_dead = |task: &Task| task.sources.iter().any(|source| source.process == process(2));
    assert!(granted.is_empty() && executor == 0 && reads_dead(&task), "{task:?}");
    let (segment, culprit, reason) = (task.segment, process(2), String::new());
    let (suspects, fault) = (Path::empty(), Fault::Unreachable);
    let out_of_reach = TaskFailed { task: task.task, segment, culprit, suspects, fault, reason };
    let actions = job.say(0, ToMaster::TaskFailed(out_of_reach.clone()));
    let is_refused = |action: &Action| matches!(action, Action::Notice(Notice::Refused { .. }));
    assert!(!actions.iter().any(is_refused), "it is still there");
    let (_, task) = tasks(job.wait(100, &[0, 1, 3], &[0, 1])).pop().expect("it is read again");
    let gone = TaskFailed { task: task.task, fault: Fault::Gone, ..out_of_reach };
    let actions = job.say(0, ToMaster::TaskFailed(gone));
    let lost = Refusal::ContributionLost { ranks: Path::single(Rank(2)) };
    let told = |action: &Action| matches!(action, Action::Notice(Notice::Refused { refusal, .. }) if *refusal == lost);
    assert!(actions.iter().any(told), "it is there no more: {actions:?}");
    assert!(to_agents(&actions).contains(&(agent(1), ToAgent::Forget { process: process(2) })));
}

#[test]
fn a_keeper_that_is_not_asked_any_more_does_not_end_the_search() {
    let mut job = Job::new();
    let contribute = |job: &mut Job, rank| job.contribute_to(&[0, 1, 2], Protection::CommitFirst, rank);
    let mut actions = contribute(&mut job, 0);
    actions.extend(contribute(&mut job, 1));
    actions.extend(contribute(&mut job, 2));
    let first = keepers(&actions).first().copied().expect("one on the other host");
    job.end(2);
    let second = 1 - first;
    while keepers(&actions) != [first, second] {
        // The next ping is due by then.
        let more = job.wait(600, &[0, 1, 3], &[0, 1]);
        assert!(!more.is_empty(), "{:?}", keepers(&actions));
        actions.extend(more);
    }
    let kept = |owner, result| {
        let (reduction, owner) = (ReductionId::new("x", 0), process(owner));
        ToMaster::Kept(Kept { reduction, owner, segments: 0..1, result })
    };
    let told = job.say(first, kept(2, Err(NotKept::Gone)));
    assert!(told.is_empty(), "the other one may have it: {told:?}");
    job.say(second, kept(2, Ok(window())));
    let (_, task) = tasks(job.say(0, kept(1, Ok(window())))).pop().expect("the root folds rank 1's first");
    let (path, counters) = ([0, 1].map(Rank).into_iter().collect(), TaskCounters::default());
    let (task, segment, data) = (task.task, task.segment, Data::Private);
    let done = PartialReady { task, segment, path, data, counters };
    let (_, task) = tasks(job.say(0, ToMaster::PartialReady(done))).pop().expect("then rank 2's");
    assert!(task.sources.iter().any(|source| source.path.contains(Rank(2))), "{task:?}");
}

/// Nobody is taken to be late at an operation of the application whose time is not known.
#[test]
fn others_fold_what_a_rank_whose_contribution_is_missing_was_folding_when_it_died() {
    let mut job = Job::new();
    let spec = ReductionSpec {
        group: Path::range(0, RANKS),
        delivery: Delivery::All,
        kind: BodyKind::Object { type_name: "words".to_owned() },
        order: Order::Arrival,
        deadline: None,
        protection: Protection::None,
        allow_missing: true,
        trace: false,
    };
    job.call(spec.clone(), 0);
    let (reader, read) = tasks(job.call(spec.clone(), 1)).pop().expect("one of the two reads the other's");
    let owner = 1 - reader;
    job.call(spec.clone(), 2);
    job.call(spec, 3);
    job.end(2);
    let (executor, afresh) = tasks(job.end(3)).pop().expect("somebody folds what the two have left");
    assert_eq!((executor, &afresh.own, afresh.sources.len()), (owner, &Path::empty(), 2));
    let mut task = Some(read);
    while let Some(Task { task: number, segment, .. }) = task {
        let (culprit, suspects, reason) = (process(owner), Path::empty(), String::new());
        let damaged = TaskFailed { task: number, segment, culprit, suspects, fault: Fault::Damaged, reason };
        task = tasks(job.say(reader, ToMaster::TaskFailed(damaged))).pop().map(|(_, task)| task);
    }
    let (_, reduction) = job.master.reductions().next().expect("it goes on without that contribution");
    assert!(!reduction.group().contains(Rank(owner)));
    let (executor, _) = tasks(job.end(owner)).pop().expect("the rank that is left folds it");
    assert_eq!(executor, reader);
}

#[test]
fn with_an_agent_its_host_is_lost() {
    let mut job = Job::new();
    job.contribute(2);
    job.end(2);
    let actions = job.hear(Event::AgentLost(agent(1)));
    assert_eq!(failed(&actions), [(3, Evidence::HostLost)]);
    assert!(actions.contains(&Action::DisconnectAgent(agent(1))));
    for to in [0, 1].map(process) {
        assert!(actions.contains(&Action::Send { to, message: ToWorker::AgentLost { agent: agent(1) } }));
    }
    assert!(actions.contains(&Action::Send { to: process(3), message: ToWorker::Fenced }), "if it lives");
    let lost = |action: &Action| matches!(action, Action::Notice(Notice::Refused { .. }));
    assert!(actions.iter().any(lost), "what rank 2 had left is gone, too");
    assert!(job.hear(Event::AgentLost(agent(1))).is_empty(), "it is known");
    let actions = job.hear(Event::Agent(agent(1), FromAgent::Pong { number: 1 }));
    assert_eq!(actions, [Action::DisconnectAgent(agent(1))], "it is given up");
}

#[test]
fn a_host_that_comes_back_has_started_its_ranks_in_vain() {
    let here = agent(7);
    let moved = |rank| (here, ToAgent::Moved { process: process(rank) });
    let comes = |job: &mut Job| {
        let ranks = [1, 2, 3].map(Rank).into_iter().collect();
        job.hear(Event::Agent(here, FromAgent::Join(Lodging::default())));
        to_agents(&job.hear(Event::Agent(here, FromAgent::Expects { ranks })))
    };
    let mut job = Job::new();
    job.hear(Event::AgentLost(agent(1)));
    assert_eq!(comes(&mut job), [], "no rank could come to it");
    let job = || Job::with(Limits { replica_bytes_max: 1 << 20, ..Limits::default() });
    let mut early = job();
    assert_eq!(comes(&mut early), [], "its loss is not known yet");
    assert_eq!(to_agents(&early.hear(Event::AgentLost(agent(1)))), [moved(2), moved(3)]);
    let mut job = job();
    job.hear(Event::AgentLost(agent(1)));
    assert_eq!(comes(&mut job), [moved(2), moved(3)], "rank 1 lives on another host");
    for (rank, is_told) in [(2, true), (1, false)] {
        let agent = Some(AgentRef { id: here, address: String::new() });
        let (process, address, domain) = (process(rank), String::new(), None);
        let (region, bell, board) = (None, None, None);
        let peer = Peer { process, host: 7, pid: 1, region, bell, board, address, domain, agent };
        let actions = job.say(rank, ToMaster::Join { peer, size: RANKS });
        let is_reason = |action: &Action| matches!(action, Action::Send { message: ToWorker::Unwelcome { reason }, .. } if reason.contains("spare"));
        assert_eq!(actions.iter().any(is_reason), is_told, "{actions:?}");
        assert_eq!(actions.last(), Some(&Action::Disconnect(process)));
    }
}

#[test]
fn whoever_joins_from_a_lost_host_is_lost() {
    let master = Master::new(Timestamp::ZERO, JOB, RANKS, Policy::default());
    let mut job = Job { master, now: Timestamp::ZERO };
    job.join(0);
    job.hear(Event::AgentLost(agent(1)));
    let actions = job.join(3);
    assert_eq!(failed(&actions), [(3, Evidence::HostLost)]);
    let told = ToWorker::Incomplete { missing: Path::single(Rank(3)) };
    assert!(actions.contains(&Action::Send { to: process(0), message: told }));
}

#[test]
fn a_process_that_ends_before_it_joins_is_not_waited_for() {
    let master = Master::new(Timestamp::ZERO, JOB, RANKS, Policy::default());
    let mut job = Job { master, now: Timestamp::ZERO };
    job.join(0);
    let ended = FromAgent::NeverCame { process: process(3), ending: Ending::Code(1) };
    let actions = job.hear(Event::Agent(agent(1), ended.clone()));
    let told = ToWorker::Incomplete { missing: Path::single(Rank(3)) };
    assert_eq!(actions, [Action::Send { to: process(0), message: told.clone() }]);
    let again = job.hear(Event::Agent(agent(1), ended));
    assert!(matches!(again[..], [Action::Notice(Notice::Stale { .. })]), "it is known: {again:?}");
    assert!(job.join(1).contains(&Action::Send { to: process(1), message: told }), "it has come later");
}

#[test]
fn with_a_host_those_are_lost_that_were_to_join_from_there() {
    let begin = || {
        let master = Master::new(Timestamp::ZERO, JOB, RANKS, Policy::default());
        let mut job = Job { master, now: Timestamp::ZERO };
        job.hear(Event::Agent(agent(1), FromAgent::Join(Lodging::default())));
        // One that speaks of more ranks than there are does no harm.
        let ranks = Path::range(2, u32::MAX);
        job.hear(Event::Agent(agent(1), FromAgent::Expects { ranks }));
        job.join(0);
        job
    };
    let incomplete = |to, ranks: &[u32]| {
        let missing = ranks.iter().copied().map(Rank).collect();
        Action::Send { to: process(to), message: ToWorker::Incomplete { missing } }
    };
    let mut job = begin();
    let actions = job.hear(Event::AgentLost(agent(1)));
    assert!(actions.contains(&incomplete(0, &[2, 3])), "{actions:?}");
    assert!(job.join(1).contains(&incomplete(1, &[2, 3])), "it has come later");
    let actions = [0, 1].map(|rank| job.hear(Event::Disconnected(process(rank))));
    assert!(actions[1].contains(&Action::Done), "nobody else is to come: {actions:?}");

    let mut job = begin();
    job.join(2);
    let actions = job.hear(Event::AgentLost(agent(1)));
    assert!(actions.contains(&incomplete(0, &[2])), "rank 2 was here: {actions:?}");
    let missing =
        |action: &&Action| matches!(action, Action::Send { message: ToWorker::Incomplete { .. }, .. });
    assert_eq!(actions.iter().filter(missing).count(), 1, "once");

    let mut job = Job::new();
    job.hear(Event::Agent(agent(1), FromAgent::Expects { ranks: Path::range(2, 4) }));
    let actions = job.hear(Event::AgentLost(agent(1)));
    assert_eq!(failed(&actions).len(), 2, "the job has begun: {actions:?}");
}

#[test]
fn an_agent_that_is_silent_is_lost() {
    let mut job = Job::new();
    let actions = job.wait(5000, &[0, 1, 2, 3], &[0]);
    assert_eq!(failed(&actions), [(2, Evidence::HostLost), (3, Evidence::HostLost)]);
    let pings = to_agents(&actions);
    assert!(pings.iter().any(|(to, said)| *to == agent(0) && matches!(said, ToAgent::Ping { .. })));
    for rank in [0, 1] {
        let actions = job.say(rank, ToMaster::Leave);
        let is_last = rank == 1;
        assert_eq!(to_agents(&actions).contains(&(agent(0), ToAgent::Farewell)), is_last);
        assert_eq!(actions.contains(&Action::Done), is_last);
    }
}
