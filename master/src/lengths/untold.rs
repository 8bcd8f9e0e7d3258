//! How long a reduction took, as far as its ranks have told.

use alloc::vec::Vec;
use core::time::Duration;

use everfold_protocol::{Path, Rank, ReductionId};

use super::Lesson;

/// A reduction that is over and tells something, as far as the master knows it.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// Which.
    pub id: ReductionId,
    /// The ranks that took part.
    pub group: Path,
    /// The rank that alone receives the result, if one does, and the time since the master heard its call.
    pub root: Option<(Rank, Duration)>,
    /// How long before the latest call the master heard that of each rank, if they are few.
    pub before: Vec<(Rank, Duration)>,
}

/// What ranks have told of a reduction.
#[derive(Clone, Debug)]
pub(super) struct Untold {
    ended: Ended,
    lesson: Lesson,
    /// The time that the root has told.
    of_root: Option<Duration>,
    /// The shortest time that another rank has told.
    shortest: Option<Duration>,
    /// The longest, of those that the master has heard the calls of, from the latest call on.
    from_latest: Option<Duration>,
}

impl Untold {
    /// A reduction that teaches `lesson`, of which no rank has told its time yet.
    pub(super) fn new(ended: Ended, lesson: Lesson) -> Self {
        Self { ended, lesson, of_root: None, shortest: None, from_latest: None }
    }

    /// Whether it is that one.
    pub(super) fn is_of(&self, id: ReductionId) -> bool {
        self.ended.id == id
    }

    /// Its lesson, and its time, once all ranks have told theirs.
    pub(super) fn lesson(&self) -> Option<(Lesson, Duration)> {
        Some((self.lesson, self.took()?))
    }

    /// Takes in how long it took at one of its ranks. Returns whether that is news.
    pub(super) fn hear(&mut self, rank: Rank, took: Duration) -> bool {
        let is_news = self.ended.group.remove(rank);
        if let Some((_, before)) = self.ended.before.iter().find(|(of, _)| is_news && *of == rank) {
            self.from_latest = self.from_latest.max(Some(took.saturating_sub(*before)));
        }
        match self.ended.root {
            _ if !is_news => {}
            Some((root, _)) if root == rank => self.of_root = Some(took),
            _ => self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took))),
        }
        is_news
    }

    /// The time from the latest call to the last outcome that a rank waits for, once all have told theirs.
    ///
    /// - Where all ranks receive the result, it may reach one long before the others: the rank on the
    ///   master's host, if the master's link is slow. So it is the longest time, less what its rank has
    ///   waited for the latest call.
    /// - With many ranks it is not looked up how long each has waited. Then it is the shortest time, as the
    ///   rank that calls last waits for no other.
    /// - Where one rank receives the result, the others hear that it is over before it is there.
    pub(super) fn took(&self) -> Option<Duration> {
        if !self.ended.group.is_empty() {
            return None;
        }
        let (Some((_, until_over)), Some(of_root)) = (self.ended.root, self.of_root) else {
            return self.from_latest.or(self.shortest);
        };
        let after_that = of_root.saturating_sub(until_over);
        Some(self.shortest.map_or(of_root, |shortest| of_root.min(shortest + after_that)))
    }
}
