//! Putting pieces side by side: contributions that are not folded (see [`pieces`]).
//!
//! Each rank begins with the piece that follows on its own, so that ranks which read at the same time read from
//! different owners. Parts that have come stay when others could not be had.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use everfold_protocol::{
    Rank, ReductionSpec,
    message::{ByteRange, Data, Piece},
    pieces::{self, Pattern},
};
use everfold_worker::machine::{Collecting, ExecutionError};
use futures::{
    future::try_join_all,
    stream::{self, StreamExt, TryStreamExt},
};

use super::{
    Kind, NoWindow, Returned, Share,
    array::handed_back,
    collect::{AHEAD_BYTES, AHEAD_MAX, Copying, PART_BYTES},
    covered::Covered,
    fold::scratch,
};
use crate::{
    body::BodyError,
    memory::{buffer::Buffer, window::Content},
    peers::Peers,
    transport::Fetched,
};

/// The pieces that this rank receives.
#[derive(Debug)]
pub(super) struct Row {
    pattern: Pattern,
    /// How many ranks of the group are before this one, and how many ranks it has.
    number: u64,
    ranks: u64,
    arriving: Mutex<Option<Arriving>>,
}

#[derive(Debug)]
struct Arriving {
    target: Arc<Buffer>,
    /// How long each piece is.
    lengths: Vec<u64>,
    /// What is there.
    done: Covered,
    /// Where it can be read.
    shown: Option<Data>,
}

/// A part of a piece, and where it belongs.
struct Part {
    piece: Piece,
    at: u64,
}

impl Row {
    pub fn new(me: Rank, spec: &ReductionSpec) -> Self {
        Self {
            pattern: spec.kind.pattern().unwrap_or(Pattern::Gather),
            number: spec.group.position(me).unwrap_or_default() as u64,
            ranks: spec.group.len() as u64,
            arriving: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arriving>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the pieces out, and how long each is.
    pub fn take(&self) -> Option<(Arc<Buffer>, Vec<u64>)> {
        self.lock().take().map(|Arriving { target, lengths, .. }| (target, lengths))
    }

    /// The pieces for the result log.
    pub fn noted(&self) -> Result<Vec<u8>, BodyError> {
        let arriving = self.lock();
        let Arriving { target, lengths, .. } = arriving.as_ref().ok_or_else(handed_back)?;
        let bytes = target.read(0, target.len() as u64);
        Ok(noted(lengths, &bytes.map_err(|error| BodyError::Failed(error.to_string()))?))
    }

    /// Where pieces of these lengths are to be put. What is there stays, unless they come `afresh`.
    fn prepare(&self, lengths: Vec<u64>, afresh: bool, share: &Share) -> MutexGuard<'_, Option<Arriving>> {
        let mut arriving = self.lock();
        if arriving.as_ref().is_none_or(|arriving| afresh || arriving.lengths != lengths) {
            let bytes = lengths.iter().sum::<u64>() as usize;
            let region = share.shown.windows.region().filter(|_| bytes > 0);
            let target = Buffer::new(scratch(region, bytes));
            *arriving = Some(Arriving { target, lengths, done: Covered::default(), shown: None });
        }
        arriving
    }

    /// Which parts are left of `told`, and where they are to be put.
    fn begin(&self, told: &[Piece], afresh: bool, share: &Share) -> (Arc<Buffer>, Vec<Part>) {
        let lengths = told.iter().map(|piece| piece.range.len).collect();
        let arriving = self.prepare(lengths, afresh, share);
        let Arriving { target, done, .. } = arriving.as_ref().expect("it was prepared");
        let mut parts: Vec<Vec<Part>> = Vec::new();
        let mut at = 0;
        for piece in told {
            let gaps = done.gaps(ByteRange { start: at, len: piece.range.len });
            parts.push(gaps.into_iter().flat_map(|gap| cut(piece, at, gap)).collect());
            at += piece.range.len;
        }
        let next = (self.number as usize + 1) % parts.len().max(1);
        parts.rotate_left(next);
        (target.clone(), parts.into_iter().flatten().collect())
    }

    /// Takes in that these bytes have come.
    fn take_in(&self, range: ByteRange) {
        if let Some(arriving) = &mut *self.lock() {
            arriving.done.insert(range);
        }
    }
}

impl Arriving {
    /// Shows what is there, and what comes.
    fn show(&mut self, share: &Share) -> Result<Data, NoWindow> {
        let shown = match self.shown.take() {
            Some(shown) => shown,
            None => share.shown.publish(Content::Buffer(self.target.clone()))?,
        };
        Ok(self.shown.insert(shown).clone())
    }
}

/// The parts of a `gap` in a piece that belongs `at` there: long ones would keep a rank at one peer, and staging
/// long.
fn cut(piece: &Piece, at: u64, gap: ByteRange) -> impl Iterator<Item = Part> + '_ {
    let starts = (gap.start..gap.end()).step_by(PART_BYTES as usize);
    starts.map(move |start| {
        let len = PART_BYTES.min(gap.end() - start);
        let range = ByteRange { start: piece.range.start + (start - at), len };
        Part { piece: Piece { range, ..piece.clone() }, at: start }
    })
}

/// Pieces of these lengths, for the result log.
pub(super) fn noted(lengths: &[u64], bytes: &[u8]) -> Vec<u8> {
    let mut noted = pieces::table([lengths.len() as u64]);
    noted.extend(pieces::table(lengths.iter().copied()));
    noted.extend_from_slice(bytes);
    noted
}

/// The pieces that stand in the result log.
pub(crate) fn recalled(noted: Vec<u8>) -> Option<Returned> {
    let (count, rest) = noted.split_at_checked(8)?;
    let count = pieces::lengths(count).next()?;
    let (table, bytes) = rest.split_at_checked(usize::try_from(count.checked_mul(8)?).ok()?)?;
    let lengths: Vec<u64> = pieces::lengths(table).collect();
    let total = lengths.iter().try_fold(0u64, |total, len| total.checked_add(*len))?;
    (total == bytes.len() as u64).then(|| Returned::Pieces { memory: Box::new(bytes.to_vec()), lengths })
}

impl Share {
    /// Copies the pieces that this rank receives to where they lie side by side. Returns where that can be read,
    /// if others may have to.
    ///
    /// # Errors
    /// One could not be had.
    pub(super) async fn collect_row(
        self: &Arc<Self>,
        row: &Row,
        peers: &Peers,
        told: Vec<Piece>,
        how: Collecting,
    ) -> Result<Option<Data>, ExecutionError> {
        let told = try_join_all(told.into_iter().map(|piece| self.block(row, peers, piece))).await?;
        if how.afresh
            && let Some((before, _)) = row.take()
        {
            self.shown.release(|window| self.shown.windows.shows(window, &before));
        }
        let (target, parts) = row.begin(&told, how.afresh, self);
        self.collect_row_parts(row, peers, &target, parts).await?;
        let in_windows = told.iter().any(|piece| matches!(piece.data, Data::Window(_)));
        if !in_windows || row.pattern.cut().is_some() {
            return Ok(None);
        }
        match row.lock().as_mut().ok_or(NoWindow).and_then(|arriving| arriving.show(self)) {
            Err(error) if how.beside => Err(self.no_room(error)),
            shown => Ok(shown.ok()),
        }
    }

    /// Copies a part of a piece here, before it is told where the rest lies. Returns where what is here can be read.
    ///
    /// # Errors
    /// It could not be had, or shown.
    pub async fn prefetch(
        self: &Arc<Self>,
        peers: &Peers,
        bytes: u64,
        part: Piece,
    ) -> Result<Data, ExecutionError> {
        let Kind::Pieces(row) = &self.kind else {
            return Err(ExecutionError::blame(self.me, "it is folded"));
        };
        let (target, shown) = {
            let mut arriving = row.prepare(vec![bytes], false, self);
            let arriving = arriving.as_mut().expect("it was prepared");
            (arriving.target.clone(), arriving.show(self).map_err(|error| self.no_room(error))?)
        };
        let at = part.range.start;
        self.collect_row_parts(row, peers, &target, vec![Part { piece: part, at }]).await?;
        Ok(shown)
    }

    /// What this rank receives of a contribution.
    async fn block(&self, row: &Row, peers: &Peers, piece: Piece) -> Result<Piece, ExecutionError> {
        let Some(cut) = row.pattern.cut() else { return Ok(piece) };
        let ByteRange { start, len } = piece.range;
        let table_bytes = cut.table_bytes(row.ranks).min(len);
        let table = match table_bytes {
            0 => Fetched::Inline(Bytes::new()),
            len => fetch(peers, &piece, ByteRange { start, len }).await?,
        };
        let block = cut.block(&table, row.number, row.ranks, len);
        let block = block.map_err(|error| ExecutionError::blame(piece.process, error))?;
        Ok(Piece { range: ByteRange { start: start + block.start, ..block }, ..piece })
    }

    async fn collect_row_parts(
        &self,
        row: &Row,
        peers: &Peers,
        target: &Arc<Buffer>,
        parts: Vec<Part>,
    ) -> Result<(), ExecutionError> {
        let longest = parts.iter().map(|part| part.piece.range.len).max().unwrap_or(0);
        let ahead = (AHEAD_BYTES / longest.max(1)).clamp(1, AHEAD_MAX);
        let fetch = async |part: Part| {
            let bytes = fetch(peers, &part.piece, part.piece.range).await?;
            Ok::<_, ExecutionError>((part, bytes))
        };
        let mut fetched = pin!(stream::iter(parts).map(fetch).buffer_unordered(ahead as usize));
        let mut copying = Copying::default();
        while let Some((Part { piece, at }, bytes)) = fetched.try_next().await? {
            let range = ByteRange { start: at, len: piece.range.len };
            copying.put(bytes, target, range, piece.process).await?;
            row.take_in(range);
        }
        Ok(())
    }
}

/// Reads `range` of what a piece lies in.
async fn fetch(peers: &Peers, piece: &Piece, range: ByteRange) -> Result<Fetched, ExecutionError> {
    match &piece.data {
        Data::Inline(bytes) if range.end() <= bytes.len() as u64 => {
            Ok(Fetched::Inline(bytes.slice(range.start as usize..range.end() as usize)))
        }
        Data::Inline(_) => Err(ExecutionError::blame(piece.process, "it is shorter than it was")),
        data => peers.fetch(piece.process, data, Some(range)).await,
    }
}
