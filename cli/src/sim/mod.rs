//! `everfold sim`: the machines in worlds of virtual time.

mod check;
mod what_if;

use std::process::ExitCode;

use clap::Subcommand;
use everfold_lab::{
    Failure,
    sim::{Paper, PerMessage, Scale, SimRecoveries, SimSegments},
};

#[derive(Subcommand)]
pub enum Sim {
    Check(check::Check),
    Costs(PerMessage),
    Paper(Paper),
    Recoveries(SimRecoveries),
    Scale(Scale),
    Segments(SimSegments),
    WhatIf(what_if::WhatIf),
}

impl Sim {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Check(check) => check.run(),
            Self::Costs(costs) => costs.run(),
            Self::Paper(paper) => paper.run(),
            Self::Recoveries(recoveries) => recoveries.run(),
            Self::Scale(scale) => scale.run(),
            Self::Segments(segments) => segments.run(),
            Self::WhatIf(what_if) => what_if.run(),
        }
    }
}
