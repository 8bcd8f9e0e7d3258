//! A call of a collective operation: what it is given, what it promises, what it yields.

use std::{
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use everfold_protocol::spec::Protection;
use everfold_runtime::executor::Returned;
use futures::{FutureExt, future::BoxFuture};

use super::{
    blocks::Giver,
    operation::{Operation, Plan},
    piece::Received,
};
use crate::{
    body::{Body, Contribution},
    error::ReduceError,
    group::Group,
    reduction::{Outcome, ReduceFuture, Reduction, Terms, ToRoot},
    session::Session,
};

/// A collective operation that is about to be called: made by [`Session::allgather`] and its kin.
///
/// Await it, or [`start`](Self::start) it and compute on. Dropped before that, it is as if it had never been.
#[must_use = "an operation begins when it is awaited or started"]
pub struct Collective<O> {
    session: Session,
    name: String,
    operation: O,
    terms: Terms,
}

impl<O> Collective<O> {
    pub(super) fn new(session: &Session, name: impl Into<String>, operation: O) -> Self {
        Self { session: session.clone(), name: name.into(), operation, terms: Terms::default() }
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut O)) -> Self {
        change(&mut self.operation);
        self
    }

    /// Only these ranks take part; only they may call it. Pieces are in the order of the group's ranks.
    pub fn group(mut self, group: impl Into<Group>) -> Self {
        self.terms.group = Some(group.into());
        self
    }

    /// Ends it with [`Refusal::DeadlineExceeded`](crate::Refusal::DeadlineExceeded) if it takes longer than
    /// this from its first contribution on: see [`Reduction::deadline`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.terms.deadline = Some(deadline);
        self
    }

    /// Chooses whether the pieces have replicas, and where; [`Protection`] says which deaths each level
    /// survives, and at what cost. All ranks give the same level. The default is
    /// [`DEFAULT_PROTECTION`](crate::DEFAULT_PROTECTION).
    pub fn protection(mut self, protection: Protection) -> Self {
        self.terms.protection = protection;
        self
    }

    /// Goes on without the pieces of ranks that have died or left, if no copy of them can be read. The report
    /// names the [missing](crate::Report::missing) ranks; their pieces are absent. All ranks allow it or none
    /// does.
    ///
    /// If the root of a broadcast or a scatter is missing, the call ends in an error. If hosts die while the
    /// pieces of a scatter or an exchange are copied, some ranks may have their pieces while the others hear
    /// [`ReduceError::ResultLost`].
    pub fn allow_missing(mut self) -> Self {
        self.terms.allow_missing = true;
        self
    }
}

impl<O: Operation> Collective<O> {
    /// Contributes, and returns at once with a future of the outcome.
    ///
    /// # Shape
    /// Every rank of the group calls it with the same name, as often as the others.
    /// # Errors
    /// Those of [`Reduction::start`]. [`ReduceError::Refused`] also if there is not one piece for each rank,
    /// or if another rank than the root gives pieces. The call then does not count: no other rank has heard
    /// of it.
    pub fn start(self) -> Result<CollectiveFuture<O>, ReduceError> {
        let Self { session, name, operation, terms } = self;
        let group = terms.group.clone().unwrap_or_else(|| session.world());
        let region = session.handle().region();
        let giver = Giver { rank: session.rank(), ranks: (group.len() as u64).max(1), region };
        let Plan { contribution, delivery } = operation.plan(&giver)?;
        // `O::value` says whether a rank may receive nothing.
        let called = Reduction::<_, ToRoot>::on_terms(session, name, Planned(contribution), delivery, terms);
        Ok(CollectiveFuture { outcome: called.start()?, operation: PhantomData })
    }
}

/// A contribution that is made already.
struct Planned(Contribution);

impl Body for Planned {
    type Value = Untyped;

    fn contribute(self) -> Contribution {
        self.0
    }

    fn value(returned: Returned) -> Option<Untyped> {
        Some(Untyped(returned))
    }
}

/// Received pieces, before they have their type.
struct Untyped(Returned);

impl<O: Operation> IntoFuture for Collective<O> {
    type Output = Result<Outcome<O::Value>, ReduceError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let started = self.start();
        async move { started?.await }.boxed()
    }
}

impl<O> fmt::Debug for Collective<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collective").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A collective operation under way.
///
/// Await it, or block on it with [`get`](Self::get). Dropping it takes nothing back: the other ranks still
/// receive this rank's pieces.
#[must_use = "dropping the future does not take the pieces back"]
pub struct CollectiveFuture<O> {
    outcome: ReduceFuture<Option<Untyped>>,
    operation: PhantomData<fn() -> O>,
}

impl<O: Operation> CollectiveFuture<O> {
    /// Whether the outcome is there, so that awaiting would return at once.
    pub fn is_done(&self) -> bool {
        self.outcome.is_done()
    }

    /// Blocks the thread until the outcome is there.
    ///
    /// # Errors
    /// See [`ReduceError`].
    pub fn get(self) -> Result<Outcome<O::Value>, ReduceError> {
        self.outcome.get().and_then(deliver::<O>)
    }
}

impl<O: Operation> Future for CollectiveFuture<O> {
    type Output = Result<Outcome<O::Value>, ReduceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.outcome.poll_unpin(context));
        Poll::Ready(outcome.and_then(deliver::<O>))
    }
}

impl<O> fmt::Debug for CollectiveFuture<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectiveFuture").finish_non_exhaustive()
    }
}

/// Gives what came its type.
fn deliver<O: Operation>(outcome: Outcome<Option<Untyped>>) -> Result<Outcome<O::Value>, ReduceError> {
    let Outcome { value, report } = outcome;
    let received = value.and_then(|Untyped(returned)| match returned {
        Returned::Pieces { memory, lengths } => {
            Some(Received { memory, lengths, ranks: report.contributors.clone() })
        }
        Returned::Array(_) | Returned::Object(_) => None,
    });
    let value = O::value(received).map_err(|error| ReduceError::ResultLost { reason: error.to_string() })?;
    Ok(Outcome { value, report })
}
