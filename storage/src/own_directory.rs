//! Directories that nobody but this user can change, so that no other user chooses what is created, opened
//! and removed there.
//!
//! Each is opened from the one above it, without following links, and looked at when it is open. What passes
//! is closed to all others; from then on its path leads to the same files, as nobody else may rename what is
//! on the way.

use std::{
    fs::{self, File, Metadata, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, openat},
    sys::stat::{Mode, mkdirat},
    unistd::geteuid,
};

use crate::error::{JobDirectoryError, error};

/// All that others may do.
const OTHERS: u32 = 0o077;
/// Everybody may create files, and with the sticky bit remove their own only.
const EVERYBODY_WRITES: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// An open directory, checked.
#[derive(Debug)]
pub(crate) struct OwnDirectory {
    directory: File,
    path: PathBuf,
}

impl OwnDirectory {
    /// The directory that the user has chosen for everything below. It may be a link. Root is trusted, and
    /// whoever the user lets into it.
    ///
    /// # Errors
    /// It is not there, belongs to somebody else, or everybody may replace what is in it.
    pub(crate) fn at_base(path: &Path) -> Result<Self, JobDirectoryError> {
        let is_trusted = |metadata: &Metadata| match metadata.uid() {
            owner if owner == 0 || owner == user_id() => Ok(()),
            owner => Err(JobDirectoryError::Foreign { path: path.to_owned(), owner }),
        };
        // The owner of a link could let it lead elsewhere.
        is_trusted(&fs::symlink_metadata(path).map_err(error("look at", path))?)?;
        let directory = File::open(path).map_err(error("open", path))?;
        let metadata = directory.metadata().map_err(error("look at", path))?;
        is_trusted(&metadata)?;
        match metadata.mode() {
            mode if mode & EVERYBODY_WRITES != 0 && mode & STICKY == 0 => {
                Err(unexpected(path, "a directory in which everybody may replace files"))
            }
            _ => Ok(Self { directory, path: path.to_owned() }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory called `name` in this one, closed to others from now on.
    ///
    /// # Errors
    /// It is not there, is no directory, or belongs to somebody else.
    pub(crate) fn open(&self, name: &str) -> Result<Self, JobDirectoryError> {
        let path = self.path.join(name);
        self.check(name)?;
        let directory = self.open_at(name, OFlag::O_DIRECTORY, &path)?;
        let metadata = directory.metadata().map_err(error("look at", &path))?;
        check_owner(&path, &metadata)?;
        if metadata.mode() & OTHERS != 0 {
            directory
                .set_permissions(Permissions::from_mode(0o700))
                .map_err(error("close to others", &path))?;
        }
        Ok(Self { directory, path })
    }

    /// The same, created if it is not there. The disk holds its name then: a record that is called synced is
    /// of no use in a directory that a power failure takes away.
    pub(crate) fn create(&self, name: &str) -> Result<Self, JobDirectoryError> {
        let path = self.path.join(name);
        match mkdirat(&self.directory, name, Mode::S_IRWXU) {
            Err(nix::errno::Errno::EEXIST) => {}
            created => created
                .map_err(io::Error::from)
                .and_then(|()| self.directory.sync_all())
                .map_err(error("create", &path))?,
        }
        self.open(name)
    }

    /// The file called `name`, created if it is not there.
    ///
    /// # Errors
    /// Something else has that name, or it belongs to somebody else.
    pub(crate) fn open_file(&self, name: &str) -> Result<File, JobDirectoryError> {
        let path = self.path.join(name);
        let file = self.open_at(name, OFlag::O_CREAT | OFlag::O_RDWR, &path)?;
        let metadata = file.metadata().map_err(error("look at", &path))?;
        check_owner(&path, &metadata)?;
        if metadata.is_file() { Ok(file) } else { Err(unexpected(&path, "no file")) }
    }

    /// Checks that what is called `name`, if anything, is a directory of this user.
    ///
    /// # Errors
    /// It is something else, or belongs to somebody else.
    pub(crate) fn check(&self, name: &str) -> Result<(), JobDirectoryError> {
        let path = self.path.join(name);
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata.map_err(error("look at", &path))?,
        };
        check_owner(&path, &metadata)?;
        if metadata.is_dir() { Ok(()) } else { Err(unexpected(&path, "no directory")) }
    }

    /// Opens without following a link, and without waiting for a process at the other end of a pipe.
    fn open_at(&self, name: &str, how: OFlag, path: &Path) -> Result<File, JobDirectoryError> {
        let how = how | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        match openat(&self.directory, name, how, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(opened) => Ok(opened.into()),
            Err(nix::errno::Errno::ELOOP) => Err(unexpected(path, "a symbolic link")),
            Err(refused) => Err(error("open", path)(refused.into())),
        }
    }
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), JobDirectoryError> {
    match metadata.uid() {
        owner if owner == user_id() => Ok(()),
        owner => Err(JobDirectoryError::Foreign { path: path.to_owned(), owner }),
    }
}

fn unexpected(path: &Path, what: &'static str) -> JobDirectoryError {
    JobDirectoryError::Unexpected { path: path.to_owned(), what }
}

/// The user this process acts as.
pub(crate) fn user_id() -> u32 {
    geteuid().as_raw()
}
