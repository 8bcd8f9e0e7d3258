//! What a rank counts from one checkpoint to the next.

use super::vote::{Settled, Stage, Tally, Verdict, Vote, Written};

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
    /// How far that is.
    stage: Stage,
    /// The newest generation that all hosts are known to have, 0 for the beginning.
    common: Option<u64>,
}

impl Progress {
    /// That of a rank that goes on from `generation`, 0 for the beginning.
    pub fn from(generation: u64) -> Self {
        let common = Some(generation);
        Self { calls: 0, next_vote: 1, history: 0, generation, open: 0, stage: Stage::Parts, common }
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

    /// The newest generation that all hosts are known to have, 0 for the beginning. A process that has come
    /// back does not know it before the next one is complete.
    pub fn common(&self) -> Option<u64> {
        self.common
    }

    /// What this rank gives. `saved` is the last generation of its own; `written` is how far it is with what
    /// it writes of the open one.
    pub fn vote(
        &self,
        saved: u64,
        written: Written,
        calls_until_due: u64,
        (now, durable): (bool, bool),
    ) -> Vote {
        let Self { calls: call, history, generation, open, stage, .. } = *self;
        let generation = generation.max(saved);
        let written = if open == 0 { Written::There } else { written };
        Vote { call, history, generation, open, stage, written, calls_until_due, now, durable }
    }

    /// Takes in what all have come to. What was on its way is settled, or is on its way still.
    pub fn take(&mut self, tally: &Tally) {
        match tally.settled {
            Some((generation, Settled::Listed)) => (self.open, self.stage) = (generation, Stage::Manifests),
            Some((generation, Settled::Complete)) => {
                self.begin(0);
                self.common = Some(generation);
            }
            Some((generation, Settled::Failed(_) | Settled::Unknown)) => {
                (self.open, self.stage) = (generation, Stage::Removal);
            }
            Some((_, Settled::Removed)) => self.begin(0),
            None => {}
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

    /// A generation is on its way to the directory from now on, or none if it is 0.
    pub fn begin(&mut self, generation: u64) {
        (self.open, self.stage) = (generation, Stage::Parts);
    }

    /// This rank goes on from `generation`, which all hosts are known to have, or may not have.
    pub fn go_on_from(&mut self, generation: u64, is_common: bool) {
        self.generation = generation;
        self.common = is_common.then_some(generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_votes_when_the_last_vote_said_and_begins_anew_when_all_save() {
        let mut progress = Progress::from(4);
        assert!(progress.votes(false), "the first call");
        let not_due = Tally { settled: None, verdict: Verdict::NotDue(3), durable: false };
        progress.take(&not_due);
        assert_eq!([0; 4].map(|_| progress.votes(false)), [false, false, true, true]);
        progress.see_call(7, 1);
        let vote = progress.vote(2, Written::Writing, 9, (false, false));
        assert_eq!((vote.call, vote.generation, vote.open, vote.written), (5, 4, 0, Written::There));
        assert_ne!(vote.history, 0);
        progress.save(5);
        progress.begin(5);
        let vote = progress.vote(2, Written::Writing, 9, (false, false));
        assert_eq!((vote.call, vote.history, vote.open, vote.written), (0, 0, 5, Written::Writing));
        progress.take(&Tally { settled: Some((5, Settled::Complete)), ..not_due });
        assert_eq!(progress.open(), None);
    }

    #[test]
    fn a_generation_is_common_once_all_hosts_have_its_manifest() {
        let settled = |settled| Tally { settled: Some(settled), verdict: Verdict::NotDue(1), durable: false };
        let mut progress = Progress::from(0);
        progress.go_on_from(3, true);
        progress.begin(4);
        progress.take(&settled((4, Settled::Listed)));
        let vote = progress.vote(4, Written::Writing, 9, (false, false));
        assert_eq!((vote.open, vote.stage, progress.common()), (4, Stage::Manifests, Some(3)));
        progress.take(&settled((4, Settled::Failed(2))));
        assert_eq!((progress.open(), progress.common()), (Some(4), Some(3)), "one host does not have it");
        let vote = progress.vote(4, Written::Writing, 9, (false, false));
        assert_eq!((vote.open, vote.stage, vote.written), (4, Stage::Removal, Written::Writing));
        progress.take(&settled((4, Settled::Removed)));
        assert_eq!((progress.open(), progress.common()), (None, Some(3)));
        assert_eq!(progress.vote(4, Written::There, 9, (false, false)).stage, Stage::Parts);
        progress.begin(5);
        let vote = progress.vote(5, Written::Writing, 9, (false, false));
        assert_eq!((vote.open, vote.stage), (5, Stage::Parts));
        progress.take(&settled((5, Settled::Listed)));
        progress.take(&settled((5, Settled::Complete)));
        assert_eq!((progress.open(), progress.common()), (None, Some(5)));

        // A process that has come back, and finds the manifest there, hears of the rest in its log.
        let mut back = Progress::from(0);
        back.go_on_from(5, false);
        assert_eq!(back.common(), None);
        back.take(&settled((5, Settled::Listed)));
        let vote = back.vote(5, Written::There, 9, (false, false));
        assert_eq!((vote.open, vote.stage), (5, Stage::Manifests), "as the others");
    }
}
