//! What a session knows of the points of its program.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use everfold_planner::{
    follow::{Follower, Misfit, Passed, Save},
    leveled::Depth,
};

use super::{
    file::{PlanError, PlanFile},
    recorder::Recorder,
};

/// The points of a program: where a plan says to save, and the profile that is recorded.
#[derive(Debug, Default)]
pub(crate) struct Placing {
    /// None without a plan, and from where on it does not fit.
    follower: Mutex<Option<Follower>>,
    record: Option<PathBuf>,
    recorder: Option<Recorder>,
}

/// What a plan says of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Here {
    /// There is none: the interval decides.
    NoPlan,
    /// One is to be saved, in this way.
    Save(Save),
    /// None is to be saved.
    Skip,
    /// The plan does not fit, and is followed no more.
    Misfit(Misfit),
}

impl Placing {
    /// Follows the plan in the file `plan`, and records a profile in `record`.
    ///
    /// # Errors
    /// The plan cannot be followed.
    pub fn new(plan: Option<&Path>, record: Option<&Path>) -> Result<Self, PlanError> {
        let follower = plan.map(PlanFile::read).transpose()?.map(PlanFile::into_follower);
        Ok(Self { follower: Mutex::new(follower), record: record.map(Path::to_owned), recorder: None })
    }

    /// Begins to record, if that was asked for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin_recording(&mut self) -> Result<(), (PathBuf, std::io::Error)> {
        if let Some(path) = &self.record {
            self.recorder = Some(Recorder::begin(path.clone()).map_err(|source| (path.clone(), source))?);
        }
        Ok(())
    }

    /// The profile that is recorded, if one is.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// Whether the plan has checkpoints that go into a directory, and says so.
    pub fn needs_directory(&self) -> bool {
        self.lock().as_ref().is_some_and(|follower| follower.deepest() == Some(Depth::Directory))
    }

    /// The program is at a point, or at a checkpoint without a name.
    pub fn reach(&self, point: Option<&str>) -> Here {
        let mut following = self.lock();
        let Some(follower) = following.as_mut() else { return Here::NoPlan };
        match point.map_or(Ok(None), |point| follower.reach(point)) {
            Ok(Some(save)) => Here::Save(save),
            Ok(None) => Here::Skip,
            Err(misfit) => {
                *following = None;
                Here::Misfit(misfit)
            }
        }
    }

    /// Whether checkpoints are saved where a plan says.
    pub fn follows_plan(&self) -> bool {
        self.lock().is_some()
    }

    /// How far the program is in the plan, if it follows one.
    pub fn passed(&self) -> Option<Passed> {
        self.lock().as_ref().map(|follower| follower.passed().clone())
    }

    /// Goes on from a checkpoint that was saved so far in the plan. Returns false if it does not say how far.
    pub fn go_on(&self, passed: Option<Passed>) -> bool {
        let mut following = self.lock();
        match (following.as_mut(), passed) {
            (None, _) => true,
            (Some(follower), Some(passed)) => {
                follower.go_on(passed);
                true
            }
            (Some(_), None) => {
                *following = None;
                false
            }
        }
    }

    /// The program has come to its end.
    pub fn end(&self) -> Result<(), Misfit> {
        self.lock().take().map_or(Ok(()), |follower| follower.end())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Follower>> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
