//! From which generation all ranks of a job go on: hosts with directories of their own may know of different
//! ones.
//!
//! First the ranks agree on a generation, the newest that all of them have found. Then they compare which job
//! has saved what each of them has of it: after a job that went on from an earlier one, the newest of one
//! host may be another job's than the newest of another host, and the one on which they agree is the same all
//! the same.

/// On which generation ranks agree, of which the least number is this: none, if a rank has found none.
pub fn agreed(least: u64) -> Option<u64> {
    (least > 0).then_some(least)
}

/// What a rank gives that has found the generation of this job, 0 if it has not found it. Of each number the
/// least is taken.
pub fn job_numbers(job: u64) -> [u64; 2] {
    [job, !job]
}

/// Whether all ranks have found the generation of one job. The least of the opposite is the opposite of the
/// most.
pub fn is_one_job([least, not_most]: [u64; 2]) -> bool {
    least > 0 && least == !not_most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_to_have_found_the_generation_of_one_job() {
        let least = |jobs: [u64; 2]| {
            let numbers = jobs.map(job_numbers);
            [numbers[0][0].min(numbers[1][0]), numbers[0][1].min(numbers[1][1])]
        };
        assert!(is_one_job(least([7, 7])) && !is_one_job(least([7, 8])));
        assert!(!is_one_job(least([7, 0])) && !is_one_job(least([0, 0])));
        assert_eq!((agreed(0), agreed(3)), (None, Some(3)));
    }
}
