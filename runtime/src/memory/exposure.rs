//! Parts of a region that a library shows to other hosts, such as MPI with a network that reads memory by
//! itself.
//!
//! Such a network pins the pages of the parts that it shows, and a region has room for all of the host's
//! memory. So a region is shown in parts, each as long as all before it together, as far as its blocks reach.
//! Readers [cut](cut) their ranges at the same places, because a read may not cross from one part into the
//! next.

use std::{fmt, io, ptr::NonNull, sync::Arc};

use everfold_protocol::message::ByteRange;

/// Length of the first part in bytes.
const FIRST_PART: u64 = 64 << 20;

/// Shows memory of this process to readers on other hosts.
pub trait Exposure: fmt::Debug + Send + Sync {
    /// Shows `bytes` bytes from `start` on.
    ///
    /// # Safety
    /// They stay mapped as long as the process lives: a library may answer a late reader when it ends.
    ///
    /// # Errors
    /// What the library says, for instance that no more memory may be pinned.
    unsafe fn show(&self, start: NonNull<u8>, bytes: usize) -> io::Result<()>;
}

/// The parts of one region that are shown.
#[derive(Debug)]
pub(super) struct Exposed {
    to: Arc<dyn Exposure>,
    region: NonNull<u8>,
    region_bytes: u64,
    /// Where the last part ends, counted from the beginning of the region.
    end: u64,
    has_failed: bool,
}

// SAFETY: it only passes addresses on; the memory belongs to the region that holds it.
unsafe impl Send for Exposed {}

impl Exposed {
    /// Shows nothing yet of the region of `region_bytes` bytes that begins at `region`.
    ///
    /// # Safety
    /// The region stays mapped as long as the process lives.
    pub unsafe fn new(to: Arc<dyn Exposure>, region: NonNull<u8>, region_bytes: u64) -> Self {
        Self { to, region, region_bytes, end: 0, has_failed: false }
    }

    /// Shows the region up to `end` at least. What cannot be shown is read in another way.
    pub fn reach(&mut self, end: u64) {
        while !self.has_failed && self.end < end {
            let next = part_end(self.end).min(self.region_bytes);
            let bytes = (next - self.end) as usize;
            // SAFETY: the part lies in the region, which stays mapped.
            match unsafe { self.to.show(self.at(self.end), bytes) } {
                Ok(()) => self.end = next,
                Err(error) => {
                    tracing::warn!(%error, bytes, "memory that cannot be shown is read over TCP");
                    self.has_failed = true;
                }
            }
        }
    }

    fn at(&self, offset: u64) -> NonNull<u8> {
        // SAFETY: offsets are ends of parts, which lie in the region.
        unsafe { self.region.add(offset as usize) }
    }
}

/// The end of the part that begins at `start`, or in which `start` lies.
fn part_end(start: u64) -> u64 {
    (start + 1).next_power_of_two().max(FIRST_PART)
}

/// Cuts a range of a region where its parts end.
pub fn cut(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        (start < range.end()).then(|| {
            let len = part_end(start).min(range.end()) - start;
            let piece = ByteRange { start, len };
            start += len;
            piece
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Notes how long the parts are that are shown, and refuses more than `bytes_max` in all.
    #[derive(Debug)]
    struct Notes {
        shown: Mutex<Vec<u64>>,
        bytes_max: u64,
    }

    impl Exposure for Notes {
        unsafe fn show(&self, _: NonNull<u8>, bytes: usize) -> io::Result<()> {
            let mut shown = self.shown.lock().unwrap();
            if shown.iter().sum::<u64>() + bytes as u64 > self.bytes_max {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            shown.push(bytes as u64);
            Ok(())
        }
    }

    fn exposed(bytes_max: u64) -> (Arc<Notes>, Exposed) {
        let notes = Arc::new(Notes { shown: Mutex::default(), bytes_max });
        // SAFETY: nobody reads or writes there.
        let exposed = unsafe { Exposed::new(notes.clone(), NonNull::dangling(), 3 * FIRST_PART) };
        (notes, exposed)
    }

    #[test]
    fn as_much_is_shown_as_is_needed() {
        let (notes, mut exposed) = exposed(u64::MAX);
        let parts = || notes.shown.lock().unwrap().clone();
        exposed.reach(1);
        assert_eq!(parts(), [FIRST_PART]);
        exposed.reach(FIRST_PART);
        assert_eq!(parts(), [FIRST_PART], "that is shown already");
        exposed.reach(FIRST_PART + 1);
        assert_eq!(parts(), [FIRST_PART; 2]);
        exposed.reach(3 * FIRST_PART);
        assert_eq!(parts(), [FIRST_PART; 3], "the region ends");
    }

    #[test]
    fn what_cannot_be_shown_is_not_tried_again() {
        let (notes, mut exposed) = exposed(FIRST_PART);
        exposed.reach(2 * FIRST_PART);
        exposed.reach(3 * FIRST_PART);
        assert_eq!(*notes.shown.lock().unwrap(), [FIRST_PART]);
    }

    #[test]
    fn no_piece_crosses_from_part_to_part() {
        let range = ByteRange { start: FIRST_PART - 1, len: 3 * FIRST_PART + 2 };
        let pieces: Vec<_> = cut(range).map(|piece| (piece.start, piece.len)).collect();
        let expected = [
            (FIRST_PART - 1, 1),
            (FIRST_PART, FIRST_PART),
            (2 * FIRST_PART, 2 * FIRST_PART),
            (4 * FIRST_PART, 1),
        ];
        assert_eq!(pieces, expected);
        assert_eq!(cut(ByteRange { start: 5, len: 0 }).count(), 0);
    }
}
