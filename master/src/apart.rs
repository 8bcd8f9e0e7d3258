//! Processes that do not reach each other's memory, and how a reduction goes on in spite of them.
//!
//! Two processes may both live, both be heard by the master, and yet not read each other: the link between their hosts is
//! cut or refuses connections. A reader whose task failed for that is *apart* from the owner. What it cannot read others
//! fold:
//!
//! 1. The owners of other partials that wait, of which the reader then reads what they have folded.
//! 2. If all of them are apart from all partials that they could fold: a process whose own partial nobody needs. It begins
//!    afresh with partials that it reaches, with a single one if need be. That task is a copy, and *relays* the partial to
//!    those who reach the process but not its owner.
//! 3. If nobody can do that, all that are apart try again, with a pause before each try that grows with the time tried,
//!    until they have tried for longer than any silence is tolerated. Then the reduction ends in
//!    [`FoldFailed`](everfold_protocol::report::Refusal::FoldFailed).

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::time::Duration;

use everfold_protocol::{Path, ProcessId, Rank, SegmentIndex, Timestamp, message::Data};

use crate::{
    listing::Turn,
    membership::Membership,
    queue::{Access, Ready},
    reduction::Reduction,
    segment::Segment,
    tries::TimeTried,
};

/// Readers on one host that did not reach an owner before no others on that host are sent there.
const READERS_MAX: u32 = 2;

/// Hosts from which somebody did not reach an owner before nobody else is sent there who has nothing to fold with what lies
/// there: it is most likely out of everyone's reach.
const HOSTS_MAX: usize = 8;

/// Readers that did not reach owners.
#[derive(Clone, Debug, Default)]
pub(crate) struct Apart {
    /// By reader and owner.
    pairs: BTreeSet<(Rank, Rank)>,
    /// How many readers, by owner and their host.
    hosts: BTreeMap<(Rank, u64), u32>,
}

impl Apart {
    /// Takes in that `reader`, who is on this host, did not reach `owner`.
    pub fn part(&mut self, (reader, host): (Rank, u64), owner: Rank) {
        if reader != owner && self.pairs.insert((reader, owner)) {
            *self.hosts.entry((owner, host)).or_default() += 1;
        }
    }

    /// Forgets a process that was declared failed.
    pub fn forget(&mut self, dead: Rank) {
        self.pairs.retain(|(_, owner)| *owner != dead);
        self.hosts.retain(|(owner, _), _| *owner != dead);
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    fn are(&self, (reader, host): (Rank, u64), owner: Rank) -> bool {
        let others = || self.hosts.get(&(owner, host)).is_some_and(|readers| *readers >= READERS_MAX);
        self.pairs.contains(&(reader, owner)) || others()
    }

    /// Whom `reader` is not to read.
    fn owners(&self, reader: (Rank, u64)) -> Path {
        let owners: BTreeSet<Rank> = self.pairs.iter().map(|(_, owner)| *owner).collect();
        owners.into_iter().filter(|owner| *owner != reader.0 && self.are(reader, *owner)).collect()
    }

    /// Whether somebody on so many hosts did not reach `owner` that others are not likely to.
    fn is_remote(&self, owner: Rank) -> bool {
        self.hosts.range((owner, 0)..=(owner, u64::MAX)).take(HOSTS_MAX).count() == HOSTS_MAX
    }
}

/// How a segment goes on whose partials nobody can bring together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tries {
    /// Whether a pause is under way, after which those that are apart try again.
    pub pauses: bool,
    /// Whether there was a pause since the latest try.
    pub rested: bool,
    /// Whether nobody was left who could do it.
    is_last: bool,
    /// Whether that was tried for long enough: the next task that fails for it is the last one.
    is_over: bool,
    /// For how long it was tried since then.
    tried: TimeTried,
}

fn on_host(rank: Rank, members: &Membership) -> (Rank, u64) {
    (rank, members.host(rank).expect("only processes that have joined take part"))
}

impl Reduction {
    /// Takes in that a task of `reader` did not reach `owner`. `patience`: how long each of them waits at most. Returns
    /// whether that was tried for longer than `most`, and nobody else could do it.
    pub(crate) fn did_not_reach(
        &mut self,
        index: SegmentIndex,
        reader: ProcessId,
        owner: ProcessId,
        (now, patience, most): (Timestamp, Duration, Duration),
        members: &Membership,
    ) -> bool {
        let tries = &mut self.segments[index].tries;
        if tries.is_last || reader == owner {
            tries.tried.again(now, patience);
        }
        tries.rested = false;
        tries.is_over = tries.tried.exceeds(most);
        let is_over = tries.is_over;
        self.apart.part(on_host(reader.rank, members), owner.rank);
        is_over
    }

    /// Whether late tasks of a segment are kept running. Their reads have been tried for long enough: the next one that
    /// fails ends the reduction, and it must not be given up before.
    pub(crate) fn awaits_last_try(&self, index: SegmentIndex) -> bool {
        self.segments[index].tries.is_over
    }

    /// Whether a segment has no result, and nobody works on it.
    pub(crate) fn stands_still(&self, index: SegmentIndex) -> bool {
        let segment = &self.segments[index];
        self.collecting.is_none() && segment.result.is_none() && segment.running.is_empty()
    }

    /// Whether somebody did not reach somebody else lately.
    pub(crate) fn is_apart(&self) -> bool {
        !self.apart.is_empty()
    }

    /// Whose partials `reader` is not to read.
    pub(crate) fn out_of_reach(&self, reader: Rank, members: &Membership) -> Path {
        if self.is_apart() { self.apart.owners(on_host(reader, members)) } else { Path::empty() }
    }

    fn reaches(&self, reader: (Rank, u64), ready: &Ready) -> bool {
        let owner = ready.process.rank;
        let is_private = matches!(ready.data, Data::Private);
        reader.0 == owner || ready.is_inline() || !(is_private || self.apart.are(reader, owner))
    }

    /// Whether the process of `own` reaches something that can be folded into that.
    pub(crate) fn meets_within_reach(
        &self,
        index: SegmentIndex,
        own: &Arc<Ready>,
        members: &Membership,
    ) -> bool {
        let reaches = |other: &Ready| self.reaches(on_host(own.process.rank, members), other);
        !self.is_apart() || self.segments[index].queue.may_meet(own, self.most(index), reaches)
    }

    /// Whether those whose turn it is can go on.
    pub(crate) fn can_go_on(&self, index: SegmentIndex, turn: Turn, members: &Membership) -> bool {
        let is_alive = &|rank| members.alive(rank).is_some();
        match turn {
            Turn::Root(_) if !self.is_apart() => true,
            Turn::Root(root) => {
                let own = self.own_of(index, root, is_alive);
                own.is_none_or(|own| self.meets_within_reach(index, own, members))
            }
            Turn::Owners => {
                self.executors(index, is_alive).any(|own| self.meets_within_reach(index, own, members))
            }
            Turn::Anyone => false,
        }
    }

    /// Whether `rank` can begin afresh with partials that it reaches.
    pub(crate) fn can_help(&self, index: SegmentIndex, rank: Rank, members: &Membership) -> bool {
        self.can_begin_afresh(index, rank)
            && (!self.is_apart() || self.within_reach(index, rank, members).is_some())
    }

    /// What `rank` can begin afresh with: partials that meet, or one that others reach here.
    fn within_reach(&self, index: SegmentIndex, rank: Rank, members: &Membership) -> Option<Vec<Arc<Ready>>> {
        let (segment, most) = (&self.segments[index], self.most(index));
        let reaches = |ready: &Ready| {
            self.reaches(on_host(rank, members), ready)
                && (ready.is_inline() || !self.apart.is_remote(ready.process.rank))
        };
        let access = |ready: &Ready| if reaches(ready) { Access::Near } else { Access::Never };
        if let Some(partials) = segment.queue.clone().take(None, most, access) {
            return Some(partials);
        }
        let is_alive = |rank| members.alive(rank).is_some();
        // It has to be of use at once: who waits for something else would have it relayed from one to the other.
        let awaits = |own: &Arc<Ready>, ready: &Arc<Ready>| {
            let reader = on_host(own.process.rank, members);
            reader.0 != rank
                && self.apart.are(reader, ready.process.rank)
                && !self.apart.are(reader, rank)
                && self.can_execute(index, own, &is_alive)
                && segment.queue.may_meet(own, most, |other| *other == **ready)
        };
        let is_relayed = |ready: &&Arc<Ready>| {
            // Whose original it is has that.
            let is_new = ready.process.rank != rank && ready.path != Path::single(rank);
            let is_there = is_new && reaches(ready);
            is_there && segment.queue.meeting(most).any(|own| own != *ready && awaits(own, ready))
        };
        segment.queue.meeting(most).find(is_relayed).map(|ready| vec![ready.clone()])
    }

    /// Takes what `rank` can begin afresh with.
    pub(crate) fn take_within_reach(
        &mut self,
        index: SegmentIndex,
        rank: Rank,
        members: &Membership,
    ) -> Option<Vec<Arc<Ready>>> {
        let partials = self.within_reach(index, rank, members)?;
        let queue = &mut self.segments[index].queue;
        let take = |ready: Arc<Ready>| queue.remove(|other| *other == *ready);
        Some(partials.into_iter().filter_map(take).collect())
    }

    /// Lets all that are apart try again, if there was a pause for this segment. Returns whether they do.
    pub(crate) fn try_again(&mut self, index: SegmentIndex, now: Timestamp) -> bool {
        let all_have_called = self.arrived == self.group;
        // All segments try again at once, and not each of them after a pause of its own.
        let is_soon = now < self.next_try;
        let Segment { tries, running, .. } = &mut self.segments[index];
        let is_rested = tries.rested && running.is_empty() && !is_soon;
        let again = !self.apart.is_empty() && is_rested && all_have_called;
        if again {
            tries.is_last = true;
            tries.tried.begin(now);
            self.apart = Apart::default();
            self.next_try = now + tries.tried.pause();
        }
        again
    }

    /// Begins a pause before those that are apart try again, if nobody works on the segment. Before all have called they
    /// do not: one of those who have yet to come may reach both, and it is not over without them anyway. Returns before
    /// when nobody tries again, if this is no pause that has begun before.
    pub(crate) fn pause_for_reach(&mut self, index: SegmentIndex) -> Option<Timestamp> {
        let is_apart = self.is_apart() && self.arrived == self.group;
        let pauses = is_apart && self.segments[index].running.is_empty() && self.pause_tries(index);
        pauses.then_some(self.next_try)
    }

    /// Has what could not be reached in a segment left alone for a while: one pause for all. Returns whether it begins.
    pub(crate) fn pause_tries(&mut self, index: SegmentIndex) -> bool {
        !core::mem::replace(&mut self.segments[index].tries.pauses, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_did_not_reach_whom_is_known_until_one_of_them_dies() {
        let mut apart = Apart::default();
        let [one, two, three] = [(Rank(1), 0), (Rank(2), 0), (Rank(3), 0)];
        apart.part(one, Rank(1));
        assert!(apart.is_empty(), "who holds up itself is not apart from itself");
        apart.part(one, Rank(5));
        apart.part(one, Rank(5));
        assert!(apart.are(one, Rank(5)) && !apart.are((Rank(5), 7), Rank(1)), "one way");
        assert!(!apart.are(three, Rank(5)), "it may be the reader");
        apart.part(two, Rank(5));
        assert!(apart.are(three, Rank(5)), "it is the host");
        assert_eq!(apart.owners(three), Path::single(Rank(5)));
        apart.part(one, Rank(6));
        apart.forget(Rank(5));
        assert!(!apart.are(one, Rank(5)) && !apart.are(three, Rank(5)) && apart.are(one, Rank(6)));
        (1..HOSTS_MAX as u64).for_each(|host| apart.part((Rank(10 + host as u32), host), Rank(6)));
        assert!(apart.is_remote(Rank(6)) && !apart.is_remote(Rank(5)));
    }
}
