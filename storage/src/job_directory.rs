//! Where a job keeps its files, and how those of crashed jobs are found.
//!
//! ```text
//! <base>/jobs/<host>/<job>.lock                 locked by every living process of the job on this host, shared
//! <base>/jobs/<host>/<job>/<rank>.<incarnation> the store of one process
//! ```
//! The kernel takes a lock away when its process ends, however it ends. So a job whose lock can be had
//! exclusively is over, and nothing of it is removed otherwise. Hosts are kept apart because a base directory
//! may be shared by several while its locks are not.
//!
//! The lock lies beside the directory, not in it, so that it can be held until the last file is gone; then
//! the lock itself is unlinked. A process that gets a lock therefore looks whether it is still the one that
//! the path names.
//!
//! All of it is this user's alone. The base may lie where others can create files, such as `/tmp`: nothing
//! that they have put there is followed, waited for or removed.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use everfold_protocol::{JobId, ProcessId};

use crate::{
    error::{JobDirectoryError, error},
    own_directory::{OwnDirectory, user_id},
};

/// How long to wait while somebody else removes the files of an earlier job with the same id.
const REMOVAL_WAIT: Duration = Duration::from_secs(10);
const REMOVAL_POLL: Duration = Duration::from_millis(2);
const JOBS: &str = "jobs";
const LOCK_SUFFIX: &str = ".lock";

/// The base directory for this user: `$EVERFOLD_DIR`, else `$XDG_CACHE_HOME/everfold`, else
/// `$HOME/.cache/everfold`, else `everfold-<user id>` in the directory for temporary files. It should be on a
/// local disk.
pub fn base_directory() -> PathBuf {
    choose_base(|name| std::env::var_os(name), &std::env::temp_dir())
}

fn choose_base(variable: impl Fn(&str) -> Option<OsString>, temporary: &Path) -> PathBuf {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The XDG specification says to ignore a path that is not absolute.
    let cache = || path("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    path("EVERFOLD_DIR")
        .or_else(|| cache().map(|cache| cache.join("everfold")))
        .or_else(|| path("HOME").map(|home| home.join(".cache/everfold")))
        .unwrap_or_else(|| temporary.join(format!("everfold-{}", user_id())))
}

/// A process's place among its job's files. While it exists, nobody removes them.
///
/// Dropping it gives up the lock but leaves the files to [`remove_orphans`], as a crash does;
/// [`leave`](Self::leave) is the good end.
#[derive(Debug)]
pub struct JobDirectory {
    names: Names,
    process: ProcessId,
    lock: File,
}

impl JobDirectory {
    /// Takes part in `job` as `process`. Creates what does not exist yet, readable for this user alone.
    ///
    /// # Errors
    /// [`JobDirectoryError::Io`], [`JobDirectoryError::Foreign`] and [`JobDirectoryError::Unexpected`], or
    /// [`JobDirectoryError::Busy`] after ten seconds.
    pub fn join(base: &Path, job: JobId, process: ProcessId) -> Result<Self, JobDirectoryError> {
        create_directory(base).map_err(error("create", base))?;
        let host = OwnDirectory::at_base(base)?.create(JOBS)?.create(&host_name())?;
        let names = Names::new(host.path(), job);
        let start = Instant::now();
        let lock = loop {
            let lock = host.open_file(&names.lock_name)?;
            let locked = match lock.try_lock_shared() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => false,
                Err(TryLockError::Error(source)) => return Err(error("lock", &names.lock)(source)),
            };
            if locked && is_at(&lock, &names.lock)? {
                break lock;
            }
            let waited = start.elapsed();
            if waited > REMOVAL_WAIT {
                return Err(JobDirectoryError::Busy { path: names.directory, waited });
            }
            thread::sleep(REMOVAL_POLL);
        };
        let joined = Self { names, process, lock };
        host.create(&joined.names.name)?.check(&joined.store_name())?;
        Ok(joined)
    }

    /// The job's directory on this host.
    pub fn path(&self) -> &Path {
        &self.names.directory
    }

    /// Where this process has its [`Store`](crate::Store).
    pub fn store_path(&self) -> PathBuf {
        self.names.directory.join(self.store_name())
    }

    fn store_name(&self) -> String {
        format!("{}.{}", self.process.rank, self.process.incarnation)
    }

    /// Removes this process's files, and those of the whole job if it is the last one here. The store must be
    /// closed. Says whether it was the last.
    ///
    /// # Errors
    /// [`JobDirectoryError::Io`]. The lock is given up all the same, so that [`remove_orphans`] can do the
    /// rest.
    pub fn leave(self) -> Result<bool, JobDirectoryError> {
        remove(&self.store_path())?;
        self.lock.unlock().map_err(error("unlock", &self.names.lock))?;
        Ok(self.names.remove_unless_in_use(&self.lock)? != Removal::InUse)
    }
}

/// What became of the jobs that [`remove_orphans`] found.
#[derive(Debug, Default)]
pub struct Orphans {
    /// Jobs that were over and whose files are gone now.
    pub removed: Vec<JobId>,
    /// Jobs of which at least one process lives.
    pub in_use: Vec<JobId>,
    /// Jobs that are over but could not be removed, or whose lock could not be tried.
    pub failed: Vec<(JobId, JobDirectoryError)>,
}

/// Removes the files that crashed jobs left below `base` on this host. Jobs with a living process are not
/// touched.
///
/// Several processes may do it at once. What does not look like a job's is left alone.
///
/// # Errors
/// [`JobDirectoryError`] if the jobs cannot be listed, or somebody else could have put them there. What goes
/// wrong with one job is told in [`Orphans::failed`].
pub fn remove_orphans(base: &Path) -> Result<Orphans, JobDirectoryError> {
    let mut orphans = Orphans::default();
    let host = OwnDirectory::at_base(base).and_then(|base| base.open(JOBS)?.open(&host_name()));
    let host = match host {
        Err(error) if error.is_absence() => return Ok(orphans),
        host => host?,
    };
    for job in jobs_in(host.path())? {
        let names = Names::new(host.path(), job);
        let removed = host
            .check(&names.name)
            .and_then(|()| host.open_file(&names.lock_name))
            .and_then(|lock| names.remove_unless_in_use(&lock));
        match removed {
            Ok(Removal::Done) => {
                tracing::info!(%job, path = %names.directory.display(), "removed the files of a crashed job");
                orphans.removed.push(job);
            }
            Ok(Removal::Nothing) => {}
            Ok(Removal::InUse) => orphans.in_use.push(job),
            Err(error) => orphans.failed.push((job, error)),
        }
    }
    Ok(orphans)
}

fn jobs_in(host: &Path) -> Result<BTreeSet<JobId>, JobDirectoryError> {
    let mut jobs = BTreeSet::new();
    for entry in fs::read_dir(host).map_err(error("list", host))? {
        jobs.extend(Names::job(&entry.map_err(error("list", host))?.file_name().to_string_lossy()));
    }
    Ok(jobs)
}

/// What [`Names::remove_unless_in_use`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    /// A living process.
    InUse,
    /// No files.
    Nothing,
    /// Files, which are gone now.
    Done,
}

/// What the files of one job are called.
#[derive(Debug)]
struct Names {
    name: String,
    directory: PathBuf,
    lock_name: String,
    lock: PathBuf,
}

impl Names {
    fn new(host: &Path, job: JobId) -> Self {
        let name = format!("{:016x}", job.0);
        let lock_name = format!("{name}{LOCK_SUFFIX}");
        Self { directory: host.join(&name), lock: host.join(&lock_name), name, lock_name }
    }

    /// The job whose directory or lock is called `name`.
    fn job(name: &str) -> Option<JobId> {
        let name = name.strip_suffix(LOCK_SUFFIX).unwrap_or(name);
        let is_id = name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        u64::from_str_radix(name, 16).ok().filter(|_| is_id).map(JobId)
    }

    /// Removes everything unless somebody holds the lock. `lock` is open and not locked.
    fn remove_unless_in_use(&self, lock: &File) -> Result<Removal, JobDirectoryError> {
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Removal::InUse),
            Err(TryLockError::Error(source)) => return Err(error("lock", &self.lock)(source)),
        }
        // Somebody else may have removed the job in the meantime, and a new process may have joined it since,
        // under a new lock.
        if !is_at(lock, &self.lock)? {
            return Ok(Removal::Nothing);
        }
        let removal = if remove(&self.directory)? { Removal::Done } else { Removal::Nothing };
        fs::remove_file(&self.lock).map_err(error("remove", &self.lock))?;
        Ok(removal)
    }
}

/// What the directory of this host is called.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// Creates `path` and its parents for this user alone, and waits until the disk holds each new name: a record
/// that is called synced is of no use in a directory that a power failure takes away.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_directory(parent)?;
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => File::open(parent)?.sync_all(),
    }
}

/// Whether `path` still names `file`.
fn is_at(file: &File, path: &Path) -> Result<bool, JobDirectoryError> {
    let ours = file.metadata().map_err(error("look at", path))?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(error("look at", path)(source)),
    }
}

/// Removes a directory with all that is in it. Says whether it was there.
fn remove(path: &Path) -> Result<bool, JobDirectoryError> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(error("remove", path)(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base_with(variables: &[(&str, &str)]) -> PathBuf {
        let get =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        choose_base(get, Path::new("/tmp"))
    }

    #[test]
    fn the_base_is_the_first_that_is_set() {
        let home = ("HOME", "/home/me");
        let cache = ("XDG_CACHE_HOME", "/cache");
        assert_eq!(base_with(&[home, cache, ("EVERFOLD_DIR", "/fast")]), Path::new("/fast"));
        assert_eq!(base_with(&[home, cache, ("EVERFOLD_DIR", "")]), Path::new("/cache/everfold"));
        assert_eq!(base_with(&[home, ("XDG_CACHE_HOME", "cache")]), Path::new("/home/me/.cache/everfold"));
        assert_eq!(base_with(&[]), PathBuf::from(format!("/tmp/everfold-{}", user_id())));
    }

    #[test]
    fn only_names_of_jobs_are_taken_for_jobs() {
        assert_eq!(Names::job("00000000000000ff"), Some(JobId(255)));
        assert_eq!(Names::job("00000000000000ff.lock"), Some(JobId(255)));
        for name in ["ff", "00000000000000FF", "+0000000000000ff", "00000000000000ff.bak", ".lock", ""] {
            assert_eq!(Names::job(name), None, "{name}");
        }
    }
}
