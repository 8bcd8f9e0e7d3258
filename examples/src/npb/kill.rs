//! Which rank dies on purpose, and when.

use everfold::Session;
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::getppid,
};
use std::{io, str::FromStr};

/// What a kernel is told about deaths.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Deaths {
    /// Kills ranks, each in the middle of its work when this part is done; EP's from 1 on when they have
    /// contributed.
    #[arg(long, value_name = "RANK@FRACTION", value_delimiter = ',')]
    kill: Vec<Mark>,
    /// The same, with the whole host of each of these ranks: its agent and all ranks there. Without the host of
    /// rank 0, which hosts the master, all ends.
    #[arg(long, value_name = "RANK@FRACTION", value_delimiter = ',')]
    kill_host: Vec<Mark>,
}

/// A rank and a number of it, as in `--kill 3@0.5`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Which rank.
    pub rank: u32,
    /// What is said of it, from 0.
    pub number: f64,
}

/// What is to happen to a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Death {
    /// When this part of its work is done; from 1 on, when it has contributed the last of it.
    pub fraction: f64,
    /// Whether its host dies with it.
    takes_host: bool,
}

impl Deaths {
    /// What is to happen to this rank, if anything is. A rank that has come back dies no more.
    ///
    /// # Errors
    /// If a rank is to be killed that the job has not got.
    pub fn of(&self, session: &Session) -> everfold::Result<Option<Death>> {
        let has_come_back = std::env::var("EVERFOLD_INCARNATION").is_ok_and(|lives| lives != "0");
        Ok(self.of_rank(session.rank().0, session.size())?.filter(|_| !has_come_back))
    }

    fn of_rank(&self, rank: u32, size: u32) -> everfold::Result<Option<Death>> {
        let mut all = self.kill.iter().chain(&self.kill_host);
        if let Some(Mark { rank, .. }) = all.find(|kill| kill.rank >= size) {
            let message = format!("rank {rank} cannot be killed in a job of {size}");
            return Err(everfold::Error::application(message));
        }
        let of = |kills: &[Mark], takes_host| {
            let kill = kills.iter().find(|kill| kill.rank == rank)?;
            Some(Death { fraction: kill.number, takes_host })
        };
        Ok(of(&self.kill_host, true).or_else(|| of(&self.kill, false)))
    }
}

impl Death {
    /// Dies, if that is due when the rank has done `done` of `all`.
    pub fn strike(self, done: u64, all: u64) {
        if self.is_due(done, all) {
            self.die();
        }
    }

    fn is_due(self, done: u64, all: u64) -> bool {
        self.fraction < 1.0 && done >= (self.fraction * all as f64) as u64
    }

    /// Ends this process as the system does when memory is short: nothing of it runs any more. Its host ends
    /// with the process that has started the ranks there, which is their agent.
    ///
    /// # Panics
    /// If a process may not signal itself.
    pub fn die(self) -> ! {
        if self.takes_host {
            kill(getppid(), Signal::SIGKILL).map_err(io::Error::from).expect("its parent has its user");
        }
        raise(Signal::SIGKILL).map_err(io::Error::from).expect("a process may signal itself");
        unreachable!("it is dead")
    }
}

impl FromStr for Mark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = text.split_once('@').and_then(|(rank, number)| {
            let number: f64 = number.parse().ok()?;
            (number.is_finite() && number >= 0.0).then_some(Self { rank: rank.parse().ok()?, number })
        });
        match read {
            Some(kill) => Ok(kill),
            None => Err("it has to be a rank and a number from 0, such as 3@0.5".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_when_the_part_is_done() {
        let death = Death { fraction: 0.5, takes_host: false };
        assert_eq!([0, 3, 4, 5].map(|done| death.is_due(done, 8)), [false, false, true, true]);
        assert!(!Death { fraction: 1.0, ..death }.is_due(8, 8));
    }

    #[test]
    fn a_rank_dies_alone_or_with_its_host() {
        let kills = |text: &str| text.split_terminator(',').map(|kill| kill.parse().unwrap()).collect();
        let deaths = Deaths { kill: kills("1@0.5,2@0.1"), kill_host: kills("2@0.3") };
        let of = |rank| deaths.of_rank(rank, 4).unwrap();
        assert_eq!(of(0), None);
        assert_eq!(of(1), Some(Death { fraction: 0.5, takes_host: false }));
        assert_eq!(of(2), Some(Death { fraction: 0.3, takes_host: true }));
        assert!(deaths.of_rank(0, 2).is_err(), "there is no rank 2");
    }

    #[test]
    fn a_rank_and_a_number() {
        assert_eq!("3@0.5".parse(), Ok(Mark { rank: 3, number: 0.5 }));
        assert_eq!("12@1".parse(), Ok(Mark { rank: 12, number: 1.0 }));
        for text in ["", "3", "3@", "@0.5", "-1@0.5", "3@-0.1", "3@NaN", "3@inf"] {
            assert!(text.parse::<Mark>().is_err(), "{text}");
        }
    }
}
