//! The board: where the ranks of a job on one host put short contributions instead of telling the master.
//!
//! Without the board, a reduction costs each rank one message and one wake-up, and the master one message
//! from and one to each rank. That takes far longer than folding a short body. Where all ranks share memory,
//! they put short contributions next to each other instead. The rank that completes a round wakes up the
//! ranks that sleep, and each finds there what it needs for the result. The master hears nothing of it.
//!
//! As soon as a round is anything but ordinary, the master takes what lies there as if it had come in
//! messages, and goes on with it as with every other reduction: when a rank dies or leaves, when a rank
//! contributes to the same reduction in a message, when it takes longer than [`PATIENCE`]. A round is
//! complete, or the master has it: that is decided by one atomic operation (see `word`), so every
//! contribution counts exactly once whatever happens in between.
//!
//! # Layout
//! A board is a sequence of atomic words, zero at first, of which these are used:
//!
//! | what | words |
//! |---|---|
//! | whether it is closed | 1 |
//! | the state of each of [`CELLS`] cells, in which one round follows the other | one in a cache line each |
//! | who looks at the board by itself and needs not be woken up | one in a cache line |
//! | marks: how many reductions the master works on, by hash | 64 |
//! | a slot for each cell and rank: the reduction, when it was called, lengths, terms, body | `slot_words` each |
//!
//! A rank writes its slot before it joins a round. Until all have left the round, it writes nothing there but
//! another contribution to the same reduction, should it have left and come back. Nothing is read or written
//! but as an atomic: whatever another process does to this memory, here it is bits only.

mod clerk;
mod round;
mod slot;
mod tickets;
mod word;

use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    Path, ProcessId, Rank, ReductionId,
    message::Peer,
    spec::{BodyKind, Delivery, Limits, ReductionSpec},
};

pub use self::{
    clerk::{Clerk, Found, Taken},
    round::Round,
    tickets::{Fate, Ticket, Tickets},
};
use self::{
    slot::Slot,
    word::{Phase, RANKS_MAX, Word},
};
use crate::atomic::{AtomicU64, Ordering::SeqCst};

/// Rounds at a time. The calls of one name use two cells in turn. A rank that calls the next but one has seen
/// the next round complete, and a rank that awaits its calls contributes to that only when it has left this
/// one. If a rank does not, its cell may still be taken: then the call waits a moment for room, and goes to
/// the master if there is none.
pub const CELLS: usize = 32;

/// How long a round stays incomplete at most until the master looks, and twice that until it takes it.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// Longest body in bytes for which a board has room, whatever the limits say.
pub const BODY_BYTES_MAX: u64 = 512 << 10;

/// Most bytes that the bodies of all ranks have: of more, more ranks than one should fold.
const FOLD_BYTES_MAX: u64 = 4 << 20;

/// Most bytes that each rank copies where all receive the result.
const SPREAD_BYTES_MAX: u64 = 1 << 20;

/// Longest piece in bytes that is copied there and back. Longer ones are read from where they lie.
const PIECE_BYTES_MAX: u64 = 64 << 10;

const MARKS: usize = 64;
const LINE_WORDS: usize = 8;
const WATCHERS: usize = LINE_WORDS * (1 + CELLS);
const FIRST_MARK: usize = WATCHERS + LINE_WORDS;
const FIRST_SLOT: usize = FIRST_MARK + MARKS;

/// Rounds of contributions in `M`, which all ranks share.
#[derive(Debug)]
pub struct Board<M> {
    memory: M,
    ranks: u32,
    slot_words: usize,
}

/// A contribution, as it is put on a board.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// To which reduction.
    pub reduction: ReductionId,
    /// Its name.
    pub name: &'a str,
    /// What all have to agree on.
    pub spec: &'a ReductionSpec,
    /// The body, unless only its own rank folds anything into it.
    pub body: Option<&'a [u8]>,
}

/// A round of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    cell: usize,
    generation: u64,
}

/// How far a round is, as a rank sees it that has contributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Others are waited for.
    Open,
    /// All have contributed.
    Complete,
    /// The master goes on with it.
    Taken,
}

/// Whether a job of `ranks` ranks can have a board.
pub fn holds(ranks: u32) -> bool {
    (2..=RANKS_MAX).contains(&ranks)
}

/// Whether `peers`, the first processes of a job, can have a board. Where ranks come back, later processes get it
/// from the agent, which all have to share.
pub fn can_have(peers: &[Peer], limits: &Limits) -> bool {
    let agent = |peer: &Peer| peer.agent.as_ref().map(|agent| agent.id);
    let shares = |(rank, peer): (u32, &Peer)| {
        peer.host == peers[0].host
            && peer.bell.is_some()
            && peer.process == ProcessId::first(rank)
            && (!limits.ranks_return || agent(peer) == agent(&peers[0]))
    };
    limits.board_bytes_max > 0
        && holds(peers.len() as u32)
        && peers[0].board.is_some()
        && (0..).zip(peers).all(shares)
}

/// Longest body in bytes for which the board of a job of `ranks` ranks has room.
pub fn body_bytes_max(ranks: u32) -> u64 {
    BODY_BYTES_MAX.min(FOLD_BYTES_MAX / u64::from(ranks.max(1)))
}

/// Whether a contribution of so many bytes to a reduction of this kind may lie on the board of a job of `ranks`
/// ranks, if bodies have at most `bytes_max` bytes. Pieces may differ in length: then some ranks find that they
/// do not, and the master takes the others from there.
pub fn suits(spec: &ReductionSpec, bytes: u64, ranks: u32, bytes_max: u64) -> bool {
    let (shortest, longest, is_plain) = match &spec.kind {
        BodyKind::Array { .. } => (1, BODY_BYTES_MAX, spec.kind.folds_surely()),
        BodyKind::Pieces { .. } => (0, PIECE_BYTES_MAX, true),
        BodyKind::Object { .. } => return false,
    };
    let bytes = spec.kind.array_bytes().map_or(bytes, |(bytes, _)| bytes);
    let is_short = (shortest..=longest.min(bytes_max).min(body_bytes_max(ranks))).contains(&bytes)
        && match (&spec.delivery, spec.delivery.receiver()) {
            (Delivery::All, _) => bytes * u64::from(ranks) <= SPREAD_BYTES_MAX,
            (_, Some(receiver)) => receiver.0 < ranks,
            // Which rank receives it is not known beforehand.
            (_, None) => false,
        };
    let is_plain = is_plain && spec.deadline.is_none() && !spec.trace;
    is_short && is_plain && spec.group == Path::range(0, ranks)
}

impl<M: AsRef<[AtomicU64]>> Board<M> {
    /// Number of words of a board for `ranks` ranks and bodies of up to `body_bytes` bytes.
    pub fn words(ranks: u32, body_bytes: usize) -> usize {
        FIRST_SLOT + CELLS * ranks as usize * slot_words(body_bytes)
    }

    /// The board of a job of `ranks` ranks in `memory`.
    ///
    /// # Panics
    /// If there are too many of them, or the memory is too short.
    pub fn new(memory: M, ranks: u32, body_bytes: usize) -> Self {
        assert!(ranks <= RANKS_MAX, "a board has room for {RANKS_MAX} ranks");
        assert!(memory.as_ref().len() >= Self::words(ranks, body_bytes), "the memory is too short");
        Self { memory, ranks, slot_words: slot_words(body_bytes) }
    }

    /// Puts the contribution of `me` on the board. Whether it completes the round: then the others are to be
    /// woken up.
    ///
    /// `None` if its cell is taken, or the master works on this reduction already: it is to be told in a
    /// message.
    pub fn place(&self, me: Rank, called: Duration, entry: &Entry<'_>) -> Option<(Spot, bool)> {
        let reduction = entry.reduction;
        let cell = cell_of(reduction);
        let word = self.state(cell);
        word.join(me.0, self.ranks)?;
        // While a rank is in a round, the ranks that were there write nothing else: others may be about to
        // read it.
        let is_other = |first| self.slot(cell, first).reduction() != reduction;
        if self.is_marked(reduction) || self.ranks_in(word).next().is_some_and(is_other) {
            return None;
        }
        self.slot(cell, me).write(called, entry)?;
        let (generation, completes) = loop {
            let word = self.state(cell);
            let joined = word.join(me.0, self.ranks)?;
            // All that are in a round have agreed with one that was there before them.
            let mine = self.slot(cell, me);
            if self.ranks_in(word).next().is_some_and(|first| !self.slot(cell, first).agrees(mine)) {
                return None;
            }
            if self.step(cell, word, joined) {
                break (joined.generation(), joined.phase() == Phase::Complete);
            }
        };
        let spot = Spot { cell, generation };
        // The master marks a reduction before it looks for it here: one of both sees the other.
        if !completes && self.is_marked(reduction) && self.withdraw(me, spot) {
            return None;
        }
        Some((spot, completes))
    }

    /// Whether others are about to make room for a contribution of `me`: they have still to take what an
    /// earlier round yields.
    pub fn is_cleared_for(&self, me: Rank, reduction: ReductionId) -> bool {
        let word = self.state(cell_of(reduction));
        word.phase() == Phase::Complete && !word.contains(me.0) && self.closed().load(SeqCst) == 0
    }

    /// How far a round is to which `me` has contributed.
    pub fn stage(&self, me: Rank, Spot { cell, generation }: Spot) -> Stage {
        let word = self.state(cell);
        let is_in = word.generation() == generation && word.contains(me.0);
        match word.phase() {
            Phase::Open if is_in => Stage::Open,
            Phase::Complete if is_in => Stage::Complete,
            _ => Stage::Taken,
        }
    }

    /// The complete round to which an earlier process of `me` has contributed, if no process of that rank has left
    /// it.
    fn unread(&self, me: Rank, reduction: ReductionId) -> Option<Spot> {
        let cell = cell_of(reduction);
        let word = self.state(cell);
        let is_in = word.phase() == Phase::Complete && word.contains(me.0);
        let is_it = is_in && self.slot(cell, me).reduction() == reduction;
        is_it.then(|| Spot { cell, generation: word.generation() })
    }

    /// Takes a contribution back, as long as others are waited for: it is to be told to the master.
    pub fn withdraw(&self, me: Rank, Spot { cell, generation }: Spot) -> bool {
        self.leave(cell, me, generation, Phase::Open)
    }

    /// `me` looks at the board by itself until it is about to [sleep](Self::sleep): nobody wakes it up
    /// meanwhile.
    pub fn watch(&self, me: Rank) {
        self.watchers().fetch_or(1 << me.0, SeqCst);
    }

    /// `me` has to be woken up again. It looks once more afterwards: either it sees that a round is complete,
    /// or the rank that completes the round sees that it sleeps.
    pub fn sleep(&self, me: Rank) {
        self.watchers().fetch_and(!(1 << me.0), SeqCst);
    }

    /// Who has to be woken up once `me` has completed a round.
    pub fn sleepers(&self, me: Rank) -> impl Iterator<Item = Rank> {
        let awake = self.watchers().load(SeqCst) | 1 << me.0;
        self.all().filter(move |rank| awake >> rank.0 & 1 == 0)
    }

    fn all(&self) -> impl Iterator<Item = Rank> {
        (0..self.ranks).map(Rank)
    }

    /// The ranks of a round. Others that a process has written there are none of this job.
    fn ranks_in(&self, word: Word) -> impl Iterator<Item = Rank> {
        word.ranks().take_while(|rank| *rank < self.ranks).map(Rank)
    }

    /// The reduction to which contributions lie in a cell.
    fn reduction(&self, cell: usize) -> Option<ReductionId> {
        let first = self.ranks_in(self.state(cell)).next()?;
        Some(self.slot(cell, first).reduction())
    }

    /// Takes the round of a reduction for the master, if it is open.
    fn take(&self, reduction: ReductionId) -> Vec<Taken> {
        let cell = cell_of(reduction);
        let taken = loop {
            let word = self.state(cell);
            let Some((taken, first)) = word.take().zip(self.ranks_in(word).next()) else { return Vec::new() };
            if self.slot(cell, first).reduction() != reduction {
                return Vec::new();
            }
            if self.step(cell, word, taken) {
                break taken;
            }
        };
        let contribution = |rank| Some((rank, self.slot(cell, rank).read()?));
        let contributions = self.ranks_in(taken).filter_map(contribution).collect();
        self.line(cell).store(taken.clear().bits(), SeqCst);
        contributions
    }

    fn line(&self, cell: usize) -> &AtomicU64 {
        &self.memory.as_ref()[LINE_WORDS * (1 + cell)]
    }

    fn state(&self, cell: usize) -> Word {
        Word::from_bits(self.line(cell).load(SeqCst))
    }

    /// Makes a step if nobody has made another one meanwhile.
    fn step(&self, cell: usize, from: Word, to: Word) -> bool {
        self.line(cell).compare_exchange(from.bits(), to.bits(), SeqCst, SeqCst).is_ok()
    }

    fn leave(&self, cell: usize, me: Rank, generation: u64, phase: Phase) -> bool {
        loop {
            let word = self.state(cell);
            match word.leave(me.0, phase).filter(|_| word.generation() == generation) {
                None => return false,
                Some(left) if self.step(cell, word, left) => return true,
                Some(_) => {}
            }
        }
    }

    fn closed(&self) -> &AtomicU64 {
        &self.memory.as_ref()[0]
    }

    fn watchers(&self) -> &AtomicU64 {
        &self.memory.as_ref()[WATCHERS]
    }

    fn mark(&self, reduction: ReductionId) -> &AtomicU64 {
        &self.memory.as_ref()[FIRST_MARK + reduction.name.wrapping_add(reduction.sequence) as usize % MARKS]
    }

    /// Whether the master works on this reduction, or may do so.
    fn is_marked(&self, reduction: ReductionId) -> bool {
        self.closed().load(SeqCst) != 0 || self.mark(reduction).load(SeqCst) != 0
    }

    fn slot(&self, cell: usize, rank: Rank) -> Slot<'_> {
        let start = FIRST_SLOT + (cell * self.ranks as usize + rank.index()) * self.slot_words;
        Slot(&self.memory.as_ref()[start..start + self.slot_words])
    }
}

fn slot_words(body_bytes: usize) -> usize {
    slot::words(body_bytes).next_multiple_of(LINE_WORDS)
}

fn cell_of(reduction: ReductionId) -> usize {
    (reduction.name.wrapping_mul(2).wrapping_add(reduction.sequence % 2) % CELLS as u64) as usize
}
