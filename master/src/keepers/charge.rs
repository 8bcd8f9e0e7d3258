//! One owner's original, and how far its copy is.

use alloc::string::String;
use core::{ops::Range, time::Duration};

use everfold_protocol::{ProcessId, Rank, Timestamp};
use smallvec::SmallVec;

/// Processes that may refuse to keep a copy before its owner is told that there is none.
const REFUSALS_MAX: usize = 3;

/// Times that a copy is tried at least before its owner is given up: a master that did not run finds much
/// time passed.
const TRIES_MIN: u32 = 3;

/// How long keepers are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the placed keeper to call.
    pub call: Duration,
    /// For an answer of a keeper, at first; `None` if there is no limit.
    pub answer: Option<Duration>,
    /// For anybody to reach an owner that lives.
    pub reach: Duration,
}

/// What follows when a copy could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: another process is asked already, or there is nothing left to do.
    Nothing,
    /// Another one is asked, if there is one.
    Ask,
    /// There will be no copy.
    GiveUp,
}

/// One owner's original, and how far its copy is.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    keeper: Option<ProcessId>,
    /// The keeper that was asked last, or would be asked first.
    at: Option<Rank>,
    /// Processes that have answered with copies.
    holders: SmallVec<[ProcessId; 1]>,
    /// Processes that have refused, and why the last one did.
    refused: SmallVec<[Rank; 1]>,
    reason: Option<String>,
    segments: u32,
    /// Segments that may have to be ordered yet: those before this one.
    left: u32,
    /// Segments ordered from the keeper and not yet answered.
    ordered: u32,
    /// Segments of which a copy was acknowledged. Some may be gone again.
    kept: u32,
    /// When its owner has contributed.
    since: Timestamp,
    /// When the keeper was asked or heard last, and how long it may be silent.
    heard: Timestamp,
    patience: Duration,
    /// Since when no keeper has reached the owner, and how often that was tried.
    failing: Option<(Timestamp, u32)>,
    /// When it is looked after next.
    due: Option<Timestamp>,
    /// Whether the search has ended.
    given_up: bool,
}

impl Charge {
    /// The charge of an owner that has contributed this many segments.
    pub(super) fn new(now: Timestamp, segments: u32) -> Self {
        Self {
            keeper: None,
            at: None,
            holders: SmallVec::new(),
            refused: SmallVec::new(),
            reason: None,
            segments,
            left: segments,
            ordered: 0,
            kept: 0,
            since: now,
            heard: now,
            patience: Duration::ZERO,
            failing: None,
            due: None,
            given_up: false,
        }
    }

    /// When it is looked after next.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Whether the search for a keeper has ended.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// The keeper that is asked for a copy.
    pub(super) fn keeper(&self) -> Option<ProcessId> {
        self.keeper
    }

    /// The keeper that was asked last, or would be asked first; `None` before the placed keeper was asked.
    pub(super) fn at(&self) -> Option<Rank> {
        self.at
    }

    /// Whether `rank` may be asked: it has not refused.
    pub(super) fn may_ask(&self, rank: Rank) -> bool {
        !self.refused.contains(&rank)
    }

    /// Until when the placed keeper's call is waited for.
    pub(super) fn waits_until(&self, patience: &Patience) -> Timestamp {
        self.since + patience.call
    }

    /// Why the last process refused that was asked.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Takes in that `keeper` is asked from now on.
    pub(super) fn ask(&mut self, now: Timestamp, keeper: ProcessId, patience: &Patience) {
        (self.keeper, self.at) = (Some(keeper), Some(keeper.rank));
        self.heard = now;
        self.patience = self.patience.max(patience.answer.unwrap_or_default());
    }

    /// See [`Keepers::look`](super::Keepers::look).
    pub(super) fn look(&mut self, now: Timestamp, patience: &Patience) -> Next {
        if self.given_up || self.due.take_if(|due| *due <= now).is_none() {
            return Next::Nothing;
        }
        if self.ordered == 0 {
            return Next::Ask;
        }
        if self.answer_due(patience).is_none_or(|due| now < due) {
            return Next::Nothing;
        }
        // It may be slow and answer yet; the next one has twice the time.
        self.patience = self.patience.saturating_mul(2);
        self.fail(self.heard, now, patience)
    }

    /// Takes in that `keeper` has copies of `count` segments. Of `new` of them there was none before.
    pub(super) fn keep(&mut self, now: Timestamp, keeper: ProcessId, count: u32, new: u32) {
        self.answered(now, keeper, count);
        self.failing = None;
        self.kept += new;
        if !self.holders.contains(&keeper) {
            self.holders.push(keeper);
        }
    }

    /// Takes in that `keeper` could not reach the owner, which lives, for this many segments.
    pub(super) fn not_reached(
        &mut self,
        now: Timestamp,
        keeper: ProcessId,
        segments: u32,
        patience: &Patience,
    ) -> Next {
        self.answered(now, keeper, segments);
        if self.keeper != Some(keeper) || self.given_up {
            return Next::Nothing;
        }
        self.fail(now, now, patience)
    }

    /// Takes in that `keeper` refuses to keep this many segments, and why.
    pub(super) fn refuse(
        &mut self,
        now: Timestamp,
        keeper: ProcessId,
        segments: u32,
        reason: String,
    ) -> Next {
        self.answered(now, keeper, segments);
        self.reason = Some(reason);
        if !self.refused.contains(&keeper.rank) {
            self.refused.push(keeper.rank);
        }
        if self.keeper != Some(keeper) || self.given_up {
            return Next::Nothing;
        }
        self.dismiss();
        if self.refused.len() >= REFUSALS_MAX { Next::GiveUp } else { Next::Ask }
    }

    /// Ends the search for a keeper. Returns whether it went on.
    pub(super) fn give_up(&mut self) -> bool {
        self.due = None;
        !core::mem::replace(&mut self.given_up, true)
    }

    /// Looks after the copy at `at`, if not before. Returns whether that is new.
    pub(super) fn look_at(&mut self, at: Timestamp) -> bool {
        let is_new = self.next_look().is_none_or(|due| at < due);
        if is_new {
            self.due = Some(at);
        }
        is_new
    }

    /// When the keeper will have been silent for too long, if that is not watched yet.
    pub(super) fn watch(&mut self, patience: &Patience) -> Option<Timestamp> {
        let due = self.answer_due(patience).filter(|_| self.ordered > 0 && self.next_look().is_none());
        self.due = due.or(self.due);
        due
    }

    /// Starts anew if `dead` has kept copies, or was to.
    pub(super) fn lose(&mut self, dead: ProcessId) {
        if self.keeper == Some(dead) {
            self.dismiss();
            self.at = None;
        }
        // Ordered copies are not ordered twice, unless more is gone.
        if self.holders.contains(&dead) || self.ordered == 0 {
            // It may have left copies, and lose them later with its host.
            self.left = self.segments;
        }
    }

    /// When the keeper will have been silent for too long.
    fn answer_due(&self, patience: &Patience) -> Option<Timestamp> {
        let least = self.heard + patience.answer?;
        let due = self.heard + self.patience;
        Some(self.failing.map_or(due, |(since, _)| due.min((since + patience.reach).max(least))))
    }

    /// The time of the next look. Looks that were due before the keeper was heard last have passed, or were
    /// called off with a reduction that was taken up again.
    fn next_look(&self) -> Option<Timestamp> {
        self.due.filter(|due| *due >= self.heard)
    }

    /// The segments that are ordered next, the last ones first, unless they are kept: a portion, until
    /// `per_order` are under way.
    pub fn next_order(&mut self, per_order: u32, is_kept: impl Fn(u32) -> bool) -> Option<Range<u32>> {
        if self.ordered >= per_order || !self.is_wanted(&is_kept) {
            return None;
        }
        // One portion is read while another is written.
        let most = per_order.div_ceil(2).min(per_order - self.ordered);
        let end = self.left;
        let portion = (end.saturating_sub(most)..end).rev();
        let first = portion.take_while(|index| !is_kept(*index)).last()?;
        Some(first..end)
    }

    /// Whether segments may have to be ordered yet that are not kept.
    pub fn is_wanted(&mut self, is_kept: impl Fn(u32) -> bool) -> bool {
        while self.left > 0 && is_kept(self.left - 1) {
            self.left -= 1;
        }
        self.left > 0
    }

    /// Segments of which a copy was acknowledged. Some may be gone again.
    pub fn kept(&self) -> u32 {
        self.kept
    }

    /// Takes in of how many segments there is a copy.
    pub fn recount(&mut self, kept: u32) {
        self.kept = kept;
    }

    /// Notes that the keeper is asked for these segments.
    pub fn order(&mut self, now: Timestamp, segments: &Range<u32>) {
        if self.ordered == 0 {
            self.heard = now;
        }
        self.ordered += segments.len() as u32;
        self.left = segments.start;
    }

    fn answered(&mut self, now: Timestamp, keeper: ProcessId, segments: u32) {
        if self.keeper == Some(keeper) {
            self.ordered = self.ordered.saturating_sub(segments);
            self.heard = now;
        }
    }

    /// Has another keeper asked, unless none has reached the owner for long.
    fn fail(&mut self, since: Timestamp, now: Timestamp, patience: &Patience) -> Next {
        let (since, tries) = self.failing.map_or((since, 1), |(since, tries)| (since, tries + 1));
        self.failing = Some((since, tries));
        self.dismiss();
        let is_over = now.since(since) >= patience.reach && tries >= TRIES_MIN;
        if is_over { Next::GiveUp } else { Next::Ask }
    }

    /// Expects no more of the keeper, though its answer still counts.
    fn dismiss(&mut self) {
        self.keeper = None;
        self.ordered = 0;
        self.left = self.segments;
    }
}
