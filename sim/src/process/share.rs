//! A process's part in a reduction.

use std::collections::BTreeMap;

use everfold_protocol::{Rank, ReductionSpec, Timestamp, message::ByteRange};
use everfold_worker::machine::{Collecting, End};

use crate::evidence::NONSENSE;

/// A process's part in a reduction.
#[derive(Debug)]
pub(crate) struct Share {
    pub spec: ReductionSpec,
    /// Whether the body travels in messages.
    pub inline: bool,
    /// The segments of the result that were copied here so far.
    pub collected: Vec<Vec<Rank>>,
    /// The pieces that were copied here so far, where contributions are not folded: the first of them.
    pub row: Vec<Rank>,
    /// The parts of the only piece that were copied before it was handed out, by where they begin: how long they are,
    /// and whose piece was found there.
    pub ahead: BTreeMap<u64, (u64, Rank)>,
    /// How they were copied: an array beside its contribution is where the partials were.
    pub how: Collecting,
    /// Whether it is tried in teams.
    pub tried: bool,
    /// Whether the body is shown in spite of what was copied into it.
    pub shown: bool,
    /// How much of the segment that follows on those that were copied is overwritten.
    pub touched: u64,
    /// Whether it has found no room for the result yet, and will the next time.
    pub is_crowded: bool,
    /// How it ends as soon as nobody reads the body any more, and since when it waits for that.
    pub waits: Option<End>,
    pub told: Option<Timestamp>,
    /// Whether it was refused before the whole result was here.
    pub is_refused: bool,
    pub ended: Option<Ended>,
}

impl Share {
    /// Whether the result that was copied here can be read by others: it goes to the application in the end.
    pub fn is_lent(&self) -> bool {
        self.ended.is_none()
    }

    /// Notes that it is refused: what has not come by now does not come any more.
    pub fn refuse(&mut self, segments: usize) {
        self.is_refused |= self.ended.is_none() && self.waits.is_none() && self.collected.len() < segments;
    }

    /// Whether the result lies where the contribution has lain.
    pub fn is_overwritten(&self) -> bool {
        let is_begun = !self.collected.is_empty() || self.touched > 0;
        self.spec.kind.array_bytes().is_some() && is_begun && !self.how.beside
    }

    /// Whose piece is found in a part of the only piece: that of the rank that every byte of it came from.
    pub fn found_ahead(&self, range: ByteRange) -> Option<Rank> {
        let mut next = range.start;
        let mut found = None;
        for (&start, &(len, whose)) in
            self.ahead.range(..range.end()).filter(|(start, (len, _))| *start + len > range.start)
        {
            if start > next {
                return None;
            }
            let fits = found.is_none_or(|found| found == whose);
            (next, found) = (start + len, Some(if fits { whose } else { NONSENSE }));
        }
        found.filter(|_| next >= range.end())
    }

    /// Notes that the result is about to be copied.
    pub fn begin_collecting(&mut self, how: Collecting) {
        if how.afresh {
            self.collected.clear();
            self.row.clear();
            self.ahead.clear();
            self.touched = 0;
        }
        let beside = how.beside && self.spec.kind.array_bytes().is_some() && !self.inline;
        self.how = Collecting { beside, afresh: false };
    }
}

/// What a call came to, as it stands in a result log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub end: End,
    /// As in [`Ended`].
    pub value: Option<Vec<Vec<Rank>>>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// How.
    pub end: End,
    /// The [`evidence`](crate::evidence) in each segment, where this rank was to have the result.
    pub value: Option<Vec<Vec<Rank>>>,
    /// When.
    pub at: Timestamp,
    /// Whether it was refused before the whole result was here.
    pub was_refused: bool,
    /// When its worker said so; where the body is still lent to a reader, the call ends later.
    pub told: Timestamp,
}
