//! How a record looks on disk, and how damage is told.
//!
//! ```text
//! offset  bytes  field
//!      0      4  magic "evst"
//!      4      2  version of the format
//!      6      2  kind
//!      8      8  length of the payload in bytes
//!     16      8  xxh3 of the payload, seeded with the xxh3 of bytes 0..16 followed by the key
//!     24      …  payload
//! ```
//! All integers are little-endian. The database has checksums of its own, but they end where it hands out the
//! value; these travel with the record, and because they cover the key, a good record under the wrong name is
//! damage too.
//!
//! Magic and version keep their places in every version of the format, so that an old reader can tell a newer
//! record from a damaged one. A record of version 1 is kept in `tests/fixtures`; every later version goes on
//! reading it.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::key::Kind;

/// First bytes of every record.
pub const MAGIC: [u8; 4] = *b"evst";
/// Version of the format that is written.
pub const VERSION: u16 = 1;
/// Bytes before the payload.
pub const HEADER_BYTES: usize = 24;
const CHECKED_BYTES: usize = 16;

/// Why bytes are not the record that they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record ends too early.
    #[error("the record has {bytes} bytes of {expected}")]
    Truncated {
        /// How many are there.
        bytes: u64,
        /// How many there should be, as far as the rest can tell.
        expected: u64,
    },
    /// Something else is stored here.
    #[error("not an everfold record: it starts with {0:02x?}")]
    Magic([u8; 4]),
    /// The record was written by another version of everfold.
    #[error("the record has version {0} of the format, this build reads version {VERSION}")]
    Version(u16),
    /// Bytes follow the record.
    #[error("{left} bytes are left over after the record")]
    Trailing {
        /// How many.
        left: u64,
    },
    /// The record was damaged, or it was written under another key.
    #[error("the record's checksum is {found:#018x}, its header says {announced:#018x}")]
    Checksum {
        /// From the header.
        announced: u64,
        /// Of what is there.
        found: u64,
    },
    /// The record is whole but of another kind.
    #[error("a record of kind {found} where {expected} is expected")]
    Kind {
        /// What the caller asked for.
        expected: Kind,
        /// The number found in the record.
        found: u16,
    },
}

/// Makes the record that holds `payload` under `key`.
pub fn encode(kind: Kind, key: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER_BYTES + payload.len());
    record.extend_from_slice(&MAGIC);
    record.extend_from_slice(&VERSION.to_le_bytes());
    record.extend_from_slice(&kind.code().to_le_bytes());
    record.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    let checksum = checksum(&record, key, payload);
    record.extend_from_slice(&checksum.to_le_bytes());
    record.extend_from_slice(payload);
    record
}

/// The payload of a `record` of this kind that was written under `key`.
///
/// # Errors
/// Any [`RecordError`]. The kind is compared last, so that a damaged one is told as damage.
pub fn decode<'a>(kind: Kind, key: &[u8], record: &'a [u8]) -> Result<&'a [u8], RecordError> {
    let truncated = |expected: u64| RecordError::Truncated { bytes: record.len() as u64, expected };
    let Some((&[m0, m1, m2, m3, v0, v1], _)) = record.split_first_chunk() else {
        return Err(truncated(HEADER_BYTES as u64));
    };
    let magic = [m0, m1, m2, m3];
    if magic != MAGIC {
        return Err(RecordError::Magic(magic));
    }
    let version = u16::from_le_bytes([v0, v1]);
    if version != VERSION {
        return Err(RecordError::Version(version));
    }
    let Some((header, payload)) = record.split_first_chunk::<HEADER_BYTES>() else {
        return Err(truncated(HEADER_BYTES as u64));
    };
    let [_, _, _, _, _, _, k0, k1, l0, l1, l2, l3, l4, l5, l6, l7, announced @ ..] = *header;
    let announced_bytes = u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]);
    let bytes = payload.len() as u64;
    if bytes < announced_bytes {
        return Err(truncated(announced_bytes.saturating_add(HEADER_BYTES as u64)));
    }
    if bytes > announced_bytes {
        return Err(RecordError::Trailing { left: bytes - announced_bytes });
    }
    let announced = u64::from_le_bytes(announced);
    let found = checksum(&header[..CHECKED_BYTES], key, payload);
    if found != announced {
        return Err(RecordError::Checksum { announced, found });
    }
    let found = u16::from_le_bytes([k0, k1]);
    if found != kind.code() {
        return Err(RecordError::Kind { expected: kind, found });
    }
    Ok(payload)
}

fn checksum(header: &[u8], key: &[u8], payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, xxh3_64(&[header, key].concat()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &[u8] = b"key";

    proptest! {
        #[test]
        fn what_goes_in_comes_out(key: Vec<u8>, payload: Vec<u8>) {
            for kind in Kind::ALL {
                let record = encode(kind, &key, &payload);
                prop_assert_eq!(decode(kind, &key, &record), Ok(&payload[..]));
            }
        }

        #[test]
        fn a_flipped_bit_is_found(payload: Vec<u8>, bit: prop::sample::Index) {
            let mut record = encode(Kind::Original, KEY, &payload);
            let bit = bit.index(record.len() * 8);
            record[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(Kind::Original, KEY, &record).is_err());
        }

        #[test]
        fn a_truncated_record_is_told(payload: Vec<u8>, cut: prop::sample::Index) {
            let record = encode(Kind::Original, KEY, &payload);
            let cut = cut.index(record.len());
            let error = decode(Kind::Original, KEY, &record[..cut]).unwrap_err();
            let expected = if cut < HEADER_BYTES { HEADER_BYTES } else { record.len() } as u64;
            prop_assert_eq!(error, RecordError::Truncated { bytes: cut as u64, expected });
        }

        #[test]
        fn bytes_after_the_record_are_told(payload: Vec<u8>, more in 1..100_usize) {
            let mut record = encode(Kind::Original, KEY, &payload);
            record.resize(record.len() + more, 0);
            let error = decode(Kind::Original, KEY, &record).unwrap_err();
            prop_assert_eq!(error, RecordError::Trailing { left: more as u64 });
        }

        #[test]
        fn garbage_is_refused(bytes: Vec<u8>) {
            prop_assert!(decode(Kind::Original, KEY, &bytes).is_err());
        }
    }

    #[test]
    fn a_record_under_another_key_is_damage() {
        let record = encode(Kind::Original, KEY, b"value");
        assert!(matches!(decode(Kind::Original, b"kez", &record), Err(RecordError::Checksum { .. })));
    }

    #[test]
    fn a_whole_record_of_another_kind_is_told_as_such() {
        let record = encode(Kind::Original, KEY, b"value");
        assert_eq!(
            decode(Kind::Replica, KEY, &record),
            Err(RecordError::Kind { expected: Kind::Replica, found: 1 })
        );
    }

    #[test]
    fn a_damaged_kind_is_told_as_damage() {
        let mut record = encode(Kind::Original, KEY, b"value");
        record[6] = 2;
        assert!(matches!(decode(Kind::Replica, KEY, &record), Err(RecordError::Checksum { .. })));
    }

    #[test]
    fn a_huge_announced_length_is_no_more_than_a_truncated_record() {
        let mut record = encode(Kind::Original, KEY, b"value");
        record[8..16].fill(0xff);
        let expected = RecordError::Truncated { bytes: 29, expected: u64::MAX };
        assert_eq!(decode(Kind::Original, KEY, &record), Err(expected));
    }
}
