//! Who takes part in a reduction.

use everfold_protocol::{Path, Rank};

/// A set of ranks.
///
/// ```
/// use everfold::{Group, Rank};
///
/// let even = Group::of([0, 2, 4]);
/// assert!(even.contains(Rank(2)));
/// assert_eq!(even, Group::world(6).filter(|rank| rank.0 % 2 == 0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group(Path);

impl Group {
    /// All ranks of a job of `size`.
    pub fn world(size: u32) -> Self {
        Self(Path::range(0, size))
    }

    /// These ranks, in any order; repeated ones count once.
    pub fn of<R: Into<Rank>>(ranks: impl IntoIterator<Item = R>) -> Self {
        Self(ranks.into_iter().map(Into::into).collect())
    }

    /// Those of its ranks that satisfy `predicate`. All ranks of the job must come to the same answer.
    pub fn filter(&self, predicate: impl Fn(Rank) -> bool) -> Self {
        Self(self.0.iter().filter(|rank| predicate(*rank)).collect())
    }

    /// Whether `rank` is in it.
    pub fn contains(&self, rank: Rank) -> bool {
        self.0.contains(rank)
    }

    /// Number of ranks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no ranks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its ranks in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.0.iter()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl From<&Group> for Group {
    fn from(group: &Group) -> Self {
        group.clone()
    }
}
