//! Limits on the processor time of processes: control groups, version 1 or 2.

use std::{fs, io, path::PathBuf};

use nix::unistd::Pid;

const PERIOD_US: u64 = 100_000;
const PREFIX: &str = "everfold-";

/// A group of processes that can be limited. They leave it when this is dropped.
#[derive(Debug)]
pub struct Quota {
    folder: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The one that limits processor time here, and where its groups are.
    fn here() -> Option<(Self, PathBuf)> {
        let one = PathBuf::from("/sys/fs/cgroup/cpu");
        let two = PathBuf::from("/sys/fs/cgroup");
        if one.is_dir() {
            return Some((Self::One, one));
        }
        let controllers = fs::read_to_string(two.join("cgroup.controllers")).ok()?;
        controllers.split_whitespace().any(|name| name == "cpu").then_some((Self::Two, two))
    }
}

impl Quota {
    /// A group for each rank; nothing if the system has none for us.
    pub fn for_ranks(ranks: u32) -> Vec<Self> {
        let Some((version, parent)) = Version::here() else { return Vec::new() };
        remove_orphans(&parent);
        if matches!(version, Version::Two)
            && fs::write(parent.join("cgroup.subtree_control"), "+cpu").is_err()
        {
            return Vec::new();
        }
        let make = |rank: u32| {
            let folder = parent.join(format!("{PREFIX}{}-{rank}", std::process::id()));
            fs::create_dir(&folder)?;
            let quota = Self { folder, version };
            quota.set(None).map(|()| quota)
        };
        (0..ranks).map(make).collect::<io::Result<_>>().unwrap_or_default()
    }

    /// Takes a process in, with what it starts from now on.
    pub fn admit(&self, process: Pid) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), process.to_string())
    }

    /// Limits all its processes together to a part of one core.
    pub fn set(&self, percent: Option<u32>) -> io::Result<()> {
        let quota_us = percent.map(|percent| PERIOD_US * u64::from(percent) / 100);
        match self.version {
            Version::One => {
                fs::write(self.folder.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                let quota = quota_us.map_or("-1".to_owned(), |us| us.to_string());
                fs::write(self.folder.join("cpu.cfs_quota_us"), quota)
            }
            Version::Two => {
                let quota = quota_us.map_or("max".to_owned(), |us| us.to_string());
                fs::write(self.folder.join("cpu.max"), format!("{quota} {PERIOD_US}"))
            }
        }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let members = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines() {
            let _ = fs::write(self.folder.join("../cgroup.procs"), member);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Removes groups of runs that were killed. Those with processes in them stay.
fn remove_orphans(parent: &std::path::Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let run = name
            .to_string_lossy()
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next()?.parse::<i32>().ok());
        if run.is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}
