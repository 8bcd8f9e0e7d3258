//! Which processes read this one's windows through its server, and when that ends. Pure: the simulator asks
//! the same.
//!
//! Memory that a reader has been lent is bound to its connection, and goes back when that is dropped. A
//! reader that is frozen or cut off neither takes the bytes nor hangs up: its connection ends because it was
//! declared failed.

use alloc::collections::{BTreeMap, BTreeSet};

use everfold_protocol::ProcessId;

/// The connections of readers that may be here, one each, with what is bound to them.
#[derive(Debug)]
pub struct Readers<C> {
    open: BTreeMap<ProcessId, (Admission, C)>,
    departed: BTreeSet<ProcessId>,
    admitted: u64,
}

/// Stands for one connection of a reader, as opposed to its later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission(u64);

/// The reader was declared failed, and reads nothing more here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} was declared failed")]
pub struct HasDeparted(pub ProcessId);

impl<C> Default for Readers<C> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), departed: BTreeSet::new(), admitted: 0 }
    }
}

impl<C> Readers<C> {
    /// Lets a reader in. Its earlier connection, if there is one, is dropped: it has given that up.
    ///
    /// # Errors
    /// [`HasDeparted`].
    pub fn admit(&mut self, reader: ProcessId, connection: C) -> Result<Admission, HasDeparted> {
        if self.departed.contains(&reader) {
            return Err(HasDeparted(reader));
        }
        self.admitted += 1;
        let admission = Admission(self.admitted);
        self.open.insert(reader, (admission, connection));
        Ok(admission)
    }

    /// What is bound to a reader's connection.
    pub fn connection(&mut self, reader: ProcessId) -> Option<&mut C> {
        self.open.get_mut(&reader).map(|(_, connection)| connection)
    }

    /// Everything that is bound to connections.
    pub fn connections(&self) -> impl Iterator<Item = &C> {
        self.open.values().map(|(_, connection)| connection)
    }

    /// Takes in that a connection has ended; a later one of that reader stays.
    pub fn close(&mut self, reader: ProcessId, admission: Admission) {
        if self.open.get(&reader).is_some_and(|(current, _)| *current == admission) {
            self.open.remove(&reader);
        }
    }

    /// Takes in that a process was declared failed. Returns its connection, to be dropped.
    pub fn depart(&mut self, reader: ProcessId) -> Option<C> {
        self.departed.insert(reader);
        self.open.remove(&reader).map(|(_, connection)| connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: ProcessId =
        ProcessId { rank: everfold_protocol::Rank(1), incarnation: everfold_protocol::Incarnation(0) };

    #[test]
    fn who_was_declared_failed_keeps_nothing_and_is_not_let_in() {
        let mut readers = Readers::default();
        readers.admit(READER, "lent").unwrap();
        assert_eq!(readers.depart(READER), Some("lent"));
        assert_eq!(readers.connections().count(), 0);
        assert_eq!(readers.admit(READER, "again"), Err(HasDeparted(READER)));
        let other = ProcessId::first(2);
        readers.admit(other, "other").unwrap();
        assert_eq!(readers.depart(READER), None);
        assert_eq!(readers.connection(other), Some(&mut "other"));
    }

    #[test]
    fn a_reader_has_one_connection_the_latest() {
        let mut readers = Readers::default();
        let first = readers.admit(READER, 1).unwrap();
        let second = readers.admit(READER, 2).unwrap();
        assert_eq!(readers.connections().collect::<Vec<_>>(), [&2]);
        readers.close(READER, first);
        assert_eq!(readers.connection(READER), Some(&mut 2));
        readers.close(READER, second);
        assert_eq!(readers.connection(READER), None);
    }
}
