//! Marks and heads of records as bytes. The tables are in the [module's documentation](super).

use everfold_protocol::{JobId, Rank};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Generation, Owner};

/// First bytes of a mark.
pub(super) const MAGIC: [u8; 4] = *b"evvt";
/// Version of the format that is written.
pub(super) const VERSION: u16 = 1;
/// Bytes of a mark, which every half begins with.
pub const MARK_BYTES: usize = 88;
/// Where the seal lies: the last byte of a mark.
pub const SEAL_AT: u64 = MARK_BYTES as u64 - 1;
/// The seal of what is complete, a mark or a record. No flipped bit makes [`UNSEALED`] of it.
pub(super) const SEAL: u8 = 0xa5;
/// The seal of a mark whose log lacks an outcome. No flipped bit makes it of another one.
pub(super) const LACKING: u8 = 0x5a;
/// The seal of what is not complete.
pub(super) const UNSEALED: u8 = 0;
/// Bytes of an entry in the table of parts.
pub(super) const ENTRY_BYTES: usize = 16;
/// Bytes of a record between its seal and its key.
pub(super) const HEAD_BYTES: usize = 32;
/// Bytes of a record behind its value.
pub(super) const TRAILER_BYTES: usize = 8;

const CHECKED_MARK_BYTES: usize = 79;
const CHECKED_HEAD_BYTES: usize = 24;

/// What makes a generation complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub owner: Owner,
    pub generation: Generation,
    pub header_bytes: u64,
    pub parts: u64,
    pub parts_bytes: u64,
    pub header_checksum: u64,
    pub table_checksum: u64,
    /// Whether an outcome that belongs in the log behind it is not there.
    pub lacks_outcomes: bool,
}

/// Why bytes are no mark of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkError {
    Magic([u8; 4]),
    Version(u16),
    Damaged,
}

impl Mark {
    pub fn encode(&self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(4, &VERSION.to_le_bytes());
        put(8, &self.owner.job.0.to_le_bytes());
        put(16, &self.owner.rank.0.to_le_bytes());
        put(24, &self.generation.0.to_le_bytes());
        put(32, &self.header_bytes.to_le_bytes());
        put(40, &self.parts.to_le_bytes());
        put(48, &self.parts_bytes.to_le_bytes());
        put(56, &self.header_checksum.to_le_bytes());
        put(64, &self.table_checksum.to_le_bytes());
        put(MARK_BYTES - 1, &[if self.lacks_outcomes { LACKING } else { SEAL }]);
        let checksum = xxh3_64(&bytes[..CHECKED_MARK_BYTES]);
        bytes[CHECKED_MARK_BYTES..][..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The mark that these bytes are, `None` if it was never completed.
    pub fn decode(bytes: &[u8; MARK_BYTES]) -> Result<Option<Self>, MarkError> {
        if bytes[MARK_BYTES - 1] == UNSEALED {
            return Ok(None);
        }
        let [m0, m1, m2, m3, v0, v1, ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(MarkError::Magic([m0, m1, m2, m3]));
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(MarkError::Version(version));
        }
        let checksum = xxh3_64(&bytes[..CHECKED_MARK_BYTES]);
        let seal = bytes[MARK_BYTES - 1];
        if ![SEAL, LACKING].contains(&seal) || number(bytes, CHECKED_MARK_BYTES) != checksum {
            return Err(MarkError::Damaged);
        }
        let rank = Rank(number(bytes, 16) as u32);
        Ok(Some(Self {
            owner: Owner { job: JobId(number(bytes, 8)), rank },
            generation: Generation(number(bytes, 24)),
            header_bytes: number(bytes, 32),
            parts: number(bytes, 40),
            parts_bytes: number(bytes, 48),
            header_checksum: number(bytes, 56),
            table_checksum: number(bytes, 64),
            lacks_outcomes: seal == LACKING,
        }))
    }

    /// Where the state ends and the log begins, `None` if no file is so long.
    pub fn state_end(&self) -> Option<u64> {
        let table_bytes = self.parts.checked_mul(ENTRY_BYTES as u64)?;
        self.parts_at()?.checked_add(self.parts_bytes)?.checked_add(table_bytes)
    }

    /// Where the first part lies, `None` if no file is so long.
    pub fn parts_at(&self) -> Option<u64> {
        self.header_bytes.checked_add(MARK_BYTES as u64)
    }

    /// What the checksums of this generation's records begin with: no record of another one passes for one
    /// of these.
    pub fn seed(&self) -> u64 {
        number(&self.encode(), CHECKED_MARK_BYTES)
    }
}

/// An entry of the table of parts.
pub(super) fn encode_entry(bytes: u64, checksum: u64) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..8].copy_from_slice(&bytes.to_le_bytes());
    entry[8..].copy_from_slice(&checksum.to_le_bytes());
    entry
}

/// Length and checksum in an entry of the table of parts.
pub(super) fn decode_entry(entry: &[u8; ENTRY_BYTES]) -> (u64, u64) {
    (number(entry, 0), number(entry, 8))
}

/// What a record of the log begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub key_bytes: u64,
    pub value_bytes: u64,
    pub key_checksum: u64,
}

impl Head {
    /// The head of the record at `offset`, in the log of the generation with this `seed`.
    pub fn encode(&self, offset: u64, seed: u64) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.key_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.key_checksum.to_le_bytes());
        let checksum = head_checksum(&bytes, offset, seed);
        bytes[CHECKED_HEAD_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The head that these bytes are, `None` if they are damaged, or are of another place or generation.
    pub fn decode(bytes: &[u8; HEAD_BYTES], offset: u64, seed: u64) -> Option<Self> {
        let checksum = number(bytes, CHECKED_HEAD_BYTES);
        (checksum == head_checksum(bytes, offset, seed)).then(|| Self {
            key_bytes: number(bytes, 0),
            value_bytes: number(bytes, 8),
            key_checksum: number(bytes, 16),
        })
    }

    /// Bytes of the whole record, `None` if no file is so long.
    pub fn record_bytes(&self) -> Option<u64> {
        let fixed_bytes = (1 + HEAD_BYTES + TRAILER_BYTES) as u64;
        self.key_bytes.checked_add(self.value_bytes)?.checked_add(fixed_bytes)
    }
}

/// What the checksum of a record's value begins with.
pub(super) fn value_seed(head: &[u8; HEAD_BYTES]) -> u64 {
    number(head, CHECKED_HEAD_BYTES)
}

fn head_checksum(head: &[u8; HEAD_BYTES], offset: u64, seed: u64) -> u64 {
    let mut checked = [0; CHECKED_HEAD_BYTES + 8];
    checked[..CHECKED_HEAD_BYTES].copy_from_slice(&head[..CHECKED_HEAD_BYTES]);
    checked[CHECKED_HEAD_BYTES..].copy_from_slice(&offset.to_le_bytes());
    xxh3_64_with_seed(&checked, seed)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("these are eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark {
        owner: Owner { job: JobId(0x0123_4567_89ab_cdef), rank: Rank(0x89ab_cdef) },
        generation: Generation(7),
        header_bytes: 11,
        parts: 3,
        parts_bytes: 1_000,
        header_checksum: 5,
        table_checksum: 6,
        lacks_outcomes: false,
    };
    const HEAD: Head = Head { key_bytes: 1, value_bytes: 2, key_checksum: 3 };

    #[test]
    fn a_mark_comes_back() {
        assert_eq!(Mark::decode(&MARK.encode()), Ok(Some(MARK)));
        assert_eq!(MARK.state_end(), Some(88 + 11 + 1_000 + 3 * 16));
        let lacking = Mark { lacks_outcomes: true, ..MARK };
        assert_eq!(Mark::decode(&lacking.encode()), Ok(Some(lacking)));
    }

    #[test]
    fn a_mark_without_its_seal_is_not_there() {
        for written in 0..MARK_BYTES {
            let mut bytes = [0; MARK_BYTES];
            bytes[..written].copy_from_slice(&MARK.encode()[..written]);
            assert_eq!(Mark::decode(&bytes), Ok(None), "{written} bytes");
        }
    }

    #[test]
    fn a_flipped_bit_of_a_mark_is_told() {
        for mark in [MARK, Mark { lacks_outcomes: true, ..MARK }] {
            for bit in 0..MARK_BYTES * 8 {
                let mut bytes = mark.encode();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(Mark::decode(&bytes).is_err(), "bit {bit} of {mark:?}");
            }
        }
    }

    #[test]
    fn lengths_that_no_file_has_overflow_nothing() {
        let huge = |header_bytes, parts, parts_bytes| Mark { header_bytes, parts, parts_bytes, ..MARK };
        for mark in [huge(u64::MAX, 0, 0), huge(0, u64::MAX, 0), huge(0, 1 << 60, 0), huge(0, 0, u64::MAX)] {
            assert_eq!(mark.state_end(), None, "{mark:?}");
        }
        assert_eq!(Head { key_bytes: u64::MAX, ..HEAD }.record_bytes(), None);
        assert_eq!(Head { value_bytes: u64::MAX - 1, ..HEAD }.record_bytes(), None);
    }

    #[test]
    fn a_head_is_good_in_its_place_and_generation_only() {
        let bytes = HEAD.encode(100, 9);
        assert_eq!(Head::decode(&bytes, 100, 9), Some(HEAD));
        assert_eq!(Head::decode(&bytes, 101, 9), None);
        assert_eq!(Head::decode(&bytes, 100, 8), None);
        for bit in 0..HEAD_BYTES * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&bytes, 100, 9), None, "bit {bit}");
        }
    }

    #[test]
    fn marks_of_two_generations_have_different_seeds() {
        assert_ne!(MARK.seed(), Mark { generation: Generation(9), ..MARK }.seed());
    }
}
