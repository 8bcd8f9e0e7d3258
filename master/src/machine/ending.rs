//! How a reduction ends: well, or refused.

use alloc::{borrow::ToOwned, boxed::Box, vec::Vec};

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId,
    message::{Data, Finished, Learning, NotCollected, Prefetched, Task, ToWorker},
    report::Refusal,
    spec::Delivery,
};

use super::Master;
use crate::{
    condense::condense,
    event::Notice,
    outcomes::{Completed, Outcome},
    reduction::{Course, Reduction},
    timers::Timer,
};

/// Ranks to which a result goes up to which each of them is told how many tasks each worker did. Of more only
/// the first is: all these lists together would grow with the square of the group.
const TASKS_TOLD_MAX: usize = 64;

impl Master {
    /// Tells the group that its reduction is over, but for the `last` task, which the ranks do that are to
    /// have the result.
    pub(super) fn finish(&mut self, id: ReductionId, last: Option<Task>) {
        let is_for_one = self.reductions.get(&id).is_some_and(Reduction::is_for_first);
        let learning = if is_for_one { Learning::default() } else { self.learn(id) };
        let Self { desk, scheduler, reductions, .. } = self;
        let reduction = reductions.get_mut(&id).expect("only live reductions finish");
        scheduler.strike_off(id, reduction);
        if let Some(end) = reduction.gathers_until(&desk.policy) {
            desk.timers.call_off(end, Timer::Gathered(id));
        }
        if let Delivery::FirstOf(candidates) = &reduction.spec().delivery {
            let candidates = candidates.clone();
            return self.deliver(id, &candidates);
        }
        let root = reduction.spec().delivery.root();
        let result = if root.is_none() { reduction.pieces() } else { Vec::new() };
        let last = match desk.fold {
            Some(fold) => last.map(|last| condense(reduction.spec(), last, fold)),
            None => last,
        };
        last.iter().for_each(|last| reduction.count_last(last));
        let report = reduction.report_of_result(desk.now);
        let (group, have_it) = (reduction.spec().group.clone(), reduction.have_it().clone());
        let hear = group.difference(&have_it).difference(&reduction.unheard());
        // Where ranks come back, it is handed out until all have it in their hosts' logs.
        let returns = desk.policy.limits.ranks_return && root.is_none();
        let in_windows =
            returns || (group.len() > 1 && result.iter().any(|piece| matches!(piece.data, Data::Window(_))));
        let lend = in_windows && reduction.lends(&result);
        let beside = in_windows && reduction.leaves_contributions();
        if in_windows {
            let waiting = reduction.callers().difference(&have_it);
            let waiting = waiting.iter().filter(|rank| desk.members.takes_part(*rank)).collect();
            reduction.hand_out(waiting, &desk.members);
            reduction.begin_pipeline(id, &hear, desk);
        } else {
            self.end(id);
        }
        self.desk.outbox.notice(Notice::Finished(id));
        let finished = Finished { reduction: id, result, last, lend, beside, learning, report };
        self.tell_finished(finished, &hear, root);
        let desk = &mut self.desk;
        if !in_windows {
            desk.send_each(&have_it, &ToWorker::Release { reduction: id });
            self.remains.end(id, desk);
        }
    }

    /// Tells the ranks `hear` that a reduction has finished, but for those that a pipeline serves. Only the
    /// `root`, if there is one, is told the last task and the whole report.
    fn tell_finished(&mut self, mut finished: Finished, hear: &Path, root: Option<Rank>) {
        let is_in_pipeline = |peer: &ProcessId| {
            let reduction = self.reductions.get(&finished.reduction);
            reduction.is_some_and(|reduction| reduction.is_in_pipeline(*peer))
        };
        let members = &self.desk.members;
        let peers: Vec<_> = members.processes_of(hear).filter(|peer| !is_in_pipeline(peer)).collect();
        let to_many = root.is_none() && peers.len() > TASKS_TOLD_MAX;
        let brief = Finished { last: None, report: finished.report.brief(), ..finished.clone() };
        for peer in peers {
            let told = if root.is_none_or(|root| root == peer.rank) { &finished } else { &brief };
            self.desk.outbox.send(peer, ToWorker::Finished(Box::new(told.clone())));
            if to_many {
                finished.report.tasks_per_worker = Vec::new();
            }
        }
    }

    /// Ends a reduction in an error for all ranks that have called it, and for those that will.
    pub(super) fn refuse(&mut self, id: ReductionId, refusal: Refusal) {
        let reduction = self.reductions.get(&id);
        let is_known = reduction.is_some_and(|reduction| reduction.may_be_known(&self.desk.members));
        let refusal = if is_known { refusal.beside_a_result() } else { refusal };
        self.end_refused(id, refusal, None);
    }

    /// The same because of a caller with another group or other arguments. The caller is told separately.
    pub(super) fn refuse_also(&mut self, id: ReductionId, refusal: Refusal, caller: (Rank, &Path)) {
        self.end_refused(id, refusal, Some(caller));
    }

    fn end_refused(&mut self, id: ReductionId, refusal: Refusal, caller: Option<(Rank, &Path)>) {
        if id.is_in_teams() {
            return self.dissolve(id, &Path::empty());
        }
        let Some(reduction) = self.end(id) else { return };
        let (callers, have_it) = (reduction.callers(), reduction.have_it().clone());
        let (also, theirs) = caller.unzip();
        let theirs = theirs.cloned().unwrap_or_default();
        let group: Path = reduction.spec().group.iter().chain(theirs.iter()).collect();
        let has_heard = |rank: Rank| callers.contains(rank) || also == Some(rank);
        self.remember_refusal(id, &refusal, &group, has_heard);
        self.expect_notes(id, callers.difference(&have_it), &refusal);
        self.tell_each_refused(id, callers, refusal);
        self.remains.end(id, &mut self.desk);
    }

    /// Keeps the refusal of a reduction for the ranks of `group` that call it later.
    pub(super) fn remember_refusal(
        &mut self,
        id: ReductionId,
        refusal: &Refusal,
        group: &Path,
        has_heard: impl Fn(Rank) -> bool,
    ) {
        let Self { refusals, desk, .. } = self;
        let awaited = group.iter().filter(|rank| !has_heard(*rank) && desk.members.may_call(*rank)).collect();
        refusals.add(id, refusal.clone(), group, awaited);
        refusals.limit(desk.policy.refusals_max);
    }

    /// Learns from a reduction that ends well how bodies are to be cut. Others would have taken a part of the
    /// links. Returns what its ranks are to know of that.
    fn learn(&mut self, id: ReductionId) -> Learning {
        let Self { reductions, lengths, desk, .. } = self;
        let is_alone = reductions.len() == 1;
        let Some(reduction) = reductions.get(&id) else { return Learning::default() };
        let lesson = reduction.lesson(id, desk.now).filter(|_| is_alone);
        lengths.end(&reduction.cut(), lesson)
    }

    /// Removes a reduction that is over from all tables: no worker works on it, and no timer is set for it.
    fn end(&mut self, id: ReductionId) -> Option<Reduction> {
        let mut reduction = self.reductions.remove(&id)?;
        self.scheduler.let_go(id, &mut reduction, &self.desk.members);
        for (at, timer) in reduction.timers(id, &self.desk.policy) {
            self.desk.timers.call_off(at, timer);
        }
        Some(reduction)
    }

    /// Tells `ranks`, of which none has a result, that a reduction is refused.
    pub(super) fn tell_refused(&mut self, id: ReductionId, ranks: Path, refusal: Refusal) {
        self.expect_notes(id, ranks.clone(), &refusal);
        self.tell_each_refused(id, ranks, refusal);
    }

    /// Keeps a refusal until `ranks` have noted it, where ranks come back. Those that have the result have
    /// noted that before.
    fn expect_notes(&mut self, id: ReductionId, ranks: Path, refusal: &Refusal) {
        if self.desk.policy.limits.ranks_return {
            let awaited = ranks.iter().filter(|rank| self.desk.members.takes_part(*rank)).collect();
            self.outcomes.add(id, Outcome::Refused(refusal.clone()), awaited);
        }
    }

    fn tell_each_refused(&mut self, id: ReductionId, ranks: Path, refusal: Refusal) {
        let told = ToWorker::Refused { reduction: id, refusal: refusal.clone() };
        self.desk.send_each(&ranks, &told);
        self.desk.outbox.notice(Notice::Refused { reduction: id, ranks, refusal });
    }

    /// Ends the reduction because its deadline has passed. Ranks that have copied the result keep it.
    pub(super) fn pass_deadline(&mut self, id: ReductionId) {
        let Some(reduction) = self.reductions.get(&id) else { return };
        let deadline = reduction.spec().deadline.expect("only reductions with a deadline have such a timer");
        let missing = reduction.group().difference(reduction.arrived());
        self.refuse(id, Refusal::DeadlineExceeded { deadline, missing });
    }

    /// Hands a result to the first of `candidates` that lives. The others hear of it when it is there.
    fn deliver(&mut self, id: ReductionId, candidates: &[Rank]) {
        let reduction = self.reductions.get_mut(&id).expect("only live reductions are delivered");
        let callers = reduction.callers();
        let members = &self.desk.members;
        let called = || candidates.iter().copied().filter(|rank| callers.contains(*rank));
        let is_here = |rank: &Rank| members.alive(*rank).is_some() && reduction.has_caller(*rank);
        let away = || called().find(|rank| members.takes_part(*rank));
        // A rank that comes back may have noted the result that it was told.
        let told = reduction.receiver().filter(|rank| members.takes_part(*rank));
        let Some(receiver) = told.or_else(|| called().find(is_here)).or_else(away) else {
            let ranks: Path = candidates.iter().copied().collect();
            let refusal = self.desk.members.absent(&ranks, &Path::empty());
            return self.refuse(id, refusal.unwrap_or(Refusal::ProcessFailed { ranks }));
        };
        let finished = reduction.deliver(id, receiver, members);
        if !reduction.is_away(receiver)
            && let Some(peer) = members.alive(receiver)
        {
            self.desk.outbox.send(peer.process, ToWorker::Finished(Box::new(finished)));
        }
    }

    /// Takes in that `sender` has the whole result, and where it lends it. Where ranks come back it has noted
    /// that, also if the reduction was refused meanwhile.
    pub(super) fn collected(&mut self, sender: ProcessId, id: ReductionId, body: Option<Data>) {
        self.outcomes.note(id, sender.rank);
        let mut reduction = self.reductions.get_mut(&id);
        let Some(reduction) = reduction.take_if(|reduction| reduction.stop_collecting(sender.rank)) else {
            return self.desk.outbox.stale(sender, "collected a result that nobody waits for");
        };
        reduction.stop_prefetching(id, sender, &mut self.desk);
        let lends = reduction.take_collected(sender, body, &self.desk.members);
        if !lends && !reduction.keeps_for_pipeline(sender) {
            self.desk.outbox.send(sender, ToWorker::HandOver { reduction: id });
        }
        self.go_on_collecting(id);
    }

    /// Takes in what became of a part of a result that `sender` was to copy beforehand.
    pub(super) fn prefetched(&mut self, sender: ProcessId, part: Prefetched) {
        let id = part.reduction;
        let Some(reduction) = self.reductions.get_mut(&id).filter(|it| it.is_in_pipeline(sender)) else {
            return self.desk.outbox.stale(sender, "copied a part of a result that is in no pipeline");
        };
        if !reduction.advance(sender, part, &mut self.desk) {
            self.give_up_pipeline(id);
        }
    }

    /// Gives a pipeline up of which nothing has come for a while.
    pub(super) fn look_after_pipeline(&mut self, id: ReductionId) {
        let reduction = self.reductions.get_mut(&id);
        if reduction.is_some_and(|reduction| !reduction.look_after_pipeline(id, &mut self.desk)) {
            self.give_up_pipeline(id);
        }
    }

    /// Gives a pipeline up, if there is one: all ranks read the parts that they lack from the owner.
    pub(super) fn give_up_pipeline(&mut self, id: ReductionId) {
        let reduction = self.reductions.get_mut(&id);
        if reduction.is_some_and(|reduction| reduction.give_up_pipeline(id, &mut self.desk)) {
            self.collect_again(id);
        }
    }

    /// Takes in that `sender` could not copy the whole result.
    pub(super) fn not_collected(&mut self, sender: ProcessId, part: NotCollected) {
        let id = part.reduction;
        let collects = |it: &&mut Reduction| it.awaits_collector(sender.rank);
        let Some(reduction) = self.reductions.get_mut(&id).filter(collects) else {
            return self.desk.outbox.stale(sender, "missed a piece of a result that is not handed out");
        };
        reduction.stop_prefetching(id, sender, &mut self.desk);
        match reduction.take_miss(sender, part, &self.desk) {
            Ok(Some(pause)) => self.desk.timers.set(self.desk.now + pause, Timer::Collect(id)),
            Ok(None) => {}
            Err(refusal) => self.refuse(id, refusal),
        }
    }

    /// Tells the ranks that could not copy the whole result where it lies now.
    pub(super) fn collect_again(&mut self, id: ReductionId) {
        let reduction = self.reductions.get_mut(&id);
        if reduction.is_some_and(|reduction| !reduction.tell_returned(id, &mut self.desk)) {
            self.go_on_collecting(id);
        }
    }

    /// Ends the handing out of a result if all have it, and takes the reduction up again if they cannot.
    /// Ranks that had to wait for a piece are told where it is now.
    pub(super) fn go_on_collecting(&mut self, id: ReductionId) {
        let course = self.reductions.get(&id).map(|reduction| reduction.course(&self.desk.members));
        match course {
            Some(Course::IsDone) => self.release(id),
            Some(Course::IsLost) => self.reopen(id),
            Some(Course::CanGoOn) => self.collect_again(id),
            Some(Course::Waits) | None => {}
        }
    }

    /// Takes a reduction up again whose result was lost before all had it, or finds another receiver.
    fn reopen(&mut self, id: ReductionId) {
        let Some(reduction) = self.reductions.get_mut(&id) else { return };
        reduction.forget_pipeline(id, &mut self.desk);
        reduction.take_up_again();
        if reduction.wants_copies() {
            self.look_for_copies(self.desk.now, id);
        }
        let Some(reduction) = self.reductions.get_mut(&id) else { return };
        match reduction.restore(self.desk.now, &self.desk.members) {
            Ok(()) => self.proceed(id),
            Err(refusal) => self.do_without(id, refusal),
        }
    }

    /// Lets the windows go of a reduction whose result all have.
    pub(super) fn release(&mut self, id: ReductionId) {
        let is_for_one = self.reductions.get(&id).is_some_and(Reduction::is_for_first);
        let learning = if is_for_one { self.learn(id) } else { Learning::default() };
        let Some(mut reduction) = self.end(id) else { return };
        let group = &reduction.spec().group.clone();
        if is_for_one {
            // A result for one rank: that one has it already.
            self.desk.outbox.notice(Notice::Finished(id));
            let report = reduction.report_of_result(reduction.last_progress()).brief();
            let result = Vec::new();
            let finished =
                Finished { reduction: id, result, last: None, lend: false, beside: false, learning, report };
            if self.desk.policy.limits.ranks_return {
                let (name, spec) = (reduction.name().to_owned(), reduction.spec().clone());
                let completed = Completed { name, spec, report: finished.report.clone() };
                let members = &self.desk.members;
                let others = group.difference(reduction.have_it());
                let awaited = others.iter().filter(|rank| members.takes_part(*rank)).collect();
                self.outcomes.add(id, Outcome::Finished(Box::new(completed)), awaited);
            }
            self.desk.send_each(group, &ToWorker::Finished(Box::new(finished)));
        }
        self.desk.send_each(group, &ToWorker::Release { reduction: id });
        self.remains.end(id, &mut self.desk);
    }
}

#[cfg(test)]
mod tests {
    use alloc::{boxed::Box, string::String, vec::Vec};
    use core::time::Duration;

    use everfold_protocol::{
        Epoch, Generation, JobId, Path, Rank, ReductionSpec, SegmentIndex, Timestamp, WindowId,
        message::{
            Contribution, Data, Header, Keep, Kept, NotKept, PartialReady, Peer, Place, Task, TaskCounters,
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
                agent: None,
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

    /// What comes of copies while a result is handed out counts if that is lost. The result itself does not
    /// matter here.
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
            master.reductions.get_mut(&id).expect("it is open").hand_out(Path::empty(), &master.desk.members);
            let (owner, is_kept) = (source.process, kept.is_ok());
            let kept = Kept { reduction: id, owner, segments: segments.clone(), result: kept };
            hear(&mut master, at(110), keeper, ToMaster::Kept(kept));
            let segment = master.reductions[&id].segment(SegmentIndex(segments.start));
            assert_eq!(segment.is_safe(owner.rank), is_kept);
            assert_eq!(said(&mut master), [], "nothing is copied while the result is");
            master.desk.now = at(120);
            master.reopen(id);
            while let Some(due) = master.poll_timeout().filter(|due| *due <= at(400)) {
                master.handle_timeout(due);
            }
            let is_it = |keep: &Keep| keep.source.process == owner && keep.segments == segments;
            let again = run(&mut master, at(400), &[]).iter().any(|(_, keep)| is_it(keep));
            assert_eq!(again, !is_kept, "what is kept is not ordered again, what is not kept is");
        }
    }
}
