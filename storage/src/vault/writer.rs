//! A checkpoint while it is being written.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{
    Vault,
    error::VaultError,
    file::{HalfFile, Outlet},
    layout::{MARK_BYTES, Mark, SEAL_AT, UNSEALED, encode_entry},
    log::Log,
    names::{Generation, Half},
    state::Part,
};

/// A checkpoint while it is being written. Dropping it without [`commit`](Self::commit) leaves the generation
/// before it in force.
///
/// It borrows the vault: no outcome is appended meanwhile, to a log that the commit would trim.
#[derive(Debug)]
pub struct CheckpointWriter<'a> {
    vault: &'a mut Vault,
    half: Half,
    mark: Mark,
    outlet: Outlet,
    table: Vec<u8>,
    stage: Stage,
}

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Parts may come.
    Open,
    /// A part could not be written.
    Broken,
    /// Its mark may be whole in the file.
    Sealing,
    /// It is in force.
    Committed,
}

impl<'a> CheckpointWriter<'a> {
    /// Begins `generation` in `half`, whose generation is no more from now on.
    pub(super) fn begin(
        vault: &'a mut Vault,
        half: Half,
        generation: Generation,
        header: &[u8],
    ) -> Result<Self, VaultError> {
        vault.settle()?;
        let file = &mut vault.halves[half as usize];
        // A single byte, so that a death leaves the mark as it was or without its seal.
        file.write(SEAL_AT, &[UNSEALED])?;
        let mut outlet = Outlet::new(MARK_BYTES as u64);
        outlet.write(file, header)?;
        let mark = Mark {
            owner: vault.owner,
            generation,
            header_bytes: header.len() as u64,
            parts: 0,
            parts_bytes: 0,
            header_checksum: xxh3_64(header),
            table_checksum: 0,
            lacks_outcomes: false,
        };
        Ok(Self { vault, half, mark, outlet, table: Vec::new(), stage: Stage::Open })
    }

    /// Writes the next part, straight from `bytes`.
    ///
    /// # Errors
    /// [`VaultError::Io`]; from then on [`VaultError::Unfinished`].
    pub fn part(&mut self, bytes: &[u8]) -> Result<(), VaultError> {
        if self.stage == Stage::Broken {
            return Err(VaultError::Unfinished);
        }
        let mut checksum = Xxh3::new();
        let file = &mut self.vault.halves[self.half as usize];
        let written = self.outlet.write_checked(file, bytes, &mut checksum);
        if written.is_err() {
            self.stage = Stage::Broken;
        }
        written?;
        self.list(bytes.len() as u64, &checksum);
        Ok(())
    }

    /// Notes a part in the table.
    fn list(&mut self, bytes: u64, checksum: &Xxh3) {
        self.table.extend_from_slice(&encode_entry(bytes, checksum.digest()));
        self.mark.parts += 1;
        self.mark.parts_bytes += bytes;
    }

    /// Writes the next part, which lies in another file.
    ///
    /// # Errors
    /// As [`part`](Self::part), and [`VaultError::Damaged`] if it is not what was written there.
    pub(super) fn part_of(&mut self, from: &HalfFile, part: &Part) -> Result<(), VaultError> {
        if self.stage == Stage::Broken {
            return Err(VaultError::Unfinished);
        }
        // Until all of it is there.
        self.stage = Stage::Broken;
        let (file, outlet) = (&mut self.vault.halves[self.half as usize], &mut self.outlet);
        let mut checksum = Xxh3::new();
        part.read_through(from, |bytes| outlet.write_checked(file, bytes, &mut checksum))?;
        self.stage = Stage::Open;
        self.list(part.bytes(), &checksum);
        Ok(())
    }

    /// Puts the generation in force: the one before it can go, and its log is over.
    ///
    /// # Errors
    /// [`VaultError::Io`], or [`VaultError::Unfinished`] if a part is missing. The generation before stays in
    /// force.
    pub fn commit(mut self) -> Result<Generation, VaultError> {
        if self.stage == Stage::Broken {
            return Err(VaultError::Unfinished);
        }
        let end = self.write_table()?;
        self.seal(end)?;
        self.stage = Stage::Committed;
        self.vault.put_in_force(self.half, Log::new(&self.mark, end));
        Ok(self.mark.generation)
    }

    /// Writes the table, and behind it that the log ends there. Says where that is.
    fn write_table(&mut self) -> Result<u64, VaultError> {
        self.mark.table_checksum = xxh3_64(&self.table);
        let file = &mut self.vault.halves[self.half as usize];
        self.outlet.write(file, &self.table)?;
        self.outlet.write(file, &[UNSEALED])?;
        Ok(self.outlet.flush(file)? - 1)
    }

    /// Of what an earlier generation left behind `end`, as much stays as the last log took: to take memory
    /// anew costs more than to write to it.
    fn seal(&mut self, end: u64) -> Result<(), VaultError> {
        let (mark, is_on_disk) = (self.mark.encode(), self.vault.options.is_on_disk);
        let last_log_bytes = self.vault.log.bytes();
        let file = &mut self.vault.halves[self.half as usize];
        file.cut(end + 1 + last_log_bytes)?;
        // The disk may not hold the mark before it holds what the mark vouches for.
        if is_on_disk {
            file.sync()?;
        }
        self.stage = Stage::Sealing;
        file.write(0, &mark)?;
        if is_on_disk {
            file.sync()?;
        }
        Ok(())
    }
}

impl Drop for CheckpointWriter<'_> {
    /// Gives back what was written. A mark that may be whole has to go before anything else is written: a later
    /// incarnation would find it in force, without the outcomes that come now.
    fn drop(&mut self) {
        let file = &mut self.vault.halves[self.half as usize];
        match self.stage {
            Stage::Committed => {}
            Stage::Open | Stage::Broken => drop(file.cut(0)),
            Stage::Sealing => file.discard(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use everfold_protocol::{JobId, Rank};
    use nix::{
        fcntl::{FcntlArg, SealFlag, fcntl},
        sys::memfd::{MFdFlags, memfd_create},
    };

    use super::{
        super::{Options, Owner},
        *,
    };

    const OWNER: Owner = Owner { job: JobId(1), rank: Rank(0) };
    const OPTIONS: Options = Options::in_memory(1 << 10);

    /// A new vault and its files.
    fn new() -> (Vault, [File; 2]) {
        let file = || memfd_create(c"everfold-test", MFdFlags::MFD_ALLOW_SEALING).unwrap().into();
        let files: [File; 2] = [file(), file()];
        let kept = files.each_ref().map(|file| file.try_clone().unwrap());
        (Vault::create(files, OWNER, OPTIONS).unwrap(), kept)
    }

    #[test]
    fn a_mark_that_was_written_in_vain_is_not_found() {
        let (mut vault, files) = new();
        let mut writer = vault.begin(b"header").unwrap();
        let end = writer.write_table().unwrap();
        // As if the disk refused to sync after it.
        writer.seal(end).unwrap();
        drop(writer);
        vault.append(b"key", &[]).unwrap();
        let (_, remembered) = Vault::open(files, OWNER, OPTIONS).unwrap();
        assert_eq!((remembered.generation, remembered.outcomes.len()), (Generation::BEGINNING, 1));
    }

    #[test]
    fn nothing_is_written_as_long_as_a_mark_in_vain_is_there() {
        let (mut vault, files) = new();
        let mut writer = vault.begin(b"header").unwrap();
        let end = writer.write_table().unwrap();
        writer.seal(end).unwrap();
        // The file cannot be cut any more.
        fcntl(&files[1], FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        drop(writer);
        assert!(matches!(
            vault.append(b"key", &[]),
            Err(VaultError::Io { action: "cut", half: Half::Second, .. })
        ));
        assert!(matches!(vault.begin(b"header").err(), Some(VaultError::Io { action: "cut", .. })));
        // It would forbid to go on from the generation before, and not from this one.
        assert!(matches!(vault.forbid(), Err(VaultError::Io { action: "cut", .. })));
    }
}
