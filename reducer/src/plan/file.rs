//! Plans as `everfold plan` writes them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use everfold_planner::{
    follow::{Follower, Unfollowable},
    leveled::LeveledPlan,
    plan::Plan,
};
use serde::de::DeserializeOwned;
use toml::Table;

/// A plan that programs can follow: the file `plan.toml` that `everfold plan` writes.
#[derive(Clone, Debug)]
pub struct PlanFile {
    follower: Follower,
}

/// Why a plan cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It cannot be read.
    #[error("cannot read the plan {}: {source}", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Its text makes no sense.
    #[error("{}: this is no plan: {reason}; `everfold plan PROFILE` makes one", path.display())]
    Malformed {
        /// Its path.
        path: PathBuf,
        /// What is wrong, with line and key.
        reason: String,
    },
    /// It has checkpoints of the level directory, and the job has none.
    #[error(
        "the plan has checkpoints that go into a directory, and the job has none: name one by --checkpoints \
         (EVERFOLD_CHECKPOINTS), `checkpoint.directory` in the recovery file, or Config::checkpoint_directory"
    )]
    NoDirectory,
    /// No program can follow it.
    #[error("{}: no program can follow this plan: {source}", path.display())]
    Unfollowable {
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: Unfollowable,
    },
}

impl PlanFile {
    /// Reads the plan at `path`.
    ///
    /// # Errors
    /// It cannot be read, makes no sense, or no program can follow it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, PlanError> {
        let path = path.as_ref().to_owned();
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text, path),
            Err(source) => Err(PlanError::Unreadable { path, source }),
        }
    }

    /// Reads what stands in the file at `path`.
    ///
    /// # Errors
    /// The text makes no sense, or no program can follow the plan.
    pub fn parse(text: &str, path: PathBuf) -> Result<Self, PlanError> {
        let has_levels = toml::from_str::<Table>(text).is_ok_and(|table| table.contains_key("stops"));
        let follower = match has_levels {
            true => read(text, &path).map(|plan: LeveledPlan| Follower::leveled(&plan)),
            false => read(text, &path).map(|plan: Plan| Follower::new(&plan)),
        };
        match follower? {
            Ok(follower) => Ok(Self { follower }),
            Err(source) => Err(PlanError::Unfollowable { path, source }),
        }
    }

    pub(crate) fn into_follower(self) -> Follower {
        self.follower
    }
}

fn read<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, PlanError> {
    toml::from_str(text).map_err(|error| {
        let reason = error.to_string().trim_end().to_owned();
        PlanError::Malformed { path: path.to_owned(), reason }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "title = \"t\"\nrule = \"cheapest\"\noffset_ns = 0\nrun_ns = 9\ntaken_ns = 0\nhidden_ns = 0\n";
    const STOP: &str = "[[tracks.stops]]\npoint = \"a\"\npass = 3\nat_ns = 5\nsince_ns = 5\nbytes = 1\nwrite_ns = 1\n\
         hidden_ns = 0\nmoved_ns = 0\namong = 1\n";

    fn parse(placement: &str, rest: &str) -> Result<PlanFile, PlanError> {
        let text = format!("{HEAD}placement = \"{placement}\"\n{rest}");
        PlanFile::parse(&text, PathBuf::from("plan.toml"))
    }

    #[test]
    fn what_cannot_be_followed_is_told() {
        let track = |part: &str| format!("[[tracks]]\npart = \"{part}\"\napart_ns = 5\n");
        parse("synchronous", &format!("{}{STOP}", track("whole"))).unwrap();
        let told = |placement: &str, rest: &str| parse(placement, rest).unwrap_err().to_string();
        let both = format!("{}{STOP}{}{STOP}", track("host"), track("device"));
        parse("asynchronous", &both).unwrap();
        assert!(told("synchronous", &both).contains("of the part whole"));
        assert!(told("synchronous", &format!("{}stops = []", track("whole"))).contains("no checkpoints"));
        assert!(told("synchronous", &format!("{}{STOP}{STOP}", track("whole"))).contains("twice"));
        assert!(told("synchronous", "[[tracks]]\npart = \"wheel\"").contains("line 9"));
        let leveled = |level: &str| {
            let stop = format!("point = \"a\"\npass = 0\nat_ns = 1\nlevel = {level:?}\nwrite_ns = 1\n");
            let text = format!("title = \"t\"\nrun_ns = 5\nexpected_s = 1.0\n[[stops]]\n{stop}");
            PlanFile::parse(&text, PathBuf::from("plan.toml"))
        };
        leveled("disk").unwrap();
        assert!(leveled("tape").unwrap_err().to_string().contains("has a level \"tape\""));
        let profile =
            PlanFile::parse("[machine]\nstorage = \"1 MB/s\"", PathBuf::from("it.toml")).unwrap_err();
        assert!(profile.to_string().contains("it.toml: this is no plan"), "{profile}");
        let missing = PlanFile::read("/nowhere/plan.toml").unwrap_err().to_string();
        assert!(missing.contains("/nowhere/plan.toml"), "{missing}");
    }
}
