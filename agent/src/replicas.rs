//! Replicas of the vaults of ranks of other hosts: whose, how long, and whether they still grow.

use alloc::collections::BTreeMap;

use everfold_protocol::ProcessId;

/// Files of a vault.
pub const HALVES: usize = 2;

/// The replicas that an agent holds, and the limit on their length.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    bytes_max: u64,
    held: BTreeMap<ProcessId, Held>,
}

/// One replica.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: [u64; HALVES],
    /// Whether a later process of its rank has begun to take it: then it stays as it is.
    is_taken: bool,
}

/// Why a replica is not kept, or not longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It would take more than all may take.
    Full {
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// It was not begun, or is not needed any more.
    Unknown,
    /// A later process has taken it: the one whose it is takes part no more (I2).
    Taken,
}

impl Replicas {
    /// Limits the bytes of all replicas together.
    pub fn limit(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// Bytes of all replicas.
    pub fn bytes(&self) -> u64 {
        self.held.values().flat_map(|held| held.bytes).sum()
    }

    /// Whether there is room for this many bytes more, beside the replicas.
    pub fn have_room_for(&self, bytes: u64) -> bool {
        self.bytes().saturating_add(bytes) <= self.bytes_max
    }

    /// Whether a later process has taken a replica.
    pub fn is_taken(&self, process: ProcessId) -> bool {
        self.held.get(&process).is_some_and(|held| held.is_taken)
    }

    /// Begins a replica anew.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn begin(&mut self, process: ProcessId) -> Result<(), Refused> {
        let held = self.held.entry(process).or_default();
        if held.is_taken {
            return Err(Refused::Taken);
        }
        held.bytes = [0; HALVES];
        Ok(())
    }

    /// Lets one of its files have this length, if it is shorter.
    ///
    /// # Errors
    /// See [`Refused`]. It stays as it is.
    pub fn grow(&mut self, process: ProcessId, half: usize, end: u64) -> Result<(), Refused> {
        let others = self.bytes();
        let held = self.held.get_mut(&process).ok_or(Refused::Unknown)?;
        if held.is_taken {
            return Err(Refused::Taken);
        }
        let bytes = held.bytes.get_mut(half).ok_or(Refused::Unknown)?;
        if end > *bytes {
            let all = (others - *bytes).saturating_add(end);
            if all > self.bytes_max {
                return Err(Refused::Full { bytes_max: self.bytes_max });
            }
            *bytes = end;
        }
        Ok(())
    }

    /// Lets a later process of its rank take a replica. Returns the lengths of its files.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn take(&mut self, process: ProcessId) -> Result<[u64; HALVES], Refused> {
        let held = self.held.get_mut(&process).ok_or(Refused::Unknown)?;
        held.is_taken = true;
        Ok(held.bytes)
    }

    /// Holds a replica no longer.
    pub fn release(&mut self, process: ProcessId) {
        self.held.remove(&process);
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{Incarnation, Rank};

    use super::*;

    const ONE: ProcessId = ProcessId { rank: Rank(1), incarnation: Incarnation(0) };
    const TWO: ProcessId = ProcessId { rank: Rank(2), incarnation: Incarnation(0) };

    #[test]
    fn all_replicas_together_have_a_limit() {
        let mut replicas = Replicas::default();
        replicas.limit(100);
        assert_eq!(replicas.grow(ONE, 0, 10), Err(Refused::Unknown));
        replicas.begin(ONE).unwrap();
        replicas.begin(TWO).unwrap();
        assert_eq!(replicas.grow(ONE, 2, 10), Err(Refused::Unknown), "a vault has two files");
        assert_eq!(replicas.grow(ONE, 0, 60), Ok(()));
        assert_eq!(replicas.grow(ONE, 0, 50), Ok(()), "it is longer already");
        assert_eq!(replicas.grow(TWO, 1, 41), Err(Refused::Full { bytes_max: 100 }));
        assert_eq!(replicas.grow(TWO, 1, u64::MAX), Err(Refused::Full { bytes_max: 100 }));
        assert_eq!((replicas.grow(TWO, 1, 40), replicas.bytes()), (Ok(()), 100));
        replicas.release(ONE);
        assert_eq!(replicas.grow(TWO, 0, 60), Ok(()));
    }

    #[test]
    fn what_a_later_process_has_taken_stays_as_it_is() {
        let mut replicas = Replicas::default();
        replicas.limit(100);
        assert_eq!(replicas.take(ONE), Err(Refused::Unknown));
        replicas.begin(ONE).unwrap();
        replicas.grow(ONE, 1, 20).unwrap();
        assert_eq!(replicas.take(ONE), Ok([0, 20]));
        assert_eq!(
            (replicas.begin(ONE), replicas.grow(ONE, 1, 20)),
            (Err(Refused::Taken), Err(Refused::Taken))
        );
        assert_eq!(replicas.take(ONE), Ok([0, 20]), "one that comes after that may die, too");
    }
}
