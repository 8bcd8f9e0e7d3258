//! Attempts in teams that were dissolved, and the ranks that were told.

use alloc::collections::{BTreeMap, VecDeque};

use everfold_protocol::{Path, ReductionId};

/// Dissolved attempts that are remembered, so that late messages do not begin them again.
const REMEMBERED_MAX: usize = 4096;

/// The latest attempts that were dissolved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dissolved {
    told: BTreeMap<ReductionId, Path>,
    /// In the order in which they were dissolved.
    order: VecDeque<ReductionId>,
}

/// The ranks that have to be told of a dissolved attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// Whether no rank was told before.
    pub is_first: bool,
    /// The ranks that were not told before.
    pub untold: Path,
}

impl Dissolved {
    /// Whether an attempt was dissolved.
    pub fn contain(&self, id: ReductionId) -> bool {
        self.told.contains_key(&id)
    }

    /// Notes that an attempt is dissolved, and that `group` is told.
    pub fn tell(&mut self, id: ReductionId, group: &Path) -> News {
        let before = self.told.remove(&id);
        let is_first = before.is_none();
        if is_first {
            self.order.push_back(id);
            if self.order.len() > REMEMBERED_MAX {
                // A rank that still comes to it begins it again, in vain.
                self.order.pop_front().map(|oldest| self.told.remove(&oldest));
            }
        }
        let before = before.unwrap_or_else(Path::empty);
        let untold = group.difference(&before);
        self.told.insert(id, join(&before, group));
        News { is_first, untold }
    }
}

/// The union of two groups.
pub(crate) fn join(one: &Path, other: &Path) -> Path {
    one.union(&other.difference(one)).expect("what is not in it does not overlap it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_is_told_once() {
        let mut dissolved = Dissolved::default();
        let id = |sequence| ReductionId::new("x", sequence).in_teams();
        assert!(!dissolved.contain(id(0)));
        let first = News { is_first: true, untold: Path::range(0, 3) };
        assert_eq!(dissolved.tell(id(0), &Path::range(0, 3)), first);
        let again = News { is_first: false, untold: Path::range(3, 5) };
        assert_eq!(dissolved.tell(id(0), &Path::range(1, 5)), again);
        (1..=REMEMBERED_MAX as u64)
            .for_each(|sequence| drop(dissolved.tell(id(sequence), &Path::range(0, 1))));
        assert!(!dissolved.contain(id(0)) && dissolved.contain(id(1)), "the oldest is forgotten");
    }
}
