//! How the processes of a job come about.
//!
//! A program that is started alone starts its own workers: copies of itself on this machine, supervised by
//! [`local`]. A program that finds a job in its [`environment`] joins it, whether it was started by the
//! embedded supervisor, `everfold run`, `mpirun`, `srun` or a script. With the feature `mpi`, the ranks of a
//! program that uses MPI tell each other of the job over MPI: `Launch::from_mpi`.

#[cfg(feature = "mpi")]
mod beside_mpi;
mod checkpoints;
mod variables;

use std::{
    future::Future,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use everfold_protocol::{ProcessId, message::News};
use everfold_runtime::{
    agent::{HailError, NoAgent},
    descriptors,
    launch::{place, rollback::ROLLED_BACK},
    logs,
    rank::{self, Handle, JoinError, RankConfig},
    transport::{control::Address, handshake::Key, second::SecondWay},
};

use tokio::sync::broadcast::error::RecvError;

pub use everfold_runtime::agent::start as agent;
pub use everfold_runtime::launch::{
    Checkpoints, Complete, Components, Environment, EnvironmentError, Hosts, HostsError, JobEvent, Local,
    LocalError, Rollback, Secret, Transport, UnknownDetector, Watcher, environment, hosts,
    is_forwarded_to_terminal, local,
};

use self::{checkpoints::Choice, variables::Variables};
use crate::{
    checkpoint::{CheckpointPace, Paces},
    config::Config,
    error::Error,
    plan::{Placing, PlanError},
    recovery::{Detector, RecoveryFile},
    session::Session,
};

pub use self::checkpoints::use_checkpoints;
pub use crate::error::LaunchError;

/// How a program becomes a job.
#[derive(Clone, Debug)]
pub struct Launch {
    ranks: u32,
    transport: Transport,
    config: Config,
    recovery: Option<PathBuf>,
    plan: Option<PathBuf>,
    record: Option<PathBuf>,
    resume: Option<PathBuf>,
    survive_deaths: bool,
    components: Components,
    paces: Paces,
    /// The job, if it was found already.
    environment: Option<Environment>,
    /// How ranks read each other on different hosts, besides TCP.
    second: Option<Arc<dyn SecondWay>>,
}

impl Launch {
    /// Joins the job that the environment describes; without one, starts `ranks` copies of this program on
    /// this machine, with the same arguments.
    pub fn from_env_or_local(ranks: u32) -> Self {
        let (transport, config) = (Transport::Auto, Config::default());
        Self {
            ranks,
            transport,
            config,
            recovery: None,
            plan: None,
            record: None,
            resume: None,
            survive_deaths: false,
            components: Components::new(),
            paces: Paces::default(),
            environment: None,
            second: None,
        }
    }

    /// How ranks read each other's memory, if this program has started them on this machine, or MPI has.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self.environment.iter_mut().for_each(|environment| environment.transport = transport);
        self
    }

    /// Lets a locally started job end well although signals have killed some of its processes, if all others
    /// end well, and there is one.
    ///
    /// For programs that know how to go on. It covers SIGKILL and crashes, but not a process that exits with a
    /// code of its own, as after a panic or an error.
    pub fn survive_deaths(mut self) -> Self {
        self.survive_deaths = true;
        self
    }

    /// Limits and timeouts of the job.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The [file](crate::recovery::RecoveryFile) that chooses recoveries of processes that die. A file that
    /// the variable `EVERFOLD_RECOVERY` names takes precedence over it, and it over the configuration.
    pub fn recovery(mut self, file: impl Into<PathBuf>) -> Self {
        self.recovery = Some(file.into());
        self
    }

    /// Adds a [detector](crate::recovery::Detector) of the program's own, which is asked about deaths if the
    /// recovery file, or [`Config::detectors`], has its name. `make` makes one for each job.
    ///
    /// It counts where the program is started alone and starts its ranks itself. Where `everfold run` does,
    /// that command hosts the master, and has to know the detector: build one of your own with
    /// `everfold_cli::main_with`. An agent that a rank starts, as under `mpirun`, knows none.
    ///
    /// # Errors
    /// [`launch`] ends in [`LaunchError::UnknownDetector`] if a name is chosen that was not added. Where
    /// another program has started the job, rank 0 ends in [`Error::Join`] if that program does not know the
    /// name.
    pub fn detector<D: Detector + 'static>(
        mut self,
        name: impl Into<String>,
        make: impl Fn() -> D + Send + Sync + 'static,
    ) -> Self {
        self.components = self.components.detector(name, make);
        self
    }

    /// All of these, in place of the [detectors](Self::detector) that were added before.
    pub fn components(mut self, components: Components) -> Self {
        self.components = components;
        self
    }

    /// Adds a [pace](CheckpointPace) of the program's own, which decides when checkpoints are due if the recovery
    /// file, or [`Config::checkpoint_pace`], has its name. `make` makes one for each process.
    ///
    /// # Errors
    /// [`launch`] ends in [`LaunchError::UnknownPace`] if a name is chosen that was not added.
    pub fn checkpoint_pace<P: CheckpointPace + 'static>(
        mut self,
        name: impl Into<String>,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) -> Self {
        self.paces.add(name.into(), make);
        self
    }

    /// The [plan](crate::plan) that says at which [points](crate::Checkpoint::at) ranks save checkpoints,
    /// instead of an interval. A plan that the variable `EVERFOLD_PLAN` names takes precedence.
    pub fn plan(mut self, file: impl Into<PathBuf>) -> Self {
        self.plan = Some(file.into());
        self
    }

    /// Has rank 0 record a profile of its [points](crate::Checkpoint::at), which `everfold plan` reads: the
    /// times at which it reaches them, and the live bytes there. The file is written when the session is
    /// closed; a process that comes back records none. The variable `EVERFOLD_RECORD` takes precedence.
    pub fn record(mut self, file: impl Into<PathBuf>) -> Self {
        self.record = Some(file.into());
        self
    }

    /// Goes on from the newest complete checkpoint in this directory, where an earlier job with the same
    /// number of ranks has saved it ([`Config::checkpoint_directory`]), and saves there. The variables
    /// `EVERFOLD_RESUME` and `EVERFOLD_CHECKPOINTS` take precedence.
    pub fn resume(mut self, directory: impl Into<PathBuf>) -> Self {
        self.resume = Some(directory.into());
        self
    }
}

/// Runs `program` in every process of the job, and ends the session when it has ended.
///
/// In a program that was started alone, `program` runs in the copies only. The process that the user started
/// supervises them: it forwards their output with rank prefixes, ends them when it is interrupted or killed,
/// and returns when all have ended well. If some have not, it exits with the exit code of the one that failed
/// first; see [`Launch::survive_deaths`] for processes that were killed.
///
/// A program that a process of a job starts is no part of that job, although it inherits the variables: it
/// starts a job of its own, as if it had been started alone.
///
/// # Errors
/// In the copies the error that `program` returns; in all processes the reason why the job cannot start, see
/// [`LaunchError`].
/// # Source
/// DR §1 (DR-1, DR-2).
pub fn launch<P, F, E>(launch: Launch, program: P) -> Result<(), E>
where
    P: FnOnce(Session) -> F,
    F: Future<Output = Result<(), E>>,
    E: From<Error>,
{
    logs::show();
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(Error::from(LaunchError::InsideRuntime).into());
    }
    let detect = || environment::detect(|name| std::env::var(name).ok());
    let found = match &launch.environment {
        Some(environment) => Some(environment.clone()),
        None => detect().map_err(|error| Error::from(LaunchError::from(error)))?,
    };
    let is_inherited =
        |environment: &Environment| launch.environment.is_none() && place::ancestor_at(environment).is_some();
    let is_around = found.as_ref().is_some_and(is_inherited);
    let environment = found.filter(|_| !is_around);
    let variables = Variables { are_around: is_around };
    let recovery = variables.path(environment::RECOVERY).or(launch.recovery.clone());
    let config = chosen(recovery.as_deref(), &launch.config).map_err(Error::from)?;
    let placing = placing(variables, launch.plan.as_deref(), launch.record.as_deref());
    let placing = placing.map_err(|error| Error::from(LaunchError::from(error)))?;
    let choice = Choice::find(&config, launch.resume.as_deref(), variables);
    let pace = config.pace().map(|name| launch.paces.make(name)).transpose();
    let pace = pace.map_err(|error| Error::from(LaunchError::from(error)))?;
    match environment {
        Some(environment) => {
            // Also when the program panics.
            let _ending = launch.second.clone().map(Ending);
            run(&environment, &config, pace, placing, choice, launch.second, program)
        }
        None => supervise(&launch, is_around, &config, choice).map_err(|error| Error::from(error).into()),
    }
}

/// Ends the second way when it is dropped.
struct Ending(Arc<dyn SecondWay>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The configuration; a recovery file takes precedence over the program.
fn chosen(path: Option<&Path>, config: &Config) -> Result<Config, LaunchError> {
    let file = path.map(RecoveryFile::read).transpose()?;
    Ok(file.map_or_else(|| config.clone(), |file| file.apply(config.clone())))
}

/// The plan that is followed and the profile that is recorded; what the environment names takes precedence.
fn placing(variables: Variables, plan: Option<&Path>, record: Option<&Path>) -> Result<Placing, PlanError> {
    let (plan_named, record_named) = (variables.path(environment::PLAN), variables.path(environment::RECORD));
    Placing::new(plan_named.as_deref().or(plan), record_named.as_deref().or(record))
}

fn supervise(launch: &Launch, is_nested: bool, config: &Config, choice: Choice) -> Result<(), LaunchError> {
    let program = std::env::current_exe().map_err(LaunchError::NoProgram)?;
    let mut local = Local::new(launch.ranks, program);
    local.arguments = std::env::args_os().skip(1).collect();
    local.transport = launch.transport;
    local.survive_deaths = launch.survive_deaths;
    local.is_nested = is_nested;
    launch.components.choose(config.detector_names())?;
    local.components = launch.components.clone();
    choice.give(&mut local, config)?;
    match local.run()? {
        0 => Ok(()),
        code => std::process::exit(code.into()),
    }
}

fn run<P, F, E>(
    environment: &Environment,
    config: &Config,
    pace: Option<Box<dyn CheckpointPace>>,
    placing: Placing,
    choice: Choice,
    second: Option<Arc<dyn SecondWay>>,
    program: P,
) -> Result<(), E>
where
    P: FnOnce(Session) -> F,
    F: Future<Output = Result<(), E>>,
    E: From<Error>,
{
    let session = Session::enter(environment, config, pace, placing, choice, second)?;
    let waiting = session.waiting();
    let (begin, end) = (waiting.clone(), waiting.clone());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.on_thread_park(move || begin.begin()).on_thread_unpark(move || end.end());
    let runtime = runtime.enable_all().build().map_err(Error::from)?;
    runtime.spawn(waiting.listen());
    let ended = runtime.block_on(program(session.clone()));
    if ended.is_err() {
        session.abandon();
        return ended;
    }
    let recorded = session.end_points();
    runtime.block_on(session.close());
    recorded.map_err(|(path, source)| Error::from(LaunchError::Record { path, source }).into())
}

impl Session {
    /// Joins the job that `environment` describes and waits until all its processes have.
    ///
    /// Most programs call [`launch`] instead. `join` blocks the thread, and may be called inside an
    /// asynchronous runtime. It raises the soft limit of open files to the hard one, up to 65 536, also for
    /// processes that this one starts. A file that `EVERFOLD_RECOVERY` names takes precedence over `config`; it
    /// cannot choose a [pace](Launch::checkpoint_pace), which only [`launch`] knows.
    ///
    /// # Errors
    /// [`LaunchError`] if the configuration or the rendezvous is wrong, the agent of rank 0 cannot listen
    /// there, or a process that has started this one has the same rank. [`Error::Join`] if this process
    /// cannot join, or not all processes of the job do.
    pub fn join(environment: &Environment, config: &Config) -> Result<Self, Error> {
        let variables = Variables { are_around: false };
        let placing = placing(variables, None, None).map_err(LaunchError::from)?;
        let config = chosen(variables.path(environment::RECOVERY).as_deref(), config)?;
        let choice = Choice::find(&config, None, variables);
        let pace = config.pace().map(|name| Paces::default().make(name)).transpose();
        Self::enter(environment, &config, pace.map_err(LaunchError::from)?, placing, choice, None)
    }

    fn enter(
        environment: &Environment,
        config: &Config,
        pace: Option<Box<dyn CheckpointPace>>,
        mut placing: Placing,
        choice: Choice,
        second: Option<Arc<dyn SecondWay>>,
    ) -> Result<Self, Error> {
        config.validate().map_err(LaunchError::from)?;
        if let Some(ancestor) = place::ancestor_at(environment) {
            return Err(LaunchError::Inherited { rank: environment.rank, ancestor }.into());
        }
        descriptors::raise_limit();
        place::take(environment);
        let together = choice.open(config, environment.job)?;
        if together.is_none() && placing.needs_directory() {
            return Err(LaunchError::from(PlanError::NoDirectory).into());
        }
        let rendezvous: Address = environment.rendezvous.parse().map_err(LaunchError::from)?;
        let Environment { rank, incarnation, size, job, .. } = *environment;
        let key = Key(*environment.secret.bytes());
        let process = ProcessId { rank, incarnation };
        let transport = environment.transport;
        let started = rank::start(RankConfig {
            process,
            job,
            size,
            key,
            rendezvous,
            transport,
            second,
            environment: environment.clone(),
            policy: config.policy(),
            detectors: config.detector_names().to_vec(),
            join_timeout: config.timeout(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            storage: config.storage_directory(),
            domain: config.domain_label(),
            log_bytes_max: config.log_bytes(),
            saves: together.is_some(),
        });
        match started {
            Ok(handle) => {
                // One file for the job, by the process that has seen all of the run.
                if process == ProcessId::first(0) {
                    let recording = placing.begin_recording();
                    recording.map_err(|(path, source)| LaunchError::Record { path, source })?;
                }
                if config.rollback().is_some() {
                    end_with_others(&handle)?;
                }
                Ok(Self::new(handle, config.interval(), pace, placing, together))
            }
            Err(JoinError::Agent(HailError::Refused(NoAgent::CannotListen { reason, code }))) => {
                let source = code.map_or_else(|| io::Error::other(reason), io::Error::from_raw_os_error);
                Err(LaunchError::Listen { address: environment.rendezvous.clone(), source }.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Ends this process as soon as another one has failed: all are started again, and go back to a checkpoint.
fn end_with_others(handle: &Handle) -> io::Result<()> {
    let (mut news, has_failed) = (handle.news(), !handle.failed().is_empty());
    let wait = move || {
        let mut is_over = has_failed;
        while !is_over {
            match news.blocking_recv() {
                Ok(news) => is_over = matches!(news, News::Failed { .. }),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
        std::process::exit(ROLLED_BACK.into());
    };
    std::thread::Builder::new().name("everfold-rollback".to_owned()).stack_size(64 << 10).spawn(wait)?;
    Ok(())
}
