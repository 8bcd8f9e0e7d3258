//! Which worker is the best for a segment, and which segment for a worker.

use alloc::{sync::Arc, vec::Vec};

use everfold_protocol::{AgentId, Path, Rank, SegmentId, SegmentIndex, message::Data, spec::Order};
use smallvec::SmallVec;

use crate::{
    crowd::{LISTED_MAX, Pairs},
    lane::{Lane, Lanes},
    listing::{Listings, Turn},
    membership::Membership,
    policy::Policy,
    queue::{Access, Ready, SLOW_FACTOR},
    reduction::{Reduction, Reductions},
};

/// How many times longer a read is taken to take where a fault was located: it is slow beside all others,
/// unless theirs were measured to be slow beside it.
const LOCATED_FACTOR: u64 = SLOW_FACTOR * SLOW_FACTOR;

/// Owners that are compared at least for a segment that waits: the latest may all have no room.
const OWNERS_COMPARED: usize = 16;

/// Reductions that are compared for a worker that has room.
const REDUCTIONS_COMPARED: usize = 8;

/// Segments that a worker could work on, and how well it reads what they need.
type Able = SmallVec<[(SegmentId, Access); 2 * REDUCTIONS_COMPARED]>;

/// The number of segments of a crowd that are compared for each process that the worker would read from.
const CROWD_COMPARED: usize = 2;

/// Of those, segments that a worker looks at of which it owns a part, if none of the lists that it has room
/// for has one for it. One that has nothing to do looks at all, mostly no further than the first: of an earlier
/// process of its rank it owns nothing.
const CROWD_LOOKS_MAX: usize = 64;

/// A worker that is to read partials, and the state on which the choice depends.
pub(super) struct Reader<'a> {
    rank: Rank,
    host: Option<u64>,
    /// Its host's, if that matters.
    agent: Option<AgentId>,
    lane: &'a Lane,
    members: &'a Membership,
    lanes: &'a Lanes,
    policy: &'a Policy,
    /// Whom it is not to read.
    out_of_reach: Path,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        rank: Rank,
        members: &'a Membership,
        lanes: &'a Lanes,
        policy: &'a Policy,
        out_of_reach: Path,
    ) -> Self {
        let peer = members.alive(rank);
        let host = peer.map(|peer| peer.host);
        let located = peer.filter(|_| !lanes.faults().are_none());
        let agent = located.and_then(|peer| members.agents().of(peer.process));
        Self { rank, host, agent, lane: &lanes[rank], members, lanes, policy, out_of_reach }
    }

    /// How well it can read a partial.
    pub(super) fn access(&self, ready: &Ready, share_memory: bool) -> Access {
        let owner = ready.process.rank;
        if owner != self.rank {
            let is_private = matches!(ready.data, Data::Private);
            if is_private || (self.out_of_reach.contains(owner) && !ready.is_inline()) {
                return Access::Never;
            }
        }
        // The rank may have come back elsewhere since.
        match share_memory || ready.is_inline() || self.members.host_of(ready.process) == self.host {
            true => Access::Near,
            false if !self.lane.has_room_for(owner, self.policy) => Access::Later,
            false => Access::Far { serves: self.lanes[owner].serves(), read_ns: self.read_ns(ready) },
        }
    }

    /// How long it takes to read a partial from another host, in nanoseconds: as was measured, and much
    /// longer if a fault was located that speaks for it.
    pub(super) fn read_ns(&self, ready: &Ready) -> u64 {
        let read_ns = self.lanes[ready.process.rank].read_ns(self.policy);
        match self.is_located(ready) {
            true => read_ns.saturating_mul(LOCATED_FACTOR),
            false => read_ns,
        }
    }

    /// Whether the host of a partial, or the link from there, has a fault.
    fn is_located(&self, ready: &Ready) -> bool {
        let faults = self.lanes.faults();
        let slow = |owner| faults.slow_reads(owner, self.agent);
        !faults.are_none() && self.members.agents().of(ready.process).is_some_and(slow)
    }
}

/// The state on which a choice depends.
pub(super) struct Choice<'a> {
    pub(super) lanes: &'a Lanes,
    pub(super) policy: &'a Policy,
    pub(super) members: &'a Membership,
    pub(super) reductions: &'a Reductions,
}

impl<'a> Choice<'a> {
    /// Verifies that a worker will ask for each segment that is listed.
    ///
    /// # Panics
    /// If none will.
    pub(super) fn check(&self, listings: &Listings) {
        for (turn, _, id) in listings.waiting() {
            assert!(self.will_ask(*turn, *id), "{id:?} waits for {turn:?}, but nobody will ask for it");
        }
        for (pair, _, id) in listings.crowd() {
            let segment = self.reductions[&id.reduction].segment(id.index);
            let will_ask = segment.turn().is_some_and(|turn| self.will_ask(turn, *id));
            assert!(will_ask, "{id:?} waits for {pair:?}, but nobody will ask for it");
            assert!(
                !self.an_owner_is_idle(*id),
                "{id:?} waits in the crowd although one of its owners is idle"
            );
        }
    }

    /// Whether one of the owners in a segment, all of whom are compared when it is offered, has nothing to
    /// do.
    fn an_owner_is_idle(&self, id: SegmentId) -> bool {
        let reduction = &self.reductions[&id.reduction];
        let is_alive = |rank| self.members.alive(rank).is_some();
        let owners: Vec<_> = reduction.executors(id.index, &is_alive).take(OWNERS_COMPARED + 1).collect();
        let is_idle = |own: &&Arc<Ready>| self.lanes[own.process.rank].is_idle();
        let is_owners = reduction.segment(id.index).turn() == Some(Turn::Owners);
        is_owners && owners.len() <= OWNERS_COMPARED && owners.iter().any(is_idle)
    }

    /// Whether a worker that can go on with a segment has no room for it, and so will ask.
    fn will_ask(&self, turn: Turn, id: SegmentId) -> bool {
        let reduction = &self.reductions[&id.reduction];
        let is_alive = |rank| self.members.alive(rank).is_some();
        let is_busy = |rank: Rank| !self.lanes[rank].has_room(self.policy);
        let waits =
            |own: &Arc<Ready>| is_busy(own.process.rank) || !self.has_access(reduction, id.index, own);
        match turn {
            Turn::Root(root) => reduction.own_of(id.index, root, &is_alive).is_none_or(waits),
            Turn::Owners => reduction.executors(id.index, &is_alive).any(waits),
            Turn::Anyone => {
                let alive = reduction.group().iter().filter(|rank| is_alive(*rank));
                alive
                    .filter(|rank| is_busy(*rank))
                    .any(|rank| reduction.can_help(id.index, rank, self.members))
            }
        }
    }

    /// How well the process of `own` can read what there is to be folded into that; nothing if it cannot now.
    fn access(&self, reduction: &Reduction, index: SegmentIndex, own: &Arc<Ready>) -> Option<Access> {
        let reader = self.reader(reduction, index, own)?;
        let access = |ready: &Ready| reader.access(ready, reduction.shares_memory());
        reduction.segment(index).queue().access(own, access)
    }

    /// Whether the process of `own` can read something now that is to be folded into that.
    fn has_access(&self, reduction: &Reduction, index: SegmentIndex, own: &Arc<Ready>) -> bool {
        let Some(reader) = self.reader(reduction, index, own) else { return false };
        let access = |ready: &Ready| reader.access(ready, reduction.shares_memory());
        reduction.segment(index).queue().has_access(own, access)
    }

    /// The process of `own`, if it reaches something that can be folded into that.
    fn reader(&self, reduction: &Reduction, index: SegmentIndex, own: &Arc<Ready>) -> Option<Reader<'a>> {
        let rank = own.process.rank;
        let reader = || {
            let out_of_reach = reduction.out_of_reach(rank, self.members);
            Reader::new(rank, self.members, self.lanes, self.policy, out_of_reach)
        };
        reduction.meets_within_reach(index, own, self.members).then(reader)
    }

    /// A segment that waits for `rank`: of the oldest reductions, of one for which it reads from an owner
    /// that serves few reads, and of these the one whose root has the fewest segments to read. Were it always
    /// of the oldest one, the links of the other roots would carry little at first, and alone in the end.
    pub(super) fn first_for(&self, rank: Rank, listings: &Listings) -> Option<SegmentId> {
        let reductions = self.reductions;
        let is_alive = |rank| self.members.alive(rank).is_some();
        let into_own = |id: SegmentId| {
            let reduction = &reductions[&id.reduction];
            let own = reduction.own_of(id.index, rank, &is_alive)?;
            self.access(reduction, id.index, own)
        };
        let afresh =
            |id: SegmentId| reductions[&id.reduction].can_help(id.index, rank, self.members).then_some(());
        let of_crowd = || {
            let has_room = |owner| self.lanes[rank].has_room_for(owner, self.policy);
            let mut waiting = listings.waiting_in_crowd(rank, has_room, CROWD_COMPARED, into_own);
            waiting.sort_unstable_by_key(|(started, id, _)| (*started, *id));
            waiting.into_iter().take(REDUCTIONS_COMPARED).map(|(_, id, access)| (id, access))
        };
        let of_owners = || {
            let firsts = listings.firsts_of(rank, false, usize::MAX, into_own).take(REDUCTIONS_COMPARED);
            self.most_urgent(firsts.chain(of_crowd()).collect(), listings)
        };
        let to_root = listings.firsts(Turn::Root(rank), into_own).take(REDUCTIONS_COMPARED);
        let first = to_root.min_by_key(|(_, access)| *access).or_else(of_owners);
        let looks = if self.lanes[rank].is_idle() { usize::MAX } else { CROWD_LOOKS_MAX };
        let first = first.or_else(|| listings.firsts_of(rank, true, looks, into_own).next());
        let of_anyone = || listings.firsts(Turn::Anyone, afresh).next().map(|(id, ())| id);
        first.map(|(id, _)| id).or_else(of_anyone)
    }

    /// Of segments that are about equally quick to read, the one whose root has the fewest to read itself.
    fn most_urgent(&self, mut able: Able, listings: &Listings) -> Option<(SegmentId, Access)> {
        let roughly = able.iter().map(|(_, access)| access.roughly()).min()?;
        able.retain(|(_, access)| access.roughly() == roughly);
        if able.len() == 1 {
            return able.pop();
        }
        // On one host no link waits.
        let reduction =
            |id: &SegmentId| Some(&self.reductions[&id.reduction]).filter(|it| !it.shares_memory());
        let root = |id: &SegmentId| reduction(id)?.spec().delivery.root();
        let mut backlogs = SmallVec::<[(Rank, usize); 4]>::new();
        let mut backlog = |root: Rank| {
            let known = backlogs.iter().find(|(of, _)| *of == root).map(|(_, count)| *count);
            known.unwrap_or_else(|| {
                backlogs.push((root, listings.backlog(root)));
                backlogs[backlogs.len() - 1].1
            })
        };
        able.into_iter().min_by_key(|(id, access)| (root(id).map_or(0, &mut backlog), *access))
    }

    /// Under which pairs a segment is listed: none, unless many reductions are open.
    pub(super) fn pairs(&self, id: SegmentId, turn: Option<Turn>) -> Pairs {
        let mut pairs = Pairs::new();
        if turn.is_none() || self.reductions.len() <= self.policy.crowd_from {
            return pairs;
        }
        let reduction = self.reductions.get(&id.reduction);
        let Some(reduction) = reduction.filter(|reduction| !reduction.is_apart()) else {
            return pairs;
        };
        let is_alive = |rank| self.members.alive(rank).is_some();
        let executors: SmallVec<[&Arc<Ready>; LISTED_MAX]> = match turn {
            Some(Turn::Root(root)) => reduction.own_of(id.index, root, &is_alive).into_iter().collect(),
            Some(Turn::Owners) => reduction.executors(id.index, &is_alive).take(LISTED_MAX).collect(),
            Some(Turn::Anyone) | None => return pairs,
        };
        let host = |rank| self.members.host(rank);
        let is_near = reduction.shares_memory() || reduction.spec().order == Order::Fixed;
        for own in executors {
            let reader = own.process.rank;
            let others = reduction.segment(id.index).queue().iter().filter(|other| *other != own);
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

    /// The owner of a waiting partial, or the root if it is its turn, that has room and is expected to be
    /// done first with folding the others into it. Of many, only some are compared.
    pub(super) fn best_owner(&self, id: SegmentId, turn: Option<Turn>) -> Option<Rank> {
        let is_alive = |rank| self.members.alive(rank).is_some();
        let has_room = |own: &&Arc<Ready>| self.lanes[own.process.rank].has_room(self.policy);
        let reduction = self.reductions.get(&id.reduction)?;
        let able: SmallVec<[&Arc<Ready>; 16]> = match turn {
            Some(Turn::Root(root)) => reduction.own_of(id.index, root, &is_alive).into_iter().collect(),
            _ => {
                // Most of them may not reach the others.
                let all = if reduction.is_apart() { usize::MAX } else { OWNERS_COMPARED };
                let compared = all.max(reduction.fan_in_max() + 1);
                reduction.executors(id.index, &is_alive).take(compared).collect()
            }
        };
        let able = able.into_iter().filter(has_room).filter(|own| self.has_access(reduction, id.index, own));
        self.fastest(able.map(|ready| ready.process.rank), reduction.range(id.index).len)
    }

    /// The best worker with room, and with a partial that is not needed.
    pub(super) fn best_afresh(&self, id: SegmentId) -> Option<Rank> {
        let reduction = self.reductions.get(&id.reduction)?;
        let alive = reduction.group().iter().filter(|rank| self.members.alive(*rank).is_some());
        let free = alive.filter(|rank| reduction.can_help(id.index, *rank, self.members));
        self.fastest(free, reduction.range(id.index).len)
    }

    /// Of the workers with room the one that is expected to be done first with `bytes` bytes, by its smoothed
    /// rate and its backlog. The paper's rule, the shorter most recent task, is this rule for workers without
    /// a backlog. Of equals it is the first.
    fn fastest(&self, ranks: impl Iterator<Item = Rank>, bytes: u64) -> Option<Rank> {
        let lane = |rank: &Rank| -> &Lane { &self.lanes[*rank] };
        let free = ranks.filter(|rank| lane(rank).has_room(self.policy));
        free.min_by_key(|rank| lane(rank).expected_ns(bytes))
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use everfold_protocol::{
        Generation, JobId, ProcessId, RegionOffset, Timestamp, WindowId,
        message::{AgentRef, Peer, Place as At, TaskCounters, WindowRef},
    };

    use super::*;
    use crate::{
        lane::Load,
        located::{Fault, Place},
        queue::Queue,
    };

    const HERE: Rank = Rank(0);

    fn agent(rank: Rank) -> AgentId {
        AgentId(100 + u64::from(rank.0))
    }

    /// A job of one rank on each of four hosts.
    fn members() -> Membership {
        let mut members = Membership::new(JobId(1), 4);
        for rank in (0..4).map(Rank) {
            let agent = Some(AgentRef { id: agent(rank), address: Default::default() });
            let (region, bell, board, domain) = (None, None, None, None);
            let (process, address) = (ProcessId::first(rank), Default::default());
            let host = rank.0.into();
            members.join(Peer { process, host, pid: 0, region, bell, board, address, domain, agent });
        }
        members
    }

    fn ready(rank: Rank) -> Arc<Ready> {
        let (window, generation, place) = (WindowId(0), Generation(1), At::Region(RegionOffset(0)));
        let data = Data::Window(WindowRef { window, generation, bytes: 1 << 20, checksum: None, place });
        Arc::new(Ready { process: ProcessId::first(rank), path: Path::single(rank), data })
    }

    /// The owners from which rank 0 reads now, of all others.
    fn read(members: &Membership, lanes: &Lanes) -> Vec<u32> {
        let (mut queue, group) = (Queue::new(Order::Arrival), Path::range(0, 4));
        (0..4).for_each(|rank| queue.push(ready(Rank(rank)), &group, &group));
        let policy = Policy { read_time: Duration::from_millis(5), ..Policy::default() };
        let reader = Reader::new(HERE, members, lanes, &policy, Path::empty());
        let taken = queue.take(Some(&ready(HERE)), 4, |other| reader.access(other, false));
        taken.unwrap().iter().skip(1).map(|ready| ready.process.rank.0).collect()
    }

    #[test]
    fn owners_on_faulty_hosts_and_behind_faulty_links_are_left_for_later_until_that_is_over() {
        let (members, mut lanes) = (members(), Lanes::default());
        let fault = |name: &str, place| Fault { name: name.into(), place, harmless: false };
        let host = fault("network_slow", Place::Hosts(vec![agent(Rank(2))]));
        let link = fault("link_slow", Place::Link { from: agent(Rank(3)), to: agent(HERE) });
        let other_way = fault("link_slow", Place::Link { from: agent(HERE), to: agent(Rank(1)) });
        let see = |lanes: &mut Lanes, fault: &Fault, over| {
            lanes.see_located(fault, over);
            read(&members, lanes)
        };
        assert_eq!(see(&mut lanes, &other_way, false), [1, 2, 3], "it reads over others");
        assert_eq!(see(&mut lanes, &host, false), [1, 3]);
        assert_eq!(see(&mut lanes, &link, false), [1]);
        assert_eq!(see(&mut lanes, &host, true), [1, 2]);
        assert_eq!(see(&mut lanes, &link, true), [1, 2, 3]);
    }

    #[test]
    fn what_was_measured_outweighs_a_located_fault_if_others_are_much_slower() {
        let (members, mut lanes) = (members(), Lanes::default());
        let take = |lanes: &mut Lanes, from: u32, ms: u64| {
            let load = Load { bytes: 1, from: [Rank(from)].into_iter().collect(), ..Load::default() };
            let (fetch_ns, last) = (ms * 1_000_000, Some(Rank(from)));
            let counters = TaskCounters { fetch_ns, last, ..TaskCounters::default() };
            lanes.observe(Timestamp::ZERO, HERE, &load, &counters);
        };
        let place = Place::Hosts(vec![agent(Rank(2))]);
        lanes.see_located(&Fault { name: "network_slow".into(), place, harmless: false }, false);
        [1, 3].into_iter().for_each(|other| take(&mut lanes, other, 15));
        assert_eq!(read(&members, &lanes), [1, 3]);
        [1, 3].into_iter().for_each(|other| take(&mut lanes, other, 60));
        assert_eq!(read(&members, &lanes), [1, 2, 3]);
    }
}
