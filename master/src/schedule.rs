//! Who is given which task, and when (DR-6).
//!
//! Nothing is assigned ahead: a task is made when a worker has room for it, of whatever is ready by then. So whoever is
//! faster does more, and late partials join those that wait. There are two occasions: a segment has changed, and is
//! offered to those who could go on with it; or a worker has got room, and asks for the first segment that waits.

use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};
use core::time::Duration;

use everfold_protocol::{
    Path, Rank, ReductionId, SegmentId, SegmentIndex, TaskId,
    message::{Data, ToWorker},
    spec::Order,
};
use smallvec::SmallVec;

use crate::{
    crowd::{LISTED_MAX, Pairs},
    lane::{Lane, Lanes, Load},
    listing::Listings,
    machine::Master,
    membership::Membership,
    pace::LATE_FACTOR,
    policy::Policy,
    queue::{Access, Ready},
    reduction::{Reduction, Turn},
};

/// Owners that are compared at least for a segment that waits: the latest may all have no room.
const OWNERS_COMPARED: usize = 16;

/// Reductions that are compared for a worker that has room.
const REDUCTIONS_COMPARED: usize = 8;

/// Of a crowd, so many for each process that it would read from.
const CROWD_COMPARED: usize = 2;

/// Of those, segments that a worker looks at of which it owns a part, if none of the lists that it has room for has one for it. One
/// that has nothing to do finds the first of them.
const CROWD_LOOKS_MAX: usize = 64;

/// Segments that somebody could go on with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    /// Those that have changed since they were offered last.
    changed: BTreeSet<SegmentId>,
    /// Those that wait for somebody to have room.
    listings: Listings,
    /// Workers that may have got room.
    touched: BTreeSet<Rank>,
    /// Reductions whose segments somebody works on, and some where nobody does any more.
    worked_on: BTreeSet<ReductionId>,
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

    /// The reductions whose segments somebody works on. `is_worked_on` sorts the others out, for good until a task is granted.
    pub(crate) fn worked_on(&mut self, is_worked_on: impl FnMut(&ReductionId) -> bool) -> Vec<ReductionId> {
        self.worked_on.retain(is_worked_on);
        self.worked_on.iter().copied().collect()
    }
}

/// Who is to read partials, and what that depends on.
struct Reader<'a> {
    rank: Rank,
    host: Option<u64>,
    lane: &'a Lane,
    membership: &'a Membership,
    lanes: &'a Lanes,
    policy: &'a Policy,
    /// Whom it is not to read.
    out_of_reach: Path,
}

impl<'a> Reader<'a> {
    fn new(
        rank: Rank,
        membership: &'a Membership,
        lanes: &'a Lanes,
        policy: &'a Policy,
        out_of_reach: Path,
    ) -> Self {
        let host = membership.alive(rank).map(|peer| peer.host);
        Self { rank, host, lane: &lanes[rank], membership, lanes, policy, out_of_reach }
    }

    /// How well it can read a partial.
    fn access(&self, ready: &Ready, share_memory: bool) -> Access {
        let owner = ready.process.rank;
        if owner != self.rank {
            let is_private = matches!(ready.data, Data::Private);
            if is_private || (self.out_of_reach.contains(owner) && !ready.is_inline()) {
                return Access::Never;
            }
        }
        let host = |rank| self.membership.alive(rank).map(|peer| peer.host);
        match share_memory || ready.is_inline() || host(owner) == self.host {
            true => Access::Near,
            false if !self.lane.has_room_for(owner, self.policy) => Access::Later,
            false => {
                let lane = &self.lanes[owner];
                Access::Far { serves: lane.serves(), read_ns: lane.read_ns(self.policy) }
            }
        }
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
        let Schedule { changed, touched, listings, worked_on } = &self.schedule;
        listings.check(&self.reductions);
        for (id, reduction) in &self.reductions {
            let is_granted = reduction.tasks().any(|running| running.load.is_task());
            assert!(
                !is_granted || worked_on.contains(id),
                "{id:?} is worked on, but nobody sees if that is late"
            );
        }
        if !changed.is_empty() || !touched.is_empty() {
            return;
        }
        for (turn, _, id) in listings.waiting() {
            assert!(self.will_ask(*turn, *id), "{id:?} waits for {turn:?}, but nobody will ask for it");
        }
        for (_, _, id) in listings.crowd.iter() {
            let segment = &self.reductions[&id.reduction].segments[id.index];
            let will_ask = segment.turn.is_some_and(|turn| self.will_ask(turn, *id));
            assert!(will_ask, "{id:?} waits for {:?}, but nobody will ask for it", segment.listing.pairs);
            assert!(
                !self.an_owner_is_idle(*id),
                "{id:?} waits in the crowd although one of its owners is idle"
            );
        }
    }

    /// Whether one of the owners in a segment, all of whom are compared when it is offered, has nothing to do.
    fn an_owner_is_idle(&self, id: SegmentId) -> bool {
        let reduction = &self.reductions[&id.reduction];
        let is_alive = |rank| self.membership.alive(rank).is_some();
        let owners: Vec<_> = reduction.executors(id.index, &is_alive).take(OWNERS_COMPARED + 1).collect();
        let is_idle = |own: &&Arc<Ready>| self.lanes[own.process.rank].is_idle();
        let is_owners = reduction.segments[id.index].turn == Some(Turn::Owners);
        is_owners && owners.len() <= OWNERS_COMPARED && owners.iter().any(is_idle)
    }

    /// Whether somebody who can go on with a segment has no room for it, and so will ask.
    fn will_ask(&self, turn: Turn, id: SegmentId) -> bool {
        let reduction = &self.reductions[&id.reduction];
        let is_alive = |rank| self.membership.alive(rank).is_some();
        let is_busy = |rank: Rank| !self.lanes[rank].has_room(&self.policy);
        let waits =
            |own: &Arc<Ready>| is_busy(own.process.rank) || !self.has_access(reduction, id.index, own);
        match turn {
            Turn::Root(root) => reduction.own_of(id.index, root, &is_alive).is_none_or(waits),
            Turn::Owners => reduction.executors(id.index, &is_alive).any(waits),
            Turn::Anyone => {
                let alive = reduction.group.iter().filter(|rank| is_alive(*rank));
                alive
                    .filter(|rank| is_busy(*rank))
                    .any(|rank| reduction.can_help(id.index, rank, &self.membership))
            }
        }
    }

    /// Gives the tasks of one segment to workers that have room.
    fn offer(&mut self, id: SegmentId) {
        loop {
            let turn = self.turn(id);
            if let Some(reduction) = self.reductions.get_mut(&id.reduction) {
                reduction.segments[id.index].turn = turn;
            }
            let executor = match turn {
                None => return self.enlist(id, turn),
                Some(Turn::Root(_) | Turn::Owners) => self.best_owner(id, turn),
                Some(Turn::Anyone) => self.best_afresh(id),
            };
            if !executor.is_some_and(|executor| self.grant(executor, id)) {
                self.enlist(id, turn);
                // Its root may take it ahead.
                let root =
                    self.reductions.get(&id.reduction).and_then(|reduction| reduction.spec.delivery.root());
                return self.schedule.touched.extend(root);
            }
        }
    }

    /// Gives `rank` as much as it has room for.
    fn ask(&mut self, rank: Rank) {
        while self.membership.alive(rank).is_some()
            && self.lanes[rank].has_room(&self.policy)
            && let Some(id) = self.first_for(rank)
        {
            let granted = self.grant(rank, id);
            assert!(granted, "what waits for {rank} can be granted to it");
            // What is left of it may be for others.
            self.schedule.change(id);
        }
        self.take_ahead(rank);
    }

    /// Lets a root that has nothing else to read have what a segment was folded to so far, if the rest lies with somebody slow.
    /// Its link, idle now, carries a partial more for it; but whoever holds what was folded may be the next to be slow.
    fn take_ahead(&mut self, root: Rank) {
        let Self { schedule, reductions, lanes, membership, policy, .. } = self;
        if membership.alive(root).is_none() || !lanes[root].has_room(policy) || !lanes.differ(policy) {
            return;
        }
        let reader = Reader::new(root, membership, lanes, policy, Path::empty());
        let can_read = |ready: &Ready| reader.access(ready, false) < Access::Later;
        let read_ns = |rank: Rank| lanes[rank].read_ns(policy);
        let is_stuck = |id: &SegmentId| {
            let reduction = &reductions[&id.reduction];
            let queue = &reduction.segments[id.index].queue;
            reduction.can_rouse_root(id.index) && queue.waits_for_slow(can_read, read_ns)
        };
        let stuck = schedule.listings.with_root(root).find(is_stuck);
        if let Some(id) = stuck
            && let Some(reduction) = reductions.get_mut(&id.reduction)
            && reduction.rouse(id.index)
        {
            schedule.change(id);
            schedule.touch(root);
        }
    }

    /// How well the process of `own` can read what there is to be folded into that; nothing if it cannot now.
    fn access(&self, reduction: &Reduction, index: SegmentIndex, own: &Arc<Ready>) -> Option<Access> {
        let reader = self.reader(reduction, index, own)?;
        let access = |ready: &Ready| reader.access(ready, reduction.share_memory);
        reduction.segments[index].queue.access(own, access)
    }

    /// Whether the process of `own` can read something now that is to be folded into that.
    fn has_access(&self, reduction: &Reduction, index: SegmentIndex, own: &Arc<Ready>) -> bool {
        let Some(reader) = self.reader(reduction, index, own) else { return false };
        let access = |ready: &Ready| reader.access(ready, reduction.share_memory);
        reduction.segments[index].queue.has_access(own, access)
    }

    /// The process of `own`, if it reaches something that can be folded into that.
    fn reader(&self, reduction: &Reduction, index: SegmentIndex, own: &Arc<Ready>) -> Option<Reader<'_>> {
        let rank = own.process.rank;
        let reader = || {
            let out_of_reach = reduction.out_of_reach(rank, &self.membership);
            Reader::new(rank, &self.membership, &self.lanes, &self.policy, out_of_reach)
        };
        reduction.meets_within_reach(index, own, &self.membership).then(reader)
    }

    /// A segment that waits for `rank`: of the oldest reductions, of the one for which it reads from the owner that serves the
    /// fewest reads. Were it always of the oldest one, the link of its root would carry nothing away meanwhile.
    fn first_for(&self, rank: Rank) -> Option<SegmentId> {
        let Self { schedule: Schedule { listings, .. }, reductions, .. } = self;
        let is_alive = |rank| self.membership.alive(rank).is_some();
        let into_own = |id: SegmentId| {
            let reduction = &reductions[&id.reduction];
            let own = reduction.own_of(id.index, rank, &is_alive)?;
            self.access(reduction, id.index, own)
        };
        let afresh = |id: SegmentId| {
            reductions[&id.reduction].can_help(id.index, rank, &self.membership).then_some(())
        };
        let of_crowd = || {
            let has_room = |owner| self.lanes[rank].has_room_for(owner, &self.policy);
            let mut waiting = listings.crowd.waiting_for(rank, has_room, CROWD_COMPARED, into_own);
            waiting.sort_unstable_by_key(|(started, id, _)| (*started, *id));
            let firsts = waiting.into_iter().take(REDUCTIONS_COMPARED);
            firsts.map(|(_, id, access)| (id, access)).min_by_key(|(_, access)| *access)
        };
        let of_owners = || {
            let firsts = listings.firsts_of(rank, false, usize::MAX, into_own).take(REDUCTIONS_COMPARED);
            let best = firsts.min_by_key(|(_, access)| *access);
            best.into_iter().chain(of_crowd()).min_by_key(|(_, access)| *access)
        };
        let to_root = listings.firsts(Turn::Root(rank), into_own).take(REDUCTIONS_COMPARED);
        let first = to_root.min_by_key(|(_, access)| *access).or_else(of_owners);
        let first = first.or_else(|| listings.firsts_of(rank, true, CROWD_LOOKS_MAX, into_own).next());
        let of_anyone = || listings.firsts(Turn::Anyone, afresh).next().map(|(id, ())| id);
        first.map(|(id, _)| id).or_else(of_anyone)
    }

    /// Who can go on with a segment.
    fn turn(&mut self, id: SegmentId) -> Option<Turn> {
        let members = &self.membership;
        let is_alive = |rank| members.alive(rank).is_some();
        let reduction = self.reductions.get_mut(&id.reduction)?;
        loop {
            let turn = reduction.whose_turn(id.index, &self.policy)?;
            let of_others = [turn, Turn::Owners];
            if let Some(turn) =
                of_others.into_iter().find(|turn| reduction.can_go_on(id.index, *turn, members))
            {
                return Some(turn);
            }
            let can_help = |rank| is_alive(rank) && reduction.can_help(id.index, rank, members);
            if reduction.group.iter().any(can_help) {
                return Some(Turn::Anyone);
            }
            if reduction.rouse(id.index) {
                continue;
            }
            if !reduction.try_again(id.index, self.now) {
                self.wait_for_reach(id);
                return None;
            }
            let count = reduction.segments.count();
            let indices = (0..count).map(SegmentIndex);
            indices.for_each(|index| self.schedule.change(SegmentId { index, ..id }));
        }
    }

    /// Notes who can go on with a segment.
    fn enlist(&mut self, id: SegmentId, turn: Option<Turn>) {
        let pairs = self.pairs(id, turn);
        let Some(reduction) = self.reductions.get_mut(&id.reduction) else { return };
        reduction.segments[id.index].turn = turn;
        self.schedule.listings.list(id, reduction, turn, pairs);
    }

    /// Under which pairs a segment is listed: none, unless many reductions are open.
    fn pairs(&self, id: SegmentId, turn: Option<Turn>) -> Pairs {
        let mut pairs = Pairs::new();
        if turn.is_none() || self.reductions.len() <= self.policy.crowd_from {
            return pairs;
        }
        let reduction = self.reductions.get(&id.reduction);
        let Some(reduction) = reduction.filter(|reduction| !reduction.is_apart()) else {
            return pairs;
        };
        let is_alive = |rank| self.membership.alive(rank).is_some();
        let executors: SmallVec<[&Arc<Ready>; LISTED_MAX]> = match turn {
            Some(Turn::Root(root)) => reduction.own_of(id.index, root, &is_alive).into_iter().collect(),
            Some(Turn::Owners) => reduction.executors(id.index, &is_alive).take(LISTED_MAX).collect(),
            Some(Turn::Anyone) | None => return pairs,
        };
        let host = |rank| self.membership.alive(rank).map(|peer| peer.host);
        let is_near = reduction.share_memory || reduction.spec.order == Order::Fixed;
        for own in executors {
            let reader = own.process.rank;
            let others = reduction.segments[id.index].queue.iter().filter(|other| *other != own);
            for other in others.take(LISTED_MAX) {
                let owner = other.process.rank;
                let at_any_time = is_near || other.is_inline() || host(owner) == host(reader);
                pairs.push((reader, if at_any_time { reader } else { owner }));
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    /// Forgets the segments of a reduction that is over.
    pub(crate) fn strike_off(&mut self, id: ReductionId) {
        let count = self.reductions.get(&id).map_or(0, |reduction| reduction.segments.count());
        for index in (0..count).map(SegmentIndex) {
            self.enlist(SegmentId { reduction: id, index }, None);
        }
    }

    /// The owner of a waiting partial, or the root if it is its turn, that has room and is expected to be done first with
    /// folding the others into it. Of many, only some are compared.
    fn best_owner(&self, id: SegmentId, turn: Option<Turn>) -> Option<Rank> {
        let is_alive = |rank| self.membership.alive(rank).is_some();
        let has_room = |own: &&Arc<Ready>| self.lanes[own.process.rank].has_room(&self.policy);
        let reduction = self.reductions.get(&id.reduction)?;
        let able: SmallVec<[&Arc<Ready>; 16]> = match turn {
            Some(Turn::Root(root)) => reduction.own_of(id.index, root, &is_alive).into_iter().collect(),
            _ => {
                // Most of them may not reach the others.
                let all = if reduction.is_apart() { usize::MAX } else { OWNERS_COMPARED };
                let compared = all.max(*reduction.fan_in.end() + 1);
                reduction.executors(id.index, &is_alive).take(compared).collect()
            }
        };
        let able = able.into_iter().filter(has_room).filter(|own| self.has_access(reduction, id.index, own));
        self.fastest(able.map(|ready| ready.process.rank), reduction.range(id.index).len)
    }

    /// Who has room, and a partial that is not needed.
    fn best_afresh(&self, id: SegmentId) -> Option<Rank> {
        let reduction = self.reductions.get(&id.reduction)?;
        let alive = reduction.group.iter().filter(|rank| self.membership.alive(*rank).is_some());
        let free = alive.filter(|rank| reduction.can_help(id.index, *rank, &self.membership));
        self.fastest(free, reduction.range(id.index).len)
    }

    /// Of those who have room the one that is expected to be done first with `bytes` bytes, by its smoothed rate and by
    /// what it has to do already. The paper's rule, the shorter most recent task, is this rule for workers that have
    /// nothing else to do. Of equals it is the first.
    fn fastest(&self, ranks: impl Iterator<Item = Rank>, bytes: u64) -> Option<Rank> {
        let lane = |rank: &Rank| -> &Lane { &self.lanes[*rank] };
        let free = ranks.filter(|rank| lane(rank).has_room(&self.policy));
        free.min_by_key(|rank| lane(rank).expected_ns(bytes))
    }

    /// Takes in that a task of `executor` is not under way any more.
    pub(crate) fn vacate(&mut self, executor: Rank, load: &Load) {
        self.lanes[executor].complete(load);
        load.from.iter().for_each(|owner| self.lanes[*owner].end_to_serve());
        self.schedule.touch(executor);
    }

    /// Makes a task of what waits in a segment and gives it to `rank`. Returns false if there is none for it.
    fn grant(&mut self, rank: Rank, id: SegmentId) -> bool {
        let members = &self.membership;
        let is_alive = |rank| members.alive(rank).is_some();
        let Some(reduction) = self.reductions.get_mut(&id.reduction) else { return false };
        let Some(executor) = members.alive(rank) else { return false };
        let afresh = reduction.segments[id.index].turn == Some(Turn::Anyone);
        // It may have one that it cannot go on with.
        let own = reduction.own_of(id.index, rank, &is_alive).filter(|_| !afresh).cloned();
        if own.is_none() && !afresh {
            return false;
        }
        let out_of_reach = reduction.out_of_reach(rank, members);
        let reader = Reader::new(rank, members, &self.lanes, &self.policy, out_of_reach);
        let share_memory = reduction.share_memory;
        let access = |ready: &Ready| match reader.access(ready, share_memory) {
            // Who begins afresh does so because nobody else can.
            Access::Later if own.is_none() => Access::Far { serves: 0, read_ns: 0 },
            access => access,
        };
        let partials = match own.is_none() && reduction.is_apart() {
            true => reduction.take_within_reach(id.index, rank, members),
            false => reduction.take_partners(id.index, own.as_ref(), access),
        };
        let Some(mut partials) = partials else { return false };
        let bytes = reduction.task_bytes(id.index, &partials);
        let is_last = reduction.is_last(id.index, &partials, &self.policy);
        // The result is folded in one order, wherever that is done.
        let own = own.filter(|_| !is_last || reduction.spec.delivery.root().is_some());
        if let Some(own) = &own {
            partials.retain(|ready| ready != own);
        }
        let task = TaskId(self.next_task);
        self.next_task += 1;
        if is_last {
            let message = reduction.task(task, id, own.as_ref(), partials);
            self.finish(self.now, id.reduction, Some(message));
            return true;
        }
        let expected = match reduction.spec.kind.folds_surely() {
            true => Duration::from_nanos(self.lanes[rank].expected_ns(bytes)),
            false => Duration::ZERO,
        };
        let late = self.now + (expected * LATE_FACTOR).max(self.policy.limits.ping_interval / 2);
        let from = partials.iter().map(|ready| ready.process.rank).collect();
        let load = Load { bytes, from, mapped: share_memory, since: self.now };
        self.lanes[rank].grant(&load);
        load.from.iter().for_each(|owner| self.lanes[*owner].begin_to_serve());
        reduction.start(id.index, task, executor.process, own.as_ref(), &partials, (load, late));
        let message = reduction.task(task, id, own.as_ref(), partials);
        let to = executor.process;
        self.schedule.worked_on.insert(id.reduction);
        self.outbox.send(to, ToWorker::Task(message));
        true
    }
}
