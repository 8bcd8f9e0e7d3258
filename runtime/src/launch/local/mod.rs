//! Starts the processes of a job on this machine and stays until the last of them has ended.
//!
//! - A process that fails does not take the others with it: they know how to go on. The job ends as the
//!   process did that failed first. Where [deaths are survived](Local::survive_deaths), a process that a
//!   signal kills does not count, unless the job is on one host and none ends well.
//! - Where ranks come back, the agent says when a process is to be started anew. The end of the last process
//!   of a rank counts; of a rank that goes on on another host, none here does.
//! - Where all ranks go back to a checkpoint together, a process that fails ends the others, and all are
//!   started again as a new run of the job, with another number of the job: no process or message of the run
//!   before takes part.
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
//! Deliberately absent: processes that the processes start are their own affair, and whether a rank comes
//! back is that of the master.
//!
//! | module | holds |
//! |---|---|
//! | `supervise` | a job from its beginning to its end, and again when all ranks go back |
//! | `found` | the number, the secret and the place where its ranks meet |
//! | `start` | how a process of it is started |
//! | `process` | one process, from its start to its end |
//! | `failures` | how processes have failed, and which failure counts |
//! | `signals` | the signals that end a job, and what they lead to |

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

use everfold_storage::job_directory;

use super::{
    environment::Transport,
    events::{JobEvent, Watcher},
    hosts::Hosts,
    rollback::Rollback,
};
use crate::{
    components::Components,
    logs,
    transport::control::{Address, AddressError},
};

mod failures;
mod found;
mod process;
mod signals;
mod start;
mod supervise;

/// Most processes of a job that is started so, on all hosts together.
pub const RANKS_MAX: u32 = 4096;

/// The exit code if all went well, but for output that could not be written; `EX_IOERR` of `sysexits.h`.
pub const OUTPUT_LOST: u8 = 74;

/// How long processes have to end after they were asked to, before they are killed.
pub const GRACE: Duration = Duration::from_secs(2);

/// How worker processes on this machine are started.
///
/// Rank 0 has our stdin, the others have none. Each finds its place in the job in its
/// [environment](super::environment).
#[derive(Clone, Debug)]
pub struct Local {
    /// Number of processes, 1 to [`RANKS_MAX`].
    pub ranks: u32,
    /// Their program. A name without a slash is looked up in `PATH`.
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
    /// of its own has something to say, and is heard. If the job is on one host and no process ends well, the
    /// first death counts.
    pub survive_deaths: bool,
    /// Whether this process belongs to a job itself, whose files are not meant for the new one.
    pub is_nested: bool,
    /// The file that chooses recoveries; without it, the one that our own environment names.
    pub recovery: Option<PathBuf>,
    /// The file of the rules that locate faults; without it, the one that our own environment names, or else
    /// those that everfold comes with.
    pub rules: Option<PathBuf>,
    /// Where each host records the symptoms that it sees; without it, where our own environment says.
    pub symptoms: Option<PathBuf>,
    /// Own detectors, from which the recovery file chooses; what counts are those of the first host.
    pub components: Components,
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
    /// The function that hears events of the job.
    pub watcher: Option<Watcher>,
}

/// A directory of checkpoints that outlives the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    /// Where it is, from everywhere.
    pub directory: PathBuf,
    /// Whether the job goes on from the checkpoints there.
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
            is_nested: false,
            recovery: None,
            rules: None,
            symptoms: None,
            components: Components::new(),
            plan: None,
            record: None,
            checkpoints: None,
            rollback: None,
            hosts: None,
            watcher: None,
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
        // An interrupted job waits for no other host.
        runtime.shutdown_background();
        // Processes that were killed left their copies of contributions behind, and so may earlier jobs.
        match job_directory::remove_orphans(&job_directory::base_directory()) {
            Ok(orphans) => tracing::debug!(?orphans, "removed files of dead processes"),
            Err(error) => tracing::warn!(%error, "cannot remove files of dead processes"),
        }
        code
    }

    /// Tells the watcher.
    fn tell(&self, event: JobEvent) {
        self.watcher.iter().for_each(|watcher| watcher.hear(event.clone()));
    }

    /// Whether no rank runs here until another host is lost.
    fn is_spare(&self) -> bool {
        self.hosts.as_ref().is_some_and(Hosts::is_spare)
    }
}
