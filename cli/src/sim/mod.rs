//! `everfold sim`: the machines in worlds of virtual time.

mod check;
mod costs;
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
    Check(check::Check),
    Costs(costs::PerMessage),
    Paper(paper::Paper),
    Scale(scale::Scale),
    WhatIf(what_if::WhatIf),
}

impl Sim {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Check(check) => check.run(),
            Self::Costs(costs) => costs.run(),
            Self::Paper(paper) => paper.run(),
            Self::Scale(scale) => scale.run(),
            Self::WhatIf(what_if) => what_if.run(),
        }
    }
}
