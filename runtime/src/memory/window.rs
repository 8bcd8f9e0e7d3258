//! Which memory peers may read, and until when.
//!
//! A window is a slot in a table. Publishing takes a slot and gives it a generation that this process never
//! used before; the generation also stands in the shared region, where peers on the same host compare it
//! before and after they read (I3). Releasing clears both. The rules are those of a [`WindowTable`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use everfold_protocol::{
    Generation, RegionOffset, WindowId,
    message::{ByteRange, Place, WindowRef},
};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    buffer::{Buffer, ReadLease},
    catalogue::{Catalogue, WHOLE},
    region::Region,
    seqlock,
};
use everfold_worker::window_table::WindowTable;

use crate::keeper::Kept;

/// The content of a window.
#[derive(Clone, Debug)]
pub enum Content {
    /// An array or a partial of one.
    Buffer(Arc<Buffer>),
    /// An encoded object.
    Encoded(Bytes),
    /// A replica that a keeper holds. It is read when a reader asks for it.
    Kept(Arc<Kept>),
}

/// This process's windows.
#[derive(Debug)]
pub struct Windows {
    table: Mutex<WindowTable<Content>>,
    region: Option<Arc<Region>>,
    catalogue: Option<Catalogue>,
}

/// Why a window cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// It was released, or never existed.
    #[error("the window was released")]
    Released,
    /// The bytes are outside it, or being written: the reader's schedule is not this process's.
    #[error("bytes {start}..{end} of the window cannot be read")]
    Range {
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
    },
    /// The replica cannot be read, or is damaged. The log of this process says why.
    #[error("the replica behind the window is damaged or cannot be read")]
    Damaged,
    /// The process that serves the window lacks memory or address space for the bytes. They are undamaged.
    #[error("there is no room to show the window: {0}")]
    NoRoom(String),
}

/// Bytes of a window that stay as they are while this is held.
#[derive(Debug)]
pub enum Held {
    /// Of an array.
    Lease(ReadLease),
    /// Of an encoded object, or of a replica.
    Bytes(Bytes),
}

impl std::ops::Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lease(lease) => lease,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The windows from which a server reads.
pub trait Shelf: Send + Sync + 'static {
    /// Reads a range of a window. `at` is where the window begins in its region, for servers of a region that
    /// do not know its windows.
    fn read(
        &self,
        window: WindowId,
        generation: Generation,
        range: ByteRange,
        at: Option<RegionOffset>,
    ) -> impl Future<Output = Result<Held, WindowError>> + Send;
}

impl Shelf for Windows {
    async fn read(
        &self,
        window: WindowId,
        generation: Generation,
        range: ByteRange,
        _: Option<RegionOffset>,
    ) -> Result<Held, WindowError> {
        Windows::read(self, window, generation, range).await
    }
}

/// The content that a window has for a reader.
enum Found {
    Here(Held),
    Kept(Arc<Kept>),
}

impl Windows {
    /// A table without windows. Without a region peers can only ask the server.
    pub fn new(region: Option<Arc<Region>>) -> Self {
        let catalogue = region.clone().map(Catalogue::new);
        Self { table: Mutex::new(WindowTable::new(WHOLE)), region, catalogue }
    }

    fn table(&self) -> MutexGuard<'_, WindowTable<Content>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory that peers can map, if there is any.
    pub fn region(&self) -> Option<&Arc<Region>> {
        self.region.as_ref()
    }

    /// The catalogue of state that this process keeps, if there is memory that peers can map.
    pub fn catalogue(&self) -> Option<&Catalogue> {
        self.catalogue.as_ref()
    }

    /// Shows `content` to peers until [`release`](Self::release). `None` if too many windows are open, or if
    /// this process has left its job.
    pub fn publish(&self, content: Content) -> Option<WindowRef> {
        let (bytes, checksum, place) = match &content {
            Content::Buffer(buffer) => {
                let place = match (buffer.region_offset(), &self.region) {
                    (Some(offset), Some(_)) => Place::Region(RegionOffset(offset)),
                    (None, Some(_)) => Place::Memory(buffer.address()),
                    (_, None) => Place::Served,
                };
                (buffer.len() as u64, None, place)
            }
            Content::Encoded(bytes) => {
                let place = self.region.as_ref().map_or(Place::Served, |region| {
                    let offset = region.offset_of(bytes).map(RegionOffset);
                    offset.map_or(Place::Memory(bytes.as_ptr() as u64), Place::Region)
                });
                (bytes.len() as u64, Some(xxh3_64(bytes)), place)
            }
            Content::Kept(kept) => {
                let offset = kept.region_offset.filter(|_| self.region.is_some()).map(RegionOffset);
                (kept.bytes, kept.checksum, offset.map_or(Place::Served, Place::Region))
            }
        };
        let mut table = self.table();
        let (window, generation) = table.publish(place, content)?;
        if let Some(region) = &self.region {
            seqlock::open(region.generation(slot(window)), generation.0);
        }
        Some(WindowRef { window, generation, bytes, checksum, place })
    }

    /// Hides a window. Reads under way end with an error; none starts any more.
    pub fn release(&self, window: &WindowRef) {
        let released = self.table().release(window.window, window.generation, |window| self.close(window));
        drop(released);
    }

    /// Takes part in the job no more: hides what goes with this process, and leaves all else as it is, for
    /// peers to read as if the process had died. To be called before the connection to the master breaks, and
    /// before anything is given back.
    pub fn leave(&self) {
        let mut table = self.table();
        let closed = table.leave(|window| self.close(window));
        let is_kept = self.catalogue.as_ref().is_some_and(|catalogue| !catalogue.is_empty());
        if let Some(region) = self.region.as_ref().filter(|_| is_kept || !table.is_empty()) {
            region.retire();
        }
        drop(table);
        drop(closed);
    }

    /// To be called with the table locked, so that the slot is not taken meanwhile.
    fn close(&self, window: WindowId) {
        if let Some(region) = &self.region {
            seqlock::close(region.generation(slot(window)));
        }
    }

    /// Holds `range` of a window for a reader. Waits only for reads from disk.
    ///
    /// # Errors
    /// [`WindowError`]; the caller tells the reader.
    pub async fn read(
        &self,
        window: WindowId,
        generation: Generation,
        range: ByteRange,
    ) -> Result<Held, WindowError> {
        let kept = match self.find(window, generation, range)? {
            Found::Here(held) => return Ok(held),
            Found::Kept(kept) => kept,
        };
        kept.read(range).await.map(Held::Bytes).map_err(|error| {
            // What is kept goes away together with its window.
            if let Err(error) = self.find(window, generation, range) {
                return error;
            }
            tracing::warn!(%error, "a replica cannot be read");
            WindowError::Damaged
        })
    }

    fn find(&self, window: WindowId, generation: Generation, range: ByteRange) -> Result<Found, WindowError> {
        let ByteRange { start, len } = range;
        let refused = WindowError::Range { start, end: start.saturating_add(len) };
        match self.table().find(window, generation).ok_or(WindowError::Released)? {
            Content::Buffer(buffer) => {
                buffer.read(start, len).map(|lease| Found::Here(Held::Lease(lease))).map_err(|_| refused)
            }
            Content::Encoded(bytes) => {
                let end = start.checked_add(len).filter(|&end| end <= bytes.len() as u64).ok_or(refused)?;
                Ok(Found::Here(Held::Bytes(bytes.slice(start as usize..end as usize))))
            }
            Content::Kept(kept) => {
                let inside = start.checked_add(len).is_some_and(|end| end <= kept.bytes);
                if inside { Ok(Found::Kept(kept.clone())) } else { Err(refused) }
            }
        }
    }

    /// Whether `window` is open and shows `buffer`.
    pub fn shows(&self, window: &WindowRef, buffer: &Arc<Buffer>) -> bool {
        match self.table().find(window.window, window.generation) {
            Some(Content::Buffer(shown)) => Arc::ptr_eq(shown, buffer),
            _ => false,
        }
    }

    /// Number of open windows.
    pub fn len(&self) -> usize {
        self.table().len()
    }

    /// Whether no window is open.
    pub fn is_empty(&self) -> bool {
        self.table().is_empty()
    }
}

impl Drop for Windows {
    /// A process that has forgotten to leave does so before anything is given back.
    fn drop(&mut self) {
        self.leave();
    }
}

fn slot(window: WindowId) -> usize {
    window.0 as usize
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::{super::peer_region::PeerRegion, *};

    const ALL: ByteRange = ByteRange { start: 0, len: 3 };

    fn read(windows: &Windows, window: &WindowRef) -> Result<Held, WindowError> {
        block_on(windows.read(window.window, window.generation, ALL))
    }

    #[test]
    fn a_window_is_readable_from_publication_to_release() {
        let windows = Windows::new(None);
        let first = windows.publish(Content::Encoded(Bytes::from_static(b"one"))).unwrap();
        assert_eq!(&*read(&windows, &first).unwrap(), b"one");
        windows.release(&first);
        assert_eq!(read(&windows, &first).unwrap_err(), WindowError::Released);
        let second = windows.publish(Content::Encoded(Bytes::from_static(b"two"))).unwrap();
        assert_eq!(first.window, second.window, "slots are used again");
        assert_eq!(read(&windows, &first).unwrap_err(), WindowError::Released);
        windows.release(&first);
        assert_eq!(&*read(&windows, &second).unwrap(), b"two");
    }

    #[test]
    fn peers_see_the_generation_in_shared_memory() {
        let region = Region::new().unwrap();
        let windows = Windows::new(Some(region.clone()));
        let buffer = Buffer::new(Box::new(region.allocate(3).unwrap()));
        let window = windows.publish(Content::Buffer(buffer)).unwrap();
        assert!(matches!(window.place, Place::Region(_)));
        let is_open = || seqlock::is_open(region.generation(slot(window.window)), window.generation.0);
        assert!(is_open());
        windows.release(&window);
        assert!(!is_open());
    }

    #[test]
    fn who_leaves_hides_private_memory_before_it_goes_and_keeps_what_is_shared() {
        let region = Region::new().unwrap();
        let windows = Windows::new(Some(region.clone()));
        let mut block = region.allocate(3).unwrap();
        block.bytes_mut().copy_from_slice(b"abc");
        let shared = windows.publish(Content::Buffer(Buffer::new(Box::new(block)))).unwrap();
        let private = windows.publish(Content::Buffer(Buffer::new(Box::new(vec![1u8; 3])))).unwrap();
        let peer = PeerRegion::open(std::process::id(), &region.handle()).unwrap();
        let is_open = |window: &WindowRef| peer.is_open(slot(window.window), window.generation.0);
        assert!(is_open(&shared) && is_open(&private));
        // However a process leaves, it drops this.
        drop(windows);
        drop(region);
        assert!(is_open(&shared) && !is_open(&private));
        let Place::Region(offset) = shared.place else { panic!("it is in the region") };
        assert_eq!(peer.view(offset.0, 3).unwrap().unwrap().bytes(), b"abc");
    }

    #[test]
    fn what_is_being_written_is_not_shown() {
        let windows = Windows::new(None);
        let buffer = Buffer::new(Box::new(vec![0u8; 10]));
        let window = windows.publish(Content::Buffer(buffer.clone())).unwrap();
        let _writer = buffer.write(2, 2).unwrap();
        let read =
            |start, len| block_on(windows.read(window.window, window.generation, ByteRange { start, len }));
        assert!(read(0, 2).is_ok());
        assert!(matches!(read(0, 3), Err(WindowError::Range { .. })));
        assert!(matches!(read(9, 2), Err(WindowError::Range { .. })));
    }
}
