//! What a checkpoint has saved, as it is read.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{
    Generation,
    error::{Damage, Piece, VaultError},
    file::HalfFile,
    layout::{ENTRY_BYTES, MARK_BYTES, Mark, MarkError, VERSION, decode_entry},
    log::Log,
    names::Owner,
};

/// What the last checkpoint has saved. The bytes of its parts are still in the vault.
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) header: Vec<u8>,
    pub(super) parts: Vec<Part>,
}

impl Checkpoint {
    /// The header that the caller gave with it.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Its parts, in the order in which they were written, for
    /// [`Vault::read_part`](super::Vault::read_part).
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// A part of a checkpoint: where its bytes are.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub(super) generation: Generation,
    index: usize,
    offset: u64,
    bytes: u64,
    checksum: u64,
}

impl Part {
    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `buffer` with its bytes.
    pub(super) fn read(&self, file: &HalfFile, buffer: &mut [u8]) -> Result<(), VaultError> {
        let mut checksum = Xxh3::new();
        file.read_checked(self.offset, buffer, &mut checksum)?;
        self.compare(file, &checksum)
    }

    /// Gives its bytes to `each`, piece by piece.
    pub(super) fn read_through(
        &self,
        file: &HalfFile,
        mut each: impl FnMut(&[u8]) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        let (mut checksum, end) = (Xxh3::new(), self.offset + self.bytes);
        let mut buffer = vec![0; self.bytes.min(1 << 20) as usize];
        let mut offset = self.offset;
        while offset < end {
            let chunk = &mut buffer[..(end - offset).min(1 << 20) as usize];
            file.read_checked(offset, chunk, &mut checksum)?;
            each(chunk)?;
            offset += chunk.len() as u64;
        }
        self.compare(file, &checksum)
    }

    /// Compares its bytes with its checksum.
    pub(super) fn verify(&self, file: &HalfFile) -> Result<(), VaultError> {
        let mut checksum = Xxh3::new();
        file.skim(self.offset, self.bytes, &mut checksum)?;
        self.compare(file, &checksum)
    }

    fn compare(&self, file: &HalfFile, found: &Xxh3) -> Result<(), VaultError> {
        if found.digest() == self.checksum {
            return Ok(());
        }
        Err(damaged(file, self.generation, Piece::Part(self.index)))
    }
}

/// The mark of `file`, which is the owner's; `None` if its generation was never completed.
pub(super) fn read_mark(file: &HalfFile, owner: Owner) -> Result<Option<Mark>, VaultError> {
    match find_mark(file)? {
        Some(mark) if mark.owner != owner => {
            Err(VaultError::Owner { half: file.half(), expected: owner, found: mark.owner })
        }
        mark => Ok(mark),
    }
}

/// The mark of `file`, whose ever it is; `None` if its generation was never completed.
pub(super) fn find_mark(file: &HalfFile) -> Result<Option<Mark>, VaultError> {
    let half = file.half();
    let mark_damaged = VaultError::Damaged(Damage { half, generation: None, piece: Piece::Mark });
    if file.bytes() == 0 {
        return Ok(None);
    }
    if file.bytes() < MARK_BYTES as u64 {
        return Err(mark_damaged);
    }
    let mut bytes = [0; MARK_BYTES];
    file.read(0, &mut bytes)?;
    match Mark::decode(&bytes) {
        Ok(mark) => Ok(mark),
        Err(MarkError::Magic(start)) => Err(VaultError::NotAVault { half, start }),
        Err(MarkError::Version(found)) => Err(VaultError::Version { half, found, expected: VERSION }),
        Err(MarkError::Damaged) => Err(mark_damaged),
    }
}

/// Reads header and table of the generation with this mark, and finds where its log begins. Lengths are
/// compared with that of the file before anything is allocated.
pub(super) fn read_state(file: &HalfFile, mark: &Mark) -> Result<(Checkpoint, Log), VaultError> {
    let broken = |piece| damaged(file, mark.generation, piece);
    let Some((parts_at, state_end)) = mark.parts_at().zip(mark.state_end()) else {
        return Err(broken(Piece::End));
    };
    if state_end > file.bytes() {
        return Err(broken(Piece::End));
    }
    let mut header = vec![0; mark.header_bytes as usize];
    file.read(MARK_BYTES as u64, &mut header)?;
    if xxh3_64(&header) != mark.header_checksum {
        return Err(broken(Piece::Header));
    }
    let table_at = parts_at + mark.parts_bytes;
    let mut table = vec![0; (state_end - table_at) as usize];
    file.read(table_at, &mut table)?;
    if xxh3_64(&table) != mark.table_checksum {
        return Err(broken(Piece::Table));
    }
    let parts = read_table(&table, mark.generation, parts_at);
    if parts.last().map_or(parts_at, |last| last.offset + last.bytes) != table_at {
        return Err(broken(Piece::Table));
    }
    Ok((Checkpoint { header, parts }, Log::new(mark, state_end)))
}

/// The parts that a whole table lists.
fn read_table(table: &[u8], generation: Generation, mut offset: u64) -> Vec<Part> {
    let (entries, _) = table.as_chunks::<ENTRY_BYTES>();
    let mut parts = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let (bytes, checksum) = decode_entry(entry);
        parts.push(Part { generation, index, offset, bytes, checksum });
        offset = offset.saturating_add(bytes);
    }
    parts
}

pub(super) fn damaged(file: &HalfFile, generation: Generation, piece: Piece) -> VaultError {
    VaultError::Damaged(Damage { half: file.half(), generation: Some(generation), piece })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use everfold_protocol::{JobId, Rank};

    use super::{super::Half, *};

    const OWNER: Owner = Owner { job: JobId(1), rank: Rank(2) };

    /// What is read of a file of 1 KiB that begins with this mark.
    fn read(mark: Mark) -> Result<(Checkpoint, Log), VaultError> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 10).unwrap();
        file.write_all_at(&mark.encode(), 0).unwrap();
        let file = HalfFile::new(Half::First, file).unwrap();
        read_state(&file, &read_mark(&file, OWNER)?.unwrap())
    }

    #[test]
    fn lengths_are_compared_with_that_of_the_file_before_anything_is_allocated() {
        let mark = Mark {
            owner: OWNER,
            generation: Generation(1),
            header_bytes: 0,
            parts: 0,
            parts_bytes: 0,
            header_checksum: xxh3_64(b""),
            table_checksum: xxh3_64(b""),
            lacks_outcomes: false,
        };
        read(mark).unwrap();
        for bytes in [1 << 10, 1 << 40, 1 << 60, u64::MAX] {
            for mark in [
                Mark { header_bytes: bytes, ..mark },
                Mark { parts: bytes, ..mark },
                Mark { parts_bytes: bytes, ..mark },
            ] {
                let Err(VaultError::Damaged(damage)) = read(mark) else { panic!("{mark:?}") };
                assert_eq!(damage.piece, Piece::End);
            }
        }
    }

    #[test]
    fn a_table_that_lists_other_lengths_than_there_are_is_damage() {
        let mark = Mark {
            owner: OWNER,
            generation: Generation(1),
            header_bytes: 0,
            parts: 1,
            parts_bytes: 8,
            header_checksum: xxh3_64(b""),
            table_checksum: xxh3_64(&[0; ENTRY_BYTES]),
            lacks_outcomes: false,
        };
        let Err(VaultError::Damaged(damage)) = read(mark) else { panic!("its part has no bytes") };
        assert_eq!(damage.piece, Piece::Table);
    }
}
