//! `everfold bench`: measures reductions on this machine.

use std::process::ExitCode;

use clap::Subcommand;
use everfold_lab::{
    Failure,
    bench::{Compare, CompareRank, Detect, DetectRank, Open, OpenRank, RankArguments, Reduce, SocketsRank},
};

#[derive(Subcommand)]
pub enum Bench {
    Reduce(Reduce),
    Detect(Detect),
    Open(Open),
    Compare(Box<Compare>),
    /// One rank of everfold's side.
    #[command(hide = true)]
    CompareRank(CompareRank),
    /// One rank of the side of plain sockets.
    #[command(hide = true)]
    SocketsRank(SocketsRank),
    /// One rank of a job with many open reductions.
    #[command(hide = true)]
    OpenRank(OpenRank),
    /// One rank of a job that loses a process.
    #[command(hide = true)]
    DetectRank(DetectRank),
    /// One rank of a measurement; started by the others.
    #[command(hide = true)]
    Rank(RankArguments),
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
            Self::SocketsRank(rank) => rank.run(),
            Self::Rank(rank) => rank.run(),
        }
    }
}
