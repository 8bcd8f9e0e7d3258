//! The result log: outcomes behind the state of a generation.

use std::io::IoSlice;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{
    Generation,
    error::{Piece, VaultError},
    file::{HalfFile, Outlet},
    layout::{HEAD_BYTES, Head, Mark, SEAL, TRAILER_BYTES, UNSEALED, value_seed},
    state::damaged,
};

/// An outcome in the result log. The bytes of its value are still in the vault.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub(super) generation: Generation,
    index: usize,
    key: Vec<u8>,
    offset: u64,
    bytes: u64,
    value_seed: u64,
}

impl Outcome {
    /// The key that the caller gave with it.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Length of its value in bytes.
    pub fn value_bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `buffer` with its value.
    pub(super) fn read(&self, file: &HalfFile, buffer: &mut [u8]) -> Result<(), VaultError> {
        let mut checksum = Xxh3::with_seed(self.value_seed);
        file.read_checked(self.offset, buffer, &mut checksum)?;
        self.compare(file, &checksum)
    }

    /// Compares its value with its checksum.
    pub(super) fn verify(&self, file: &HalfFile) -> Result<(), VaultError> {
        let mut checksum = Xxh3::with_seed(self.value_seed);
        file.skim(self.offset, self.bytes, &mut checksum)?;
        self.compare(file, &checksum)
    }

    fn compare(&self, file: &HalfFile, found: &Xxh3) -> Result<(), VaultError> {
        let mut trailer = [0; TRAILER_BYTES];
        file.read(self.offset + self.bytes, &mut trailer)?;
        if found.digest() == u64::from_le_bytes(trailer) {
            return Ok(());
        }
        Err(damaged(file, self.generation, Piece::Outcome(self.index)))
    }
}

/// Where the log of a generation lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    generation: Generation,
    start: u64,
    end: u64,
    seed: u64,
}

impl Log {
    /// The log of a vault that has no generation yet.
    pub const NONE: Self = Self { generation: Generation::BEGINNING, start: 0, end: 0, seed: 0 };

    /// The empty log of the generation with this `mark`, whose state ends at `start`.
    pub fn new(mark: &Mark, start: u64) -> Self {
        Self { generation: mark.generation, start, end: start, seed: mark.seed() }
    }

    /// Which generation it belongs to.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether `mark` is still that of its generation.
    pub fn is_behind(&self, mark: &Mark) -> bool {
        self.seed == mark.seed()
    }

    /// Where it ends: there lies a byte that says so.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of its records.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes that an outcome would take.
    pub fn record_bytes(key: &[u8], value: &[IoSlice<'_>]) -> u64 {
        (1 + HEAD_BYTES + TRAILER_BYTES + key.len()) as u64 + length(value)
    }

    /// Writes an outcome behind the others, and its seal last: until then the log ends before it.
    pub fn append(
        &mut self,
        file: &mut HalfFile,
        key: &[u8],
        value: &[IoSlice<'_>],
    ) -> Result<(), VaultError> {
        let end = self.write(file, key, value)?;
        file.write(self.end, &[SEAL])?;
        self.end = end;
        Ok(())
    }

    /// Writes all of an outcome but its seal, and behind it that the log ends there.
    fn write(&self, file: &mut HalfFile, key: &[u8], value: &[IoSlice<'_>]) -> Result<u64, VaultError> {
        let head =
            Head { key_bytes: key.len() as u64, value_bytes: length(value), key_checksum: xxh3_64(key) };
        let head = head.encode(self.end, self.seed);
        let mut checksum = Xxh3::with_seed(value_seed(&head));
        let mut outlet = Outlet::new(self.end + 1);
        outlet.write(file, &head)?;
        outlet.write(file, key)?;
        for slice in value {
            outlet.write_checked(file, slice, &mut checksum)?;
        }
        outlet.write(file, &checksum.digest().to_le_bytes())?;
        outlet.write(file, &[UNSEALED])?;
        Ok(outlet.flush(file)? - 1)
    }

    /// The outcome that was appended at `at`.
    pub fn outcome(&self, at: u64, key: Vec<u8>, value_bytes: u64) -> Outcome {
        let head = Head { key_bytes: key.len() as u64, value_bytes, key_checksum: xxh3_64(&key) };
        let value_seed = value_seed(&head.encode(at, self.seed));
        let offset = at + (1 + HEAD_BYTES + key.len()) as u64;
        // How many were before it is not counted.
        Outcome { generation: self.generation, index: 0, key, offset, bytes: value_bytes, value_seed }
    }

    /// Reads the log from its start to its end, or, with an error, to the first record that is damaged.
    pub fn read(&mut self, file: &HalfFile) -> (Vec<Outcome>, Result<(), VaultError>) {
        let mut outcomes = Vec::new();
        self.end = self.start;
        loop {
            match self.next(file, outcomes.len()) {
                Ok(Some((outcome, end))) => {
                    outcomes.push(outcome);
                    self.end = end;
                }
                Ok(None) => return (outcomes, Ok(())),
                Err(error) => return (outcomes, Err(error)),
            }
        }
    }

    /// The record at the end of what was read so far, and where it ends; `None` if the log ends there.
    fn next(&self, file: &HalfFile, index: usize) -> Result<Option<(Outcome, u64)>, VaultError> {
        let broken = || damaged(file, self.generation, Piece::Outcome(index));
        let left = file.bytes().saturating_sub(self.end);
        let mut bytes = [0; 1 + HEAD_BYTES];
        let readable = left.min(bytes.len() as u64) as usize;
        file.read(self.end, &mut bytes[..readable])?;
        let [seal, head @ ..] = bytes;
        match seal {
            UNSEALED if left > 0 => return Ok(None),
            SEAL if readable == bytes.len() => {}
            _ => return Err(broken()),
        }
        let value_seed = value_seed(&head);
        let head = Head::decode(&head, self.end, self.seed).ok_or_else(broken)?;
        let record_bytes = head.record_bytes().filter(|bytes| *bytes < left).ok_or_else(broken)?;
        let mut key = vec![0; head.key_bytes as usize];
        let key_at = self.end + 1 + HEAD_BYTES as u64;
        file.read(key_at, &mut key)?;
        if xxh3_64(&key) != head.key_checksum {
            return Err(broken());
        }
        let outcome = Outcome {
            generation: self.generation,
            index,
            key,
            offset: key_at + head.key_bytes,
            bytes: head.value_bytes,
            value_seed,
        };
        Ok(Some((outcome, self.end + record_bytes)))
    }

    /// What was appended since the log was this `earlier` one, and, with an error, what is damaged of it.
    pub fn since(&self, earlier: &Self, file: &HalfFile) -> (Vec<Outcome>, Result<(), VaultError>) {
        match earlier.end == self.end {
            true => (Vec::new(), Ok(())),
            false => Self { start: earlier.end, ..*self }.read(file),
        }
    }
}

fn length(slices: &[IoSlice<'_>]) -> u64 {
    slices.iter().map(|slice| slice.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::{
        super::{Half, error::Damage},
        *,
    };

    const LOG: Log = Log { generation: Generation(4), start: 10, end: 10, seed: 9 };

    #[test]
    fn lengths_are_compared_with_that_of_the_file_before_anything_is_allocated() {
        let key_checksum = xxh3_64(b"");
        for bytes in [1 << 10, 1 << 40, 1 << 60, u64::MAX] {
            for (key_bytes, value_bytes) in [(bytes, 0), (0, bytes), (bytes, bytes)] {
                let head = Head { key_bytes, value_bytes, key_checksum };
                let file = tempfile::tempfile().unwrap();
                file.set_len(1 << 10).unwrap();
                file.write_all_at(&[SEAL], LOG.start).unwrap();
                file.write_all_at(&head.encode(LOG.start, LOG.seed), LOG.start + 1).unwrap();
                let (outcomes, end) = { LOG }.read(&HalfFile::new(Half::First, file).unwrap());
                assert!(outcomes.is_empty());
                let piece = Piece::Outcome(0);
                let expected = Damage { half: Half::First, generation: Some(LOG.generation), piece };
                assert!(matches!(end, Err(VaultError::Damaged(found)) if found == expected), "{head:?}");
            }
        }
    }

    #[test]
    fn a_log_that_ends_nowhere_is_damaged() {
        let file = HalfFile::new(Half::First, tempfile::tempfile().unwrap()).unwrap();
        assert!(matches!({ LOG }.read(&file).1, Err(VaultError::Damaged(_))));
    }
}
