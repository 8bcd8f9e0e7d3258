//! Serial recovery segments: several ranks compute the same, and the majority is right (PR-2).

use std::collections::BTreeMap;

use everfold_protocol::{Path, Rank, report::Refusal};
use everfold_runtime::executor::ShareError;
use everfold_segment::ledger::stays;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::error::SegmentError;
use crate::{
    body::{Described, ReducerBody},
    encoding,
    error::ReduceError,
    group::Group,
    reduction::Outcome,
    session::Session,
};

/// Ranks that compute a serial recovery segment, if as many live.
const VOTERS: usize = 3;

/// A serial recovery segment that is about to be computed: made by [`Session::serial`].
///
/// [`compute`](Self::compute) computes it. Dropped before that, it is as if it had never been.
#[derive(Debug)]
#[must_use = "a serial recovery segment is computed by `compute`"]
pub struct SerialSegment<'g> {
    session: Session,
    name: String,
    among: Option<&'g Group>,
}

/// The outcome of a serial recovery segment, the same at all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed<T> {
    /// The value of the majority of the ranks that have computed it.
    pub value: T,
    /// The ranks whose values were compared: three, or all that live if there are fewer.
    pub computed: Path,
    /// Those of them with another value.
    pub deviating: Path,
}

impl Session {
    /// A value that three ranks compute and compare bit by bit (PR-2).
    ///
    /// Every rank of the group calls it. The first three compute the value, others take the place of those
    /// that die meanwhile, and all ranks receive the value of the majority. The outcome names the ranks with
    /// another value.
    ///
    /// ```no_run
    /// # use everfold::prelude::*;
    /// # async fn program(session: Session) -> everfold::Result<()> {
    /// let agreed = session.serial("pivot").compute(|| (1..=20u64).product::<u64>()).await?;
    /// if !agreed.deviating.is_empty() {
    ///     eprintln!("ranks {} compute wrong values", agreed.deviating);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The first round is the next [`allreduce`](Self::allreduce) of that name.
    pub fn serial(&self, name: impl Into<String>) -> SerialSegment<'static> {
        SerialSegment { session: self.clone(), name: name.into(), among: None }
    }
}

impl SerialSegment<'_> {
    /// Only these ranks take part. Without it all ranks do.
    pub fn among<'h>(self, group: &'h Group) -> SerialSegment<'h>
    where
        Self: 'h,
    {
        SerialSegment { among: Some(group), session: self.session, name: self.name }
    }

    /// Computes the value, if this rank is one of those that do, and compares it with that of the others.
    ///
    /// `compute` is called at most once. It has to give the same value, bit by bit in its encoding, at every
    /// rank: sets and maps that are ordered by a hash do not, nor do [`Pieces`](crate::Pieces) that were
    /// joined in another order.
    ///
    /// If two ranks are left, both have to agree; if one is left, its value is taken as it is.
    ///
    /// # Cancelling
    /// Await it to its end: if its future is dropped, the others wait for this rank as long as its process
    /// lives.
    ///
    /// # Errors
    /// [`SegmentError::NoMajority`] if no value was found by more than half of the ranks that have computed
    /// it; [`SegmentError::Reduce`] as in [`RecoverySegment::fold`](crate::RecoverySegment::fold).
    /// # Source
    /// PR §3 (PR-2).
    pub async fn compute<T, F>(self, compute: F) -> Result<Agreed<T>, SegmentError>
    where
        T: Serialize + DeserializeOwned + 'static,
        F: FnOnce() -> T,
    {
        let Self { session, name, among } = self;
        let (me, group) = (session.rank(), among.cloned().unwrap_or_else(|| session.world()));
        if !group.contains(me) {
            let group = group.path().clone();
            return Err(ReduceError::from(Refusal::CallerOutsideGroup { rank: me, group }).into());
        }
        let what = format!("{} of a serial recovery segment", std::any::type_name::<T>());
        let (mut compute, mut all) = (Some(compute), Ballot::default());
        let (mut able, mut number, mut round) = (group.clone(), None, 0u32);
        let ranks_return = session.handle().limits().ranks_return;
        // All that live have computed it, or as many as it takes. Of those that are asked and do not answer,
        // nobody is asked again, so there are no more rounds than ranks.
        loop {
            let asked = all.next(&able);
            if asked.is_empty() {
                break;
            }
            let mut body = Ballot::default();
            if asked.contains(me)
                && let Some(compute) = compute.take()
            {
                let vote = encoding::encode(&compute());
                body.votes.insert(me.0, vote.map_err(|error| ReduceError::Body(ShareError::Body(error)))?);
            }
            let round_name = match number {
                None => name.clone(),
                Some(number) => format!("{name} (serial call {number}, round {round})"),
            };
            let call = session.allreduce(round_name, Described { what: what.clone(), body });
            let called = call.group(&group).allow_missing().start()?;
            number.get_or_insert(called.number());
            let Outcome { value, report } = called.await?;
            all.combine(value);
            able = able.filter(|rank| stays(rank, &report, ranks_return));
            round += 1;
        }
        all.decide()
    }
}

/// What ranks have found, encoded.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Ballot {
    votes: BTreeMap<u32, Vec<u8>>,
}

impl ReducerBody for Ballot {
    fn combine(&mut self, mut other: Self) {
        self.votes.append(&mut other.votes);
    }
}

impl Ballot {
    /// Who is to compute the value next.
    fn next(&self, able: &Group) -> Group {
        let open = VOTERS.saturating_sub(self.votes.len());
        Group::of(able.iter().filter(|rank| !self.votes.contains_key(&rank.0)).take(open))
    }

    /// What most have found.
    fn decide<T: DeserializeOwned>(self) -> Result<Agreed<T>, SegmentError> {
        let mut found: BTreeMap<&[u8], Path> = BTreeMap::new();
        for (rank, vote) in &self.votes {
            let ranks = found.entry(vote).or_default();
            ranks.insert(Rank(*rank)).expect("a rank votes once");
        }
        let most = found.iter().find(|(_, ranks)| 2 * ranks.len() > self.votes.len());
        let Some((vote, agreeing)) = most else {
            return Err(SegmentError::NoMajority { found: found.into_values().collect() });
        };
        let computed: Path = self.votes.keys().map(|rank| Rank(*rank)).collect();
        let deviating = computed.difference(agreeing);
        let value = encoding::decode(vote).map_err(|error| ReduceError::Body(ShareError::Body(error)))?;
        Ok(Agreed { value, computed, deviating })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(ranks: &[u32]) -> Path {
        ranks.iter().copied().map(Rank).collect()
    }

    fn ballot(votes: &[(u32, u8)]) -> Ballot {
        Ballot { votes: votes.iter().map(|(rank, vote)| (*rank, vec![*vote])).collect() }
    }

    #[test]
    fn the_majority_is_right_and_who_deviates_is_named() {
        for (votes, value, deviating) in [
            (&[(0, 7), (1, 7), (2, 7)][..], 7, &[][..]),
            (&[(0, 9), (4, 7), (5, 7)], 7, &[0]),
            (&[(0, 7), (1, 7)], 7, &[]),
            (&[(3, 1)], 1, &[]),
        ] {
            let agreed: Agreed<u8> = ballot(votes).decide().expect("there is a majority");
            assert_eq!((agreed.value, agreed.deviating), (value, path(deviating)), "{votes:?}");
        }
        for votes in [&[][..], &[(0, 1), (1, 2)], &[(0, 1), (1, 2), (2, 3)]] {
            let decided = ballot(votes).decide::<u8>();
            assert!(matches!(decided, Err(SegmentError::NoMajority { .. })), "{votes:?}");
        }
    }

    #[test]
    fn others_take_the_place_of_those_that_die() {
        assert_eq!(ballot(&[]).next(&Group::world(5)), Group::of([0, 1, 2]));
        assert_eq!(ballot(&[(0, 1), (2, 1)]).next(&Group::of([0, 2, 3, 4])), Group::of([3]));
        assert_eq!(ballot(&[(0, 1), (2, 1)]).next(&Group::of([0, 2])), Group::of(Vec::<Rank>::new()));
        assert_eq!(ballot(&[(0, 1), (1, 1), (2, 1)]).next(&Group::world(5)), Group::of(Vec::<Rank>::new()));
    }
}
