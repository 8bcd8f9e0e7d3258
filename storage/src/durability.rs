//! What an acknowledgement means.

/// What the acknowledgement of a [`Store::put`](crate::Store::put) means (I5): which failure of *this*
/// process the record outlives. The failure of the record's owner is outlived by every one of them, if the
/// store is another process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Durability {
    /// The record is in the memory of this process, and lost when it dies. The call itself does not write;
    /// records that take more than the memory set aside for them go to disk later, and a put then waits if
    /// the disk is slow.
    #[default]
    Memory,
    /// The operating system has taken the record for the log on disk. It outlives this process, also if that
    /// is killed, but not a crash or power failure of the host. Costs one `write` of the whole record, and
    /// the disk writes it twice.
    Stored,
    /// The log on disk was synced with the record in it. It outlives the host's crash, as far as the disk
    /// keeps its promises and is found again. Costs, on top of `Stored`, waiting for the disk.
    Synced,
}
