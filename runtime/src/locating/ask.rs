//! What users may ask a running job, on any of its hosts: what it is, which faults were located, that other rules hold.
//!
//! Each agent listens at a name in the abstract namespace of Unix sockets that says whose it is. Only processes of the same user
//! are answered. There is no secret in it: those could read the agent's memory anyway.

use std::{
    fs, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener as StdUnixListener},
    },
    time::Duration,
};

use everfold_locate::place::Host;
use everfold_protocol::{
    JobId, Path,
    locating::{HostRef, Located},
    seal::Seal,
};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::oneshot,
};

use super::{Input, Locator, NodeConfig, Told};
use crate::{
    descriptors,
    transport::{
        control::{connect_own, is_own, read_frame, write_frame},
        handshake::HandshakeError,
    },
};

/// Largest question or reply, in bytes.
const FRAME_BYTES_MAX: u64 = 4 << 20;
/// How long a job may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a user asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum About {
    Job,
    Faults,
    Rules(String),
}

/// A question, and who waits for the reply.
pub(crate) struct Asked {
    pub(super) about: About,
    pub(super) user: oneshot::Sender<Reply>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Job(JobInfo),
    Faults(Vec<Fault>),
    Deployed,
    Refused(String),
}

/// A job that runs on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Its number.
    pub job: JobId,
    /// The ranks that this agent's host has; none before the job has begun.
    pub ranks: Path,
    /// The number of all ranks, and of hosts.
    pub size: u32,
    #[allow(missing_docs)]
    pub hosts: u32,
    /// How long the agent has run.
    pub age: Duration,
    /// How many faults were located that are not over.
    pub faults: u32,
    /// The process of the agent.
    pub pid: u32,
}

/// A fault that was located.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// How long ago it was told.
    pub ago: Duration,
    /// How long ago it was told that it is over, if it is.
    pub over: Option<Duration>,
    /// What it is.
    pub located: Located,
}

impl From<&Told> for Fault {
    fn from(told: &Told) -> Self {
        let over = told.over.map(|over| over.elapsed());
        Self { ago: told.at.elapsed(), over, located: (*told.located).clone() }
    }
}

/// Why a job does not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No job of this user runs here.
    #[error("no job of yours runs on this machine")]
    NoJob,
    /// None with this number does.
    #[error("no job {:x} of yours runs on this machine; `everfold jobs` lists those that do", job.0)]
    NoSuchJob {
        /// The number.
        job: JobId,
    },
    /// Several run, and none was named.
    #[error("{0} jobs of yours run on this machine; name one of those that `everfold jobs` lists")]
    Several(usize),
    /// It has refused what was asked.
    #[error("{0}")]
    Refused(String),
    /// It cannot be reached, or does not answer.
    #[error("the job does not answer: {0}")]
    Io(#[from] io::Error),
}

impl NodeConfig {
    pub(super) fn describe(&self, standing: Option<(Host, &[HostRef])>) -> JobInfo {
        let hosts = standing.map_or(&[][..], |(_, hosts)| hosts);
        let here = standing.and_then(|(me, hosts)| hosts.get(me.0 as usize));
        JobInfo {
            job: self.agent.job,
            ranks: here.map_or_else(Path::empty, |it| it.ranks.clone()),
            size: hosts.iter().map(|it| it.ranks.len() as u32).sum(),
            hosts: hosts.len() as u32,
            age: self.began.elapsed(),
            faults: self.faults.list().iter().filter(|told| told.over.is_none()).count() as u32,
            pid: std::process::id(),
        }
    }
}

/// The beginning of the names of this user's jobs.
fn prefix() -> String {
    format!("everfold-ask-{}-", geteuid())
}

/// Answers users until the agent ends.
pub(super) async fn listen(job: JobId, locator: Locator) {
    // Several agents of one job may be on one machine, in containers or in tests.
    let name =
        format!("{}{:016x}-{:08x}", prefix(), job.0, getrandom::u32().unwrap_or_else(|_| std::process::id()));
    let listener = match bind(&name) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "users cannot ask this job anything"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let locator = locator.clone();
                tokio::spawn(async move {
                    let served = tokio::time::timeout(PATIENCE, serve(stream, locator)).await;
                    if let Ok(Err(error)) = served {
                        tracing::debug!(%error, "dropped a user");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(descriptors::PAUSE).await;
            }
        }
    }
}

fn bind(name: &str) -> io::Result<UnixListener> {
    let listener = StdUnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

async fn serve(mut stream: UnixStream, locator: Locator) -> Result<(), HandshakeError> {
    is_own(&stream)?;
    let about = read_frame(&mut stream, FRAME_BYTES_MAX, &mut Seal::of_strangers()).await?;
    let (user, reply) = oneshot::channel();
    locator.tell(Input::Asked(Asked { about, user }));
    if let Ok(reply) = reply.await {
        write_frame(&mut stream, &reply, FRAME_BYTES_MAX, &mut Seal::of_strangers()).await?;
    }
    Ok(())
}

/// The names at which jobs of this user listen here, with the job of each.
fn names() -> io::Result<Vec<(JobId, String)>> {
    let prefix = prefix();
    let found = |line: &str| {
        let name = line.split_whitespace().last()?.strip_prefix('@')?;
        let (job, _) = name.strip_prefix(&prefix)?.split_once('-')?;
        Some((JobId(u64::from_str_radix(job, 16).ok()?), name.to_owned()))
    };
    let mut names: Vec<_> =
        fs::read_to_string("/proc/thread-self/net/unix")?.lines().filter_map(found).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

fn ask(name: &str, about: &About) -> io::Result<Reply> {
    let asking = async {
        let mut stream = connect_own(name)?;
        let mut seal = Seal::of_strangers();
        write_frame(&mut stream, about, FRAME_BYTES_MAX, &mut seal).await.map_err(io::Error::other)?;
        let mut seal = Seal::of_strangers();
        read_frame(&mut stream, FRAME_BYTES_MAX, &mut seal).await.map_err(io::Error::other)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async { tokio::time::timeout(PATIENCE, asking).await });
    asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn unexpected<T>() -> Result<T, AskError> {
    Err(io::Error::new(io::ErrorKind::InvalidData, "it answers something else; is it of another version?")
        .into())
}

/// The jobs of this user that run on this machine, and in this network namespace.
///
/// # Errors
/// The system does not list its sockets. A job that does not answer is left out.
pub fn jobs() -> Result<Vec<JobInfo>, AskError> {
    let info = |(_, name): &(JobId, String)| match ask(name, &About::Job) {
        Ok(Reply::Job(info)) => Some(info),
        _ => None,
    };
    Ok(names()?.iter().filter_map(info).collect())
}

/// The faults that were located in a job, which need not be named if there is only one.
///
/// # Errors
/// See [`AskError`].
pub fn faults(job: Option<JobId>) -> Result<Vec<Fault>, AskError> {
    match ask(&name_of(job)?, &About::Faults)? {
        Reply::Faults(faults) => Ok(faults),
        _ => unexpected(),
    }
}

/// Lets these rules hold in a job from now on. They are compiled completely before they take the place of others.
///
/// # Errors
/// See [`AskError`]; the rules are then as they were.
pub fn push_rules(job: Option<JobId>, text: String) -> Result<(), AskError> {
    match ask(&name_of(job)?, &About::Rules(text))? {
        Reply::Deployed => Ok(()),
        Reply::Refused(reason) => Err(AskError::Refused(reason)),
        _ => unexpected(),
    }
}

/// The name of one of the agents of a job.
fn name_of(job: Option<JobId>) -> Result<String, AskError> {
    let mut names = names()?;
    if let Some(job) = job {
        let found = names.into_iter().find(|(other, _)| *other == job);
        return found.map(|(_, name)| name).ok_or(AskError::NoSuchJob { job });
    }
    // One agent speaks for its job.
    names.dedup_by_key(|(job, _)| *job);
    match names.len() {
        0 => Err(AskError::NoJob),
        1 => Ok(names.swap_remove(0).1),
        several => Err(AskError::Several(several)),
    }
}
