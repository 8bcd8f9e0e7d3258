//! What an application's session holds of its worker: the way to call reductions, and to hear of the job.

use std::{fmt, io, path::PathBuf, sync::Arc, thread::JoinHandle, time::Duration};

use everfold_master::Policy;
use everfold_protocol::{
    JobId, Path, ProcessId, Rank, ReductionId,
    message::{Contribution, News, Peer},
    report::{Refusal, Report},
    spec::{Limits, ReductionSpec},
    team,
};
use tokio::sync::{broadcast, oneshot, watch};

use everfold_worker::machine::{Event, ExecutionError, Gone};

use crate::{
    body::Body,
    driver::Driver,
    executor::{Returned, Share, ShareError},
    launch::Transport,
    memory::{board::OwnBoard, region::Region},
    transport::{
        control::{Address, LoopbackName},
        handshake::{HandshakeError, Key},
    },
};

/// What a rank must know to join its job.
#[derive(Clone, Debug)]
pub struct RankConfig {
    /// Who it is.
    pub process: ProcessId,
    /// Which job.
    pub job: JobId,
    /// Number of its processes.
    pub size: u32,
    /// The job's secret.
    pub key: Key,
    /// Where the master listens.
    pub rendezvous: Address,
    /// How to read peers' memory.
    pub transport: Transport,
    /// How long to wait for the master and for the other processes.
    pub join_timeout: Duration,
    /// The job's board, in the process that hosts the master.
    pub board: Option<Arc<OwnBoard>>,
    /// How the deputy schedules that this process hosts where a large group works in teams.
    pub policy: Policy,
    /// Threads that fold.
    pub threads: usize,
    /// Directory below which copies of contributions are kept while they are needed.
    pub storage: PathBuf,
    /// Label of what this host shares with others that may fail together.
    pub domain: Option<String>,
}

/// Why a process could not join its job.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nobody answers at the rendezvous.
    #[error("no master at {address} within {timeout:?}: {source}")]
    NoMaster {
        /// Where it should be.
        address: Address,
        /// How long it was tried.
        timeout: Duration,
        /// What the last attempt said.
        source: io::Error,
    },
    /// The process that answers is not this job's master.
    #[error("the master at {address} refuses this process: {source}")]
    Handshake {
        /// Where it is.
        address: Address,
        /// Why.
        source: HandshakeError,
    },
    /// Other processes did not come.
    #[error("ranks {missing} did not join within {timeout:?}{rendezvous}")]
    Incomplete {
        /// Who.
        missing: Path,
        /// How long they were waited for.
        timeout: Duration,
        /// Why those on other hosts may not have found the master.
        rendezvous: LoopbackName,
    },
    /// The master does not take this process into the job.
    #[error(
        "the master at {address} does not take this process, rank {rank} of a job of {size}, into its job: {reason}"
    )]
    Unwelcome {
        /// Where it is.
        address: Address,
        /// Which rank this process is.
        rank: Rank,
        /// Of how many.
        size: u32,
        /// Why.
        reason: String,
    },
    /// The master went away before everyone was here.
    #[error("the master went away before all processes had joined")]
    MasterLost,
    /// This process lacks something it needs.
    #[error("this process cannot start its worker: {0}")]
    System(#[from] io::Error),
}

/// One call of the application.
#[derive(Debug)]
pub struct Call {
    /// Which reduction.
    pub reduction: ReductionId,
    /// Its name.
    pub name: String,
    /// What all have to agree on.
    pub spec: ReductionSpec,
    /// This rank's contribution.
    pub body: Body,
}

/// How a call ended.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The reduction, or this rank's part in it, was refused; nothing was counted.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The body could not be contributed.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The process that hosts the master is gone.
    #[error("the master is gone")]
    MasterLost,
    /// This process was declared failed.
    #[error(
        "this process was declared failed, because it was silent for too long; the others go on without it"
    )]
    Fenced,
    /// The session was closed before.
    #[error("the session is closed")]
    Closed,
    /// The result exists, but could not be copied here.
    #[error("the result could not be read: {0}")]
    ResultLost(ExecutionError),
}

/// A call that ended well.
pub struct Completed {
    /// The result, where this rank was to have it.
    pub value: Option<Returned>,
    /// What happened.
    pub report: Report,
}

impl From<Gone> for CallError {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Left => Self::Closed,
            Gone::MasterLost => Self::MasterLost,
            Gone::Fenced => Self::Fenced,
        }
    }
}

/// Where a call's outcome is awaited.
pub(crate) type Answer = oneshot::Sender<Result<Completed, CallError>>;

/// What [`Handle::call`] promises.
pub type Pending = oneshot::Receiver<Result<Completed, CallError>>;

/// A process's place in its job.
pub struct Handle {
    pub(crate) process: ProcessId,
    pub(crate) limits: Limits,
    pub(crate) peers: Vec<Peer>,
    /// Whether they are on several hosts.
    pub(crate) apart: bool,
    pub(crate) driver: Arc<Driver>,
    pub(crate) gone: watch::Receiver<Option<Gone>>,
    pub(crate) failed: watch::Receiver<Path>,
    /// The I/O thread.
    pub(crate) thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// This process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// All processes of the job when it began, by rank.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// What holds in this job.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Memory that peers can map, if there is any.
    pub fn region(&self) -> Option<&Arc<Region>> {
        self.driver.windows.region()
    }

    /// Ranks that were declared failed, as far as this process has heard.
    pub fn failed(&self) -> Path {
        self.failed.borrow().clone()
    }

    /// What happens in the job from now on. Who reads too slowly misses the oldest.
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.driver.news()
    }

    /// Contributes to a reduction. Returns at once.
    ///
    /// # Errors
    /// The body cannot be encoded or shown to peers; nobody has heard of the call then.
    pub fn call(&self, call: Call) -> Result<Pending, ShareError> {
        let (answer, pending) = oneshot::channel();
        let Err((call, answer)) = self.driver.place(call, answer) else { return Ok(pending) };
        let Call { reduction, name, spec, body } = call;
        let tried = self.apart && team::suits(&spec, self.limits.teams_from);
        let shared = Share::new(self.process, &spec, body, &self.driver.windows, &self.limits, tried);
        let is_closed = |shared: &Result<_, ShareError>| match shared {
            // Who has left shows nothing any more.
            Err(ShareError::NoWindow(_)) => self.driver.gone(),
            _ => None,
        };
        if let Some(gone) = is_closed(&shared) {
            let _ = answer.send(Err(gone.into()));
            return Ok(pending);
        }
        let (share, data) = shared?;
        let limit = self.limits.body_bytes_max;
        if data.len() > limit {
            share.release();
            return Err(ShareError::TooLarge { bytes: data.len(), limit });
        }
        self.driver.call(Contribution { reduction, name, spec, data }, share, answer)?;
        Ok(pending)
    }

    /// Lets the thread that waits for the application's futures hear the master by itself.
    pub fn waiting(&self) -> Waiting {
        Waiting(self.driver.clone())
    }

    /// Leaves the job once all reductions of this rank have ended. The process that hosts the master waits for all
    /// others, too.
    pub async fn close(&self) {
        self.driver.take(Event::Close);
        let mut gone = self.gone.clone();
        // An error means that the thread has ended, which is as good.
        let _ = gone.wait_for(Option::is_some).await;
    }
}

/// The thread on which the application waits, as its worker sees it. One thread at a time.
#[derive(Clone)]
pub struct Waiting(Arc<Driver>);

impl Waiting {
    /// Hears the master, in the runtime that this runs in. To be spawned there once.
    pub async fn listen(self) {
        if let Err(error) = self.0.listen_here().await {
            tracing::debug!(%error, "the application does not hear the master");
        }
    }

    /// Waits for the latest call for a short while without going to sleep, if it is on the board.
    pub fn watch(&self) {
        self.0.watch();
    }

    /// The runtime's thread is about to wait.
    pub fn begin(&self) {
        self.0.hearing.wait();
    }

    /// The runtime's thread goes on.
    pub fn end(&self) {
        self.0.hearing.compute();
    }

    /// The runtime's thread is about to wait for something else than the runtime.
    pub fn elsewhere(&self) {
        self.0.hearing.wait_deaf();
    }
}

impl Handle {
    /// Ends this worker at once, as if its process had died: the others learn it from the broken connection.
    pub fn abandon(&self) {
        self.driver.abandon();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the place of {} in its job", self.process)
    }
}

impl Drop for Handle {
    /// Leaves the job and waits for it, as [`Handle::close`]. A panicking thread leaves as [`Handle::abandon`] does.
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        if panicking {
            self.driver.abandon();
        } else {
            self.driver.take(Event::Close);
        }
        if let Some(thread) = self.thread.take()
            && !panicking
        {
            let _ = thread.join();
        }
    }
}
