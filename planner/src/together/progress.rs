//! What a rank counts from one checkpoint to the next.

use super::vote::{PartState, Tally, Verdict, Vote};

/// What a rank counts from one checkpoint to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Calls of `checkpoint` since the last one was saved.
    calls: u64,
    /// At which of them is voted next.
    next_vote: u64,
    /// Stands for all reductions of all ranks that were called since then.
    history: u64,
    /// The last generation that was to be saved.
    generation: u64,
    /// The generation that is on its way to the directory, 0 for none.
    open: u64,
}

impl Progress {
    /// That of a rank that goes on from `generation`, 0 for the beginning.
    pub fn from(generation: u64) -> Self {
        Self { calls: 0, next_vote: 1, history: 0, generation, open: 0 }
    }

    /// Takes in that a reduction of all ranks is called.
    pub fn see_call(&mut self, name: u64, sequence: u64) {
        // In whatever order threads call.
        let call = (name ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.history = self.history.wrapping_add(call ^ call >> 32);
    }

    /// Takes in a call of `checkpoint`. Says whether ranks vote at it.
    pub fn votes(&mut self, in_any_case: bool) -> bool {
        self.calls += 1;
        in_any_case || self.calls >= self.next_vote
    }

    /// Calls of `checkpoint` since the last one was saved.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The generation that is on its way to the directory, if one is.
    pub fn open(&self) -> Option<u64> {
        (self.open > 0).then_some(self.open)
    }

    /// What this rank gives. `saved` is the last generation of its own; `part` is how far it is with the open
    /// one.
    pub fn vote(
        &self,
        saved: u64,
        part: PartState,
        calls_until_due: u64,
        (now, durable): (bool, bool),
    ) -> Vote {
        let Self { calls: call, history, generation, open, .. } = *self;
        let generation = generation.max(saved);
        let part = if open == 0 { PartState::There } else { part };
        Vote { call, history, generation, open, part, calls_until_due, now, durable }
    }

    /// Takes in what all have come to. What was on its way is settled, or is on its way still.
    pub fn take(&mut self, tally: &Tally) {
        if tally.settled.is_some() {
            self.open = 0;
        }
        if let Verdict::NotDue(calls) = tally.verdict {
            self.next_vote = self.calls + calls;
        }
    }

    /// A checkpoint is saved at this call by all ranks: what they compare begins anew.
    pub fn count_anew(&mut self) {
        (self.calls, self.next_vote, self.history) = (0, 1, 0);
    }

    /// All save this generation at this call.
    pub fn save(&mut self, generation: u64) {
        self.count_anew();
        self.generation = generation;
    }

    /// A generation is on its way to the directory from now on.
    pub fn begin(&mut self, generation: u64) {
        self.open = generation;
    }

    /// This rank goes on from `generation`.
    pub fn go_on_from(&mut self, generation: u64) {
        self.generation = generation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::together::vote::Settled;

    #[test]
    fn a_rank_votes_when_the_last_vote_said_and_begins_anew_when_all_save() {
        let mut progress = Progress::from(4);
        assert!(progress.votes(false), "the first call");
        let not_due = Tally { settled: None, verdict: Verdict::NotDue(3), durable: false };
        progress.take(&not_due);
        assert_eq!([0; 4].map(|_| progress.votes(false)), [false, false, true, true]);
        progress.see_call(7, 1);
        let vote = progress.vote(2, PartState::Writing, 9, (false, false));
        assert_eq!((vote.call, vote.generation, vote.open, vote.part), (5, 4, 0, PartState::There));
        assert_ne!(vote.history, 0);
        progress.save(5);
        progress.begin(5);
        let vote = progress.vote(2, PartState::Writing, 9, (false, false));
        assert_eq!((vote.call, vote.history, vote.open, vote.part), (0, 0, 5, PartState::Writing));
        progress.take(&Tally { settled: Some((5, Settled::Complete)), ..not_due });
        assert_eq!(progress.open(), None);
    }
}
