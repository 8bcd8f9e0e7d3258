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
    /// How far that is.
    pub stage: Stage,
    /// How far this rank is with what it has to do for that.
    pub written: Written,
    /// Calls of `checkpoint` until the next one is due, as far as this rank can tell.
    pub calls_until_due: u64,
    /// Whether it is to be saved in any case.
    pub now: bool,
    /// Whether all wait until it is complete in the directory.
    pub durable: bool,
}

/// How far a generation is that is on its way to the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Ranks write their parts.
    Parts = 0,
    /// All parts are there, and hosts write the manifest.
    Manifests = 1,
    /// It was given up, and hosts remove what is there of it.
    Removal = 2,
}

/// How far a rank is with what it writes, or removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
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
    /// All parts are there: each host writes the manifest.
    Listed,
    /// Each host has the manifest. From now on, none needs the generation before.
    Complete,
    /// This rank could not write. Nobody writes anything of it any more: each host removes what is there of
    /// it.
    Failed(u32),
    /// A rank that has come back does not know of it. The same follows.
    Unknown,
    /// What was there of one that was given up takes no room any more.
    Removed,
}

/// What is done at a call of `checkpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All save this generation.
    Save(u64),
    /// Nobody does, and so many calls may pass until the next vote.
    NotDue(u64),
    /// All wait until what they write is written, and vote again.
    Wait,
    /// They are not at the same call.
    Apart,
}

/// Most calls that pass until the next vote: a program may become slow.
const CALLS_MOST: u64 = 1 << 20;
const NUMBERS: usize = 11;
const STAGE_BITS: u32 = 2;
const WRITING: u64 = 0;
const FAILED: u64 = 1;
const THERE: u64 = FAILED + (1 << 32);

impl Vote {
    /// The numbers of which the least are taken. Beside each that all ranks have to have alike stands its
    /// opposite, whose least is the opposite of the most.
    pub fn numbers(&self) -> Vec<u64> {
        let Self { call, history, generation, open, stage, written, calls_until_due, now, durable } = *self;
        let written = match written {
            Written::Failed(rank) => FAILED + u64::from(rank),
            Written::Writing => WRITING,
            Written::There => THERE,
        };
        // A generation, and how far it is.
        let open = open << STAGE_BITS | stage as u64;
        let alike = [call, !call, history, !history, !generation, open, !open];
        let mut numbers = alike.to_vec();
        numbers.extend([written, calls_until_due, u64::from(!now), u64::from(!durable)]);
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
            written,
            until_due,
            not_now,
            not_durable,
        ] = <&[u64; NUMBERS]>::try_from(least).expect("the ranks of a job run the same program");
        let is_alike = (call, history) == (!no_call, !no_history);
        let (most_open, generation) = (!no_open, !no_generation);
        let is_in = |stage: Stage| most_open & ((1 << STAGE_BITS) - 1) == stage as u64;
        let settled = match written {
            // What is given up is removed: nobody writes there any more.
            _ if most_open == 0 => None,
            WRITING => None,
            // A generation that one rank knows of and another does not is never complete.
            _ if open != most_open => Some(Settled::Unknown),
            // What cannot be removed goes when a later one is complete.
            _ if is_in(Stage::Removal) => Some(Settled::Removed),
            THERE.. if is_in(Stage::Manifests) => Some(Settled::Complete),
            THERE.. => Some(Settled::Listed),
            rank => Some(Settled::Failed((rank - FAILED) as u32)),
        };
        // The next one begins when each host has the manifest: until then the one before stays. It may need
        // the room of one that was given up.
        let is_over = matches!(settled, Some(Settled::Complete | Settled::Removed));
        let is_writing = most_open > 0 && !is_over;
        let settled = settled.map(|settled| (most_open >> STAGE_BITS, settled));
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
        stage: Stage::Parts,
        written: Written::There,
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
        let writing = Vote { written: Written::Writing, ..there };
        let failed = Vote { written: Written::Failed(1), ..there };
        let waits = tally(&[there, writing]);
        assert_eq!((waits.settled, waits.verdict), (None, Verdict::NotDue(1)));
        assert_eq!(tally(&[there, Vote { now: true, ..writing }]).verdict, Verdict::Wait);
        assert_eq!(tally(&[there, writing, failed]).settled, None, "one still writes what is to be removed");
        assert_eq!(tally(&[there, failed]).settled, Some((4, Settled::Failed(1))));
        let unknown = Vote { open: 0, ..there };
        assert_eq!(tally(&[there, unknown]).settled, Some((4, Settled::Unknown)));
        assert_eq!(tally(&[writing, unknown]).settled, None);
    }

    #[test]
    fn the_next_one_waits_for_the_manifests_of_all_hosts() {
        let there = Vote { open: 4, calls_until_due: 0, ..VOTE };
        let listed = tally(&[there, there]);
        assert_eq!((listed.settled, listed.verdict), (Some((4, Settled::Listed)), Verdict::NotDue(1)));
        assert_eq!(tally(&[there, Vote { now: true, ..there }]).verdict, Verdict::Wait);
        let has = Vote { stage: Stage::Manifests, ..there };
        let writing = Vote { written: Written::Writing, ..has };
        let waits = tally(&[has, writing]);
        assert_eq!((waits.settled, waits.verdict), (None, Verdict::NotDue(1)));
        let complete = tally(&[has, has]);
        assert_eq!((complete.settled, complete.verdict), (Some((4, Settled::Complete)), Verdict::Save(5)));
        let failed = tally(&[has, Vote { written: Written::Failed(2), ..has }]);
        assert_eq!((failed.settled, failed.verdict), (Some((4, Settled::Failed(2))), Verdict::NotDue(1)));
        assert_eq!(tally(&[has, there]).settled, Some((4, Settled::Unknown)), "one does not know so much");
    }

    #[test]
    fn the_next_one_waits_until_what_was_given_up_is_removed() {
        let gone = Vote { open: 4, calls_until_due: 0, stage: Stage::Removal, ..VOTE };
        let removing = Vote { written: Written::Writing, ..gone };
        let waits = tally(&[gone, removing]);
        assert_eq!((waits.settled, waits.verdict), (None, Verdict::NotDue(1)));
        for last in [gone, Vote { written: Written::Failed(0), ..gone }] {
            let removed = tally(&[gone, last]);
            assert_eq!((removed.settled, removed.verdict), (Some((4, Settled::Removed)), Verdict::Save(5)));
        }
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
