//! `everfold bench`: measures reductions on this machine.

mod bound;
mod machine;
mod rank;
mod reduce;

use std::process::ExitCode;

use clap::Subcommand;

use crate::Failure;

#[derive(Subcommand)]
pub enum Bench {
    /// Time reductions of arrays over sizes and numbers of ranks, beside what the hardware allows.
    Reduce(reduce::Reduce),
    /// One rank of a measurement; started by the others.
    #[command(hide = true)]
    Rank(rank::RankArguments),
}

impl Bench {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Reduce(reduce) => reduce.run(),
            Self::Rank(rank) => rank.run(),
        }
    }
}
