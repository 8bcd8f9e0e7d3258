//! Which rank dies on purpose, and when.

use nix::sys::signal::{Signal, raise};
use std::{io, str::FromStr};

/// A rank that kills itself, as `--kill RANK@FRACTION` says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kill {
    /// Who.
    pub rank: u32,
    /// When this part of its work is done; from 1 on, when it has contributed the last of it.
    pub fraction: f64,
}

impl Kill {
    /// What is to happen to `rank`, if anything is.
    ///
    /// # Errors
    /// If a rank is to be killed that a job of `size` has not got.
    pub fn of(kills: &[Self], rank: u32, size: u32) -> everfold::Result<Option<Self>> {
        match kills.iter().find(|kill| kill.rank >= size) {
            Some(Self { rank, .. }) => {
                let message = format!("rank {rank} cannot be killed in a job of {size}");
                Err(everfold::Error::application(message))
            }
            None => Ok(kills.iter().copied().find(|kill| kill.rank == rank)),
        }
    }

    /// Whether the rank dies when it has done `done` of `all`.
    pub fn is_due(self, done: u64, all: u64) -> bool {
        self.fraction < 1.0 && done >= (self.fraction * all as f64) as u64
    }
}

/// Ends this process as the system does when memory is short: nothing of it runs any more.
///
/// # Panics
/// If a process may not signal itself.
pub fn die() -> ! {
    raise(Signal::SIGKILL).map_err(io::Error::from).expect("a process may signal itself");
    unreachable!("it is dead")
}

impl FromStr for Kill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = text.split_once('@').and_then(|(rank, fraction)| {
            let fraction: f64 = fraction.parse().ok()?;
            (fraction.is_finite() && fraction >= 0.0).then_some(Self { rank: rank.parse().ok()?, fraction })
        });
        match read {
            Some(kill) => Ok(kill),
            None => Err("it has to be a rank and a fraction from 0, such as 3@0.5".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_when_the_part_is_done() {
        let kill = Kill { rank: 1, fraction: 0.5 };
        assert_eq!([0, 3, 4, 5].map(|done| kill.is_due(done, 8)), [false, false, true, true]);
        assert!(!Kill { rank: 1, fraction: 1.0 }.is_due(8, 8));
    }

    #[test]
    fn a_rank_and_a_fraction() {
        assert_eq!("3@0.5".parse(), Ok(Kill { rank: 3, fraction: 0.5 }));
        assert_eq!("12@1".parse(), Ok(Kill { rank: 12, fraction: 1.0 }));
        for text in ["", "3", "3@", "@0.5", "-1@0.5", "3@-0.1", "3@NaN", "3@inf"] {
            assert!(text.parse::<Kill>().is_err(), "{text}");
        }
    }
}
