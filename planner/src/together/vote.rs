//! What ranks tell each other when they may save a checkpoint together.
//!
//! Each gives numbers, the least of each counts, and so all ranks come to the same. Between two checkpoints
//! few votes are held: each says how many calls of `checkpoint` may pass until the next one.

use alloc::vec::Vec;

/// What a rank gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Calls of `checkpoint` since the last one was saved, with this one.
    pub call: u64,
    /// Stands for all reductions of all ranks that were called since then.
    pub history: u64,
    /// The last generation that this rank has tried to save.
    pub generation: u64,
    /// The generation that is on its way to the directory, 0 for none.
    pub open: u64,
    /// How far this rank's part of it is.
    pub part: PartState,
    /// Calls of `checkpoint` until the next one is due, as far as this rank can tell.
    pub calls_until_due: u64,
    /// Whether it is to be saved in any case.
    pub now: bool,
    /// Whether all wait until it is complete in the directory.
    pub durable: bool,
}

/// How far a rank's part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartState {
    /// This rank has failed to write it.
    Failed(u32),
    /// It is being written.
    Writing,
    /// It is on disk, or there is none to write.
    There,
}

/// What all ranks have given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// What has become of the generation that was on its way to the directory, if one was.
    pub settled: Option<(u64, Settled)>,
    /// What is done at this call.
    pub verdict: Verdict,
    /// Whether all wait until the checkpoint is complete in the directory.
    pub durable: bool,
}

/// What has become of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// All parts are there.
    Complete,
    /// This rank could not write.
    Failed(u32),
}

/// What is done at a call of `checkpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All save this generation.
    Save(u64),
    /// Nobody does, and so many calls may pass until the next vote.
    NotDue(u64),
    /// All wait until their parts are written, and vote again.
    Wait,
    /// They are not at the same call.
    Apart,
}

/// Most calls that pass until the next vote: a program may become slow.
const CALLS_MOST: u64 = 1 << 20;
const NUMBERS: usize = 11;
const WRITING: u64 = 1 << 32;
const THERE: u64 = WRITING + 1;

impl Vote {
    /// The numbers of which the least are taken. Beside each that all ranks have to have alike stands its
    /// opposite, whose least is the opposite of the most.
    pub fn numbers(&self) -> Vec<u64> {
        let Self { call, history, generation, open, part, calls_until_due, now, durable } = *self;
        let part = match part {
            PartState::Failed(rank) => rank.into(),
            PartState::Writing => WRITING,
            PartState::There => THERE,
        };
        let alike = [call, !call, history, !history, !generation, open, !open];
        let mut numbers = alike.to_vec();
        numbers.extend([part, calls_until_due, u64::from(!now), u64::from(!durable)]);
        numbers
    }
}

impl Tally {
    /// What the least of all numbers say.
    ///
    /// # Panics
    /// If they are not as many as those of a [`Vote`].
    pub fn of(least: &[u64]) -> Self {
        let &[
            call,
            no_call,
            history,
            no_history,
            no_generation,
            open,
            no_open,
            part,
            until_due,
            not_now,
            not_durable,
        ] = <&[u64; NUMBERS]>::try_from(least).expect("the ranks of a job run the same program");
        let is_alike = (call, history) == (!no_call, !no_history);
        let (most_open, generation) = (!no_open, !no_generation);
        let settled = match part {
            _ if most_open == 0 => None,
            // A part that one rank knows of and another does not is never complete.
            _ if open != most_open => Some((most_open, Settled::Failed(0))),
            THERE.. => Some((most_open, Settled::Complete)),
            WRITING => None,
            rank => Some((most_open, Settled::Failed(rank as u32))),
        };
        let is_writing = most_open > 0 && settled.is_none();
        let (now, durable) = (not_now == 0, not_durable == 0);
        let is_due = now || durable || until_due == 0;
        let verdict = match (is_alike, is_due, is_writing) {
            (false, ..) => Verdict::Apart,
            (true, true, true) if now || durable => Verdict::Wait,
            (true, true, false) => Verdict::Save(generation + 1),
            // It may take long: not at every call.
            (true, _, true) => Verdict::NotDue(call.min(until_due / 2).clamp(1, CALLS_MOST)),
            (true, false, false) => Verdict::NotDue((until_due / 2).clamp(1, CALLS_MOST)),
        };
        Self { settled, verdict, durable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const VOTE: Vote = Vote {
        call: 3,
        history: 77,
        generation: 4,
        open: 0,
        part: PartState::There,
        calls_until_due: 10,
        now: false,
        durable: false,
    };

    fn tally(votes: &[Vote]) -> Tally {
        let mut least = vec![u64::MAX; NUMBERS];
        for vote in votes {
            least = least.iter().zip(vote.numbers()).map(|(least, number)| number.min(*least)).collect();
        }
        Tally::of(&least)
    }

    #[test]
    fn it_is_saved_when_it_is_due_for_one() {
        let due = Vote { calls_until_due: 0, ..VOTE };
        assert_eq!(tally(&[VOTE, due]).verdict, Verdict::Save(5));
        assert_eq!(tally(&[VOTE, Vote { calls_until_due: 300, ..VOTE }]).verdict, Verdict::NotDue(5));
        assert_eq!(tally(&[Vote { calls_until_due: 1, ..VOTE }]).verdict, Verdict::NotDue(1));
        assert_eq!(tally(&[VOTE, Vote { now: true, ..VOTE }]).verdict, Verdict::Save(5));
        let durable = tally(&[VOTE, Vote { durable: true, ..VOTE }]);
        assert_eq!((durable.verdict, durable.durable), (Verdict::Save(5), true));
        // One has failed to save the last one.
        assert_eq!(tally(&[due, Vote { generation: 5, ..due }]).verdict, Verdict::Save(6));
    }

    #[test]
    fn ranks_that_are_not_at_the_same_call_hear_it() {
        for other in [Vote { call: 4, ..VOTE }, Vote { history: 1, ..VOTE }] {
            assert_eq!(tally(&[VOTE, Vote { now: true, ..other }]).verdict, Verdict::Apart);
        }
    }

    #[test]
    fn the_next_one_waits_for_the_one_on_its_way() {
        let there = Vote { open: 4, calls_until_due: 0, ..VOTE };
        let writing = Vote { part: PartState::Writing, ..there };
        let failed = Vote { part: PartState::Failed(1), ..there };
        let complete = tally(&[there, there]);
        assert_eq!(complete.settled, Some((4, Settled::Complete)));
        assert_eq!(complete.verdict, Verdict::Save(5));
        let waits = tally(&[there, writing]);
        assert_eq!((waits.settled, waits.verdict), (None, Verdict::NotDue(1)));
        assert_eq!(tally(&[there, Vote { now: true, ..writing }]).verdict, Verdict::Wait);
        // Who has failed is named, also if others still write.
        assert_eq!(tally(&[there, writing, failed]).settled, Some((4, Settled::Failed(1))));
        let unknown = Vote { open: 0, ..there };
        assert_eq!(tally(&[there, unknown]).settled, Some((4, Settled::Failed(0))));
    }

    #[test]
    fn few_votes_are_held_between_two_checkpoints() {
        let (mut call, mut votes) = (1, 0);
        while let Verdict::NotDue(calls) =
            tally(&[Vote { call, calls_until_due: 1_000_000 - call, ..VOTE }]).verdict
        {
            (call, votes) = (call + calls, votes + 1);
        }
        assert!((999_999..=1_000_000).contains(&call) && votes <= 21, "{call} {votes}");
    }
}
