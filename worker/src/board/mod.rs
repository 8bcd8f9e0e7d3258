//! The board: where the ranks of a job on one host put short contributions instead of telling the master.
//!
//! With messages each rank sends one and is woken up by one, and the master hears and says as many as there are ranks, while they
//! wait for it: that takes far longer than to fold a short body. Where all ranks share memory they put short contributions next
//! to each other instead. Whoever completes a round wakes the others up, and each finds there what the master would have said
//! ([`Finished`], with the last fold in it). The master hears nothing of it.
//!
//! As soon as a round is anything but ordinary, the master takes what lies there as if it had come in messages, and goes on with
//! it as with every other reduction: when a rank dies or leaves, when a rank contributes to the same reduction in a message,
//! when it takes longer than [`PATIENCE`]. A round is complete, or the master has it: that is decided by one atomic
//! operation (see `word`), so every contribution counts exactly once whatever happens in between.
//!
//! # Layout
//! A board is a sequence of atomic words, zero at first, of which these are used:
//!
//! | what | words |
//! |---|---|
//! | whether it is closed | 1 |
//! | the state of each of [`CELLS`] cells, in which one round follows the other | one in a cache line each |
//! | marks: how many reductions the master works on, by hash | 64 |
//! | a slot for each cell and rank: the reduction, when it was called, lengths, terms, body | `slot_words` each |
//!
//! A rank writes its slot before it joins a round. Until all have left the round, it writes nothing there but another
//! contribution to the same reduction, should it have left and come back. Nothing is read or written but as an atomic: whatever another
//! process does to this memory, here it is bits only.

mod clerk;
mod slot;
mod tickets;
mod word;

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentId, SegmentIndex, TaskId,
    message::{ByteRange, Contribution, Finished, Peer, Source, Task},
    report::{Phases, Report},
    spec::{Delivery, ReductionSpec},
};

pub use self::{
    clerk::{Clerk, Found, Taken},
    tickets::Tickets,
};
use self::{
    slot::Slot,
    word::{Phase, RANKS_MAX, Word},
};

/// Rounds at a time. Those of one name use the cells in turn.
pub const CELLS: usize = 8;

/// How long a round stays incomplete at most until the master looks, and twice that until it takes it.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// Longest body in bytes. Of a longer one, copying takes longer than messages.
pub const BODY_BYTES_MAX: u64 = 16 << 10;

/// Most bytes that each rank copies where all receive the result.
const SPREAD_BYTES_MAX: u64 = 128 << 10;

const MARKS: usize = 64;
const LINE_WORDS: usize = 8;
const FIRST_MARK: usize = LINE_WORDS * (1 + CELLS);
const FIRST_SLOT: usize = FIRST_MARK + MARKS;

/// Rounds of contributions in `M`, which all ranks share.
#[derive(Debug)]
pub struct Board<M> {
    memory: M,
    ranks: u32,
    slot_words: usize,
}

/// A contribution that lies on a board.
#[derive(Clone, Debug)]
pub struct Ticket {
    reduction: ReductionId,
    spec: ReductionSpec,
    cell: usize,
    generation: u64,
}

/// Whether so many ranks can have a board.
pub fn holds(ranks: u32) -> bool {
    (2..=RANKS_MAX).contains(&ranks)
}

/// Whether `peers`, all processes of a job, can have a board.
pub fn can_have(peers: &[Peer]) -> bool {
    let shares = |(rank, peer): (u32, &Peer)| {
        peer.host == peers[0].host && peer.bell.is_some() && peer.process == ProcessId::first(rank)
    };
    holds(peers.len() as u32) && peers[0].board.is_some() && (0..).zip(peers).all(shares)
}

/// Whether a contribution of this kind may lie on the board of so many ranks.
pub fn suits(spec: &ReductionSpec, ranks: u32) -> bool {
    let bytes = spec.kind.array_bytes().map_or(u64::MAX, |(bytes, _)| bytes);
    let is_short = (1..=BODY_BYTES_MAX).contains(&bytes)
        && match spec.delivery {
            Delivery::Root(root) => root.0 < ranks,
            Delivery::All => bytes * u64::from(ranks) <= SPREAD_BYTES_MAX,
            // Who receives it is not known beforehand.
            Delivery::FirstOf(_) => false,
        };
    let is_plain = spec.deadline.is_none() && !spec.trace && spec.kind.folds_surely();
    is_short && is_plain && spec.group == Path::range(0, ranks)
}

impl<M: AsRef<[AtomicU64]>> Board<M> {
    /// Words that a board for so many ranks and bodies up to so many bytes takes.
    pub fn words(ranks: u32, body_bytes: usize) -> usize {
        FIRST_SLOT + CELLS * ranks as usize * slot_words(body_bytes)
    }

    /// The board of so many ranks in `memory`.
    ///
    /// # Panics
    /// If there are too many of them, or the memory is too short.
    pub fn new(memory: M, ranks: u32, body_bytes: usize) -> Self {
        assert!(ranks <= RANKS_MAX, "a board has room for {RANKS_MAX} ranks");
        assert!(memory.as_ref().len() >= Self::words(ranks, body_bytes), "the memory is too short");
        Self { memory, ranks, slot_words: slot_words(body_bytes) }
    }

    /// Puts the contribution of `me` on the board. Whether it completes the round: then the others are to be woken up.
    ///
    /// `None` if its cell is taken, or the master works on this reduction already: it is to be told in a message.
    pub fn place(&self, me: Rank, called: Duration, contribution: &Contribution) -> Option<(Ticket, bool)> {
        let reduction = contribution.reduction;
        let cell = cell_of(reduction);
        let word = self.state(cell);
        word.join(me.0, self.ranks)?;
        // While anybody is in a round, whoever was there writes nothing else: others may be about to read it.
        let is_other = |first| self.slot(cell, Rank(first)).reduction() != reduction;
        if self.is_marked(reduction) || word.ranks().next().is_some_and(is_other) {
            return None;
        }
        self.slot(cell, me).write(called, contribution)?;
        let (generation, completes) = loop {
            let word = self.state(cell);
            let joined = word.join(me.0, self.ranks)?;
            // All that are in a round have agreed with one that was there before them.
            let mine = self.slot(cell, me);
            if word.ranks().next().is_some_and(|first| !self.slot(cell, Rank(first)).agrees(mine)) {
                return None;
            }
            if self.step(cell, word, joined) {
                break (joined.generation(), joined.phase() == Phase::Complete);
            }
        };
        // The master marks a reduction before it looks for it here: one of both sees the other.
        if !completes && self.is_marked(reduction) && self.leave(cell, me, generation, Phase::Open) {
            return None;
        }
        let spec = contribution.spec.clone();
        Some((Ticket { reduction, spec, cell, generation }, completes))
    }

    /// What the master would have said, once the round is complete. Whoever is the last to ask makes room for the next.
    pub fn outcome(&self, me: Rank, now: Duration, ticket: &Ticket) -> Option<Finished> {
        let &Ticket { reduction, ref spec, cell, generation } = ticket;
        let word = self.state(cell);
        if word.phase() != Phase::Complete || word.generation() != generation || !word.contains(me.0) {
            return None;
        }
        let receives = spec.delivery.root().is_none_or(|root| root == me);
        let last = receives.then(|| self.last_task(ticket));
        let report = self.report(cell, now, spec);
        self.leave(cell, me, generation, Phase::Complete);
        let report = if receives { report } else { report.brief() };
        Some(Finished { reduction, result: Vec::new(), last, lend: false, report })
    }

    fn report(&self, cell: usize, now: Duration, spec: &ReductionSpec) -> Report {
        let (bytes, _) = spec.kind.array_bytes().unwrap_or_default();
        let root = spec.delivery.root().map(Path::single);
        let executors = root.as_ref().unwrap_or(&spec.group).iter().map(|rank| (rank, 1)).collect::<Vec<_>>();
        let calls = self.all().map(|rank| self.slot(cell, rank).called());
        let (first, last) =
            calls.fold((now, Duration::ZERO), |(first, last), at| (first.min(at), last.max(at)));
        let folds = u64::from(self.ranks) - 1;
        Report {
            contributors: spec.group.clone(),
            // Only the root's is in no other process's hands.
            protected: root.map_or_else(|| spec.group.clone(), |root| spec.group.difference(&root)),
            folds,
            bytes_moved: bytes * folds * executors.len() as u64,
            phases: Phases {
                arriving: last.saturating_sub(first),
                folding: now.saturating_sub(last),
                ..Phases::default()
            },
            tasks_per_worker: executors,
            ..Report::default()
        }
    }

    /// What makes the result, for whoever receives it.
    fn last_task(&self, &Ticket { reduction, ref spec, cell, generation }: &Ticket) -> Task {
        // Where all receive it, all fold in one order.
        let own = spec.delivery.root().map(Path::single).unwrap_or_default();
        let source = |rank: Rank| Source {
            process: ProcessId::first(rank),
            path: Path::single(rank),
            data: self.slot(cell, rank).body(),
        };
        let sources = self.all().filter(|rank| !own.contains(*rank)).map(source).collect();
        let (len, _) = spec.kind.array_bytes().unwrap_or_default();
        Task {
            // The master counts from the other end.
            task: TaskId(u64::MAX - (generation * CELLS as u64 + cell as u64)),
            segment: SegmentId { reduction, index: SegmentIndex(0) },
            range: ByteRange { start: 0, len },
            own,
            sources,
        }
    }

    fn all(&self) -> impl Iterator<Item = Rank> {
        (0..self.ranks).map(Rank)
    }

    /// The reduction to which contributions lie in a cell.
    fn reduction(&self, cell: usize) -> Option<ReductionId> {
        let first = self.state(cell).ranks().next()?;
        Some(self.slot(cell, Rank(first)).reduction())
    }

    /// Takes the round of a reduction for the master, if it is open.
    fn take(&self, reduction: ReductionId) -> Vec<Taken> {
        let cell = cell_of(reduction);
        let taken = loop {
            let word = self.state(cell);
            let Some((taken, first)) = word.take().zip(word.ranks().next()) else { return Vec::new() };
            if self.slot(cell, Rank(first)).reduction() != reduction {
                return Vec::new();
            }
            if self.step(cell, word, taken) {
                break taken;
            }
        };
        let contribution = |rank| Some((Rank(rank), self.slot(cell, Rank(rank)).read()?));
        let contributions = taken.ranks().filter_map(contribution).collect();
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

    fn mark(&self, reduction: ReductionId) -> &AtomicU64 {
        &self.memory.as_ref()[FIRST_MARK + number(reduction) as usize % MARKS]
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

fn number(reduction: ReductionId) -> u64 {
    reduction.name.wrapping_add(reduction.sequence)
}

fn cell_of(reduction: ReductionId) -> usize {
    (number(reduction) % CELLS as u64) as usize
}
