//! A call of a reduction: what it is given, what it promises, what it yields.

use std::{
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use everfold_protocol::{
    Path, Rank,
    report::{Refusal, Report},
    spec::{Delivery, Order, Protection, ReductionSpec},
};
use everfold_runtime::{
    executor::{Returned, ShareError},
    rank::{Call, Pending, Waiting},
};
use futures::{FutureExt, future::BoxFuture};

use crate::{
    body::Body,
    checkpoint::{Held, Together},
    error::ReduceError,
    group::Group,
    session::Session,
};

/// Ranks and bytes over which arrays between hosts are folded without their root in the fixed order.
const LARGE: (usize, u64) = (8, 256 << 10);

/// Marks a call whose result goes to one rank, so that the others have none.
#[derive(Debug)]
pub enum ToRoot {}

/// Marks a call whose result goes to every rank of the group.
#[derive(Debug)]
pub enum ToAll {}

/// Who receives the result, and so whether a rank may have none: [`ToRoot`] or [`ToAll`].
pub trait Receivers: sealed::Sealed + 'static {
    /// The value of type `V` as a rank receives it: an `Option` where only the root does.
    type Received<V: Send + 'static>: Send + 'static;

    /// `None` if this rank should have received a value, and none has come.
    #[doc(hidden)]
    fn received<V: Send + 'static>(value: Option<V>) -> Option<Self::Received<V>>;
}

impl Receivers for ToRoot {
    type Received<V: Send + 'static> = Option<V>;

    fn received<V: Send + 'static>(value: Option<V>) -> Option<Option<V>> {
        Some(value)
    }
}

impl Receivers for ToAll {
    type Received<V: Send + 'static> = V;

    fn received<V: Send + 'static>(value: Option<V>) -> Option<V> {
        value
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::ToRoot {}
    impl Sealed for super::ToAll {}
}

/// A reduction that is about to be called: made by [`Session::reduce`] and [`Session::allreduce`].
///
/// Await it, or [`start`](Self::start) it and compute on. Dropped before that, it is as if it had never been.
#[must_use = "a reduction begins when it is awaited or started"]
pub struct Reduction<B, D> {
    session: Session,
    name: String,
    body: B,
    delivery: Delivery,
    terms: Terms,
    to: PhantomData<D>,
}

/// What a call asks for besides who receives the result.
#[derive(Debug)]
pub(crate) struct Terms {
    pub group: Option<Group>,
    pub order: Order,
    pub deadline: Option<Duration>,
    pub protection: Protection,
    pub allow_missing: bool,
    pub trace: bool,
    /// Whether everfold calls it for itself, and not the application.
    pub is_own: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            group: None,
            order: Order::default(),
            deadline: None,
            protection: DEFAULT_PROTECTION,
            allow_missing: false,
            trace: false,
            is_own: false,
        }
    }
}

impl<B: Body> Reduction<B, ToRoot> {
    /// Delivers the result to `rank` of the job instead of rank 0.
    pub fn root(mut self, rank: impl Into<Rank>) -> Self {
        self.delivery = Delivery::Root(rank.into());
        self
    }

    /// Delivers the result to the first of these ranks that lives when the result is ready: `roots([0, 3])`
    /// delivers it to rank 3 if rank 0 has died. It costs one copy of the result, because the receiver is not
    /// known beforehand.
    pub fn roots(mut self, ranks: impl IntoIterator<Item = impl Into<Rank>>) -> Self {
        self.delivery = Delivery::FirstOf(ranks.into_iter().map(Into::into).collect());
        self
    }
}

impl Session {
    /// Reduces the group's bodies to one value at the root (`MPI_Reduce`, `MPI_Ireduce`). The other ranks
    /// have `None`.
    ///
    /// ```no_run
    /// # use everfold::prelude::*;
    /// # async fn program(session: Session) -> Result<(), ReduceError> {
    /// if let Some(Sum(ranks)) = session.reduce("ranks", Sum(vec![1u32])).root(3).await?.value {
    ///     println!("rank 3 hears of {} ranks", ranks[0]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Unless [`group`](Reduction::group) and [`root`](Reduction::root) say otherwise, all ranks take part
    /// and rank 0 is the root.
    ///
    /// Calls with one name are matched in the order in which each rank makes them, so a loop just calls
    /// again. Each rank counts the calls of each name for as long as the job lasts, which takes 20 to 40
    /// bytes for a name: use one name again (`"step"`) rather than a name for each call (`"step-17"`), which
    /// takes 400 MB after ten million calls.
    ///
    /// # Shape
    /// Every rank of the group calls it with the same name and the same arguments, as often as the others;
    /// arrays have the same length on all ranks.
    /// # Errors
    /// [`ReduceError`]: awaiting it ends in one of these if it ends without a value.
    pub fn reduce<B: Body>(&self, name: impl Into<String>, body: B) -> Reduction<B, ToRoot> {
        Reduction::new(self.clone(), name.into(), body, Delivery::Root(Rank(0)))
    }

    /// Reduces the group's bodies to one value at all ranks (`MPI_Allreduce`, `MPI_Iallreduce`). Shape and
    /// errors are those of [`reduce`](Self::reduce).
    ///
    /// ```no_run
    /// # use everfold::prelude::*;
    /// # async fn program(session: Session) -> Result<(), ReduceError> {
    /// let Sum(ranks) = session.allreduce("ranks", Sum(vec![1u32])).await?.value;
    /// println!("every rank hears of {} ranks", ranks[0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn allreduce<B: Body>(&self, name: impl Into<String>, body: B) -> Reduction<B, ToAll> {
        Reduction::new(self.clone(), name.into(), body, Delivery::All)
    }
}

impl<B: Body, D: Receivers> Reduction<B, D> {
    pub(crate) fn new(session: Session, name: String, body: B, delivery: Delivery) -> Self {
        Self::on_terms(session, name, body, delivery, Terms::default())
    }

    pub(crate) fn on_terms(
        session: Session,
        name: String,
        body: B,
        delivery: Delivery,
        terms: Terms,
    ) -> Self {
        Self { session, name, body, delivery, terms, to: PhantomData }
    }

    /// Everfold calls it for itself.
    pub(crate) fn of_everfold(mut self) -> Self {
        self.terms.is_own = true;
        self
    }

    /// Only these ranks take part; only they may call it. A [`Group`] or a reference to one.
    pub fn group(mut self, group: impl Into<Group>) -> Self {
        self.terms.group = Some(group.into());
        self
    }

    /// Chooses which contributions meet: those that are ready, or always the same ones. [`Order`] has the
    /// promises and costs. All ranks give the same order. The default is [`Order::Arrival`]; operations that
    /// do not commute always have [`Order::Fixed`].
    ///
    /// ```no_run
    /// use everfold::prelude::*;
    ///
    /// # async fn energy(session: Session, mine: Vec<f64>) -> Result<(), ReduceError> {
    /// // The same bits in every run, also if ranks are late or die.
    /// let energy = session.allreduce("energy", Sum(mine)).order(Order::Fixed).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn order(mut self, order: Order) -> Self {
        self.terms.order = order;
        self
    }

    /// Ends the reduction with [`Refusal::DeadlineExceeded`] if it takes longer than this from its first
    /// contribution on. All ranks give the same deadline. Without one, it waits for every rank that lives. If
    /// it passes while the result is copied, ranks that have it receive it, and the others hear the error.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.terms.deadline = Some(deadline);
        self
    }

    /// Chooses whether each contribution has a replica, and where; [`Protection`] says which deaths each
    /// level survives, and at what cost. All ranks give the same level. The default is
    /// [`DEFAULT_PROTECTION`].
    pub fn protection(mut self, protection: Protection) -> Self {
        self.terms.protection = protection;
        self
    }

    /// Goes on without the contributions of ranks that have died or left, if no copy of them can be read. The
    /// report names the [missing](Report::missing) ranks. All ranks allow it or none does.
    ///
    /// Between hosts there is a result as long as the host of rank 0 and one receiver live. The result is
    /// kept beside the contributions until all ranks have it. That costs a copy within memory for bodies
    /// other than [`Session::array`], and the time until the last rank has the result. On one host the result
    /// replaces the contributions at once, as memory outlives its process there. Only a rank that freezes at
    /// that moment, and is declared failed, can end the reduction in [`Refusal::ContributionLost`] or
    /// [`ReduceError::ResultLost`]: call it again with the survivors.
    pub fn allow_missing(mut self) -> Self {
        self.terms.allow_missing = true;
        self
    }

    /// Lists every task in the report of the ranks that receive the result.
    pub fn trace(mut self) -> Self {
        self.terms.trace = true;
        self
    }

    /// Contributes, and returns at once with a future of the outcome.
    ///
    /// # Shape
    /// Every rank of the group calls it with the same name, as often as the others; arrays have the same
    /// length on all ranks.
    /// # Errors
    /// [`ReduceError::Refused`] if the arguments are wrong at this rank alone or this rank has too many
    /// reductions in flight, [`ReduceError::NoDisk`], or [`ReduceError::Body`]. The call then does not count:
    /// no other rank has heard of it. Errors that need the other ranks come from the future.
    /// # Source
    /// DR §1 Fig. 2, §2 (DR-2, DR-6).
    pub fn start(self) -> Result<ReduceFuture<D::Received<B::Value>>, ReduceError> {
        let Self { session, name, body, delivery, terms, .. } = self;
        let Terms { group, order, deadline, protection, allow_missing, trace, is_own } = terms;
        let contribution = body.contribute();
        let group = group.unwrap_or_else(|| session.world());
        let order = if contribution.commutative { order } else { Order::Fixed };
        // A root that folds into its own contribution could not take others' out again; and in the fixed
        // order its link would carry a partial of every level of the tree.
        let bytes = contribution.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let is_large = group.len() > LARGE.0 && bytes > LARGE.1;
        let apart = order == Order::Fixed && is_large && !on_one_host(&session, group.path());
        let delivery = match delivery {
            Delivery::Root(rank) if allow_missing || apart || session.handle().limits().ranks_return => {
                Delivery::FirstOf(vec![rank])
            }
            delivery => delivery,
        };
        let spec = ReductionSpec {
            group: group.path().clone(),
            delivery,
            order,
            kind: contribution.kind,
            deadline,
            protection,
            allow_missing,
            trace,
        };
        can_protect(protection)?;
        check(&session, &spec)?;
        let (handle, keeping) = (session.handle(), session.keeping());
        let resumes = || handle.saved().is_some() || session.together().is_some_and(Together::resumes);
        if !is_own && !keeping.calls() && resumes() {
            return Err(ReduceError::NotResumed { name });
        }
        let is_of_all = !is_own && spec.group.len() == session.size() as usize;
        let pending = session.numbered(name, |reduction, name| {
            let held = (handle.saves() && !is_own).then(|| keeping.hold(reduction, &name));
            let pending = handle.call(Call { reduction, name, spec, body: contribution.body })?;
            if let Some(together) = session.together().filter(|_| is_of_all) {
                together.see_call(reduction.name, reduction.sequence);
            }
            Ok((pending, held, reduction.sequence))
        });
        let (pending, held, number) = pending.map_err(|error| match error {
            ShareError::TooLarge { bytes, limit } => {
                Refusal::BodyTooLarge { rank: session.rank(), bytes, limit }.into()
            }
            ShareError::TooMany { limit } => {
                Refusal::TooManyReductions { rank: session.rank(), limit }.into()
            }
            error => ReduceError::Body(error),
        })?;
        Ok(ReduceFuture { pending, value: receive::<B, D>, waiting: session.waiting(), held, number })
    }
}

/// The value of a call, from what has come.
fn receive<B: Body, D: Receivers>(returned: Option<Returned>) -> Result<D::Received<B::Value>, ReduceError> {
    let lost = |reason: &str| ReduceError::ResultLost { reason: reason.to_owned() };
    let typed = |returned| B::value(returned).ok_or_else(|| lost("it came back as another type"));
    let value = returned.map(typed).transpose()?;
    D::received(value).ok_or_else(|| lost("nothing came"))
}

fn on_one_host(session: &Session, group: &Path) -> bool {
    let peers = session.handle().peers();
    let mut hosts = group.iter().filter_map(|rank| peers.get(rank.index())).map(|peer| peer.host);
    let first = hosts.next();
    hosts.all(|host| Some(host) == first)
}

/// The level of protection of reductions that give none: [`Protection::Disk`], or [`Protection::Memory`] in a
/// program that was built without the feature `disk`.
pub const DEFAULT_PROTECTION: Protection =
    if everfold_storage::HAS_DISK { Protection::Disk } else { Protection::Memory };

/// Refuses a level of protection that this build has not got.
fn can_protect(protection: Protection) -> Result<(), ReduceError> {
    match protection {
        Protection::Disk | Protection::CommitFirst if !everfold_storage::HAS_DISK => {
            Err(ReduceError::NoDisk { protection })
        }
        _ => Ok(()),
    }
}

/// Refuses a call that makes no sense by itself.
fn check(session: &Session, spec: &ReductionSpec) -> Result<(), Refusal> {
    let rank = session.rank();
    let size = session.size();
    let group = || spec.group.clone();
    if spec.group.is_empty() {
        return Err(Refusal::EmptyGroup);
    }
    if !spec.group.is_subset(&Path::range(0, size)) {
        return Err(Refusal::UnknownRanks { group: group(), size });
    }
    if matches!(&spec.delivery, Delivery::FirstOf(roots) if roots.is_empty()) {
        return Err(Refusal::NoRoots);
    }
    if let Some(root) = spec.named_roots().find(|root| !spec.group.contains(*root)) {
        return Err(Refusal::RootOutsideGroup { root, group: group() });
    }
    if !spec.group.contains(rank) {
        return Err(Refusal::CallerOutsideGroup { rank, group: group() });
    }
    let limit = session.handle().limits().body_bytes_max;
    match spec.kind.array_bytes() {
        Some((0, _)) => Err(Refusal::EmptyBody { rank }),
        Some((bytes, _)) if bytes > limit => Err(Refusal::BodyTooLarge { rank, bytes, limit }),
        _ => Ok(()),
    }
}

impl<B: Body, D: Receivers> IntoFuture for Reduction<B, D> {
    type Output = Result<Outcome<D::Received<B::Value>>, ReduceError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let started = self.start();
        async move { started?.await }.boxed()
    }
}

impl<B, D> fmt::Debug for Reduction<B, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reduction")
            .field("name", &self.name)
            .field("delivery", &self.delivery)
            .finish_non_exhaustive()
    }
}

/// A reduction under way: of an allreduce a `ReduceFuture<V>`, of one to a root a `ReduceFuture<Option<V>>`.
///
/// Await it, or block on it with [`get`](Self::get). Dropping it does not take the contribution back: that
/// still counts.
#[must_use = "dropping the future does not take the contribution back"]
pub struct ReduceFuture<V> {
    pending: Pending,
    value: fn(Option<Returned>) -> Result<V, ReduceError>,
    waiting: Waiting,
    /// Where ranks come back, until the outcome is taken.
    held: Option<Held>,
    number: u64,
}

impl<V> ReduceFuture<V> {
    /// How often this rank had called the name before.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the outcome is there, so that awaiting would return at once.
    pub fn is_done(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Blocks the thread until the outcome is there.
    ///
    /// # Errors
    /// See [`ReduceError`].
    pub fn get(self) -> Result<Outcome<V>, ReduceError> {
        self.waiting.watch();
        self.waiting.elsewhere();
        futures::executor::block_on(self)
    }
}

impl<V> Future for ReduceFuture<V> {
    type Output = Result<Outcome<V>, ReduceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.pending.is_empty() {
            self.waiting.watch();
        }
        // The sender is dropped without an answer only when the I/O thread is gone.
        let completed = ready!(self.pending.poll_unpin(context)).map_err(|_| ReduceError::SessionClosed);
        self.held = None;
        let completed = completed??;
        let value = (self.value)(completed.value)?;
        Poll::Ready(Ok(Outcome { value, report: completed.report }))
    }
}

impl<V> fmt::Debug for ReduceFuture<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReduceFuture").field("is_done", &self.is_done()).finish()
    }
}

/// The outcome of a call: value and report.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome<V> {
    /// The value that this rank receives. Of a reduction to a root it is an `Option`, which is `None` at all
    /// other ranks.
    pub value: V,
    /// The account of the reduction: contributors, deaths, times.
    pub report: Report,
}

/// For programs that choose at run time between a reduction to all and one to a root.
impl<V> From<Outcome<V>> for Outcome<Option<V>> {
    fn from(Outcome { value, report }: Outcome<V>) -> Self {
        Self { value: Some(value), report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::Pieces;

    #[test]
    fn a_value_may_be_absent_only_where_not_all_receive_it() {
        let array = || Some(Returned::Array(Box::new(vec![1u8])));
        assert_eq!(receive::<Pieces<u8>, ToRoot>(None).ok(), Some(None));
        for (lost, why) in [
            (receive::<Pieces<u8>, ToAll>(None).err(), "nothing came"),
            (receive::<Pieces<u8>, ToAll>(array()).err(), "another type"),
            (receive::<Pieces<u8>, ToRoot>(array()).err(), "another type"),
        ] {
            assert!(
                matches!(lost, Some(ReduceError::ResultLost { reason }) if reason.contains(why)),
                "{why}"
            );
        }
    }

    #[test]
    fn levels_that_need_a_disk_are_refused_where_there_is_none() {
        for (level, needs_disk) in [
            (Protection::None, false),
            (Protection::Memory, false),
            (DEFAULT_PROTECTION, false),
            (Protection::Disk, true),
            (Protection::CommitFirst, true),
        ] {
            let allowed = can_protect(level);
            assert_eq!(allowed.is_ok(), !needs_disk || cfg!(feature = "disk"), "{level}");
            let says = |error: ReduceError| error.to_string().contains(&format!("protection {level}"));
            assert!(allowed.err().is_none_or(says), "{level}");
        }
    }
}
