//! The rules of what a process keeps in its memory for others to read after its death, found by name.
//!
//! A *catalogue* is a table of entries, each of which names a state by where its bytes lie. What is kept
//! under a name is replaced as a whole. Its bytes are written into a block that no entry names, then an entry
//! is filled, its generation is written last, which is its commit mark, and only then the entry before is
//! closed. So a death at any moment leaves the earlier state, the later one, or both, of which the later
//! counts.
//!
//! Two blocks per name take turns. A reader does not stop the process from replacing what it reads: a
//! checksum tells.
//!
//! | type | is |
//! |---|---|
//! | [`Slots`] | what the process knows of its catalogue: which [`Write`]s replace a state |
//! | [`Entry`] | a state as it was found |
//! | [`Search`] | a reader that looks for a state |

use alloc::{collections::BTreeMap, vec::Vec};

use xxhash_rust::xxh3::xxh3_64;

/// Words of an entry: its generation, and what it is [filled](Write::Fill) with; the rest is spare.
pub const WORDS: usize = 8;
/// What stands instead of a generation in an entry that names nothing.
pub const CLOSED: u64 = 0;

/// What stands for the bytes of a state, and for its name.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// A state as it was found in a catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    generation: u64,
    name: u64,
    /// What the process says of it.
    pub tag: u64,
    offset: u64,
    bytes: u64,
    checksum: u64,
}

impl Entry {
    /// All that is kept.
    pub fn all(catalogue: &[u8]) -> impl Iterator<Item = Self> + '_ {
        Self::with_closed(catalogue).filter(|entry| entry.generation != CLOSED)
    }

    /// Also what is not kept any more.
    fn with_closed(catalogue: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let entry = |bytes: &[u8; WORDS * size_of::<u64>()]| {
            let (words, _) = bytes.as_chunks::<8>();
            let [generation, name, tag, offset, bytes, checksum] =
                core::array::from_fn(|word| u64::from_ne_bytes(words[word]));
            Self { generation, name, tag, offset, bytes, checksum }
        };
        let (entries, _) = catalogue.as_chunks();
        entries.iter().map(entry)
    }

    /// Where its bytes lie.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether this is what was kept.
    pub fn is(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.bytes && checksum(bytes) == self.checksum
    }
}

/// Looks for a state in a catalogue that may change while it is read.
///
/// A reader may see the entry before when that is cleared already, and have passed the later one's place
/// before that was filled. So one look that finds nothing says nothing. Two that find the same closed entries
/// of the name do: whatever is kept between them leaves others there, as its `tag` differs.
#[derive(Debug)]
pub struct Search {
    name: u64,
    /// The closed entries of that name at the last look.
    closed: Option<Vec<Entry>>,
}

/// What a look into a catalogue has shown.
#[derive(Debug, PartialEq, Eq)]
pub enum Sight {
    /// This is kept.
    Kept(Entry),
    /// Nothing is kept under the name.
    Nothing,
    /// It may have been replaced meanwhile.
    Unsure,
}

impl Search {
    /// A search for what is kept under `name`.
    pub fn new(name: u64) -> Self {
        Self { name, closed: None }
    }

    /// Looks into what was read of the catalogue.
    pub fn look(&mut self, catalogue: &[u8]) -> Sight {
        let of_name = Entry::with_closed(catalogue).filter(|entry| entry.name == self.name);
        let (closed, open): (Vec<_>, Vec<_>) = of_name.partition(|entry| entry.generation == CLOSED);
        if let Some(entry) = open.into_iter().max_by_key(|entry| entry.generation) {
            self.closed = None;
            return Sight::Kept(entry);
        }
        let before = self.closed.replace(closed);
        if before == self.closed { Sight::Nothing } else { Sight::Unsure }
    }
}

/// A process writes into its catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// These words stand behind the generation of an entry, which is closed: name, tag, offset, length and
    /// checksum.
    Fill(usize, [u64; 5]),
    /// An entry counts from now on, with this generation. Whatever was written before is there for who sees
    /// it.
    Open(usize, u64),
    /// An entry names nothing any more.
    Close(usize),
}

/// What a process knows of its catalogue. `B` is a block of its memory.
#[derive(Debug)]
pub struct Slots<B> {
    states: BTreeMap<u64, State<B>>,
    free: Vec<usize>,
    generation: u64,
}

#[derive(Debug)]
struct State<B> {
    entry: usize,
    block: B,
    /// Where the next state goes.
    spare: Option<B>,
}

/// A state that is being replaced: its bytes go into `block`, which no entry names.
#[derive(Debug)]
pub struct Replacing<B> {
    /// Where its bytes go.
    pub block: B,
    name: u64,
}

impl<B> Slots<B> {
    /// An empty catalogue. Of its `entries` one is free while a state is replaced.
    pub fn new(entries: usize) -> Self {
        Self { states: BTreeMap::new(), free: (0..entries).rev().collect(), generation: CLOSED }
    }

    /// How many states there are.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Whether one more state can be kept, under this name.
    pub fn has_room(&self, name: u64) -> bool {
        self.states.contains_key(&name) || self.free.len() > 1
    }

    /// Finds a block for the state that is to be kept under `name`: the one that is not in use, if it `fits`,
    /// or else one that is allocated. Nothing if there is none: the state before stays.
    pub fn begin(
        &mut self,
        name: u64,
        fits: impl FnOnce(&B) -> bool,
        allocate: impl FnOnce() -> Option<B>,
    ) -> Option<Replacing<B>> {
        let spare = self.states.get_mut(&name).and_then(|state| state.spare.take());
        let block = spare.filter(fits).or_else(allocate)?;
        Some(Replacing { block, name })
    }

    /// The words to write, one after the other, once the bytes of the state are in its block. The last
    /// argument is their offset, number and checksum.
    ///
    /// # Panics
    /// If there is [no room](Self::has_room).
    pub fn commit(
        &mut self,
        replacing: Replacing<B>,
        tag: u64,
        (offset, bytes, checksum): (u64, u64, u64),
    ) -> impl Iterator<Item = Write> + use<B> {
        let Replacing { block, name } = replacing;
        self.generation += 1;
        let entry = self.free.pop().expect("one entry more than there are states");
        let before = self.states.remove(&name);
        let close = before.as_ref().map(|state| Write::Close(state.entry));
        self.free.extend(before.as_ref().map(|state| state.entry));
        self.states.insert(name, State { entry, block, spare: before.map(|state| state.block) });
        let fill = Write::Fill(entry, [name, tag, offset, bytes, checksum]);
        [Some(fill), Some(Write::Open(entry, self.generation)), close].into_iter().flatten()
    }

    /// What is to be written so that nothing is kept under `name` any more, if anything is.
    pub fn release(&mut self, name: u64) -> Option<Write> {
        let state = self.states.remove(&name)?;
        self.free.push(state.entry);
        Some(Write::Close(state.entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A catalogue of four entries, and what its process has begun to write.
    struct Region(Vec<u64>, Slots<u64>);

    impl Region {
        fn new() -> Self {
            Self(vec![0; 4 * WORDS], Slots::new(4))
        }

        fn write(&mut self, write: Write) {
            match write {
                Write::Fill(entry, filled) => self.0[entry * WORDS + 1..][..5].copy_from_slice(&filled),
                Write::Open(entry, generation) => self.0[entry * WORDS] = generation,
                Write::Close(entry) => self.0[entry * WORDS] = CLOSED,
            }
        }

        /// Keeps a state of name 7, whose process dies after that many `writes`. Returns its block, and how
        /// many writes there were to be.
        fn keep(&mut self, tag: u64, fresh: u64, writes: usize) -> (u64, usize) {
            let replacing = self.1.begin(7, |_| true, || Some(fresh)).expect("there is a block");
            let block = replacing.block;
            let all: Vec<Write> = self.1.commit(replacing, tag, (block, 1, 0)).collect();
            all.iter().take(writes).for_each(|write| self.write(*write));
            (block, all.len())
        }

        fn look(&self) -> Option<(u64, u64)> {
            let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_ne_bytes()).collect();
            match Search::new(7).look(&bytes) {
                Sight::Kept(entry) => Some((entry.tag, entry.offset())),
                _ => None,
            }
        }
    }

    #[test]
    fn a_death_after_any_write_leaves_the_earlier_state_or_the_later_one() {
        let found = [None, None, Some((1, 10))];
        for (writes, found) in found.into_iter().enumerate() {
            let mut region = Region::new();
            assert_eq!(region.keep(1, 10, writes), (10, 2));
            assert_eq!(region.look(), found, "after {writes} writes");
        }
        for (writes, tag) in [1, 1, 2, 2].into_iter().enumerate() {
            let mut region = Region::new();
            region.keep(1, 10, 2);
            assert_eq!(region.keep(2, 11, writes), (11, 3));
            assert_eq!(region.look().map(|(tag, _)| tag), Some(tag), "after {writes} writes");
        }
        // Into an entry that has named something before.
        for (writes, tag) in [2, 2, 3, 3].into_iter().enumerate() {
            let mut region = Region::new();
            region.keep(1, 10, 2);
            region.keep(2, 11, 3);
            region.keep(3, 12, writes);
            assert_eq!(region.look().map(|(tag, _)| tag), Some(tag), "after {writes} writes");
        }
    }

    #[test]
    fn two_blocks_take_turns_and_none_is_written_that_an_entry_names() {
        let mut region = Region::new();
        let blocks: Vec<u64> = (1..6).map(|tag| region.keep(tag, 10 + tag, 3).0).collect();
        assert_eq!(blocks, [11, 12, 11, 12, 11]);
        assert_eq!(region.look(), Some((5, 11)));
        let write = region.1.release(7).expect("it is kept");
        region.write(write);
        assert_eq!((region.look(), region.1.is_empty(), region.1.release(7)), (None, true, None));
    }

    #[test]
    fn one_entry_stays_free() {
        let mut slots = Slots::new(3);
        for name in 0..2 {
            assert!(slots.has_room(name));
            let replacing = slots.begin(name, |_| true, || Some(name)).expect("there is a block");
            slots.commit(replacing, 0, (0, 0, 0)).for_each(drop);
        }
        assert!(!slots.has_room(2) && slots.has_room(1));
        assert!(
            slots.begin(1, |_| true, || None).is_none(),
            "nothing is allocated, and there is no other block"
        );
        assert_eq!(slots.len(), 2);
    }

    #[test]
    fn a_closed_entry_is_believed_when_it_is_seen_twice() {
        let mut region = Region::new();
        region.keep(1, 10, 2);
        let write = region.1.release(7).expect("it is kept");
        region.write(write);
        let bytes: Vec<u8> = region.0.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut search = Search::new(7);
        assert_eq!([search.look(&bytes), search.look(&bytes)], [Sight::Unsure, Sight::Nothing]);
    }
}
