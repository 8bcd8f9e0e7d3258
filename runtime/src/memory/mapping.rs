//! Mappings of shared memory, and how a region is laid out.
//!
//! A region begins with a head of one [`UNIT_BYTES`], in which its [nonce](RegionRef::nonce) stands; then
//! come the table of generations (see [`super::seqlock`]), the lifeline (see [`super::lifeline`]), and blocks
//! of whole units.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
    ptr::NonNull,
    sync::atomic::AtomicU64,
};

use everfold_protocol::message::RegionRef;
use nix::{
    sys::{
        mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap},
        resource::{Resource, getrlimit},
    },
    unistd::ftruncate,
};

/// Blocks are multiples of this, and start at multiples of it.
pub const UNIT_BYTES: usize = 64 << 10;
/// Number of generation counters in a region.
pub const GENERATIONS: usize = 128 << 10;

const GENERATIONS_AT: usize = UNIT_BYTES;

/// A mapping of shared memory. Core dumps leave it out: they would touch all of it.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range, valid in every thread until it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above; who may read or write which part of it is decided by the types that hold it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Where the lifeline lies, and the room that it has.
    pub const LIFELINE: usize = GENERATIONS_AT + GENERATIONS * size_of::<AtomicU64>();
    pub const LIFELINE_BYTES: usize = UNIT_BYTES;
    /// Where blocks begin.
    pub const BLOCKS: usize = Self::LIFELINE + Self::LIFELINE_BYTES;

    pub fn new(file: &impl AsFd, len: usize, protection: ProtFlags) -> io::Result<Self> {
        let nonzero = len.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let start = unsafe { mmap(None, nonzero, protection, flags, file, 0)? };
        let mapping = Self { start: start.cast(), len };
        // SAFETY: the range is this mapping; what core dumps contain changes nothing that the program can
        // see.
        if let Err(error) = unsafe { madvise(start, len, MmapAdvise::MADV_DONTDUMP) } {
            tracing::debug!(%error, "core dumps will contain shared memory");
        }
        Ok(mapping)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len, "offset {offset} is outside a mapping of {} bytes", self.len);
        // SAFETY: the offset is within the mapping.
        unsafe { self.start.add(offset) }
    }

    /// The generation counter `slot` of a region.
    pub fn generation(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < GENERATIONS && self.len >= Self::LIFELINE);
        // SAFETY: the slot is inside the mapping and aligned; every process accesses it as an atomic only.
        unsafe { self.at(GENERATIONS_AT + slot * size_of::<AtomicU64>()).cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from a mapping that is being dropped.
        let unmapped = unsafe { munmap(self.start.cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Gives `file` this length, if limits on files (`ulimit -f`) allow it.
///
/// # Errors
/// They do not, or what the system says.
pub(super) fn resize(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    // To pass the limit would end this process.
    if bytes > file_bytes_max()? {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the limit on files (ulimit -f) is shorter"));
    }
    Ok(ftruncate(file, i64::try_from(bytes).map_err(io::Error::other)?)?)
}

/// Longest file that this process may have, in bytes.
pub(super) fn file_bytes_max() -> io::Result<u64> {
    Ok(getrlimit(Resource::RLIMIT_FSIZE)?.0)
}

/// Opens the file descriptor `descriptor` of process `pid`. What a stranger may have there is not waited for.
pub(super) fn open_descriptor(pid: u32, descriptor: i32, how: &mut OpenOptions) -> io::Result<File> {
    how.custom_flags(libc::O_NONBLOCK).open(format!("/proc/{pid}/fd/{descriptor}"))
}

/// Opens the region of process `pid`.
///
/// # Errors
/// The process is gone, belongs to another user, hides its descriptors, or is another one than `region` is
/// of.
pub(super) fn open(pid: u32, region: &RegionRef, how: &mut OpenOptions) -> io::Result<File> {
    let file = open_descriptor(pid, region.descriptor, how)?;
    verify(&file, region)?;
    Ok(file)
}

/// Whether `file` is what `region` describes.
///
/// # Errors
/// It is not, or cannot be read.
pub(super) fn verify(file: &File, region: &RegionRef) -> io::Result<()> {
    let stranger = || io::Error::new(io::ErrorKind::NotFound, "the process is gone; its id is another one's");
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() != region.bytes || region.bytes < Mapping::BLOCKS as u64 {
        return Err(stranger());
    }
    let mut nonce = [0; size_of::<u128>()];
    file.read_exact_at(&mut nonce, 0)?;
    if u128::from_ne_bytes(nonce) == region.nonce { Ok(()) } else { Err(stranger()) }
}

/// Whether process `pid` is still the one whose region is `region`.
pub(super) fn is_process(pid: u32, region: &RegionRef) -> io::Result<()> {
    open(pid, region, File::options().read(true)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    #[test]
    fn core_dumps_leave_it_out() {
        let file = memfd_create(c"everfold-test", MFdFlags::MFD_CLOEXEC).unwrap();
        resize(&file, UNIT_BYTES as u64).unwrap();
        let mapping = Mapping::new(&file, UNIT_BYTES, ProtFlags::PROT_READ).unwrap();
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.at(0).as_ptr() as usize);
        let (_, of_mapping) = maps.split_once(&start).expect("it is mapped");
        let flags = of_mapping.lines().find(|line| line.starts_with("VmFlags:")).expect("each has flags");
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
    }
}
