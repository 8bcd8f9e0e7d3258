//! The beginning of a region, which a library shows to other hosts, such as MPI with a network that reads memory by
//! itself.
//!
//! Such a network pins the pages that it shows, and a region has room for all of the host's memory. So only its
//! beginning is shown, as many bytes as the application says, once, before anybody reads. Blocks are taken from the
//! beginning first.

use std::{fmt, io, ptr::NonNull};

/// Shows memory of this process to readers on other hosts.
pub trait Exposure: fmt::Debug + Send + Sync {
    /// Most bytes of a region that are shown, from its beginning on.
    fn bytes_max(&self) -> u64;

    /// Shows `bytes` bytes from `start` on.
    ///
    /// # Safety
    /// They stay mapped as long as the process lives: a library may answer a late reader when it ends.
    ///
    /// # Errors
    /// What the library says, for instance that no more memory may be pinned.
    unsafe fn show(&self, start: NonNull<u8>, bytes: usize) -> io::Result<()>;
}
