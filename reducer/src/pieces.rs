//! Vectors that come in pieces.

use std::{mem, ops::Range};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::body::ReducerBody;

/// A piece of at least this many elements is joined with the one before it only when the vector is whole:
/// each long piece is moved once. Shorter ones are joined at once, so that the list of pieces stays short.
const JOINED_LATER: usize = if cfg!(test) { 3 } else { 1024 };

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
/// hold them. An allgather that only moves bytes would be faster for long vectors. The encoding depends on
/// the order in which pieces were joined: compare values, and not their encodings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pieces<T> {
    /// None is empty. Ascending, without a common element.
    pieces: Vec<Piece<T>>,
    /// The first element that has come twice, if one has.
    twice: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
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
        let touching = self.pieces.chunk_by(|piece, next| piece.end() == next.start);
        touching.map(|pieces| pieces[0].start..pieces[pieces.len() - 1].end())
    }

    /// The whole vector of `len` elements.
    ///
    /// # Errors
    /// [`PiecesError::Twice`], [`PiecesError::Incomplete`].
    pub fn into_vec(self, len: u64) -> Result<Vec<T>, PiecesError> {
        if let Some(index) = self.twice {
            return Err(PiecesError::Twice { index });
        }
        let is_whole = match len {
            0 => self.pieces.is_empty(),
            len => self.ranges().eq(std::iter::once(0..len)),
        };
        if !is_whole {
            return Err(PiecesError::Incomplete { found: self.ranges().collect(), len });
        }
        let mut pieces = self.pieces.into_iter().map(|piece| piece.elements);
        let mut whole = pieces.next().unwrap_or_default();
        whole.reserve_exact(len as usize - whole.len());
        pieces.for_each(|mut piece| whole.append(&mut piece));
        Ok(whole)
    }

    /// Adds a piece that begins where the last one does, or later.
    fn add(&mut self, mut next: Piece<T>) {
        match self.pieces.last_mut() {
            Some(last) if last.end() > next.start => self.twice = self.twice.or(Some(next.start)),
            Some(last) if last.end() == next.start && next.elements.len() < JOINED_LATER => {
                last.elements.append(&mut next.elements);
            }
            _ => self.pieces.push(next),
        }
    }
}

impl<T> Piece<T> {
    fn end(&self) -> u64 {
        self.start + self.elements.len() as u64
    }
}

/// The same elements at the same places.
impl<T: PartialEq> PartialEq for Pieces<T> {
    fn eq(&self, other: &Self) -> bool {
        fn elements<T>(pieces: &Pieces<T>) -> impl Iterator<Item = &T> {
            pieces.pieces.iter().flat_map(|piece| &piece.elements)
        }
        self.twice == other.twice && self.ranges().eq(other.ranges()) && elements(self).eq(elements(other))
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> ReducerBody for Pieces<T> {
    fn combine(&mut self, other: Self) {
        self.twice = self.twice.or(other.twice);
        let is_behind = |theirs: &Piece<T>| self.pieces.last().is_none_or(|own| own.start <= theirs.start);
        if other.pieces.first().is_none_or(is_behind) {
            return other.pieces.into_iter().for_each(|piece| self.add(piece));
        }
        let mine = mem::take(&mut self.pieces);
        let (mut mine, mut theirs) = (mine.into_iter().peekable(), other.pieces.into_iter().peekable());
        loop {
            let is_mine_next = match (mine.peek(), theirs.peek()) {
                (Some(own), Some(other)) => own.start <= other.start,
                (own, _) => own.is_some(),
            };
            let Some(next) = (if is_mine_next { mine.next() } else { theirs.next() }) else { break };
            self.add(next);
        }
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

    #[test]
    fn long_pieces_are_joined_when_the_vector_is_whole() {
        let long = |start: u64| Pieces::at(start, (start..start + JOINED_LATER as u64).collect());
        let len = JOINED_LATER as u64;
        let mut pieces = long(len);
        pieces.combine(long(0));
        pieces.combine(Pieces::at(2 * len, vec![2 * len]));
        assert_eq!(pieces.pieces.len(), 2, "only the short one is joined");
        let mut other = Pieces::at(0, (0..2 * len).collect());
        other.combine(Pieces::at(2 * len, vec![2 * len]));
        assert_eq!((other.pieces.len(), &other), (1, &pieces));
        assert!(pieces.ranges().eq(std::iter::once(0..2 * len + 1)));
        let mut twice = pieces.clone();
        twice.combine(Pieces::at(len - 1, vec![0]));
        assert_eq!(twice.into_vec(2 * len + 1), Err(PiecesError::Twice { index: len - 1 }));
        assert_eq!(pieces.into_vec(2 * len + 1), Ok((0..=2 * len).collect()));
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

        #[test]
        fn elements_that_come_twice_are_found_in_any_order(
            ranges in prop::collection::vec((0..30u64, 0..8u64), 1..8),
        ) {
            let has = |(start, len): &(u64, u64), index| (*start..start + len).contains(&index);
            let counts = |index: u64| ranges.iter().filter(|range| has(range, index)).count();
            let mut pieces = Pieces::at(0, Vec::new());
            for (start, len) in &ranges {
                pieces.combine(Pieces::at(*start, (*start..start + len).collect()));
            }
            let is_whole = (0..38).all(|index| counts(index) == usize::from(index < 30));
            let has_twice = (0..38).any(|index| counts(index) > 1);
            let whole = pieces.into_vec(30);
            prop_assert_eq!(matches!(whole, Err(PiecesError::Twice { .. })), has_twice);
            prop_assert_eq!(whole.is_ok(), is_whole);
        }
    }
}
