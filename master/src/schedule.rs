//! Who is given which task, and when (DR-6).
//!
//! Nothing is assigned ahead: a task is made when a worker has room for it, of whatever is ready by then. So whoever is
//! faster does more, and late partials join those that wait. There are two occasions: a segment has changed, and is
//! offered to those who could go on with it; or a worker has got room, and asks for the first segment that waits.

use std::{collections::BTreeSet, time::Duration};

use everfold_protocol::{
    Path, Rank, ReductionId, SegmentId, SegmentIndex, TaskId, Timestamp,
    message::{Source, Task, ToWorker},
};

use crate::{
    lane::{Lane, Load},
    machine::Master,
    queue::Ready,
};

/// How many times longer than by the counters a task may take before others do it, too.
const LATE_FACTOR: u32 = 8;

/// Who can go on with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// The root alone, whose own partial waits there and may meet others: the result has to arrive at it.
    Root(Rank),
    /// Whoever owns a partial that waits there.
    Owners,
    /// Somebody who begins afresh: the owners are dead, or hold copies only.
    Anyone,
}

/// Segments that somebody could go on with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    /// Those that have changed since they were offered last.
    changed: BTreeSet<SegmentId>,
    /// Those that wait for somebody to have room; of equal turns the oldest reduction first.
    waiting: BTreeSet<(Turn, Timestamp, SegmentId)>,
    /// Workers that may have got room.
    touched: BTreeSet<Rank>,
}

impl Schedule {
    /// Notes that the partials of a segment have changed, or who works on them.
    pub(crate) fn change(&mut self, id: SegmentId) {
        self.changed.insert(id);
    }

    /// Notes that `rank` may have got room.
    pub(crate) fn touch(&mut self, rank: Rank) {
        self.touched.insert(rank);
    }
}

impl Master {
    /// Makes some of the tasks that can be made now. Returns false if there are none.
    pub(crate) fn schedule(&mut self) -> bool {
        if let Some(id) = self.schedule.changed.pop_first() {
            self.offer(id);
        } else if let Some(rank) = self.schedule.touched.pop_first() {
            self.ask(rank);
        } else {
            return false;
        }
        true
    }

    /// Verifies that no segment is forgotten: once everything was offered, each that waits has somebody who can go on with it
    /// and is busy, and so will ask.
    ///
    /// # Panics
    /// If one is forgotten.
    pub(crate) fn check_schedule(&self) {
        for (turn, started, id) in &self.schedule.waiting {
            let reduction = self.reductions.get(&id.reduction).expect("only live reductions wait");
            assert_eq!(
                (reduction.segments[id.index.0 as usize].turn, reduction.started),
                (Some(*turn), *started)
            );
            if self.schedule.changed.is_empty() && self.schedule.touched.is_empty() {
                let is_alive = |rank| self.membership.alive(rank).is_some();
                let is_busy = |rank: Rank| !self.lanes[rank.index()].has_room(&self.policy);
                let will_ask = match *turn {
                    Turn::Root(root) => {
                        is_busy(root) || reduction.own_of(id.index, root, &is_alive).is_none()
                    }
                    Turn::Owners => {
                        reduction.executors(id.index, &is_alive).any(|ready| is_busy(ready.process.rank))
                    }
                    Turn::Anyone => {
                        let alive = reduction.group.iter().filter(|rank| is_alive(*rank));
                        alive
                            .filter(|rank| is_busy(*rank))
                            .any(|rank| reduction.can_begin_afresh(id.index, rank))
                    }
                };
                assert!(will_ask, "{id:?} waits for {turn:?}, but nobody will ask for it");
            }
        }
    }

    /// Gives the tasks of one segment to whoever has room.
    fn offer(&mut self, id: SegmentId) {
        loop {
            let turn = self.turn(id);
            self.enlist(id, turn);
            let executor = match turn {
                None => return,
                Some(Turn::Root(root)) => self.lanes[root.index()].has_room(&self.policy).then_some(root),
                Some(Turn::Owners) => self.best_owner(id),
                Some(Turn::Anyone) => self.best_afresh(id),
            };
            if !executor.is_some_and(|executor| self.grant(executor, id)) {
                return;
            }
        }
    }

    /// Gives `rank` as much as it has room for.
    fn ask(&mut self, rank: Rank) {
        while self.membership.alive(rank).is_some()
            && self.lanes[rank.index()].has_room(&self.policy)
            && let Some(id) = self.first_for(rank)
        {
            let granted = self.grant(rank, id);
            assert!(granted, "what waits for {rank} can be granted to it");
            // What is left of it may be for others.
            self.schedule.change(id);
        }
    }

    /// The first segment that waits for `rank`.
    fn first_for(&self, rank: Rank) -> Option<SegmentId> {
        let is_alive = |rank| self.membership.alive(rank).is_some();
        let own = |id: &SegmentId| {
            let reduction = self.reductions.get(&id.reduction)?;
            reduction.own_of(id.index, rank, &is_alive)
        };
        let of = |turn: Turn| {
            let least = ReductionId { name: 0, sequence: 0 };
            let first = SegmentId { reduction: least, index: SegmentIndex(0) };
            let waiting = self.schedule.waiting.range((turn, Timestamp::ZERO, first)..);
            waiting.take_while(move |(whose, ..)| *whose == turn).map(|(_, _, id)| *id)
        };
        let afresh = |id: &SegmentId| {
            self.reductions.get(&id.reduction).is_some_and(|it| it.can_begin_afresh(id.index, rank))
        };
        let as_root = of(Turn::Root(rank)).find(|id| own(id).is_some());
        let as_owner = || of(Turn::Owners).find(|id| own(id).is_some());
        as_root.or_else(as_owner).or_else(|| of(Turn::Anyone).find(afresh))
    }

    /// Who can go on with a segment.
    fn turn(&mut self, id: SegmentId) -> Option<Turn> {
        let members = &self.membership;
        let is_alive = |rank| members.alive(rank).is_some();
        let reduction = self.reductions.get_mut(&id.reduction)?;
        loop {
            let turn = reduction.whose_turn(id.index, &self.policy)?;
            if turn != Turn::Owners || reduction.executors(id.index, &is_alive).next().is_some() {
                return Some(turn);
            }
            let can_help = |rank| is_alive(rank) && reduction.can_begin_afresh(id.index, rank);
            if reduction.group.iter().any(can_help) {
                return Some(Turn::Anyone);
            }
            if !reduction.rouse(id.index) {
                return None;
            }
        }
    }

    /// Notes who can go on with a segment.
    fn enlist(&mut self, id: SegmentId, turn: Option<Turn>) {
        let Some(reduction) = self.reductions.get_mut(&id.reduction) else { return };
        let known = &mut reduction.segments[id.index.0 as usize].turn;
        if *known != turn {
            known.take().map(|known| self.schedule.waiting.remove(&(known, reduction.started, id)));
            self.schedule.waiting.extend(turn.map(|turn| (turn, reduction.started, id)));
            *known = turn;
        }
    }

    /// Forgets the segments of a reduction that is over.
    pub(crate) fn strike_off(&mut self, id: ReductionId) {
        let count = self.reductions.get(&id).map_or(0, |reduction| reduction.segments.len() as u32);
        for index in (0..count).map(SegmentIndex) {
            self.enlist(SegmentId { reduction: id, index }, None);
        }
    }

    /// The owner of a waiting partial that has room and is expected to be done first with folding the others into it. Of
    /// many, only some are compared.
    fn best_owner(&self, id: SegmentId) -> Option<Rank> {
        let is_alive = |rank| self.membership.alive(rank).is_some();
        let reduction = self.reductions.get(&id.reduction)?;
        let able = reduction.executors(id.index, &is_alive).take(reduction.fan_in + 1);
        self.fastest(able.map(|ready| ready.process.rank), reduction.range(id.index).len)
    }

    /// Who has room, and a partial that is not needed.
    fn best_afresh(&self, id: SegmentId) -> Option<Rank> {
        let reduction = self.reductions.get(&id.reduction)?;
        let alive = reduction.group.iter().filter(|rank| self.membership.alive(*rank).is_some());
        let free = alive.filter(|rank| reduction.can_begin_afresh(id.index, *rank));
        self.fastest(free, reduction.range(id.index).len)
    }

    /// Of those who have room the one that is expected to be done first with `bytes` bytes, by its smoothed rate and by
    /// what it has to do already. The paper's rule, the shorter most recent task, is this rule for workers that have
    /// nothing else to do. Of equals it is the first.
    fn fastest(&self, ranks: impl Iterator<Item = Rank>, bytes: u64) -> Option<Rank> {
        let lane = |rank: &Rank| -> &Lane { &self.lanes[rank.index()] };
        let free = ranks.filter(|rank| lane(rank).has_room(&self.policy));
        free.min_by_key(|rank| lane(rank).expected_ns(bytes))
    }

    /// Makes a task of what waits in a segment and gives it to `rank`. Returns false if there is none for it.
    fn grant(&mut self, rank: Rank, id: SegmentId) -> bool {
        let members = &self.membership;
        let is_alive = |rank| members.alive(rank).is_some();
        let Some(reduction) = self.reductions.get_mut(&id.reduction) else { return false };
        let Some(executor) = members.alive(rank) else { return false };
        let own = reduction.own_of(id.index, rank, &is_alive).cloned();
        if own.is_none() && reduction.segments[id.index.0 as usize].turn != Some(Turn::Anyone) {
            return false;
        }
        let is_near =
            |ready: &Ready| members.alive(ready.process.rank).is_some_and(|peer| peer.host == executor.host);
        let Some(mut partials) = reduction.take_partners(id.index, own.as_ref(), is_near) else {
            return false;
        };
        let bytes = reduction.task_bytes(id.index, &partials);
        if let Some(own) = &own {
            partials.retain(|ready| ready != own);
        }
        let task = TaskId(self.next_task);
        self.next_task += 1;
        let lane = &mut self.lanes[rank.index()];
        let expected = Duration::from_nanos(lane.expected_ns(bytes));
        let late = self.now + (expected * LATE_FACTOR).max(self.policy.limits.ping_interval / 2);
        let load = Load { bytes, reads: partials.len() as u32 };
        reduction.start(id.index, task, executor.process, own.as_ref(), &partials, (load, late));
        lane.grant(load);
        let source = |Ready { process, path, data }| Source { process, path, data };
        let message = Task {
            task,
            segment: id,
            range: reduction.range(id.index),
            own: own.map_or_else(Path::empty, |own| own.path),
            sources: partials.into_iter().map(source).collect(),
        };
        let to = executor.process;
        self.send(to, ToWorker::Task(message));
        true
    }
}
