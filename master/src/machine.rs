//! Which event means what.
//!
//! # Use
//! Feed [`Master::handle_event`] (and [`Master::handle_timeout`] once [`Master::poll_timeout`] is due) as many
//! events as there are, then call [`Master::poll_action`] until it returns `None`: grants come out in batches,
//! because a batch of events went in. Time never runs back.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use everfold_protocol::{
    Epoch, JobId, Path, ProcessId, Rank, ReductionId, SegmentId, SegmentIndex, TaskId, Timestamp,
    message::{
        Contribution, Data, Finished, MASTER_RANK, PartialReady, Peer, Source, Task, TaskFailed, ToMaster,
        ToWorker,
    },
    report::Refusal,
    spec::Aspect,
};

use crate::{
    event::{Action, Event, Notice},
    lane::{Lane, Plan},
    membership::{Freshness, Membership, State},
    pairing,
    policy::Policy,
    queue::Ready,
    reduction::Reduction,
};

/// How long a process that could not be reached is left alone. The end of its connection, if it died, comes within
/// milliseconds.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Refused reductions that are remembered, so that ranks which call them later hear the same answer.
const REFUSALS_MAX: usize = 4096;

/// Queues reduction messages and makes tasks of them (DR §2).
#[derive(Clone, Debug)]
pub struct Master {
    policy: Policy,
    membership: Membership,
    lanes: Vec<Lane>,
    reductions: BTreeMap<ReductionId, Reduction>,
    refused: BTreeMap<ReductionId, Refusal>,
    refused_order: VecDeque<ReductionId>,
    deadlines: BTreeSet<(Timestamp, ReductionId)>,
    /// When partials that could not be reached are tried again.
    retries: BTreeSet<(Timestamp, SegmentId)>,
    join_deadline: Option<Timestamp>,
    /// Who died before the job was complete; there will be no job.
    lost: Path,
    /// Lanes that may have something to grant.
    touched: BTreeSet<Rank>,
    next_task: u64,
    actions: VecDeque<Action>,
}

impl Master {
    /// A master for a job of `size` ranks that have yet to join.
    pub fn new(now: Timestamp, job: JobId, size: u32, policy: Policy) -> Self {
        Self {
            membership: Membership::new(job, size),
            lanes: vec![Lane::default(); size as usize],
            reductions: BTreeMap::new(),
            refused: BTreeMap::new(),
            refused_order: VecDeque::new(),
            deadlines: BTreeSet::new(),
            retries: BTreeSet::new(),
            join_deadline: Some(now + policy.join_timeout),
            lost: Path::empty(),
            touched: BTreeSet::new(),
            next_task: 0,
            actions: VecDeque::new(),
            policy,
        }
    }

    /// Number of the current membership view; goes into the header of everything sent.
    pub fn epoch(&self) -> Epoch {
        self.membership.epoch()
    }

    /// Reductions that have not ended.
    pub fn reductions(&self) -> impl Iterator<Item = (&ReductionId, &Reduction)> {
        self.reductions.iter()
    }

    /// Verifies the invariants that need a look at everything; the simulator does after each event.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        for reduction in self.reductions.values() {
            reduction.check();
        }
        let planned: usize = self.lanes.iter().map(|lane| lane.plans().count()).sum();
        let known: usize =
            self.reductions.values().flat_map(|r| &r.segments).map(|segment| segment.planned.len()).sum();
        assert_eq!(planned, known, "every plan belongs to a live segment");
    }

    /// Takes in one event.
    pub fn handle_event(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::Message { header, message } => match self.membership.classify(&header) {
                Freshness::Current => self.handle_message(now, header.sender, message),
                Freshness::Stale => {
                    self.stale(header.sender, "message of a process that is no longer in the job")
                }
                Freshness::Impossible => {
                    self.stale(header.sender, "message of another job or a future epoch");
                    self.actions.push_back(Action::Disconnect(header.sender));
                }
            },
            Event::Disconnected(process) => self.fail(process),
        }
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.join_deadline.is_some_and(|deadline| deadline <= now) {
            self.join_deadline = None;
            if self.lost.is_empty() {
                self.give_up(self.membership.ranks(|state| *state == State::Expected));
            }
            self.actions.push_back(Action::Done);
        }
        while let Some(&(due, id)) = self.deadlines.first()
            && due <= now
        {
            self.deadlines.pop_first();
            let Some(reduction) = self.reductions.get(&id) else {
                continue;
            };
            let deadline = reduction.spec.deadline.expect("only reductions with a deadline are listed");
            let missing = reduction.spec.group.difference(&reduction.arrived);
            self.refuse(id, Refusal::DeadlineExceeded { deadline, missing });
        }
        while let Some(&(due, id)) = self.retries.first()
            && due <= now
        {
            self.retries.pop_first();
            if let Some(reduction) = self.reductions.get_mut(&id.reduction) {
                reduction.resume(id.index);
                self.plan(id);
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let deadline = self.deadlines.first().map(|&(due, _)| due);
        let retry = self.retries.first().map(|&(due, _)| due);
        [self.join_deadline, deadline, retry].into_iter().flatten().min()
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        while self.actions.is_empty() {
            let rank = self.touched.pop_first()?;
            self.grant(rank);
        }
        self.actions.pop_front()
    }

    fn handle_message(&mut self, now: Timestamp, sender: ProcessId, message: ToMaster) {
        match message {
            ToMaster::Join(peer) => self.join(sender, peer),
            ToMaster::Contribute(contribution) => self.contribute(now, sender, *contribution),
            ToMaster::PartialReady(done) => self.partial_ready(now, sender, done),
            ToMaster::TaskFailed(failed) => self.task_failed(now, sender, failed),
            ToMaster::Collected { reduction } => self.collected(sender, reduction),
            ToMaster::Leave => self.leave(sender),
        }
    }

    fn join(&mut self, sender: ProcessId, peer: Peer) {
        if peer.process != sender || !self.membership.join(peer) {
            self.stale(sender, "join of a rank that is not expected");
            self.actions.push_back(Action::Disconnect(sender));
            return;
        }
        if !self.lost.is_empty() {
            self.send(sender, ToWorker::Incomplete { missing: self.lost.clone() });
        } else if self.membership.everyone_here() {
            self.join_deadline = None;
            let peers: Vec<Peer> = self.membership.peers().cloned().collect();
            for peer in &peers {
                let welcome = ToWorker::Welcome { peers: peers.clone(), limits: self.policy.limits };
                self.send(peer.process, welcome);
            }
            self.notice(Notice::Complete { ranks: self.membership.size() });
        }
    }

    /// Tells everyone who has joined that there will be no job.
    fn give_up(&mut self, missing: Path) {
        let here: Vec<_> = self.membership.peers().map(|peer| peer.process).collect();
        for to in here {
            self.send(to, ToWorker::Incomplete { missing: missing.clone() });
        }
    }

    fn contribute(&mut self, now: Timestamp, sender: ProcessId, contribution: Contribution) {
        let id = contribution.reduction;
        if let Some(refusal) =
            self.refused.get(&id).cloned().or_else(|| self.unacceptable(sender, &contribution))
        {
            self.tell_refused(id, Path::single(sender.rank), refusal);
            return;
        }
        self.expose_skipped(sender.rank, &contribution);
        if let Some(reduction) = self.reductions.get(&id) {
            if reduction.arrived.contains(sender.rank) {
                self.stale(sender, "second contribution to one reduction");
                return;
            }
            if let Some(refusal) = disagreement(reduction, sender.rank, &contribution) {
                self.refuse(id, refusal);
                self.tell_refused(id, Path::single(sender.rank), self.refused[&id].clone());
                return;
            }
        }
        let passed_by = self.passed_by(sender.rank, &contribution);
        let reduction = self.reductions.entry(id).or_insert_with(|| {
            if let Some(deadline) = contribution.spec.deadline {
                self.deadlines.insert((now + deadline, id));
            }
            let share_memory = self.membership.share_memory(&contribution.spec.group);
            Reduction::new(now, sender.rank, &contribution, &self.policy, share_memory)
        });
        reduction.arrive(now, sender, contribution.data, contribution.spec.trace);
        if let Some(refusal) = passed_by {
            self.refuse(id, refusal);
            return;
        }
        if reduction.unfinished == 0 {
            self.finish(now, id);
            return;
        }
        for index in 0..reduction.segments.len() as u32 {
            self.plan(SegmentId { reduction: id, index: SegmentIndex(index) });
        }
    }

    /// Why `sender` may not contribute, whatever the others say.
    fn unacceptable(&self, sender: ProcessId, contribution: &Contribution) -> Option<Refusal> {
        let spec = &contribution.spec;
        let rank = sender.rank;
        let group = || spec.group.clone();
        let limit = self.policy.limits.body_bytes_max;
        let bytes = spec.kind.array_bytes().map_or(contribution.data.len(), |(bytes, _)| bytes);
        let size = self.membership.size();
        if spec.group.is_empty() {
            Some(Refusal::EmptyGroup)
        } else if spec.group.last().is_some_and(|last| last.0 >= size) {
            Some(Refusal::UnknownRanks { group: group(), size })
        } else if !spec.group.contains(rank) {
            Some(Refusal::CallerOutsideGroup { rank, group: group() })
        } else if let Some(root) = spec.delivery.root().filter(|root| !spec.group.contains(*root)) {
            Some(Refusal::RootOutsideGroup { root, group: group() })
        } else if spec.kind.array_bytes().is_some() && bytes == 0 {
            Some(Refusal::EmptyBody { rank })
        } else if bytes > limit {
            Some(Refusal::BodyTooLarge { rank, bytes, limit })
        } else {
            let arrived = self.reductions.get(&contribution.reduction).map(|reduction| &reduction.arrived);
            self.absent(&spec.group, arrived.unwrap_or(&Path::empty()))
        }
    }

    /// Why a reduction of `group` cannot complete, given who has arrived.
    fn absent(&self, group: &Path, arrived: &Path) -> Option<Refusal> {
        if self.membership.everyone_here() {
            return None;
        }
        let of_group = |which: State| {
            let ranks = self.membership.ranks(|state| *state == which);
            let others = ranks.difference(group);
            ranks.difference(&others)
        };
        let failed = of_group(State::Failed).difference(arrived);
        if !failed.is_empty() {
            return Some(Refusal::ProcessFailed { ranks: failed });
        }
        let left = of_group(State::Left).difference(arrived);
        (!left.is_empty()).then_some(Refusal::RanksLeft { ranks: left })
    }

    /// Ends the oldest reduction of the same name if `rank` belongs to its group and has just passed it by: it
    /// counts its calls of that name differently from the others, so nobody else's wait would ever end.
    fn expose_skipped(&mut self, rank: Rank, contribution: &Contribution) {
        let id = contribution.reduction;
        let oldest = ReductionId { sequence: 0, ..id };
        let Some((&skipped, reduction)) = self.reductions.range(oldest..id).next() else {
            return;
        };
        if reduction.arrived.contains(rank) || !reduction.spec.group.contains(rank) {
            return;
        }
        let refusal = Refusal::Mismatch {
            name: reduction.name.clone(),
            sequence: skipped.sequence,
            aspect: Aspect::Group,
            first: reduction.first,
            first_says: reduction.spec.group.to_string(),
            other: rank,
            other_says: format!("{} (as its call {})", contribution.spec.group, id.sequence),
        };
        self.refuse(skipped, refusal);
    }

    /// Why a reduction that begins with `contribution` would never complete: a rank of its group has called that name
    /// more often already.
    fn passed_by(&self, caller: Rank, contribution: &Contribution) -> Option<Refusal> {
        let id = contribution.reduction;
        if self.reductions.contains_key(&id) {
            return None;
        }
        let group = &contribution.spec.group;
        let latest = ReductionId { sequence: u64::MAX, ..id };
        let mut later = self.reductions.range(id..=latest);
        let (later, rank, reduction) = later.find_map(|(later, reduction)| {
            let rank = reduction.arrived.iter().find(|rank| group.contains(*rank))?;
            Some((later, rank, reduction))
        })?;
        Some(Refusal::Mismatch {
            name: contribution.name.clone(),
            sequence: id.sequence,
            aspect: Aspect::Group,
            first: caller,
            first_says: group.to_string(),
            other: rank,
            other_says: format!("{} (as its call {})", reduction.spec.group, later.sequence),
        })
    }

    fn partial_ready(&mut self, now: Timestamp, sender: ProcessId, done: PartialReady) {
        let (segment, counters) = (done.segment, done.counters);
        let id = segment.reduction;
        let completed = self.reductions.get_mut(&id).and_then(|reduction| {
            let bytes = reduction.complete(now, sender, done)?;
            Some((bytes, reduction.unfinished))
        });
        let Some((bytes, unfinished)) = completed else {
            self.stale(sender, "result of a task that nobody waits for");
            return;
        };
        let lane = &mut self.lanes[sender.rank.index()];
        lane.complete(bytes);
        lane.observe(bytes, &counters);
        self.touched.insert(sender.rank);
        if unfinished == 0 {
            self.finish(now, id);
        } else {
            self.plan(segment);
        }
    }

    fn task_failed(&mut self, now: Timestamp, sender: ProcessId, failed: TaskFailed) {
        let TaskFailed { task, segment: id, culprit, unreachable, reason } = failed;
        let taken = self.reductions.get_mut(&id.reduction).and_then(|reduction| {
            let running = reduction.take_running(id.index, task, sender)?;
            Some((reduction, running))
        });
        let Some((reduction, running)) = taken else {
            self.stale(sender, "failure of a task that nobody waits for");
            return;
        };
        self.lanes[sender.rank.index()].complete(running.bytes);
        self.touched.insert(sender.rank);
        let membership = &self.membership;
        let result = if unreachable {
            reduction
                .unreachable(id.index, running, culprit, reason, &|rank| membership.alive(rank).is_some())
        } else {
            let of_culprit = running.sources.into_iter().find(|(process, _)| *process == culprit);
            let path = of_culprit.map_or(running.own, |(_, path)| path);
            Err(Refusal::FoldFailed { executor: sender.rank, path, reason })
        };
        match result {
            Ok(suspended) => {
                if suspended {
                    self.retries.insert((now + RETRY_PAUSE, id));
                }
                self.plan(id);
            }
            Err(refusal) => self.refuse(id.reduction, refusal),
        }
    }

    /// Makes plans of what waits in one segment, as long as it has partners.
    fn plan(&mut self, id: SegmentId) {
        let Some(reduction) = self.reductions.get_mut(&id.reduction) else { return };
        let root = reduction.spec.delivery.root();
        let is_alive = |rank| self.membership.alive(rank).is_some();
        while let Some(partials) = reduction.take_partners(id.index, &self.policy) {
            let bytes = reduction.task_bytes(id.index, &partials);
            match pairing::executor(&partials, root, bytes, &self.lanes, is_alive) {
                Some(executor) => {
                    let executor = partials[executor].process.rank;
                    self.lanes[executor.index()].plan(Plan { segment: id, partials, bytes });
                    self.touched.insert(executor);
                }
                None => {
                    // Inlined partials of processes that died, all of them. Taken apart, they bring back survivors.
                    match reduction.take_apart(id.index, partials, &is_alive) {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(refusal) => return self.refuse(id.reduction, refusal),
                    }
                }
            }
        }
    }

    /// Gives `rank` what it may be given.
    fn grant(&mut self, rank: Rank) {
        while let Some(plan) = self.lanes[rank.index()].next(&self.policy) {
            self.grant_plan(rank, plan);
        }
    }

    /// Makes a task of `plan`, or passes it on to the root, which may have come while the plan waited.
    fn grant_plan(&mut self, rank: Rank, plan: Plan) {
        let Plan { segment: id, mut partials, .. } = plan;
        let reduction =
            self.reductions.get_mut(&id.reduction).expect("plans of ended reductions are dropped");
        reduction.top_up(id.index, &mut partials, &self.policy);
        let bytes = reduction.task_bytes(id.index, &partials);
        let root = reduction.spec.delivery.root();
        if let Some(root) = root.filter(|&root| root != rank && has(&partials, root)) {
            self.lanes[root.index()].plan(Plan { segment: id, partials, bytes });
            self.touched.insert(root);
            return;
        }
        let task = TaskId(self.next_task);
        self.next_task += 1;
        let own = partials.iter().position(|ready| ready.process.rank == rank);
        let own = partials.remove(own.expect("a lane has its worker's plans"));
        reduction.start(id.index, task, &own, &partials, bytes);
        let sources =
            partials.into_iter().map(|Ready { process, path, data }| Source { process, path, data });
        let message = Task {
            task,
            segment: id,
            range: reduction.range(id.index),
            own: own.path,
            sources: sources.collect(),
        };
        self.lanes[rank.index()].grant(bytes);
        self.send(own.process, ToWorker::Task(message));
    }

    /// Tells the group that its reduction is over.
    fn finish(&mut self, now: Timestamp, id: ReductionId) {
        let reduction = self.reductions.get_mut(&id).expect("only live reductions finish");
        if let Some(due) = reduction.due() {
            self.deadlines.remove(&(due, id));
        }
        let root = reduction.spec.delivery.root();
        let result = if root.is_none() { reduction.pieces() } else { Vec::new() };
        let report = reduction.report(now);
        let group = reduction.spec.group.clone();
        let in_windows = group.len() > 1 && result.iter().any(|piece| matches!(piece.data, Data::Window(_)));
        if in_windows {
            let gone = self.membership.ranks(|state| !matches!(state, State::Alive(_)));
            reduction.collecting = Some(group.difference(&gone));
        } else {
            self.reductions.remove(&id);
        }
        self.notice(Notice::Finished(id));
        for peer in self.peers_of(&group) {
            let mut report = report.clone();
            if root.is_some_and(|root| root != peer.rank) {
                (report.arrivals, report.trace) = (Vec::new(), Vec::new());
            }
            self.send(peer, ToWorker::Finished(Finished { reduction: id, result: result.clone(), report }));
        }
    }

    fn collected(&mut self, sender: ProcessId, id: ReductionId) {
        let collecting = self.reductions.get_mut(&id).and_then(|reduction| reduction.collecting.as_mut());
        match collecting {
            Some(waiting) => *waiting = waiting.difference(&Path::single(sender.rank)),
            None => self.stale(sender, "collected a result that nobody waits for"),
        }
        self.release_collected(id);
    }

    fn release_collected(&mut self, id: ReductionId) {
        let Some(reduction) = self.reductions.get(&id) else {
            return;
        };
        if reduction.collecting.as_ref().is_some_and(Path::is_empty) {
            let group = reduction.spec.group.clone();
            self.reductions.remove(&id);
            for to in self.peers_of(&group) {
                self.send(to, ToWorker::Release { reduction: id });
            }
        }
    }

    fn leave(&mut self, sender: ProcessId) {
        if self.membership.alive(sender.rank).is_none() {
            self.stale(sender, "leave of a process that has not joined");
            return;
        }
        self.membership.leave(sender.rank);
        self.notice(Notice::Left(sender));
        if sender.rank != MASTER_RANK {
            self.send(sender, ToWorker::Farewell);
        }
        self.end_what_cannot_complete();
        self.end_if_empty();
    }

    fn fail(&mut self, process: ProcessId) {
        if !self.membership.fail(process) {
            return;
        }
        self.notice(Notice::Failed(process));
        if self.join_deadline.is_some() {
            // Those who come later hear it when they join; those who go because of it are not to blame.
            if self.lost.is_empty() {
                self.lost = Path::single(process.rank);
                self.give_up(self.lost.clone());
            }
            return;
        }
        let survivors: Vec<_> = self.membership.peers().map(|peer| peer.process).collect();
        for to in survivors {
            self.send(to, ToWorker::Departed { failed: vec![process] });
        }
        for (id, refusal) in self.bereave(process) {
            self.refuse(id, refusal);
        }
        self.end_what_cannot_complete();
        self.end_if_empty();
    }

    /// Repairs all reductions that `dead` took part in; returns those that cannot be repaired.
    fn bereave(&mut self, dead: ProcessId) -> BTreeMap<ReductionId, Refusal> {
        let membership = &self.membership;
        let is_alive = |rank| membership.alive(rank).is_some();
        let mut hopeless = BTreeMap::new();
        let concerns = |plan: &Plan| plan.partials.iter().any(|ready| ready.process == dead);
        let plans: Vec<Plan> = self.lanes.iter_mut().flat_map(|lane| lane.extract(concerns)).collect();
        self.lanes[dead.rank.index()] = Lane::default();
        for Plan { segment: id, partials, .. } in plans {
            let reduction = self.reductions.get_mut(&id.reduction).expect("plans belong to live reductions");
            if let Err(refusal) = reduction.take_back(id.index, partials, &is_alive) {
                hopeless.entry(id.reduction).or_insert(refusal);
            }
        }
        let mut repaired = Vec::new();
        let mut collecting = Vec::new();
        for (&id, reduction) in &mut self.reductions {
            if !reduction.spec.group.contains(dead.rank) {
                continue;
            }
            if let Some(waiting) = &mut reduction.collecting {
                // The value is final: whoever can still read it shall have it.
                *waiting = waiting.difference(&Path::single(dead.rank));
                collecting.push(id);
                continue;
            }
            match reduction.bereave(dead, &is_alive) {
                Ok(()) => repaired.push((id, reduction.segments.len() as u32)),
                Err(refusal) => drop(hopeless.entry(id).or_insert(refusal)),
            }
        }
        for id in collecting {
            self.release_collected(id);
        }
        for (reduction, segments) in repaired {
            if !hopeless.contains_key(&reduction) {
                (0..segments)
                    .for_each(|index| self.plan(SegmentId { reduction, index: SegmentIndex(index) }));
            }
        }
        hopeless
    }

    /// Refuses every reduction that waits for a rank which will not come.
    fn end_what_cannot_complete(&mut self) {
        let hopeless: Vec<_> = self
            .reductions
            .iter()
            .filter(|(_, reduction)| reduction.collecting.is_none())
            .filter_map(|(&id, reduction)| {
                Some((id, self.absent(&reduction.spec.group, &reduction.arrived)?))
            })
            .collect();
        for (id, refusal) in hopeless {
            self.refuse(id, refusal);
        }
    }

    fn end_if_empty(&mut self) {
        let others = self.membership.peers().count();
        let expected = self.membership.ranks(|state| *state == State::Expected);
        if others == 0 && expected.is_empty() {
            if self.membership.ranks(|state| *state == State::Left).contains(MASTER_RANK) {
                self.send(ProcessId::first(MASTER_RANK), ToWorker::Farewell);
            }
            self.actions.push_back(Action::Done);
        }
    }

    /// Ends a reduction in an error for everyone who has called it, and for those who will.
    fn refuse(&mut self, id: ReductionId, refusal: Refusal) {
        let Some(reduction) = self.reductions.remove(&id) else {
            return;
        };
        if let Some(due) = reduction.due() {
            self.deadlines.remove(&(due, id));
        }
        for lane in &mut self.lanes {
            lane.extract(|plan| plan.segment.reduction == id);
        }
        for running in reduction.segments.iter().flat_map(|segment| &segment.running) {
            // The lane of a process that died was emptied as a whole.
            if self.membership.alive(running.executor.rank).is_some() {
                self.lanes[running.executor.rank.index()].complete(running.bytes);
                self.touched.insert(running.executor.rank);
            }
        }
        self.refused.insert(id, refusal.clone());
        self.refused_order.push_back(id);
        if self.refused_order.len() > REFUSALS_MAX {
            let oldest = self.refused_order.pop_front().expect("not empty");
            self.refused.remove(&oldest);
        }
        self.tell_refused(id, reduction.arrived, refusal);
    }

    fn tell_refused(&mut self, id: ReductionId, ranks: Path, refusal: Refusal) {
        for to in self.peers_of(&ranks) {
            self.send(to, ToWorker::Refused { reduction: id, refusal: refusal.clone() });
        }
        self.notice(Notice::Refused { reduction: id, ranks, refusal });
    }

    fn peers_of(&self, group: &Path) -> Vec<ProcessId> {
        group.iter().filter_map(|rank| self.membership.alive(rank)).map(|peer| peer.process).collect()
    }

    fn send(&mut self, to: ProcessId, message: ToWorker) {
        self.actions.push_back(Action::Send { to, message });
    }

    fn notice(&mut self, notice: Notice) {
        self.actions.push_back(Action::Notice(notice));
    }

    fn stale(&mut self, sender: ProcessId, what: &'static str) {
        self.notice(Notice::Stale { sender, what });
    }
}

fn has(partials: &[Ready], rank: Rank) -> bool {
    partials.iter().any(|ready| ready.process.rank == rank)
}

/// On what `rank` and those who came before it disagree.
fn disagreement(reduction: &Reduction, rank: Rank, contribution: &Contribution) -> Option<Refusal> {
    let (aspect, first_says, other_says) = if reduction.name == contribution.name {
        reduction.spec.disagreement(&contribution.spec)?
    } else {
        (Aspect::Name, reduction.name.clone(), contribution.name.clone())
    };
    Some(Refusal::Mismatch {
        name: reduction.name.clone(),
        sequence: contribution.reduction.sequence,
        aspect,
        first: reduction.first,
        first_says,
        other: rank,
        other_says,
    })
}
