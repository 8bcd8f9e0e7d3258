//! How a segment goes on in spite of processes that do not reach each other's memory (see `apart`).

use alloc::{sync::Arc, vec::Vec};

use everfold_protocol::{Path, ProcessId, Rank, SegmentIndex, Timestamp};

use super::{Reduction, Segment};
use crate::{
    apart::Reader,
    desk::Desk,
    listing::Turn,
    membership::Membership,
    queue::{Access, Ready},
};

fn on_host(rank: Rank, members: &Membership) -> Reader {
    Reader { rank, host: members.host(rank).expect("only processes that have joined take part") }
}

impl Reduction {
    /// Takes in that a task of `reader` did not reach `owner`. Returns whether that was tried for longer than
    /// any silence is tolerated, and no other process could do it.
    pub(crate) fn did_not_reach(
        &mut self,
        index: SegmentIndex,
        reader: ProcessId,
        owner: ProcessId,
        desk: &Desk,
    ) -> bool {
        let (patience, most) = (desk.policy.limits.read_patience(), desk.policy.tries_max());
        self.apart.part(on_host(reader.rank, &desk.members), owner.rank);
        self.segments[index].tries.fail(desk.now, reader == owner, patience, most)
    }

    /// Whether late tasks of a segment are kept running. Their reads have been tried for long enough: the
    /// next one that fails ends the reduction, and it must not be given up before.
    pub(crate) fn awaits_last_try(&self, index: SegmentIndex) -> bool {
        self.segments[index].tries.are_over()
    }

    /// Whether a segment has no result, and no worker works on it.
    pub(crate) fn stands_still(&self, index: SegmentIndex) -> bool {
        let segment = &self.segments[index];
        !self.is_handed_out() && !segment.is_finished && segment.running.is_empty()
    }

    /// Whether a reader did not reach an owner lately.
    pub(crate) fn is_apart(&self) -> bool {
        !self.apart.is_empty()
    }

    /// Whose partials `reader` is not to read.
    pub(crate) fn out_of_reach(&self, reader: Rank, members: &Membership) -> Path {
        if self.is_apart() { self.apart.owners(on_host(reader, members)) } else { Path::empty() }
    }

    /// Whether the process of `own` reaches something that can be folded into that.
    pub(crate) fn meets_within_reach(
        &self,
        index: SegmentIndex,
        own: &Arc<Ready>,
        members: &Membership,
    ) -> bool {
        let reaches = |other: &Ready| self.apart.reaches(on_host(own.process.rank, members), other);
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
            self.apart.reaches(on_host(rank, members), ready)
                && (ready.is_inline() || !self.apart.is_remote(ready.process.rank))
        };
        let access = |ready: &Ready| if reaches(ready) { Access::Near } else { Access::Never };
        if let Some(partials) = segment.queue.clone().take(None, most, access) {
            return Some(partials);
        }
        let is_alive = |rank| members.alive(rank).is_some();
        // It has to be of use at once: processes that wait for something else would relay it from one to the
        // other.
        let awaits = |own: &Arc<Ready>, ready: &Arc<Ready>| {
            let reader = on_host(own.process.rank, members);
            reader.rank != rank
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
    pub(crate) fn try_again(&mut self, index: SegmentIndex, now: Timestamp, members: &Membership) -> bool {
        // All segments try again at once, and not each of them after a pause of its own.
        let is_soon = now < self.apart.next_try();
        let Segment { tries, running, .. } = &mut self.segments[index];
        let is_rested = tries.are_rested() && running.is_empty() && !is_soon;
        let again = !self.apart.is_empty() && is_rested && self.arrived == self.group;
        if again {
            let pause = tries.begin(now);
            self.apart.try_again(now + pause);
            self.take_back_relays(index, members);
        }
        again
    }

    /// Has contributions that others were to relay read at their owners again: a relay may be out of reach by
    /// now, and the owner within.
    fn take_back_relays(&mut self, index: SegmentIndex, members: &Membership) {
        let is_relayed = |ready: &Ready, original: &Arc<Ready>| {
            ready.path == original.path && ready.process != original.process && !ready.is_inline()
        };
        let queue = &mut self.segments[index].queue;
        let owners: Vec<Arc<Ready>> = self.originals.values().cloned().collect();
        let there = owners.into_iter().filter(|original| members.lives(original.process));
        let back: Vec<Arc<Ready>> =
            there.filter(|original| queue.remove(|ready| is_relayed(ready, original)).is_some()).collect();
        back.into_iter().for_each(|original| self.put(index, original));
    }

    /// Begins a pause before readers that are apart try again, if no worker works on the segment. Before all
    /// ranks have called they do not try: a rank that has yet to come may reach both, and the reduction waits
    /// for it anyway. Returns the end of the pause, if it begins now.
    pub(crate) fn pause_for_reach(&mut self, index: SegmentIndex) -> Option<Timestamp> {
        let is_apart = self.is_apart() && self.arrived == self.group;
        let pauses = is_apart && self.segments[index].running.is_empty() && self.pause_tries(index);
        pauses.then_some(self.apart.next_try())
    }

    /// Has what could not be reached in a segment left alone for a while: one pause for all. Returns whether
    /// it begins.
    pub(crate) fn pause_tries(&mut self, index: SegmentIndex) -> bool {
        self.segments[index].tries.pause()
    }
}
