//! State that a process keeps in its region for others to read after its death, found by name.
//!
//! A region has one catalogue, at a fixed place: a process that can read the region finds all state in it,
//! and nothing has to be told beforehand. The rules are those of [`everfold_protocol::kept`]: so a death at
//! any moment leaves the earlier state, the later one, or both, of which the later counts.
//!
//! Kept state is read through the agent of the host, also while its process lives: a checksum shows whether
//! it was replaced meanwhile.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

pub use everfold_protocol::kept::Entry;
pub(crate) use everfold_protocol::kept::{Search, Sight};
use everfold_protocol::{
    Generation, RegionOffset, WindowId,
    kept::{CLOSED, Replacing, Slots, WORDS, Write, checksum},
    message::{ByteRange, Place, WindowRef},
};

use super::{
    mapping::{GENERATIONS, Mapping, UNIT_BYTES},
    region::{Block, Region},
    seqlock,
};

/// How many states a process can keep at once. One more entry is free while a state is replaced.
pub const STATES_MAX: usize = Mapping::CATALOGUE_BYTES / (WORDS * size_of::<u64>()) - 1;
/// The window through which agents show all of a region. No other window has its number.
pub(super) const WHOLE: usize = GENERATIONS - 1;
/// Of that window.
pub(super) const GENERATION: u64 = 1;
const _: () = assert!(CLOSED == seqlock::CLOSED, "an entry has its generation as a window has");

/// What stands for the name of a state.
pub fn name(name: &str) -> u64 {
    checksum(name.as_bytes())
}

/// Where a catalogue is read.
pub(crate) fn window() -> (WindowRef, RegionOffset, ByteRange) {
    let (bytes, offset) = (Mapping::CATALOGUE_BYTES as u64, Mapping::CATALOGUE as u64);
    (whole(bytes, offset), RegionOffset(offset), ByteRange { start: 0, len: bytes })
}

/// Where a state is read.
pub(crate) fn window_of(entry: &Entry) -> (WindowRef, RegionOffset) {
    (whole(entry.bytes(), entry.offset()), RegionOffset(entry.offset()))
}

fn whole(bytes: u64, offset: u64) -> WindowRef {
    WindowRef {
        window: WindowId(WHOLE as u64),
        generation: Generation(GENERATION),
        bytes,
        checksum: None,
        place: Place::Region(RegionOffset(offset)),
    }
}

/// What of a region is kept: whole units, ascending, those of the head and the tables among them.
pub(crate) fn kept_ranges(catalogue: &[u8]) -> Vec<Range<u64>> {
    let unit = UNIT_BYTES as u64;
    let states = Entry::all(catalogue).map(|entry| {
        let end = entry.offset().saturating_add(entry.bytes());
        entry.offset() / unit * unit..end.div_ceil(unit).saturating_mul(unit)
    });
    let mut ranges: Vec<Range<u64>> = std::iter::once(0..Mapping::BLOCKS as u64).chain(states).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}

/// Why something is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// There is no region, it is full, or its process has left the job.
    #[error("there is no room for it in shared memory")]
    NoRoom,
    /// The process keeps as much as it may.
    #[error("this process keeps {STATES_MAX} states already, which is the limit")]
    TooMany,
}

/// The state that this process keeps.
#[derive(Debug)]
pub struct Catalogue {
    region: Arc<Region>,
    slots: Mutex<Slots<Block>>,
}

impl Catalogue {
    /// The empty catalogue of `region`, which has no other.
    pub fn new(region: Arc<Region>) -> Self {
        Self { region, slots: Mutex::new(Slots::new(STATES_MAX + 1)) }
    }

    /// Keeps `bytes` under `name`, in place of earlier ones. `tag` is their type and version, which readers
    /// compare.
    ///
    /// # Errors
    /// [`KeepError`]. The bytes that were kept before stay.
    pub fn keep(&self, name: u64, tag: u64, bytes: &[u8]) -> Result<(), KeepError> {
        let mut slots = self.lock();
        if !slots.has_room(name) {
            return Err(KeepError::TooMany);
        }
        let allocate = || self.region.allocate(bytes.len().next_multiple_of(UNIT_BYTES));
        let fits = |block: &Block| block.bytes().len() >= bytes.len();
        let mut replacing: Replacing<Block> = slots.begin(name, fits, allocate).ok_or(KeepError::NoRoom)?;
        replacing.block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let place = (replacing.block.offset(), bytes.len() as u64, checksum(bytes));
        slots.commit(replacing, tag, place).for_each(|write| self.write(write));
        Ok(())
    }

    /// Keeps nothing under `name` any more. Returns whether anything was.
    pub fn release(&self, name: u64) -> bool {
        let mut slots = self.lock();
        let write = slots.release(name);
        write.into_iter().for_each(|write| self.write(write));
        write.is_some()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn write(&self, write: Write) {
        match write {
            Write::Fill(entry, filled) => {
                let words = self.entry(entry).iter().skip(1);
                words.zip(filled).for_each(|(word, value)| word.store(value, Relaxed));
            }
            Write::Open(entry, generation) => seqlock::open(&self.entry(entry)[0], generation),
            Write::Close(entry) => seqlock::close(&self.entry(entry)[0]),
        }
    }

    fn entry(&self, entry: usize) -> &[AtomicU64] {
        &self.region.catalogue()[entry * WORDS..][..WORDS]
    }

    fn lock(&self) -> MutexGuard<'_, Slots<Block>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::peer_region::PeerRegion, *};

    /// What a reader finds.
    fn read(peer: &PeerRegion, name: u64) -> Option<(u64, Vec<u8>)> {
        let mut search = Search::new(name);
        let mut look = || {
            let catalogue = peer.view(Mapping::CATALOGUE as u64, Mapping::CATALOGUE_BYTES as u64);
            search.look(catalogue.unwrap().unwrap().bytes())
        };
        let sight = match look() {
            Sight::Unsure => look(),
            sure => sure,
        };
        let entry = match sight {
            Sight::Kept(entry) => entry,
            sight => {
                assert_eq!(sight, Sight::Nothing, "nothing has changed meanwhile");
                return None;
            }
        };
        let bytes = peer.view(entry.offset(), entry.bytes()).unwrap().unwrap().bytes().to_vec();
        assert!(entry.is(&bytes));
        Some((entry.tag, bytes))
    }

    fn kept() -> (Arc<Region>, Catalogue, Arc<PeerRegion>) {
        let region = Region::new().unwrap();
        let peer = PeerRegion::open(std::process::id(), &region.handle()).unwrap();
        (region.clone(), Catalogue::new(region), peer)
    }

    #[test]
    fn what_is_kept_is_found_by_name_until_it_is_replaced_or_released() {
        let (region, catalogue, peer) = kept();
        assert!(catalogue.is_empty() && read(&peer, 7).is_none());
        catalogue.keep(7, 1, b"one").unwrap();
        catalogue.keep(8, 1, &[5; 100_000]).unwrap();
        assert_eq!(read(&peer, 7), Some((1, b"one".to_vec())));
        for (tag, text) in (2..).zip(["two", "", "three and more"]) {
            catalogue.keep(7, tag, text.as_bytes()).unwrap();
            assert_eq!(read(&peer, 7), Some((tag, text.as_bytes().to_vec())));
        }
        assert!(catalogue.release(7) && !catalogue.release(7));
        assert!(read(&peer, 7).is_none());
        assert_eq!(read(&peer, 8), Some((1, vec![5; 100_000])));
        region.retire();
        drop((region, catalogue));
        assert_eq!(read(&peer, 8), Some((1, vec![5; 100_000])), "a process that dies gives nothing back");
    }

    #[test]
    fn of_two_states_the_later_counts_and_a_half_written_one_does_not() {
        let (region, catalogue, peer) = kept();
        catalogue.keep(7, 1, b"one").unwrap();
        let earlier: Vec<u64> = region.catalogue()[..WORDS].iter().map(|word| word.load(Relaxed)).collect();
        catalogue.keep(7, 2, b"two").unwrap();
        // It has died before it cleared the earlier entry.
        region.catalogue()[..WORDS].iter().zip(earlier).for_each(|(word, value)| word.store(value, Relaxed));
        assert_eq!(read(&peer, 7), Some((2, b"two".to_vec())));
        // It has died before it wrote the later one's generation.
        seqlock::close(&region.catalogue()[WORDS]);
        assert_eq!(read(&peer, 7), Some((1, b"one".to_vec())));
    }

    /// What a reader has of the catalogue that passes the first entry before `change`, and the others behind
    /// it.
    fn torn(region: &Region, change: impl FnOnce()) -> Vec<u8> {
        let bytes = |words: &[AtomicU64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect()
        };
        let mut catalogue = bytes(&region.catalogue()[..WORDS]);
        change();
        catalogue.extend(bytes(&region.catalogue()[WORDS..]));
        catalogue
    }

    #[test]
    fn a_state_that_is_replaced_while_it_is_looked_for_is_there() {
        let (region, catalogue, _) = kept();
        catalogue.keep(7, 1, b"one").unwrap();
        catalogue.keep(7, 2, b"two").unwrap();
        let mut search = Search::new(7);
        for tag in [3, 5] {
            // From the second entry to the first, behind which the reader is.
            let missed = torn(&region, || catalogue.keep(7, tag, b"more").unwrap());
            assert_eq!(search.look(&missed), Sight::Unsure, "at {tag}");
            catalogue.keep(7, tag + 1, b"yet more").unwrap();
        }
        let found = search.look(&torn(&region, || ()));
        assert!(matches!(found, Sight::Kept(entry) if entry.tag == 6), "{found:?}");
        catalogue.release(7);
        assert_eq!(search.look(&torn(&region, || ())), Sight::Unsure);
        assert_eq!(search.look(&torn(&region, || ())), Sight::Nothing);
    }

    #[test]
    fn there_is_a_limit() {
        let (_region, catalogue, peer) = kept();
        (0..STATES_MAX as u64).for_each(|name| catalogue.keep(name, 0, b"x").unwrap());
        assert_eq!(catalogue.keep(STATES_MAX as u64, 0, b"x"), Err(KeepError::TooMany));
        catalogue.keep(3, 2, b"y").unwrap();
        assert_eq!(read(&peer, 3), Some((2, b"y".to_vec())));
        assert_eq!(catalogue.keep(3, 0, &vec![0; 1 << 20]), Ok(()));
    }

    #[test]
    fn whole_units_are_kept() {
        let (region, catalogue, _) = kept();
        catalogue.keep(7, 0, &[1; 70_000]).unwrap();
        let bytes: Vec<u8> =
            region.catalogue().iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let (head, blocks) = (Mapping::BLOCKS as u64, 2 * UNIT_BYTES as u64);
        let [first, state] = kept_ranges(&bytes).try_into().unwrap();
        assert_eq!(first, 0..head);
        assert!(state.start >= head && state.end - state.start == blocks);
    }
}
