//! Why a store could not do it, or a job's directory could not be used.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    key::{Kind, RecordKey},
    record::RecordError,
};

/// The record that a call was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// In which column.
    pub kind: Kind,
    /// Under which key.
    pub key: RecordKey,
}

/// Why a store could not do what it was asked. Nothing of the call took effect, unless the variant says
/// otherwise.
///
/// `subject` is the record concerned, `None` if it was the store as a whole. A disk may fail at any time, so
/// no error here is a reason to stop a reduction: what could not be stored is merely not protected.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// This program was built without the feature `disk`.
    #[error("this program keeps nothing on disk: everfold was built without its feature `disk`")]
    NoDisk,
    /// The disk, or this user's share of it, is full. What was stored before stays readable, but nothing can
    /// be released either. The store looks for room every few seconds and works again when it finds some;
    /// what its own records take is only free if it is closed and its directory removed.
    #[error("the disk is full at {}{}: {message}", path.display(), about(subject))]
    Full {
        /// Directory of the store.
        path: PathBuf,
        /// Record concerned.
        subject: Option<Subject>,
        /// What the database says.
        message: String,
    },
    /// The directory cannot be written: a read-only file system, or no permission.
    #[error("{} cannot be written{}: {message}", path.display(), about(subject))]
    ReadOnly {
        /// Directory of the store.
        path: PathBuf,
        /// Record concerned.
        subject: Option<Subject>,
        /// What the database says.
        message: String,
    },
    /// Another process, or another [`Store`](crate::Store) of this one, has the directory open.
    #[error("the store {} is in use: {message}", path.display())]
    Locked {
        /// Directory of the store.
        path: PathBuf,
        /// What the database says.
        message: String,
    },
    /// The disk does not keep up: for so long the database had no room in memory for what it has yet to write
    /// to it.
    #[error("the store {} could not write for {waited:?}{}", path.display(), about(subject))]
    Stalled {
        /// Directory of the store.
        path: PathBuf,
        /// Record concerned.
        subject: Option<Subject>,
        /// How long it was waited for.
        waited: Duration,
    },
    /// What is stored is not what was put. The value is lost here; asking again does not help.
    #[error("the store {} is damaged{}: {damage}", path.display(), about(subject))]
    Corrupted {
        /// Directory of the store.
        path: PathBuf,
        /// Record concerned.
        subject: Option<Subject>,
        /// What was found.
        #[source]
        damage: Damage,
    },
    /// The value is over the limit of one record.
    #[error("a value of {bytes} bytes is over the limit of {limit}{}", about(&Some(*subject)))]
    TooLong {
        /// Record concerned.
        subject: Subject,
        /// Length of the value.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Anything else, such as a failing disk. Whether a write took effect is not known.
    #[error("the store {} failed{}: {message}", path.display(), about(subject))]
    Failed {
        /// Directory of the store.
        path: PathBuf,
        /// Record concerned.
        subject: Option<Subject>,
        /// What the database or the operating system says.
        message: String,
    },
}

/// What is wrong with stored bytes.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The database handed out a record that is none.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The database itself found that its files are damaged.
    #[error("{0}")]
    Database(String),
}

impl StoreError {
    /// Sorts what the operating system says.
    #[cfg(feature = "disk")]
    pub(crate) fn from_system(error: &io::Error, path: &Path) -> Self {
        let (path, subject, message) = (path.to_owned(), None, error.to_string());
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full { path, subject, message },
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                Self::ReadOnly { path, subject, message }
            }
            _ => Self::Failed { path, subject, message },
        }
    }

    /// Sorts what the database says. It has only one kind of error for all the operating system's, so that
    /// the words must tell them apart.
    #[cfg(feature = "disk")]
    pub(crate) fn from_database(error: rocksdb::Error, path: &Path, subject: Option<Subject>) -> Self {
        let path = path.to_owned();
        let kind = error.kind();
        let message = error.into_string();
        let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
        if kind == rocksdb::ErrorKind::Corruption {
            Self::Corrupted { path, subject, damage: Damage::Database(message) }
        } else if says(&["lock hold by current process"])
            || says(&["While lock file"]) && says(&["Resource temporarily unavailable", "Permission denied"])
        {
            Self::Locked { path, message }
        } else if says(&["No space left on device", "Disk quota exceeded"]) {
            Self::Full { path, subject, message }
        } else if says(&["Read-only file system", "Permission denied", "Operation not permitted"]) {
            Self::ReadOnly { path, subject, message }
        } else {
            Self::Failed { path, subject, message }
        }
    }
}

fn about(subject: &Option<Subject>) -> String {
    subject.map_or_else(String::new, |Subject { kind, key }| format!(" ({kind} of {key})"))
}

/// Why a job's directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum JobDirectoryError {
    /// The operating system refused, for instance because the file system has no locks.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The directory belongs to somebody else, who could read or replace what is stored in it.
    #[error("{} belongs to user {owner}; set EVERFOLD_DIR to a directory of your own", path.display())]
    Foreign {
        /// Which directory.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
    },
    /// Something else is where a directory or a lock should be.
    #[error("{} is {what}; remove it, or set EVERFOLD_DIR to a directory of your own", path.display())]
    Unexpected {
        /// Where.
        path: PathBuf,
        /// What it is, or is not.
        what: &'static str,
    },
    /// The files of an earlier job with the same id are being removed, and that takes too long.
    #[error("{} is still being removed after {waited:?}", path.display())]
    Busy {
        /// The directory of the job.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
}

impl JobDirectoryError {
    /// Whether something is not there.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == ErrorKind::NotFound)
    }
}

/// What [`JobDirectoryError`] to make of the operating system's, when it refused `action` on `path`.
pub(crate) fn error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JobDirectoryError {
    move |source| JobDirectoryError::Io { action, path: path.to_owned(), source }
}
