//! A call of a recovery segment, and its rounds.

use std::{fmt, ops::Range, time::Duration};

use everfold_protocol::{
    Rank,
    report::{Refusal, Report},
    spec::{Order, Protection},
};

use super::{
    error::SegmentError,
    grains::Grains,
    indices::Indices,
    partials::{Partials, Twice},
    report::{Folded, SegmentReport},
    round::{Paces, Round, weights},
};
use crate::{
    body::{Described, ReducerBody},
    error::ReduceError,
    group::Group,
    reduction::{DEFAULT_PROTECTION, Outcome},
    session::Session,
};

/// A recovery segment that is about to be computed: made by [`Session::segment`].
///
/// [`fold`](Self::fold) computes it. Dropped before that, it is as if it had never been.
#[must_use = "a recovery segment is computed by `fold`"]
pub struct RecoverySegment<'g> {
    session: Session,
    name: String,
    indices: Range<u64>,
    grain: Option<u64>,
    among: Option<&'g mut Group>,
    order: Order,
    deadline: Option<Duration>,
    protection: Protection,
}

impl Session {
    /// A loop over `indices` with a reduction at its end, which the survivors finish whoever dies (PR-3).
    ///
    /// Every rank of the group calls it and folds its share of the indices. If a rank dies before it has
    /// contributed, the survivors compute its share, inside the call, and reduce again. So every index counts
    /// exactly once, as long as one rank lives. All ranks receive the value.
    ///
    /// ```no_run
    /// use everfold::prelude::*;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Area(f64);
    ///
    /// impl ReducerBody for Area {
    ///     fn combine(&mut self, other: Self) {
    ///         self.0 += other.0;
    ///     }
    /// }
    ///
    /// # async fn program(session: Session) -> everfold::Result<()> {
    /// const STRIPES: u64 = 1 << 30;
    /// let height = |stripe: u64| 4.0 / (1.0 + ((stripe as f64 + 0.5) / STRIPES as f64).powi(2));
    /// let pi = session
    ///     .segment("pi", 0..STRIPES)
    ///     .order(Order::Fixed)
    ///     .fold(|stripes| Area(stripes.map(height).sum::<f64>() / STRIPES as f64))
    ///     .await?;
    /// println!("{}: {}", pi.value.0, pi.report);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The first round is the next [`allreduce`](Self::allreduce) of that name, and calls are matched as
    /// those are: in the order in which each rank makes them. Further rounds have names of their own.
    pub fn segment(&self, name: impl Into<String>, indices: Range<u64>) -> RecoverySegment<'static> {
        RecoverySegment {
            session: self.clone(),
            name: name.into(),
            indices,
            grain: None,
            among: None,
            order: Order::default(),
            deadline: None,
            protection: DEFAULT_PROTECTION,
        }
    }
}

impl<'g> RecoverySegment<'g> {
    /// How many indices are folded in one go: shares are whole grains. All ranks give the same. Without it
    /// there are 1024 grains, or as many as there are indices if these are fewer.
    ///
    /// Smaller grains divide more evenly, and each costs a call of the closure and a
    /// [`combine`](ReducerBody::combine).
    pub fn grain(mut self, indices: u64) -> Self {
        self.grain = Some(indices);
        self
    }

    /// Only these ranks take part, and those that die leave the group. Without it all ranks take part.
    ///
    /// In a loop, this keeps the dead from being given a share each time:
    ///
    /// ```no_run
    /// # use everfold::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Energy(f64);
    /// # impl ReducerBody for Energy {
    /// #     fn combine(&mut self, other: Self) {
    /// #         self.0 += other.0;
    /// #     }
    /// # }
    /// # async fn program(
    /// #     session: Session,
    /// #     energy: impl Fn(std::ops::Range<u64>) -> Energy,
    /// # ) -> everfold::Result<()> {
    /// let mut team = session.world();
    /// for step in 0..1000 {
    ///     let all = session.segment("energy", 0..1 << 20).among(&mut team).fold(&energy).await?;
    ///     println!("{step}: {} by {} ranks", all.value.0, team.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn among<'h>(self, group: &'h mut Group) -> RecoverySegment<'h>
    where
        'g: 'h,
    {
        RecoverySegment { among: Some(group), ..self }
    }

    /// With [`Order::Fixed`] the grains are the leaves of a binary tree that decides which values meet: the
    /// same bits in every run, however many ranks there are, whoever computes what and dies when. It costs
    /// several values instead of one in each message, about two for each level of the tree at most.
    ///
    /// All ranks give the same order; without one it is [`Order::Arrival`], and always [`Order::Fixed`] for
    /// bodies that do not commute.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Ends the call with [`Refusal::DeadlineExceeded`] if a round takes longer than this from its first
    /// contribution on. All ranks give the same deadline. Without one, it waits for every rank that lives.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// What of each contribution outlives its owner; see [`Protection`]. What goes with its owner all the
    /// same is computed again. All ranks give the same level; without one it is [`DEFAULT_PROTECTION`].
    pub fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    /// Folds this rank's share of the indices with `fold`, grain by grain, and after a death a part of what
    /// is left of the dead rank's share, too.
    ///
    /// `fold` is given the indices of one grain. It has to give the same at every rank, whatever was folded
    /// before: with [`Order::Arrival`] as far as it matters to the application, with [`Order::Fixed`] bit by
    /// bit.
    ///
    /// # Errors
    /// [`SegmentError::NoIndices`], [`SegmentError::NoGrain`]: nobody else has heard of the call.
    /// [`SegmentError::Reduce`]: this rank cannot go on with the segment. A rank that was given up hears
    /// [`ReduceError::Fenced`], and the others compute its share; ranks that disagree on indices, grain,
    /// order or type hear [`Refusal::Mismatch`]. [`SegmentError::Twice`], [`SegmentError::Incomplete`]: there
    /// is no value in which each index counts once.
    /// # Source
    /// PR §3 (PR-1, PR-3, PR-4, PR-6).
    pub async fn fold<B, F>(self, mut fold: F) -> Result<Folded<B>, SegmentError>
    where
        B: ReducerBody,
        F: FnMut(Range<u64>) -> B,
    {
        let Self { session, name, indices, grain, among, order, deadline, protection } = self;
        let grains = Grains::new(indices, grain)?;
        let group = among.as_ref().map_or_else(|| session.world(), |group| (**group).clone());
        if !group.contains(session.rank()) {
            let (rank, group) = (session.rank(), group.path().clone());
            return Err(ReduceError::from(Refusal::CallerOutsideGroup { rank, group }).into());
        }
        let is_fixed = order == Order::Fixed || !B::COMMUTATIVE;
        let mut ledger = Ledger::new(&group, &grains, is_fixed);
        let what = format!(
            "{} of {}{}",
            std::any::type_name::<B>(),
            grains.describe(),
            if is_fixed { " in the fixed order" } else { "" }
        );
        let mut round_name = name.clone();
        let value = loop {
            let shares = ledger.shares();
            let share = shares.iter().find(|(rank, _)| *rank == session.rank());
            let share = share.map_or_else(Indices::default, |(_, share)| share.clone());
            let body = Round::compute(session.rank(), &share, is_fixed, |grain| fold(grains.indices(grain)));
            let body = Described { what: what.clone(), body };
            let mut call = session.allreduce(round_name, body).group(group.clone());
            call = call.protection(protection).allow_missing();
            call = deadline.into_iter().fold(call, |call, deadline| call.deadline(deadline));
            let called = call.start()?;
            let number = *ledger.number.get_or_insert(called.number());
            let Outcome { value, report } = called.await?;
            let round = value.expect("everybody receives the result of an allreduce");
            if let Some(value) = ledger.enter(&shares, round, report)? {
                break value;
            }
            // A name of its own: ranks outside of the group count the calls of `name` as those in it do.
            round_name = format!("{name} (call {number}, round {})", ledger.report.rounds.len());
        };
        let may_return = session.handle().limits().ranks_return;
        let report = ledger.close(&group, may_return);
        if let Some(group) = among {
            *group = group.filter(|rank| report.survivors.contains(rank));
        }
        Ok(Folded { value, report })
    }
}

impl fmt::Debug for RecoverySegment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, indices, grain, .. } = self;
        f.debug_struct("RecoverySegment")
            .field("name", name)
            .field("indices", indices)
            .field("grain", grain)
            .finish_non_exhaustive()
    }
}

/// What all ranks know alike of a call: it follows from the results of its rounds.
struct Ledger<'a, B> {
    grains: &'a Grains,
    /// What is computed.
    done: Partials<B>,
    /// Grains that are not.
    open: Indices,
    /// Who is given shares: a rank that was missing once, or has died, is given none any more.
    able: Group,
    paces: Paces,
    report: SegmentReport,
    /// How often the name was called before.
    number: Option<u64>,
}

impl<'a, B: ReducerBody> Ledger<'a, B> {
    fn new(group: &Group, grains: &'a Grains, is_fixed: bool) -> Self {
        Self {
            grains,
            done: Partials::new(is_fixed),
            open: Indices::range(grains.all()),
            able: group.clone(),
            paces: Paces::new(),
            report: SegmentReport::default(),
            number: None,
        }
    }

    /// What each rank is to compute next.
    fn shares(&self) -> Vec<(Rank, Indices)> {
        let ranks: Vec<Rank> = self.able.iter().collect();
        let shares = self.open.divide(&weights(ranks.iter().copied(), &self.paces));
        ranks.into_iter().zip(shares).collect()
    }

    /// Takes in the result of a round, and gives the value if nothing is open any more.
    fn enter(
        &mut self,
        shares: &[(Rank, Indices)],
        round: Round<B>,
        report: Report,
    ) -> Result<Option<B>, SegmentError> {
        let twice = |grain| SegmentError::Twice { index: self.grains.indices(grain).start };
        match round.twice.map_or_else(|| self.done.unite(round.partials), |grain| Err(Twice(grain))) {
            Ok(()) => {}
            Err(Twice(grain)) => return Err(twice(grain)),
        }
        self.open = self.done.grains().holes(self.grains.all());
        self.paces.extend(round.paces);
        let (counted, lost): (Vec<_>, Vec<_>) =
            shares.iter().partition(|(rank, _)| report.contributors.contains(*rank));
        for (rank, share) in counted {
            self.report.add(*rank, self.grains.indices_of(share).count());
        }
        let lost: Vec<Rank> =
            lost.into_iter().filter(|(_, share)| !share.is_empty()).map(|(rank, _)| *rank).collect();
        self.report.lose(&lost, self.grains.indices_of(&self.open).count());
        let goes_on = |rank| report.contributors.contains(rank) && !report.survived.contains(rank);
        self.able = self.able.filter(goes_on);
        self.report.rounds.push(report);
        if !self.open.is_empty() {
            // In each round that leaves something open a share is lost, so there are no more rounds than
            // ranks.
            return match lost.is_empty() || self.able.is_empty() {
                true => Err(SegmentError::Incomplete { indices: self.grains.indices_of(&self.open) }),
                false => Ok(None),
            };
        }
        let done = std::mem::replace(&mut self.done, Partials::new(false));
        Ok(Some(done.into_value().expect("a segment has at least one grain")))
    }

    /// The whole report.
    fn close(mut self, group: &Group, may_return: bool) -> SegmentReport {
        if let Some(last) = self.report.rounds.last() {
            // A rank that has died after it contributed comes back, if ranks do.
            let stays =
                |rank| last.contributors.contains(rank) && (may_return || !last.survived.contains(rank));
            self.report.survivors = group.iter().filter(|rank| stays(*rank)).collect();
        }
        self.report
    }
}
