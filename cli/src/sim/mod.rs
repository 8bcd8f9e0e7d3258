//! `everfold sim`: reductions in modelled clusters.

mod figure;
mod paper;
mod parallel;
mod scale;

use std::process::ExitCode;

use clap::Subcommand;

use crate::Failure;

#[derive(Subcommand)]
pub enum Sim {
    /// Draw the figures and tables of the paper's evaluation, simulated.
    Paper(paper::Paper),
    /// Simulate one reduction on up to a hundred thousand nodes.
    Scale(scale::Scale),
}

impl Sim {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Paper(paper) => paper.run(),
            Self::Scale(scale) => scale.run(),
        }
    }
}
