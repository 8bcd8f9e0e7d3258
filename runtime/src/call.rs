//! Joining and calling: the data that a process gives to its rank's thread, and the errors that it hears.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use everfold_master::Policy;
use everfold_protocol::{
    JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec,
    report::{Refusal, Report},
};
use everfold_worker::machine::{ExecutionError, Gone};
use tokio::sync::oneshot;

use crate::{
    agent::HailError,
    body::Body,
    executor::{Returned, ShareError},
    launch::{Environment, Transport},
    result_log::LogError,
    transport::{
        control::{Address, LoopbackName, Stranger},
        handshake::{HandshakeError, Key},
        second::SecondWay,
    },
};

/// The data with which a rank joins its job.
#[derive(Clone, Debug)]
pub struct RankConfig {
    /// The process that joins.
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
    /// A second way to the memory of other hosts, beside TCP.
    pub second: Option<Arc<dyn SecondWay>>,
    /// How long to wait for the master and for the other processes.
    pub join_timeout: Duration,
    /// The job as the process found it in its environment.
    pub environment: Environment,
    /// How the deputy schedules that this process hosts where a large group works in teams.
    pub policy: Policy,
    /// The names of own detectors that are asked about deaths, in their order.
    pub detectors: Vec<String>,
    /// Threads that fold.
    pub threads: usize,
    /// Directory below which copies of contributions are kept while they are needed.
    pub storage: PathBuf,
    /// Most bytes of outcomes that are noted between two checkpoints, where ranks come back.
    pub log_bytes_max: u64,
    /// Whether checkpoints are saved although ranks do not come back: for a later job.
    pub saves: bool,
    /// Label of the hosts that may fail together with this one.
    pub domain: Option<String>,
}

/// Why a process could not join its job.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is no agent on this host that takes this process in.
    #[error(transparent)]
    Agent(#[from] HailError),
    /// What an earlier process of this rank has noted cannot be had.
    #[error(transparent)]
    Log(#[from] LogError),
    /// No process answers at the rendezvous.
    #[error("no master at {address} within {timeout:?}: {source}")]
    NoMaster {
        /// Where it should be.
        address: Address,
        /// How long it was tried.
        timeout: Duration,
        /// The error of the last attempt.
        source: io::Error,
    },
    /// Another user's process listens at the rendezvous. It has learnt nothing of the job.
    #[error("no master at {address}: {stranger}")]
    Squatted {
        /// Where it is.
        address: Address,
        /// Whose it is.
        stranger: Stranger,
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
    #[error(
        "ranks {missing} did not join within {timeout:?}, or were lost before all had joined{rendezvous}"
    )]
    Incomplete {
        /// The ranks that did not join.
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
    /// The master went away before all processes were here.
    #[error("the master went away before all processes had joined")]
    MasterLost,
    /// The master has given this process up before all processes were here.
    #[error(
        "the master has given this process up before all processes had joined: the agent of this host has ended, or \
         its connection broke. There will be no job; start it again"
    )]
    Fenced,
    /// This process lacks something it needs.
    #[error("this process cannot start its worker: {0}")]
    System(#[from] io::Error),
}

impl From<Gone> for JoinError {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Fenced => Self::Fenced,
            Gone::Left | Gone::MasterLost => Self::MasterLost,
        }
    }
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
    /// The agent that hosts the master is gone, or was silent for too long.
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

/// What [`Handle::call`](crate::rank::Handle::call) promises.
pub type Pending = oneshot::Receiver<Result<Completed, CallError>>;

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        Epoch, ProcessId, Timestamp,
        message::{Header, MASTER, Peer, ToWorker},
    };
    use everfold_worker::machine::{Action, Event, Worker};

    use super::*;

    /// What a process hears that joins from a host which is lost before all are here.
    #[test]
    fn who_is_given_up_while_it_joins_does_not_blame_the_master() {
        let peer = Peer {
            process: ProcessId::first(2),
            host: 1,
            pid: 0,
            region: None,
            bell: None,
            board: None,
            address: String::new(),
            domain: None,
            agent: None,
        };
        let mut worker = Worker::new(peer, 4);
        let header = Header { job: JobId(1), epoch: Epoch(1), sender: MASTER };
        worker.handle_event(Timestamp::ZERO, Event::Master { header, message: ToWorker::Fenced });
        assert!(std::iter::from_fn(|| worker.poll_action()).any(|action| matches!(action, Action::Closed)));
        let error = JoinError::from(worker.gone().expect("it has ended"));
        assert!(matches!(error, JoinError::Fenced) && error.to_string().contains("agent of this host"));
    }
}
