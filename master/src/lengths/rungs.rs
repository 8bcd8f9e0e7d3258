//! The ladder of a class: in which ways a body may be cut.

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

/// The rungs that there are for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rungs {
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
    pub(super) const ONE: Self = Self { first: 0, cut: 1, piece: false, inlined: false };

    /// Those for a body whose first one has segments of that length.
    pub(super) fn of(spec: &ReductionSpec, first: u64, policy: &Policy) -> Self {
        let body = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        if first == 0 || !spec.kind.folds_surely() {
            return Self::ONE;
        }
        let longest = policy.segment_bytes.min(body.saturating_sub(1));
        let longer = (1..).take_while(|rung| length(first, *rung) <= longest).count();
        let least = (SEGMENTS_PER_RANK * spec.group.len() as u64).max(1);
        let fits = |rung: &usize| length(first, *rung) <= FIRST_BYTES_MAX.min(body / least);
        let first_rung = (1..=longer).take_while(fits).last().unwrap_or(0);
        let piece = body > first && is_piece(body, spec.group.len(), policy);
        Self { first: first_rung, cut: 1 + longer, piece, inlined: may_come_inlined(body, spec, policy) }
    }

    /// The one with which a class begins.
    pub(super) fn first(self) -> usize {
        self.first
    }

    /// How many there are.
    pub(super) fn count(self) -> usize {
        self.cut + usize::from(self.piece) + usize::from(self.inlined)
    }

    /// Whether one task folds a body that is cut as on this rung.
    pub(super) fn is_in_one_go(self, rung: usize) -> bool {
        rung >= self.cut
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

/// Whether a body may come inlined although it is long: what the master has to send on of such bodies is
/// bounded, and what it holds of them.
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
