//! The bytes of one body or partial, lent out segment by segment.
//!
//! Several threads fold different segments of one buffer at the same time, while a server hands out others. A
//! buffer lends ranges of itself and refuses what would overlap, as a `RefCell` does for whole values: a
//! wrong schedule ends in an error, not in a data race.

use std::{
    any::Any,
    fmt,
    ops::{Deref, DerefMut, Range},
    pin::pin,
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::region::{Block, Region};

/// Memory that holds the elements of an array, allocated by the application or by everfold.
pub trait Memory: Any + Send + Sync {
    /// All bytes.
    fn bytes(&self) -> &[u8];
    /// All bytes, to write. They do not move when the owner is moved.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Where it lies in this process's region of shared memory, if it does.
    fn region_offset(&self) -> Option<u64> {
        None
    }
    /// Whether any other block of the region does as well.
    fn is_block(&self) -> bool {
        false
    }
    /// The owner under its own type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: bytemuck::Pod + Send + Sync> Memory for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Memory for Block {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }

    fn region_offset(&self) -> Option<u64> {
        Some(self.offset())
    }

    fn is_block(&self) -> bool {
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Memory of the application that is copied into a block, so that it outlives this process. In the end the
/// block is copied back.
pub(crate) struct Sheltered {
    block: Block,
    owner: Box<dyn Memory>,
}

impl Sheltered {
    /// Copies `owner` into the region, if there is room.
    pub fn new(owner: Box<dyn Memory>, region: &Arc<Region>) -> Result<Self, Box<dyn Memory>> {
        match region.allocate(owner.bytes().len()) {
            Some(mut block) => {
                block.bytes_mut().copy_from_slice(owner.bytes());
                Ok(Self { block, owner })
            }
            None => Err(owner),
        }
    }
}

impl Memory for Sheltered {
    fn bytes(&self) -> &[u8] {
        self.block.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.block.bytes_mut()
    }

    fn region_offset(&self) -> Option<u64> {
        Some(self.block.offset())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        let Self { block, mut owner } = *self;
        owner.bytes_mut().copy_from_slice(block.bytes());
        owner.into_any()
    }
}

/// Memory that is lent out in ranges.
pub struct Buffer {
    /// As long as this is a buffer, nobody touches its bytes but through ranges that are lent.
    owner: Box<dyn Memory>,
    start: NonNull<u8>,
    len: usize,
    region_offset: Option<u64>,
    lending: Arc<Lending>,
}

/// The ranges of a buffer that are lent.
#[derive(Debug, Default)]
struct Lending {
    lent: Mutex<Vec<Lent>>,
    /// Notified when nothing is lent any more.
    idle: Notify,
}

#[derive(Debug)]
struct Lent {
    range: Range<usize>,
    exclusive: bool,
}

// SAFETY: `owner` is `Send` and `start` points into it.
unsafe impl Send for Buffer {}
// SAFETY: all access goes through leases, which `lent` keeps apart.
unsafe impl Sync for Buffer {}

/// The range is outside the buffer, or lent in a way that excludes this use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {start}..{end} of a buffer of {len} cannot be lent")]
pub struct Unavailable {
    start: u64,
    end: u64,
    len: usize,
}

impl Buffer {
    /// Takes charge of `owner`.
    pub fn new(mut owner: Box<dyn Memory>) -> Arc<Self> {
        let region_offset = owner.region_offset();
        let bytes = owner.bytes_mut();
        let (start, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        Arc::new(Self { owner, start, len, region_offset, lending: Arc::default() })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it lies in this process's region, if it does.
    pub fn region_offset(&self) -> Option<u64> {
        self.region_offset
    }

    /// Whether its owner takes any other block as well.
    pub fn is_block(&self) -> bool {
        self.owner.is_block()
    }

    /// Address of the first byte in this process.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Lends `start..start + len` for reading.
    ///
    /// # Errors
    /// Part of it is lent for writing, or outside.
    pub fn read(self: &Arc<Self>, start: u64, len: u64) -> Result<ReadLease, Unavailable> {
        self.lend(start, len, false).map(ReadLease)
    }

    /// Lends `start..start + len` for writing.
    ///
    /// # Errors
    /// Part of it is lent already, or outside.
    pub fn write(self: &Arc<Self>, start: u64, len: u64) -> Result<WriteLease, Unavailable> {
        self.lend(start, len, true).map(WriteLease)
    }

    fn lend(self: &Arc<Self>, start: u64, len: u64, exclusive: bool) -> Result<Lease, Unavailable> {
        let end = start.saturating_add(len);
        let unavailable = Unavailable { start, end, len: self.len };
        if end > self.len as u64 {
            return Err(unavailable);
        }
        let range = start as usize..end as usize;
        let mut lent = self.lending.lock();
        let conflict = lent.iter().any(|other| {
            (exclusive || other.exclusive) && other.range.start < range.end && range.start < other.range.end
        });
        if conflict {
            return Err(unavailable);
        }
        lent.push(Lent { range: range.clone(), exclusive });
        drop(lent);
        let entry = Entry { lending: self.lending.clone(), range, exclusive };
        Ok(Lease { buffer: self.clone(), entry })
    }

    /// Waits until nothing of it is lent. Its borrowers do not hold the buffer any more, either.
    pub async fn idle(&self) {
        loop {
            let mut idle = pin!(self.lending.idle.notified());
            idle.as_mut().enable();
            if self.lending.lock().is_empty() {
                return;
            }
            idle.await;
        }
    }

    /// Gives the memory back to its owner, once nothing of it is lent or published.
    ///
    /// # Errors
    /// Someone still holds the buffer; the caller may try again.
    pub fn into_owner(self: Arc<Self>) -> Result<Box<dyn Memory>, Arc<Self>> {
        Arc::try_unwrap(self).map(|buffer| buffer.owner)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Lending {
    fn lock(&self) -> MutexGuard<'_, Vec<Lent>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fields are dropped in this order: a thread that sees that nothing is lent sees nobody who holds the
/// buffer.
#[derive(Debug)]
struct Lease {
    buffer: Arc<Buffer>,
    entry: Entry,
}

/// Says that something is lent.
#[derive(Debug)]
struct Entry {
    lending: Arc<Lending>,
    range: Range<usize>,
    exclusive: bool,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut lent = self.lending.lock();
        let mine = |other: &Lent| other.range == self.range && other.exclusive == self.exclusive;
        let position = lent.iter().position(mine).expect("what is lent is listed until it is given back");
        lent.swap_remove(position);
        if lent.is_empty() {
            self.lending.idle.notify_waiters();
        }
    }
}

/// A range that is lent for reading.
#[derive(Debug)]
pub struct ReadLease(Lease);

/// A range that is lent for writing, to one holder.
#[derive(Debug)]
pub struct WriteLease(Lease);

impl Deref for ReadLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Lease { buffer, entry: Entry { range, .. } } = &self.0;
        // SAFETY: the range is inside the owner's memory, which neither moves nor is freed while the buffer
        // lives, and nobody holds it for writing.
        unsafe { std::slice::from_raw_parts(buffer.start.as_ptr().add(range.start), range.len()) }
    }
}

impl Deref for WriteLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Lease { buffer, entry: Entry { range, .. } } = &self.0;
        // SAFETY: as for `ReadLease`; the only other holder could be this lease itself.
        unsafe { std::slice::from_raw_parts(buffer.start.as_ptr().add(range.start), range.len()) }
    }
}

impl DerefMut for WriteLease {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Lease { buffer, entry: Entry { range, .. } } = &self.0;
        // SAFETY: the range is inside the owner's memory, and nobody else holds any of it.
        unsafe { std::slice::from_raw_parts_mut(buffer.start.as_ptr().add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer() -> Arc<Buffer> {
        Buffer::new(Box::new((0..100u8).collect::<Vec<u8>>()))
    }

    #[test]
    fn disjoint_ranges_are_written_at_once() {
        let buffer = buffer();
        std::thread::scope(|scope| {
            for start in [0u64, 25, 50, 75] {
                let mut lease = buffer.write(start, 25).unwrap();
                scope.spawn(move || lease.iter_mut().for_each(|byte| *byte += 100));
            }
        });
        let owner = buffer.into_owner().unwrap().into_any().downcast::<Vec<u8>>().unwrap();
        assert_eq!(*owner, (100..200).collect::<Vec<u8>>());
    }

    #[test]
    fn what_overlaps_is_refused() {
        let buffer = buffer();
        let write = buffer.write(10, 10).unwrap();
        assert!(buffer.read(19, 1).is_err());
        assert!(buffer.write(0, 11).is_err());
        let first = buffer.read(20, 10).unwrap();
        let second = buffer.read(25, 10).unwrap();
        assert_eq!((first[5], second[0]), (25, 25));
        drop(write);
        assert_eq!(buffer.read(19, 1).unwrap()[0], 19);
    }

    #[test]
    fn whoever_waits_until_it_is_idle_can_take_it() {
        let buffer = buffer();
        let leases = [buffer.read(0, 10).unwrap(), buffer.read(5, 10).unwrap()];
        let (stop, stopped) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            stopped.recv().unwrap();
            drop(leases);
        });
        let idle = buffer.idle();
        stop.send(()).unwrap();
        futures::executor::block_on(idle);
        assert!(buffer.into_owner().is_ok());
        thread.join().unwrap();
    }

    #[test]
    fn the_outside_is_refused() {
        let buffer = buffer();
        assert!(buffer.read(99, 2).is_err());
        assert!(buffer.read(u64::MAX, 2).is_err());
        assert!(buffer.read(100, 0).is_ok());
    }

    #[test]
    fn a_lent_buffer_is_not_given_back() {
        let buffer = buffer();
        let lease = buffer.read(0, 1).unwrap();
        let buffer = buffer.into_owner().err().unwrap();
        drop(lease);
        assert!(buffer.into_owner().is_ok());
    }
}
