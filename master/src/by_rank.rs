//! Something for each rank.

use alloc::{collections::BTreeMap, vec::Vec};

use everfold_protocol::Rank;

/// Something for each rank of a job, found in the same time however many there are; or for a few of them,
/// without room for the others.
#[derive(Clone, Debug)]
pub(crate) enum ByRank<T> {
    /// For each.
    All(Vec<T>),
    /// For some.
    Few(BTreeMap<Rank, T>),
}

impl<T> ByRank<T> {
    /// The entry of `rank`.
    pub fn get(&self, rank: Rank) -> Option<&T> {
        match self {
            Self::All(all) => all.get(rank.index()),
            Self::Few(few) => few.get(&rank),
        }
    }

    /// Replaces the entry of `rank`, which is one of all ranks if each has an entry. Returns the earlier
    /// entry.
    pub fn insert(&mut self, rank: Rank, new: T) -> Option<T> {
        match self {
            Self::All(all) => Some(core::mem::replace(&mut all[rank.index()], new)),
            Self::Few(few) => few.insert(rank, new),
        }
    }

    /// Everything that is there, by rank.
    pub fn iter(&self) -> impl Iterator<Item = (Rank, &T)> {
        let (all, few) = match self {
            Self::All(all) => (Some(all), None),
            Self::Few(few) => (None, Some(few)),
        };
        let all = all.into_iter().flat_map(|all| (0..).map(Rank).zip(all));
        all.chain(few.into_iter().flatten().map(|(rank, it)| (*rank, it)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_or_few_hold_the_same() {
        let all = ByRank::All(vec!['-'; 3]);
        let few = ByRank::Few(BTreeMap::new());
        for (mut some, before) in [(all, Some('-')), (few, None)] {
            assert_eq!(some.insert(Rank(2), 'c'), before);
            assert_eq!(some.insert(Rank(2), 'd'), Some('c'));
            assert_eq!((some.get(Rank(2)), some.get(Rank(3))), (Some(&'d'), None));
            assert_eq!(some.get(Rank(0)).copied(), before);
            assert_eq!(some.iter().last(), Some((Rank(2), &'d')));
        }
    }
}
