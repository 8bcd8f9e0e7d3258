//! The directory as a whole: what is there, what is removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use everfold_protocol::{JobId, Rank};

use super::{
    error::{DirectoryError, failed},
    generation::{Generations, Place, TEMPORARY, put},
    manifest::{Manifest, VERSION},
};
use crate::vault::Generation;

/// Says that a directory holds checkpoints.
pub(super) const MARKER: &str = "everfold-checkpoints";
const MARKER_TEXT: &str = "checkpoints of everfold, format ";

/// A directory of checkpoints.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

/// What is found of a generation.
#[derive(Debug)]
pub struct Found {
    /// Where it lies.
    pub place: Place,
    /// Ranks whose parts are here, with the lengths of their files.
    pub parts: Vec<(Rank, u64)>,
    /// How far it is.
    pub status: Status,
}

/// How far a generation is.
#[derive(Debug)]
pub enum Status {
    /// All ranks have their parts.
    Complete(Manifest),
    /// Not all ranks were known to have theirs when the job ended, or it is being saved.
    Incomplete,
    /// Its manifest cannot be read.
    Damaged(DirectoryError),
}

impl Directory {
    /// Opens the directory at `path`, and makes it if need be.
    ///
    /// # Errors
    /// [`DirectoryError::NotOurs`], [`DirectoryError::Version`], [`DirectoryError::Io`].
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, DirectoryError> {
        let path = path.into();
        crate::job_directory::create_directory(&path).map_err(failed("create", &path))?;
        let directory = Self { path };
        if directory.check()? {
            return Ok(directory);
        }
        let path = &directory.path;
        let is_other = |name: &str| !name.ends_with(TEMPORARY) && name != MARKER && name != "lost+found";
        if directory.names()?.iter().any(|name| is_other(name)) && !directory.check()? {
            return Err(DirectoryError::NotOurs { path: path.clone() });
        }
        put(&path.join(MARKER), format!("{MARKER_TEXT}{VERSION}\n").as_bytes())?;
        Ok(directory)
    }

    /// Opens the directory at `path`, which is there.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DirectoryError> {
        let directory = Self { path: path.into() };
        if directory.check()? {
            return Ok(directory);
        }
        match directory.names() {
            Ok(names) if !names.is_empty() => Err(DirectoryError::NotOurs { path: directory.path }),
            Err(DirectoryError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(DirectoryError::Nothing { path: directory.path })
            }
            names => names.and(Err(DirectoryError::Nothing { path: directory.path })),
        }
    }

    /// Whether the directory says that it holds checkpoints.
    fn check(&self) -> Result<bool, DirectoryError> {
        let marker = self.path.join(MARKER);
        let text = match fs::read(&marker) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            text => text.map_err(failed("read", &marker))?,
        };
        let text = String::from_utf8_lossy(&text);
        match text.trim_end().strip_prefix(MARKER_TEXT) {
            Some(version) if version == VERSION.to_string() => Ok(true),
            version => {
                let found = version.unwrap_or("unknown").to_owned();
                Err(DirectoryError::Version { path: marker, found, expected: VERSION })
            }
        }
    }

    fn names(&self) -> Result<Vec<String>, DirectoryError> {
        let entries = fs::read_dir(&self.path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(failed("list", &self.path))?;
        Ok(entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a generation of a job has its place.
    pub fn place(&self, generation: Generation, job: JobId) -> Place {
        Place::new(&self.path, generation, job)
    }

    /// All generations that have a place here, complete or not, the newest last.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn places(&self) -> Result<Generations, DirectoryError> {
        let names = self.names()?;
        let mut places: Generations =
            names.iter().filter_map(|name| Place::from_name(&self.path, name)).collect();
        places.sort_by_key(|place| (place.generation, place.job.0));
        Ok(places)
    }

    /// What is found of each generation, the newest last.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn list(&self) -> Result<Vec<Found>, DirectoryError> {
        self.places()?.into_iter().map(Self::look_at).collect()
    }

    fn look_at(place: Place) -> Result<Found, DirectoryError> {
        let status = match place.manifest() {
            Ok(Some(manifest)) => Status::Complete(manifest),
            Ok(None) => Status::Incomplete,
            Err(error) => Status::Damaged(error),
        };
        Ok(Found { parts: place.parts()?, place, status })
    }

    /// The complete generations, the newest last. One whose manifest is damaged counts as absent, as if it had
    /// been cut by a death.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]; [`DirectoryError::Version`].
    pub fn complete(&self) -> Result<Vec<(Place, Manifest)>, DirectoryError> {
        let mut complete = Vec::new();
        for place in self.places()? {
            match place.manifest() {
                Ok(Some(manifest)) => complete.push((place, manifest)),
                Ok(None) => {}
                Err(error @ DirectoryError::Damaged { .. }) => {
                    tracing::warn!(%error, "a generation counts as absent");
                }
                Err(error) => return Err(error),
            }
        }
        // Of two with one number, the one that was complete last.
        complete.sort_by_key(|(place, manifest)| (place.generation, manifest.saved_unix_s));
        Ok(complete)
    }

    /// The newest complete generation that is not newer than `most`. If there is none, but damaged ones are,
    /// that is told.
    fn newest(&self, most: Generation) -> Result<(Place, Manifest), DirectoryError> {
        let complete = self.complete()?.into_iter().rfind(|(place, _)| place.generation <= most);
        let places = self.places()?;
        let mut others = places.iter().rev().filter(|place| place.generation <= most);
        let mut why = || others.find_map(|place| place.manifest().err());
        complete.ok_or_else(|| why().unwrap_or_else(|| DirectoryError::Nothing { path: self.path.clone() }))
    }

    /// The newest complete generation that is not newer than `most`, for a job of this program and size.
    ///
    /// # Errors
    /// [`DirectoryError::Nothing`], or [`DirectoryError::Damaged`] if all that is there is damaged;
    /// [`DirectoryError::Size`], [`DirectoryError::Program`], and those of [`complete`](Self::complete).
    pub fn newest_up_to(
        &self,
        most: Generation,
        program: &str,
        size: u32,
    ) -> Result<(Place, Manifest), DirectoryError> {
        let (place, manifest) = self.newest(most)?;
        self.check_for(&manifest, program, size)?;
        Ok((place, manifest))
    }

    /// Refuses to go on from here with a job of another size, or if there is nothing.
    ///
    /// # Errors
    /// As [`newest_up_to`](Self::newest_up_to).
    pub fn check_size(&self, size: u32) -> Result<(), DirectoryError> {
        let (_, manifest) = self.newest(Generation(u64::MAX))?;
        let program = manifest.program.clone();
        self.check_for(&manifest, &program, size)
    }

    fn check_for(&self, manifest: &Manifest, program: &str, size: u32) -> Result<(), DirectoryError> {
        let (path, generation) = (self.path.clone(), manifest.generation.0);
        if manifest.program != program {
            let (saved, program) = (manifest.program.clone(), program.to_owned());
            return Err(DirectoryError::Program { path, generation, saved, program });
        }
        if manifest.ranks() != size {
            return Err(DirectoryError::Size { path, generation, saved: manifest.ranks(), size });
        }
        Ok(())
    }

    /// Refuses a directory in which an earlier job has a complete generation.
    ///
    /// # Errors
    /// [`DirectoryError::InUse`], and those of [`complete`](Self::complete).
    pub fn check_new(&self) -> Result<(), DirectoryError> {
        match self.complete()?.pop() {
            Some((place, _)) => {
                Err(DirectoryError::InUse { path: self.path.clone(), newest: place.generation.0 })
            }
            None => Ok(()),
        }
    }

    /// Removes what is not needed any more now that `newest` is complete here: incomplete generations before
    /// it, and complete ones but for `common`, the last that is complete at all hosts. If that is not known,
    /// complete ones stay. One job at a time may use the directory: those of another one go, too.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn tidy(&self, newest: &Place, common: Option<Generation>) -> Result<(), DirectoryError> {
        let complete = self.complete()?;
        let complete = || complete.iter().map(|(place, _)| place);
        // Of several with one number, that of the same job, or else the one that was complete last.
        let of_common = complete().filter(|of| common == Some(of.generation));
        let kept = of_common.max_by_key(|of| of.job == newest.job);
        let is_kept = |place: &Place| match common {
            Some(_) => kept == Some(place),
            None => complete().any(|of| of == place),
        };
        let goes = |place: &&Place| place.generation < newest.generation && !is_kept(place);
        self.places()?.iter().filter(goes).try_for_each(Place::remove)
    }

    /// Removes what other jobs than `job` have saved after `from`, from which that job goes on: it saves those
    /// generations again.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn remove_after(&self, from: &Place, job: JobId) -> Result<(), DirectoryError> {
        let goes = |place: &&Place| place.generation > from.generation && place.job != job;
        self.places()?.iter().filter(goes).try_for_each(Place::remove)
    }

    /// Removes one generation, or all with what says that the directory holds checkpoints. Says how many
    /// there were.
    ///
    /// # Errors
    /// [`DirectoryError::NoGeneration`], [`DirectoryError::Io`].
    pub fn remove(&self, generation: Option<Generation>) -> Result<usize, DirectoryError> {
        let is_meant = |place: &Place| generation.is_none_or(|generation| place.generation == generation);
        let mut places = self.places()?;
        places.retain(is_meant);
        if let (Some(generation), true) = (generation, places.is_empty()) {
            return Err(DirectoryError::NoGeneration { path: self.path.clone(), generation: generation.0 });
        }
        places.iter().try_for_each(Place::remove)?;
        if generation.is_none() {
            let marker = self.path.join(MARKER);
            fs::remove_file(&marker).map_err(failed("remove", &marker))?;
            // Only if nothing else is in it.
            let _ = fs::remove_dir(&self.path);
        }
        Ok(places.len())
    }
}
