//! How a result reaches those who are to have it, whoever dies meanwhile.
//!
//! The pieces of a result lie in windows of those who folded them, and are copied from there. A rank that misses a piece
//! says so, tells how much of the result its body holds, and is told again when there is more to be had. If the piece went with
//! its process, and nobody is left who may do without it, the reduction is taken up again: what survivors have folded,
//! replicas, and those half-filled bodies cover what is lost, as in any recovery.
//!
//! A rank that has the result hands it to its application, shows its partials until all have it, and folds nothing any
//! more. The first two keep the result until then, and lend it: so that no single death takes from others what somebody
//! already has. A rank that cannot reach a process which lives and holds a piece is told a lender instead; once it
//! has tried for longer than any silence is tolerated, the reduction ends in `ResultLost` for all that have no result yet.
//!
//! # One report, one deadline
//! Some calls have ended before others, and their processes may have died since. So what a report says of
//! contributors, deaths and copies stays as it was when the result was first handed out, until there is another
//! result: which is only as long as no call may have ended with this one. A deadline goes on while the result is
//! copied. When it passes, those who have the result receive it, and the others hear that it has passed.
//!
//! # What may be missing
//! A result that was copied over contributions is all that is left of them. If the rest of it went with somebody whose
//! contribution is nowhere else, nothing can be delivered: part of the result holds that contribution, the rest cannot, and a
//! result has the same contributors in every element. Where the caller allows contributions to be missing, ranks of
//! several hosts therefore copy the result *beside* their contributions: over their partials, which nobody needs any more, so
//! that it takes no memory. All of them lend what they have, and put it into their bodies once all have it. Until
//! then either somebody who lives has the whole result, or the contributions of all who live can be folded anew. The price is a
//! copy within memory, and that all wait for the last. On one host, memory outlives its process anyway.

use alloc::{boxed::Box, collections::BTreeSet, sync::Arc, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentIndex, Timestamp,
    message::{Data, Finished, HalfBody, NotCollected, Piece, ToWorker},
    report::{Refusal, Report},
    spec::Delivery,
};

use crate::{
    event::Notice, machine::Master, membership::Membership, queue::Ready, reduction::Reduction,
    timers::Timer, tries::TimeTried,
};

/// Ranks that lend the result they have until all have it: if one of them dies, the other is left. They are on as
/// many hosts, if there are: of two hosts a rank reaches one, if any two cannot reach each other.
const LENDERS: usize = 2;

/// What the reports of a reduction say alike from its first hand-out on: some calls have ended with it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    survived: Path,
    protected: Path,
}

/// What a rank could not copy of a result.
#[derive(Clone, Debug)]
pub(crate) struct Misses {
    /// Bytes of the result that it had when it missed something last.
    collected: u64,
    /// For how long it has got no further.
    tried: TimeTried,
    /// Ranks that live and hold a piece, and that it could not reach.
    unreached: Path,
    /// The latest of them.
    last: Option<Rank>,
}

impl Misses {
    /// Takes in that the rank has missed something, when it had so many bytes of the result.
    fn again(&mut self, now: Timestamp, collected: u64, patience: Duration) {
        if collected > self.collected {
            (self.collected, self.tried) = (collected, TimeTried::default());
        }
        self.tried.again(now, patience);
    }
}

impl Reduction {
    /// Whether those who have copied the result lend it: where pieces of it go with their processes, and where another result
    /// may take its place until all have it.
    pub(crate) fn lends(&self, pieces: &[Piece]) -> bool {
        let outlives = |piece: &Piece| match &piece.data {
            Data::Window(window) => self.share_memory && window.place.outlives_its_process(),
            Data::Inline(_) | Data::Private => true,
        };
        let may_change = self.copies_beside();
        matches!(self.spec.delivery, Delivery::All) && (may_change || !pieces.iter().all(outlives))
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
        // A rank that still works on a task that was given up is busy until it answers, should the reduction be taken up again.
        for abandoned in self.segments.iter_mut().flat_map(|segment| &mut segment.abandoned) {
            abandoned.counts = false;
        }
        self.returned = Path::empty();
        self.misses.clear();
        self.collecting = Some(ranks);
    }

    /// The report of a result that is handed out.
    pub(crate) fn report_of_result(&mut self, now: Timestamp) -> Report {
        let report = self.report(now);
        let Report { survived, protected, .. } = &report;
        let told = || Told { survived: survived.clone(), protected: protected.clone() };
        let Told { survived, protected } = self.told.get_or_insert_with(told).clone();
        Report { survived, protected, ..report }
    }

    /// Notes that `rank` copies nothing more. Returns whether it did.
    pub(crate) fn stop_collecting(&mut self, rank: Rank) -> bool {
        let waited = self.collecting.as_mut().is_some_and(|waiting| waiting.remove(rank));
        if waited {
            self.returned.remove(rank);
            self.misses.remove(&rank);
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

    fn finished(&mut self, id: ReductionId) -> Finished {
        let (result, report) = (self.pieces(), self.report_of_result(self.last_progress));
        let (lend, beside) = (self.lends(&result), self.copies_beside());
        Finished { reduction: id, lend, beside, result, last: None, report }
    }

    /// Where `rank` finds the pieces of the result: with others than those that it could not reach, where others have
    /// them.
    pub(crate) fn pieces_for(&self, rank: Rank, members: &Membership) -> Option<Vec<Piece>> {
        let misses = self.misses.get(&rank).filter(|misses| !misses.unreached.is_empty())?;
        Some(self.pieces_at(|index, result| {
            let is_reached = |ready: &Arc<Ready>| !misses.unreached.contains(ready.process.rank);
            let has_it = |ready: &Arc<Ready>| {
                ready.path == self.group
                    && ready.process.rank != rank
                    && members.readable(ready, self.share_memory)
            };
            if is_reached(result) {
                return result.clone();
            }
            let holders = || self.half_filled(index).filter(has_it);
            // Where it has reached none of them, it does not try the same one twice in a row.
            let is_another = |ready: &Arc<Ready>| Some(ready.process.rank) != misses.last;
            let all = || core::iter::once(result.clone()).chain(holders());
            holders().find(is_reached).or_else(|| all().find(is_another)).unwrap_or_else(|| result.clone())
        }))
    }

    /// Whether a call may have ended with the result, or somebody who lives can lend it: then no other result takes
    /// its place.
    pub(crate) fn is_settled(&self, members: &Membership) -> bool {
        let lends = |(process, half): &(ProcessId, HalfBody)| {
            half.collected == u64::MAX && members.alive(process.rank).is_some()
        };
        match self.copies_beside() {
            true => self.half_bodies.values().any(lends),
            false => !self.collected.is_empty(),
        }
    }

    /// Whether it takes one lender more, besides those there are: `rank`.
    fn wants_lender(&self, rank: Rank, members: &Membership) -> bool {
        let lends = |(process, half): &&(ProcessId, HalfBody)| {
            half.collected == u64::MAX && members.alive(process.rank).is_some()
        };
        let lenders = || self.half_bodies.values().filter(lends);
        let hosts: BTreeSet<_> = lenders().map(|(process, _)| members.host(process.rank)).collect();
        let is_elsewhere = hosts.len() < LENDERS && !hosts.contains(&members.host(rank));
        let is_missed = || self.misses.values().any(|misses| !misses.unreached.is_empty());
        lenders().count() < LENDERS || is_elsewhere || is_missed()
    }

    /// Notes that a rank's call has ended without the result that it copied beside its contribution.
    fn give_up_collector(&mut self, rank: Rank) {
        self.originals.retain(|owner, original| original.is_inline() || *owner != rank);
        self.half_bodies.remove(&rank);
        for segment in &mut self.segments {
            segment.held.remove(&rank);
            segment.spoil(rank);
        }
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
            let untouched = core::mem::replace(&mut half.untouched, u64::MAX);
            for index in self.segments.indices() {
                if self.range(index).start < untouched {
                    let segment = &mut self.segments[index];
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

    /// Whether all of the result that lies at `culprit` is where it can be read after a death.
    fn could_be_read(&self, culprit: ProcessId, members: &Membership) -> bool {
        let results = self.segments.iter().filter_map(|segment| segment.result.as_ref());
        results.filter(|it| it.process == culprit).all(|it| members.readable(it, self.share_memory))
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
        let receiver = called.filter_map(|rank| self.desk.members.alive(*rank)).next();
        let Some(receiver) = receiver.map(|peer| peer.process) else {
            let ranks: Path = candidates.iter().copied().collect();
            let refusal = self.absent(&ranks, &Path::empty());
            return self.refuse(id, refusal.unwrap_or(Refusal::ProcessFailed { ranks }));
        };
        // No rank that lives has heard another report: the root that was to receive the result before is given up.
        reduction.told = None;
        let finished = reduction.finished(id);
        reduction.hand_out(Path::single(receiver.rank));
        self.desk.outbox.send(receiver, ToWorker::Finished(Box::new(finished)));
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
            return self.desk.outbox.stale(sender, "collected a result that nobody waits for");
        };
        reduction.collected.insert(sender.rank).expect("it has waited");
        let beside = reduction.copies_beside();
        let keeps = beside || reduction.half_bodies.contains_key(&sender.rank);
        if beside && body.is_none() {
            reduction.give_up_collector(sender.rank);
        } else if keeps || reduction.wants_lender(sender.rank, &self.desk.members) {
            let whole = body.map(|data| HalfBody { data, collected: u64::MAX, untouched: u64::MAX });
            reduction.half_bodies.extend(whole.map(|whole| (sender.rank, (sender, whole))));
        } else {
            self.desk.outbox.send(sender, ToWorker::HandOver { reduction: id });
        }
        self.go_on_collecting(now, id);
    }

    /// Takes in that `sender` could not copy the whole result.
    pub(crate) fn not_collected(&mut self, now: Timestamp, sender: ProcessId, part: NotCollected) {
        let NotCollected { reduction: id, culprit, body, .. } = part;
        let collects = |it: &&mut Reduction| it.collecting.as_ref().is_some_and(|w| w.contains(sender.rank));
        let Some(reduction) = self.reductions.get_mut(&id).filter(collects) else {
            return self.desk.outbox.stale(sender, "missed a piece of a result that is not handed out");
        };
        let so_far = body.as_ref().map_or(0, |half| half.collected);
        body.into_iter().for_each(|half| reduction.take_back(sender, half));
        reduction.returned.insert(sender.rank).expect("it was told once");
        let first = || Misses {
            collected: so_far,
            tried: TimeTried::default(),
            unreached: Path::empty(),
            last: None,
        };
        let is_dead = self.desk.members.alive(culprit.rank).is_none();
        let could_be_read = reduction.could_be_read(culprit, &self.desk.members);
        let misses = reduction.misses.entry(sender.rank).or_insert_with(first);
        // A rank that finds no room itself gives up by itself, unless it is the only one who is to have the result.
        if culprit != sender || !matches!(reduction.spec.delivery, Delivery::All) {
            misses.again(now, so_far, self.desk.policy.limits.read_patience());
        }
        if is_dead && could_be_read {
            // Its memory is not there any more: it did not just die.
            reduction.gone = reduction.gone.iter().chain([culprit.rank]).collect();
        } else if !is_dead && culprit != sender {
            misses.unreached = misses.unreached.iter().chain([culprit.rank]).collect();
            misses.last = Some(culprit.rank);
        }
        if misses.tried.exceeds(self.desk.policy.tries_max()) {
            return self.refuse(id, Refusal::ResultLost { ranks: Path::single(culprit.rank) });
        }
        // Most likely a death is about to be noticed. One pause is for all who miss something meanwhile.
        let pause = misses.tried.pause();
        if !core::mem::replace(&mut reduction.pauses, true) {
            self.desk.timers.set(now + pause, Timer::Collect(id));
        }
    }

    /// Ends the handing out of a result if all have it; takes the reduction up again if they cannot.
    pub(crate) fn go_on_collecting(&mut self, now: Timestamp, id: ReductionId) {
        let Some(reduction) = self.reductions.get(&id) else { return };
        let Some(waiting) = &reduction.collecting else { return };
        let is_for_one = matches!(reduction.spec.delivery, Delivery::FirstOf(_));
        if waiting.is_empty() && !(is_for_one && reduction.collected.is_empty()) {
            self.release_collected(id);
        } else if waiting.is_empty()
            || (reduction.returned == *waiting && !reduction.is_result_readable(&self.desk.members))
        {
            self.reopen(now, id);
        }
    }

    /// Tells those who could not copy the whole result where it lies now.
    pub(crate) fn collect_again(&mut self, now: Timestamp, id: ReductionId) {
        let Some(reduction) = self.reductions.get_mut(&id) else { return };
        reduction.pauses = false;
        if reduction.returned.is_empty() {
            return;
        }
        if !reduction.is_result_readable(&self.desk.members) {
            return self.go_on_collecting(now, id);
        }
        let to = core::mem::take(&mut reduction.returned);
        for (_, half) in reduction.half_bodies.values_mut() {
            half.untouched = u64::MAX;
        }
        let finished = reduction.finished(id);
        let to: Vec<_> = self.desk.members.processes_of(&to).collect();
        for to in to {
            self.send_result(to, finished.clone());
        }
    }

    /// Tells a rank where the result lies, as far as it can reach that.
    pub(crate) fn send_result(&mut self, to: ProcessId, mut finished: Finished) {
        let reduction = self.reductions.get(&finished.reduction);
        let pieces = reduction.and_then(|reduction| reduction.pieces_for(to.rank, &self.desk.members));
        finished.result = pieces.unwrap_or(finished.result);
        self.desk.outbox.send(to, ToWorker::Finished(Box::new(finished)));
    }

    /// Takes a reduction up again whose result was lost before all had it, or finds somebody else to have it.
    fn reopen(&mut self, now: Timestamp, id: ReductionId) {
        let Some(reduction) = self.reductions.get_mut(&id) else { return };
        reduction.collecting = None;
        if reduction.wants_copies() {
            self.look_for_copies(now, id);
        }
        let Some(reduction) = self.reductions.get_mut(&id) else { return };
        match reduction.restore(&self.desk.members) {
            Ok(()) => self.proceed(now, id),
            Err(refusal) => self.do_without(now, id, refusal),
        }
    }

    fn release_collected(&mut self, id: ReductionId) {
        self.let_go(id);
        self.end_timers(id);
        let Some(mut reduction) = self.reductions.remove(&id) else { return };
        let group = &reduction.spec.group.clone();
        if matches!(reduction.spec.delivery, Delivery::FirstOf(_)) {
            // A result for one rank: that one has it already.
            self.desk.outbox.notice(Notice::Finished(id));
            let report = reduction.report_of_result(reduction.last_progress).brief();
            let result = Vec::new();
            let finished = Finished { reduction: id, result, last: None, lend: false, beside: false, report };
            let told = ToWorker::Finished(Box::new(finished));
            self.desk.send_each(group, &told);
        }
        self.desk.send_each(group, &ToWorker::Release { reduction: id });
        self.end_remains(id);
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        Epoch, Generation, JobId, ReductionSpec, WindowId,
        message::{
            Contribution, Header, Keep, Kept, NotKept, PartialReady, Peer, Place, Task, TaskCounters,
            ToMaster, WindowRef,
        },
        spec::{BodyKind, ElementType, Limits, Operation, Order, Protection},
    };

    use super::*;
    use crate::{
        event::{Action, Event},
        policy::Policy,
    };

    const RANKS: u32 = 4;
    const SEGMENT_BYTES: u64 = 1 << 16;

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    fn window(number: u64) -> Data {
        let (window, generation, place) = (WindowId(number), Generation(1), Place::Served);
        Data::Window(WindowRef { window, generation, bytes: 2 * SEGMENT_BYTES, checksum: None, place })
    }

    /// A master whose ranks, each on a host of its own, are here.
    fn master() -> Master {
        let limits = Limits { ping_interval: Duration::from_millis(500), ..Limits::default() };
        let policy = Policy {
            limits,
            segment_bytes: SEGMENT_BYTES,
            segment_bytes_min: SEGMENT_BYTES,
            copy_bytes: 1,
            ..Policy::default()
        };
        let mut master = Master::new(at(0), JobId(1), RANKS, policy);
        for process in (0..RANKS).map(|rank| ProcessId::first(Rank(rank))) {
            let peer = Peer {
                process,
                host: u64::from(process.rank.0),
                pid: 1,
                region: None,
                bell: None,
                board: None,
                address: String::new(),
                domain: None,
            };
            hear(&mut master, at(0), process, ToMaster::Join { peer, size: RANKS });
        }
        master
    }

    fn hear(master: &mut Master, now: Timestamp, sender: ProcessId, message: ToMaster) {
        let header = Header { job: JobId(1), epoch: Epoch(0), sender };
        master.handle_event(now, Event::Message { header, message });
    }

    fn said(master: &mut Master) -> Vec<(ProcessId, ToWorker)> {
        let actions = core::iter::from_fn(|| master.poll_action());
        let said = |action| match action {
            Action::Send { to, message } => Some((to, message)),
            _ => None,
        };
        actions.filter_map(said).collect()
    }

    fn call() -> Contribution {
        let spec = ReductionSpec {
            group: Path::range(0, RANKS),
            delivery: Delivery::FirstOf(vec![Rank(0)]),
            kind: BodyKind::Array {
                element: ElementType::U8,
                operation: Operation::Sum,
                length: 2 * SEGMENT_BYTES,
            },
            order: Order::Arrival,
            deadline: None,
            protection: Protection::Disk,
            allow_missing: false,
            trace: false,
        };
        Contribution { reduction: ReductionId::new("x", 0), name: "x".into(), spec, data: window(0) }
    }

    /// Lets `ranks` contribute, and all do the tasks that they are told; tells what is to be copied.
    fn run(master: &mut Master, now: Timestamp, ranks: &[u32]) -> Vec<(ProcessId, Keep)> {
        for rank in ranks {
            let call = Box::new(call());
            hear(master, now, ProcessId::first(Rank(*rank)), ToMaster::Contribute(call));
        }
        let mut keeps = Vec::new();
        loop {
            let said = said(master);
            if said.is_empty() {
                return keeps;
            }
            for (to, message) in said {
                match message {
                    ToWorker::Keep(keep) => keeps.push((to, keep)),
                    ToWorker::Task(Task { task, segment, own, sources, .. }) => {
                        let paths = sources.iter().map(|source| &source.path);
                        let path = paths.fold(own, |all, path| all.union(path).expect("disjoint"));
                        let (data, counters) = (window(1), TaskCounters::default());
                        let done = PartialReady { task, segment, path, data, counters };
                        hear(master, now, to, ToMaster::PartialReady(done));
                    }
                    _ => {}
                }
            }
        }
    }

    /// What comes of copies while a result is handed out counts if that is lost. The result itself does not matter
    /// here.
    #[test]
    fn copies_go_on_when_a_reduction_is_taken_up_again() {
        let id = ReductionId::new("x", 0);
        for kept in [Ok(window(9)), Err(NotKept::Unreachable)] {
            let mut master = master();
            run(&mut master, at(0), &[2, 3]);
            master.handle_timeout(at(100));
            let keeps = run(&mut master, at(100), &[]);
            let (keeper, Keep { segments, source, .. }) =
                keeps.first().expect("ranks 0 and 1 are late").clone();
            master.reductions.get_mut(&id).expect("it is open").collecting = Some(Path::empty());
            let (owner, is_kept) = (source.process, kept.is_ok());
            let kept = Kept { reduction: id, owner, segments: segments.clone(), result: kept };
            hear(&mut master, at(110), keeper, ToMaster::Kept(kept));
            let segment = &master.reductions[&id].segments[SegmentIndex(segments.start)];
            assert_eq!(segment.replicas.contains_key(&owner.rank), is_kept);
            assert_eq!(said(&mut master), [], "nothing is copied while the result is");
            master.reopen(at(120), id);
            while let Some(due) = master.poll_timeout().filter(|due| *due <= at(400)) {
                master.handle_timeout(due);
            }
            let is_it = |keep: &Keep| keep.source.process == owner && keep.segments == segments;
            let again = run(&mut master, at(400), &[]).iter().any(|(_, keep)| is_it(keep));
            assert_eq!(again, !is_kept, "what is kept is not ordered again, what is not kept is");
        }
    }
}
