//! The part of each agent that locates faults: observes its host, tells other agents what was observed, asks,
//! and concludes.
//!
//! The machines are those of `everfold_locate`. Agents talk to each other over TCP connections of their own,
//! so that hosts are diagnosed while others die. What was located goes to the agent of the master's host, and
//! from there over the master's connections to everybody.
//!
//! | module | holds |
//! |---|---|
//! | `node` | lets a host's machines act |
//! | `links` | the way to other hosts' nodes |
//! | `probes` | executes what nodes ask |
//! | `counters` | reads what the system counts |
//! | `history` | what has become of the processes of the host |
//! | `at_master` | what the master's thread shows to the observer |
//! | `injected` | symptoms without a cause, to see what they cost |
//! | `recorder` | writes down what was seen and decided, from which rules are learnt |
//! | `told` | what users read of a located fault |
//! | [`ask`] | what users may ask a running job |
//!
//! Deliberately absent: doing anything about a fault. The master's machine hears of it, and decides.

pub mod ask;
pub(crate) mod at_master;
mod counters;
mod history;
mod injected;
mod links;
mod node;
mod probes;
mod recorder;
mod told;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

pub use everfold_locate::rules::is_fault;
use everfold_locate::{
    message::Message,
    place::{Host, Scope},
    probe::Answer,
    rules::RuleBase,
    symptom::Symptom,
    tfa::Question,
};
use everfold_protocol::{
    AgentId, ProcessId,
    locating::{FromLocator, Located, ToLocator},
    message::Ending,
};
use tokio::sync::{mpsc, oneshot};

use self::ask::Asked;
pub(crate) use self::{links::listen, probes::show_link};

/// Names the file of the rules that hold in a job.
pub const RULES: &str = "EVERFOLD_RULES";
/// Names the file to which symptoms are recorded.
pub const RECORD_SYMPTOMS: &str = "EVERFOLD_RECORD_SYMPTOMS";
/// Says after how many milliseconds each node observes another symptom without a cause.
const INJECT_SYMPTOMS: &str = "EVERFOLD_INJECT_SYMPTOMS";

/// A located fault, and when it was told here.
#[derive(Clone, Debug)]
pub struct Told {
    /// When.
    pub at: Instant,
    /// What.
    pub located: Arc<Located>,
    /// When it was told that it is over, if it is.
    pub over: Option<Instant>,
}

/// Located faults, in the order in which they were told.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Vec<Told>>>);

/// More are not listed: of those that are over, the first makes room for the next.
const FAULTS_MAX: usize = 1000;

impl Faults {
    /// All of them, but for those that are over and had to make room.
    pub fn list(&self) -> Vec<Told> {
        self.lock().clone()
    }

    /// Lists a fault, or notes that one in the list is over.
    fn note(&self, located: Arc<Located>) {
        let mut told = self.lock();
        let is_same = |it: &&mut Told| {
            let Located { fault, component, .. } = &*it.located;
            it.over.is_none() && (fault, component) == (&located.fault, &located.component)
        };
        if located.over {
            told.iter_mut().filter(is_same).for_each(|it| it.over = Some(Instant::now()));
            return;
        }
        if told.len() >= FAULTS_MAX {
            let Some(over) = told.iter().position(|it| it.over.is_some()) else { return };
            told.remove(over);
        }
        told.push(Told { at: Instant::now(), located, over: None });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that a node is told.
pub(crate) enum Input {
    /// By the master.
    Master(ToLocator),
    /// By the observer beside the master.
    Observed(Symptom),
    /// A process of this host has come, with this process id.
    Came(ProcessId, Option<i32>),
    /// A process of this host has ended.
    Ended(ProcessId, Ending),
    /// A process of this host is about to be ended, as nobody needs it.
    Unwanted(ProcessId),
    /// By the node of another host.
    Said(Host, Message),
    /// A probe is done that the node of this host has asked for.
    Probed(Host, Question, Answer),
    /// By a user.
    Asked(Asked),
    /// The job is over: what is known is to be concluded, and this to be dropped then.
    Over(oneshot::Sender<()>),
}

/// Where to tell a host's node what has happened.
#[derive(Clone, Debug)]
pub(crate) struct Locator(mpsc::UnboundedSender<Input>);

impl Locator {
    /// Tells the node. One that has ended wants to know nothing more.
    pub fn tell(&self, input: Input) {
        let _ = self.0.send(input);
    }

    /// Lets the node conclude what it can. Returns when it has.
    pub async fn conclude(&self) {
        let (done, is_done) = oneshot::channel();
        self.tell(Input::Over(done));
        let _ = is_done.await;
    }
}

/// What a node is to know of its job.
pub(crate) struct NodeConfig {
    /// Its agent's configuration.
    pub agent: Arc<crate::agent::AgentConfig>,
    /// Its agent.
    pub id: AgentId,
    /// When it began.
    pub began: Instant,
    /// Where to list what was located.
    pub faults: Faults,
    /// Tells the master.
    pub tell: Box<dyn Fn(FromLocator) + Send>,
}

/// Begins to locate faults, in the current runtime.
pub(crate) fn start(config: NodeConfig) -> Locator {
    let (input, inputs) = mpsc::unbounded_channel();
    let locator = Locator(input);
    tokio::spawn(ask::listen(config.agent.job, locator.clone()));
    tokio::spawn(node::Node::new(config, locator.clone()).run(inputs));
    locator
}

/// The faults of hosts and domains that the rules name which everfold comes with, but for those that are
/// harmless.
pub fn host_faults() -> Vec<String> {
    let rules = RuleBase::default();
    let of_hosts = rules.rules().iter().filter(|rule| matches!(rule.about, Scope::Host | Scope::Domain));
    of_hosts.filter(|rule| !rule.harmless).map(|rule| rule.fault.clone()).collect()
}

/// The rules in a file; without one, those in the file that the environment names, or those that everfold
/// comes with. If this process `is_nested` in another job, its environment is that job's.
///
/// # Errors
/// The file cannot be read, or the first thing that is wrong in it.
pub fn rules(file: Option<&Path>, is_nested: bool) -> io::Result<RuleBase> {
    let Some(file) = said_or_named(file, RULES, is_nested) else { return Ok(RuleBase::default()) };
    let wrong =
        |reason: String| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {reason}", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|error| wrong(error.to_string()))?;
    RuleBase::parse(&text).map_err(|error| wrong(error.to_string()))
}

/// Where symptoms are recorded: in this file, or else in the one that the environment names, unless this
/// process `is_nested` in another job.
pub fn symptoms(file: Option<&Path>, is_nested: bool) -> Option<PathBuf> {
    said_or_named(file, RECORD_SYMPTOMS, is_nested)
}

fn said_or_named(file: Option<&Path>, variable: &str, is_nested: bool) -> Option<PathBuf> {
    let named =
        || std::env::var_os(variable).filter(|name| !is_nested && !name.is_empty()).map(PathBuf::from);
    file.map(Path::to_owned).or_else(named)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use everfold_protocol::{Rank, locating::Component};

    use super::*;

    #[test]
    fn what_is_over_makes_room_for_faults_that_last() {
        let faults = Faults::default();
        let note = |number: usize, over| {
            faults.note(Arc::new(Located {
                fault: format!("number_{number}"),
                says: String::new(),
                component: Component::Rank(Rank(0)),
                age: Duration::ZERO,
                confidence: 90,
                evidence: Vec::new(),
                harmless: false,
                over,
            }));
        };
        let lists = |number: usize| {
            let listed = faults.list();
            assert!(listed.len() <= FAULTS_MAX);
            listed.iter().any(|it| it.located.fault == format!("number_{number}"))
        };
        (0..=FAULTS_MAX).for_each(|number| note(number, false));
        assert!(!lists(FAULTS_MAX), "all others last");
        [7, 3].into_iter().for_each(|number| note(number, true));
        note(FAULTS_MAX, false);
        assert!(lists(FAULTS_MAX) && lists(7) && !lists(3));
    }
}
