//! What happens, in words: one line per event, for people who follow a run.

use std::{collections::BTreeMap, fmt};

use everfold_agent::{Connection, Event as AgentEvent};
use everfold_master::{Notice, located};
use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentId, Timestamp,
    message::{Data, Fault, FromAgent, Piece, Task, ToAgent, ToMaster, ToWorker},
};
use everfold_worker::machine::End;

use crate::{
    events::{Happening, Place},
    faults::Disk,
    process::shows_copy,
    work::Work,
};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: Timestamp,
    /// To whom: a rank, the master or the network.
    pub who: String,
    /// What.
    pub what: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.3} ms  {:<8}  {}", self.at.as_nanos() as f64 / 1e6, self.who, self.what)
    }
}

/// Tells a listener what happens.
#[derive(Default)]
pub(crate) struct Teller {
    listener: Option<Box<dyn FnMut(Line)>>,
    names: BTreeMap<u64, String>,
}

impl Teller {
    pub fn listen(&mut self, listener: Box<dyn FnMut(Line)>) {
        self.listener = Some(listener);
    }

    pub fn is_heard(&self) -> bool {
        self.listener.is_some()
    }

    /// Something is about to happen.
    pub fn happens(&mut self, at: Timestamp, what: &Happening) {
        if let Happening::Call(call) = what {
            self.names.insert(ReductionId::new(&call.name, 0).name, call.name.clone());
        }
        if what.is_idle() {
            return;
        }
        let (who, what) = self.describe(what);
        self.say(at, who, what);
    }

    /// What the master tells its watchers.
    pub fn notice(&mut self, at: Timestamp, notice: &Notice) {
        let what = match notice {
            Notice::Complete { ranks } => format!("all {ranks} ranks are here"),
            Notice::Failed { process, evidence } => {
                format!("declares rank {} failed: {evidence}", process.rank)
            }
            Notice::News(news) => format!("tells the group: {news}"),
            Notice::Returned(process) => format!("takes rank {} back: {process}", process.rank),
            Notice::Left(process) => format!("lets rank {} go", process.rank),
            Notice::Stale { sender, what } => format!("drops a message of rank {}: {what}", sender.rank),
            Notice::Refused { reduction, ranks, refusal } => {
                format!("refuses {} to {ranks}: {refusal}", self.name(*reduction))
            }
            Notice::Dissolved(reduction) => format!("dissolves {}", self.name(*reduction)),
            Notice::Finished(reduction) => format!("{} is complete", self.name(*reduction)),
        };
        self.say(at, MASTER.to_owned(), what);
    }

    /// Somebody folds what is not what it is said to be.
    pub fn nonsense(&mut self, at: Timestamp, rank: Rank, task: &Task) {
        let what = format!("FOLDS NONSENSE in task {} on {}", task.task, self.segment(task.segment));
        self.say(at, of(rank), what);
    }

    /// A future ends.
    pub fn resolved(&mut self, at: Timestamp, rank: Rank, reduction: ReductionId, end: &End) {
        let how = match end {
            End::Finished(report) => format!("ends well: {report}"),
            End::Received(report) => format!("ends with the value: {report}"),
            End::Refused(refusal) => format!("ends in an error: {refusal}"),
            End::MasterLost => "ends: the master is lost".to_owned(),
            End::Fenced => "ends: this process was declared failed".to_owned(),
            End::Closed => "ends: the session is closed".to_owned(),
            End::ResultLost(error) => format!("ends: the result is lost, {error}"),
        };
        let name = self.name(reduction);
        self.say(at, of(rank), format!("=> {name} {how}"));
    }

    fn say(&mut self, at: Timestamp, who: String, what: String) {
        if let Some(listener) = &mut self.listener {
            listener(Line { at, who, what });
        }
    }

    fn name(&self, id: ReductionId) -> String {
        let name = self.names.get(&id.name).map_or("?", String::as_str);
        let teams = if id.is_in_teams() { " in teams" } else { "" };
        match id.called().sequence {
            0 => format!("{name}{teams}"),
            sequence => format!("{name}#{sequence}{teams}"),
        }
    }

    fn segment(&self, id: SegmentId) -> String {
        format!("{}[{}]", self.name(id.reduction), id.index)
    }

    fn describe(&self, what: &Happening) -> (String, String) {
        match what {
            Happening::Call(call) => {
                let spec = &call.spec;
                let id = ReductionId::new(&call.name, call.sequence);
                let text = format!(
                    "calls {}: {} over {}, to {}",
                    self.name(id),
                    spec.kind,
                    spec.group,
                    spec.delivery
                );
                (of(call.rank), text)
            }
            Happening::ToMaster(sender, _, message) => {
                (MASTER.to_owned(), format!("hears rank {}: {}", sender.rank, self.to_master(message)))
            }
            Happening::ToWorker(to, _, message) => {
                (of(to.rank), format!("hears: {}", self.to_worker(message)))
            }
            Happening::ToDeputy(rank, sender, message) => {
                (format!("deputy {rank}"), format!("hears rank {}: {}", sender.rank, self.to_master(message)))
            }
            Happening::OfDeputy(rank, deputy, task) => {
                (of(*rank), format!("hears deputy {}: {}", deputy.rank, self.task(task)))
            }
            Happening::DeputyLost(rank, deputy) => {
                (of(*rank), format!("sees its connection to deputy {} break", deputy.rank))
            }
            Happening::Renew(process, reduction) => {
                (of(process.rank), format!("makes its body of {} an original again", self.name(*reduction)))
            }
            Happening::DeputyTimeout(rank) => (format!("deputy {rank}"), "its clock rings".to_owned()),
            Happening::Done(process, done) => (of(process.rank), self.work(&done.0)),
            Happening::Tick(_) => (NETWORK.to_owned(), "moves on".to_owned()),
            Happening::Die(process) => (of(process.rank), "DIES".to_owned()),
            Happening::Crash(process, arrive) => {
                let what = format!("DIES, AND OF WHAT IT HAS SENT {arrive} MESSAGES STILL ARRIVE");
                (of(process.rank), what)
            }
            Happening::Abandon(process) => (of(process.rank), "LEAVES WITHOUT A WORD".to_owned()),
            Happening::LetGo(process) => (of(process.rank), "DIES AND LETS GO OF ITS LIFELINE".to_owned()),
            Happening::LoseHost(host) => (NETWORK.to_owned(), format!("HOST {host} IS LOST")),
            Happening::Break(process) => {
                (NETWORK.to_owned(), format!("THE CONNECTION OF RANK {} BREAKS", process.rank))
            }
            Happening::EndHost(host) => (agent(*host), "DIES, AND ITS RANKS WITH IT".to_owned()),
            Happening::Freeze(place) => (at(*place), "STOPS".to_owned()),
            Happening::Thaw(place) => (at(*place), "RUNS AGAIN".to_owned()),
            Happening::FromAgent(host, said) => {
                (MASTER.to_owned(), format!("hears agent {host}: {}", from_agent(said)))
            }
            Happening::AtAgent(host, event) => (agent(*host), at_agent(event)),
            Happening::AgentLost(host) => {
                (MASTER.to_owned(), format!("sees the connection of agent {host} break"))
            }
            Happening::Cut(cut) => {
                let arrow = if cut.both_ways { "<->" } else { "->" };
                (NETWORK.to_owned(), format!("CUT: hosts {:?} {arrow} {:?}", cut.from, cut.to))
            }
            Happening::Heal(cut) => {
                (NETWORK.to_owned(), format!("HEALS: hosts {:?}, {:?}", cut.from, cut.to))
            }
            Happening::Part(gap) => {
                let how = if gap.at_once { "FAIL TO READ" } else { "GET NO ANSWER FROM" };
                (NETWORK.to_owned(), format!("HOSTS {} AND {} {how} EACH OTHER", gap.hosts[0], gap.hosts[1]))
            }
            Happening::Meet(gap) => {
                (NETWORK.to_owned(), format!("HOSTS {} AND {} READ EACH OTHER", gap.hosts[0], gap.hosts[1]))
            }
            Happening::Garble(rank, reads) => {
                (of(*rank), format!("ITS BYTES ARRIVE DAMAGED IN THE NEXT {reads} READS"))
            }
            Happening::Damage(rank, damage) => {
                let what = if damage.copies { "WHAT IT KEEPS OF OTHERS ARRIVES" } else { "ITS BYTES ARRIVE" };
                let at = damage.reader.map_or(String::new(), |reader| format!(" AT RANK {reader}"));
                (of(*rank), format!("{what} DAMAGED{at} FROM NOW ON"))
            }
            Happening::Mend(rank, damage) => {
                let what = if damage.copies { "WHAT IT KEEPS OF OTHERS ARRIVES" } else { "ITS BYTES ARRIVE" };
                (of(*rank), format!("{what} AS THEY ARE AGAIN"))
            }
            Happening::Limp(rank, limp) => {
                let text = match (limp.task_time, limp.write_time) {
                    (Some(time), _) => format!("BECOMES SLOW: {time:?} for a task"),
                    (_, Some(time)) => format!("HAS A SLOW DISK: {time:?} for a copy"),
                    _ if limp.message_time.is_some() => "HAS LATE MESSAGES".to_owned(),
                    _ => "IS AS FAST AS IT WAS".to_owned(),
                };
                (of(*rank), text)
            }
            Happening::Disk(rank, Disk::Full) => (of(*rank), "HAS A FULL DISK".to_owned()),
            Happening::Disk(rank, Disk::Free) => (of(*rank), "HAS ROOM ON ITS DISK".to_owned()),
            Happening::Spoil(rank) => (of(*rank), "THE COPIES THAT IT KEEPS ARE DAMAGED".to_owned()),
            Happening::Located(fault, over) => {
                let located::Fault { name, place, .. } = &**fault;
                let what = if *over { "is over" } else { "was located" };
                (MASTER.to_owned(), format!("hears that {name} of {place:?} {what}"))
            }
            Happening::Begins(rank, segment) => (of(*rank), format!("comes to recovery segment {segment}")),
            Happening::Compute(process, segment) => {
                (of(process.rank), format!("goes on with recovery segment {segment}"))
            }
            Happening::Turn => (MASTER.to_owned(), "takes in what has come".to_owned()),
            Happening::Disconnected(process) => {
                (MASTER.to_owned(), format!("sees the connection of rank {} break", process.rank))
            }
            Happening::MasterLost(process) => {
                (of(process.rank), "sees its connection to the master break".to_owned())
            }
            Happening::Ring(from, next) => (of(*from), format!("rings for rank {next} and those behind it")),
            Happening::Bell(rank) => (of(*rank), "looks at the board".to_owned()),
            Happening::Look => (MASTER.to_owned(), "looks at the board".to_owned()),
            Happening::Close(rank) => (of(*rank), "closes its session".to_owned()),
            Happening::Start(host, process) => (agent(*host), format!("has started {process}")),
            Happening::Joins(process) => (of(process.rank), format!("is {process}, and joins")),
            Happening::Replay(process) => (of(process.rank), "calls again what it has missed".to_owned()),
            Happening::Exit(process) => (of(process.rank), "ITS PROGRAM ENDS".to_owned()),
            Happening::Note(process, reduction) => {
                (of(process.rank), format!("notes how {} has ended", self.name(*reduction)))
            }
            Happening::Noted(process, reduction) => {
                (of(process.rank), format!("has noted how {} has ended", self.name(*reduction)))
            }
            Happening::Saves(process) => (of(process.rank), "is about to save a checkpoint".to_owned()),
            Happening::Copied(process, number) => {
                (of(process.rank), format!("copy {number} of its vault is over"))
            }
            Happening::Follows(process) => (of(process.rank), format!("{process} stands by")),
            Happening::Falls(process) => (of(process.rank), format!("{process} DIES IF IT STANDS BY")),
            Happening::Takes(process) => (of(process.rank), format!("{process} takes its place")),
            Happening::EndsEarly(process) => (of(process.rank), "ENDS BEFORE IT HAS JOINED".to_owned()),
            Happening::GivesUp(host) => (agent(*host), "looks no longer for the master".to_owned()),
            Happening::Timeout => (MASTER.to_owned(), "its clock rings".to_owned()),
            Happening::WorkerTimeout(rank) => (of(*rank), "its clock rings".to_owned()),
        }
    }

    fn to_master(&self, message: &ToMaster) -> String {
        match message {
            ToMaster::Join { .. } => "joins".to_owned(),
            ToMaster::Contribute(contribution) => {
                format!("contributes to {}", self.name(contribution.reduction))
            }
            ToMaster::PartialReady(done) => {
                format!("task {} is done, {} is {}", done.task, self.segment(done.segment), done.path)
            }
            ToMaster::TaskFailed(failed) => format!(
                "task {} on {} failed at {}: {} ({})",
                failed.task,
                self.segment(failed.segment),
                failed.culprit,
                failed.reason,
                match failed.fault {
                    Fault::Unreachable => "unreachable",
                    Fault::Gone => "gone",
                    Fault::Damaged => "damaged",
                    Fault::Torn => "torn",
                    Fault::Unfit => "unfit",
                }
            ),
            ToMaster::Pong { number } => format!("pong {number}"),
            ToMaster::Took { reduction, took } => format!("{} took {took:?}", self.name(*reduction)),
            ToMaster::Kept(kept) => {
                let name = self.name(kept.reduction);
                let result = if kept.result.is_ok() { "has" } else { "has no" };
                format!("{result} copy of rank {}'s {name}[{:?}]", kept.owner.rank, kept.segments)
            }
            ToMaster::Prefetched(part) => {
                let has = if part.body.is_some() { "has" } else { "cannot have" };
                format!("{has} the part of {} at {}", self.name(part.reduction), part.start)
            }
            ToMaster::Collected { reduction, .. } => format!("has collected {}", self.name(*reduction)),
            ToMaster::Noted { reduction } => format!("has noted {}", self.name(*reduction)),
            ToMaster::NotCollected(part) => {
                let name = self.name(part.reduction);
                format!("cannot collect all of {name} from rank {}: {}", part.culprit.rank, part.reason)
            }
            ToMaster::Opened(opened) => {
                format!("its team has contributed to {}", self.name(opened.reduction))
            }
            ToMaster::Parts { reduction, parts, .. } => {
                let parts: Vec<String> =
                    parts.iter().map(|part| format!("[{}] at {}", part.index, part.process.rank)).collect();
                format!("its team has folded {}{}", self.name(*reduction), parts.join(", "))
            }
            ToMaster::Dissolve { reduction, .. } => format!("{} gets nowhere", self.name(*reduction)),
            ToMaster::Closing => "calls nothing more".to_owned(),
            ToMaster::Leave => "leaves".to_owned(),
            ToMaster::Replicated { agent } => format!("has a replica with {agent}"),
            ToMaster::StandsBy => "stands by".to_owned(),
            ToMaster::CaughtUp(_) => "is where it was".to_owned(),
            ToMaster::NotReplicated { agent, reason } => format!("has no replica with {agent}: {reason}"),
        }
    }

    fn to_worker(&self, message: &ToWorker) -> String {
        match message {
            ToWorker::Ping { number } => format!("ping {number}"),
            ToWorker::Fenced => "you were declared failed".to_owned(),
            ToWorker::Keep(keep) => {
                let name = self.name(keep.reduction);
                format!("keep a copy of rank {}'s {name}[{:?}]", keep.source.process.rank, keep.segments)
            }
            ToWorker::News(news) => format!("news: {news}"),
            ToWorker::Welcome { .. } => "welcome".to_owned(),
            ToWorker::Unwelcome { reason } => format!("not welcome: {reason}"),
            ToWorker::Incomplete { missing } => format!("there is no job, {missing} did not come"),
            ToWorker::Task(task) => self.task(task),
            ToWorker::Prefetch(prefetch) => {
                let part = |part: &Piece| format!("{} at rank {}", part.range.start, part.process.rank);
                let parts: Vec<String> = prefetch.parts.iter().map(part).collect();
                format!("copy parts of {}: {}", self.name(prefetch.reduction), parts.join(", "))
            }
            ToWorker::Finished(finished) => {
                let name = self.name(finished.reduction);
                let last = finished.last.as_ref().map(|task| format!(" but for {}", self.task(task)));
                format!("{name} is over{}: {}", last.unwrap_or_default(), finished.report)
            }
            ToWorker::Refused { reduction, refusal } => {
                format!("{} is refused: {refusal}", self.name(*reduction))
            }
            ToWorker::HandOver { reduction } => format!("hand {} over", self.name(*reduction)),
            ToWorker::Release { reduction } => format!("release {}", self.name(*reduction)),
            ToWorker::Dissolved { reduction } => format!("{} is dissolved", self.name(*reduction)),
            ToWorker::Departed { process, evidence } => format!("rank {} is gone: {evidence}", process.rank),
            ToWorker::Returned { peer } => format!("rank {} is back", peer.process.rank),
            ToWorker::Forget { process } => format!("forget rank {}'s memory", process.rank),
            ToWorker::AgentLost { agent } => format!("agent {} is gone", agent.0),
            ToWorker::Farewell => "farewell".to_owned(),
            ToWorker::Replicate { to } => format!("keep a replica with {}", to.id),
            ToWorker::Unreplicated { agent } => format!("there is no replica with {agent}, as is known"),
        }
    }

    fn task(&self, task: &Task) -> String {
        let sources: Vec<String> = task.sources.iter().map(|s| source(s.process, &s.data, &s.path)).collect();
        let into = if task.own.is_empty() { "afresh".to_owned() } else { format!("into {}", task.own) };
        let segment = self.segment(task.segment);
        format!("task {}: fold {} {into}, {segment}", task.task, sources.join(" and "))
    }

    fn work(&self, work: &Work) -> String {
        match work {
            Work::Execute(task) => format!("has done task {} on {}", task.task, self.segment(task.segment)),
            Work::Prefetch(reduction, _, part) => {
                format!("has copied the part of {} at {}", self.name(*reduction), part.range.start)
            }
            Work::Collect(reduction, ..) => format!("has collected {}", self.name(*reduction)),
            Work::Keep(keep) => {
                let name = self.name(keep.reduction);
                format!("has copied rank {}'s {name}[{:?}]", keep.source.process.rank, keep.segments)
            }
        }
    }
}

const MASTER: &str = "master";
const NETWORK: &str = "network";

fn of(rank: Rank) -> String {
    format!("rank {rank}")
}

fn agent(host: u64) -> String {
    format!("agent {host}")
}

fn at(place: Place) -> String {
    match place {
        Place::Rank(rank) => of(rank),
        Place::Agent(host) => agent(host),
        Place::Master => MASTER.to_owned(),
    }
}

fn from_agent(said: &FromAgent) -> String {
    match said {
        FromAgent::Join(_) => "joins".to_owned(),
        FromAgent::Ended { process, ending } => format!("of rank {}: {ending}", process.rank),
        FromAgent::NeverCame { process, ending } => {
            format!("rank {} never came: {ending}", process.rank)
        }
        FromAgent::Expects { ranks } => format!("expects ranks {ranks}"),
        FromAgent::Pong { number } => format!("pong {number}"),
        FromAgent::Locating(said) => format!("{said:?}"),
    }
}

fn at_agent(event: &AgentEvent) -> String {
    match event {
        AgentEvent::Started(process) => format!("expects rank {}", process.rank),
        AgentEvent::Hailed(Connection { process, .. }) => format!("is hailed by rank {}", process.rank),
        AgentEvent::MasterStarted(_) => "runs the master".to_owned(),
        AgentEvent::MasterFailed => "cannot run the master".to_owned(),
        AgentEvent::HungUp(Connection { process, .. }) => format!("sees rank {} hang up", process.rank),
        AgentEvent::Vanished(Connection { process, number }) => {
            format!("sees the end behind connection {number} of rank {}", process.rank)
        }
        AgentEvent::Ended(process, ending) => {
            format!("sees the process of rank {} end: {ending}", process.rank)
        }
        AgentEvent::MasterSought => "looks for the master".to_owned(),
        AgentEvent::MasterFound(_) => "joins".to_owned(),
        AgentEvent::Master(ToAgent::Ping { number }) => format!("hears: ping {number}"),
        AgentEvent::Master(ToAgent::Forget { process }) => {
            format!("hears: forget rank {}'s memory", process.rank)
        }
        AgentEvent::Master(ToAgent::Start { process, origin: None }) => format!("hears: start {process}"),
        AgentEvent::Master(ToAgent::Start { process, origin: Some(origin) }) => {
            format!("hears: start {process} from the replica with {}", origin.agent.id)
        }
        AgentEvent::Master(ToAgent::StandBy { process, .. }) => format!("hears: let {process} stand by"),
        AgentEvent::Master(ToAgent::Promote { process }) => format!("hears: promote {process}"),
        AgentEvent::Master(ToAgent::End { process }) => format!("hears: end {process}"),
        AgentEvent::Master(ToAgent::Welcome { .. }) => "hears: welcome".to_owned(),
        AgentEvent::Master(ToAgent::DropReplica { process }) => {
            format!("hears: drop the replica of {process}")
        }
        AgentEvent::Master(ToAgent::Moved { process }) => format!("hears: {process} has moved"),
        AgentEvent::Master(ToAgent::Farewell) => "hears: farewell".to_owned(),
        AgentEvent::Master(ToAgent::Locating(said)) => format!("hears: {said:?}"),
        AgentEvent::MasterLost => "loses the master".to_owned(),
        AgentEvent::Alone => "expects nobody any more".to_owned(),
    }
}

/// A partial to read, and where.
fn source(process: ProcessId, data: &Data, path: &Path) -> String {
    match data {
        Data::Inline(_) => format!("{path} (inlined by {})", process.rank),
        Data::Window(window) if shows_copy(window) => format!("{path} (copy at {process})"),
        Data::Window(_) => format!("{path} (at {process})"),
        Data::Private => format!("{path} (private)"),
    }
}
