//! One rank's contribution to one round, in atomic words.
//!
//! A call on the board takes a few microseconds: the crate that it runs in compiles the short functions in.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use crate::{
    ReductionId, codec,
    message::{Contribution, Data},
    spec::ReductionSpec,
};

use super::Entry;
use crate::atomic::{AtomicU64, Ordering::Relaxed};

/// Words before the terms.
const HEAD_WORDS: usize = 5;
const NAME: usize = 0;
const SEQUENCE: usize = 1;
const CALLED: usize = 2;
const TERMS: usize = 3;
const BODY: usize = 4;
/// Room for the name and the specification: the terms, on which all have to agree.
const TERMS_BYTES_MAX: usize = 1 << 10;
/// In the place of its length, which no other body has, for a body into which only its rank folds.
const PRIVATE: u64 = u64::MAX;

/// Number of words of a slot for bodies of up to `body_bytes` bytes.
pub(super) fn words(body_bytes: usize) -> usize {
    HEAD_WORDS + TERMS_BYTES_MAX.div_ceil(8) + body_bytes.div_ceil(8)
}

/// Where a rank's contribution lies. Its readers have seen in the cell's word that it is there.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a>(pub &'a [AtomicU64]);

impl<'a> Slot<'a> {
    #[inline]
    fn head(self, word: usize) -> u64 {
        self.0[word].load(Relaxed)
    }

    #[inline]
    pub fn reduction(self) -> ReductionId {
        ReductionId { name: self.head(NAME), sequence: self.head(SEQUENCE) }
    }

    /// When it was called.
    #[inline]
    pub fn called(self) -> Duration {
        Duration::from_nanos(self.head(CALLED))
    }

    /// `None` if the contribution does not fit.
    pub fn write(self, called: Duration, entry: &Entry<'_>) -> Option<()> {
        let &Entry { reduction, name, spec, body } = entry;
        let (body, length) = body.map_or((&[][..], PRIVATE), |bytes| (bytes, bytes.len() as u64));
        let mut terms = Vec::with_capacity(TERMS_BYTES_MAX);
        codec::encode_into(&(name, spec), &mut terms).ok().filter(|()| terms.len() <= TERMS_BYTES_MAX)?;
        let (head, rest) = self.0.split_at(HEAD_WORDS);
        let (of_terms, of_body) = rest.split_at(terms.len().div_ceil(8));
        if body.len().div_ceil(8) > of_body.len() {
            return None;
        }
        let values =
            [reduction.name, reduction.sequence, called.as_nanos() as u64, terms.len() as u64, length];
        head.iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
        store(of_terms, &terms);
        store(of_body, body);
        Some(())
    }

    /// Whether both are contributions to the same reduction, with the same arguments.
    #[inline]
    pub fn agrees(self, other: Self) -> bool {
        let is_equal = |word: usize| self.head(word) == other.head(word);
        let (terms, _) = self.split();
        [NAME, SEQUENCE, TERMS].into_iter().chain(HEAD_WORDS..HEAD_WORDS + terms.len()).all(is_equal)
    }

    /// `None` if what lies there is no contribution: somebody has written where nobody may.
    pub fn read(self) -> Option<Contribution> {
        let (terms, _) = self.split();
        let (name, spec): (String, ReductionSpec) =
            codec::decode(&loaded(terms, self.head(TERMS) as usize)?).ok()?;
        let body = self.body().and_then(|(bytes, words)| loaded(words, bytes));
        let data = body.map_or(Data::Private, |bytes| Data::Inline(bytes.into()));
        Some(Contribution { reduction: self.reduction(), name, spec, data })
    }

    /// Length and words of the body, unless only its rank folds anything into it.
    #[inline]
    pub fn body(self) -> Option<(usize, &'a [AtomicU64])> {
        let len = self.head(BODY) as usize;
        self.split().1.get(..len.div_ceil(8)).map(|words| (len, words))
    }

    /// Terms and body.
    #[inline]
    fn split(self) -> (&'a [AtomicU64], &'a [AtomicU64]) {
        let rest = &self.0[HEAD_WORDS..];
        rest.split_at((self.head(TERMS) as usize).div_ceil(8).min(rest.len()))
    }
}

/// Stores `bytes` at the beginning of `words`.
fn store(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks();
    words.iter().zip(whole).for_each(|(word, bytes)| word.store(u64::from_ne_bytes(*bytes), Relaxed));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u64::from_ne_bytes(last), Relaxed);
    }
}

/// Copies what was stored in `words`.
#[inline]
pub(super) fn load(words: &[AtomicU64], to: &mut [u8]) {
    let (whole, rest) = to.as_chunks_mut();
    words.iter().zip(&mut *whole).for_each(|(word, bytes)| *bytes = word.load(Relaxed).to_ne_bytes());
    if let Some(last) = words.get(whole.len()) {
        rest.copy_from_slice(&last.load(Relaxed).to_ne_bytes()[..rest.len()]);
    }
}

/// The first `bytes` of what was stored in `words`.
fn loaded(words: &[AtomicU64], bytes: usize) -> Option<Vec<u8>> {
    let words = words.get(..bytes.div_ceil(8))?;
    let mut loaded = vec![0; bytes];
    load(words, &mut loaded);
    Some(loaded)
}
