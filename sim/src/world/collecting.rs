//! How a rank copies a result: as a whole or bit by bit, from where it can be reached.

use std::time::Duration;

use everfold_protocol::{
    ProcessId, Rank, ReductionId, SegmentId,
    message::{ByteRange, Fault, HalfBody, Piece},
};
use everfold_worker::machine::{Collected, Collecting, Event, ExecutionError};
use rand::Rng;

use super::World;
use crate::{
    evidence::NONSENSE,
    faults::{Reach, failure, unread},
    process::Shown,
    work::{Spent, Work, is_at_hand},
};

/// Bytes that are never torn apart.
const ELEMENT_BYTES: u64 = 8;

impl World {
    /// Lets a rank copy a result, or go on with that.
    pub(super) fn collect(
        &mut self,
        process: ProcessId,
        reduction: ReductionId,
        pieces: Vec<Piece>,
        (asked, mut spent): (Collecting, Spent),
    ) {
        let rank = process.rank;
        if self.process(rank).shares[&reduction].spec.kind.pattern().is_some() {
            return self.collect_row(process, reduction, pieces, (asked, spent));
        }
        let mut at = 0;
        for piece in &pieces {
            assert_eq!(piece.range.start, at, "the pieces of a result lie end to end");
            at = piece.range.end();
        }
        if asked.beside && self.has_no_room(rank, reduction) {
            *self.seen.entry("no room for a result").or_default() += 1;
            let error = failure(process, Fault::Unreachable, "there is no room for it");
            return self.collected_in_part(rank, reduction, None, error);
        }
        if asked.beside && self.process(rank).is_windowless && !self.process(rank).has_partial(reduction) {
            let reason = "there is no window left for another one";
            let error = failure(process, Fault::Unreachable, reason);
            return self.collected_in_part(rank, reduction, None, error);
        }
        let share = &self.process(rank).shares[&reduction];
        let (spec, is_inline, how) = (share.spec.clone(), share.inline, share.how);
        let done = share.collected.len();
        if done == 0 && !share.shown && !how.beside && self.process(rank).lends_body(reduction) {
            // The result is copied over the body, which other ranks still read.
            return self.wait_for_readers(process, Work::Collect(reduction, pieces, how), spent);
        }
        let pauses = !pieces.iter().all(|piece| is_at_hand(piece, process));
        for (number, (index, range)) in self.settings.segments(reduction, &spec).skip(done).enumerate() {
            if number > 0 && number == self.settings.collect_segments && pauses {
                if self.process(rank).released.contains(&reduction) {
                    return;
                }
                *self.seen.entry("pauses within the copy of a result").or_default() += 1;
                return self.begin(process, Work::Collect(reduction, pieces, how));
            }
            let piece = pieces.iter().find(|piece| contains(piece.range, range));
            let piece = piece.expect("each segment has its piece");
            let segment = SegmentId { reduction, index };
            let reach = self.reaches(rank, piece.process, &piece.data, reduction);
            let reach = self.with_patience(reach, &mut spent);
            match reach {
                Reach::Now => spent.unanswered = Duration::ZERO,
                Reach::Later => return self.try_again(process, Work::Collect(reduction, pieces, how), spent),
                Reach::Never | Reach::Gone => {
                    self.note_given_up(piece.process);
                    let is_array = spec.kind.array_bytes().is_some() && !is_inline;
                    let body = is_array.then(|| self.half_body(rank, segment, (range, at)));
                    let error = unread(piece.process, reach);
                    return self.collected_in_part(rank, reduction, body, error);
                }
            }
            if self.is_garbled(rank, piece.process, &piece.data) {
                let is_array = spec.kind.array_bytes().is_some() && !is_inline;
                let body = is_array.then(|| self.half_body(rank, segment, (range, at)));
                let error = failure(piece.process, Fault::Damaged, "it is damaged");
                return self.collected_in_part(rank, reduction, body, error);
            }
            let value = self.of(piece.process).read(&piece.data, segment);
            let process = self.process_mut(rank);
            if how.beside {
                process.torn.remove(&segment);
                process.partials.insert(segment, value.clone());
            }
            let share = process.shares.get_mut(&reduction).expect("it was called here");
            share.collected.push(value);
            share.touched = 0;
        }
        let body = match how.beside {
            true => self.process_mut(rank).window(reduction, Shown::Partial, at),
            false => self.process_mut(rank).window(reduction, Shown::Result, at.max(100_000)),
        };
        self.tell_worker(rank, Event::Collected { reduction, result: Ok(Collected::Whole(Some(body))) });
    }

    /// Whether there is no window or memory for a result beside a contribution. The next time there is.
    pub(super) fn has_no_room(&mut self, rank: Rank, reduction: ReductionId) -> bool {
        let process = self.process_mut(rank);
        let has_partial = process.partials.keys().any(|segment| segment.reduction == reduction);
        let share = process.shares.get_mut(&reduction).expect("it was called here");
        std::mem::take(&mut share.is_crowded) && !has_partial && share.collected.is_empty()
    }

    /// Shows what an array holds whose next segment, which lies at `range`, could not be copied, or not as a
    /// whole.
    fn half_body(&mut self, rank: Rank, segment: SegmentId, (range, bytes): (ByteRange, u64)) -> HalfBody {
        let elements = range.len / ELEMENT_BYTES;
        let tears = self.settings.halves && self.courier.random().random_bool(0.5);
        let touched =
            if tears { ELEMENT_BYTES * self.courier.random().random_range(1..=elements) } else { 0 };
        *self.seen.entry("segments of a result half copied").or_default() += u64::from(tears);
        let process = self.process_mut(rank);
        let share = process.shares.get_mut(&segment.reduction).expect("it was called here");
        share.shown = true;
        share.touched = share.touched.max(touched);
        let (untouched, beside) = (range.start + share.touched, share.how.beside);
        if beside && share.touched > 0 {
            process.partials.insert(segment, vec![NONSENSE]);
            process.torn.insert(segment);
        }
        let shown = if beside { Shown::Partial } else { Shown::Original };
        let data = process.window(segment.reduction, shown, bytes);
        // The last bytes of what was touched may be there or not.
        HalfBody { data, collected: range.start + touched / 2, untouched }
    }

    /// Lets a rank say that it has only a part of a result.
    pub(super) fn collected_in_part(
        &mut self,
        rank: Rank,
        reduction: ReductionId,
        body: Option<HalfBody>,
        error: ExecutionError,
    ) {
        let result = error.into_collected(|| body);
        self.tell_worker(rank, Event::Collected { reduction, result });
    }
}

fn contains(outer: ByteRange, inner: ByteRange) -> bool {
    outer.start <= inner.start && inner.end() <= outer.end()
}
