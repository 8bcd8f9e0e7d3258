//! The ladder of a class: in which ways a body may be cut.

use core::time::Duration;

use everfold_protocol::{ReductionSpec, spec::Delivery};

use crate::{condense::may_condense, policy::Policy};

/// How much longer the segments of a rung are than those of the one before.
const STEP: u64 = 4;

/// Segments for each rank that a class begins with at least, if there are shorter ones: each rank folds its
/// share while the root's link has something to carry.
const SEGMENTS_PER_RANK: u64 = 4;
/// Greatest length in bytes of those segments, if there are shorter ones. Longer ones would keep slow links
/// waiting for the first of them.
const FIRST_BYTES_MAX: u64 = 64 << 10;

/// The most that a segment costs for each rank, beside its bytes: messages, and their processor time.
const SEGMENT_TIME: Duration = Duration::from_micros(20);

/// One rung is better than another only if it takes less by more than this part of the time: a sixteenth.
pub(super) const NOTICEABLE: u32 = 16;

/// The rungs that there are for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rungs {
    /// Length of the body in bytes.
    body: u64,
    /// How many ranks have one.
    ranks: u64,
    /// Length in bytes of the segments of the lowest rung.
    shortest: u64,
    /// Where a class begins.
    first: usize,
    /// On which it is cut into segments; at least one.
    cut: usize,
    /// On which it is one piece that one task folds.
    piece: bool,
    /// On which it comes inlined.
    inlined: bool,
}

impl Rungs {
    pub(super) const ONE: Self =
        Self { body: 0, ranks: 0, shortest: 0, first: 0, cut: 1, piece: false, inlined: false };

    /// Those for a body whose first one has segments of that length.
    pub(super) fn of(spec: &ReductionSpec, first: u64, policy: &Policy) -> Self {
        let body = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        if first == 0 || !spec.kind.folds_surely() {
            return Self::ONE;
        }
        let longest = policy.segment_bytes.min(body.saturating_sub(1));
        let longer = (1..).take_while(|rung| length(first, *rung) <= longest).count();
        let ranks = spec.group.len() as u64;
        let least = (SEGMENTS_PER_RANK * ranks).max(1);
        let fits = |rung: &usize| length(first, *rung) <= FIRST_BYTES_MAX.min(body / least);
        let first_rung = (1..=longer).take_while(fits).last().unwrap_or(0);
        let piece = body > first && is_piece(body, spec.group.len(), policy);
        let inlined = may_come_inlined(body, spec, policy);
        Self { body, ranks, shortest: first, first: first_rung, cut: 1 + longer, piece, inlined }
    }

    /// The one with which a class begins.
    pub(super) fn first(self) -> usize {
        self.first
    }

    /// How many there are.
    pub(super) fn count(self) -> usize {
        self.cut + usize::from(self.piece) + usize::from(self.inlined)
    }

    /// Whether a reduction that took this long on the rung `from` can take noticeably less on its neighbour
    /// `to`:
    ///
    /// - Shorter segments spare links a wait: the first segment of each rank has to come before there is
    ///   anything to fold, and its result before there is anything to send back.
    /// - Longer segments spare ranks what each segment costs beside its bytes.
    /// - A short body that comes in one message or one read may spare round trips. How long these take is not
    ///   known, so that is always tried.
    pub(super) fn may_pay(self, from: usize, to: usize, took: Duration) -> bool {
        let higher = from.max(to);
        if self.is_inlined(higher) || self.is_piece(higher) && self.body <= FIRST_BYTES_MAX {
            return true;
        }
        if to < from {
            return self.segments(from) < u64::from(NOTICEABLE) * 2 * self.ranks;
        }
        let spared = (self.segments(from) - self.segments(to)) * self.ranks;
        u128::from(spared) * SEGMENT_TIME.as_nanos() * u128::from(NOTICEABLE) > took.as_nanos()
    }

    /// Nanoseconds for 1024 bytes of a body whose reduction took this long.
    pub(super) fn pace(self, took: Duration) -> u64 {
        let ns = took.as_nanos() * 1024 / u128::from(self.body.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// How many segments a body has on that rung.
    fn segments(self, rung: usize) -> u64 {
        match self.is_piece(rung) {
            true => 1,
            false => self.body.div_ceil(length(self.shortest, rung).max(1)).max(1),
        }
    }

    /// Whether a body is one piece on this rung.
    pub(super) fn is_piece(self, rung: usize) -> bool {
        rung >= self.cut
    }

    /// Whether one task folds all partials of a segment: where each rank has one segment at most, it reads
    /// from all others anyway, and tasks that fold pairs would only be more messages.
    pub(super) fn is_in_one_go(self, rung: usize) -> bool {
        self.segments(rung) <= self.ranks
    }

    /// Whether a body comes inlined on this rung.
    pub(super) fn is_inlined(self, rung: usize) -> bool {
        self.inlined && rung + 1 == self.count()
    }
}

/// Length of the segments of a rung.
pub(super) fn length(first: u64, rung: usize) -> u64 {
    first.saturating_mul(STEP.saturating_pow(rung as u32))
}

/// Whether a body may be folded in one piece, by one task.
fn is_piece(body: u64, ranks: usize, policy: &Policy) -> bool {
    body <= policy.segment_bytes && ranks <= policy.fan_in_max
}

/// Whether a body may come inlined although it is long: the bytes of such bodies that the master holds, and
/// those that it sends on, are bounded.
pub(super) fn may_come_inlined(body: u64, spec: &ReductionSpec, policy: &Policy) -> bool {
    let ranks = spec.group.len() as u64;
    let receivers = match spec.delivery {
        Delivery::Root(_) => 1,
        Delivery::All => ranks,
        Delivery::FirstOf(_) => return false,
    };
    let limits = &policy.limits;
    let held = body.saturating_mul(ranks.saturating_sub(1));
    // Where they are folded before they are sent on, each receiver is sent one body.
    let sent_on = if may_condense(spec) { body } else { held }.saturating_mul(receivers);
    body > limits.inline_bytes_max
        && !limits.ranks_return
        && spec.group.len() <= policy.fan_in_max
        && held.max(sent_on) <= policy.relay_bytes
}
