//! One region of shared memory per process, which peers on the same host map.
//!
//! The region is a `memfd`: it has no name in any file system, so nothing can be left behind however a process
//! ends, and peers open it through `/proc/<pid>/fd/<fd>`. It is much larger than the memory it uses; pages exist once
//! they are touched. Blocks that are given back keep their pages for the next taker, up to a limit, because a first
//! touch costs more than folding what is then written.
//!
//! # Layout
//! The first bytes are the table of generations (see [`super::window`]), then comes the lifeline (see
//! [`super::lifeline`]); blocks of whole [`UNIT_BYTES`] follow.
//!
//! # Safety of reading a peer's region
//! A peer's block is plain memory that the peer could write at any time. It does not: a window is immutable from its
//! publication to its release (I3), the release comes only after the master has ended the reduction, and whatever is
//! read later is dropped because its task is no longer known. All types read from a region are plain old data, for
//! which every bit pattern is valid.

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::{AsRawFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use nix::sys::{
    memfd::{MFdFlags, memfd_create},
    mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap},
};
use offset_allocator::{Allocation, Allocator};

/// Blocks are multiples of this, and start at multiples of it.
pub const UNIT_BYTES: usize = 64 << 10;
/// Number of generation counters at the start of the region.
pub const GENERATIONS: usize = 128 << 10;
/// Unused memory that keeps its pages, in bytes.
const WARM_BYTES_MAX: usize = 512 << 20;
/// Virtual size of a region. Untouched pages cost nothing.
const REGION_BYTES: usize = 256 << 30;
/// Virtual size where address space is limited.
const REGION_BYTES_SMALL: usize = 4 << 30;

/// A mapping of shared memory.
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
    pub(super) const LIFELINE: usize = GENERATIONS * size_of::<AtomicU64>();
    pub(super) const LIFELINE_BYTES: usize = UNIT_BYTES;
    /// Where blocks begin.
    const BLOCKS: usize = Self::LIFELINE + Self::LIFELINE_BYTES;

    pub(super) fn new(file: &impl std::os::fd::AsFd, len: usize, protection: ProtFlags) -> io::Result<Self> {
        let nonzero = len.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let start = unsafe { mmap(None, nonzero, protection, flags, file, 0)? };
        Ok(Self { start: start.cast(), len })
    }

    /// The lifeline of process `pid`, whose [`Region::handle`] is `handle`, and what lies before it.
    pub(super) fn of_lifeline(pid: u32, handle: (i32, u64)) -> io::Result<Self> {
        let (file, _) = open(pid, handle, File::options().read(true).write(true))?;
        Self::new(&file, Self::BLOCKS, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len, "offset {offset} is outside a mapping of {} bytes", self.len);
        // SAFETY: the offset is within the mapping.
        unsafe { self.start.add(offset) }
    }

    fn generation(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < GENERATIONS && self.len >= Self::LIFELINE);
        // SAFETY: the slot is inside the mapping and aligned; every process accesses it as an atomic only.
        unsafe { self.at(slot * 8).cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from a mapping that is being dropped.
        let unmapped = unsafe { munmap(self.start.cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// This process's shared memory.
pub struct Region {
    mapping: Mapping,
    file: OwnedFd,
    blocks: Mutex<Blocks>,
}

struct Blocks {
    allocator: Allocator,
    warm_bytes: usize,
}

impl Region {
    /// Creates an empty region.
    ///
    /// # Errors
    /// What `memfd_create`, `ftruncate` or `mmap` say, for instance where shared memory is forbidden.
    pub fn new() -> io::Result<Arc<Self>> {
        let file = memfd_create(c"everfold", MFdFlags::MFD_CLOEXEC)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let map = |len: usize| {
            nix::unistd::ftruncate(&file, len as i64)?;
            Mapping::new(&file, len, protection)
        };
        let mapping = map(REGION_BYTES).or_else(|_| map(REGION_BYTES_SMALL))?;
        let units = (mapping.len - Mapping::BLOCKS) / UNIT_BYTES;
        let blocks = Blocks { allocator: Allocator::new(units as u32), warm_bytes: 0 };
        Ok(Arc::new(Self { mapping, file, blocks: Mutex::new(blocks) }))
    }

    /// File descriptor and length, for peers.
    pub fn handle(&self) -> (i32, u64) {
        (self.file.as_raw_fd(), self.mapping.len as u64)
    }

    /// Takes a block of at least `bytes` bytes. Its content is arbitrary.
    ///
    /// # Errors
    /// `None` if the region has no room for it.
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Option<Block> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES).max(1)).ok()?;
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let allocation = blocks.allocator.allocate(units)?;
        blocks.warm_bytes = blocks.warm_bytes.saturating_sub(units as usize * UNIT_BYTES);
        drop(blocks);
        let offset = Mapping::BLOCKS + allocation.offset as usize * UNIT_BYTES;
        Some(Block {
            start: self.mapping.at(offset),
            len: bytes,
            offset,
            units,
            allocation,
            region: self.clone(),
        })
    }

    /// The generation counter `slot`.
    pub fn generation(&self, slot: usize) -> &AtomicU64 {
        self.mapping.generation(slot)
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    fn give_back(&self, block: &Block) {
        let bytes = block.units as usize * UNIT_BYTES;
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.warm_bytes + bytes > WARM_BYTES_MAX {
            // SAFETY: the block is ours alone and is about to be free; its content is arbitrary from here on.
            let removed = unsafe { madvise(block.start.cast(), bytes, MmapAdvise::MADV_REMOVE) };
            debug_assert!(removed.is_ok());
        } else {
            blocks.warm_bytes += bytes;
        }
        blocks.allocator.free(block.allocation);
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("bytes", &self.mapping.len).finish_non_exhaustive()
    }
}

/// A part of this process's region, returned to it on drop.
pub struct Block {
    start: NonNull<u8>,
    len: usize,
    offset: usize,
    units: u32,
    allocation: Allocation,
    region: Arc<Region>,
}

// SAFETY: a block is an exclusively owned range of a mapping that lives at least as long.
unsafe impl Send for Block {}
// SAFETY: shared references only read.
unsafe impl Sync for Block {}

impl Block {
    /// Where it lies in the region.
    pub fn offset(&self) -> u64 {
        self.offset as u64
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is inside the mapping and belongs to this block until it is dropped; every byte is
        // initialised, because fresh pages are zero.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x} of a region", self.len, self.offset)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.region.clone().give_back(self);
    }
}

/// Opens the region of process `pid`, whose [`Region::handle`] is `(fd, len)`.
fn open(pid: u32, (fd, len): (i32, u64), how: &OpenOptions) -> io::Result<(File, usize)> {
    let file = how.open(format!("/proc/{pid}/fd/{fd}"))?;
    if file.metadata()?.len() != len || len < Mapping::BLOCKS as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the descriptor is not a region"));
    }
    Ok((file, usize::try_from(len).map_err(io::Error::other)?))
}

/// A peer's region, mapped for reading.
#[derive(Debug)]
pub struct PeerRegion {
    mapping: Mapping,
}

impl PeerRegion {
    /// Maps the region of process `pid`, whose [`Region::handle`] is `(fd, len)`.
    ///
    /// # Errors
    /// The process is gone, belongs to another user, or hides its descriptors.
    pub fn open(pid: u32, handle: (i32, u64)) -> io::Result<Arc<Self>> {
        let (file, len) = open(pid, handle, File::options().read(true))?;
        Ok(Arc::new(Self { mapping: Mapping::new(&file, len, ProtFlags::PROT_READ)? }))
    }

    /// The current value of generation counter `slot`.
    pub fn generation(&self, slot: usize) -> u64 {
        self.mapping.generation(slot).load(Ordering::Acquire)
    }

    /// `len` bytes at `offset`; `None` if that is outside.
    pub fn bytes(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let end = usize::try_from(offset.checked_add(len)?).ok()?;
        if end > self.mapping.len {
            return None;
        }
        let start = self.mapping.at(offset as usize);
        // SAFETY: the range is inside the mapping; it is not written while its window is valid (see module docs).
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_and_come_back_warm() {
        let region = Region::new().unwrap();
        let mut a = region.allocate(100_000).unwrap();
        let mut b = region.allocate(100_000).unwrap();
        a.bytes_mut().fill(1);
        b.bytes_mut().fill(2);
        assert!(a.bytes().iter().all(|&byte| byte == 1));
        let offset = b.offset();
        drop(b);
        assert_eq!(region.allocate(100_000).unwrap().offset(), offset);
    }

    #[test]
    fn a_peer_sees_what_is_written() {
        let region = Region::new().unwrap();
        let mut block = region.allocate(4096).unwrap();
        block.bytes_mut()[..5].copy_from_slice(b"hello");
        region.generation(7).store(42, Ordering::Release);
        let peer = PeerRegion::open(std::process::id(), region.handle()).unwrap();
        assert_eq!(peer.bytes(block.offset(), 5), Some(&b"hello"[..]));
        assert_eq!(peer.generation(7), 42);
        assert!(peer.bytes(region.handle().1 - 1, 2).is_none());
        assert!(peer.bytes(u64::MAX, 2).is_none());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let region = Region::new().unwrap();
        assert!(region.allocate(usize::MAX).is_none());
        assert!(region.allocate(300 << 30).is_none());
    }
}
