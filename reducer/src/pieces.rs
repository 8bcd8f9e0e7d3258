//! Vectors that come in pieces.

use std::ops::Range;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::body::ReducerBody;

/// Pieces of a vector, each computed by some rank. Reduced, they become the whole vector: an allgather.
///
/// ```
/// use everfold::{Pieces, ReducerBody};
///
/// let mut squares = Pieces::at(2, vec![4, 9]);
/// squares.combine(Pieces::at(0, vec![0, 1]));
/// assert_eq!(squares.into_vec(4), Ok(vec![0, 1, 4, 9]));
/// ```
///
/// It is an object like any other: pieces are encoded element by element and travel with the partials that
/// hold them. An allgather that only moves bytes would be faster for long vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pieces<T> {
    /// Ascending, without a common element, and without two that touch.
    pieces: Vec<Piece<T>>,
    /// The first element that has come twice, if one has.
    twice: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Piece<T> {
    start: u64,
    elements: Vec<T>,
}

/// Why pieces are no vector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PiecesError {
    /// Two pieces have an element in common.
    #[error("element {index} of the vector has come twice: give each element at one rank")]
    Twice {
        /// The first such element.
        index: u64,
    },
    /// Elements are missing, or lie beyond the end.
    #[error("the pieces have elements {found:?} where a vector of {len} elements was asked for")]
    Incomplete {
        /// What is there.
        found: Vec<Range<u64>>,
        /// What was asked for.
        len: u64,
    },
}

impl<T> Pieces<T> {
    /// One piece: the elements from index `start` on.
    pub fn at(start: u64, elements: Vec<T>) -> Self {
        let pieces = if elements.is_empty() { Vec::new() } else { vec![Piece { start, elements }] };
        Self { pieces, twice: None }
    }

    /// The ranges that are there, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.pieces.iter().map(Piece::range)
    }

    /// The whole vector of `len` elements.
    ///
    /// # Errors
    /// [`PiecesError::Twice`], [`PiecesError::Incomplete`].
    pub fn into_vec(mut self, len: u64) -> Result<Vec<T>, PiecesError> {
        if let Some(index) = self.twice {
            return Err(PiecesError::Twice { index });
        }
        let is_whole = match len {
            0 => self.pieces.is_empty(),
            len => self.ranges().eq(std::iter::once(0..len)),
        };
        match is_whole {
            true => Ok(self.pieces.pop().map(|piece| piece.elements).unwrap_or_default()),
            false => Err(PiecesError::Incomplete { found: self.ranges().collect(), len }),
        }
    }
}

impl<T> Piece<T> {
    fn range(&self) -> Range<u64> {
        self.start..self.start + self.elements.len() as u64
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> ReducerBody for Pieces<T> {
    fn combine(&mut self, other: Self) {
        self.twice = self.twice.or(other.twice);
        let mine = std::mem::take(&mut self.pieces);
        let mut merged: Vec<Piece<T>> = Vec::new();
        let (mut mine, mut theirs) = (mine.into_iter().peekable(), other.pieces.into_iter().peekable());
        loop {
            let is_mine_next = match (mine.peek(), theirs.peek()) {
                (Some(own), Some(other)) => own.start <= other.start,
                (own, _) => own.is_some(),
            };
            let Some(mut next) = (if is_mine_next { mine.next() } else { theirs.next() }) else { break };
            match merged.last_mut() {
                Some(last) if last.range().end > next.start => {
                    self.twice = self.twice.or(Some(next.start));
                }
                Some(last) if last.range().end == next.start => last.elements.append(&mut next.elements),
                _ => merged.push(next),
            }
        }
        self.pieces = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_missing_or_twice_is_told() {
        let mut pieces = Pieces::at(0, vec!['a', 'b']);
        pieces.combine(Pieces::at(3, vec!['d']));
        let found = vec![0..2, 3..4];
        assert_eq!(pieces.clone().into_vec(4), Err(PiecesError::Incomplete { found, len: 4 }));
        pieces.combine(Pieces::at(1, vec!['b', 'c']));
        assert_eq!(pieces.into_vec(4), Err(PiecesError::Twice { index: 1 }));
        let none = Pieces::<u8>::at(7, Vec::new());
        assert_eq!(none.into_vec(0), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn pieces_become_the_vector_in_any_order(
            lengths in prop::collection::vec(0..6u64, 1..10),
            order in prop::collection::vec(any::<usize>(), 10),
        ) {
            let (mut start, mut pieces) = (0, Vec::new());
            for length in lengths {
                pieces.push(Pieces::at(start, (start..start + length).collect()));
                start += length;
            }
            for at in order {
                let one = pieces.swap_remove(at % pieces.len());
                match pieces.len() {
                    0 => pieces.push(one),
                    left => pieces[at % left].combine(one),
                }
            }
            prop_assert_eq!(pieces.pop().expect("one is left").into_vec(start), Ok((0..start).collect()));
        }
    }
}
