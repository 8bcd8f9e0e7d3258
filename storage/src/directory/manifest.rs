//! What says that a generation is complete.

use everfold_protocol::{JobId, codec};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::vault::{Fingerprint, Generation};

const MAGIC: [u8; 4] = *b"evmf";
/// Version of the format that is written.
pub(super) const VERSION: u16 = 1;
const HEAD_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;

/// Says that all ranks of a job have their parts of a generation on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The job that has saved it.
    pub job: JobId,
    /// Its number.
    pub generation: Generation,
    /// File name of the program.
    pub program: String,
    /// When it was complete, in seconds since 1970.
    pub saved_unix_s: u64,
    /// The part of each rank.
    pub parts: Vec<Fingerprint>,
}

/// As it lies in the file.
#[derive(Serialize, Deserialize)]
struct Written {
    job: u64,
    generation: u64,
    program: String,
    saved_unix_s: u64,
    /// Length in bytes and checksum of the part of each rank.
    parts: Vec<(u64, u64)>,
}

/// Why bytes are no manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ManifestError {
    Version(u16),
    Damaged(&'static str),
}

impl Manifest {
    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.parts.len() as u32
    }

    /// Length of all parts in bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { job, generation, program, saved_unix_s, parts } = self;
        let parts = parts.iter().map(|part| (part.bytes, part.checksum)).collect();
        let written = Written {
            job: job.0,
            generation: generation.0,
            program: program.clone(),
            saved_unix_s: *saved_unix_s,
            parts,
        };
        let body = codec::encode(&written).expect("numbers and text can be encoded");
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len() + CHECKSUM_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let damaged = ManifestError::Damaged;
        let (magic, rest) = bytes.split_first_chunk().ok_or(damaged("it is cut"))?;
        if *magic != MAGIC {
            return Err(damaged("it is something else"));
        }
        let (version, _) = rest.split_first_chunk().ok_or(damaged("it is cut"))?;
        let version = u16::from_le_bytes(*version);
        if version != VERSION {
            return Err(ManifestError::Version(version));
        }
        let (checked, checksum) = bytes.split_last_chunk().ok_or(damaged("it is cut"))?;
        if xxh3_64(checked) != u64::from_le_bytes(*checksum) {
            return Err(damaged("its checksum differs"));
        }
        let body = checked.get(HEAD_BYTES..).ok_or(damaged("it is cut"))?;
        let Written { job, generation, program, saved_unix_s, parts } =
            codec::decode(body).map_err(|_| damaged("it cannot be decoded"))?;
        let parts = parts.into_iter().map(|(bytes, checksum)| Fingerprint { bytes, checksum }).collect();
        Ok(Self { job: JobId(job), generation: Generation(generation), program, saved_unix_s, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            job: JobId(7),
            generation: Generation(300),
            program: "solver".to_owned(),
            saved_unix_s: 1_800_000_000,
            parts: vec![Fingerprint { bytes: 3, checksum: u64::MAX }, Fingerprint { bytes: 4, checksum: 0 }],
        }
    }

    #[test]
    fn a_manifest_comes_back() {
        assert_eq!(Manifest::decode(&manifest().encode()), Ok(manifest()));
    }

    #[test]
    fn a_manifest_that_is_cut_at_any_byte_is_none() {
        let bytes = manifest().encode();
        for written in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..written]).is_err(), "{written} bytes");
            let mut padded = bytes[..written].to_vec();
            padded.resize(bytes.len(), 0);
            assert!(padded == bytes || Manifest::decode(&padded).is_err(), "{written} bytes, then zeros");
        }
    }

    #[test]
    fn a_flipped_bit_is_told() {
        let whole = manifest().encode();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&bytes).is_err(), "bit {bit}");
        }
    }
}
