//! What a process keeps in its region for others to read after its death, found by name.
//!
//! A region has one catalogue, at a fixed place: who can read the region finds everything in it, and nothing
//! has to be told beforehand. What is kept under a name is replaced as a whole. Its bytes are written into a
//! block that no entry names, then an entry is filled, its generation is written last, and only then the entry
//! before is cleared. So a death at any moment leaves the earlier state, the later one, or both, of which the
//! later counts.
//!
//! Two blocks per name take turns. What is kept is read through the agent of the host, also while its process
//! lives: a checksum tells what was replaced meanwhile.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use everfold_protocol::{
    Generation, RegionOffset, WindowId,
    message::{ByteRange, Place, WindowRef},
};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    mapping::{GENERATIONS, Mapping, UNIT_BYTES},
    region::{Block, Region},
    seqlock,
};

/// Words of an entry.
const WORDS: usize = 8;
/// How many states a process can keep at once. One more entry is free while a state is replaced.
pub const STATES_MAX: usize = Mapping::CATALOGUE_BYTES / (WORDS * size_of::<u64>()) - 1;
/// The window through which agents show all of a region. No other window has its number.
pub(super) const WHOLE: usize = GENERATIONS - 1;
/// Of that window.
pub(super) const GENERATION: u64 = 1;

/// What stands for the name of a state.
pub fn name(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

/// A state as it was found in a catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    generation: u64,
    name: u64,
    /// What the process says of it; see [`Catalogue::keep`].
    pub tag: u64,
    offset: u64,
    bytes: u64,
    checksum: u64,
}

impl Entry {
    fn all(catalogue: &[u8]) -> impl Iterator<Item = Self> + '_ {
        Self::with_closed(catalogue).filter(|entry| entry.generation != seqlock::CLOSED)
    }

    /// Also what is not kept any more.
    fn with_closed(catalogue: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let entry = |bytes: &[u8; WORDS * size_of::<u64>()]| {
            let (words, _) = bytes.as_chunks::<8>();
            let [generation, name, tag, offset, bytes, checksum] =
                std::array::from_fn(|word| u64::from_ne_bytes(words[word]));
            Self { generation, name, tag, offset, bytes, checksum }
        };
        let (entries, _) = catalogue.as_chunks();
        entries.iter().map(entry)
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it is read.
    pub(crate) fn window(&self) -> (WindowRef, RegionOffset) {
        (whole(self.bytes, self.offset), RegionOffset(self.offset))
    }

    /// Whether this is what was kept.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.bytes && xxh3_64(bytes) == self.checksum
    }
}

/// Looks for a state in a catalogue that may change while it is read.
///
/// A reader may see the entry before when that is cleared already, and have passed the later one's place before that was
/// filled. So one look that finds nothing says nothing. Two that find the same closed entries of the name do: whatever is
/// kept between them leaves others there, as its `tag` differs.
#[derive(Debug)]
pub(crate) struct Search {
    name: u64,
    /// The closed entries of that name at the last look.
    closed: Option<Vec<Entry>>,
}

/// What a look into a catalogue has shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// This is kept.
    Kept(Entry),
    /// Nothing is kept under the name.
    Nothing,
    /// It may have been replaced meanwhile.
    Unsure,
}

impl Search {
    pub(crate) fn new(name: u64) -> Self {
        Self { name, closed: None }
    }

    /// Looks into what was read of the catalogue.
    pub(crate) fn look(&mut self, catalogue: &[u8]) -> Sight {
        let of_name = Entry::with_closed(catalogue).filter(|entry| entry.name == self.name);
        let (closed, open): (Vec<_>, Vec<_>) = of_name.partition(|entry| entry.generation == seqlock::CLOSED);
        if let Some(entry) = open.into_iter().max_by_key(|entry| entry.generation) {
            self.closed = None;
            return Sight::Kept(entry);
        }
        let before = self.closed.replace(closed);
        if before == self.closed { Sight::Nothing } else { Sight::Unsure }
    }
}

/// Where a catalogue is read.
pub(crate) fn window() -> (WindowRef, RegionOffset, ByteRange) {
    let (bytes, offset) = (Mapping::CATALOGUE_BYTES as u64, Mapping::CATALOGUE as u64);
    (whole(bytes, offset), RegionOffset(offset), ByteRange { start: 0, len: bytes })
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
        let end = entry.offset.saturating_add(entry.bytes);
        entry.offset / unit * unit..end.div_ceil(unit).saturating_mul(unit)
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

/// What this process keeps.
#[derive(Debug)]
pub struct Catalogue {
    region: Arc<Region>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    states: BTreeMap<u64, State>,
    free: Vec<usize>,
    generation: u64,
}

#[derive(Debug)]
struct State {
    entry: usize,
    block: Block,
    /// Where the next state goes.
    spare: Option<Block>,
}

impl Catalogue {
    /// The empty catalogue of `region`, which has no other.
    pub fn new(region: Arc<Region>) -> Self {
        let inner = Inner { states: BTreeMap::new(), free: (0..=STATES_MAX).rev().collect(), generation: 0 };
        Self { region, inner: Mutex::new(inner) }
    }

    /// Keeps `bytes` under `name`, in place of what was there. `tag` says what they are: readers compare it.
    ///
    /// # Errors
    /// [`KeepError`]. What was kept before stays.
    pub fn keep(&self, name: u64, tag: u64, bytes: &[u8]) -> Result<(), KeepError> {
        let mut inner = self.lock();
        if inner.states.len() == STATES_MAX && !inner.states.contains_key(&name) {
            return Err(KeepError::TooMany);
        }
        let mut before = inner.states.remove(&name);
        let spare = before.as_mut().and_then(|state| state.spare.take());
        let fits = spare.filter(|block| block.bytes().len() >= bytes.len());
        let Some(mut block) = fits.or_else(|| self.region.allocate(bytes.len().next_multiple_of(UNIT_BYTES)))
        else {
            before.and_then(|state| inner.states.insert(name, state));
            return Err(KeepError::NoRoom);
        };
        block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        inner.generation += 1;
        let generation = inner.generation;
        let entry = inner.free.pop().expect("one entry more than there are states");
        let (mark, words) = self.entry(entry).split_first().expect("an entry has words");
        let filled = [name, tag, block.offset(), bytes.len() as u64, xxh3_64(bytes)];
        words.iter().zip(filled).for_each(|(word, value)| word.store(value, Relaxed));
        seqlock::open(mark, generation);
        let spare = before.map(|state| {
            self.clear(&mut inner, state.entry);
            state.block
        });
        inner.states.insert(name, State { entry, block, spare });
        Ok(())
    }

    /// Keeps nothing under `name` any more. Returns whether anything was.
    pub fn release(&self, name: u64) -> bool {
        let mut inner = self.lock();
        let Some(state) = inner.states.remove(&name) else { return false };
        self.clear(&mut inner, state.entry);
        true
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.lock().states.is_empty()
    }

    /// Names nothing by an entry any more: the next state may take it.
    fn clear(&self, inner: &mut Inner, entry: usize) {
        seqlock::close(&self.entry(entry)[0]);
        inner.free.push(entry);
    }

    fn entry(&self, entry: usize) -> &[AtomicU64] {
        &self.region.catalogue()[entry * WORDS..][..WORDS]
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
        let bytes = peer.view(entry.offset, entry.bytes).unwrap().unwrap().bytes().to_vec();
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

    /// What a reader has of the catalogue that passes the first entry before `change`, and the others behind it.
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
