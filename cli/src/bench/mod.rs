//! `everfold bench`: measures reductions on this machine.

mod bound;
mod compare;
mod detect;
pub mod machine;
mod open;
mod rank;
mod reduce;

use std::process::ExitCode;

use clap::Subcommand;

use crate::Failure;

#[derive(Subcommand)]
pub enum Bench {
    Reduce(reduce::Reduce),
    Detect(detect::Detect),
    Open(open::Open),
    Compare(Box<compare::Compare>),
    /// One rank of everfold's side.
    #[command(hide = true)]
    CompareRank(compare::CompareRank),
    /// One rank of a job with many open reductions.
    #[command(hide = true)]
    OpenRank(open::OpenRank),
    /// One rank of a job that loses a process.
    #[command(hide = true)]
    DetectRank(detect::DetectRank),
    /// One rank of a measurement; started by the others.
    #[command(hide = true)]
    Rank(rank::RankArguments),
}

impl Bench {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Reduce(reduce) => reduce.run(),
            Self::Detect(detect) => detect.run(),
            Self::Open(open) => open.run(),
            Self::OpenRank(rank) => rank.run(),
            Self::Compare(compare) => compare.run(),
            Self::CompareRank(rank) => rank.run(),
            Self::DetectRank(rank) => rank.run(),
            Self::Rank(rank) => rank.run(),
        }
    }
}
