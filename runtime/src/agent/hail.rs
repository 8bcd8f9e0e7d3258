//! How a rank finds the agent of its host, and hands its memory over.

use std::{fs::File, io, net::IpAddr};

use everfold_master::Policy;
use everfold_protocol::{
    AgentId, JobId, ProcessId,
    message::{AgentRef, Origin, RegionRef},
};
use tokio::time::Instant;

use super::{
    line::{Answer, Hail, Line, NoAgent, Serve, Serving, Welcome},
    start,
};
use crate::{
    launch::Environment,
    memory::region::Region,
    transport::{
        control::Stranger,
        handshake::{self, HandshakeError, Key, Purpose},
    },
};

/// Why a rank has no agent.
#[derive(Debug, thiserror::Error)]
pub enum HailError {
    /// There is none, and none can be started.
    #[error("this process has no agent, and cannot start one: {0}")]
    NotFound(io::Error),
    /// Another user's process listens where the agent should. It has learnt nothing of the job.
    #[error("this process cannot reach the agent of its host: {0}")]
    Squatted(Stranger),
    /// The process that listens there does not belong to the job, or the connection broke.
    #[error("the agent of this host refuses this process: {0}")]
    Handshake(#[from] HandshakeError),
    /// It does not take this process in.
    #[error("the agent of this host does not take this process in: {0}")]
    Refused(#[from] NoAgent),
}

impl From<io::Error> for HailError {
    fn from(error: io::Error) -> Self {
        Self::Handshake(error.into())
    }
}

impl HailError {
    fn searching(error: io::Error) -> Self {
        Stranger::behind(&error).map_or(Self::NotFound(error), Self::Squatted)
    }
}

/// The agent of this process's host. The agent holds the memory of this process as long as it is needed; when
/// this is dropped, the agent knows that the process has left.
#[derive(Debug)]
pub struct OwnAgent {
    line: Line,
    id: AgentId,
    /// The board, if the job has one and this agent holds it: at rank 0, which shows it to the others, and where ranks
    /// come back.
    board: Option<File>,
    /// The files of this rank's vault, where ranks come back.
    vault: Option<[File; 2]>,
    /// The replica from which the vault is to be filled, if any.
    origin: Option<Origin>,
    stands_by: bool,
}

/// A rank as it introduces itself to its agent.
#[allow(missing_docs)]
pub struct About<'a> {
    pub key: &'a Key,
    pub job: JobId,
    pub process: ProcessId,
    pub size: u32,
    pub policy: &'a Policy,
    /// Names of own detectors, if this agent hosts the master.
    pub detectors: &'a [String],
    pub region: Option<&'a Region>,
    /// Whether the job may have a board.
    pub board: bool,
}

/// Finds the agent of this host, or starts one, and hands it this process's memory.
///
/// # Errors
/// See [`HailError`].
pub async fn hail(
    environment: &Environment,
    about: About<'_>,
    deadline: Instant,
) -> Result<OwnAgent, HailError> {
    let About { key, job, process, size, policy, detectors, region, board } = about;
    let mut stream = start::find(environment, deadline).await.map_err(HailError::searching)?;
    let seals = handshake::connect(&mut stream, key, job, process, Purpose::Hail).await?;
    let mut line = Line::new(stream, seals);
    let handle: Option<RegionRef> = region.map(Region::handle);
    let detectors = detectors.to_vec();
    line.tell(&Hail { size, region: handle, policy: policy.clone(), detectors, board }).await?;
    if let Some(region) = region {
        line.hand_over(region.file()).await?;
    }
    let welcome = line.hear::<Answer>().await??;
    let board = if welcome.board { Some(line.take().await?.into()) } else { None };
    let vault = match welcome.vault {
        true => Some([line.take().await?.into(), line.take().await?.into()]),
        false => None,
    };
    let Welcome { id, origin, stands_by, .. } = welcome;
    Ok(OwnAgent { line, id, board, vault, origin, stands_by })
}

impl OwnAgent {
    /// The board, if the job has one: at rank 0, which shows it to the others, and where ranks come back.
    pub fn board(&self) -> Option<&File> {
        self.board.as_ref()
    }

    /// The files of this rank's vault, where ranks come back. Given once.
    pub fn take_vault(&mut self) -> Option<[File; 2]> {
        self.vault.take()
    }

    /// The replica from which the vault is to be filled, if an earlier process of this rank was on another
    /// host.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Waits until the agent hangs up, from which nothing else is to come: it has ended, or has lost the
    /// master before this process has found that.
    pub async fn hung_up(&mut self) {
        while self.line.hear::<Serving>().await.is_ok() {}
    }

    /// Whether this process stands by: it follows the earlier one, which lives.
    pub fn stands_by(&self) -> bool {
        self.stands_by
    }

    /// Lets the agent serve this host's memory to others, to whom this host has that address.
    ///
    /// # Errors
    /// It cannot listen there, or is gone.
    pub async fn serve(&mut self, ip: IpAddr) -> Result<AgentRef, HailError> {
        self.line.tell(&Serve { ip }).await?;
        let Serving { address } = self.line.hear().await?;
        let address = address.map_err(|reason| HailError::NotFound(io::Error::other(reason)))?;
        Ok(AgentRef { id: self.id, address })
    }
}
