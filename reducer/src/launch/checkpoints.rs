//! Which directory of checkpoints a job has, and whether it goes on from what is there.

use std::{
    io,
    path::{Path, PathBuf},
};

use everfold_protocol::JobId;
use everfold_runtime::launch::{Checkpoints, Local, Rollback, environment};
use everfold_storage::directory::{Directory, DirectoryError};

use super::variables::Variables;
use crate::{
    checkpoint::{Start, Together},
    config::Config,
    error::LaunchError,
    recovery::Protocol,
};

/// A directory, and whether the job goes on from what is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    directory: Option<PathBuf>,
    resumes: bool,
}

impl Choice {
    /// What the environment says, or else the program.
    pub fn find(config: &Config, resume: Option<&Path>, variables: Variables) -> Self {
        let (resumed, new) = (variables.path(environment::RESUME), variables.path(environment::CHECKPOINTS));
        let said = || resume.or(config.checkpoints()).map(Path::to_owned);
        match (resumed, new) {
            (Some(directory), _) => Self { directory: Some(directory), resumes: true },
            (None, Some(directory)) => Self { directory: Some(directory), resumes: false },
            (None, None) => Self { directory: said(), resumes: resume.is_some() },
        }
    }

    /// Whether recoveries and protocol go together with the directory, or with none.
    fn check(&self, config: &Config) -> Result<(), LaunchError> {
        match (&self.directory, config.protocol()) {
            (None, _) if config.rollback().is_some() => Err(LaunchError::RollbackToNowhere),
            (None, Some(Protocol::Coordinated)) => Err(LaunchError::CoordinatedNowhere),
            (Some(_), _) if config.ranks_stand_by() => Err(LaunchError::StandbysSave),
            (Some(_), Some(Protocol::Independent)) => Err(LaunchError::IndependentInDirectory),
            _ => Ok(()),
        }
    }

    /// The directory as the session of a process sees it.
    pub fn open(self, config: &Config, job: JobId) -> Result<Option<Together>, LaunchError> {
        let rollbacks =
            std::env::var(environment::ROLLBACKS).ok().and_then(|number| number.parse::<u32>().ok());
        if config.rollback().is_some() {
            rollbacks.ok_or(LaunchError::NobodyRollsBack)?;
        }
        self.check(config)?;
        let Some(path) = self.directory else { return Ok(None) };
        let start = match rollbacks {
            Some(1..) => Start::ResumeIfAny,
            _ if self.resumes => Start::Resume,
            _ => Start::New,
        };
        let opened = if start == Start::Resume { Directory::open(path) } else { Directory::create(path) };
        Ok(Some(Together::new(opened?, start, job, program().map_err(LaunchError::NoProgram)?)))
    }

    /// Has `local` start processes that use the directory, after a look at what is there.
    pub fn give(self, local: &mut Local, config: &Config) -> Result<(), LaunchError> {
        self.check(config)?;
        let Some(path) = self.directory else { return Ok(()) };
        let directory = std::path::absolute(&path).map_err(|source| DirectoryError::Io {
            action: "find",
            path: path.clone(),
            source,
        })?;
        let size = local.hosts.as_ref().map_or(1, |hosts| hosts.count).saturating_mul(local.ranks);
        match self.resumes {
            true => Directory::open(&directory)?.check_size(size)?,
            false => Directory::create(&directory)?.check_new()?,
        }
        local.rollback = config.rollback().map(|limits| Rollback { directory: directory.clone(), limits });
        local.checkpoints = Some(Checkpoints { directory, resumes: self.resumes });
        Ok(())
    }
}

/// File name of this program.
fn program() -> io::Result<String> {
    let program = std::env::current_exe()?;
    Ok(program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
}

/// Has `local` start processes that save checkpoints in a directory, or go on from it, as the recovery file and
/// these paths say. What makes no sense is told before any process is started.
///
/// # Errors
/// [`LaunchError`].
pub fn use_checkpoints(
    local: &mut Local,
    checkpoints: Option<PathBuf>,
    resume: Option<PathBuf>,
) -> Result<(), LaunchError> {
    let variables = Variables { are_around: local.is_nested };
    let file = local.recovery.clone().or_else(|| variables.path(environment::RECOVERY));
    let config = super::chosen(file.as_deref(), &Config::default())?;
    let config = match config.protocol() {
        // The program may choose a directory, which each of its processes sees.
        Some(Protocol::Coordinated) => config.saved_by(None),
        _ => config,
    };
    let said = || config.checkpoints().map(Path::to_owned);
    let choice = Choice { resumes: resume.is_some(), directory: resume.or(checkpoints).or_else(said) };
    choice.give(local, &config)
}
