//! The thread of a host's agent: lets its machine act on sockets, memory and processes.
//!
//! | module | holds |
//! |---|---|
//! | `thread` | feeds the machine and carries out its actions |
//! | `callers` | serves the processes of this host |
//! | `hosting` | the master, on the host to which rank 0 comes |
//! | `life` | sees them end |
//! | `to_others` | serves other hosts |
//! | `to_master` | finds the master, and hears it |

use std::{
    fs, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener as StdUnixListener},
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use everfold_agent::Event;
use everfold_locate::rules::RuleBase;
use everfold_protocol::{
    AgentId, JobId, ProcessId,
    message::{Ending, News},
};
use tokio::{net::UnixListener, sync::mpsc};

use self::thread::{Host, Input};
use crate::{
    components::Components,
    locating::Faults,
    transport::{control::Address, handshake::Key},
};

mod callers;
mod hosting;
mod life;
mod thread;
mod to_master;
mod to_others;

/// How long an agent that ranks have started waits for the first of them, and looks for the master.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an agent looks for the master to whose host no rank has come that goes on: ranks of one job are
/// started at about the same time, and there may be no master.
const BRIEFLY: Duration = Duration::from_secs(10);

/// What an agent says to the process that has started the ranks of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToParent {
    /// Start this process.
    Start(ProcessId),
    /// Start this process, which stands by: how it ends does not count.
    StandBy(ProcessId),
    /// This process has stood by, and takes a place: how it ends counts.
    Promoted(ProcessId),
    /// End this process.
    End(ProcessId),
    /// The rank of this process goes on on another host: how it has ended, or ends, does not count.
    Forgive(ProcessId),
    /// The process that was to bring the master along has ended before: there will be no job.
    Masterless,
    /// All ranks have joined the master, which is here.
    Begun,
    /// The master, which is here, has told that to its ranks.
    News(News),
}

/// What an agent must know of its job.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Where it listens: a name in the abstract namespace of Unix sockets.
    pub name: String,
    /// Which job.
    pub job: JobId,
    /// Its secret.
    pub key: Key,
    /// Number of its ranks.
    pub size: u32,
    /// Where the master listens, or is to listen if rank 0 comes to this agent.
    pub rendezvous: Address,
    /// Where to ask its own process, if that has started the ranks. It [tells](Ends) how they end.
    pub parent: Option<mpsc::UnboundedSender<ToParent>>,
    /// Whether the job has other hosts, whose launchers start the ranks there.
    pub has_others: bool,
    /// Whether it is the first of them, to which rank 0 is to come.
    pub is_first: bool,
    /// Whether no rank runs here until the master says so. Then the agent looks for the master by itself.
    pub is_spare: bool,
    /// Label of the hosts that may fail together with this one.
    pub domain: Option<String>,
    /// How faults are located.
    pub rules: RuleBase,
    /// Where to record symptoms and verdicts.
    pub symptoms: Option<PathBuf>,
    /// Own detectors, from which rank 0 chooses if it comes to this agent.
    pub components: Components,
}

/// An agent and the thread on which it lives.
#[derive(Debug)]
pub struct AgentThread {
    input: mpsc::UnboundedSender<Input>,
    /// Whether it may ask for processes to be started.
    may_ask: Arc<AtomicBool>,
    faults: Faults,
    thread: Option<JoinHandle<()>>,
}

impl AgentThread {
    /// Listens for the ranks of this host.
    ///
    /// # Errors
    /// The name is taken, or what the system says.
    pub fn start(config: AgentConfig) -> io::Result<Self> {
        let listener = StdUnixListener::bind_addr(&UnixAddr::from_abstract_name(&config.name)?)?;
        listener.set_nonblocking(true)?;
        let id = AgentId(getrandom::u64().map_err(io::Error::other)?);
        let (input, inputs) = mpsc::unbounded_channel();
        let (from_others, may_ask) = (input.clone(), Arc::new(AtomicBool::new(false)));
        let (asks, faults) = (may_ask.clone(), Faults::default());
        let located = faults.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("everfold-agent".to_owned()).spawn(move || {
            runtime.block_on(async {
                let host = Host::new(id, config, from_others, (asks, located));
                match UnixListener::from_std(listener) {
                    Ok(listener) => host.run(listener, inputs).await,
                    Err(error) => tracing::error!(%error, "the agent cannot listen"),
                }
            });
        })?;
        Ok(Self { input, may_ask, faults, thread: Some(thread) })
    }

    /// Where to say how processes end.
    pub fn ends(&self) -> Ends {
        Ends { input: self.input.clone(), oom_kills: Arc::new(AtomicU64::new(oom_kills())) }
    }

    /// The faults that were located in the job, also once the agent has ended.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Whether it may ask for processes to be started: where ranks come back.
    pub fn may_ask(&self) -> bool {
        self.may_ask.load(Ordering::Relaxed)
    }

    /// Lets no more processes come than those that are here, unless it asks for them.
    pub fn expect_nobody(&self) {
        let _ = self.input.send(Input::Event(Event::Alone));
    }

    /// Takes in no more processes, and waits until the agent is not needed any more.
    pub fn outlast(mut self) {
        self.expect_nobody();
        self.join();
    }

    /// Waits until the agent is not needed any more.
    pub fn run(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for AgentThread {
    /// Ends the agent, and the master if it is here: no process of the job is left.
    fn drop(&mut self) {
        let _ = self.input.send(Input::Finish);
        self.join();
    }
}

/// Tells an agent which processes its own process has started, and how they have ended.
#[derive(Clone, Debug)]
pub struct Ends {
    input: mpsc::UnboundedSender<Input>,
    /// How many kills for want of memory were told, or had happened before the first process was started.
    oom_kills: Arc<AtomicU64>,
}

impl Ends {
    /// Takes in that the first process of a rank was started.
    pub fn started(&self, process: ProcessId) {
        let _ = self.input.send(Input::Event(Event::Started(process)));
    }

    /// Takes in how one has ended. A kill for want of memory looks like any other, but the system counts it.
    pub fn ended(&self, process: ProcessId, ending: Ending) {
        let ending = match ending {
            Ending::Signal(libc::SIGKILL) if self.is_for_want_of_memory() => Ending::OutOfMemory,
            ending => ending,
        };
        let _ = self.input.send(Input::Event(Event::Ended(process, ending)));
    }

    /// Whether the system has counted a kill that was not told yet.
    fn is_for_want_of_memory(&self) -> bool {
        let now = oom_kills();
        let next = |told: u64| (told < now).then_some(told + 1);
        self.oom_kills.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// How many processes of this control group, or of this machine if that does not count them, the system has
/// killed for want of memory.
fn oom_kills() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let counted = group.map(|group| format!("/sys/fs/cgroup/{group}/memory.events"));
    let count = |path: String| {
        let text = fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    };
    counted.into_iter().chain(["/proc/vmstat".to_owned()]).find_map(count).unwrap_or_default()
}

/// Makes the system end other processes first if memory is short, where that is allowed.
pub(in crate::agent) fn be_hard_to_kill() {
    if let Err(error) = fs::write("/proc/self/oom_score_adj", "-900") {
        tracing::debug!(%error, "the system may end the agent if memory is short");
    }
}
