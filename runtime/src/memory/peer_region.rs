//! A peer's region, mapped for reading.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use everfold_protocol::message::RegionRef;
use nix::sys::mman::ProtFlags;

use super::{
    mapping::{self, ForeignError, Mapping},
    seqlock,
};

/// So much of a region is mapped at first. Address space bounds the ranks of a host: each maps the region of
/// every other.
const BYTES_AT_FIRST: u64 = 1 << 30;

/// The region of a process on this host. It stays readable when that process ends.
#[derive(Debug)]
pub struct PeerRegion {
    file: File,
    bytes: u64,
    /// From its beginning, as far as was needed so far.
    mapping: Mutex<Arc<Mapping>>,
}

impl PeerRegion {
    /// Maps the region of process `pid`.
    ///
    /// # Errors
    /// The process is gone, belongs to another user, hides its descriptors, is another one than `region` is
    /// of, or may cut its region.
    pub fn open(pid: u32, region: &RegionRef) -> Result<Arc<Self>, ForeignError> {
        Self::map(mapping::open(pid, region, File::options().read(true))?, region)
    }

    /// Maps the region that its process has handed over.
    ///
    /// # Errors
    /// It is not the region that was announced, may be cut, or cannot be mapped.
    pub fn adopt(file: OwnedFd, region: &RegionRef) -> Result<Arc<Self>, ForeignError> {
        let file = File::from(file);
        mapping::verify(&file, region)?;
        Self::map(file, region)
    }

    fn map(file: File, region: &RegionRef) -> Result<Arc<Self>, ForeignError> {
        let mapping = map(&file, region.bytes.min(BYTES_AT_FIRST))?;
        Ok(Arc::new(Self { file, bytes: region.bytes, mapping: Mutex::new(mapping) }))
    }

    /// `len` bytes at `offset`; `None` if that is outside.
    ///
    /// # Errors
    /// They cannot be mapped.
    pub fn view(&self, offset: u64, len: u64) -> io::Result<Option<View>> {
        let Some(end) = offset.checked_add(len).filter(|&end| end <= self.bytes) else { return Ok(None) };
        let mapping = self.reaching(end)?;
        Ok(Some(View { mapping, offset: offset as usize, len: len as usize }))
    }

    /// Its file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether bytes that are read from now on under this generation may be valid.
    pub fn is_open(&self, slot: usize, generation: u64) -> bool {
        seqlock::is_open(self.current().generation(slot), generation)
    }

    /// Whether bytes that were read under this generation, since it was open, are valid.
    pub fn is_still_open(&self, slot: usize, generation: u64) -> bool {
        seqlock::is_still_open(self.current().generation(slot), generation)
    }

    fn current(&self) -> Arc<Mapping> {
        self.mapping.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A mapping of all bytes before `end`, which is inside the region.
    fn reaching(&self, end: u64) -> io::Result<Arc<Mapping>> {
        let mut mapping = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        if (mapping.len() as u64) < end {
            *mapping = map(&self.file, end.next_power_of_two().min(self.bytes))?;
        }
        Ok(mapping.clone())
    }
}

fn map(file: &File, bytes: u64) -> io::Result<Arc<Mapping>> {
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    Mapping::new(file, bytes, ProtFlags::PROT_READ).map(Arc::new)
}

/// Bytes of a peer's region.
#[derive(Debug)]
pub struct View {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl View {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let start = self.mapping.at(self.offset);
        // SAFETY: the range is inside the mapping, which this holds; any bits are valid bytes, and it is not
        // written while somebody reads it whose result counts (see `super::region`).
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsRawFd, unix::fs::FileExt};

    use super::{super::region::Region, *};

    fn open(region: &RegionRef) -> Result<Arc<PeerRegion>, ForeignError> {
        PeerRegion::open(std::process::id(), region)
    }

    #[test]
    fn a_peer_sees_what_is_written() {
        let region = Region::new().unwrap();
        let mut block = region.allocate(4096).unwrap();
        block.bytes_mut()[..5].copy_from_slice(b"hello");
        seqlock::open(region.generation(7), 42);
        let peer = open(&region.handle()).unwrap();
        assert_eq!(peer.view(block.offset(), 5).unwrap().unwrap().bytes(), b"hello");
        assert!(peer.is_open(7, 42) && !peer.is_open(7, 41));
        seqlock::close(region.generation(7));
        assert!(!peer.is_still_open(7, 42));
        assert!(!peer.is_open(7, 0) && !peer.is_open(8, 0), "nobody names a closed window");
        assert!(peer.view(region.handle().bytes - 1, 2).unwrap().is_none());
        assert!(peer.view(u64::MAX, 2).unwrap().is_none());
    }

    #[test]
    fn it_is_mapped_as_far_as_it_is_needed() {
        let region = Region::new().unwrap();
        let peer = open(&region.handle()).unwrap();
        let before = peer.view(0, 16).unwrap().unwrap();
        let end = region.handle().bytes;
        assert_eq!(peer.view(end - 1, 1).unwrap().unwrap().bytes(), [0]);
        assert_eq!(peer.current().len() as u64, end);
        assert_eq!(before.bytes(), region.handle().nonce.to_ne_bytes(), "what was lent before stays mapped");
    }

    #[test]
    fn another_process_with_the_same_numbers_is_refused() {
        let (region, other) = (Region::new().unwrap(), Region::new().unwrap());
        let refused = open(&RegionRef { nonce: other.handle().nonce, ..region.handle() }).unwrap_err();
        assert!(matches!(refused, ForeignError::Stranger), "{refused}");
    }

    #[test]
    fn what_could_be_cut_is_refused() {
        let file = mapping::shareable(c"everfold-test").unwrap();
        mapping::resize(&file, 1 << 21).unwrap();
        let file = File::from(file);
        let region = RegionRef { descriptor: file.as_raw_fd(), bytes: 1 << 21, address: 0, nonce: 7 };
        file.write_all_at(&region.nonce.to_ne_bytes(), 0).unwrap();
        let adopt = || PeerRegion::adopt(file.try_clone().unwrap().into(), &region);
        assert!(matches!(adopt(), Err(ForeignError::Unsealed)));
        assert!(matches!(open(&region), Err(ForeignError::Unsealed)));
        mapping::seal_length(&file).unwrap();
        assert!(adopt().is_ok() && open(&region).is_ok());
    }
}
