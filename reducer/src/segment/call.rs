//! A call of a recovery segment, and its rounds.

use std::{
    fmt,
    ops::Range,
    time::{Duration, Instant},
};

use everfold_protocol::{
    Rank,
    report::Refusal,
    spec::{Order, Protection},
};
use everfold_segment::{
    Combine,
    folding::{Folding, Next, salvages},
    grains::Grains,
    ledger::{Ledger, Left, Rules, Step},
    report::SegmentReport,
    round::Round,
};

use super::{error::SegmentError, progress::Progress, value::Value};
use crate::{
    body::{Described, ReducerBody},
    error::ReduceError,
    group::Group,
    reduction::{DEFAULT_PROTECTION, Outcome},
    session::Session,
};

/// The outcome of a recovery segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded<B> {
    /// All indices, each folded once.
    pub value: B,
    /// Which ranks have computed which number of indices, and which were lost.
    pub report: SegmentReport,
}

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
    progress: Option<u64>,
    balance: bool,
    deadline: Option<Duration>,
    protection: Protection,
}

impl Session {
    /// A loop over `indices` with a reduction at its end, which the survivors finish if ranks die (PR-3).
    ///
    /// Every rank of the group calls it and folds its share of the indices. If a rank dies before it has
    /// contributed, the survivors compute its share, inside the call, and reduce again. So every index counts
    /// exactly once, as long as one rank lives, and the host of rank 0. All ranks receive the value.
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
            progress: None,
            balance: false,
            deadline: None,
            protection: DEFAULT_PROTECTION,
        }
    }
}

impl<'g> RecoverySegment<'g> {
    /// The number of indices that are folded in one go: shares are whole grains. All ranks give the same. By
    /// default there are 1024 grains, or one for each index if these are fewer.
    ///
    /// Smaller grains divide more evenly, and each costs a call of the closure and a
    /// [`combine`](ReducerBody::combine).
    pub fn grain(mut self, indices: u64) -> Self {
        self.grain = Some(indices);
        self
    }

    /// Only these ranks take part, and ranks that die leave the group. By default all ranks take part.
    ///
    /// Use it in a loop: otherwise dead ranks are given a share in each call, which costs a round, and the
    /// memory for its name: see [`balance`](Self::balance).
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
    /// same bits in every run, for any number of ranks, any shares and any deaths. It costs several values
    /// instead of one in each message, about two for each level of the tree at most.
    ///
    /// All ranks give the same order. The default is [`Order::Arrival`]; bodies that do not commute always
    /// have [`Order::Fixed`].
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Writes the partial value of this rank's share to shared memory after each `grains` grains (PR-7). If
    /// the process dies, this progress counts, and the survivors compute only the rest. All ranks give the
    /// same number.
    ///
    /// Each write costs an encoding and a copy of the partial value. Progress does not outlive its host. If
    /// shared memory has no room for it, the call goes on without.
    ///
    /// Without it, all grains of a rank that dies before it contributes are computed again. 0 counts as 1.
    pub fn progress(mut self, grains: u64) -> Self {
        self.progress = Some(grains.max(1));
        self
    }

    /// Relieves slow ranks of grains that they have not begun. All ranks give the same.
    ///
    /// The ranks first fold a small part, then the rest in proportion to the speed of each. A rank that takes
    /// an eighth longer than its pace promised contributes the grains that it has folded, and the rest of its
    /// share is divided anew. So no index is folded twice for the sake of balance. It costs one more
    /// reduction, and a few others if ranks become slower or faster. Each of these has a name of its own,
    /// which takes up to 40 bytes of memory until the job ends, and 16 in each checkpoint.
    ///
    /// Without it all shares are equal, and the call takes as long as the slowest rank.
    pub fn balance(mut self) -> Self {
        self.balance = true;
        self
    }

    /// Ends the call with [`Refusal::DeadlineExceeded`] if a round takes longer than this from its first
    /// contribution on. All ranks give the same deadline. Without one, it waits for every rank that lives.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Chooses whether each contribution has a replica, and where: see [`Protection`]. Contributions that are
    /// lost nevertheless are computed again. All ranks give the same level. The default is
    /// [`DEFAULT_PROTECTION`].
    pub fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    /// Folds this rank's share of the indices with `fold`, grain by grain, and after a death a part of the
    /// dead rank's share, too.
    ///
    /// `fold` is given the indices of one grain. For the same indices it has to give the same value at every
    /// rank: with [`Order::Arrival`] as far as it matters to the application, with [`Order::Fixed`] bit by
    /// bit.
    ///
    /// # Cancelling
    /// Await it to its end. A segment makes several reductions: if its future is dropped, this rank makes no
    /// more of them, and the others wait for it until their [deadline](Self::deadline), if they have one, or
    /// as long as this process lives.
    ///
    /// # Errors
    /// [`SegmentError::NoIndices`], [`SegmentError::NoGrain`]: no other rank has heard of the call.
    /// [`SegmentError::Reduce`]: this rank cannot go on with the segment. A rank that was declared failed
    /// hears [`ReduceError::Fenced`], and the others compute its share; ranks that disagree on indices,
    /// grain, order, progress, balance or type hear [`Refusal::Mismatch`]. [`SegmentError::Twice`],
    /// [`SegmentError::Incomplete`]: there is no value in which each index counts once.
    /// # Source
    /// PR §3 (PR-1, PR-3, PR-4, PR-6, PR-7).
    pub async fn fold<B, F>(self, mut fold: F) -> Result<Folded<B>, SegmentError>
    where
        B: ReducerBody,
        F: FnMut(Range<u64>) -> B,
    {
        let Self { session, name, indices, grain, among, order, progress, balance, deadline, protection } =
            self;
        let grains = Grains::new(indices, grain)?;
        let group = among.as_ref().map_or_else(|| session.world(), |group| (**group).clone());
        let me = session.rank();
        if !group.contains(me) {
            let group = group.path().clone();
            return Err(ReduceError::from(Refusal::CallerOutsideGroup { rank: me, group }).into());
        }
        let rules = Rules {
            is_fixed: order == Order::Fixed || !B::COMMUTATIVE,
            balance,
            progress,
            ranks_return: session.handle().limits().ranks_return,
        };
        let mut ledger = Ledger::new(group.path(), grains.clone(), rules);
        let what = format!("{} of {}{rules}", std::any::type_name::<B>(), grains.describe());
        let number = session.next_number(&name);
        let progress = Progress::new(&session, &format!("{name} (call {number})"), progress.is_some());
        let part = Part { me, rules, grains: &grains, progress };
        let mut round_name = name.clone();
        let value = loop {
            let step = ledger.step();
            let body = match &step {
                Step::Compute { .. } => part.compute(&step, ledger.rounds(), &mut fold),
                Step::Salvage(_) => part.salvage(salvages(&step, me)).await,
            };
            let body = Described { what: what.clone(), body };
            let mut call = session.allreduce(round_name, body).group(&group);
            call = call.protection(protection).allow_missing();
            call = deadline.into_iter().fold(call, |call, deadline| call.deadline(deadline));
            let Outcome { value: round, report } = call.await?;
            if let Some(value) = ledger.enter(&step, round, report)? {
                break value.0;
            }
            // A name of its own: ranks outside of the group count the calls of `name` as those in it do. With
            // the call in it, as a rank may make two calls of `name` at the same time, whose further rounds
            // come in any order.
            round_name = format!("{name} (call {number}, round {})", ledger.rounds());
        };
        let report = ledger.close(group.path());
        if let Some(group) = among {
            *group = group.filter(|rank| report.survivors.contains(rank));
        }
        Ok(Folded { value, report })
    }
}

/// What one rank does in a call.
struct Part<'a> {
    me: Rank,
    rules: Rules,
    grains: &'a Grains,
    progress: Progress<'a>,
}

impl Part<'_> {
    /// Folds its share.
    fn compute<B: ReducerBody>(
        &self,
        step: &Step,
        round: usize,
        mut fold: impl FnMut(Range<u64>) -> B,
    ) -> Round<Value<B>> {
        let started = Instant::now();
        let mut saving = self.progress.of_round(round);
        let mut folding = Folding::new(self.me, step, self.rules, self.grains);
        while let Some(indices) = folding.grain() {
            match folding.fold(Value(fold(indices)), started.elapsed()) {
                Next::Fold => {}
                Next::Save => saving.save(folding.partials()),
                Next::Contribute => break,
            }
        }
        folding.into_round(started.elapsed())
    }

    /// Reads what others had folded when they died.
    async fn salvage<B: ReducerBody>(&self, left: Vec<&Left>) -> Round<Value<B>> {
        let mut round = Round::nothing(self.rules.is_fixed);
        for left in left {
            if let Some(read) = self.progress.read(left, self.rules.is_fixed, self.grains).await {
                Combine::combine(&mut round, read);
            }
        }
        round
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
