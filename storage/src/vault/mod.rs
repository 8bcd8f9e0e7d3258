//! What a rank needs in order to come back after its process has died: its last checkpoint, and the outcomes
//! of reductions that it has seen since, the *result log*.
//!
//! The process of the rank writes both into two files that outlive it: memfds, which the agent of the host
//! keeps open and hands to the next incarnation of the rank. Each of the two, a [`Half`], holds one
//! generation: a checkpoint and the log behind it. The next checkpoint goes into the other half.
//!
//! | module | holds |
//! |---|---|
//! | `opening` | which generation is in force |
//! | `draft` | a checkpoint while it is being written |
//! | `state`, `log` | checkpoints and outcomes as they are read; appending |
//! | `stream` | outcomes out of the bytes of a log, as they come from elsewhere |
//! | `detached` | the state of a generation in a file of its own |
//! | `layout` | marks and heads of records as bytes |
//! | `file` | one of the two files, and all that is done to it |
//! | `names`, `options`, `error` | what callers say and hear |
//!
//! # Invariants
//! - A generation is complete or absent (I10). The last byte of its mark, the seal, is written last. Until
//!   then the generation before is in force, and its half is untouched.
//! - A checkpoint is written as a [`Draft`], for as long as it takes. Outcomes that are appended meanwhile go to the log in
//!   force, and are copied behind the draft's state before its seal is written: a process that goes on from either generation
//!   finds all outcomes since then.
//! - An outcome that [`Vault::append`] has acknowledged is there as long as the files are, until a checkpoint
//!   replaces it. One that was not is there as a whole or not at all.
//! - A record is complete or absent. Its first byte, its seal, is written last, and where the next one would
//!   begin lies a byte that says that the log ends. What is torn has no seal; what has a seal and is not whole
//!   is damaged.
//! - Nothing is read as anything but what was written: all bytes have checksums, and those of records cover
//!   their place and their generation. So memory of earlier generations is written over as it is.
//! - The log has a limit (I12), and over it a call says so.
//!
//! A death at any byte is harmless. A bit that has changed is told when it is read, and an older generation
//! is never taken for a damaged newer one.
//!
//! # Layout
//! All integers are little-endian, all checksums are xxh3. A half:
//!
//! | offset | bytes | holds |
//! |---|---|---|
//! | 0 | 4 | the mark: magic `evvt` |
//! | 4 | 2 | version of the format |
//! | 6 | 2 | zero |
//! | 8 | 8 | job |
//! | 16 | 4 | rank |
//! | 20 | 4 | zero |
//! | 24 | 8 | generation |
//! | 32 | 8 | length of the header in bytes, *h* |
//! | 40 | 8 | number of parts, *n* |
//! | 48 | 8 | length of all parts in bytes, *b* |
//! | 56 | 8 | checksum of the header |
//! | 64 | 8 | checksum of the table of parts |
//! | 72 | 7 | zero |
//! | 79 | 8 | checksum of bytes 0..79, the *seed* of the records |
//! | 87 | 1 | the seal: 0xa5; 0x5a if the log lacks an outcome; 0 as long as the generation is not complete |
//! | 88 | *h* | the header |
//! | 88 + *h* | *b* | the parts |
//! | 88 + *h* + *b* | 16 *n* | the table of parts: for each its length in bytes, 8, and its checksum, 8 |
//! | 88 + *h* + *b* + 16 *n* | … | the log: records, one behind the other, and a byte that is 0 |
//! | … | … | nothing of worth |
//!
//! A record of the log:
//!
//! | offset | bytes | holds |
//! |---|---|---|
//! | 0 | 1 | the seal: 0xa5, or 0 if the log ends here |
//! | 1 | 8 | length of the key in bytes, *k* |
//! | 9 | 8 | length of the value in bytes, *v* |
//! | 17 | 8 | checksum of the key |
//! | 25 | 8 | checksum of bytes 1..25 followed by the offset of the record in the file, seeded with the seed |
//! | 33 | *k* | the key |
//! | 33 + *k* | *v* | the value |
//! | 33 + *k* + *v* | 8 | checksum of the value, seeded with the number at 25 |
//!
//! Magic, version and seal keep their places in every version of the format, so that an old reader can tell a
//! newer vault from none, and does not begin another one in it.
//!
//! # Deliberately absent
//! Any decision about when to save, what to do when the log is full, or whether to come back; what headers
//! and keys mean; making, finding and handing over the files. The caller sees to it that one process at a
//! time writes: the files of a process are handed on when its end has been seen. A seal that somebody
//! else overwrites with zero cannot be told from one that was never written.
//!
//! # Example
//! ```
//! use std::io::IoSlice;
//!
//! use everfold_protocol::{JobId, Rank};
//! use everfold_storage::vault::{Options, Owner, Vault};
//!
//! let owner = Owner { job: JobId(1), rank: Rank(3) };
//! let options = Options::in_memory(64 << 20);
//! let files = [tempfile::tempfile()?, tempfile::tempfile()?];
//! let kept = [files[0].try_clone()?, files[1].try_clone()?];
//!
//! let mut vault = Vault::create(files, owner, options)?;
//! vault.checkpoint(b"step 10", &[b"the field", b"the mesh"])?;
//! vault.append(b"residual #11", &[IoSlice::new(b"0.5")])?;
//! drop(vault); // or the process was killed
//!
//! let (vault, remembered) = Vault::open(kept, owner, options)?;
//! let checkpoint = remembered.checkpoint.expect("there was one");
//! assert_eq!(checkpoint.header(), b"step 10");
//! let mut field = vec![0; checkpoint.parts()[0].bytes() as usize];
//! vault.read_part(&checkpoint.parts()[0], &mut field)?;
//! assert_eq!(field, b"the field");
//! let outcome = &remembered.outcomes[0];
//! assert_eq!(outcome.key(), b"residual #11");
//! let mut value = vec![0; outcome.value_bytes() as usize];
//! vault.read_value(outcome, &mut value)?;
//! assert_eq!(value, b"0.5");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod cuts;
mod detached;
mod draft;
mod error;
mod file;
#[cfg(test)]
mod journal;
mod layout;
mod log;
mod names;
mod opening;
mod options;
mod state;
mod stream;

use std::{fs::File, io::IoSlice, sync::Arc};

pub use self::{
    detached::{Fingerprint, StateFile, StateSource},
    draft::Draft,
    error::{Damage, Piece, VaultError},
    layout::{MARK_BYTES, SEAL_AT},
    log::Outcome,
    names::{Extent, Generation, Half, Owner},
    options::Options,
    state::{Checkpoint, Part},
    stream::{KeyAndValue, LogStream, MarkBytes, log_start},
};
use self::{file::HalfFile, layout::LACKING, log::Log};

/// The last checkpoint of a rank, and the outcomes that it has seen since. Dropping it closes the files.
#[derive(Debug)]
pub struct Vault {
    halves: [HalfFile; 2],
    owner: Owner,
    options: Options,
    /// The half whose generation is in force.
    in_force: Half,
    /// The log of that generation.
    log: Log,
    /// Shared with the checkpoint that is being written.
    draft: Arc<()>,
    /// How often an outcome could not be written.
    lacks: u64,
}

/// What an earlier incarnation has left.
#[derive(Debug)]
pub struct Remembered {
    /// The generation that is in force.
    pub generation: Generation,
    /// Its state; `None` at the [beginning](Generation::BEGINNING).
    pub checkpoint: Option<Checkpoint>,
    /// The outcomes in its log, in the order in which they were appended.
    pub outcomes: Vec<Outcome>,
}

impl Vault {
    /// Makes an empty vault: no checkpoint and no outcomes. What was in the files is gone. They are open for
    /// reading and writing, and not for appending, which ignores where a write should go.
    ///
    /// # Errors
    /// [`VaultError::Io`].
    pub fn create(files: [File; 2], owner: Owner, options: Options) -> Result<Self, VaultError> {
        let mut halves = opening::halves(files)?;
        halves.iter_mut().try_for_each(|file| file.cut(0))?;
        let mut vault = Self::of(halves, owner, options, Half::Second, Log::NONE);
        let beginning = Draft::begin(&mut vault, Half::First, Generation::BEGINNING, b"")?;
        vault.seal(beginning)?;
        Ok(vault)
    }

    /// The vault in these files, in which that half is in force.
    fn of(halves: [HalfFile; 2], owner: Owner, options: Options, in_force: Half, log: Log) -> Self {
        Self { halves, owner, options, in_force, log, draft: Arc::default(), lacks: 0 }
    }

    /// Saves a checkpoint: a small `header` that the caller encodes, and `parts`, written straight from where
    /// they lie. Then the result log is empty.
    ///
    /// The generation before stays whole until the checkpoint after this one begins.
    ///
    /// # Errors
    /// [`VaultError::Io`]. The generation before stays in force, with its log.
    pub fn checkpoint(&mut self, header: &[u8], parts: &[&[u8]]) -> Result<Generation, VaultError> {
        let mut draft = self.begin(header)?;
        for part in parts {
            draft.part(part)?;
        }
        self.seal(draft)
    }

    /// Begins a checkpoint whose parts come one by one, one checkpoint at a time. [`seal`](Self::seal) ends it.
    ///
    /// # Errors
    /// [`VaultError::Io`]; [`VaultError::Drafted`] while another one is being written. The generation in force stays
    /// so.
    pub fn begin(&mut self, header: &[u8]) -> Result<Draft, VaultError> {
        self.begin_as(self.generation().next(), header)
    }

    /// As [`begin`](Self::begin), with a number that several ranks have agreed on.
    ///
    /// # Errors
    /// As there.
    /// # Panics
    /// If the number is not above that of the generation in force.
    pub fn begin_as(&mut self, generation: Generation, header: &[u8]) -> Result<Draft, VaultError> {
        assert!(generation > self.generation(), "generations are counted upwards");
        Draft::begin(self, self.in_force.other(), generation, header)
    }

    /// Writes an outcome into the result log: a small `key` that the caller encodes, and the bytes of its
    /// value, in as many slices as they lie in. When it returns, the outcome outlives this process.
    ///
    /// # Errors
    /// [`VaultError::Full`] or [`VaultError::Io`]. Nothing of the outcome is there then, and everything
    /// before it still is.
    pub fn append(&mut self, key: &[u8], value: &[IoSlice<'_>]) -> Result<(), VaultError> {
        let (log_bytes, record_bytes) = (self.log.bytes(), Log::record_bytes(key, value));
        let log_bytes_max = self.options.log_bytes_max;
        if record_bytes > log_bytes_max.saturating_sub(log_bytes) {
            return Err(VaultError::Full { log_bytes, record_bytes, log_bytes_max });
        }
        self.settle()?;
        self.log.append(&mut self.halves[self.in_force as usize], key, value)
    }

    /// As [`append`](Self::append), for an outcome that this process has yet to [read](Self::read_value): it comes
    /// from an earlier one.
    ///
    /// # Errors
    /// As there.
    pub fn take_over(&mut self, key: Vec<u8>, value: &[u8]) -> Result<Outcome, VaultError> {
        let at = self.log.end();
        self.append(&key, &[IoSlice::new(value)])?;
        Ok(self.log.outcome(at, key, value.len() as u64))
    }

    /// Lets nobody go on from the generation in force: an outcome that belongs in its log is not there.
    /// [`Vault::open`] says so until the next checkpoint is in force that was begun later.
    ///
    /// It writes over one byte, which takes no memory.
    ///
    /// # Errors
    /// [`VaultError::Io`].
    pub fn forbid(&mut self) -> Result<(), VaultError> {
        self.settle()?;
        self.lacks += 1;
        self.halves[self.in_force as usize].write(SEAL_AT, &[LACKING])
    }

    /// Fills `buffer` with a part of the checkpoint in force.
    ///
    /// # Errors
    /// [`VaultError::Damaged`], [`VaultError::Gone`] or [`VaultError::Io`]. What is in the buffer then is of
    /// no use.
    /// # Panics
    /// If the buffer is not as long as the part.
    pub fn read_part(&self, part: &Part, buffer: &mut [u8]) -> Result<(), VaultError> {
        assert_eq!(buffer.len() as u64, part.bytes(), "the buffer is as long as the part");
        part.read(self.file_of(part.generation)?, buffer)
    }

    /// Fills `buffer` with the value of an outcome in the log.
    ///
    /// # Errors
    /// [`VaultError::Damaged`], [`VaultError::Gone`] or [`VaultError::Io`]. What is in the buffer then is of
    /// no use.
    /// # Panics
    /// If the buffer is not as long as the value.
    pub fn read_value(&self, outcome: &Outcome, buffer: &mut [u8]) -> Result<(), VaultError> {
        assert_eq!(buffer.len() as u64, outcome.value_bytes(), "the buffer is as long as the value");
        outcome.read(self.file_of(outcome.generation)?, buffer)
    }

    /// The generation in force.
    pub fn generation(&self) -> Generation {
        self.log.generation()
    }

    /// Bytes that the result log takes, of at most those in its [`Options`].
    pub fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// What of the files makes up the generation in force, with its log.
    pub fn extent(&self) -> Extent {
        Extent { generation: self.generation(), bytes: self.log.end() + 1 }
    }

    /// Fills `buffer` with bytes of the generation in force, as they lie in its file from `offset` on.
    ///
    /// A copy of all of them is a half of a vault with the same owner, in either file; the other one is empty,
    /// or begins with a mark whose [seal](SEAL_AT) is zero.
    ///
    /// # Errors
    /// [`VaultError::Io`].
    pub fn read_raw(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VaultError> {
        self.file().read(offset, buffer)
    }

    /// Bytes that both files take, with the generation before, and with what is kept for the next outcomes.
    pub fn bytes(&self) -> u64 {
        self.halves.iter().map(HalfFile::bytes).sum()
    }

    /// The file that is in force.
    fn file(&self) -> &HalfFile {
        &self.halves[self.in_force as usize]
    }

    fn file_of(&self, generation: Generation) -> Result<&HalfFile, VaultError> {
        let in_force = self.generation();
        if generation == in_force { Ok(self.file()) } else { Err(VaultError::Gone { generation, in_force }) }
    }

    /// Removes a checkpoint whose commit has failed, and which a later [`Vault::open`] might take for complete.
    fn settle(&mut self) -> Result<(), VaultError> {
        self.halves.iter_mut().try_for_each(HalfFile::settle)
    }
}
