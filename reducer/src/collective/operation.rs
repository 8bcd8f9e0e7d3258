//! Gather, allgather, broadcast, scatter, exchange and barrier.

use std::fmt;

use everfold_protocol::{
    Rank,
    pieces::Pattern,
    report::Refusal,
    spec::{BodyKind, Delivery},
};
use everfold_runtime::{
    body::{self, BodyError},
    executor::ShareError,
    memory::buffer::Memory,
};

use super::{
    blocks::{Blocks, Giver},
    call::Collective,
    piece::{Piece, Received},
};
use crate::{
    body::{Body, Contribution},
    error::ReduceError,
    operations::Sum,
    session::Session,
};

/// The operation of a [`Collective`].
pub trait Operation: Send + Sized + 'static {
    /// The value that a rank receives.
    type Value: Send + 'static;

    #[doc(hidden)]
    fn plan(self, giver: &Giver<'_>) -> Result<Plan, ReduceError>;

    #[doc(hidden)]
    fn value(received: Option<Received>) -> Result<Self::Value, BodyError>;
}

/// A rank's contribution, and the receivers.
#[doc(hidden)]
pub struct Plan {
    pub(super) contribution: Contribution,
    pub(super) delivery: Delivery,
}

fn pieces(of: String, pattern: Pattern, length: Option<u64>, memory: Box<dyn Memory>) -> Contribution {
    let kind = BodyKind::Pieces { of, pattern, length };
    Contribution { kind, commutative: true, body: body::Body::Pieces(memory) }
}

fn memory_of<P: Piece>(piece: P) -> Result<Box<dyn Memory>, ReduceError> {
    piece.into_memory().map_err(|error| ReduceError::Body(ShareError::from(error)))
}

/// The piece that only the root gives.
fn at_root<T>(given: Option<T>, rank: Rank, root: Rank) -> Result<Option<T>, Refusal> {
    match given {
        None if rank == root => Err(Refusal::NoPiece { root }),
        Some(_) if rank != root => Err(Refusal::NotTheRoot { rank, root }),
        given => Ok(given),
    }
}

/// The pieces of a rank that is to receive some.
fn came(received: Option<Received>) -> Result<Received, BodyError> {
    received.ok_or_else(|| BodyError::Failed("nothing came".to_owned()))
}

/// Every rank's piece reaches every rank: see [`Session::allgather`].
pub struct Allgather<P> {
    piece: P,
    equal: bool,
}

impl<P: Piece> Operation for Allgather<P> {
    type Value = P::Row;

    fn plan(self, _: &Giver<'_>) -> Result<Plan, ReduceError> {
        let memory = memory_of(self.piece)?;
        let length = P::length(&*memory).filter(|_| self.equal);
        let contribution = pieces(P::what(), Pattern::Gather, length, memory);
        Ok(Plan { contribution, delivery: Delivery::All })
    }

    fn value(received: Option<Received>) -> Result<P::Row, BodyError> {
        P::row(came(received)?)
    }
}

/// Every rank's piece reaches one rank: see [`Session::gather`].
pub struct Gather<P> {
    piece: P,
    equal: bool,
    roots: Vec<Rank>,
}

impl<P: Piece> Operation for Gather<P> {
    type Value = Option<P::Row>;

    fn plan(self, giver: &Giver<'_>) -> Result<Plan, ReduceError> {
        let Self { piece, equal, roots } = self;
        let plan = Allgather { piece, equal }.plan(giver)?;
        Ok(Plan { delivery: Delivery::FirstOf(roots), ..plan })
    }

    fn value(received: Option<Received>) -> Result<Option<P::Row>, BodyError> {
        received.map(P::row).transpose()
    }
}

/// One rank's piece reaches every rank: see [`Session::broadcast`].
pub struct Broadcast<P> {
    piece: Option<P>,
    root: Rank,
}

impl<P: Piece> Operation for Broadcast<P> {
    type Value = P::One;

    fn plan(self, giver: &Giver<'_>) -> Result<Plan, ReduceError> {
        let piece = at_root(self.piece, giver.rank, self.root)?;
        let memory = piece.map_or_else(|| Ok(nothing()), memory_of)?;
        let contribution = pieces(P::what(), Pattern::Broadcast(self.root), None, memory);
        Ok(Plan { contribution, delivery: Delivery::All })
    }

    fn value(received: Option<Received>) -> Result<P::One, BodyError> {
        P::one(came(received)?)
    }
}

/// One rank has a piece for every rank: see [`Session::scatter`].
pub struct Scatter<B> {
    blocks: Option<B>,
    root: Rank,
}

impl<B: Blocks> Operation for Scatter<B> {
    type Value = <B::Piece as Piece>::One;

    fn plan(self, giver: &Giver<'_>) -> Result<Plan, ReduceError> {
        let blocks = at_root(self.blocks, giver.rank, self.root)?;
        let memory = blocks
            .map_or_else(|| Ok(nothing()), |blocks| blocks.into_memory(giver).map(|(memory, _)| memory))?;
        let contribution = pieces(B::Piece::what(), Pattern::Scatter(self.root, B::CUT), None, memory);
        Ok(Plan { contribution, delivery: Delivery::All })
    }

    fn value(received: Option<Received>) -> Result<Self::Value, BodyError> {
        B::Piece::one(came(received)?)
    }
}

/// Every rank has a piece for every rank: see [`Session::exchange`].
pub struct Exchange<B>(B);

impl<B: Blocks> Operation for Exchange<B> {
    type Value = <B::Piece as Piece>::Row;

    fn plan(self, giver: &Giver<'_>) -> Result<Plan, ReduceError> {
        let (memory, length) = self.0.into_memory(giver)?;
        let contribution = pieces(B::Piece::what(), Pattern::Exchange(B::CUT), length, memory);
        Ok(Plan { contribution, delivery: Delivery::All })
    }

    fn value(received: Option<Received>) -> Result<Self::Value, BodyError> {
        B::Piece::row(came(received)?)
    }
}

/// Every rank waits for every rank: see [`Session::barrier`].
pub struct Barrier(());

impl Operation for Barrier {
    type Value = ();

    /// It is the sum of a byte of each rank: what is short takes the shortest paths.
    fn plan(self, _: &Giver<'_>) -> Result<Plan, ReduceError> {
        Ok(Plan { contribution: Sum(vec![0u8]).contribute(), delivery: Delivery::All })
    }

    fn value(_: Option<Received>) -> Result<(), BodyError> {
        Ok(())
    }
}

fn nothing() -> Box<dyn Memory> {
    Box::new(Vec::<u8>::new())
}

impl Session {
    /// Brings every rank's piece to every rank (`MPI_Allgather`, `MPI_Allgatherv`).
    ///
    /// # Shape
    /// Every rank of the group gives a piece, of any length. Calls are matched by name as
    /// [reductions](Self::reduce) are; use a name for one kind of operation only.
    /// # Errors
    /// [`ReduceError`], when it is awaited; the refusals of collective operations are in
    /// [`Refusal`](crate::Refusal).
    ///
    /// ```no_run
    /// use everfold::prelude::*;
    ///
    /// # async fn program(session: Session) -> Result<(), ReduceError> {
    /// let mine = vec![session.rank().0; 3];
    /// let all = session.allgather("ranks", mine).await?.value;
    /// assert_eq!(all.of(2), Some(&[2, 2, 2][..])); // the piece of rank 2
    /// assert_eq!(all[..4], [0, 0, 0, 1]); // all pieces, one after the other
    ///
    /// let hosts: Vec<String> = session.allgather("hosts", Object("node7".to_owned())).await?.value;
    /// # Ok(())
    /// # }
    /// ```
    pub fn allgather<P: Piece>(&self, name: impl Into<String>, piece: P) -> Collective<Allgather<P>> {
        Collective::new(self, name, Allgather { piece, equal: false })
    }

    /// Brings every rank's piece to one rank (`MPI_Gather`, `MPI_Gatherv`): to rank 0, or to
    /// [`root`](Collective::root). The other ranks receive `None`, once that rank has all pieces. Shape and
    /// errors are those of [`allgather`](Self::allgather).
    pub fn gather<P: Piece>(&self, name: impl Into<String>, piece: P) -> Collective<Gather<P>> {
        Collective::new(self, name, Gather { piece, equal: false, roots: vec![Rank(0)] })
    }

    /// Brings one rank's piece to every rank (`MPI_Bcast`): that of rank 0, or of [`root`](Collective::root).
    /// That rank also waits until all have called.
    ///
    /// # Shape
    /// The root gives `Some(piece)`, of any length, and every other rank `None`.
    /// # Errors
    /// [`ReduceError`], when it is awaited.
    ///
    /// ```no_run
    /// use everfold::prelude::*;
    ///
    /// # async fn program(session: Session) -> everfold::Result<()> {
    /// let read = if session.rank() == Rank(0) { Some(std::fs::read("input")?) } else { None };
    /// let input = session.broadcast("input", read).await?.value;
    /// println!("{} bytes", input.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast<P: Piece>(&self, name: impl Into<String>, piece: Option<P>) -> Collective<Broadcast<P>> {
        Collective::new(self, name, Broadcast { piece, root: Rank(0) })
    }

    /// Brings to every rank its piece of the pieces of one rank (`MPI_Scatter`, `MPI_Scatterv`): of rank 0,
    /// or of [`root`](Collective::root).
    ///
    /// # Shape
    /// The root gives a piece for each rank of the group, in their order, or an array that is cut
    /// [evenly](crate::Even). Every other rank gives `None`.
    /// # Errors
    /// [`ReduceError`], when it is awaited.
    ///
    /// ```no_run
    /// use everfold::prelude::*;
    ///
    /// # async fn program(session: Session) -> Result<(), ReduceError> {
    /// let table = (session.rank() == Rank(0)).then(|| Even(vec![1.0; 1000 * session.size() as usize]));
    /// let mine = session.scatter("rows", table).await?.value;
    /// assert_eq!(mine.len(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scatter<B: Blocks>(&self, name: impl Into<String>, blocks: Option<B>) -> Collective<Scatter<B>> {
        Collective::new(self, name, Scatter { blocks, root: Rank(0) })
    }

    /// Brings to every rank its piece of the pieces of each rank (`MPI_Alltoall`, `MPI_Alltoallv`).
    ///
    /// # Shape
    /// Each rank gives a piece for each rank of the group, in their order, or an array that is cut
    /// [evenly](crate::Even), which has the same length on all ranks.
    /// # Errors
    /// [`ReduceError`], when it is awaited.
    ///
    /// ```no_run
    /// use everfold::prelude::*;
    ///
    /// # async fn program(session: Session) -> Result<(), ReduceError> {
    /// // The length of each piece is the receiver's rank.
    /// let given: Vec<Vec<u64>> = (0..session.size()).map(|to| vec![7; to as usize]).collect();
    /// let received = session.exchange("keys", given).await?.value;
    /// assert_eq!(received.len() as u32, session.rank().0 * session.size());
    /// # Ok(())
    /// # }
    /// ```
    pub fn exchange<B: Blocks>(&self, name: impl Into<String>, blocks: B) -> Collective<Exchange<B>> {
        Collective::new(self, name, Exchange(blocks))
    }

    /// Waits until every rank has called it (`MPI_Barrier`, `MPI_Ibarrier`). It costs as much as an
    /// [`allreduce`](Self::allreduce) of one byte.
    pub fn barrier(&self, name: impl Into<String>) -> Collective<Barrier> {
        Collective::new(self, name, Barrier(()))
    }
}

impl<P: Piece> Collective<Allgather<P>> {
    /// Refuses pieces that differ in their number of elements ([`Aspect::Length`](crate::Aspect::Length)).
    /// Objects are not compared.
    pub fn equal(self) -> Self {
        self.with(|operation| operation.equal = true)
    }
}

impl<P: Piece> Collective<Gather<P>> {
    /// Delivers the pieces to `rank` of the job instead of rank 0.
    pub fn root(self, rank: impl Into<Rank>) -> Self {
        self.roots([rank])
    }

    /// Delivers the pieces to the first of these ranks that lives when all have come.
    pub fn roots(self, ranks: impl IntoIterator<Item = impl Into<Rank>>) -> Self {
        self.with(|operation| operation.roots = ranks.into_iter().map(Into::into).collect())
    }

    /// Refuses pieces that do not all have as many elements, as that of [`Allgather`] does.
    pub fn equal(self) -> Self {
        self.with(|operation| operation.equal = true)
    }
}

impl<P: Piece> Collective<Broadcast<P>> {
    /// The piece is that of `rank` of the job instead of rank 0. All ranks give the same.
    pub fn root(self, rank: impl Into<Rank>) -> Self {
        self.with(|operation| operation.root = rank.into())
    }
}

impl<B: Blocks> Collective<Scatter<B>> {
    /// The pieces are those of `rank` of the job instead of rank 0. All ranks give the same.
    pub fn root(self, rank: impl Into<Rank>) -> Self {
        self.with(|operation| operation.root = rank.into())
    }
}

macro_rules! debug {
    ($($name:ident<$type:ident>),*) => {
        $(impl<$type> fmt::Debug for $name<$type> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })*
    };
}

debug!(Allgather<P>, Gather<P>, Broadcast<P>, Scatter<B>, Exchange<B>);

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Barrier")
    }
}
