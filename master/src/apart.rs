//! Processes that do not reach each other's memory, and how a reduction goes on in spite of them.
//!
//! Two processes may both live, both be heard by the master, and yet not read each other: the link between their hosts is cut
//! or refuses connections, or bytes are damaged on it. A reader whose task failed for that is *apart* from the owner, for as long as the
//! reduction lasts. What it cannot read others fold:
//!
//! 1. The owners of other partials that wait, of which the reader then reads what they have folded.
//! 2. If all of them are apart from all partials that they could fold: a process whose own partial nobody needs. It begins
//!    afresh with partials that it reaches, with a single one if need be. That task is a copy, and *relays* the partial to those
//!    who reach the process but not its owner.
//! 3. If nobody can do that, those that are apart try again, with a pause before each try, until they have tried for longer than
//!    any silence is tolerated. Then the reduction ends in [`FoldFailed`](everfold_protocol::report::Refusal::FoldFailed).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use everfold_protocol::{Path, ProcessId, Rank, SegmentId, SegmentIndex, message::Data};

use crate::{
    machine::{Master, RETRY_PAUSE, Timer},
    queue::{Access, Ready},
    reduction::{Reduction, Turn},
};

/// Readers that are apart from one owner before nobody else is sent to it who has nothing to fold with what lies there: it is most
/// likely out of everyone's reach.
const READERS_MAX: usize = 8;

/// Readers that did not reach owners.
#[derive(Clone, Debug, Default)]
pub(crate) struct Apart {
    /// By reader and owner.
    pairs: BTreeSet<(Rank, Rank)>,
    /// By owner and reader.
    readers: BTreeSet<(Rank, Rank)>,
}

impl Apart {
    /// Takes in that `reader` did not reach `owner`.
    pub fn part(&mut self, reader: Rank, owner: Rank) {
        if reader != owner {
            self.pairs.insert((reader, owner));
            self.readers.insert((owner, reader));
        }
    }

    /// Forgets a process that was declared failed.
    pub fn forget(&mut self, dead: Rank) {
        self.pairs.retain(|(reader, owner)| ![*reader, *owner].contains(&dead));
        self.readers.retain(|(owner, reader)| ![*reader, *owner].contains(&dead));
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    fn are(&self, reader: Rank, owner: Rank) -> bool {
        self.pairs.contains(&(reader, owner))
    }

    /// Whom `reader` did not reach.
    fn owners(&self, reader: Rank) -> Path {
        let pairs = self.pairs.range((reader, Rank(0))..=(reader, Rank(u32::MAX)));
        pairs.map(|(_, owner)| *owner).collect()
    }

    /// Whether so many did not reach `owner` that others are not likely to.
    fn is_remote(&self, owner: Rank) -> bool {
        let readers = self.readers.range((owner, Rank(0))..=(owner, Rank(u32::MAX)));
        readers.take(READERS_MAX).count() == READERS_MAX
    }
}

/// How a segment goes on whose partials nobody can bring together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tries {
    /// Whether a pause is under way, after which those that are apart try again.
    pub pauses: bool,
    /// Whether there was a pause since the latest try.
    pub rested: bool,
    /// Whether those that are apart try again.
    pub again: bool,
    /// What tries have taken since nobody else could do it.
    taken: Duration,
}

impl Reduction {
    /// Takes in that a task of `reader`, which took so long, did not reach `owner`. Returns whether that was tried for longer
    /// than `most`, and nobody else could do it.
    pub(crate) fn did_not_reach(
        &mut self,
        index: SegmentIndex,
        reader: ProcessId,
        owner: ProcessId,
        (took, most): (Duration, Duration),
    ) -> bool {
        let tries = &mut self.segments[index.0 as usize].tries;
        if tries.again || reader == owner {
            tries.taken += took + RETRY_PAUSE;
        }
        (tries.again, tries.rested) = (false, false);
        let is_over = tries.taken > most;
        self.apart.part(reader.rank, owner.rank);
        is_over
    }

    /// Whether somebody is known not to reach what waits in a segment, and does not try again now.
    pub(crate) fn is_apart(&self, index: SegmentIndex) -> bool {
        !self.apart.is_empty() && !self.segments[index.0 as usize].tries.again
    }

    /// Whose partials `reader` is not to read.
    pub(crate) fn out_of_reach(&self, index: SegmentIndex, reader: Rank) -> Path {
        if self.is_apart(index) { self.apart.owners(reader) } else { Path::empty() }
    }

    fn reaches(&self, reader: Rank, ready: &Ready) -> bool {
        let owner = ready.process.rank;
        let is_private = matches!(ready.data, Data::Private);
        reader == owner || ready.is_inline() || !(is_private || self.apart.are(reader, owner))
    }

    /// Whether the process of `own` reaches something that can be folded into that.
    pub(crate) fn meets_within_reach(&self, index: SegmentIndex, own: &Arc<Ready>) -> bool {
        let reaches = |other: &Ready| self.reaches(own.process.rank, other);
        !self.is_apart(index)
            || self.segments[index.0 as usize].queue.may_meet(own, self.most(index), reaches)
    }

    /// Whether those whose turn it is can go on.
    pub(crate) fn can_go_on(
        &self,
        index: SegmentIndex,
        turn: Turn,
        is_alive: &impl Fn(Rank) -> bool,
    ) -> bool {
        match turn {
            Turn::Root(_) if !self.is_apart(index) => true,
            Turn::Root(root) => {
                let own = self.own_of(index, root, is_alive);
                own.is_none_or(|own| self.meets_within_reach(index, own))
            }
            Turn::Owners => self.executors(index, is_alive).any(|own| self.meets_within_reach(index, own)),
            Turn::Anyone => false,
        }
    }

    /// Whether `rank` can begin afresh with partials that it reaches.
    pub(crate) fn can_help(&self, index: SegmentIndex, rank: Rank) -> bool {
        self.can_begin_afresh(index, rank)
            && (!self.is_apart(index) || self.within_reach(index, rank).is_some())
    }

    /// What `rank` can begin afresh with: partials that meet, or one that others reach here.
    fn within_reach(&self, index: SegmentIndex, rank: Rank) -> Option<Vec<Arc<Ready>>> {
        let (segment, most) = (&self.segments[index.0 as usize], self.most(index));
        let reaches = |ready: &Ready| {
            self.reaches(rank, ready) && (ready.is_inline() || !self.apart.is_remote(ready.process.rank))
        };
        let access = |ready: &Ready| if reaches(ready) { Access::Near } else { Access::Never };
        if let Some(partials) = segment.queue.clone().take(None, most, access) {
            return Some(partials);
        }
        let would_read = |other: &&Arc<Ready>| {
            let reader = other.process.rank;
            reader != rank && self.is_own(index, other) && !self.apart.are(reader, rank)
        };
        let is_relayed = |ready: &&Arc<Ready>| {
            let awaits = |other: &&Arc<Ready>| other != ready && would_read(other);
            ready.process.rank != rank
                && reaches(ready)
                && segment.queue.meeting(most).any(|other| awaits(&other))
        };
        segment.queue.meeting(most).find(is_relayed).map(|ready| vec![ready.clone()])
    }

    /// Takes what `rank` can begin afresh with.
    pub(crate) fn take_within_reach(&mut self, index: SegmentIndex, rank: Rank) -> Option<Vec<Arc<Ready>>> {
        let partials = self.within_reach(index, rank)?;
        let queue = &mut self.segments[index.0 as usize].queue;
        let take = |ready: Arc<Ready>| queue.remove(|other| *other == *ready);
        Some(partials.into_iter().filter_map(take).collect())
    }

    /// Lets those that are apart try again, if there was a pause. Returns whether they do.
    pub(crate) fn try_again(&mut self, index: SegmentIndex) -> bool {
        let is_apart = self.is_apart(index);
        let tries = &mut self.segments[index.0 as usize].tries;
        tries.again |= is_apart && tries.rested;
        is_apart && tries.again
    }
}

impl Master {
    /// Lets those that are apart try again after a pause, if nobody works on the segment.
    pub(crate) fn wait_for_reach(&mut self, id: SegmentId) {
        let Some(reduction) = self.reductions.get_mut(&id.reduction) else { return };
        let is_apart = reduction.is_apart(id.index);
        let segment = &mut reduction.segments[id.index.0 as usize];
        if is_apart && segment.running.is_empty() && !segment.tries.pauses {
            segment.tries.pauses = true;
            self.timers.insert((self.now + RETRY_PAUSE, Timer::Retry(id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_did_not_reach_whom_is_known_until_one_of_them_dies() {
        let mut apart = Apart::default();
        apart.part(Rank(1), Rank(1));
        assert!(apart.is_empty(), "who holds up itself is not apart from itself");
        apart.part(Rank(1), Rank(2));
        apart.part(Rank(3), Rank(1));
        assert!(apart.are(Rank(1), Rank(2)) && !apart.are(Rank(2), Rank(1)), "one way");
        assert_eq!(apart.owners(Rank(1)), Path::single(Rank(2)));
        apart.forget(Rank(2));
        assert!(!apart.are(Rank(1), Rank(2)) && apart.are(Rank(3), Rank(1)));
        (10..10 + READERS_MAX as u32).for_each(|reader| apart.part(Rank(reader), Rank(5)));
        assert!(apart.is_remote(Rank(5)) && !apart.is_remote(Rank(1)));
    }
}
