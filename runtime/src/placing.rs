//! What a rank does with the board of its job.

use std::{fs::File, io, sync::Arc};

use everfold_protocol::{
    ProcessId, Rank, ReductionId,
    board::{Board, Spot, Stage, Ticket, Tickets, can_have},
    bracketing::{self, Span},
    message::{ByteRange, Peer},
    pieces::Pattern,
    spec::{Limits, Order, ReductionSpec},
};
use everfold_worker::machine::ExecutionError;

use crate::{
    body::Body,
    call::{Answer, CallError, Completed},
    executor::{Returned, scratch},
    kernel::{self, Accumulate, Bracketing, Own},
    memory::board::{self, Bells, SharedWords, now},
    patience::{self, Patience, Watched},
};

/// How many bytes are copied off the board and folded at once: they stay in the cache.
const SCRATCH_BYTES: usize = 64 << 10;

/// A call on the board, its body, and where its outcome is awaited.
pub(crate) type Placed = Ticket<(Body, Answer)>;

/// A complete round.
pub(crate) type Round = everfold_protocol::board::Round<SharedWords>;

/// The calls on the board of one rank.
pub(crate) type Calls = Tickets<SharedWords, (Body, Answer)>;

/// The board, and the way to wake the others up.
pub(crate) struct Placing {
    me: Rank,
    board: Arc<Board<SharedWords>>,
    bells: Arc<Bells>,
    /// What was watched last.
    watched: Option<Spot>,
    /// For rounds to be complete.
    for_rounds: Patience,
    /// For room for a call. A call that finds none goes through the master, so the rank waits again even
    /// after it has waited in vain.
    for_room: Patience,
}

/// The rounds that earlier processes of `me` may not have noted, on the board that the agent holds, `own`. It is closed:
/// no process puts anything there.
///
/// # Errors
/// It cannot be had.
pub(crate) fn reopen(
    me: Rank,
    peers: &[Peer],
    limits: &Limits,
    own: Option<&File>,
) -> io::Result<Option<Calls>> {
    if !can_have(peers, limits) {
        return Ok(None);
    }
    let board = board::map(own.ok_or(io::ErrorKind::NotFound)?, peers.len() as u32)?;
    Ok(Some(Tickets::new(me, board, limits.board_bytes_max)))
}

impl Placing {
    /// The board of the job of these first processes of their ranks, if they can have one.
    pub fn open(me: Rank, peers: &[Peer], limits: &Limits) -> Option<(Self, Calls)> {
        let open = || {
            let bells = Arc::new(Bells::open(peers)?);
            let board = board::open(peers)?;
            let calls = Tickets::new(me, board.clone(), limits.board_bytes_max);
            Ok((
                Self {
                    me,
                    board,
                    bells,
                    watched: None,
                    for_rounds: Patience::new(3),
                    for_room: Patience::new(0),
                },
                calls,
            ))
        };
        let opened: io::Result<_> = can_have(peers, limits).then(open)?;
        // Without it everything still works with messages.
        opened
            .inspect_err(|error| tracing::warn!(%error, "no board: short arrays go through the master"))
            .ok()
    }

    /// Waits for a short while, if others are about to make room for this call.
    pub fn wait_for_room(&mut self, reduction: ReductionId) {
        let is_cleared = || self.board.is_cleared_for(self.me, reduction);
        if is_cleared() && self.for_room.takes_chance() {
            self.for_room.learn(patience::watch(is_cleared));
        }
    }

    /// Wakes up those who sleep over a round that is complete now.
    pub fn wake_others(&self) {
        self.board.sleepers(self.me).for_each(|rank| self.bells.ring(rank));
    }

    /// A look at the latest call, if that has not been watched yet and it may be worth the while.
    pub fn watch(&mut self, latest: Spot) -> Option<Watch> {
        if self.watched.replace(latest) == Some(latest) {
            return None;
        }
        let watch = || Watch { me: self.me, board: self.board.clone(), spot: latest };
        self.for_rounds.takes_chance().then(watch)
    }

    /// Takes in what has become of watching a round.
    pub fn has_watched(&mut self, watched: Watched) {
        self.for_rounds.learn(watched);
    }
}

/// Watches one round, to see without being woken up when it is complete.
pub(crate) struct Watch {
    me: Rank,
    board: Arc<Board<SharedWords>>,
    spot: Spot,
}

impl Watch {
    /// Waits for a short while. The rank has to look at the whole board once more, whatever this returns.
    pub fn wait(&self) -> Watched {
        self.board.watch(self.me);
        let watched = patience::watch(|| self.board.stage(self.me, self.spot) == Stage::Open);
        self.board.sleep(self.me);
        watched
    }
}

/// How a call ends whose round is complete.
pub(crate) fn end(me: Rank, placed: Placed, round: &Round) -> (Answer, Result<Completed, CallError>) {
    let Ticket { spec, with: (body, to), .. } = placed;
    let report = round.report(now(), &spec);
    let receives = spec.delivery.receiver().is_none_or(|receiver| receiver == me);
    let value = match body {
        Body::Array { mut memory, element_bytes, accumulate } if receives => {
            let folded = fold(&spec, memory.bytes_mut(), round, element_bytes, &accumulate);
            folded.map(|()| Some(Returned::Array(memory)))
        }
        Body::Pieces(_) if receives => side_by_side(me, &spec, round).map(Some),
        _ => Ok(None),
    };
    (to, value.map(|value| Completed { value, report }).map_err(CallError::ResultLost))
}

/// Puts the pieces side by side that this rank receives.
fn side_by_side(me: Rank, spec: &ReductionSpec, round: &Round) -> Result<Returned, ExecutionError> {
    let pattern = spec.kind.pattern().unwrap_or(Pattern::Gather);
    let source = pattern.source();
    let (number, ranks) = (spec.group.position(me).unwrap_or_default() as u64, spec.group.len() as u64);
    let range = |rank: Rank| {
        let blame = |reason: &dyn std::fmt::Display| ExecutionError::blame(ProcessId::first(rank), reason);
        let len = round.len_of(rank).ok_or_else(|| blame(&"it has put no piece on the board"))? as u64;
        let Some(cut) = pattern.cut() else { return Ok((rank, ByteRange { start: 0, len })) };
        let mut table = vec![0; cut.table_bytes(ranks).min(len) as usize];
        round.read(rank, 0, &mut table);
        let block = cut.block(&table, number, ranks, len);
        block.map(|block| (rank, block)).map_err(|error| blame(&error))
    };
    let givers = spec.group.iter().filter(|rank| source.is_none_or(|source| source == *rank));
    let ranges = givers.map(range).collect::<Result<Vec<_>, _>>()?;
    let lengths: Vec<u64> = ranges.iter().map(|(_, range)| range.len).collect();
    let mut memory = scratch(None, lengths.iter().sum::<u64>() as usize);
    let mut rest = memory.bytes_mut();
    for (rank, ByteRange { start, len }) in ranges {
        let (piece, behind) = rest.split_at_mut(len as usize);
        // Whole words of the board.
        match start as usize % 8 {
            0 => round.read(rank, start as usize, piece),
            skipped => {
                let mut words = vec![0; skipped + piece.len()];
                round.read(rank, start as usize - skipped, &mut words);
                piece.copy_from_slice(&words[skipped..]);
            }
        }
        rest = behind;
    }
    Ok(Returned::Pieces { memory, lengths })
}

/// Folds what all have contributed into `target`; where one rank receives the result, that is its own.
fn fold(
    spec: &ReductionSpec,
    target: &mut [u8],
    round: &Round,
    element_bytes: usize,
    accumulate: &Accumulate,
) -> Result<(), ExecutionError> {
    let root = spec.delivery.root();
    let others: Vec<Rank> = spec.group.iter().filter(|rank| Some(*rank) != root).collect();
    if let Some(strange) = others.iter().find(|rank| round.len_of(**rank) != Some(target.len())) {
        let reason = "what lies on the board is no contribution to this reduction";
        return Err(ExecutionError::blame(ProcessId::first(*strange), reason));
    }
    let leaf = |at| (Span { first: at, last: at }, Bracketing::operand(at));
    let bracketing = match spec.order {
        Order::Arrival => None,
        Order::Fixed => bracketing::fold((0..spec.group.len()).map(leaf), Bracketing::pair),
    };
    // Whole words of the board, and whole elements: those of predefined operations have 1, 2, 4, 8 or 16
    // bytes.
    let unit = element_bytes.max(8);
    let block_bytes = (SCRATCH_BYTES / others.len() / unit).max(1) * unit;
    let stride = block_bytes.min(target.len().next_multiple_of(unit));
    let mut scratch = vec![0; others.len() * stride];
    for (index, target) in target.chunks_mut(block_bytes).enumerate() {
        for (copy, rank) in scratch.chunks_mut(stride).zip(&others) {
            round.read(*rank, index * block_bytes, &mut copy[..target.len()]);
        }
        let copies: Vec<&[u8]> = scratch.chunks(stride).map(|copy| &copy[..target.len()]).collect();
        let (own, own_number, sources) = match root {
            Some(root) => (Own::InPlace, root.index(), &copies[..]),
            // All fold in one order.
            None => (Own::From(copies[0]), 0, &copies[1..]),
        };
        match &bracketing {
            None => kernel::fold(target, own, sources, element_bytes, accumulate),
            Some(bracketing) => {
                kernel::fold_bracketed(
                    target,
                    own,
                    own_number,
                    sources,
                    bracketing,
                    element_bytes,
                    accumulate,
                );
            }
        }
    }
    Ok(())
}
