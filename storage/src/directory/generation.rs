//! One generation in the directory: writing and reading its files.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use everfold_protocol::{JobId, Rank};

use super::{
    error::{DirectoryError, failed, of_part},
    listing::MARKER,
    manifest::{Manifest, ManifestError, VERSION},
};
use crate::vault::{Fingerprint, Generation, StateFile, StateSource};

const MANIFEST: &str = "manifest";
const PART_SUFFIX: &str = ".part";
/// What a file is called while it is written ends with this.
pub(super) const TEMPORARY: &str = ".new";
/// So long may a manifest be: over 60 million ranks.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// A generation in a directory of checkpoints, be it complete or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
    /// Its number.
    pub generation: Generation,
    /// The job that has saved it.
    pub job: JobId,
}

/// Generations in the order of their numbers, the newest last.
pub type Generations = Vec<Place>;

impl Place {
    pub(super) fn new(directory: &Path, generation: Generation, job: JobId) -> Self {
        Self { path: directory.join(format!("{:010}-{:016x}", generation.0, job.0)), generation, job }
    }

    /// What a directory of that name holds.
    pub(super) fn from_name(directory: &Path, name: &str) -> Option<Self> {
        let (generation, job) = name.split_once('-')?;
        let generation = Generation(generation.parse().ok()?);
        let place = Self::new(directory, generation, JobId(u64::from_str_radix(job, 16).ok()?));
        (place.path.file_name()?.to_str()? == name).then_some(place)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// When it was complete, as the file system says; nothing if it is not.
    pub fn completed(&self) -> Option<SystemTime> {
        fs::metadata(self.path.join(MANIFEST)).and_then(|manifest| manifest.modified()).ok()
    }

    /// Where the part of a rank lies.
    pub fn part_path(&self, rank: Rank) -> PathBuf {
        self.path.join(format!("rank-{:05}{PART_SUFFIX}", rank.0))
    }

    /// Writes the part of a rank, and waits until the disk holds it. Nothing is done if it is there already.
    ///
    /// # Errors
    /// [`DirectoryError::Gone`], [`DirectoryError::Io`]. Nothing appears under its name then.
    pub fn write_part(&self, rank: Rank, state: &StateSource) -> Result<(), DirectoryError> {
        let path = self.part_path(rank);
        if self.open_part(rank).is_ok_and(|there| there.fingerprint() == state.fingerprint()) {
            return Ok(());
        }
        self.check_directory()?;
        crate::job_directory::create_directory(&self.path).map_err(failed("create", &self.path))?;
        appear(&path, |file| state.copy_to(file).map_err(|error| of_part(&path, self.generation.0, error)))
    }

    /// Whether it lies in a directory of checkpoints still.
    fn check_directory(&self) -> Result<(), DirectoryError> {
        match self.path.parent() {
            Some(path) if !path.join(MARKER).exists() => Err(DirectoryError::Gone { path: path.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Opens the part of a rank.
    ///
    /// # Errors
    /// [`DirectoryError::NoPart`], [`DirectoryError::Damaged`] as far as it shows before all is read,
    /// [`DirectoryError::Version`], [`DirectoryError::Io`].
    pub fn open_part(&self, rank: Rank) -> Result<StateFile, DirectoryError> {
        let path = self.part_path(rank);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DirectoryError::NoPart { path });
            }
            file => file.map_err(failed("open", &path))?,
        };
        let state = StateFile::open(file).map_err(|error| self.damaged_part(rank, error))?;
        let (owner, generation) = (state.owner(), state.generation());
        if (owner.rank, owner.job, generation) != (rank, self.job, self.generation) {
            let what = format!("it is that of {owner}, {generation}");
            return Err(DirectoryError::Damaged { path, generation: self.generation.0, what });
        }
        Ok(state)
    }

    /// Opens the part of a rank that `manifest` vouches for.
    ///
    /// # Errors
    /// As [`open_part`](Self::open_part); [`DirectoryError::Damaged`] also if it is another one.
    pub fn open_listed(&self, rank: Rank, manifest: &Manifest) -> Result<StateFile, DirectoryError> {
        let state = self.open_part(rank)?;
        if manifest.parts.get(rank.index()) == Some(&state.fingerprint()) {
            return Ok(state);
        }
        let (path, generation) = (self.part_path(rank), self.generation.0);
        let what = "it is not the one that the manifest lists".to_owned();
        Err(DirectoryError::Damaged { path, generation, what })
    }

    /// What is said of a part in which damage shows while it is read.
    pub fn damaged_part(&self, rank: Rank, error: crate::vault::VaultError) -> DirectoryError {
        of_part(&self.part_path(rank), self.generation.0, error)
    }

    /// Whether the part of `rank` is here, and of no lower rank but of those that may be `elsewhere` by now.
    pub fn is_lowest_here(&self, rank: Rank, elsewhere: impl Fn(Rank) -> bool) -> bool {
        let is_here = |rank: Rank| self.part_path(rank).exists();
        // From above: neighbours mostly share a host.
        let mut lower = (0..rank.0).rev().map(Rank);
        is_here(rank) && !lower.any(|lower| !elsewhere(lower) && is_here(lower))
    }

    /// Ranks whose parts are here, with the lengths of their files.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn parts(&self) -> Result<Vec<(Rank, u64)>, DirectoryError> {
        let mut parts = Vec::new();
        let list = failed("list", &self.path);
        for entry in
            fs::read_dir(&self.path).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(list)?
        {
            let name = entry.file_name();
            let rank = name.to_str().and_then(|name| name.strip_prefix("rank-")?.strip_suffix(PART_SUFFIX));
            if let Some(rank) = rank.and_then(|rank| rank.parse().ok())
                && let Ok(metadata) = entry.metadata()
            {
                parts.push((Rank(rank), metadata.len()));
            }
        }
        parts.sort_unstable();
        Ok(parts)
    }

    /// Says that the parts of all ranks are on disk.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]. The generation is not complete then.
    pub fn complete(
        &self,
        program: &str,
        saved_unix_s: u64,
        parts: Vec<Fingerprint>,
    ) -> Result<(), DirectoryError> {
        let (job, generation, program) = (self.job, self.generation, program.to_owned());
        let manifest = Manifest { job, generation, program, saved_unix_s, parts };
        // Without its parts, the place may have been removed: it does not appear again.
        put(&self.path.join(MANIFEST), &manifest.encode())
    }

    /// What says that this generation is complete; `None` if it is not.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`], [`DirectoryError::Version`], [`DirectoryError::Io`].
    pub fn manifest(&self) -> Result<Option<Manifest>, DirectoryError> {
        let path = self.path.join(MANIFEST);
        let metadata = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata.map_err(failed("look at", &path))?,
        };
        let damaged = |what: String| DirectoryError::Damaged {
            path: path.clone(),
            generation: self.generation.0,
            what,
        };
        if metadata.len() > MANIFEST_BYTES_MAX {
            return Err(damaged("it is too long".to_owned()));
        }
        let bytes = fs::read(&path).map_err(failed("read", &path))?;
        let manifest = Manifest::decode(&bytes).map_err(|error| match error {
            ManifestError::Version(found) => {
                DirectoryError::Version { path: path.clone(), found: found.to_string(), expected: VERSION }
            }
            ManifestError::Damaged(what) => damaged(what.to_owned()),
        })?;
        if (manifest.job, manifest.generation) != (self.job, self.generation) {
            return Err(damaged("it is that of another generation".to_owned()));
        }
        Ok(Some(manifest))
    }

    /// Removes it: what says that it is complete first.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]. A part of it may be left, but it is not complete any more.
    pub fn remove(&self) -> Result<(), DirectoryError> {
        let path = self.path.join(MANIFEST);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => {
                removed.map_err(failed("remove", &path))?;
                // Unless somebody else has removed the rest meanwhile.
                if self.path.exists() {
                    sync_directory(&self.path)?;
                }
            }
        }
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(failed("remove", &self.path)),
        }
    }
}

/// Lets a file with these bytes appear at `path` once all of it is on disk.
pub(super) fn put(path: &Path, bytes: &[u8]) -> Result<(), DirectoryError> {
    appear(path, |mut file| {
        file.write_all(bytes).map_err(failed("write", path))?;
        file.sync_data().map_err(failed("sync", path))
    })
}

/// Lets a file appear at `path` once `write` has put all of it on disk.
fn appear(path: &Path, write: impl FnOnce(File) -> Result<(), DirectoryError>) -> Result<(), DirectoryError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // Processes of several hosts may have the same number.
    let time_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    name.push(format!(".{}-{time_ns}{TEMPORARY}", std::process::id()));
    let temporary = path.with_file_name(name);
    // The state that is copied is read back where its end is looked at.
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&temporary);
    let written = file.map_err(failed("create", &temporary)).and_then(write).and_then(|()| {
        fs::rename(&temporary, path).map_err(failed("rename", &temporary))?;
        path.parent().map_or(Ok(()), sync_directory)
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Waits until the disk holds the names in a directory.
fn sync_directory(path: &Path) -> Result<(), DirectoryError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(failed("sync", path))
}
