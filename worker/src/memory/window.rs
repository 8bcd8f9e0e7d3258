//! Which memory peers may read, and until when.
//!
//! A window is a slot in a table. Publishing takes a slot and gives it a generation that this process never used
//! before; the generation also stands in the shared region, where peers on the same host compare it before and after
//! they read (I3). Releasing clears both.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use dashmap::DashMap;
use everfold_protocol::{
    Generation, RegionOffset, WindowId,
    message::{ByteRange, Place, WindowRef},
};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    buffer::{Buffer, ReadLease},
    region::{GENERATIONS, Region},
};
use crate::keeper::Kept;

/// What a window shows.
#[derive(Clone, Debug)]
pub enum Content {
    /// An array or a partial of one.
    Buffer(Arc<Buffer>),
    /// An encoded object.
    Encoded(Bytes),
    /// What a keeper holds. It is read when somebody asks for it.
    Kept(Arc<Kept>),
}

/// This process's windows.
#[derive(Debug)]
pub struct Windows {
    table: DashMap<WindowId, (Generation, Content)>,
    region: Option<Arc<Region>>,
    free: Mutex<Vec<usize>>,
    generation: AtomicU64,
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
    /// What was kept cannot be read, or is not what was kept. Why stands in this process's log.
    #[error("what was kept for the window is damaged or cannot be read")]
    Damaged,
}

/// Bytes of a window that stay as they are while this is held.
#[derive(Debug)]
pub enum Held {
    /// Of an array.
    Lease(ReadLease),
    /// Of an encoded object, or of what was kept.
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

/// What a window has for a reader.
enum Found {
    Here(Held),
    Kept(Arc<Kept>),
}

impl Windows {
    /// A table without windows. Without a region peers can only ask the server.
    pub fn new(region: Option<Arc<Region>>) -> Self {
        Self {
            table: DashMap::new(),
            region,
            free: Mutex::new((0..GENERATIONS).rev().collect()),
            generation: AtomicU64::new(1),
        }
    }

    /// Memory that peers can map, if there is any.
    pub fn region(&self) -> Option<&Arc<Region>> {
        self.region.as_ref()
    }

    /// Shows `content` to peers until [`release`](Self::release). `None` if too many windows are open.
    pub fn publish(&self, content: Content) -> Option<WindowRef> {
        let slot = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        let generation = Generation(self.generation.fetch_add(1, Ordering::Relaxed));
        let window = WindowId(slot as u64);
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
                let address = bytes.as_ptr() as u64;
                let place = self.region.as_ref().map_or(Place::Served, |_| Place::Memory(address));
                (bytes.len() as u64, Some(xxh3_64(bytes)), place)
            }
            Content::Kept(kept) => (kept.bytes, None, Place::Served),
        };
        self.table.insert(window, (generation, content));
        if let Some(region) = &self.region {
            region.generation(slot).store(generation.0, Ordering::Release);
        }
        Some(WindowRef { window, generation, bytes, checksum, place })
    }

    /// Hides a window. Reads under way end with an error; none starts any more.
    pub fn release(&self, window: &WindowRef) {
        let slot = window.window.0 as usize;
        if self
            .table
            .remove_if(&window.window, |_, (generation, _)| *generation == window.generation)
            .is_some()
        {
            if let Some(region) = &self.region {
                region.generation(slot).store(0, Ordering::Release);
            }
            self.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        }
    }

    /// Holds `range` of a window for a reader. Waits only for what has to be read from disk.
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
            tracing::warn!(%error, "what is kept cannot be read");
            WindowError::Damaged
        })
    }

    fn find(&self, window: WindowId, generation: Generation, range: ByteRange) -> Result<Found, WindowError> {
        let ByteRange { start, len } = range;
        let refused = WindowError::Range { start, end: start.saturating_add(len) };
        let entry = self.table.get(&window).ok_or(WindowError::Released)?;
        match &*entry {
            (current, _) if *current != generation => Err(WindowError::Released),
            (_, Content::Buffer(buffer)) => {
                buffer.read(start, len).map(|lease| Found::Here(Held::Lease(lease))).map_err(|_| refused)
            }
            (_, Content::Encoded(bytes)) => {
                let end = start.checked_add(len).filter(|&end| end <= bytes.len() as u64).ok_or(refused)?;
                Ok(Found::Here(Held::Bytes(bytes.slice(start as usize..end as usize))))
            }
            (_, Content::Kept(kept)) => {
                let inside = start.checked_add(len).is_some_and(|end| end <= kept.bytes);
                if inside { Ok(Found::Kept(kept.clone())) } else { Err(refused) }
            }
        }
    }

    /// Whether `window` is open and shows `buffer`.
    pub fn shows(&self, window: &WindowRef, buffer: &Arc<Buffer>) -> bool {
        self.table.get(&window.window).is_some_and(|entry| match &*entry {
            (generation, Content::Buffer(shown)) => {
                *generation == window.generation && Arc::ptr_eq(shown, buffer)
            }
            (_, Content::Encoded(_) | Content::Kept(_)) => false,
        })
    }

    /// Number of open windows.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no window is open.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

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
        let seen = || region.generation(window.window.0 as usize).load(Ordering::Acquire);
        assert_eq!(seen(), window.generation.0);
        windows.release(&window);
        assert_eq!(seen(), 0);
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
