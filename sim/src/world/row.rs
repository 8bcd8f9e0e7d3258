//! How a rank puts pieces side by side: each from where it can be reached.

use std::time::Duration;

use everfold_protocol::{
    ProcessId, Rank, ReductionId, SegmentId, SegmentIndex,
    message::{Data, Fault, Piece},
};
use everfold_worker::machine::{Collected, Collecting, Event};

use super::World;
use crate::{
    evidence::NONSENSE,
    faults::{Reach, failure, unread},
    process::Shown,
    work::{Spent, Work, is_at_hand},
};

impl World {
    /// Lets a rank copy pieces, or go on with that. Those that have come stay when another cannot be had.
    pub(super) fn collect_row(
        &mut self,
        process: ProcessId,
        reduction: ReductionId,
        pieces: Vec<Piece>,
        (how, mut spent): (Collecting, Spent),
    ) {
        let rank = process.rank;
        let pattern = self.process(rank).shares[&reduction].spec.kind.pattern();
        // What is for this rank alone is shown to nobody.
        let is_shown = pattern.is_none_or(|pattern| pattern.cut().is_none());
        let must_show = how.beside && is_shown;
        if must_show && (self.process(rank).is_windowless || self.has_no_room(rank, reduction)) {
            *self.seen.entry("no room for a result").or_default() += 1;
            let error = failure(process, Fault::Unreachable, "there is no room for it");
            return self.collected_in_part(rank, reduction, None, error);
        }
        let done = self.process(rank).shares[&reduction].row.len();
        let starts = pieces.iter().scan(0, |next, piece| {
            *next += piece.range.len;
            Some(*next - piece.range.len)
        });
        let starts: Vec<u64> = starts.collect();
        let pauses = !pieces.iter().all(|piece| is_at_hand(piece, process));
        for (number, piece) in pieces.iter().enumerate().skip(done) {
            if number > done && number - done == self.settings.collect_segments && pauses {
                if self.process(rank).released.contains(&reduction) {
                    return;
                }
                *self.seen.entry("pauses between pieces").or_default() += 1;
                let how = Collecting { afresh: false, ..how };
                return self.begin(process, Work::Collect(reduction, pieces.clone(), how));
            }
            let share = &self.process(rank).shares[&reduction];
            let ahead = share.found_ahead(piece.range).filter(|_| pieces.len() == 1);
            if let Some(ahead) = ahead {
                self.process_mut(rank)
                    .shares
                    .get_mut(&reduction)
                    .expect("it was called here")
                    .row
                    .push(ahead);
                continue;
            }
            let reach = self.reaches(rank, piece.process, &piece.data, reduction);
            match self.with_patience(reach, &mut spent) {
                Reach::Now => spent.unanswered = Duration::ZERO,
                Reach::Later => {
                    let how = Collecting { afresh: false, ..how };
                    return self.try_again(process, Work::Collect(reduction, pieces, how), spent);
                }
                reach @ (Reach::Never | Reach::Gone) => {
                    self.note_given_up(piece.process);
                    let error = unread(piece.process, reach);
                    return self.collected_in_part(rank, reduction, None, error);
                }
            }
            if self.is_garbled(rank, piece.process, &piece.data) {
                let error = failure(piece.process, Fault::Damaged, "it is damaged");
                return self.collected_in_part(rank, reduction, None, error);
            }
            let found = self.piece(reduction, piece, (number, starts[number]));
            let is_it = |(_, ahead): &(u64, Rank)| *ahead == found;
            let is_whole = self.process(rank).shares[&reduction].ahead.values().all(is_it);
            let found = if is_whole { found } else { NONSENSE };
            self.process_mut(rank).shares.get_mut(&reduction).expect("it was called here").row.push(found);
        }
        let bytes = pieces.iter().map(|piece| piece.range.len).sum();
        let me = self.process_mut(rank);
        let share = me.shares.get_mut(&reduction).expect("it was called here");
        share.collected = vec![share.row.clone()];
        let body = is_shown.then(|| me.window(reduction, Shown::Result, bytes));
        self.tell_worker(rank, Event::Collected { reduction, result: Ok(Collected::Whole(body)) });
    }

    /// Lets a rank copy a part of the only piece beforehand.
    pub(super) fn prefetch(
        &mut self,
        process: ProcessId,
        reduction: ReductionId,
        (bytes, part): (u64, Piece),
        mut spent: Spent,
    ) {
        let (rank, range) = (process.rank, part.range);
        let reach = self.reaches(rank, part.process, &part.data, reduction);
        let is_had = match self.with_patience(reach, &mut spent) {
            Reach::Now => !self.is_garbled(rank, part.process, &part.data),
            Reach::Later => return self.try_again(process, Work::Prefetch(reduction, bytes, part), spent),
            Reach::Never | Reach::Gone => {
                self.note_given_up(part.process);
                false
            }
        };
        if self.process(rank).is_windowless || !is_had {
            *self.seen.entry("parts of a piece that could not be had beforehand").or_default() += 1;
            return self.tell_worker(rank, Event::Prefetched { reduction, start: range.start, body: None });
        }
        let found = self.find_part(reduction, &part);
        let me = self.process_mut(rank);
        let body = Some(me.window(reduction, Shown::Result, bytes));
        let share = me.shares.get_mut(&reduction).expect("it was called here");
        share.ahead.insert(range.start, (range.len, found));
        self.tell_worker(rank, Event::Prefetched { reduction, start: range.start, body });
    }

    /// Whose piece is found in a part of the only piece: at its owner, or at a rank that has copied the part.
    fn find_part(&mut self, reduction: ReductionId, part: &Piece) -> Rank {
        let segment = SegmentId { reduction, index: SegmentIndex(0) };
        let owner = self.of(part.process);
        let shown = match &part.data {
            Data::Window(window) => owner.shown(window),
            Data::Inline(_) | Data::Private => None,
        };
        if shown != Some(Shown::Result) {
            return owner.read(&part.data, segment).first().copied().unwrap_or(NONSENSE);
        }
        let lent = owner.shares.get(&reduction).filter(|share| share.is_lent());
        let found = lent.and_then(|share| share.found_ahead(part.range));
        *self.seen.entry("parts of a piece read where they were copied beforehand").or_default() += 1;
        found.unwrap_or(NONSENSE)
    }

    /// Whose piece is found where the piece with this number is said to lie; it belongs `at` there in a row.
    fn piece(&mut self, reduction: ReductionId, piece: &Piece, (number, at): (usize, u64)) -> Rank {
        let segment = SegmentId { reduction, index: SegmentIndex(0) };
        let owner = self.of(piece.process);
        let shown = match &piece.data {
            Data::Window(window) => owner.shown(window),
            Data::Inline(_) | Data::Private => None,
        };
        let found = owner.read(&piece.data, segment);
        let is_row = shown == Some(Shown::Result);
        let is_cut = owner
            .shares
            .get(&reduction)
            .is_some_and(|it| it.spec.kind.pattern().is_some_and(|it| it.cut().is_some()));
        let found = match is_row {
            // What a rank has received is nobody else's.
            true if is_cut => None,
            true => found.get(number).copied().filter(|_| piece.range.start == at),
            false => found.first().copied().filter(|_| piece.range.start == 0 && found.len() == 1),
        };
        if is_row {
            *self.seen.entry("pieces read where they were copied").or_default() += 1;
        }
        found.unwrap_or(NONSENSE)
    }
}
