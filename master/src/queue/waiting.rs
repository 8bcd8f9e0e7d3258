//! The queue of one segment, in either order.

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use everfold_protocol::{Path, Rank, spec::Order};

use super::{Access, Arrivals, Brackets, Log, Ready};

/// The waiting partials of one segment.
#[derive(Clone, Debug)]
pub enum Queue {
    /// Any may meet; first come, first served.
    Arrival(Arrivals),
    /// Those meet that together are a bracket.
    Fixed(Brackets),
}

impl Queue {
    /// An empty queue.
    pub fn new(order: Order) -> Self {
        match order {
            Order::Arrival => Self::Arrival(Arrivals::default()),
            Order::Fixed => Self::Fixed(Brackets::default()),
        }
    }

    /// Adds a partial. Positions are those in `agreed`; the ranks that take part are in `group`, the same for
    /// all that wait.
    ///
    /// # Panics
    /// If it is no bracket although the order is fixed.
    pub fn push(&mut self, ready: Arc<Ready>, agreed: &Path, group: &Path) {
        match self {
            Self::Arrival(queue) => queue.push(ready),
            Self::Fixed(queue) => queue.push(ready, agreed, group),
        }
    }

    /// Number of waiting partials.
    pub fn len(&self) -> usize {
        match self {
            Self::Arrival(queue) => queue.len(),
            Self::Fixed(queue) => queue.len(),
        }
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of contributions in all waiting partials.
    pub fn contributions(&self) -> usize {
        match self {
            Self::Arrival(queue) => queue.contributions(),
            Self::Fixed(queue) => queue.contributions(),
        }
    }

    /// Whether some of them may meet.
    pub fn has_partners(&self) -> bool {
        match self {
            Self::Arrival(queue) => queue.has_partners(),
            Self::Fixed(queue) => queue.has_partners(),
        }
    }

    /// Whether `ready`, which waits here, may meet others, in a task of `most` partials at most.
    pub fn meets(&self, ready: &Arc<Ready>, most: usize) -> bool {
        match self {
            Self::Arrival(queue) => queue.has_partners(),
            Self::Fixed(queue) => queue.meets(ready, most),
        }
    }

    /// The partials that may meet others, in tasks of `most` partials at most; the latest first where any may
    /// meet.
    pub fn meeting(&self, most: usize) -> Box<dyn Iterator<Item = &Arc<Ready>> + '_> {
        match self {
            Self::Arrival(queue) if queue.has_partners() => Box::new(queue.iter().rev()),
            Self::Arrival(_) => Box::new(core::iter::empty()),
            Self::Fixed(queue) => Box::new(queue.meeting(most)),
        }
    }

    /// All waiting partials, in order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &Arc<Ready>> + '_> {
        match self {
            Self::Arrival(queue) => Box::new(queue.iter()),
            Self::Fixed(queue) => Box::new(queue.iter()),
        }
    }

    /// The waiting partials at `rank`.
    pub fn of(&self, rank: Rank) -> Box<dyn Iterator<Item = &Arc<Ready>> + '_> {
        match self {
            Self::Arrival(queue) => Box::new(queue.of(rank)),
            Self::Fixed(queue) => Box::new(queue.of(rank)),
        }
    }

    /// Whose partials have come or gone since this was asked last.
    pub(crate) fn take_log(&mut self) -> Log {
        match self {
            Self::Arrival(queue) => queue.take_log(),
            Self::Fixed(queue) => queue.take_log(),
        }
    }

    /// Whether partials of `rank` wait.
    pub(crate) fn has_some_of(&self, rank: Rank) -> bool {
        match self {
            Self::Arrival(queue) => queue.of(rank).next().is_some(),
            Self::Fixed(queue) => queue.of(rank).next().is_some(),
        }
    }

    /// All waiting partials, in order.
    pub fn into_vec(self) -> Vec<Arc<Ready>> {
        match self {
            Self::Arrival(queue) => queue.into_vec(),
            Self::Fixed(queue) => queue.into_vec(),
        }
    }

    /// Takes `ready`, or the first partial, with partners: between two and `most` partials in the order of
    /// their operands, none of those that can never be read. If some are near, no others are taken. In the
    /// order of arrival, partials of much busier owners, or ones to be read later, are left for later; then
    /// there may be no partners.
    pub fn take(
        &mut self,
        ready: Option<&Arc<Ready>>,
        most: usize,
        access: impl Fn(&Ready) -> Access,
    ) -> Option<Vec<Arc<Ready>>> {
        match self {
            Self::Arrival(queue) => queue.take(ready, most, access),
            Self::Fixed(queue) => queue.take(ready, most, access),
        }
    }

    /// How well the best partner of `ready` can be read; nothing if all are to be read later.
    pub fn access(&self, ready: &Arc<Ready>, access: impl Fn(&Ready) -> Access) -> Option<Access> {
        match self {
            Self::Arrival(queue) => queue.others(ready).map(access).min().filter(|it| *it < Access::Later),
            Self::Fixed(_) => Some(Access::Near),
        }
    }

    /// Whether some partner of `ready` can be read now: what [`access`](Self::access) tells, but mostly one
    /// look is enough.
    pub fn has_access(&self, ready: &Arc<Ready>, access: impl Fn(&Ready) -> Access) -> bool {
        match self {
            Self::Arrival(queue) => queue.others(ready).any(|other| access(other) < Access::Later),
            Self::Fixed(_) => true,
        }
    }

    /// Whether `ready`, which waits here, may meet something that `may` accepts, in a task of `most` partials
    /// at most.
    pub fn may_meet(&self, ready: &Arc<Ready>, most: usize, may: impl Fn(&Ready) -> bool) -> bool {
        match self {
            Self::Arrival(queue) => queue.iter().any(|other| other != ready && may(other)),
            Self::Fixed(queue) => queue.may_meet(ready, most, may),
        }
    }

    /// Whether something that was folded already, and that can be read, waits for a partial that is read much
    /// slower, by what `read_ns` tells of reads from their owners.
    pub fn waits_for_slow(&self, can_read: impl Fn(&Ready) -> bool, read_ns: impl Fn(&Ready) -> u64) -> bool {
        match self {
            Self::Arrival(queue) => queue.waits_for_slow(can_read, read_ns),
            Self::Fixed(_) => false,
        }
    }

    /// Takes the first partial that `which` accepts. Looks at every partial.
    pub fn remove(&mut self, which: impl Fn(&Ready) -> bool) -> Option<Arc<Ready>> {
        match self {
            Self::Arrival(queue) => queue.remove_first(which),
            Self::Fixed(queue) => queue.remove_first(which),
        }
    }
}
