//! How a result reaches its receivers although processes die.
//!
//! The pieces of a result lie in windows of the processes that folded them, and are copied from there. A rank
//! that misses a piece says so, tells how much of the result its body holds, and is told again when it can
//! copy more. If the piece went with its process, and all ranks that still copy have missed it, the reduction
//! is taken up again: partials of survivors, replicas, and the half-filled bodies cover the lost piece, as in
//! any recovery.
//!
//! A rank that has the result hands it to its application, shows its partials until all have it, and folds
//! nothing any more. The first two keep the result until then, and lend it, so that no single death takes
//! from others a result that a rank already has. A rank that cannot reach a living process with a piece is
//! told a lender instead, and if it has reached none of them, each in turn; once it has tried for longer than
//! any silence is tolerated, the reduction ends in `ResultLost` for all ranks without the result.
//!
//! # One report, one deadline
//! Some calls have ended before others, and their processes may have died since. So contributors, deaths and
//! copies in a report stay as they were when the result was first handed out, unless there is another result;
//! that is possible only while no call may have ended with this one. A deadline goes on while the result is
//! copied. When it passes, ranks that have the result receive it, and the others hear that it has passed.
//!
//! # Missing contributions
//! A result that was copied over contributions is all that is left of them. If the rest of it was lost with a
//! process whose contribution is nowhere else, nothing can be delivered: a part of the result holds that
//! contribution, the rest cannot, and a result has the same contributors in every element. So if the caller
//! allows contributions to be missing, ranks of several hosts copy the result *beside* their contributions:
//! over their partials, which no task needs any more, so that it takes no memory. All of them lend the
//! result, and put it into their bodies once all have it. Until then either a living process has the whole
//! result, or the contributions of all living ranks can be folded anew. The price is a copy within memory,
//! and all ranks wait for the last. On one host, memory outlives its process anyway.
//!
//! Pieces that are for one rank alone lie beside its contribution, too, but no other rank reads them. A rank
//! that has them waits only until the master has heard so; from then on no other result takes their place. If
//! the rank is given up before, the others may go on without it, and its call does not end well.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentIndex, Timestamp,
    message::{Data, Fault, Finished, HalfBody, Learning, NotCollected, Piece, ToWorker},
    report::{Refusal, Report},
    spec::Delivery,
};

use super::Reduction;
use crate::{desk::Desk, membership::Membership, queue::Ready};

/// How the handing out of a result goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// Some ranks have yet to copy it.
    Waits,
    /// Ranks that have missed a piece can have it by now.
    CanGoOn,
    /// All have it.
    IsDone,
    /// It is lost, or its receiver is.
    IsLost,
}

impl Reduction {
    /// Whether those who have copied the result lend it: where pieces of it go with their processes, or with
    /// a host that is not everybody's, and where another result may take its place until all have it.
    pub(crate) fn lends(&self, pieces: &[Piece]) -> bool {
        let outlives = |piece: &Piece| match &piece.data {
            Data::Window(window) => self.share_memory && window.place.outlives_its_process(),
            Data::Inline(_) | Data::Private => true,
        };
        let may_change = self.copies_beside();
        let is_for_all = matches!(self.spec.delivery, Delivery::All) && self.is_one_for_all();
        self.is_confirmed() || (is_for_all && (may_change || !pieces.iter().all(outlives)))
    }

    /// Whether contributions stay as they are until all have the result.
    pub(crate) fn leaves_contributions(&self) -> bool {
        self.copies_beside() || self.is_confirmed()
    }

    /// Whether a rank that has its own part of the result, which nobody else has, waits until the master has
    /// heard so: another result may have taken its place before. Where ranks come back they note it instead.
    fn is_confirmed(&self) -> bool {
        self.spec.allow_missing && !self.ranks_return && !self.is_one_for_all()
    }

    /// Notes that `ranks` copy the result. If they do not copy it beside them, their bodies, where arrays
    /// have lain so far, change from now on. What a dead process has left stays as it is: the process in its
    /// place has a body of its own.
    pub(crate) fn hand_out(&mut self, ranks: Path, members: &Membership) {
        if self.spec.kind.array_bytes().is_some() && !self.copies_beside() {
            let changes = |original: &Ready| !original.is_inline() && members.lives(original.process);
            self.originals.retain(|rank, original| !(ranks.contains(*rank) && changes(original)));
        }
        // A rank that still works on a task that was given up is busy until it answers, should the reduction
        // be taken up again.
        for abandoned in self.segments.iter_mut().flat_map(|segment| &mut segment.abandoned) {
            abandoned.counts = false;
        }
        let is_away = |rank: &Rank| members.alive(*rank).is_none() || !self.has_caller(*rank);
        let away = ranks.iter().filter(is_away).collect();
        self.handout.begin(ranks, away);
    }

    /// The report of a result that is handed out.
    pub(crate) fn report_of_result(&mut self, now: Timestamp) -> Report {
        let report = self.report(now);
        self.handout.tell(report)
    }

    /// Ranks that still copy the result out of other ranks' windows, if it is handed out.
    pub fn collecting(&self) -> Option<&Path> {
        self.handout.waiting()
    }

    /// Whether `rank` still copies the result.
    pub(crate) fn awaits_collector(&self, rank: Rank) -> bool {
        self.handout.awaits(rank)
    }

    /// Whether the result is handed out.
    pub(crate) fn is_handed_out(&self) -> bool {
        self.handout.waiting().is_some()
    }

    /// Ranks that have the result.
    pub(crate) fn have_it(&self) -> &Path {
        self.handout.have_it()
    }

    /// The half-filled bodies that hold this segment: of the result, or of their owner's contribution.
    pub(super) fn half_filled(&self, index: SegmentIndex) -> impl Iterator<Item = Arc<Ready>> + '_ {
        self.handout.of_segment(self.range(index), &self.group).flat_map(|whole| self.pieces_of(whole))
    }

    /// Hands the result to `receiver` alone.
    pub(crate) fn deliver(&mut self, id: ReductionId, receiver: Rank, members: &Membership) -> Finished {
        self.handout.choose(receiver);
        let finished = self.finished(id);
        self.hand_out(Path::single(receiver), members);
        finished
    }

    fn finished(&mut self, id: ReductionId) -> Finished {
        let (result, report) = (self.pieces(), self.report_of_result(self.last_progress));
        let (lend, beside) = (self.lends(&result), self.leaves_contributions());
        Finished { reduction: id, lend, beside, learning: Learning::default(), result, last: None, report }
    }

    /// Tells those who could not copy the whole result where it lies now, as far as they can reach that.
    /// Returns false if some of it is gone.
    pub(crate) fn tell_returned(&mut self, id: ReductionId, desk: &mut Desk) -> bool {
        if !self.handout.go_on() {
            return true;
        }
        if !self.is_result_readable(&desk.members) {
            return false;
        }
        let returned = self.handout.take_returned();
        let finished = self.finished(id);
        for to in desk.members.processes_of(&returned) {
            let pieces = self.pieces_for(to.rank, &desk.members);
            let result = pieces.unwrap_or_else(|| finished.result.clone());
            let finished = Finished { result, ..finished.clone() };
            desk.outbox.send(to, ToWorker::Finished(Box::new(finished)));
        }
        true
    }

    /// Tells `receiver` where the result lies.
    pub(super) fn tell_result(&mut self, id: ReductionId, receiver: ProcessId, desk: &mut Desk) {
        let finished = self.finished(id);
        desk.outbox.send(receiver, ToWorker::Finished(Box::new(finished)));
    }

    /// Where the finished segments lie; neighbouring ones in one window are one piece.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        self.pieces_at(|_, result| result.clone())
    }

    /// The same, of what `place` names for each segment and its result.
    pub(crate) fn pieces_at(&self, place: impl Fn(SegmentIndex, &Arc<Ready>) -> Arc<Ready>) -> Vec<Piece> {
        if self.has_pieces() {
            return self.side_by_side(place);
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for (index, segment) in (0..).map(SegmentIndex).zip(&self.segments) {
            let Some(result) = segment.result.first() else { continue };
            let result = place(index, result);
            let range = self.range(index);
            match pieces.last_mut() {
                Some(last)
                    if last.process == result.process && !result.is_inline() && last.data == result.data =>
                {
                    last.range.len += range.len;
                }
                _ => pieces.push(Piece { range, process: result.process, data: result.data.clone() }),
            }
        }
        pieces
    }

    /// Where `rank` finds the pieces of the result: with others than those where it has missed them, if others
    /// have them, and otherwise with each in turn.
    fn pieces_for(&self, rank: Rank, members: &Membership) -> Option<Vec<Piece>> {
        let misses = self.handout.missed(rank)?;
        Some(self.pieces_at(|index, result| {
            let turn = |ready: &Arc<Ready>| misses.turn(ready.process.rank);
            let has_it = |ready: &Arc<Ready>| {
                ready.path == result.path && ready.process.rank != rank && self.is_readable(ready, members)
            };
            if turn(result) == 0 {
                return result.clone();
            }
            let holders = self.half_filled(index).filter(has_it);
            holders.chain([result.clone()]).min_by_key(turn).expect("there is the result itself")
        }))
    }

    /// Whether a call may have ended with the result, or somebody who lives can lend it: then no other result
    /// takes its place.
    pub(crate) fn is_settled(&self, members: &Membership) -> bool {
        match self.copies_beside() {
            true => self.handout.lenders(members).next().is_some(),
            false => !self.handout.have_it().is_empty(),
        }
    }

    /// Whether parts of a result lie where contributions have lain.
    pub(crate) fn is_overwritten(&self) -> bool {
        !self.handout.keeps_nothing() && !self.copies_beside()
    }

    /// Notes that a rank's call has ended without the result that it copied beside its contribution.
    fn give_up_collector(&mut self, rank: Rank) {
        self.originals.retain(|owner, original| original.is_inline() || *owner != rank);
        self.handout.drop_body(rank);
        for segment in &mut self.segments {
            segment.held.remove(&rank);
            segment.spoil(rank);
        }
    }

    /// Whether ranks copy the result beside their contributions, and keep both until all have it. Where
    /// memory is shared, arrays that were folded outlive their processes; encoded objects do not.
    pub(crate) fn copies_beside(&self) -> bool {
        let is_object = self.spec.kind.array_bytes().is_none();
        let is_wanted = self.spec.allow_missing && !self.ranks_return && self.is_one_for_all();
        is_wanted && (is_object || !self.share_memory)
    }

    /// Notes that `process`, which has copied the result, has all of it, and where it lends it. Returns
    /// whether it is to.
    pub(crate) fn take_collected(
        &mut self,
        process: ProcessId,
        body: Option<Data>,
        members: &Membership,
    ) -> bool {
        let rank = process.rank;
        self.handout.serve(rank);
        if self.is_confirmed() {
            return false;
        }
        let beside = self.copies_beside();
        if beside && body.is_none() {
            self.give_up_collector(rank);
            return true;
        }
        let lends = beside || self.handout.keeps(rank) || self.handout.wants_lender(rank, members);
        if let Some(data) = body.filter(|_| lends) {
            self.handout.lend(process, data);
        }
        lends
    }

    /// Takes in that `process` could not copy the whole result. Returns how long to wait before it tries
    /// again, if nobody waits yet: one pause is for all who miss something meanwhile.
    ///
    /// # Errors
    /// It has been tried for too long.
    pub(crate) fn take_miss(
        &mut self,
        process: ProcessId,
        part: NotCollected,
        desk: &Desk,
    ) -> Result<Option<Duration>, Refusal> {
        let NotCollected { culprit, fault, body, .. } = part;
        let so_far = body.as_ref().map_or(0, |half| half.collected);
        body.into_iter().for_each(|half| self.take_back(process, half));
        let lives = desk.members.lives(culprit);
        let is_there = lives || (fault != Fault::Gone && desk.members.is_answered_for(culprit));
        if !is_there && self.could_be_read(culprit, &desk.members) {
            // Its memory is not there any more: it did not just die.
            self.handout.lose(culprit);
        }
        let misses = self.handout.miss(process.rank, so_far);
        // A rank that finds no room itself gives up by itself, unless it is the only one who is to have the
        // result.
        if culprit != process || !matches!(self.spec.delivery, Delivery::All) {
            misses.again(desk.now, so_far, desk.policy.limits.read_patience());
        }
        if is_there && culprit != process {
            misses.miss(culprit.rank);
        }
        if misses.exceed(desk.policy.tries_max()) {
            return Err(Refusal::ResultLost { ranks: Path::single(culprit.rank) });
        }
        // Most likely a death is about to be noticed.
        let pause = misses.pause();
        Ok(self.handout.pause().then_some(pause))
    }

    /// Notes what the body holds of a rank that could not copy the whole result.
    fn take_back(&mut self, process: ProcessId, mut half: HalfBody) {
        let rank = process.rank;
        if self.copies_beside() {
            // There its partials were.
            let untouched = core::mem::replace(&mut half.untouched, u64::MAX);
            for index in self.segments.indices() {
                if self.range(index).start < untouched {
                    let segment = &mut self.segments[index];
                    segment.held.remove(&rank);
                    segment.spoil(rank);
                }
            }
        }
        self.handout.keep(process, half);
    }

    /// Notes that `rank` copies nothing more. Returns whether it did.
    pub(crate) fn stop_collecting(&mut self, rank: Rank) -> bool {
        self.handout.stop(rank)
    }

    /// Hands the result out no longer.
    pub(crate) fn take_up_again(&mut self) {
        self.handout.end();
    }

    /// Takes in that `rank` will never be here again. Returns whether somebody waits for the result, or all have
    /// it.
    pub(crate) fn expect_never(&mut self, rank: Rank, members: &Membership) -> bool {
        let waited = self.handout.stop(rank);
        let all_have_it = self.all_have_it(members);
        if all_have_it {
            self.handout.complete();
        }
        waited || all_have_it
    }

    /// Takes in that the `dead` copy nothing any more. What later processes among them have contributed is
    /// kept. Returns false if the result is not handed out.
    pub(crate) fn lose_collectors(
        &mut self,
        now: Timestamp,
        dead: &[ProcessId],
        members: &Membership,
    ) -> bool {
        if self.all_have_it(members) {
            self.handout.complete();
        }
        for process in dead {
            let rank = process.rank;
            self.forget_overwritten(rank);
            self.lose_left_out(rank);
            self.keep_later_original(now, rank, members);
            match members.away().contains(rank) {
                true => self.handout.leave(rank),
                false => drop(self.handout.stop(rank)),
            }
        }
        self.is_handed_out()
    }

    /// Whether a rank is to copy the result, or has it.
    pub(super) fn copies_or_has_it(&self, rank: Rank) -> bool {
        self.handout.awaits(rank) || self.have_it().contains(rank)
    }

    /// Forgets the partials of a rank that has died, if it was to copy the result over them: nobody knows how
    /// far it came. Pieces of the result stay as they are.
    fn forget_overwritten(&mut self, rank: Rank) {
        if !(self.copies_or_has_it(rank) && self.copies_beside()) {
            return;
        }
        for segment in &mut self.segments {
            let is_overwritten = |held: &Arc<Ready>| held.path != self.group && !held.is_inline();
            if segment.held.get(&rank).is_some_and(is_overwritten) {
                segment.held.remove(&rank);
                segment.spoil(rank);
            }
        }
    }

    /// How the handing out of its result goes on.
    pub(crate) fn course(&self, members: &Membership) -> Course {
        let Some(waiting) = self.handout.waiting() else { return Course::Waits };
        let is_for_one = matches!(self.spec.delivery, Delivery::FirstOf(_));
        let nobody_has_it = is_for_one && self.handout.have_it().is_empty();
        match waiting.is_empty() {
            true if nobody_has_it => Course::IsLost,
            true => Course::IsDone,
            false if !self.handout.is_stuck() => Course::Waits,
            false if !self.is_result_readable(members) => Course::IsLost,
            false if self.handout.is_put_off() => Course::CanGoOn,
            false => Course::Waits,
        }
    }

    /// Whether a result that was lost is not missed any more: all who still live, or come back, have it.
    pub(crate) fn all_have_it(&self, members: &Membership) -> bool {
        let have_it = self.handout.have_it();
        // A rank whose contribution is to come again has called. So may have one whose contribution is
        // missing.
        let left_out = self.missing.iter().filter(|rank| self.is_left_out(*rank));
        let mut waiting = self.group.iter().chain(left_out).filter(|rank| !have_it.contains(*rank));
        !have_it.is_empty() && waiting.all(|rank| !members.takes_part(rank))
    }

    /// Whether all of the result that lies at `culprit` is where it can be read after a death.
    fn could_be_read(&self, culprit: ProcessId, members: &Membership) -> bool {
        let results = self.segments.iter().flat_map(|segment| &segment.result);
        results.filter(|it| it.process == culprit).all(|it| members.readable(it, self.share_memory))
    }

    fn is_result_readable(&self, members: &Membership) -> bool {
        let is_there = |ready: &Arc<Ready>| self.is_readable(ready, members);
        self.segments.iter().all(|segment| segment.is_finished && segment.result.iter().all(is_there))
    }

    /// Whether a partial can be read where it lies, as far as is known.
    pub(super) fn is_readable(&self, ready: &Ready, members: &Membership) -> bool {
        members.readable(ready, self.share_memory) && ready.outlasts(self.handout.gone())
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        RegionOffset,
        message::{Ending, Evidence, Place},
    };

    use super::*;
    use crate::{
        lengths::Cut,
        membership::Prospect,
        reduction::testing::{self, process},
    };

    fn window() -> Data {
        testing::window(Place::Region(RegionOffset(0)))
    }

    /// A reduction of four ranks on one host whose result is with rank 3, and their job.
    fn reduction() -> (Reduction, Membership) {
        let group = Path::range(0, 4);
        let spec = testing::spec(4, testing::object());
        let mut reduction = testing::reduction(spec, window(), Cut::fixed(0), true);
        let result = Ready { process: process(3), path: group.clone(), data: window() };
        reduction.put(SegmentIndex(0), Arc::new(result));
        reduction.handout.begin(group, Path::empty());
        (reduction, testing::job(&[0; 4]))
    }

    #[test]
    fn whoever_has_missed_a_result_is_sent_to_each_who_has_it_in_turn() {
        let (mut reduction, mut members) = reduction();
        let told = |reduction: &Reduction, members: &Membership| {
            reduction.pieces_for(Rank(0), members).expect("it has missed it")[0].process.rank.0
        };
        for lender in [1, 2] {
            reduction.handout.lend(process(lender), window());
        }
        let mut asked = Vec::new();
        for _ in 0..7 {
            let last = asked.last().copied().unwrap_or(3);
            reduction.handout.ask_again(Rank(0));
            reduction.handout.take_returned();
            reduction.handout.miss(Rank(0), 0).miss(Rank(last));
            asked.push(told(&reduction, &members));
        }
        assert_eq!(asked, [1, 2, 3, 1, 2, 3, 1]);
        // Rank 1 dies, and what it has lent is not there any more.
        let dead = process(1);
        members.fail(&[dead], Evidence::Ended(Ending::Code(1)), Prospect::Gone);
        assert_eq!(told(&reduction, &members), 1, "what it has left is read");
        reduction.handout.lose(dead);
        assert_eq!(told(&reduction, &members), 2);
    }
}
