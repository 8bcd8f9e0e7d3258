//! Whose turn it is: which workers can go on with a segment, and with which partials.

use alloc::{sync::Arc, vec::Vec};

use everfold_protocol::{
    Path, ProcessId, Rank, SegmentIndex,
    message::Data,
    spec::{Delivery, Order},
};

use super::Reduction;
use crate::{
    condense::may_condense,
    listing::Turn,
    policy::Policy,
    queue::{Access, Ready},
};

/// Overhead of one inlined contribution, expressed in bytes: to write it for each receiver, and
/// to read it there.
const SOURCE_BYTES: u64 = 128;

impl Reduction {
    /// Whether the root's own partial waits for the rest of the group: long bodies between hosts. The root's
    /// link then carries each finished segment once instead of taking part in every level of the tree.
    pub fn holds_root(&self) -> bool {
        self.segments.count() > 1 && !self.share_memory
    }

    /// Whether partials wait for more: what travels inlined is folded in one go when all are here, or in a
    /// few goes if that would be too much to keep.
    fn holds_inline(&self, policy: &Policy) -> bool {
        self.inline && !self.in_pairs && self.arrived != self.group && self.held_bytes < policy.hold_bytes
    }

    /// Whether a segment waits until there are enough partials for a task.
    fn waits_for_more(&self, index: SegmentIndex) -> bool {
        let segment = &self.segments[index];
        let more_come =
            || !segment.running.is_empty() || self.copying.holds_some() || self.arrived != self.group;
        segment.queue.len() < *self.fan_in.start() && more_come()
    }

    /// Whether a segment waits as it did before, so that no worker has to be found for it.
    pub(crate) fn rests(&self, index: SegmentIndex) -> bool {
        self.segments[index].turn.is_none() && self.waits_for_more(index)
    }

    /// The workers that can go on with a segment as it is now, if partials that may meet wait there.
    pub(crate) fn whose_turn(&mut self, index: SegmentIndex, policy: &Policy) -> Option<Turn> {
        let holds_inline = self.holds_inline(policy) || (self.inline && self.awaits_part(index));
        if self.is_handed_out() || holds_inline || self.waits_for_more(index) {
            return None;
        }
        let most = self.most(index);
        let segment = &mut self.segments[index];
        if !segment.queue.has_partners() {
            let queue = &segment.queue;
            let root = segment.held_root.take_if(|_| queue.contributions() + 1 == self.group.len())?;
            segment.queue.push(root, &self.spec.group, &self.group);
        }
        // Only the root holds the root's contribution.
        let queue = &segment.queue;
        let has_own =
            |root: &Rank| queue.of(*root).any(|ready| ready.path.contains(*root) && queue.meets(ready, most));
        Some(self.spec.delivery.root().filter(has_own).map_or(Turn::Owners, Turn::Root))
    }

    /// Most partials that one task of a segment folds.
    pub(crate) fn most(&self, index: SegmentIndex) -> usize {
        let unbounded = (self.inline && !self.in_pairs) || self.segments[index].unbounded;
        if unbounded { usize::MAX } else { *self.fan_in.end() }
    }

    /// The partials that wait in a segment and whose owners can fold others into them.
    pub(crate) fn executors<'a>(
        &'a self,
        index: SegmentIndex,
        is_alive: &'a impl Fn(Rank) -> bool,
    ) -> impl Iterator<Item = &'a Arc<Ready>> {
        let meeting = self.segments[index].queue.meeting(self.most(index));
        meeting.filter(move |ready| self.can_execute(index, ready, is_alive))
    }

    /// The partial that waits in a segment and that `rank` can fold others into.
    pub(crate) fn own_of(
        &self,
        index: SegmentIndex,
        rank: Rank,
        is_alive: &impl Fn(Rank) -> bool,
    ) -> Option<&Arc<Ready>> {
        let queue = &self.segments[index].queue;
        let able = queue.of(rank).find(|ready| self.can_execute(index, ready, is_alive))?;
        queue.meets(able, self.most(index)).then_some(able)
    }

    /// Takes partials of a segment that are to meet now, `own` among them, in the order of their operands.
    pub(crate) fn take_partners(
        &mut self,
        index: SegmentIndex,
        own: Option<&Arc<Ready>>,
        access: impl Fn(&Ready) -> Access,
    ) -> Option<Vec<Arc<Ready>>> {
        let most = self.most(index);
        let partials = self.segments[index].queue.take(own, most, access)?;
        if self.inline {
            self.held_bytes = 0;
        }
        Some(partials)
    }

    /// Whether all other partials wait with the root's own one, and no worker works on the segment.
    pub(crate) fn can_rouse_root(&self, index: SegmentIndex) -> bool {
        let segment = &self.segments[index];
        segment.held_root.is_some()
            && segment.running.is_empty()
            && segment.queue.contributions() + 1 == self.group.len()
    }

    /// Helps a segment that no worker can go on with, if none works on it: first the root's own partial takes
    /// part at once; then tasks of any size are made, as the remaining workers may have no place for a
    /// bracket without their own contributions. Returns whether anything changes.
    pub(crate) fn rouse(&mut self, index: SegmentIndex) -> bool {
        let segment = &mut self.segments[index];
        if !(segment.running.is_empty() && self.arrived == self.group) {
            return false;
        }
        match segment.held_root.take() {
            Some(root) => {
                segment.queue.push(root, &self.spec.group, &self.group);
                true
            }
            None => self.spec.order == Order::Fixed && !core::mem::replace(&mut segment.unbounded, true),
        }
    }

    /// Whether `ready` is what its process holds as its own partial: others can be folded into it.
    pub fn is_own(&self, index: SegmentIndex, ready: &Ready) -> bool {
        let segment = &self.segments[index];
        let rank = ready.process.rank;
        let holds = match segment.held.get(&rank) {
            Some(held) => held.is(ready),
            None => ready.path == Path::single(rank),
        };
        holds && !segment.spoilt.contains(&rank)
    }

    /// Whether the process of `ready` can fold others into it now.
    pub fn can_execute(&self, index: SegmentIndex, ready: &Ready, is_alive: &impl Fn(Rank) -> bool) -> bool {
        let rank = ready.process.rank;
        let segment = &self.segments[index];
        is_alive(rank)
            && self.has_called(ready.process)
            && !self.handout.have_it().contains(rank)
            && self.is_own(index, ready)
            && !segment.is_busy(rank)
    }

    /// Whether `rank` can begin afresh: it has called the reduction, and nothing that is still needed lies in
    /// its own partial.
    pub fn can_begin_afresh(&self, index: SegmentIndex, rank: Rank) -> bool {
        let segment = &self.segments[index];
        let takes_part = self.arrived.contains(rank)
            && self.has_caller(rank)
            && !self.handout.have_it().contains(rank)
            && self.spec.delivery.root() != Some(rank);
        // What an earlier process of it has left lies elsewhere.
        let own = segment.held.get(&rank).filter(|held| self.has_called(held.process));
        let needed = own.is_some_and(|held| {
            let is_it = |process: ProcessId, path: &Path| process == held.process && *path == held.path;
            let waiting = segment.queue.iter().chain(&segment.suspended).chain(&segment.result);
            let mut sources = segment.running.values().flat_map(|running| &running.sources);
            waiting.into_iter().any(|ready| is_it(ready.process, &ready.path))
                || sources.any(|(process, path)| is_it(*process, path))
        });
        takes_part && !needed && !segment.is_busy(rank)
    }

    /// Whether the receivers of the result can do the task in which `partials` meet themselves, without an
    /// answer to the master: it is the last one, all its sources travel inlined, and folding cannot fail.
    ///
    /// `folds` says whether the master can fold them beforehand.
    pub(crate) fn is_last(
        &self,
        index: SegmentIndex,
        partials: &[Arc<Ready>],
        policy: &Policy,
        folds: bool,
    ) -> bool {
        let holds_all = || partials.iter().map(|ready| ready.path.len()).sum::<usize>() == self.group.len();
        let bytes: u64 = partials.iter().map(|ready| SOURCE_BYTES + ready.data.len()).sum();
        let reaches_all = || match self.spec.delivery {
            // A deputy's team goes on with its partial.
            Delivery::Root(root) => self.group.contains(root),
            Delivery::FirstOf(_) => false,
            // A worker that is still at a task that was given up cannot begin another one.
            Delivery::All => {
                let is_one_body = folds && may_condense(&self.spec);
                let is_short = bytes <= policy.spread_bytes || self.cut.inlined || is_one_body;
                is_short && self.segments[index].abandoned.is_empty()
            }
        };
        // What lay on a board, however long, came inlined; partials of it lie in windows, which close when
        // all is over.
        let reads_nobody = || partials.iter().all(|ready| !matches!(ready.data, Data::Window(_)));
        self.inline
            && self.segments.count() == 1
            && !policy.limits.ranks_return
            && reads_nobody()
            && holds_all()
            && self.spec.kind.folds_surely()
            && !self.account.tells_trace()
            && reaches_all()
    }
}
