//! From which generation all ranks of a job go on: hosts with directories of their own may know of different
//! ones.
//!
//! Ranks look for the newest generation that all of them have, in rounds: each gives the newest that it has
//! found, and where they differ, the next round asks for none that is newer than the oldest of these. They
//! say which job has saved it, too: of two jobs, each may have saved a generation of the same number, but not
//! at all hosts.

/// A generation that a rank has found, and the job that has saved it.
pub type Found = (u64, u64);

/// What follows from a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// All have found the same: they go on from this generation.
    From(u64),
    /// Each looks for the newest that is not newer than this.
    UpTo(u64),
    /// They have none in common.
    Nothing,
}

/// What a rank gives. Of each number the least is taken. Beside each that all have to have alike stands its
/// opposite, whose least is the opposite of the most.
pub fn numbers(found: Option<Found>) -> [u64; 4] {
    let (generation, job) = found.unwrap_or_default();
    [generation, !generation, job, !job]
}

/// What the least of all numbers say.
pub fn judge([generation, no_generation, job, no_job]: [u64; 4]) -> Round {
    match generation {
        0 => Round::Nothing,
        _ if generation != !no_generation => Round::UpTo(generation),
        _ if job != !no_job => Round::UpTo(generation - 1),
        _ => Round::From(generation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// What ranks come to that have these generations, of these jobs, and after how many rounds.
    fn search(ranks: &[&[Found]]) -> (Round, u32) {
        let (mut most, mut rounds) = (u64::MAX, 0);
        loop {
            let found = |all: &&[Found]| all.iter().rfind(|found| found.0 <= most).copied();
            let given: Vec<[u64; 4]> = ranks.iter().map(|all| numbers(found(all))).collect();
            let least = |at: usize| given.iter().map(|numbers| numbers[at]).min().unwrap();
            rounds += 1;
            match judge([0, 1, 2, 3].map(least)) {
                Round::UpTo(generation) => most = generation,
                round => return (round, rounds),
            }
        }
    }

    #[test]
    fn all_go_on_from_the_newest_that_all_have() {
        assert_eq!(search(&[&[(2, 7), (3, 7)], &[(2, 7), (3, 7)]]), (Round::From(3), 1));
        assert_eq!(search(&[&[(2, 7), (3, 7)], &[(1, 7), (2, 7)]]), (Round::From(2), 2));
        // One could not write the third, and the other not the second.
        assert_eq!(search(&[&[(1, 7), (3, 7)], &[(1, 7), (2, 7)]]), (Round::From(1), 3));
        assert_eq!(search(&[&[(2, 7), (3, 7)], &[]]), (Round::Nothing, 1));
        assert_eq!(search(&[&[(3, 7)], &[(2, 7)]]), (Round::Nothing, 2));
    }

    #[test]
    fn all_have_to_have_found_the_generation_of_one_job() {
        assert_eq!(search(&[&[(2, 7), (3, 7)], &[(2, 7), (3, 8)]]), (Round::From(2), 2));
        assert_eq!(search(&[&[(2, 7), (3, 7)], &[(2, 7), (4, 8)]]), (Round::From(2), 3));
        assert_eq!(search(&[&[(1, 7)], &[(1, 8)]]), (Round::Nothing, 2));
    }
}
