//! Copying a finished result here.

use std::{
    pin::pin,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use bytes::Bytes;
use everfold_protocol::{
    ProcessId,
    message::{ByteRange, Data, Fault, HalfBody, Piece, WindowRef},
};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::{
    Kind, ON_THE_SPOT_BYTES, Share,
    array::{Array, Progress, handed_back},
};
use everfold_worker::machine::{Collected, Collecting, ExecutionError};

use crate::{
    body::BodyError,
    memory::{buffer::Buffer, window::Content},
    peers::Peers,
    transport::{Fetched, ReadError},
};

/// Longest part of a result that is copied at once.
pub(super) const PART_BYTES: u64 = 1 << 20;

/// How much of a result is asked for ahead, and in how many parts at most.
pub(super) const AHEAD_BYTES: u64 = 4 << 20;
pub(super) const AHEAD_MAX: u64 = 16;

impl Share {
    /// Copies a finished result into this rank's body, or beside it into its partial: then no task may work
    /// on it any more. What could not be reached, or was damaged, may come with another call; then it stays
    /// readable for others meanwhile. So may all of it, if there is no memory beside this rank's contribution
    /// now, or no window to show it.
    ///
    /// # Errors
    /// A piece does not fit; the body is then of no use.
    pub async fn collect(
        self: &Arc<Self>,
        peers: &Peers,
        pieces: Vec<Piece>,
        how: Collecting,
    ) -> Result<Collected, ExecutionError> {
        if let Kind::Pieces(row) = &self.kind {
            let collected = self.collect_row(row, peers, pieces, how).await;
            return collected
                .map_or_else(|error| error.into_collected(|| None), |data| Ok(Collected::Whole(data)));
        }
        if self.group.len() == 1 {
            return Ok(Collected::Whole(None));
        }
        let in_windows = pieces.iter().any(|piece| matches!(piece.data, Data::Window(_)));
        match self.collect_pieces(peers, pieces, how).await {
            Ok(encoded) if in_windows => {
                Ok(Collected::Whole(encoded.or_else(|| self.show_half().map(|half| half.data))))
            }
            Ok(_) => Ok(Collected::Whole(None)),
            Err(error) => error.into_collected(|| self.show_half()),
        }
    }

    /// Shows an array into which the result was copied, or a part of it.
    fn show_half(&self) -> Option<HalfBody> {
        let Kind::Array(array) = &self.kind else { return None };
        let original = array.original().ok()?;
        let mut progress = array.collected.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.beside {
            progress.shown = self.partial(array).ok().map(|(_, data)| data);
        }
        if progress.shown.is_none() {
            progress.shown = self.shown.publish(Content::Buffer(original)).ok();
        }
        let Progress { done: collected, touched: untouched, .. } = *progress;
        progress.shown.clone().map(|data| HalfBody { data, collected, untouched })
    }

    async fn collect_pieces(
        self: &Arc<Self>,
        peers: &Peers,
        pieces: Vec<Piece>,
        how: Collecting,
    ) -> Result<Option<Data>, ExecutionError> {
        match &self.kind {
            Kind::Array(array) if how.beside && !array.in_place => {
                let (partial, _) = self.partial(array).map_err(|error| self.no_room(error))?;
                let done = {
                    let mut progress = array.collected.lock().unwrap_or_else(PoisonError::into_inner);
                    if how.afresh {
                        *progress = Progress::default();
                    }
                    progress.beside = true;
                    progress.done
                };
                self.collect_parts(peers, array, &partial, array.parts(pieces, done)).await?;
                Ok(None)
            }
            Kind::Array(array) => {
                let original = array.original().map_err(|error| ExecutionError::blame(self.me, error))?;
                // All originals are folded; no process reads this one any more, unless it is itself a part of
                // the result.
                let progress = array.collected.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let in_result = |window: &WindowRef| {
                    let pieces = pieces.iter().map(|piece| &piece.data);
                    pieces.chain(&progress.shown).any(|data| matches!(data, Data::Window(it) if it == window))
                };
                self.shown
                    .release(|window| self.shown.windows.shows(window, &original) && !in_result(window));
                if array.in_place {
                    self.over.store(true, Ordering::SeqCst);
                }
                if progress.shown.is_none() {
                    // Its latest reader may not have let go of it yet.
                    original.idle().await;
                }
                let left = array.parts(pieces, progress.done);
                self.collect_parts(peers, array, &original, left).await?;
                Ok(None)
            }
            Kind::Object(_) => {
                let Some(Piece { process, data, .. }) = pieces.into_iter().next() else { return Ok(None) };
                if process == self.me {
                    return Ok(Some(data));
                }
                let bytes = peers.fetch(process, &data, None).await?;
                let share = self.clone();
                let replace = move || share.replace(process, bytes, how.beside);
                let replaced = tokio::task::spawn_blocking(replace).await;
                replaced.unwrap_or_else(|error| {
                    let error = BodyError::Failed(format!("decoding panicked: {error}"));
                    Err(ExecutionError::blame(process, error))
                })
            }
            Kind::Pieces(_) => Ok(None),
        }
    }

    /// Puts the decoded `bytes` of `process` in the place of this rank's object, and shows them if they did
    /// not come in a message. Where they `must` be shown and cannot be, the object stays as it is.
    fn replace(
        &self,
        process: ProcessId,
        bytes: Fetched,
        must: bool,
    ) -> Result<Option<Data>, ExecutionError> {
        let Kind::Object(object) = &self.kind else { return Ok(None) };
        let mut slot = object.lock().unwrap_or_else(PoisonError::into_inner);
        let decoded = slot.as_ref().ok_or_else(handed_back).and_then(|object| object.decode(&bytes));
        let decoded = decoded.map_err(|error| ExecutionError::blame(process, error))?;
        let shown = match bytes {
            Fetched::Inline(_) => None,
            bytes => match self.shown.publish(Content::Encoded(Bytes::from_owner(bytes))) {
                Err(error) if must => return Err(self.no_room(error)),
                shown => shown.ok(),
            },
        };
        *slot = Some(decoded);
        self.over.store(true, Ordering::SeqCst);
        Ok(shown)
    }

    /// Nothing is wrong with the result: it can be copied as soon as this process has room for it.
    pub(super) fn no_room(&self, error: impl std::fmt::Display) -> ExecutionError {
        ExecutionError { fault: Fault::Unreachable, ..ExecutionError::blame(self.me, error) }
    }

    /// Copies `parts`, one after the other. Some are asked for ahead: they lie at different peers, so no link
    /// waits for the end of another peer's answer.
    async fn collect_parts(
        &self,
        peers: &Peers,
        array: &Array,
        target: &Arc<Buffer>,
        parts: Vec<Piece>,
    ) -> Result<(), ExecutionError> {
        let is_mine = |data: &Data| match data {
            Data::Window(window) => self.shown.windows.shows(window, target),
            _ => false,
        };
        let is_here = |part: &Piece| part.process == self.me && (array.in_place || is_mine(&part.data));
        let fetch = async |part: Piece| {
            let fetched = match is_here(&part) {
                true => None,
                false => {
                    let fetched = peers.fetch(part.process, &part.data, Some(part.range)).await?;
                    Some(fetched.part(part.range, array.bytes))
                }
            };
            Ok::<_, ExecutionError>((part, fetched))
        };
        let longest = parts.iter().map(|part| part.range.len).max().unwrap_or(0);
        let ahead = (AHEAD_BYTES / longest.max(1)).clamp(1, AHEAD_MAX);
        let mut fetched = pin!(stream::iter(parts).map(fetch).buffered(ahead as usize));
        let mut copying = Copying::default();
        while let Some((Piece { range, process, .. }, bytes)) = fetched.try_next().await? {
            let progress = |done: bool| {
                let mut progress = array.collected.lock().unwrap_or_else(PoisonError::into_inner);
                progress.touched = progress.touched.max(range.end());
                progress.done = if done { range.end() } else { progress.done };
            };
            if let Some(bytes) = bytes {
                progress(false);
                copying.put(bytes, target, range, process).await?;
            }
            progress(true);
        }
        Ok(())
    }
}

impl Array {
    /// The pieces behind the byte `done`, in parts: long pieces would keep this rank at one peer, and would
    /// need long staging buffers.
    fn parts(&self, pieces: Vec<Piece>, done: u64) -> Vec<Piece> {
        let element_bytes = self.element_bytes.max(1) as u64;
        let longest = (PART_BYTES / element_bytes).max(1) * element_bytes;
        let cut = |Piece { range, process, data }: Piece| {
            let len = if matches!(data, Data::Inline(_)) { range.len.max(1) } else { longest };
            let starts = (range.start.max(done)..range.end()).step_by(len as usize);
            starts.map(move |start| {
                let range = ByteRange { start, len: len.min(range.end() - start) };
                Piece { range, process, data: data.clone() }
            })
        };
        pieces.into_iter().flat_map(cut).collect()
    }
}

/// Copies parts of a result to their places.
#[derive(Default)]
pub(super) struct Copying {
    /// Bytes that this thread has copied since it did something else last.
    on_the_spot: u64,
}

impl Copying {
    /// Copies what `process` has sent to its place in `target`: on this thread if it is short.
    pub async fn put(
        &mut self,
        bytes: Fetched,
        target: &Arc<Buffer>,
        range: ByteRange,
        process: ProcessId,
    ) -> Result<(), ExecutionError> {
        let target = target.clone();
        let copy = move || copy(&bytes, &target, range, process);
        if range.len as usize > ON_THE_SPOT_BYTES {
            let copied = tokio::task::spawn_blocking(copy).await;
            return copied.unwrap_or_else(|error| Err(ExecutionError::blame(process, error)));
        }
        copy()?;
        self.on_the_spot += range.len;
        // Meanwhile this thread answers no pings and serves no reads.
        if self.on_the_spot >= AHEAD_BYTES {
            self.on_the_spot = 0;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

/// Copies what `process` has sent to its place in `target`.
fn copy(
    bytes: &Fetched,
    target: &Arc<Buffer>,
    range: ByteRange,
    process: ProcessId,
) -> Result<(), ExecutionError> {
    // A peer may still read the bytes that are about to be overwritten, for a task that was given up.
    let mut target = target.write(range.start, range.len).map_err(|error| ExecutionError {
        fault: Fault::Unreachable,
        ..ExecutionError::blame(process, error)
    })?;
    if bytes.len() != target.len() {
        return Err(ExecutionError::blame(process, ReadError::Released));
    }
    target.copy_from_slice(bytes);
    match bytes.is_still_valid() {
        true => Ok(()),
        false => {
            let blame = ExecutionError::blame(process, ReadError::Released);
            Err(ExecutionError { fault: Fault::Unreachable, ..blame })
        }
    }
}
