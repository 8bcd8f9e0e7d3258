//! `everfold sim`: the machines in worlds of virtual time.

mod check;
mod figure;
mod paper;
mod parallel;
mod scale;
mod what_if;

use std::process::ExitCode;

use clap::Subcommand;

use crate::Failure;

#[derive(Subcommand)]
pub enum Sim {
    /// Run random worlds by seed, and see that what has to hold does.
    Check(check::Check),
    /// Draw the figures and tables of the paper's evaluation, simulated.
    Paper(paper::Paper),
    /// Simulate one reduction on up to a hundred thousand nodes.
    Scale(scale::Scale),
    /// Tell what reductions would take and risk in a cluster that a file describes.
    WhatIf(what_if::WhatIf),
}

impl Sim {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Check(check) => check.run(),
            Self::Paper(paper) => paper.run(),
            Self::Scale(scale) => scale.run(),
            Self::WhatIf(what_if) => what_if.run(),
        }
    }
}
