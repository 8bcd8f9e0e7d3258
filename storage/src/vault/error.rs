//! Why a vault could not do what it was asked.

use std::{fmt, io};

use super::{Generation, Half, Owner};

/// Why a vault could not do what it was asked. What it held before, it still holds.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The files hold no generation that was completed. Trying again does not help: create a vault in them.
    #[error("there is no vault in these files yet")]
    Absent,
    /// The file holds something else. It is left as it is; look whether these are the right files.
    #[error("the {half} file of the vault is something else: it starts with {start:02x?}")]
    NotAVault {
        /// Which file.
        half: Half,
        /// Its first bytes.
        start: [u8; 4],
    },
    /// Another version of everfold wrote the file. It is left as it is: open it with that version.
    #[error(
        "the {half} file of the vault has version {found} of the format, this build reads version {expected}"
    )]
    Version {
        /// Which file.
        half: Half,
        /// The version in the file.
        found: u16,
        /// The version of this build.
        expected: u16,
    },
    /// The vault belongs to another rank or to another job. It is left as it is.
    #[error("the {half} file of the vault belongs to {found}, not to {expected}")]
    Owner {
        /// Which file.
        half: Half,
        /// Who was expected.
        expected: Owner,
        /// Who is named in the file.
        found: Owner,
    },
    /// Both files hold one generation: they are files of two vaults, or one file twice. They are left as they
    /// are.
    #[error("the files of the vault hold {first} and {second}: they do not belong together")]
    Mixed {
        /// What the first file holds.
        first: Generation,
        /// What the second file holds.
        second: Generation,
    },
    /// What is there is not what was written. Trying again does not help.
    #[error("the vault is damaged: {0}")]
    Damaged(Damage),
    /// The result log has no room for this outcome, which was not written. A checkpoint empties the log.
    #[error(
        "the result log holds {log_bytes} bytes of at most {log_bytes_max}: no room for {record_bytes} more"
    )]
    Full {
        /// What the log takes.
        log_bytes: u64,
        /// What the outcome would take.
        record_bytes: u64,
        /// The limit.
        log_bytes_max: u64,
    },
    /// An outcome could not be written, and [`Vault::forbid`](super::Vault::forbid) was told so. Who goes on from
    /// here would do twice what it was. Trying again does not help.
    #[error(
        "the result log of {generation} lacks an outcome, for which there was no room or no memory; a checkpoint in time \
         would have emptied the log"
    )]
    Lacking {
        /// The generation in force.
        generation: Generation,
    },
    /// What was to be read belongs to a generation that a later checkpoint has replaced.
    #[error("{generation} was replaced by {in_force}")]
    Gone {
        /// The generation that was asked for.
        generation: Generation,
        /// The one that is in force.
        in_force: Generation,
    },
    /// A checkpoint is being written already, perhaps on another thread. Seal or drop it first.
    #[error("the checkpoint after {in_force} is being written already")]
    Drafted {
        /// The generation in force.
        in_force: Generation,
    },
    /// An earlier part of this checkpoint could not be written. Nothing is lost: begin the checkpoint anew.
    #[error("an earlier part of this checkpoint could not be written")]
    Unfinished,
    /// The operating system refused. It may be tried again.
    #[error("cannot {action} the {half} file of the vault: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        half: Half,
        /// Why not.
        source: io::Error,
    },
}

/// What of a vault is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// In which file.
    pub half: Half,
    /// Of which generation; `None` if the damage is where that is written.
    pub generation: Option<Generation>,
    /// Where.
    pub piece: Piece,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation {
            Some(generation) => write!(f, "{} of {generation} in its {} file", self.piece, self.half),
            None => write!(f, "{} of its {} file", self.piece, self.half),
        }
    }
}

/// A piece of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The mark that makes it complete.
    Mark,
    /// The end of its state: the file is shorter than its mark says.
    End,
    /// The header of the caller.
    Header,
    /// The table of its parts.
    Table,
    /// A part, counted from 0.
    Part(usize),
    /// A record of the result log, counted from 0. Those behind it may be lost with it.
    Outcome(usize),
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark => write!(f, "the commit mark"),
            Self::End => write!(f, "the end of the state"),
            Self::Header => write!(f, "the header"),
            Self::Table => write!(f, "the table of parts"),
            Self::Part(index) => write!(f, "part {index}"),
            Self::Outcome(index) => write!(f, "outcome {index}"),
        }
    }
}
