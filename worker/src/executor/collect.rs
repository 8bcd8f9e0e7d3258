//! Copying a finished result here.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use bytes::Bytes;
use everfold_protocol::message::{ByteRange, Data, Fault, HalfBody, Piece, WindowRef};

use super::{Array, Kind, ON_THE_SPOT_BYTES, Progress, Share, handed_back};
use crate::{
    body::BodyError,
    machine::{Collected, ExecutionError},
    memory::{buffer::Buffer, window::Content},
    peers::Peers,
    transport::{Fetched, ReadError},
};

impl Share {
    /// Copies a finished result into this rank's body. What could not be reached may come with another call; then the body
    /// stays readable for others meanwhile.
    ///
    /// # Errors
    /// A piece does not fit, or is damaged; the body is then of no use.
    pub async fn collect(
        self: &Arc<Self>,
        peers: &Peers,
        pieces: Vec<Piece>,
    ) -> Result<Collected, ExecutionError> {
        if self.group.len() == 1 {
            return Ok(Collected::Whole(None));
        }
        let in_windows = pieces.iter().any(|piece| matches!(piece.data, Data::Window(_)));
        match self.collect_pieces(peers, pieces).await {
            Ok(encoded) if in_windows => {
                Ok(Collected::Whole(encoded.or_else(|| self.show_half().map(|half| half.data))))
            }
            Ok(_) => Ok(Collected::Whole(None)),
            Err(error) if error.fault == Fault::Unreachable => {
                Ok(Collected::Part { body: self.show_half(), error })
            }
            Err(error) => Err(error),
        }
    }

    /// Shows an array into which the result was copied, or a part of it.
    fn show_half(&self) -> Option<HalfBody> {
        let Kind::Array(array) = &self.kind else { return None };
        let original = array.original().ok()?;
        let mut progress = array.collected.lock().unwrap_or_else(PoisonError::into_inner);
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
    ) -> Result<Option<Data>, ExecutionError> {
        match &self.kind {
            Kind::Array(array) => {
                let original = array.original().map_err(|error| ExecutionError::blame(self.me, error))?;
                // All originals are folded; nobody reads this one any more, unless it is itself a part of the result.
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
                    // Whoever has read it last may not have let go of it yet.
                    original.idle().await;
                }
                for mut piece in pieces.into_iter().filter(|piece| piece.range.end() > progress.done) {
                    let start = piece.range.start.max(progress.done);
                    piece.range = ByteRange { start, len: piece.range.end() - start };
                    self.collect_piece(peers, array, &original, piece).await?;
                }
                Ok(None)
            }
            Kind::Object(_) => {
                let Some(Piece { process, data, .. }) = pieces.into_iter().next() else { return Ok(None) };
                if process == self.me {
                    return Ok(Some(data));
                }
                let bytes = peers.fetch(process, &data, None).await?;
                let share = self.clone();
                let replaced = tokio::task::spawn_blocking(move || share.replace(bytes)).await;
                replaced
                    .unwrap_or_else(|error| Err(BodyError(format!("decoding panicked: {error}"))))
                    .map_err(|error| ExecutionError::blame(process, error))
            }
        }
    }

    /// Puts the decoded `bytes` in the place of this rank's object, and shows them if they did not come in a message.
    fn replace(&self, bytes: Fetched) -> Result<Option<Data>, BodyError> {
        if let Kind::Object(object) = &self.kind {
            let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
            let object = object.as_mut().ok_or_else(handed_back)?;
            *object = object.decode(&bytes)?;
            self.over.store(true, Ordering::SeqCst);
        }
        Ok(match bytes {
            Fetched::Inline(_) => None,
            bytes => self.shown.publish(Content::Encoded(Bytes::from_owner(bytes))).ok(),
        })
    }

    async fn collect_piece(
        &self,
        peers: &Peers,
        array: &Array,
        original: &Arc<Buffer>,
        piece: Piece,
    ) -> Result<(), ExecutionError> {
        let Piece { range, process, data } = piece;
        let progress = |part: ByteRange, done: bool| {
            let mut progress = array.collected.lock().unwrap_or_else(PoisonError::into_inner);
            progress.touched = progress.touched.max(part.end());
            progress.done = if done { part.end() } else { progress.done };
        };
        let is_mine = |window| self.shown.windows.shows(window, original);
        if process == self.me && (array.in_place || matches!(&data, Data::Window(window) if is_mine(window)))
        {
            progress(range, true);
            return Ok(());
        }
        let inline = matches!(data, Data::Inline(_));
        // Long pieces come in parts, so that staging stays short and peers are read in turn.
        let part_bytes = (1 << 20) / array.element_bytes.max(1) as u64 * array.element_bytes.max(1) as u64;
        let part_bytes = if inline { range.len } else { part_bytes.max(array.element_bytes as u64) };
        for start in (range.start..range.end()).step_by(part_bytes as usize) {
            let part = ByteRange { start, len: part_bytes.min(range.end() - start) };
            let bytes = peers.fetch(process, &data, Some(part)).await?;
            let original = original.clone();
            progress(part, false);
            let copy = move || {
                let unreachable = || ExecutionError {
                    fault: Fault::Unreachable,
                    ..ExecutionError::blame(process, ReadError::Released)
                };
                // A peer may still read what is about to be overwritten, for a task that was given up.
                let mut target = original.write(part.start, part.len).map_err(|error| ExecutionError {
                    fault: Fault::Unreachable,
                    ..ExecutionError::blame(process, error)
                })?;
                if bytes.len() != target.len() {
                    return Err(ExecutionError::blame(process, ReadError::Released));
                }
                target.copy_from_slice(&bytes);
                if bytes.is_still_valid() { Ok(()) } else { Err(unreachable()) }
            };
            if part.len as usize <= ON_THE_SPOT_BYTES {
                copy()?;
            } else {
                let copied = tokio::task::spawn_blocking(copy).await;
                copied.unwrap_or_else(|error| Err(ExecutionError::blame(process, error)))?;
            }
            progress(part, true);
        }
        Ok(())
    }
}
