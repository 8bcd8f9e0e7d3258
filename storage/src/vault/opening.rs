//! What an earlier incarnation left: which generation is in force, and what of a damaged vault is whole.

use std::fs::File;

use super::{
    Generation, Options, Remembered, Vault,
    error::{Damage, Piece, VaultError},
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
    /// [`VaultError::Mixed`], [`VaultError::Lacking`] and [`VaultError::Io`]; [`VaultError::Damaged`] if damage shows. An older
    /// generation is never taken for that: ask [`Vault::salvage`] for it. Nothing in the files is changed.
    pub fn open(files: [File; 2], owner: Owner, options: Options) -> Result<(Self, Remembered), VaultError> {
        let halves = halves(files)?;
        let marks = [read_mark(&halves[0], owner)?, read_mark(&halves[1], owner)?];
        let (half, mark) = *newest_first(marks)?.first().ok_or(VaultError::Absent)?;
        check_log(&mark)?;
        let file = &halves[half as usize];
        let (checkpoint, mut log) = read_state(file, &mark)?;
        let (outcomes, is_whole) = log.read(file);
        is_whole?;
        let remembered = Remembered::new(mark.generation, checkpoint, outcomes);
        Ok((Self::of(halves, owner, options, half, log), remembered))
    }

    /// Opens what is whole of a damaged vault: the newest generation of which every byte of state is, and the
    /// outcomes in its log before the first that is damaged. It reads everything.
    ///
    /// The damage that it lists was given up: a later [`Vault::open`] does not find it any more, and the
    /// number of a generation that was given up is used again. An empty list means that the vault was whole.
    ///
    /// # Errors
    /// Those of [`Vault::open`]. [`VaultError::Damaged`] if no generation is whole; nothing in the files is
    /// changed then.
    pub fn salvage(
        files: [File; 2],
        owner: Owner,
        options: Options,
    ) -> Result<(Self, Remembered, Vec<Damage>), VaultError> {
        let halves = halves(files)?;
        let mut lost = Vec::new();
        let (half, checkpoint, mut log) = newest_whole(&halves, owner, &mut lost)?;
        let file = &halves[half as usize];
        let (mut outcomes, is_whole) = log.read(file);
        lost.extend(damage_of(is_whole)?);
        for index in 0..outcomes.len() {
            if let Some(damage) = damage_of(outcomes[index].verify(file))? {
                log.end_before(&outcomes[index]);
                outcomes.truncate(index);
                lost.push(damage);
                break;
            }
        }
        let mut vault = Self::of(halves, owner, options, half, log);
        vault.give_up(&lost)?;
        Ok((vault, Remembered::new(log.generation(), checkpoint, outcomes), lost))
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

    /// Removes what is damaged, so that it is not found again.
    fn give_up(&mut self, lost: &[Damage]) -> Result<(), VaultError> {
        for damage in lost {
            let file = &mut self.halves[damage.half as usize];
            if damage.half == self.in_force { self.log.give_up_rest(file)? } else { file.cut(0)? }
        }
        Ok(())
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

/// The generations that were completed, the newest first. No two are the same.
fn newest_first(marks: [Option<Mark>; 2]) -> Result<Vec<(Half, Mark)>, VaultError> {
    if let [Some(first), Some(second)] = marks
        && first.generation == second.generation
    {
        return Err(VaultError::Mixed { first: first.generation, second: second.generation });
    }
    let mut found: Vec<_> =
        Half::BOTH.into_iter().zip(marks).filter_map(|(half, mark)| Some((half, mark?))).collect();
    found.sort_by_key(|(_, mark)| std::cmp::Reverse(mark.generation));
    Ok(found)
}

/// The newest generation whose state is whole. What is damaged on the way to it, is `lost`.
fn newest_whole(
    halves: &[HalfFile; 2],
    owner: Owner,
    lost: &mut Vec<Damage>,
) -> Result<(Half, Checkpoint, Log), VaultError> {
    let mut marks = [None; 2];
    for (file, mark) in halves.iter().zip(&mut marks) {
        match read_mark(file, owner) {
            Ok(found) => *mark = found,
            Err(VaultError::NotAVault { half, .. }) => {
                lost.push(Damage { half, generation: None, piece: Piece::Mark });
            }
            error => lost.extend(damage_of(error.map(drop))?),
        }
    }
    for (half, mark) in newest_first(marks)? {
        match verify_state(&halves[half as usize], &mark) {
            Ok((checkpoint, log)) => {
                check_log(&mark)?;
                return Ok((half, checkpoint, log));
            }
            error => lost.extend(damage_of(error.map(drop))?),
        }
    }
    Err(lost.first().map_or(VaultError::Absent, |damage| VaultError::Damaged(*damage)))
}

/// Refuses a generation whose log lacks an outcome.
fn check_log(mark: &Mark) -> Result<(), VaultError> {
    if mark.lacks_outcomes { Err(VaultError::Lacking { generation: mark.generation }) } else { Ok(()) }
}

/// Compares all bytes of a state with their checksums.
fn verify_state(file: &HalfFile, mark: &Mark) -> Result<(Checkpoint, Log), VaultError> {
    let (checkpoint, log) = read_state(file, mark)?;
    checkpoint.parts.iter().try_for_each(|part| part.verify(file))?;
    Ok((checkpoint, log))
}

/// The damage that was found, if it was that which went wrong.
fn damage_of(result: Result<(), VaultError>) -> Result<Option<Damage>, VaultError> {
    match result {
        Ok(()) => Ok(None),
        Err(VaultError::Damaged(damage)) => Ok(Some(damage)),
        Err(error) => Err(error),
    }
}
