//! How a result reaches those who are to have it, whoever dies meanwhile.
//!
//! The pieces of a result lie in windows of those who folded them, and are copied from there. Whoever misses a piece says
//! so, tells how much of the result its body holds, and is told again when there is more to be had. If the piece went with
//! its process, and nobody is left who may do without it, the reduction is taken up again: what survivors have folded,
//! second copies, and those half-filled bodies cover what is lost, as in any recovery.
//!
//! A rank that has the result hands it to its application, shows its partials until all have it, and folds nothing any
//! more. The first two keep the result until then, and lend it: so that no single death takes from others what somebody
//! already has.
//!
//! # What may be missing
//! A result that was copied over contributions is all that is left of them. If the rest of it went with somebody whose
//! contribution is nowhere else, nothing can be delivered: part of the result holds that contribution, the rest cannot, and a
//! result has the same contributors in every element. Where the caller allows contributions to be missing, ranks of
//! several hosts therefore copy the result *beside* their contributions: over their partials, which nobody needs any more, so
//! that it takes no memory. All of them lend what they have, and put it into their bodies once all have it. Until
//! then either somebody who lives has the whole result, or the contributions of all who live can be folded anew. The price is a
//! copy within memory, and that all wait for the last. On one host, memory outlives its process anyway.

use std::sync::Arc;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentIndex, Timestamp,
    message::{Data, Finished, HalfBody, NotCollected, Piece, ToWorker},
    report::Refusal,
    spec::Delivery,
};

use crate::{
    event::Notice,
    machine::{Master, RETRY_PAUSE, Timer},
    membership::Membership,
    queue::Ready,
    reduction::Reduction,
};

/// Ranks that lend the result they have until all have it: if one of them dies, the other is left.
const LENDERS: usize = 2;

impl Reduction {
    /// Whether those who have copied the result lend it: where pieces of it go with their processes.
    pub(crate) fn lends(&self, pieces: &[Piece]) -> bool {
        let outlives = |piece: &Piece| match &piece.data {
            Data::Window(window) => self.share_memory && window.place.outlives_its_process(),
            Data::Inline(_) | Data::Private => true,
        };
        matches!(self.spec.delivery, Delivery::All) && !pieces.iter().all(outlives)
    }

    /// Notes that `ranks` copy the result. If they do not copy it beside them, their bodies, where arrays have lain so far,
    /// change from now on.
    pub(crate) fn hand_out(&mut self, ranks: Path) {
        if self.spec.kind.array_bytes().is_some() && !self.copies_beside() {
            self.originals.retain(|rank, original| original.is_inline() || !ranks.contains(*rank));
        }
        for (_, half) in self.half_bodies.values_mut() {
            half.untouched = u64::MAX;
        }
        // Whoever still works on a task that was given up is busy until it answers, should the reduction be taken up again.
        for abandoned in self.segments.iter_mut().flat_map(|segment| &mut segment.abandoned) {
            abandoned.counts = false;
        }
        self.returned = Path::empty();
        self.collecting = Some(ranks);
    }

    /// Notes that `rank` copies nothing more. Returns whether it did.
    pub(crate) fn stop_collecting(&mut self, rank: Rank) -> bool {
        let waited = self.collecting.as_mut().is_some_and(|waiting| waiting.remove(rank));
        if waited {
            self.returned.remove(rank);
        }
        waited
    }

    /// The half-filled bodies that hold this segment: of the result, or of their owner's contribution.
    pub(crate) fn half_filled(&self, index: SegmentIndex) -> impl Iterator<Item = Arc<Ready>> + '_ {
        let range = self.range(index);
        self.half_bodies.iter().filter_map(move |(&rank, (process, half))| {
            let path = match () {
                () if half.collected >= range.end() => self.group.clone(),
                () if half.untouched <= range.start => Path::single(rank),
                () => return None,
            };
            Some(Arc::new(Ready { process: *process, path, data: half.data.clone() }))
        })
    }

    fn finished(&self, id: ReductionId) -> Finished {
        let (result, report) = (self.pieces(), self.report(self.last_progress));
        let (lend, beside) = (self.lends(&result), self.copies_beside());
        Finished { reduction: id, lend, beside, result, last: None, report }
    }

    /// Whether ranks copy the result beside their contributions, and keep both until all have it. Where memory is shared, arrays
    /// that were folded outlive their processes; encoded objects do not.
    pub(crate) fn copies_beside(&self) -> bool {
        let is_object = self.spec.kind.array_bytes().is_none();
        self.spec.allow_missing && (is_object || !self.share_memory)
    }

    /// Notes what the body holds of a rank that could not copy the whole result.
    fn take_back(&mut self, process: ProcessId, mut half: HalfBody) {
        let rank = process.rank;
        if self.copies_beside() {
            // There its partials were.
            let untouched = std::mem::replace(&mut half.untouched, u64::MAX);
            for index in (0..self.segments.len() as u32).map(SegmentIndex) {
                if self.range(index).start < untouched {
                    let segment = &mut self.segments[index.0 as usize];
                    segment.held.remove(&rank);
                    segment.spoil(rank);
                }
            }
        }
        self.half_bodies.insert(rank, (process, half));
    }

    /// Whether a result that was lost is not missed any more: all who still live have it.
    pub(crate) fn all_have_it(&self, members: &Membership) -> bool {
        let waiting = self.callers().difference(&self.collected);
        !self.collected.is_empty() && waiting.iter().all(|rank| members.alive(rank).is_none())
    }

    fn is_result_readable(&self, members: &Membership) -> bool {
        let mut results = self.segments.iter().map(|segment| &segment.result);
        let is_readable =
            |ready: &Arc<Ready>| members.readable(ready, self.share_memory) && ready.outlasts(&self.gone);
        results.all(|it| it.as_ref().is_some_and(is_readable))
    }
}

impl Master {
    /// Hands a result to the first of `candidates` that lives. The others hear of it when it is there.
    pub(crate) fn deliver(&mut self, id: ReductionId, candidates: &[Rank]) {
        let reduction = self.reductions.get_mut(&id).expect("only live reductions are delivered");
        let callers = reduction.callers();
        let called = candidates.iter().filter(|rank| callers.contains(**rank));
        let receiver = called.filter_map(|rank| self.membership.alive(*rank)).next();
        let Some(receiver) = receiver.map(|peer| peer.process) else {
            let ranks: Path = candidates.iter().copied().collect();
            let refusal = self.absent(&ranks, &Path::empty());
            return self.refuse(id, refusal.unwrap_or(Refusal::ProcessFailed { ranks }));
        };
        let finished = reduction.finished(id);
        reduction.hand_out(Path::single(receiver.rank));
        self.send(receiver, ToWorker::Finished(Box::new(finished)));
    }

    /// Takes in that `sender` has the whole result, and where it lends it.
    pub(crate) fn collected(
        &mut self,
        now: Timestamp,
        sender: ProcessId,
        id: ReductionId,
        body: Option<Data>,
    ) {
        let mut reduction = self.reductions.get_mut(&id);
        let Some(reduction) = reduction.take_if(|reduction| reduction.stop_collecting(sender.rank)) else {
            return self.stale(sender, "collected a result that nobody waits for");
        };
        reduction.collected.insert(sender.rank).expect("it has waited");
        let lends = |(lender, half): &&(ProcessId, HalfBody)| {
            half.collected == u64::MAX && self.membership.alive(lender.rank).is_some()
        };
        let keeps = reduction.copies_beside() || reduction.half_bodies.contains_key(&sender.rank);
        if keeps || reduction.half_bodies.values().filter(lends).take(LENDERS).count() < LENDERS {
            let whole = body.map(|data| HalfBody { data, collected: u64::MAX, untouched: u64::MAX });
            reduction.half_bodies.extend(whole.map(|whole| (sender.rank, (sender, whole))));
        } else {
            self.send(sender, ToWorker::HandOver { reduction: id });
        }
        self.go_on_collecting(now, id);
    }

    /// Takes in that `sender` could not copy the whole result.
    pub(crate) fn not_collected(&mut self, now: Timestamp, sender: ProcessId, part: NotCollected) {
        let NotCollected { reduction: id, culprit, body, .. } = part;
        let collects = |it: &&mut Reduction| it.collecting.as_ref().is_some_and(|w| w.contains(sender.rank));
        let Some(reduction) = self.reductions.get_mut(&id).filter(collects) else {
            return self.stale(sender, "missed a piece of a result that is not handed out");
        };
        body.into_iter().for_each(|half| reduction.take_back(sender, half));
        reduction.returned.insert(sender.rank).expect("it was told once");
        if self.membership.alive(culprit.rank).is_none() {
            // Its memory is not there any more: it did not just die.
            reduction.gone = reduction.gone.iter().chain([culprit.rank]).collect();
        }
        reduction.returns += 1;
        if reduction.returns / reduction.group.len() as u32 > self.policy.attempts_max() {
            return self.refuse(id, Refusal::ResultLost { ranks: Path::single(culprit.rank) });
        }
        // Most likely a death is about to be noticed.
        self.timers.insert((now + RETRY_PAUSE, Timer::Collect(id)));
    }

    /// Ends the handing out of a result if all have it; takes the reduction up again if they cannot.
    pub(crate) fn go_on_collecting(&mut self, now: Timestamp, id: ReductionId) {
        let Some(reduction) = self.reductions.get(&id) else { return };
        let Some(waiting) = &reduction.collecting else { return };
        let is_for_one = matches!(reduction.spec.delivery, Delivery::FirstOf(_));
        if waiting.is_empty() && !(is_for_one && reduction.collected.is_empty()) {
            self.release_collected(id);
        } else if waiting.is_empty()
            || (reduction.returned == *waiting && !reduction.is_result_readable(&self.membership))
        {
            self.reopen(now, id);
        }
    }

    /// Tells those who could not copy the whole result where it lies now.
    pub(crate) fn collect_again(&mut self, now: Timestamp, id: ReductionId) {
        let Some(reduction) = self.reductions.get_mut(&id).filter(|it| !it.returned.is_empty()) else {
            return;
        };
        if !reduction.is_result_readable(&self.membership) {
            return self.go_on_collecting(now, id);
        }
        let to = std::mem::take(&mut reduction.returned);
        for (_, half) in reduction.half_bodies.values_mut() {
            half.untouched = u64::MAX;
        }
        let finished = reduction.finished(id);
        for to in self.peers_of(&to) {
            self.send(to, ToWorker::Finished(Box::new(finished.clone())));
        }
    }

    /// Takes a reduction up again whose result was lost before all had it, or finds somebody else to have it.
    fn reopen(&mut self, now: Timestamp, id: ReductionId) {
        let Some(reduction) = self.reductions.get_mut(&id) else { return };
        reduction.collecting = None;
        if let Some(due) = reduction.due().filter(|_| reduction.collected.is_empty()) {
            self.timers.insert((due, Timer::Deadline(id)));
        }
        match reduction.restore(&self.membership) {
            Ok(()) => self.proceed(now, id),
            Err(refusal) => self.do_without(now, id, refusal),
        }
    }

    fn release_collected(&mut self, id: ReductionId) {
        self.let_go(id);
        let Some(reduction) = self.reductions.remove(&id) else { return };
        let group = &reduction.spec.group;
        if matches!(reduction.spec.delivery, Delivery::FirstOf(_)) {
            // A result for one rank: that one has it already.
            self.notice(Notice::Finished(id));
            let report = reduction.report(reduction.last_progress).brief();
            for to in self.peers_of(group) {
                let (result, report) = (Vec::new(), report.clone());
                let finished =
                    Finished { reduction: id, result, last: None, lend: false, beside: false, report };
                self.send(to, ToWorker::Finished(Box::new(finished)));
            }
        }
        for to in self.peers_of(group) {
            self.send(to, ToWorker::Release { reduction: id });
        }
        self.end_remains(id);
    }
}
