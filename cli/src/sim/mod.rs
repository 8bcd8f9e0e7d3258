//! `everfold sim`: reductions in modelled clusters.

mod figure;
mod paper;
mod parallel;

use std::process::ExitCode;

use clap::Subcommand;

use crate::Failure;

#[derive(Subcommand)]
pub enum Sim {
    /// Draw the figures and tables of the paper's evaluation, simulated.
    Paper(paper::Paper),
}

impl Sim {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Paper(paper) => paper.run(),
        }
    }
}
