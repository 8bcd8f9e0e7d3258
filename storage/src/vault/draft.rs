//! A checkpoint while it is being written.

use std::{io::IoSlice, sync::Arc};

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

/// A checkpoint while it is being written. Dropping it without [`Vault::seal`] leaves the generation before it in
/// force.
///
/// It borrows nothing: another thread may write it while outcomes go on being appended to the log of the generation
/// in force. They are behind the checkpoint, too, once it is sealed.
#[derive(Debug)]
pub struct Draft {
    file: HalfFile,
    mark: Mark,
    outlet: Outlet,
    table: Vec<u8>,
    stage: Stage,
    /// Outcomes that were appended behind here came after the checkpoint was begun.
    since: Log,
    /// How often the vault had lacked an outcome by then.
    lacks: u64,
    /// As long as this is there, the vault begins no other checkpoint.
    token: Arc<()>,
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
    Sealed,
}

impl Draft {
    /// Begins `generation` in `half`, whose generation is no more from now on.
    pub(super) fn begin(
        vault: &mut Vault,
        half: Half,
        generation: Generation,
        header: &[u8],
    ) -> Result<Self, VaultError> {
        // Both would write to one file.
        if Arc::get_mut(&mut vault.draft).is_none() {
            return Err(VaultError::Drafted { in_force: vault.generation() });
        }
        vault.settle()?;
        let mut file = vault.halves[half as usize].clone();
        // A single byte, so that a death leaves the mark as it was or without its seal.
        file.write(SEAL_AT, &[UNSEALED])?;
        let mut outlet = Outlet::new(MARK_BYTES as u64);
        outlet.write(&mut file, header)?;
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
        Ok(Self {
            file,
            mark,
            outlet,
            table: Vec::new(),
            stage: Stage::Open,
            since: vault.log,
            lacks: vault.lacks,
            token: vault.draft.clone(),
        })
    }

    /// The number that the checkpoint will have.
    pub fn generation(&self) -> Generation {
        self.mark.generation
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
        let written = self.outlet.write_checked(&mut self.file, bytes, &mut checksum);
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
        let (file, outlet) = (&mut self.file, &mut self.outlet);
        let mut checksum = Xxh3::new();
        part.read_through(from, |bytes| outlet.write_checked(file, bytes, &mut checksum))?;
        self.stage = Stage::Open;
        self.list(part.bytes(), &checksum);
        Ok(())
    }

    /// Writes the table, and behind it that the log ends there. Says where that is.
    fn write_table(&mut self) -> Result<u64, VaultError> {
        self.mark.table_checksum = xxh3_64(&self.table);
        self.outlet.write(&mut self.file, &self.table)?;
        self.outlet.write(&mut self.file, &[UNSEALED])?;
        Ok(self.outlet.flush(&mut self.file)? - 1)
    }

    /// Writes the outcomes behind the state that `log`, in the file `from`, has got since the checkpoint was begun.
    /// Their checksums cover place and generation, so that each becomes another record.
    fn carry(&mut self, from: &HalfFile, log: &Log, end: u64) -> Result<Log, VaultError> {
        let mut carried = Log::new(&self.mark, end);
        let (outcomes, is_whole) = log.since(&self.since, from);
        is_whole?;
        for outcome in outcomes {
            let mut value = vec![0; outcome.value_bytes() as usize];
            outcome.read(from, &mut value)?;
            carried.append(&mut self.file, outcome.key(), &[IoSlice::new(&value)])?;
        }
        Ok(carried)
    }

    /// Writes the mark. Of what an earlier generation left behind its `log`, as much stays as the last log took: to
    /// take memory anew costs more than to write to it.
    fn write_mark(&mut self, log: &Log, last_log_bytes: u64) -> Result<(), VaultError> {
        self.file.cut(log.end() + 1 + last_log_bytes)?;
        self.stage = Stage::Sealing;
        self.file.write(0, &self.mark.encode())
    }
}

impl Vault {
    /// Puts a checkpoint in force: the generation before it can go, and its log is over. What was appended to that
    /// since the checkpoint was begun is in the log behind the checkpoint.
    ///
    /// # Errors
    /// [`VaultError::Io`]; [`VaultError::Unfinished`] if a part is missing; [`VaultError::Lacking`] if an outcome could
    /// not be written since the checkpoint was begun; [`VaultError::Damaged`] if such an outcome is not what was
    /// written. The generation before stays in force.
    /// # Panics
    /// If it was begun in another vault.
    pub fn seal(&mut self, mut draft: Draft) -> Result<Generation, VaultError> {
        assert!(Arc::ptr_eq(&draft.token, &self.draft), "a draft is sealed in its own vault");
        if draft.stage == Stage::Broken {
            return Err(VaultError::Unfinished);
        }
        if draft.lacks != self.lacks {
            return Err(VaultError::Lacking { generation: self.generation() });
        }
        let end = draft.write_table()?;
        let log = draft.carry(self.file(), &self.log, end)?;
        draft.write_mark(&log, self.log.bytes())?;
        draft.stage = Stage::Sealed;
        (self.in_force, self.log) = (draft.file.half(), log);
        Ok(draft.generation())
    }
}

impl Drop for Draft {
    /// Gives back what was written. A mark that may be whole has to go before anything else is written: a later
    /// incarnation would find it in force, without the outcomes that come now.
    fn drop(&mut self) {
        match self.stage {
            Stage::Sealed => {}
            Stage::Open | Stage::Broken => drop(self.file.cut(0)),
            Stage::Sealing => self.file.discard(),
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
        let mut draft = vault.begin(b"header").unwrap();
        let end = draft.write_table().unwrap();
        // As if the system refused behind its last byte.
        draft.write_mark(&Log::new(&draft.mark, end), 0).unwrap();
        drop(draft);
        vault.append(b"key", &[]).unwrap();
        let (_, remembered) = Vault::open(files, OWNER, OPTIONS).unwrap();
        assert_eq!((remembered.generation, remembered.outcomes.len()), (Generation::BEGINNING, 1));
    }

    #[test]
    fn nothing_is_written_as_long_as_a_mark_in_vain_is_there() {
        let (mut vault, files) = new();
        let mut draft = vault.begin(b"header").unwrap();
        let end = draft.write_table().unwrap();
        draft.write_mark(&Log::new(&draft.mark, end), 0).unwrap();
        // The file cannot be cut any more.
        fcntl(&files[1], FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        drop(draft);
        assert!(matches!(
            vault.append(b"key", &[]),
            Err(VaultError::Io { action: "cut", half: Half::Second, .. })
        ));
        assert!(matches!(vault.begin(b"header").err(), Some(VaultError::Io { action: "cut", .. })));
        // It would forbid to go on from the generation before, and not from this one.
        assert!(matches!(vault.forbid(), Err(VaultError::Io { action: "cut", .. })));
    }
}
