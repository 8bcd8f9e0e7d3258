//! Mappings of shared memory, and how a region is laid out.
//!
//! A region begins with a head of one [`UNIT_BYTES`], in which its [nonce](RegionRef::nonce) stands; then
//! come the table of generations (see [`super::seqlock`]), the lifeline (see [`super::lifeline`]), the catalogue
//! (see [`super::catalogue`]), and blocks of whole units.

use std::{
    ffi::CStr,
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
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
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

/// Where the generation counter `slot` lies in a region.
pub fn generation_at(slot: usize) -> usize {
    GENERATIONS_AT + slot * size_of::<AtomicU64>()
}

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
    /// Where the catalogue lies, and the room that it has.
    pub const CATALOGUE: usize = Self::LIFELINE + Self::LIFELINE_BYTES;
    pub const CATALOGUE_BYTES: usize = UNIT_BYTES;
    /// Where blocks begin.
    pub const BLOCKS: usize = Self::CATALOGUE + Self::CATALOGUE_BYTES;

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
        unsafe { self.at(generation_at(slot)).cast::<AtomicU64>().as_ref() }
    }

    /// The words of the catalogue.
    pub fn catalogue(&self) -> &[AtomicU64; Self::CATALOGUE_BYTES / size_of::<AtomicU64>()] {
        assert!(self.len >= Self::BLOCKS);
        // SAFETY: it is inside the mapping and aligned; every process that writes accesses it as atomics only.
        unsafe { self.at(Self::CATALOGUE).cast().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from a mapping that is being dropped.
        let unmapped = unsafe { munmap(self.start.cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Why memory that another process shows is not mapped.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    /// It is not the memory that was announced.
    #[error("the process is gone; the system has given its id to another one")]
    Stranger,
    /// A process that reads behind its end dies of SIGBUS.
    #[error(
        "the memory is not sealed: its process could cut it while others read it. Run the same version of everfold \
         in all processes of the job"
    )]
    Unsealed,
    /// It cannot be opened or mapped.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<ForeignError> for io::Error {
    fn from(error: ForeignError) -> Self {
        match error {
            ForeignError::Stranger => Self::new(io::ErrorKind::NotFound, error),
            ForeignError::Unsealed => Self::new(io::ErrorKind::InvalidData, error),
            ForeignError::System(error) => error,
        }
    }
}

/// Makes memory for others to map. [`seal_length`] comes before they learn of it.
pub(super) fn shareable(name: &CStr) -> io::Result<OwnedFd> {
    Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?)
}

/// From now on `file` never becomes shorter. Holes may still be made in it, which read as zeros.
pub(super) fn seal_length(file: &impl AsFd) -> io::Result<()> {
    fcntl(file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL))?;
    Ok(())
}

/// Whether `file` never becomes shorter.
///
/// # Errors
/// It may.
pub(super) fn is_sealed(file: &impl AsFd) -> Result<(), ForeignError> {
    // What knows no seals has none.
    let seals = fcntl(file, FcntlArg::F_GET_SEALS).map_or(SealFlag::empty(), SealFlag::from_bits_truncate);
    if seals.contains(SealFlag::F_SEAL_SHRINK) { Ok(()) } else { Err(ForeignError::Unsealed) }
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

/// Opens the file descriptor `descriptor` of process `pid`. It does not block, as a stranger may have a pipe
/// there.
pub(super) fn open_descriptor(pid: u32, descriptor: i32, how: &mut OpenOptions) -> io::Result<File> {
    how.custom_flags(libc::O_NONBLOCK).open(format!("/proc/{pid}/fd/{descriptor}"))
}

/// Opens the region of process `pid`.
///
/// # Errors
/// The process is gone, belongs to another user, hides its descriptors, is another one than `region` is of, or
/// may cut its region.
pub(super) fn open(pid: u32, region: &RegionRef, how: &mut OpenOptions) -> Result<File, ForeignError> {
    let file = open_descriptor(pid, region.descriptor, how)?;
    verify(&file, region)?;
    Ok(file)
}

/// Whether `file` is what `region` describes, and stays so.
///
/// # Errors
/// It is not, may be cut, or cannot be read.
pub(super) fn verify(file: &File, region: &RegionRef) -> Result<(), ForeignError> {
    if !file.metadata()?.is_file() {
        return Err(ForeignError::Stranger);
    }
    // Its length is of use only once it cannot shrink any more.
    let sealed = is_sealed(file);
    let bytes = file.metadata()?.len();
    if bytes != region.bytes || bytes < Mapping::BLOCKS as u64 {
        return Err(ForeignError::Stranger);
    }
    let mut nonce = [0; size_of::<u128>()];
    file.read_exact_at(&mut nonce, 0)?;
    if u128::from_ne_bytes(nonce) == region.nonce { sealed } else { Err(ForeignError::Stranger) }
}

/// Whether process `pid` is still the one whose region is `region`.
pub(super) fn is_process(pid: u32, region: &RegionRef) -> Result<(), ForeignError> {
    open(pid, region, File::options().read(true)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn core_dumps_leave_it_out() {
        let file = shareable(c"everfold-test").unwrap();
        resize(&file, UNIT_BYTES as u64).unwrap();
        let mapping = Mapping::new(&file, UNIT_BYTES, ProtFlags::PROT_READ).unwrap();
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.at(0).as_ptr() as usize);
        let (_, of_mapping) = maps.split_once(&start).expect("it is mapped");
        let flags = of_mapping.lines().find(|line| line.starts_with("VmFlags:")).expect("each has flags");
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
    }
}
