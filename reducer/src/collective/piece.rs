//! The pieces that a rank gives to a collective operation, and receives from it.

use std::{fmt, ops::Deref};

use bytemuck::Pod;
use everfold_protocol::{Path, Rank};
use everfold_runtime::{body::BodyError, memory::buffer::Memory};
use serde::{Serialize, de::DeserializeOwned};

use crate::{array::Array, encoding, operations::Elements};

/// The data that a rank gives: `Vec<T>` or [`Array<T>`] of plain old data, which travels as it lies in
/// memory, or an [`Object`] of any serde type.
pub trait Piece: Send + Sized + 'static {
    /// Several of them, as they are received: [`Gathered`] elements, or a `Vec` of objects.
    type Row: Send + 'static;
    /// One of them, as it is received: an [`Array`], or the object.
    type One: Send + 'static;

    #[doc(hidden)]
    fn what() -> String;

    #[doc(hidden)]
    fn into_memory(self) -> Result<Box<dyn Memory>, BodyError>;

    /// Number of its elements, if it has any.
    #[doc(hidden)]
    fn length(memory: &dyn Memory) -> Option<u64>;

    #[doc(hidden)]
    fn row(received: Received) -> Result<Self::Row, BodyError>;

    #[doc(hidden)]
    fn one(received: Received) -> Result<Self::One, BodyError>;
}

/// Pieces without their type.
#[doc(hidden)]
pub struct Received {
    pub(super) memory: Box<dyn Memory>,
    pub(super) lengths: Vec<u64>,
    /// The ranks that have given them.
    pub(super) ranks: Path,
}

/// A value of any serde type as a piece. Bodies of a reduction are encoded alike: see
/// [`ReducerBody`](crate::ReducerBody#encoding).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<T>(pub T);

/// Arrays of several ranks, one after the other in the order of the ranks. Derefs to all elements.
pub struct Gathered<T> {
    elements: Array<T>,
    ranks: Path,
    /// Where the piece of each rank ends.
    ends: Vec<usize>,
}

impl<T: Pod + Send + Sync> Gathered<T> {
    /// The ranks whose pieces are here, in ascending order. A rank that is missing has none.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks.iter()
    }

    /// The piece of `rank`, if it is here.
    pub fn of(&self, rank: impl Into<Rank>) -> Option<&[T]> {
        let at = self.ranks.position(rank.into())?;
        Some(self.piece(at))
    }

    /// The piece of each rank, in ascending order of ranks.
    pub fn iter(&self) -> impl Iterator<Item = (Rank, &[T])> + '_ {
        (0..).zip(self.ranks.iter()).map(|(at, rank)| (rank, self.piece(at)))
    }

    /// All elements.
    pub fn into_array(self) -> Array<T> {
        self.elements
    }

    fn piece(&self, at: usize) -> &[T] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.elements[start..self.ends[at]]
    }
}

impl<T: Pod> Deref for Gathered<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.elements
    }
}

impl<T: Pod + fmt::Debug + Send + Sync> fmt::Debug for Gathered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

fn unfit(what: &str) -> BodyError {
    BodyError::Failed(format!("what came are no {what}"))
}

impl<A: Elements> Piece for A {
    type Row = Gathered<A::Element>;
    type One = Array<A::Element>;

    fn what() -> String {
        std::any::type_name::<A::Element>().to_owned()
    }

    fn into_memory(self) -> Result<Box<dyn Memory>, BodyError> {
        Ok(Elements::into_memory(self))
    }

    fn length(memory: &dyn Memory) -> Option<u64> {
        Some((memory.bytes().len() / size_of::<A::Element>().max(1)) as u64)
    }

    fn row(received: Received) -> Result<Self::Row, BodyError> {
        let Received { memory, lengths, ranks } = received;
        let element = size_of::<A::Element>().max(1) as u64;
        let is_whole = |len: &u64| len.is_multiple_of(element);
        if lengths.len() != ranks.len() || !lengths.iter().all(is_whole) {
            return Err(unfit(&Self::what()));
        }
        let ends = lengths.iter().scan(0, |end, len| {
            *end += (len / element) as usize;
            Some(*end)
        });
        let ends = ends.collect();
        let elements = Array::filled(memory).ok_or_else(|| unfit(&Self::what()))?;
        Ok(Gathered { elements, ranks, ends })
    }

    fn one(received: Received) -> Result<Self::One, BodyError> {
        Array::filled(received.memory).ok_or_else(|| unfit(&Self::what()))
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Piece for Object<T> {
    type Row = Vec<T>;
    type One = T;

    fn what() -> String {
        format!("object {}", std::any::type_name::<T>())
    }

    fn into_memory(self) -> Result<Box<dyn Memory>, BodyError> {
        Ok(Box::new(encoding::encode(&self.0)?))
    }

    fn length(_: &dyn Memory) -> Option<u64> {
        None
    }

    fn row(received: Received) -> Result<Self::Row, BodyError> {
        let mut bytes = received.memory.bytes();
        let mut next = |len: u64| {
            let (piece, rest) = bytes.split_at_checked(len as usize).ok_or_else(|| unfit(&Self::what()))?;
            bytes = rest;
            encoding::decode(piece)
        };
        received.lengths.iter().map(|len| next(*len)).collect()
    }

    fn one(received: Received) -> Result<Self::One, BodyError> {
        encoding::decode(received.memory.bytes())
    }
}
