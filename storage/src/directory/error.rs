//! Why a directory of checkpoints cannot be used.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::vault::{Piece, VaultError};

/// Why a directory of checkpoints cannot be used, with what to do. Nothing in it was changed, but for files of
/// the generation that was being written.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The system refuses.
    #[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It has other files in it, and none that says that it holds checkpoints.
    #[error(
        "{} holds other files, and no checkpoints of everfold: name an empty directory, or one that is yet to be made",
        path.display()
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// It was one, and is none any more.
    #[error(
        "{} is no directory of checkpoints any more: mount it again if it lies on another disk; if it was removed, nothing \
         is saved there until the job is started again", path.display()
    )]
    Gone {
        /// The directory.
        path: PathBuf,
    },
    /// Another version of everfold wrote it.
    #[error(
        "{} was written by another version of everfold (format {found}, this one reads {expected}): use that version",
        path.display()
    )]
    Version {
        /// Which file.
        path: PathBuf,
        /// What it says.
        found: String,
        /// What this build reads.
        expected: u16,
    },
    /// A new job is to save where an earlier one has.
    #[error(
        "{} holds checkpoints of an earlier job, the newest of generation {newest}: go on from it by --resume {0} \
         (EVERFOLD_RESUME), or remove them by `everfold checkpoint remove {0}`", path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The newest generation that is complete.
        newest: u64,
    },
    /// There is nothing to go on from.
    #[error(
        "{0} holds no complete checkpoint to go on from: start the job with --checkpoints {0} (EVERFOLD_CHECKPOINTS)",
        path.display()
    )]
    Nothing {
        /// The directory.
        path: PathBuf,
    },
    /// No such generation is there.
    #[error("{} holds no generation {generation}: `everfold checkpoint list {0}` shows what is there", path.display())]
    NoGeneration {
        /// The directory.
        path: PathBuf,
        /// The number.
        generation: u64,
    },
    /// It was saved by a job of another size.
    #[error(
        "generation {generation} in {} was saved by {saved} ranks, and this job has {size}: start it with {saved}",
        path.display()
    )]
    Size {
        /// The directory.
        path: PathBuf,
        /// Which generation.
        generation: u64,
        /// Number of ranks that have saved it.
        saved: u32,
        /// Number of ranks of this job.
        size: u32,
    },
    /// It was saved by another program.
    #[error(
        "generation {generation} in {} was saved by the program {saved:?}, and this is {program:?}: name the directory \
         of this program", path.display()
    )]
    Program {
        /// The directory.
        path: PathBuf,
        /// Which generation.
        generation: u64,
        /// What has saved it.
        saved: String,
        /// What asks for it.
        program: String,
    },
    /// A complete generation lacks a part here.
    #[error(
        "{} is not there: where each host has a directory of its own, start the ranks on the hosts that they were on, or \
         copy the file", path.display()
    )]
    NoPart {
        /// Where it should be.
        path: PathBuf,
    },
    /// A file is not what was written.
    #[error(
        "{} is damaged ({what}): remove this generation by `everfold checkpoint remove DIRECTORY --generation \
         {generation}`; the one before it is used then", path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Of which generation.
        generation: u64,
        /// What of it.
        what: String,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ". The checkpoint before stays; make room, or remove old ones by `everfold checkpoint remove`"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ". Give this user the right to do that, or name another directory"
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            ". A file is in the way: move it, or name another directory"
        }
        _ => "",
    }
}

/// What to make of the operating system's error.
pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    move |source| DirectoryError::Io { action, path: path.to_owned(), source }
}

/// What to make of an error with a part.
pub(super) fn of_part(path: &Path, generation: u64, error: VaultError) -> DirectoryError {
    let damaged = |what: String| DirectoryError::Damaged { path: path.to_owned(), generation, what };
    match error {
        VaultError::Io { action, source, .. } => DirectoryError::Io { action, path: path.to_owned(), source },
        VaultError::Version { found, expected, .. } => {
            DirectoryError::Version { path: path.to_owned(), found: found.to_string(), expected }
        }
        VaultError::Damaged(damage) => damaged(match damage.piece {
            Piece::End => "it has lost its end".to_owned(),
            piece => format!("{piece} is not what was written"),
        }),
        VaultError::Absent => damaged("it was never completed".to_owned()),
        VaultError::NotAVault { .. } => damaged("it is something else".to_owned()),
        error => damaged(error.to_string()),
    }
}
