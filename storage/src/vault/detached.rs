//! The state of a generation in a file of its own: half a vault without its log.

use std::fs::File;

use super::{
    Generation, Half, Owner, Vault,
    error::VaultError,
    file::HalfFile,
    layout::Mark,
    state::{Checkpoint, Part, find_mark, read_state},
};

/// Bytes that are copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The state of the generation in force, to be copied while the vault is used on.
///
/// Its half is written over by the second checkpoint after it: the copy has to be there before that begins.
#[derive(Debug)]
pub struct StateSource {
    file: HalfFile,
    mark: Mark,
    bytes: u64,
}

/// A state in a file of its own.
#[derive(Debug)]
pub struct StateFile {
    file: HalfFile,
    mark: Mark,
    checkpoint: Checkpoint,
}

/// What tells a state from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Length of its file in bytes.
    pub bytes: u64,
    /// Checksum of its mark, which vouches for checksums of all that is in it.
    pub checksum: u64,
}

impl Vault {
    /// The state of the generation in force.
    ///
    /// # Errors
    /// [`VaultError::Io`]; [`VaultError::Absent`] before the first checkpoint.
    pub fn state(&self) -> Result<StateSource, VaultError> {
        let half = self.file();
        let mark = find_mark(half)?.filter(|mark| self.log.is_behind(mark)).ok_or(VaultError::Absent)?;
        let file = half.clone();
        let bytes = mark.state_end().ok_or(VaultError::Absent)?;
        Ok(StateSource { file, mark, bytes })
    }

    /// Puts a state from elsewhere in force, with the number that it has and with this `header` in place of its
    /// own. The log is empty then.
    ///
    /// # Errors
    /// [`VaultError::Damaged`] if what is read is not what was written; [`VaultError::Io`]. The generation before
    /// stays in force.
    pub fn adopt(&mut self, header: &[u8], state: &StateFile) -> Result<Checkpoint, VaultError> {
        let mut draft = self.begin_as(state.generation(), header)?;
        for part in state.checkpoint.parts() {
            draft.part_of(&state.file, part)?;
        }
        self.seal(draft)?;
        let mark = find_mark(self.file())?.ok_or(VaultError::Absent)?;
        Ok(read_state(self.file(), &mark)?.0)
    }
}

impl StateSource {
    /// What tells it from others.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint { bytes: self.bytes, checksum: self.mark.seed() }
    }

    /// Its generation.
    pub fn generation(&self) -> Generation {
        self.mark.generation
    }

    /// Copies it into `file`, which is empty, and waits until the disk holds it.
    ///
    /// # Errors
    /// [`VaultError::Io`]; [`VaultError::Gone`] if the vault has written over it meanwhile. What is in the file
    /// then is of no use.
    pub fn copy_to(&self, file: File) -> Result<(), VaultError> {
        let mut to = HalfFile::new(Half::First, file)?;
        let mut buffer = vec![0; CHUNK_BYTES.min(self.bytes as usize)];
        let mut offset = 0;
        while offset < self.bytes {
            let chunk = &mut buffer[..(self.bytes - offset).min(CHUNK_BYTES as u64) as usize];
            self.file.read(offset, chunk)?;
            to.write(offset, chunk)?;
            offset += chunk.len() as u64;
        }
        let in_force = find_mark(&self.file)?.map_or(Generation::BEGINNING, |mark| mark.generation);
        if in_force != self.mark.generation {
            return Err(VaultError::Gone { generation: self.mark.generation, in_force });
        }
        to.sync()
    }
}

impl StateFile {
    /// Opens it. Mark, header and table of parts are compared with their checksums; parts are when they are
    /// read.
    ///
    /// # Errors
    /// [`VaultError::Absent`] if its mark was never completed, [`VaultError::NotAVault`], [`VaultError::Version`],
    /// [`VaultError::Damaged`], [`VaultError::Io`].
    pub fn open(file: File) -> Result<Self, VaultError> {
        let file = HalfFile::new(Half::First, file)?;
        let mark = find_mark(&file)?.ok_or(VaultError::Absent)?;
        let (checkpoint, _) = read_state(&file, &mark)?;
        Ok(Self { file, mark, checkpoint })
    }

    /// Whose it is.
    pub fn owner(&self) -> Owner {
        self.mark.owner
    }

    /// Its generation.
    pub fn generation(&self) -> Generation {
        self.mark.generation
    }

    /// The header that was given with it.
    pub fn header(&self) -> &[u8] {
        self.checkpoint.header()
    }

    /// What tells it from others.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint { bytes: self.file.bytes(), checksum: self.mark.seed() }
    }

    /// Compares all of its bytes with their checksums.
    ///
    /// # Errors
    /// [`VaultError::Damaged`] names the first damage; [`VaultError::Io`].
    pub fn verify(&self) -> Result<(), VaultError> {
        self.checkpoint.parts().iter().try_for_each(|part: &Part| part.verify(&self.file))
    }
}
