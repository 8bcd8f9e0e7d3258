//! One region of shared memory per process, which peers on the same host map.
//!
//! The region is a `memfd`: it has no name in any file system, so nothing can be left behind however a
//! process ends, and peers open it through `/proc/<pid>/fd/<fd>`. It is as long as the host has memory, and
//! is sealed against shrinking, because SIGBUS would end a process that reads behind its end. Pages exist
//! once they are touched. Blocks that are given back keep their pages for the next taker, up to a limit,
//! because a first touch costs more than folding what is then written.
//!
//! # Safety of reading a peer's region
//! A peer's block is plain memory that the peer could write at any time. Its owner does write into open
//! windows: partials grow in theirs, and results are copied into originals that are shown. But it writes no
//! range that anybody may read for a task or a result of which the master still knows; what comes of any
//! other read is dropped (I3). A window's generation tells only of its release and of its next use. A process
//! that leaves in the middle of a reduction [retires](Region::retire) its region first: the blocks stay as
//! they are. State in the [catalogue] may be replaced while another process reads it, and is then dropped for
//! its checksum. All types read from a region are plain old data, for which every bit pattern is valid.

use std::{
    fs, io,
    mem::ManuallyDrop,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
};

use everfold_protocol::message::RegionRef;
use nix::sys::{
    mman::{MmapAdvise, ProtFlags, madvise},
    sysinfo::sysinfo,
};
use offset_allocator::{Allocation, Allocator};

use super::{
    catalogue,
    mapping::{Mapping, UNIT_BYTES, file_bytes_max, resize, seal_length, shareable},
    seqlock,
};

/// Most unused memory of one process that keeps its pages, in bytes.
const WARM_BYTES_MAX: u64 = 512 << 20;
/// The part of a host's memory that its processes together keep so.
const WARM_PART: u64 = 4;
/// Shortest region that is worth the while.
const REGION_BYTES_MIN: u64 = 64 << 20;

/// This process's shared memory.
pub struct Region {
    mapping: ManuallyDrop<Mapping>,
    nonce: u128,
    file: OwnedFd,
    blocks: Mutex<Blocks>,
}

struct Blocks {
    allocator: Allocator,
    /// Which units are unused and keep their pages, and how many bytes these are.
    warm: Vec<bool>,
    warm_bytes: u64,
    warm_bytes_max: u64,
    /// Whether all blocks stay as they are.
    retired: bool,
    /// How many bytes of the region a library shows to other hosts.
    exposed_bytes: u64,
}

impl Region {
    /// Creates an empty region, as long as the host has memory, and as limits on files (`ulimit -f`) and on
    /// address space (`ulimit -v`) allow.
    ///
    /// # Errors
    /// What the system says, for instance where shared memory is forbidden; or the limits leave too little.
    pub fn new() -> io::Result<Arc<Self>> {
        let file = shareable(c"everfold")?;
        let mapping = map_longest(&file)?;
        seal_length(&file)?;
        let units = (mapping.len() - Mapping::BLOCKS) / UNIT_BYTES;
        let nonce = u128::from(getrandom::u64().map_err(io::Error::other)?) << 64
            | u128::from(getrandom::u64().map_err(io::Error::other)?);
        // SAFETY: the mapping begins with its head, which is aligned, writable, and nobody else's yet.
        unsafe { mapping.at(0).cast::<u128>().write(nonce) };
        seqlock::open(mapping.generation(catalogue::WHOLE), catalogue::GENERATION);
        let blocks = Blocks {
            allocator: Allocator::new(u32::try_from(units).map_err(io::Error::other)?),
            warm: vec![false; units],
            warm_bytes: 0,
            warm_bytes_max: WARM_BYTES_MAX,
            retired: false,
            exposed_bytes: 0,
        };
        let mapping = ManuallyDrop::new(mapping);
        Ok(Arc::new(Self { mapping, nonce, file, blocks: Mutex::new(blocks) }))
    }

    /// How peers find it.
    pub fn handle(&self) -> RegionRef {
        RegionRef {
            descriptor: self.file.as_raw_fd(),
            bytes: self.mapping.len() as u64,
            address: self.mapping.at(0).as_ptr() as u64,
            nonce: self.nonce,
        }
    }

    /// Its file, to be handed over to the agent of this host.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Leaves as much unused memory with pages to each of `processes` on this host as is there for all of
    /// them: a quarter of the host's memory, and at most 512 MiB each.
    pub fn share_host(&self, processes: usize) {
        let share = memory_bytes() / WARM_PART / processes.max(1) as u64;
        self.lock().warm_bytes_max = WARM_BYTES_MAX.min(share);
    }

    /// Its beginning, at most `bytes_max` bytes, which stay mapped as long as this process lives, and keep
    /// their pages: for a library that shows them to other hosts. A network pins the pages that it reads.
    /// Blocks are taken from the beginning first.
    pub fn expose(&self, bytes_max: u64) -> NonNull<[u8]> {
        let bytes = bytes_max.min(self.mapping.len() as u64);
        self.lock().exposed_bytes = bytes;
        NonNull::slice_from_raw_parts(self.mapping.at(0), bytes as usize)
    }

    /// From now on every block stays as it is, also when it is dropped: peers may read on after this process
    /// has left its job. The memory goes back with the region itself.
    pub fn retire(&self) {
        self.lock().retired = true;
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a block of at least `bytes` bytes. Its content is arbitrary.
    ///
    /// # Errors
    /// `None` if the region has no room for it, or is retired.
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Option<Block> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES).max(1)).ok()?;
        let mut blocks = self.lock();
        let allocation = if blocks.retired { None } else { blocks.allocator.allocate(units) }?;
        let first = allocation.offset as usize;
        let taken = &mut blocks.warm[first..first + units as usize];
        let warm_units = taken.iter().filter(|&&is_warm| is_warm).count();
        taken.fill(false);
        blocks.warm_bytes -= (warm_units * UNIT_BYTES) as u64;
        drop(blocks);
        let offset = Mapping::BLOCKS + first * UNIT_BYTES;
        Some(Block {
            start: self.mapping.at(offset),
            len: bytes,
            offset,
            units,
            allocation,
            region: self.clone(),
        })
    }

    /// Where `bytes` lie in this region, if they do.
    pub fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.mapping.at(0).as_ptr() as usize)?;
        (offset < self.mapping.len()).then_some(offset as u64)
    }

    /// The generation counter `slot`.
    pub fn generation(&self, slot: usize) -> &AtomicU64 {
        self.mapping.generation(slot)
    }

    /// The words of the catalogue.
    pub(super) fn catalogue(&self) -> &[AtomicU64] {
        self.mapping.catalogue()
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    fn give_back(&self, block: &Block) {
        let (first, units) = (block.allocation.offset as usize, block.units as usize);
        let bytes = units * UNIT_BYTES;
        let mut blocks = self.lock();
        if blocks.retired {
            return;
        }
        let is_exposed = (block.offset as u64) < blocks.exposed_bytes;
        if blocks.warm_bytes + bytes as u64 > blocks.warm_bytes_max && !is_exposed {
            // SAFETY: the block is ours alone and is about to be free; its content is arbitrary from here on.
            let removed = unsafe { madvise(block.start.cast(), bytes, MmapAdvise::MADV_REMOVE) };
            debug_assert!(removed.is_ok());
        } else {
            blocks.warm[first..first + units].fill(true);
            blocks.warm_bytes += bytes as u64;
        }
        blocks.allocator.free(block.allocation);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let is_exposed = self.lock().exposed_bytes > 0;
        if !is_exposed {
            // SAFETY: it is dropped here only, and nobody uses it afterwards: it is not exposed.
            unsafe { ManuallyDrop::drop(&mut self.mapping) };
        }
    }
}

/// Maps all of `file` that there is use for, or as much as there is address space.
fn map_longest(file: &OwnedFd) -> io::Result<Mapping> {
    let mut len =
        memory_bytes().next_power_of_two().min(file_bytes_max()?) / UNIT_BYTES as u64 * UNIT_BYTES as u64;
    loop {
        if len < REGION_BYTES_MIN {
            let reason =
                "limits on files (ulimit -f) or address space (ulimit -v) leave no room for shared memory";
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, reason));
        }
        resize(file, len)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        match Mapping::new(file, usize::try_from(len).map_err(io::Error::other)?, protection) {
            Ok(mapping) => return Ok(mapping),
            Err(_) => len = len / 2 / UNIT_BYTES as u64 * UNIT_BYTES as u64,
        }
    }
}

/// Memory that this host has for its processes, in bytes: what is built in and swap, within the limit of a
/// container.
fn memory_bytes() -> u64 {
    let built_in = sysinfo().map_or(REGION_BYTES_MIN, |info| info.ram_total() + info.swap_total());
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    limit.unwrap_or(u64::MAX).min(built_in)
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("bytes", &self.mapping.len()).finish_non_exhaustive()
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
        // SAFETY: the range is inside the mapping and belongs to this block until it is dropped; every byte
        // is initialised, because fresh pages are zero.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
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

#[cfg(test)]
mod tests {
    use super::{super::peer_region::PeerRegion, *};

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
    fn nobody_can_cut_it() {
        let region = Region::new().unwrap();
        let cut = nix::unistd::ftruncate(region.file(), 0).unwrap_err();
        assert_eq!(cut, nix::errno::Errno::EPERM);
    }

    #[test]
    fn what_is_retired_stays_as_it_is() {
        let region = Region::new().unwrap();
        region.lock().warm_bytes_max = 0;
        let peer = PeerRegion::open(std::process::id(), &region.handle()).unwrap();
        let mut block = region.allocate(4096).unwrap();
        block.bytes_mut().fill(9);
        let offset = block.offset();
        region.retire();
        drop(block);
        assert!(peer.view(offset, 4096).unwrap().unwrap().bytes().iter().all(|&byte| byte == 9));
        assert!(region.allocate(4096).is_none());
    }

    #[test]
    fn pages_beyond_the_share_of_a_process_are_given_back() {
        let region = Region::new().unwrap();
        region.share_host(usize::MAX);
        let mut block = region.allocate(4096).unwrap();
        block.bytes_mut().fill(9);
        let offset = block.offset();
        drop(block);
        let block = region.allocate(4096).unwrap();
        assert_eq!(block.offset(), offset);
        assert!(block.bytes().iter().all(|&byte| byte == 0), "fresh pages are zero");
    }

    #[test]
    fn only_what_of_a_block_was_warm_makes_room_for_other_pages() {
        let region = Region::new().unwrap();
        region.lock().warm_bytes_max = UNIT_BYTES as u64;
        let peer = PeerRegion::open(std::process::id(), &region.handle()).unwrap();
        let filled = || {
            let mut block = region.allocate(UNIT_BYTES).unwrap();
            block.bytes_mut().fill(9);
            (block.offset(), block)
        };
        let keeps_pages = |offset| {
            let view = peer.view(offset, UNIT_BYTES as u64).unwrap().unwrap();
            view.bytes().iter().all(|&byte| byte == 9)
        };
        let [(at, first), (beside, second)] = [filled(), filled()];
        drop(first);
        let _cold = region.allocate(2 * UNIT_BYTES).unwrap();
        drop(second);
        assert!(keeps_pages(at) && !keeps_pages(beside), "a cold block makes no room");
        let again = region.allocate(UNIT_BYTES).unwrap();
        assert_eq!(again.offset(), at);
        drop(again);
        assert!(keeps_pages(at), "it has made room for itself");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let region = Region::new().unwrap();
        assert!(region.allocate(usize::MAX).is_none());
        assert!(region.allocate(region.handle().bytes as usize).is_none());
    }
}
