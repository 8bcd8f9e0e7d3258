//! Which worker is given which task, and when (DR-6).
//!
//! Nothing is assigned ahead: a task is made when a worker has room for it, of the partials that are ready at
//! that moment. So a faster worker does more, and late partials join those that wait. There are two
//! occasions: a segment has changed, and is offered to the workers that could go on with it; or a worker has
//! got room, and asks for the first segment that waits.
//!
//! | module | holds |
//! |---|---|
//! | `choice` | which worker is the best for a segment, which segment for a worker |
//! | `late` | which tasks are late, so that others do them, too |

mod choice;
mod late;

use alloc::{collections::BTreeSet, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentId, TaskId, Timestamp,
    message::{Task, TaskCounters, ToWorker},
    spec::BodyKind,
};

use self::{
    choice::{Choice, Reader},
    late::LATE_FACTOR,
};
use crate::{
    crowd::Pairs,
    desk::Desk,
    lane::{Lanes, Load},
    listing::{Listings, Turn},
    located::Fault,
    membership::Membership,
    pace::Paces,
    policy::Policy,
    queue::{Access, Ready},
    reduction::{Reduction, Reductions},
    task::{Completed, Grant, Running},
    timers::Timer,
    tries::RETRY_PAUSE,
};

/// Segments that workers could go on with, and the lanes of the workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scheduler {
    lanes: Lanes,
    paces: Paces,
    /// Segments that have changed since they were offered last.
    changed: BTreeSet<SegmentId>,
    /// Segments that wait for a worker with room.
    listings: Listings,
    /// Workers that may have got room.
    touched: BTreeSet<Rank>,
    /// What goes on once the caller has ended a reduction.
    interrupted: Option<Occasion>,
    /// Reductions with tasks under way, and some without any more.
    worked_on: BTreeSet<ReductionId>,
    next_task: u64,
}

/// The outcome of a look at the ready partials.
#[derive(Debug)]
pub(crate) enum Step {
    /// The tasks that could be made are made.
    Done,
    /// The last task of a reduction, which the receivers of the result do: the caller ends the reduction, and
    /// then asks for the next step.
    Last(ReductionId, Task),
}

/// Why tasks are made.
#[derive(Clone, Copy, Debug)]
enum Occasion {
    /// A segment has changed.
    Changed(SegmentId),
    /// A worker may have got room.
    Room(Rank),
}

/// The outcome of a try to make a task.
enum Granted {
    Nothing,
    Task,
    Last(Task),
}

impl Scheduler {
    /// A scheduler whose tasks are numbered from `first` on.
    pub fn numbering_from(first: u64) -> Self {
        Self { next_task: first, ..Self::default() }
    }

    /// Takes in that the partials of a segment, or its tasks, have changed.
    pub fn change(&mut self, id: SegmentId) {
        self.changed.insert(id);
    }

    /// Takes in that a reduction may go on: the same for all its segments but those that wait as they did
    /// before.
    pub fn change_all(&mut self, id: ReductionId, reduction: &Reduction) {
        let changed = reduction.indices().filter(|index| !reduction.rests(*index));
        self.changed.extend(changed.map(|index| SegmentId { reduction: id, index }));
    }

    /// Takes in that a fault was located, or is over.
    pub fn see_located(&mut self, fault: &Fault, over: bool) {
        self.lanes.see_located(fault, over);
    }

    /// Takes in that a task of `executor` is not under way any more.
    pub fn vacate(&mut self, executor: Rank, load: &Load) {
        self.lanes[executor].complete(load);
        load.from.iter().for_each(|owner| self.lanes[*owner].end_to_serve());
        self.touched.insert(executor);
    }

    /// Takes in that `executor` has done a task of a reduction of `kind`.
    pub fn complete(
        &mut self,
        now: Timestamp,
        executor: Rank,
        kind: &BodyKind,
        Completed { load, partials, .. }: &Completed,
        counters: &TaskCounters,
    ) {
        self.vacate(executor, load);
        self.lanes.observe(now, executor, load, counters);
        self.paces.observe(kind, executor, load, *partials, counters);
    }

    /// Whether bodies of `kind` in one piece are folded in pairs.
    pub fn folds_in_pairs(&self, kind: &BodyKind, policy: &Policy) -> bool {
        self.paces.folds_in_pairs(kind, policy.slow_fold)
    }

    /// Whether `rank` was given something that it has not answered, or others read from it.
    pub fn is_occupied(&self, rank: Rank) -> bool {
        !self.lanes[rank].is_empty()
    }

    /// Takes in that `dead` works on nothing any more.
    pub fn bury(&mut self, dead: ProcessId, reductions: &Reductions) {
        self.lanes.clear(dead.rank);
        let tasks = reductions.values().flat_map(|reduction| reduction.tasks());
        for running in tasks.filter(|running| running.executor == dead) {
            running.load.from.iter().for_each(|owner| self.lanes[*owner].end_to_serve());
        }
    }

    /// Forgets the segments of a reduction that is over.
    pub fn strike_off(&mut self, id: ReductionId, reduction: &mut Reduction) {
        for index in reduction.indices() {
            self.enlist(SegmentId { reduction: id, index }, reduction, None, Pairs::new());
        }
    }

    /// The same, and frees the lanes of the workers with its tasks, for which no answer will come.
    pub fn let_go(&mut self, id: ReductionId, reduction: &mut Reduction, members: &Membership) {
        self.strike_off(id, reduction);
        for Running { executor, load, .. } in reduction.take_tasks() {
            // The lane of a process that died was emptied as a whole.
            if members.lives(executor) {
                self.vacate(executor.rank, &load);
            }
        }
    }

    /// Forgets the attempts in teams that `dead` takes part in: living ranks hear of its death, and
    /// contribute as usual.
    pub fn forget_teams_of(&mut self, dead: Rank, reductions: &mut Reductions, members: &Membership) {
        let is_hit = |(id, reduction): &(&ReductionId, &Reduction)| {
            id.is_in_teams() && reduction.spec().group.contains(dead)
        };
        let hit: Vec<ReductionId> = reductions.iter().filter(is_hit).map(|(id, _)| *id).collect();
        hit.into_iter().for_each(|id| self.forget(id, reductions, members));
    }

    /// Forgets an attempt in teams.
    pub fn forget(&mut self, id: ReductionId, reductions: &mut Reductions, members: &Membership) {
        if let Some(mut reduction) = reductions.remove(&id) {
            self.let_go(id, &mut reduction, members);
        }
    }

    /// Makes some of the tasks that can be made now; nothing if there are none.
    pub fn step(&mut self, reductions: &mut Reductions, desk: &mut Desk) -> Option<Step> {
        let next = || {
            let changed = self.changed.pop_first().map(Occasion::Changed);
            changed.or_else(|| self.touched.pop_first().map(Occasion::Room))
        };
        let occasion = self.interrupted.take().or_else(next)?;
        let last = match occasion {
            Occasion::Changed(id) => self.offer(id, reductions, desk).map(|last| (id.reduction, last)),
            Occasion::Room(rank) => self.ask(rank, reductions, desk),
        };
        Some(match last {
            None => Step::Done,
            Some((id, last)) => {
                self.interrupted = Some(occasion);
                Step::Last(id, last)
            }
        })
    }

    /// Verifies that no segment is forgotten: once all were offered, each that waits has a worker that can go
    /// on with it and is busy, and so will ask.
    ///
    /// # Panics
    /// If one is forgotten.
    pub fn check(&self, reductions: &Reductions, desk: &Desk) {
        let Self { lanes, changed, touched, listings, worked_on, .. } = self;
        listings.check(|id| {
            let reduction = reductions.get(&id.reduction).expect("only live reductions wait");
            let segment = reduction.segment(id.index);
            (segment.turn(), reduction.started(), segment.listing())
        });
        for (id, reduction) in reductions {
            let is_granted = reduction.tasks().any(|running| running.load.is_task());
            assert!(
                !is_granted || worked_on.contains(id),
                "{id:?} is worked on, but nobody sees if that is late"
            );
        }
        if reductions.is_empty() {
            assert!(lanes.are_empty(), "nobody works on what is over");
        }
        if changed.is_empty() && touched.is_empty() {
            self.choice(reductions, desk).check(listings);
        }
    }

    /// Gives the tasks of one segment to workers that have room. Returns the last task of its reduction, if
    /// it comes to that.
    fn offer(&mut self, id: SegmentId, reductions: &mut Reductions, desk: &mut Desk) -> Option<Task> {
        loop {
            let turn = self.turn(id, reductions, desk);
            if let Some(reduction) = reductions.get_mut(&id.reduction) {
                reduction.segment_mut(id.index).set_turn(turn);
            }
            let executor = match turn {
                None => {
                    self.list(id, turn, reductions, desk);
                    return None;
                }
                Some(Turn::Root(_) | Turn::Owners) => self.choice(reductions, desk).best_owner(id, turn),
                Some(Turn::Anyone) => self.choice(reductions, desk).best_afresh(id),
            };
            match executor.map(|executor| self.grant(executor, id, reductions, desk)) {
                Some(Granted::Task) => {}
                Some(Granted::Last(task)) => return Some(task),
                Some(Granted::Nothing) | None => {
                    self.list(id, turn, reductions, desk);
                    // Its root may take it ahead.
                    let reduction = reductions.get(&id.reduction);
                    let root = reduction.and_then(|reduction| reduction.spec().delivery.root());
                    self.touched.extend(root);
                    return None;
                }
            }
        }
    }

    /// Gives `rank` as much as it has room for. Returns the last task of a reduction, if it comes to one.
    fn ask(
        &mut self,
        rank: Rank,
        reductions: &mut Reductions,
        desk: &mut Desk,
    ) -> Option<(ReductionId, Task)> {
        while desk.is_alive(rank)
            && self.lanes[rank].has_room(&desk.policy)
            && let Some(id) = self.choice(reductions, desk).first_for(rank, &self.listings)
        {
            let granted = self.grant(rank, id, reductions, desk);
            // The rest of it may be for others.
            self.change(id);
            match granted {
                Granted::Task => {}
                Granted::Last(task) => return Some((id.reduction, task)),
                Granted::Nothing => panic!("what waits for {rank} can be granted to it"),
            }
        }
        self.take_ahead(rank, reductions, desk);
        None
    }

    /// Lets a root that has nothing else to read take the folded part of a segment ahead, if the rest lies
    /// with a slow owner. The root's link, idle now, carries a partial more for it; but the holder of the
    /// folded part may be the next to be slow.
    fn take_ahead(&mut self, root: Rank, reductions: &mut Reductions, desk: &mut Desk) {
        let Self { lanes, listings, .. } = self;
        let Desk { policy, members, .. } = desk;
        if members.alive(root).is_none() || !lanes[root].has_room(policy) || !lanes.differ(policy) {
            return;
        }
        let reader = Reader::new(root, members, lanes, policy, Path::empty());
        let can_read = |ready: &Ready| reader.access(ready, false) < Access::Later;
        let read_ns = |ready: &Ready| reader.read_ns(ready);
        let is_stuck = |id: &SegmentId| {
            let reduction = &reductions[&id.reduction];
            let queue = reduction.segment(id.index).queue();
            reduction.can_rouse_root(id.index) && queue.waits_for_slow(can_read, read_ns)
        };
        let stuck = listings.with_root(root).find(is_stuck);
        if let Some(id) = stuck
            && let Some(reduction) = reductions.get_mut(&id.reduction)
            && reduction.rouse(id.index)
        {
            self.change(id);
            self.touched.insert(root);
        }
    }

    /// The workers that can go on with a segment.
    fn turn(&mut self, id: SegmentId, reductions: &mut Reductions, desk: &mut Desk) -> Option<Turn> {
        let Desk { now, policy, members, timers, .. } = desk;
        let is_alive = |rank| members.alive(rank).is_some();
        let reduction = reductions.get_mut(&id.reduction)?;
        loop {
            let turn = reduction.whose_turn(id.index, policy)?;
            let of_others = [turn, Turn::Owners];
            if let Some(turn) =
                of_others.into_iter().find(|turn| reduction.can_go_on(id.index, *turn, members))
            {
                return Some(turn);
            }
            let can_help = |rank| is_alive(rank) && reduction.can_help(id.index, rank, members);
            if reduction.group().iter().any(can_help) {
                return Some(Turn::Anyone);
            }
            if reduction.rouse(id.index) {
                continue;
            }
            if !reduction.try_again(id.index, *now, members) {
                if let Some(next_try) = reduction.pause_for_reach(id.index) {
                    timers.set(next_try.max(*now + RETRY_PAUSE), Timer::Retry(id));
                }
                return None;
            }
            self.changed.extend(reduction.indices().map(|index| SegmentId { index, ..id }));
        }
    }

    /// Notes the workers that can go on with a segment.
    fn list(&mut self, id: SegmentId, turn: Option<Turn>, reductions: &mut Reductions, desk: &mut Desk) {
        let pairs = self.choice(reductions, desk).pairs(id, turn);
        if let Some(reduction) = reductions.get_mut(&id.reduction) {
            self.enlist(id, reduction, turn, pairs);
        }
    }

    fn enlist(&mut self, id: SegmentId, reduction: &mut Reduction, turn: Option<Turn>, pairs: Pairs) {
        let root = reduction.spec().delivery.root();
        let is_owners = turn == Some(Turn::Owners) && pairs.is_empty();
        let root = root.filter(|_| is_owners && reduction.can_rouse_root(id.index));
        let (started, segment) = (reduction.started(), reduction.segment_mut(id.index));
        segment.set_turn(turn);
        self.listings.list(segment.waiting(id, started), turn, pairs, root);
    }

    fn choice<'a>(&'a self, reductions: &'a Reductions, desk: &'a Desk) -> Choice<'a> {
        Choice { lanes: &self.lanes, policy: &desk.policy, members: &desk.members, reductions }
    }

    /// Makes a task of what waits in a segment and gives it to `rank`, if there is one for it.
    fn grant(&mut self, rank: Rank, id: SegmentId, reductions: &mut Reductions, desk: &mut Desk) -> Granted {
        let Desk { now, policy, members, outbox, fold, .. } = desk;
        let is_alive = |rank| members.alive(rank).is_some();
        let Some(reduction) = reductions.get_mut(&id.reduction) else { return Granted::Nothing };
        let Some(executor) = members.alive(rank) else { return Granted::Nothing };
        let afresh = reduction.segment(id.index).turn() == Some(Turn::Anyone);
        // It may have one that it cannot go on with.
        let own = reduction.own_of(id.index, rank, &is_alive).filter(|_| !afresh).cloned();
        if own.is_none() && !afresh {
            return Granted::Nothing;
        }
        let out_of_reach = reduction.out_of_reach(rank, members);
        let reader = Reader::new(rank, members, &self.lanes, policy, out_of_reach);
        let share_memory = reduction.shares_memory();
        let access = |ready: &Ready| match reader.access(ready, share_memory) {
            // A worker begins afresh only if no other one can go on.
            Access::Later if own.is_none() => Access::Far { serves: 0, read_ns: 0 },
            access => access,
        };
        let partials = match own.is_none() && reduction.is_apart() {
            true => reduction.take_within_reach(id.index, rank, members),
            false => reduction.take_partners(id.index, own.as_ref(), access),
        };
        let Some(mut partials) = partials else { return Granted::Nothing };
        let bytes = reduction.task_bytes(id.index, &partials);
        let is_last = reduction.is_last(id.index, &partials, policy, fold.is_some());
        // The result is folded in one order, wherever that is done.
        let own = own.filter(|_| !is_last || reduction.spec().delivery.root().is_some());
        if let Some(own) = &own {
            partials.retain(|ready| ready != own);
        }
        let task = TaskId(self.next_task);
        self.next_task += 1;
        if is_last {
            return Granted::Last(reduction.task(task, id, own.as_ref(), partials));
        }
        let expected = match reduction.spec().kind.folds_surely() {
            true => Duration::from_nanos(self.lanes[rank].expected_ns(bytes)),
            false => Duration::ZERO,
        };
        let late = *now + (expected * LATE_FACTOR).max(policy.limits.ping_interval / 2);
        let from = partials.iter().map(|ready| ready.process.rank).collect();
        let load = Load { bytes, from, mapped: share_memory, since: *now };
        self.lanes[rank].grant(&load);
        load.from.iter().for_each(|owner| self.lanes[*owner].begin_to_serve());
        let grant = Grant { task, executor: executor.process, load, late };
        reduction.start(id.index, grant, own.as_ref(), &partials);
        self.worked_on.insert(id.reduction);
        outbox.send(executor.process, ToWorker::Task(reduction.task(task, id, own.as_ref(), partials)));
        Granted::Task
    }
}
