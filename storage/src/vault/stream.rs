//! The result log of a generation, as its bytes come from where it lies.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{
    Generation, Half,
    error::{Damage, Piece, VaultError},
    layout::{HEAD_BYTES, Head, MARK_BYTES, Mark, SEAL, value_seed},
};

/// A mark as it lies in a file.
pub type MarkBytes = [u8; MARK_BYTES];

/// Where the log of the generation with this mark begins; nothing if that is no mark of a complete generation.
pub fn log_start(mark: &MarkBytes) -> Option<u64> {
    Mark::decode(mark).ok().flatten()?.state_end()
}

/// Takes outcomes out of the bytes of a result log, one behind the other.
#[derive(Debug)]
pub struct LogStream {
    mark: MarkBytes,
    generation: Generation,
    seed: u64,
    /// Where the next record begins in its file.
    at: u64,
    /// Where the next bytes do.
    end: u64,
    /// What has come of the next records.
    bytes: Vec<u8>,
    /// How many outcomes have come.
    count: usize,
}

/// The key and the value of an outcome.
pub type KeyAndValue = (Vec<u8>, Vec<u8>);

impl LogStream {
    /// The log of the generation with this mark, from the record on that begins at `at`.
    ///
    /// # Errors
    /// [`VaultError::Damaged`]: that is no mark of a complete generation.
    pub fn new(mark: &MarkBytes, at: u64) -> Result<Self, VaultError> {
        let found = Mark::decode(mark).ok().flatten();
        let found = found.ok_or(damaged(None, Piece::Mark))?;
        Ok(Self {
            mark: *mark,
            generation: found.generation,
            seed: found.seed(),
            at,
            end: at,
            bytes: Vec::new(),
            count: 0,
        })
    }

    /// The generation whose log it is.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether bytes at this place of the generation with this mark are the next ones.
    pub fn goes_on_with(&self, mark: &MarkBytes, at: u64) -> bool {
        self.mark == *mark && self.end == at
    }

    /// Whether some of a record has come, and not all.
    pub fn is_within_a_record(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Takes in the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.end += bytes.len() as u64;
    }

    /// The next outcome, if all of it has come.
    ///
    /// # Errors
    /// [`VaultError::Damaged`]: what has come is no record of this place and generation.
    pub fn next_outcome(&mut self) -> Result<Option<KeyAndValue>, VaultError> {
        let broken = || damaged(Some(self.generation), Piece::Outcome(self.count));
        let Some((&[seal, ref head @ ..], rest)) = self.bytes.split_first_chunk::<{ 1 + HEAD_BYTES }>()
        else {
            return Ok(None);
        };
        let head_bytes: &[u8; HEAD_BYTES] = head;
        if seal != SEAL {
            return Err(broken());
        }
        let head = Head::decode(head_bytes, self.at, self.seed).ok_or_else(broken)?;
        let record_bytes = head.record_bytes().ok_or_else(broken)?;
        if record_bytes > self.bytes.len() as u64 {
            return Ok(None);
        }
        let (key, rest) = rest.split_at(head.key_bytes as usize);
        let (value, rest) = rest.split_at(head.value_bytes as usize);
        let checksum = xxh3_64_with_seed(value, value_seed(head_bytes));
        if xxh3_64(key) != head.key_checksum || !rest.starts_with(&checksum.to_le_bytes()) {
            return Err(broken());
        }
        let outcome = (key.to_vec(), value.to_vec());
        self.bytes.drain(..record_bytes as usize);
        self.at += record_bytes;
        self.count += 1;
        Ok(Some(outcome))
    }
}

fn damaged(generation: Option<Generation>, piece: Piece) -> VaultError {
    VaultError::Damaged(Damage { half: Half::First, generation, piece })
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use everfold_protocol::{JobId, Rank};

    use super::*;
    use crate::vault::{Options, Owner, Vault};

    /// A vault with these outcomes behind a checkpoint: its mark, and all of its bytes.
    fn vault(outcomes: &[(&[u8], &[u8])]) -> (MarkBytes, Vec<u8>) {
        let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        let owner = Owner { job: JobId(1), rank: Rank(2) };
        let mut vault = Vault::create(files, owner, Options::in_memory(1 << 20)).unwrap();
        vault.checkpoint(b"header", &[b"part"]).unwrap();
        for (key, value) in outcomes {
            vault.append(key, &[IoSlice::new(value)]).unwrap();
        }
        let mut bytes = vec![0; vault.extent().bytes as usize - 1];
        vault.read_raw(0, &mut bytes).unwrap();
        (bytes[..MARK_BYTES].try_into().unwrap(), bytes)
    }

    #[test]
    fn outcomes_come_however_their_bytes_do() {
        let outcomes: [(&[u8], &[u8]); 3] = [(b"a", b"first"), (b"", b""), (b"third", &[7; 300])];
        let (mark, bytes) = vault(&outcomes);
        let start = log_start(&mark).unwrap();
        for step in [1, 2, 40, 1000] {
            let mut stream = LogStream::new(&mark, start).unwrap();
            let mut came = Vec::new();
            let mut at = start;
            for piece in bytes[start as usize..].chunks(step) {
                assert!(stream.goes_on_with(&mark, at) && !stream.goes_on_with(&mark, at + 1));
                stream.push(piece);
                at += piece.len() as u64;
                while let Some(outcome) = stream.next_outcome().unwrap() {
                    came.push(outcome);
                }
            }
            let expected: Vec<KeyAndValue> =
                outcomes.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            assert!(came == expected && !stream.is_within_a_record(), "by {step}");
        }
    }

    #[test]
    fn a_flipped_bit_and_another_place_are_told() {
        let (mark, bytes) = vault(&[(b"key", b"value")]);
        let start = log_start(&mark).unwrap();
        let record = &bytes[start as usize..];
        for bit in 0..record.len() * 8 {
            let mut record = record.to_vec();
            record[bit / 8] ^= 1 << (bit % 8);
            let mut stream = LogStream::new(&mark, start).unwrap();
            stream.push(&record);
            assert!(stream.next_outcome().is_err(), "bit {bit}");
        }
        let mut stream = LogStream::new(&mark, start + 1).unwrap();
        stream.push(record);
        assert!(stream.next_outcome().is_err());
        assert!(LogStream::new(&[0; MARK_BYTES], start).is_err() && log_start(&[0; MARK_BYTES]).is_none());
    }
}
