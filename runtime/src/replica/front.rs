//! What of a replica is in force, and how its log grows.

use everfold_storage::vault::{MARK_BYTES, MarkBytes, log_start};

/// The generation of a replica that is in force, as far as it can be told from what is written.
///
/// Its half grows in one way: what is behind the end of the log comes first, and last the byte there. Of the other
/// half the mark comes last.
#[derive(Debug, Default)]
pub(super) struct Front {
    in_force: Option<Generation>,
    /// How far each half is written.
    written: [u64; 2],
}

/// A generation that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    pub half: u8,
    pub mark: MarkBytes,
    /// Where its log ends: there lies the byte that says so.
    pub end: u64,
}

/// Records that the log in force has from now on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Advance {
    pub half: u8,
    pub mark: MarkBytes,
    pub from: u64,
    pub to: u64,
}

impl Front {
    /// The generation in force.
    pub fn in_force(&self) -> Option<Generation> {
        self.in_force
    }

    /// Whether these bytes are the first ones of another generation.
    pub fn begins_another(&self, half: u8, offset: u64) -> bool {
        offset == MARK_BYTES as u64 && self.in_force.is_none_or(|generation| generation.half != half)
    }

    /// Takes in what was written. Tells what the log has grown by, if that is whole.
    pub fn take_in(&mut self, half: u8, offset: u64, bytes: &[u8]) -> Option<Advance> {
        let begins_another = self.begins_another(half, offset);
        let written = self.written.get_mut(usize::from(half))?;
        let end = offset + bytes.len() as u64;
        *written = if begins_another { end } else { end.max(*written) };
        match &mut self.in_force {
            Some(generation) if generation.half == half => {
                let from = generation.end;
                if offset != from {
                    return None;
                }
                generation.end = *written - 1;
                let Generation { mark, end: to, .. } = *generation;
                (from < to).then_some(Advance { half, mark, from, to })
            }
            _ if offset == 0 => {
                let mark: MarkBytes = bytes.try_into().ok()?;
                let (from, to) = (log_start(&mark)?, *written - 1);
                self.in_force = Some(Generation { half, mark, end: to });
                (from < to).then_some(Advance { half, mark, from, to })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use everfold_protocol::{JobId, Rank};
    use everfold_storage::vault::{Extent, Options, Owner, SEAL_AT, Vault};

    use super::*;

    fn bytes(vault: &Vault, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = vec![0; (to - from) as usize];
        vault.read_raw(from, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_log_grows_when_the_byte_at_its_end_is_written() {
        let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        let owner = Owner { job: JobId(1), rank: Rank(0) };
        let mut vault = Vault::create(files, owner, Options::in_memory(1 << 20)).unwrap();
        let mut front = Front::default();
        let marks = MARK_BYTES as u64;
        vault.append(b"one", &[IoSlice::new(b"1")]).unwrap();
        let Extent { bytes: first, .. } = vault.extent();
        assert_eq!(front.take_in(0, marks, &bytes(&vault, marks, first)), None, "its mark is yet to come");
        let one = front.take_in(0, 0, &bytes(&vault, 0, marks)).unwrap();
        assert_eq!((one.half, one.from, one.to), (0, log_start(&one.mark).unwrap(), first - 1));
        // All in one piece.
        vault.append(b"two", &[IoSlice::new(b"2")]).unwrap();
        let Extent { bytes: second, .. } = vault.extent();
        let two = front.take_in(0, first - 1, &bytes(&vault, first - 1, second)).unwrap();
        assert_eq!((two.from, two.to, two.mark), (first - 1, second - 1, one.mark));
        assert_eq!(front.take_in(0, second - 1, &[0]), None, "that is nothing new");
        // In several, the end of the log last.
        vault.append(b"three", &[IoSlice::new(&[3; 100])]).unwrap();
        let Extent { bytes: third, .. } = vault.extent();
        assert_eq!(front.take_in(0, second, &bytes(&vault, second, second + 50)), None);
        assert_eq!(front.take_in(0, second + 50, &bytes(&vault, second + 50, third)), None);
        let three = front.take_in(0, second - 1, &bytes(&vault, second - 1, second)).unwrap();
        assert_eq!((three.from, three.to), (second - 1, third - 1));
        // Another generation, in the other half.
        vault.checkpoint(b"state", &[&[9; 1000]]).unwrap();
        let Extent { bytes: fourth, .. } = vault.extent();
        assert!(front.begins_another(1, marks) && !front.begins_another(0, marks));
        assert_eq!(front.take_in(1, marks, &bytes(&vault, marks, fourth)), None);
        assert_eq!(front.in_force().map(|it| it.half), Some(0));
        assert_eq!(front.take_in(1, 0, &bytes(&vault, 0, marks)), None, "its log is empty");
        assert_eq!(front.take_in(0, SEAL_AT, &[0]), None);
        assert_eq!(front.in_force().map(|it| (it.half, it.end)), Some((1, fourth - 1)));
    }
}
