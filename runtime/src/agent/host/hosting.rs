//! The master, in the agent of the host to which rank 0 comes.

use std::{io, sync::Arc};

use everfold_master::Policy;

use super::AgentConfig;
use crate::{
    agent::line::{Hail, NoAgent},
    components::Components,
    locating::Locator,
    master::{MasterConfig, MasterThread},
    memory::board::OwnBoard,
};

/// The master, if it is here or is to be.
pub(super) struct Hosting {
    agent: Arc<AgentConfig>,
    locator: Locator,
    /// Where agents of other hosts find it before it is there.
    open: Option<MasterThread>,
    master: Option<(MasterThread, Option<Arc<OwnBoard>>)>,
}

impl Hosting {
    pub(super) fn new(agent: Arc<AgentConfig>, locator: Locator) -> Self {
        Self { agent, locator, open: None, master: None }
    }

    /// Lets agents of other hosts find the place of the master before that is there: if this host is lost, they
    /// know.
    pub(super) fn open(&mut self) {
        match MasterThread::open(&self.config(self.agent.size, Policy::default())) {
            Ok(open) => self.open = Some(open),
            // Rank 0 is told.
            Err(error) => tracing::debug!(%error, "cannot listen yet"),
        }
    }

    /// Starts the master as the process has it that brings it along.
    ///
    /// # Errors
    /// What that process is to be told.
    pub(super) fn start(&mut self, hail: &Hail) -> Result<(), NoAgent> {
        let Hail { size, policy, detectors, board, .. } = hail;
        let components = self.agent.components.choose(detectors)?;
        let board = if *board { OwnBoard::for_job(*size).map(Arc::new) } else { None };
        let config = self.config(*size, policy.clone());
        let config = MasterConfig { components, board: board.clone(), ..config };
        let cannot_listen = |error: io::Error| NoAgent::CannotListen {
            reason: error.to_string(),
            code: error.raw_os_error(),
        };
        self.master = Some((self.lead(config).map_err(cannot_listen)?, board));
        Ok(())
    }

    /// Starts a master that calls the job off as soon as this agent has told it why.
    ///
    /// # Errors
    /// It cannot listen.
    pub(super) fn call_off(&mut self) -> io::Result<()> {
        let config = self.config(self.agent.size, Policy::default());
        self.master = Some((self.lead(config)?, None));
        Ok(())
    }

    /// The board of the ranks here, if there is one.
    pub(super) fn board(&self) -> Option<Arc<OwnBoard>> {
        self.master.as_ref().and_then(|(_, board)| board.clone())
    }

    /// Ends the master at once, if it is here.
    pub(super) fn abandon(&self) {
        self.master.iter().for_each(|(master, _)| master.abandon());
    }

    fn lead(&mut self, config: MasterConfig) -> io::Result<MasterThread> {
        let open = self.open.take().map_or_else(|| MasterThread::open(&config), Ok)?;
        Ok(open.lead(config))
    }

    fn config(&self, size: u32, policy: Policy) -> MasterConfig {
        let AgentConfig { job, key, rendezvous, parent, .. } = &*self.agent;
        MasterConfig {
            job: *job,
            key: *key,
            size,
            rendezvous: rendezvous.clone(),
            policy,
            components: Components::new(),
            board: None,
            locator: self.locator.clone(),
            parent: parent.clone(),
        }
    }
}
