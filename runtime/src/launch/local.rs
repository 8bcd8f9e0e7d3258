//! Starts the processes of a job on this machine and stays until the last of them has ended.
//!
//! - A process that fails does not take the others with it: they know how to go on. The job ends as the
//!   process did that failed first. Where [deaths are survived](Local::survive_deaths), a process that a
//!   signal kills does not count.
//! - Where ranks come back, the agent says when a process is to be started anew. What counts is how the last
//!   process of a rank has ended; nothing here counts of a rank that goes on on another host.
//! - Where all ranks go back to a checkpoint together, a process that fails ends the others, and all are started
//!   again as a new run of the job, with another number of the job: nothing that is left of the run before takes
//!   part.
//! - Nothing is left behind. The processes die with the supervisor, also if it is killed, and no file is
//!   made.
//! - SIGINT, SIGTERM and SIGHUP ask the processes to end (SIGTERM), and [`GRACE`] later kill them. A second
//!   SIGINT kills at once. A signal that was ignored when the supervisor started, as `nohup` does it, stays
//!   ignored.
//! - Output that cannot be written, as on a full disk, is told once, and a job that would have ended with 0
//!   ends with [`OUTPUT_LOST`]. If our stdout is a pipe that nobody reads any more, the job goes on in
//!   silence.
//! - A process that has ended is not held up by its output, nor by other processes that still hold its stdout
//!   open.
//!
//! Deliberately absent: processes that the processes start are their own affair, and whether a rank comes back
//! is that of the master.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    future::poll_fn,
    io,
    mem::MaybeUninit,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    pin::pin,
    process::{ExitStatus, Stdio},
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use crate::{
    agent::{AgentConfig, AgentThread, Ends, ToParent},
    descriptors,
    locating::{self, Told},
    logs,
    transport::{
        control::{Address, AddressError},
        handshake::Key,
    },
};
use everfold_locate::rules::RuleBase;
use everfold_protocol::{Incarnation, JobId, ProcessId, Rank, message::Ending};
use everfold_storage::job_directory;
use nix::{
    errno::Errno,
    libc,
    sys::{
        prctl,
        signal::{Signal, kill},
    },
    unistd::{Pid, getpid, getppid},
};
use tokio::{
    net::TcpSocket,
    process::{Child, Command},
    signal::unix,
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use super::{
    environment::{
        CHECKPOINTS, DOMAIN, Environment, PLAN, RECORD, RECOVERY, RESUME, ROLLBACKS, SECRET_FILE, Secret,
        Transport,
    },
    hosts::Hosts,
    output::{Forwarder, Output, Sink},
    rollback::{Next, ROLLED_BACK, Rollback, Rollbacks},
    terminal,
};

/// Most processes that one machine is asked to run.
pub const RANKS_MAX: u32 = 4096;
/// The exit code if all went well, but for output that could not be written; `EX_IOERR` of `sysexits.h`.
pub const OUTPUT_LOST: u8 = 74;
/// How long processes have to end after they were asked to, before they are killed.
pub const GRACE: Duration = Duration::from_secs(2);
/// How many located faults are told when the job has ended.
const SUMMARY_MAX: usize = 10;
/// Ctrl-C on a terminal ends the processes directly. We get the same signal, but may hear of it so much
/// later.
const SIGNAL_LAG: Duration = Duration::from_millis(100);

/// How worker processes on this machine are started.
///
/// Rank 0 has our stdin, the others have none. Each finds its place in the job in its
/// [environment](super::environment).
#[derive(Clone, Debug)]
pub struct Local {
    /// Number of processes, 1 to [`RANKS_MAX`].
    pub ranks: u32,
    /// What they run. A name without a slash is looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// How they reach each other.
    pub transport: Transport,
    /// Whether each line they print is marked with their rank.
    pub prefix: bool,
    /// Whether nothing is said on stderr about processes that fail, or about signals.
    pub quiet: bool,
    /// Whether the exit code is that of the processes which no signal has killed. What ends with an exit code
    /// of its own has something to say, and is heard.
    pub survive_deaths: bool,
    /// The file that chooses recoveries; without it, the one that our own environment names.
    pub recovery: Option<PathBuf>,
    /// The file of the rules that locate faults; without it, the one that our own environment names, or else those that
    /// everfold comes with.
    pub rules: Option<PathBuf>,
    /// The plan of checkpoints; without it, the one that our own environment names.
    pub plan: Option<PathBuf>,
    /// Where a profile is written to; without it, where our own environment says.
    pub record: Option<PathBuf>,
    /// Where checkpoints are saved that outlive the job.
    pub checkpoints: Option<Checkpoints>,
    /// Whether all processes are started again from there when one has failed.
    pub rollback: Option<Rollback>,
    /// The hosts of the job, if this is not the only one. The processes here are then those of one host, with
    /// as many on each.
    pub hosts: Option<Hosts>,
}

/// A directory of checkpoints that outlives the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    /// Where it is, from everywhere.
    pub directory: PathBuf,
    /// Whether the job goes on from what is there.
    pub resumes: bool,
}

/// Why no process runs. Those that were started are dead again.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// No such number of processes.
    #[error("{ranks} processes were asked for; it has to be 1 to {RANKS_MAX}")]
    Ranks {
        /// The number.
        ranks: u32,
    },
    /// The caller is inside an asynchronous runtime, which would stand still meanwhile.
    #[error("processes cannot be started from inside an asynchronous runtime; do it first thing in main")]
    InsideRuntime,
    /// There is no randomness for the job's secret.
    #[error("the system gives no random bytes for the job's secret: {0}")]
    Randomness(#[from] getrandom::Error),
    /// The hosts cannot meet there.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The supervisor itself cannot be set up.
    #[error("the supervisor of the processes cannot be set up: {0}")]
    Setup(#[from] io::Error),
    /// The program cannot be started.
    #[error("cannot start {}: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl LocalError {
    /// The exit code that tells this to a shell.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Spawn { .. } => 127,
            _ => 1,
        }
    }
}

impl Local {
    /// `ranks` processes of `program` with prefixed output.
    pub fn new(ranks: u32, program: impl Into<PathBuf>) -> Self {
        Self {
            ranks,
            program: program.into(),
            arguments: Vec::new(),
            transport: Transport::default(),
            prefix: true,
            quiet: false,
            survive_deaths: false,
            recovery: None,
            rules: None,
            plan: None,
            record: None,
            checkpoints: None,
            rollback: None,
            hosts: None,
        }
    }

    /// Runs the processes until all have ended, and gives the exit code for this one.
    ///
    /// That is 0 if all that [count](Self::survive_deaths) ended with 0, and else the code of the first that
    /// failed; 128 + s for a signal s, be it the one that killed that process or one that ended the whole
    /// job; [`OUTPUT_LOST`] if none failed, but what they printed could not be written. Signal handlers
    /// remain in place afterwards, so there is little left to do but to exit.
    ///
    /// # Errors
    /// Any [`LocalError`]; none of the processes runs then.
    pub fn run(self) -> Result<u8, LocalError> {
        if !(1..=RANKS_MAX).contains(&self.ranks) {
            return Err(LocalError::Ranks { ranks: self.ranks });
        }
        if let Some(Hosts { rendezvous, .. }) = &self.hosts {
            rendezvous.parse::<Address>()?;
        }
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(LocalError::InsideRuntime);
        }
        // Those of the agent and, on one host, of the master.
        logs::show();
        // The processes die with the thread that forked them, so that has to be this one, and no runtime's.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let code = runtime.block_on(self.supervise());
        // Who is interrupted waits for no other host.
        runtime.shutdown_background();
        // Processes that were killed left their copies of contributions behind, and so may earlier jobs.
        match job_directory::remove_orphans(&job_directory::base_directory()) {
            Ok(orphans) => tracing::debug!(?orphans, "removed what dead processes left"),
            Err(error) => tracing::warn!(%error, "cannot remove what dead processes left"),
        }
        code
    }

    async fn supervise(self) -> Result<u8, LocalError> {
        let signals = Signals::listen()?;
        // The processes inherit it, as rank 0 has to talk to them all.
        descriptors::raise_limit();
        let size = self.hosts.as_ref().map_or(1, |hosts| hosts.count).saturating_mul(self.ranks);
        let output = Output::start(size, self.prefix, self.quiet)?;
        let notices = (!self.quiet).then(|| output.stderr.sink());
        let (orders, orders_seen) = watch::channel(None);
        let failures = Failures::default();
        let mut rollbacks = self.rollback.clone().map(Rollbacks::new);
        let mut run = self.begin(0, &output).await?;

        let all_ended = async {
            loop {
                let attending = Attending {
                    orders: orders_seen.clone(),
                    failures: failures.clone(),
                    notices: notices.clone(),
                };
                let has_failed = self.attend(run, attending, &output).await;
                let is_ordered = orders_seen.borrow().is_some();
                let Some(rollbacks) = rollbacks.as_mut().filter(|_| has_failed && !is_ordered) else { break };
                let Some(pause) = go_back(rollbacks, &notices) else { break };
                let mut orders = orders_seen.clone();
                tokio::select! {
                    _ = orders.wait_for(Option::is_some) => break,
                    () = tokio::time::sleep(pause) => {}
                }
                match self.begin(rollbacks.all(), &output).await {
                    Ok(next) => run = next,
                    Err(error) => {
                        let notice = format!("everfold: the ranks cannot be started again: {error}\n");
                        notices.iter().for_each(|notices| notices.try_send(notice.clone()));
                        break;
                    }
                }
                failures.forget();
            }
            if output.finish().await {
                // After all failures of processes, which count first.
                failures.note(ProcessId::first(u32::MAX), OUTPUT_LOST);
            }
        };

        let ended_by = outlast(all_ended, signals, orders, notices.clone()).await;
        Ok(match ended_by {
            Some(signal) => 128 + signal as u8,
            None => failures.first().unwrap_or(0),
        })
    }

    /// Starts an agent and all processes, or none.
    async fn begin(&self, rollbacks: u32, output: &Output) -> Result<Run, LocalError> {
        let (mut job, port) = self.found_job()?;
        job.job = JobId(job.job.0 ^ u64::from(rollbacks).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (agent, asked) = start_agent(&job, self.is_spare(), locating::rules(self.rules.as_deref())?)?;
        let processes = self.start_all(rollbacks, &job, output).await?;
        Ok(Run { rollbacks, job, _port: port, agent, asked, processes })
    }

    /// Stays until all processes of a run have ended. Says whether one has failed, if that ends the run.
    async fn attend(&self, run: Run, attending: Attending, output: &Output) -> bool {
        let Run { rollbacks, job, _port, agent, mut asked, processes } = run;
        let Attending { orders, failures, notices } = attending;
        let ends = agent.ends();
        let (over, is_over) = watch::channel(false);
        let mut ranks = JoinSet::new();
        let attend = |process: Process| {
            let stops = Stops { orders: orders.clone(), is_over: is_over.clone() };
            process.attend(stops, failures.clone(), notices.clone(), ends.clone())
        };
        for process in processes {
            ranks.spawn(attend(process));
        }
        while !ranks.is_empty() || agent.may_ask() || self.is_spare() {
            tokio::select! {
                Some(ended) = ranks.join_next() => {
                    let has_failed = ended.expect("attending to a rank neither panics nor is aborted");
                    // Who was asked to end has its time for it.
                    if has_failed && self.rollback.is_some() && orders.borrow().is_none() {
                        over.send_replace(true);
                    }
                    if ranks.is_empty() && !self.is_spare() {
                        agent.expect_nobody();
                    }
                }
                // The agent ends when nobody is to come back any more.
                Some(asked) = asked.recv() => {
                    let wanted = match asked {
                        ToParent::Start(process) => process,
                        ToParent::Forgive(process) => {
                            failures.forgive(process);
                            continue;
                        }
                    };
                    let ProcessId { rank, incarnation } = wanted;
                    let environment = Environment { rank, incarnation, ..job.clone() };
                    match self.start(rollbacks, &environment, output) {
                        Ok(process) => {
                            failures.forgive_before(wanted);
                            ranks.spawn(attend(process));
                        }
                        Err(error) => {
                            let notice = format!("everfold: rank {rank} cannot be started again: {error}\n");
                            notices.iter().for_each(|notices| notices.try_send(notice.clone()));
                            ends.ended(wanted, Ending::Unknown);
                        }
                    }
                }
                else => break,
            }
        }
        // Other hosts may need what its processes have left.
        let (outlasts, faults) = (self.hosts.is_some(), agent.faults());
        let end = move || if outlasts { agent.outlast() } else { drop(agent) };
        tokio::task::spawn_blocking(end).await.ok();
        let is_root = self.hosts.as_ref().is_none_or(|hosts| hosts.index == 0);
        if let Some(notices) = notices.filter(|_| is_root && orders.borrow().is_none()) {
            notices.send(summary(&faults.list())).await;
        }
        *is_over.borrow()
    }

    /// A new job as rank 0 is to see it, and what keeps its rendezvous free for rank 0.
    fn found_job(&self) -> Result<(Environment, Option<TcpSocket>), LocalError> {
        let agent = Some(format!("everfold-agent-{:016x}", getrandom::u64()?));
        if let Some(Hosts { count, index, rendezvous, job, secret, .. }) = self.hosts.clone() {
            let size = self.ranks.checked_mul(count).filter(|size| *size <= RANKS_MAX);
            let size = size.ok_or(LocalError::Ranks { ranks: self.ranks.saturating_mul(count) })?;
            let (rank, incarnation) = (Rank(index.saturating_mul(self.ranks)), Incarnation(0));
            let transport = self.transport;
            return Ok((
                Environment { rank, incarnation, size, job, secret, rendezvous, transport, agent },
                None,
            ));
        }
        let job = JobId(getrandom::u64()?);
        let (rendezvous, port) = match self.transport {
            Transport::Tcp => {
                let (socket, port) = reserve_port()?;
                (format!("tcp:127.0.0.1:{port}"), Some(socket))
            }
            Transport::Auto | Transport::Shm => (format!("unix:@everfold-{:016x}", job.0), None),
        };
        let environment = Environment {
            rank: Rank(0),
            incarnation: Incarnation(0),
            size: self.ranks,
            job,
            secret: Secret::generate()?,
            rendezvous,
            transport: self.transport,
            agent,
        };
        Ok((environment, port))
    }

    /// Whether no rank runs here until another host is lost.
    fn is_spare(&self) -> bool {
        self.hosts.as_ref().is_some_and(Hosts::is_spare)
    }

    /// Starts all processes, or none.
    async fn start_all(
        &self,
        rollbacks: u32,
        job: &Environment,
        output: &Output,
    ) -> Result<Vec<Process>, LocalError> {
        let mut processes = Vec::new();
        let ranks = if self.is_spare() { 0 } else { self.ranks };
        for rank in (0..ranks).map(|index| Rank(job.rank.0 + index)) {
            match self.start(rollbacks, &Environment { rank, ..job.clone() }, output) {
                Ok(process) => processes.push(process),
                Err(source) => {
                    for process in &mut processes {
                        let _ = process.child.start_kill();
                    }
                    for process in &mut processes {
                        let _ = process.child.wait().await;
                    }
                    return Err(LocalError::Spawn { program: self.program.clone(), source });
                }
            }
        }
        Ok(processes)
    }

    fn start(&self, rollbacks: u32, environment: &Environment, output: &Output) -> io::Result<Process> {
        let rank = environment.rank;
        let (stdout, from_stdout) = output.stdout.open(rank)?;
        let (stderr, from_stderr) = output.stderr.open(rank)?;
        let stdin = if rank == 0 { Stdio::inherit() } else { Stdio::null() };
        let mut command = Command::new(&self.program);
        match output.stderr.is_overwritten().then(|| terminal::name(&stderr)).flatten() {
            Some(pipe) => command.env(terminal::TERMINAL, pipe),
            None => command.env_remove(terminal::TERMINAL),
        };
        command
            .args(&self.arguments)
            .envs(environment.variables())
            .envs(self.recovery.as_ref().map(|file| (RECOVERY, file)))
            .envs(self.plan.as_ref().map(|file| (PLAN, file)))
            .envs(self.record.as_ref().map(|file| (RECORD, file)))
            .env_remove(SECRET_FILE)
            // Those of a job around this one are not meant.
            .env_remove(CHECKPOINTS)
            .env_remove(RESUME)
            .env_remove(ROLLBACKS)
            .envs(self.checkpoints.as_ref().map(|checkpoints| match checkpoints.resumes {
                true => (RESUME, &checkpoints.directory),
                false => (CHECKPOINTS, &checkpoints.directory),
            }))
            .envs(self.rollback.as_ref().map(|_| (ROLLBACKS, rollbacks.to_string())))
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .kill_on_drop(true);
        let supervisor = getpid();
        // SAFETY: between fork and exec, `die_with` makes two system calls and allocates nothing.
        unsafe { command.pre_exec(move || die_with(supervisor)) };
        let may_die = self.survive_deaths;
        let id = ProcessId { rank, incarnation: environment.incarnation };
        Ok(Process { id, may_die, child: command.spawn()?, output: [from_stdout, from_stderr] })
    }
}

/// The processes of a job, from when they are started until they have ended or go back to a checkpoint.
struct Run {
    /// How often all ranks had gone back before.
    rollbacks: u32,
    job: Environment,
    /// Keeps the rendezvous free for rank 0.
    _port: Option<TcpSocket>,
    agent: AgentThread,
    /// What the agent asks for.
    asked: mpsc::UnboundedReceiver<ToParent>,
    processes: Vec<Process>,
}

/// What is done while a run lasts.
struct Attending {
    orders: watch::Receiver<Option<Signal>>,
    failures: Failures,
    notices: Option<Sink>,
}

/// Says what follows from a failure. Gives the pause before all ranks are started again, if they are.
fn go_back(rollbacks: &mut Rollbacks, notices: &Option<Sink>) -> Option<Duration> {
    let (pause, what) = match rollbacks.next() {
        Next::Back(Some(generation), pause) => {
            (Some(pause), format!("all ranks go back to generation {generation}"))
        }
        Next::Back(None, pause) => {
            (Some(pause), "all ranks begin anew, as no checkpoint is complete".to_owned())
        }
        Next::Enough(times) => {
            (None, format!("the ranks have gone back {times} times, and may do so no more"))
        }
        Next::Fruitless(times) => {
            (None, format!("the ranks have gone back {times} times in a row without a new checkpoint"))
        }
    };
    notices.iter().for_each(|notices| notices.try_send(format!("everfold: {what}\n")));
    pause
}

/// How processes have failed, in order.
#[derive(Clone, Debug, Default)]
struct Failures(Arc<Mutex<Failed>>);

#[derive(Debug, Default)]
struct Failed {
    codes: Vec<(ProcessId, u8)>,
    /// Of each rank the first process that counts; none if the rank is somewhere else.
    counting: BTreeMap<Rank, Incarnation>,
}

impl Failures {
    /// Takes in that a process has failed.
    fn note(&self, process: ProcessId, code: u8) {
        self.lock().codes.push((process, code));
    }

    /// Takes in that the rank of a process goes on without it: neither that process counts nor those before.
    fn forgive(&self, ProcessId { rank, incarnation }: ProcessId) {
        self.lock().counting.insert(rank, Incarnation(incarnation.0 + 1));
    }

    /// Takes in that a process is started in place of those before it, which do not count.
    fn forgive_before(&self, ProcessId { rank, incarnation }: ProcessId) {
        self.lock().counting.insert(rank, incarnation);
    }

    /// Takes in that all ranks are started anew.
    fn forget(&self) {
        *self.lock() = Failed::default();
    }

    /// The exit code of the first that counts. Who ends because another one has failed comes last.
    fn first(&self) -> Option<u8> {
        let failed = self.lock();
        let counts = |process: &ProcessId| {
            failed.counting.get(&process.rank).is_none_or(|first| process.incarnation >= *first)
        };
        let counting = || failed.codes.iter().filter(|(process, _)| counts(process));
        let first = counting().find(|(_, code)| *code != ROLLED_BACK).or(counting().next());
        first.map(|(_, code)| *code)
    }

    fn lock(&self) -> MutexGuard<'_, Failed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The agent of the ranks that are about to be started, and what it asks for.
fn start_agent(
    job: &Environment,
    is_spare: bool,
    rules: RuleBase,
) -> Result<(AgentThread, mpsc::UnboundedReceiver<ToParent>), LocalError> {
    let rendezvous = job.rendezvous.parse()?;
    let (name, key) = (job.agent.clone().unwrap_or_default(), Key(*job.secret.bytes()));
    let (parent, asked) = mpsc::unbounded_channel();
    let parent = Some(parent);
    let config =
        AgentConfig { name, job: job.job, key, rendezvous, parent, is_spare, domain: domain(), rules };
    Ok((AgentThread::start(config)?, asked))
}

/// The label of what this host shares with others.
fn domain() -> Option<String> {
    std::env::var(DOMAIN).ok().filter(|label| !label.is_empty())
}

/// What was located while the job ran, a line each.
fn summary(faults: &[Told]) -> String {
    let line = |told: &Told| match told.located.harmless {
        true => format!("everfold: no fault, but {}\n", told.located),
        false => format!("everfold: located: {}\n", told.located),
    };
    let mut lines: String = faults.iter().take(SUMMARY_MAX).map(line).collect();
    if faults.len() > SUMMARY_MAX {
        lines += &format!("everfold: and {} more\n", faults.len() - SUMMARY_MAX);
    }
    lines
}

/// Waits for the `job` to end. If a signal comes first, has the processes end and gives that signal.
async fn outlast(
    job: impl Future<Output = ()>,
    mut signals: Signals,
    orders: watch::Sender<Option<Signal>>,
    notices: Option<Sink>,
) -> Option<Signal> {
    let mut job = pin!(job);
    let mut ended_by = None;
    let mut deadline = None;
    let mut ordered = None;
    loop {
        let reason = tokio::select! {
            biased;
            signal = signals.next() => match ended_by.replace(ended_by.unwrap_or(signal)) {
                None => signal.as_str(),
                Some(_) if signal == Signal::SIGINT && ordered == Some(Signal::SIGTERM) => "SIGINT again",
                Some(_) => continue,
            },
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => "not ended in time",
            () = &mut job => break ended_by,
        };
        let (order, what) = match ordered {
            None => (Signal::SIGTERM, "the processes are asked to end"),
            Some(Signal::SIGTERM) => (Signal::SIGKILL, "the processes are killed"),
            // They are dead. What is left is output that nobody takes.
            Some(_) => break ended_by,
        };
        if let Some(notices) = &notices {
            notices.try_send(format!("everfold: {reason}: {what}\n"));
        }
        ordered = Some(order);
        orders.send_replace(ordered);
        deadline = Some(Instant::now() + GRACE);
    }
}

/// Makes this process die when the thread that forked it does.
fn die_with(supervisor: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // It may have died just before.
    if getppid() == supervisor { Ok(()) } else { Err(Errno::ESRCH.into()) }
}

/// A port that is nobody else's as long as the socket lives. It does not listen, so the master can: with
/// `SO_REUSEPORT`.
fn reserve_port() -> io::Result<(TcpSocket, u16)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let port = socket.local_addr()?.port();
    Ok((socket, port))
}

/// The signals that end a job.
struct Signals {
    listened: Vec<(Signal, unix::Signal)>,
    _ended_children: unix::Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let mut listened = Vec::new();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            if !is_ignored(signal)? {
                listened.push((signal, unix::signal(unix::SignalKind::from_raw(signal as i32))?));
            }
        }
        // Were SIGCHLD ignored, which is inherited, nobody could learn how a child has ended.
        Ok(Self { listened, _ended_children: unix::signal(unix::SignalKind::child())? })
    }

    async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let came = self.listened.iter_mut().find_map(|(signal, stream)| {
                let is_ready = stream.poll_recv(context).is_ready();
                is_ready.then_some(*signal)
            });
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

fn is_ignored(signal: Signal) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action nothing is changed; the current one is written to where there is room for
    // it.
    Errno::result(unsafe { libc::sigaction(signal as i32, ptr::null(), action.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so the action was written.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// A process that was started.
struct Process {
    id: ProcessId,
    /// Whether its death is none of the job's.
    may_die: bool,
    child: Child,
    output: [Forwarder; 2],
}

impl Process {
    /// Forwards what the process prints, passes on orders, and says how it has ended if it has failed. Says whether
    /// it has.
    async fn attend(self, mut stops: Stops, failures: Failures, notices: Option<Sink>, ends: Ends) -> bool {
        let [stdout, stderr] = self.output;
        let (alive, ended) = watch::channel(());
        let until_ended = || {
            let mut ended = ended.clone();
            async move { while ended.changed().await.is_ok() {} }
        };
        let process = async {
            let end = wait(self.child, stops.clone()).await;
            // Before the output is forwarded, which may take its time: the first to fail counts.
            if end.code != 0 && !(self.may_die && end.is_death) {
                failures.note(self.id, end.code);
            }
            ends.ended(self.id, end.ending);
            drop(alive);
            end
        };
        let (end, (), ()) = tokio::join!(process, stdout.run(until_ended()), stderr.run(until_ended()));
        // The others end because one has failed.
        let is_told = ![0, ROLLED_BACK].contains(&end.code) && !*stops.is_over.borrow();
        if let Some(notices) = notices
            && is_told
            && timeout(SIGNAL_LAG, stops.orders.wait_for(Option::is_some)).await.is_err()
        {
            let notice = format!("everfold: rank {} {}\n", self.id.rank, end.in_words);
            notices.send(notice).await;
        }
        end.code != 0
    }
}

/// What ends processes.
#[derive(Clone)]
struct Stops {
    /// Signals that are passed on to all of them.
    orders: watch::Receiver<Option<Signal>>,
    /// Whether their run is over.
    is_over: watch::Receiver<bool>,
}

/// Waits until the process has ended, and sends it the signals that are ordered meanwhile.
async fn wait(mut child: Child, Stops { mut orders, mut is_over }: Stops) -> End {
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status.into(),
            true = async { is_over.wait_for(|is_over| *is_over).await.is_ok() } => {
                let _ = child.start_kill();
                return child.wait().await.into();
            }
            Ok(()) = orders.changed() => {
                let order = *orders.borrow_and_update();
                // The id is still that of the child, as nobody has waited for it.
                if let Some(pid) = child.id() {
                    let _ = kill(Pid::from_raw(pid as i32), order);
                }
            }
        }
    }
}

/// How a process has ended.
struct End {
    code: u8,
    /// Whether a signal has killed it.
    is_death: bool,
    /// The same for the agent.
    ending: Ending,
    in_words: String,
}

impl From<io::Result<ExitStatus>> for End {
    fn from(status: io::Result<ExitStatus>) -> Self {
        let (code, in_words) = match status.as_ref().map(|status| (status.code(), status.signal())) {
            Ok((Some(code), _)) => (code, format!("exited with code {code}")),
            Ok((None, Some(number))) => match Signal::try_from(number) {
                Ok(signal) => (128 + number, format!("was killed by {signal}")),
                Err(_) => (128 + number, format!("was killed by signal {number}")),
            },
            Ok((None, None)) | Err(_) => (1, format!("ended in an unknown way: {status:?}")),
        };
        let code = u8::try_from(code).unwrap_or(u8::MAX);
        let ending = match status.as_ref().map(|status| (status.code(), status.signal())) {
            Ok((Some(code), _)) => Ending::Code(code),
            Ok((None, Some(signal))) => Ending::Signal(signal),
            Ok((None, None)) | Err(_) => Ending::Unknown,
        };
        let is_death = matches!(ending, Ending::Signal(_));
        Self { code, is_death, ending, in_words }
    }
}
