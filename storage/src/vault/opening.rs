//! What an earlier incarnation left, and which generation of it is in force.

use std::fs::File;

use super::{
    Generation, Options, Remembered, Vault,
    error::{Piece, VaultError},
    file::HalfFile,
    layout::Mark,
    log::Log,
    names::{Half, Owner},
    state::{Checkpoint, damaged, read_mark, read_state},
};

impl Vault {
    /// Opens what an earlier incarnation of the rank left in `files`: the newest generation that was
    /// completed, and the outcomes in its log, without one that the death interrupted.
    ///
    /// It reads marks, tables and keys. What else there is, is compared with its checksum when it is read.
    /// The files must not be written by anyone else any more.
    ///
    /// # Errors
    /// [`VaultError::Absent`], [`VaultError::NotAVault`], [`VaultError::Version`], [`VaultError::Owner`],
    /// [`VaultError::Mixed`], [`VaultError::Lacking`] and [`VaultError::Io`]; [`VaultError::Damaged`] if
    /// damage shows. An older generation is never taken for that. Nothing in the files is changed.
    pub fn open(files: [File; 2], owner: Owner, options: Options) -> Result<(Self, Remembered), VaultError> {
        let halves = halves(files)?;
        let marks = [read_mark(&halves[0], owner)?, read_mark(&halves[1], owner)?];
        let (half, mark) = newest(marks)?.ok_or(VaultError::Absent)?;
        if mark.lacks_outcomes {
            return Err(VaultError::Lacking { generation: mark.generation });
        }
        let file = &halves[half as usize];
        let (checkpoint, mut log) = read_state(file, &mark)?;
        let (outcomes, is_whole) = log.read(file);
        is_whole?;
        let remembered = Remembered::new(mark.generation, checkpoint, outcomes);
        Ok((Self::of(halves, owner, options, half, log), remembered))
    }

    /// Compares all bytes of the generation in force, and of its log, with their checksums. It keeps none of
    /// them.
    ///
    /// # Errors
    /// [`VaultError::Damaged`] names the first damage; [`VaultError::Io`].
    pub fn verify(&self) -> Result<(), VaultError> {
        let file = self.file();
        let mark = read_mark(file, self.owner)?.filter(|mark| self.log.is_behind(mark));
        let mark = mark.ok_or_else(|| damaged(file, self.generation(), Piece::Mark))?;
        let (_, mut log) = verify_state(file, &mark)?;
        let (outcomes, is_whole) = log.read(file);
        is_whole?;
        if log.bytes() != self.log.bytes() {
            return Err(damaged(file, self.generation(), Piece::Outcome(outcomes.len())));
        }
        outcomes.iter().try_for_each(|outcome| outcome.verify(file))
    }
}

impl Remembered {
    fn new(generation: Generation, checkpoint: Checkpoint, outcomes: Vec<super::Outcome>) -> Self {
        let checkpoint = (generation != Generation::BEGINNING).then_some(checkpoint);
        Self { generation, checkpoint, outcomes }
    }
}

pub(super) fn halves([first, second]: [File; 2]) -> Result<[HalfFile; 2], VaultError> {
    Ok([HalfFile::new(Half::First, first)?, HalfFile::new(Half::Second, second)?])
}

/// The newest generation that was completed. No two are the same.
fn newest(marks: [Option<Mark>; 2]) -> Result<Option<(Half, Mark)>, VaultError> {
    if let [Some(first), Some(second)] = marks
        && first.generation == second.generation
    {
        return Err(VaultError::Mixed { first: first.generation, second: second.generation });
    }
    let found = Half::BOTH.into_iter().zip(marks).filter_map(|(half, mark)| Some((half, mark?)));
    Ok(found.max_by_key(|(_, mark)| mark.generation))
}

/// Compares all bytes of a state with their checksums.
fn verify_state(file: &HalfFile, mark: &Mark) -> Result<(Checkpoint, Log), VaultError> {
    let (checkpoint, log) = read_state(file, mark)?;
    checkpoint.parts.iter().try_for_each(|part| part.verify(file))?;
    Ok((checkpoint, log))
}
