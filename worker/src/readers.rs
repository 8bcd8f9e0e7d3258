//! Which processes read this one's windows through its server, and when that ends. Pure: the simulator asks
//! the same.
//!
//! Memory that a reader has been lent is bound to its connection, and goes back when that is dropped. A
//! reader that is frozen or cut off neither takes the bytes nor hangs up: its connection ends because it was
//! declared failed.

use alloc::collections::{BTreeMap, BTreeSet};

use everfold_protocol::ProcessId;

/// The connections of readers that may be here, one each, with the state that is bound to each.
#[derive(Debug)]
pub struct Readers<C> {
    open: BTreeMap<ProcessId, (Admission, C)>,
    departed: BTreeSet<ProcessId>,
    admitted: u64,
    /// Whether no reader is let in any more.
    is_closed: bool,
}

/// Stands for one connection of a reader, as opposed to its later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission(u64);

/// Why a reader is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// It was declared failed, and reads nothing more here.
    #[error("{0} was declared failed")]
    HasDeparted(ProcessId),
    /// The process whose windows these are takes part no more.
    #[error("the owner of the windows takes part no more")]
    OwnerLeft,
}

impl<C> Default for Readers<C> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), departed: BTreeSet::new(), admitted: 0, is_closed: false }
    }
}

impl<C> Readers<C> {
    /// Lets a reader in. Its earlier connection, if there is one, is dropped: it has given that up.
    ///
    /// # Errors
    /// See [`NotAdmitted`].
    pub fn admit(&mut self, reader: ProcessId, connection: C) -> Result<Admission, NotAdmitted> {
        if self.is_closed {
            return Err(NotAdmitted::OwnerLeft);
        }
        if self.departed.contains(&reader) {
            return Err(NotAdmitted::HasDeparted(reader));
        }
        self.admitted += 1;
        let admission = Admission(self.admitted);
        self.open.insert(reader, (admission, connection));
        Ok(admission)
    }

    /// The state that is bound to a reader's connection.
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

    /// Lets no reader in any more: the owner takes part no more. Drops all connections, so that calls end
    /// which have waited for bodies that readers were lent.
    pub fn close_all(&mut self) {
        self.is_closed = true;
        self.open.clear();
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
        assert_eq!(readers.admit(READER, "again"), Err(NotAdmitted::HasDeparted(READER)));
        let other = ProcessId::first(2);
        readers.admit(other, "other").unwrap();
        assert_eq!(readers.depart(READER), None);
        assert_eq!(readers.connection(other), Some(&mut "other"));
        readers.close_all();
        assert_eq!(readers.connections().count(), 0);
        assert_eq!(readers.admit(other, "again"), Err(NotAdmitted::OwnerLeft));
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
