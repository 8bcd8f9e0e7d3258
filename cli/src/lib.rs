//! The `everfold` command, also with components of your own.
//!
//! The master of a job, and with it the detectors that it asks, lives in the command that starts the ranks of
//! the first host. So a detector of your own needs a command of your own, which is `everfold` and the
//! detector:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use everfold::{
//!     launch::Components,
//!     recovery::{Chain, Detector, Recovery, detector::{Death, Sign, Timestamp}},
//! };
//!
//! /// Ranks whose processes end go to another host, whatever stands in the file.
//! #[derive(Debug)]
//! struct Restless;
//!
//! impl Detector for Restless {
//!     fn judge(&mut self, _now: Timestamp, death: &Death) -> Option<Chain> {
//!         matches!(death.sign, Sign::Process(_)).then(|| Chain::of(Recovery::Migrate))
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     everfold_cli::main_with(Components::new().detector("restless", || Restless))
//! }
//! ```
//!
//! The recovery file chooses it: `detectors = ["restless"]`. Such a command has all that `everfold` has:
//! `run` starts jobs with it, `recovery check` knows its name, and `chaos compare` measures what it is worth.

mod bench;
mod checkpoint;
mod events;
mod jobs;
mod recovery;
mod rules;
mod run;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use everfold::launch::Components;
use everfold_lab::{Chaos, Failure, Plan, note, say};

/// Reductions that finish: start jobs, find faults in them, measure reductions, break them, simulate them,
/// place checkpoints.
///
/// Nothing is logged unless RUST_LOG asks for it, for instance RUST_LOG=everfold=debug.
#[derive(Parser)]
#[command(name = "everfold", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Run),
    /// Measure reductions on this machine.
    #[command(subcommand)]
    Bench(bench::Bench),
    Chaos(Box<Chaos>),
    #[command(subcommand)]
    Checkpoint(checkpoint::Checkpoint),
    Faults(jobs::Faults),
    Jobs(jobs::Jobs),
    Plan(Box<Plan>),
    #[command(subcommand)]
    Recovery(recovery::Recovery),
    #[command(subcommand)]
    Rules(rules::Rules),
    /// Simulate reductions in clusters that are not at hand.
    #[command(subcommand)]
    Sim(sim::Sim),
}

/// Is the `everfold` command, with the arguments of this process. Recovery files may choose from
/// `components`.
///
/// The caller returns the exit code from `main` at once.
pub fn main_with(components: Components) -> ExitCode {
    let result = Arguments::try_parse().map_or_else(explain, |arguments| arguments.run(&components));
    result.unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            note!("everfold: {}", failure.message);
        }
        ExitCode::from(failure.exit_code)
    })
}

impl Arguments {
    fn run(self, components: &Components) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Run(run) => run.run(components),
            Command::Bench(bench) => bench.run(),
            Command::Chaos(chaos) => chaos.run(),
            Command::Checkpoint(checkpoint) => checkpoint.run(),
            Command::Faults(faults) => faults.run(),
            Command::Jobs(jobs) => jobs.run(),
            Command::Plan(plan) => plan.run(),
            Command::Recovery(recovery) => recovery.run(components),
            Command::Rules(rules) => rules.run(),
            Command::Sim(sim) => sim.run(),
        }
    }
}

/// Prints help, the version, or what is wrong with the arguments.
fn explain(error: clap::Error) -> Result<ExitCode, Failure> {
    error.print().map_err(say::failure)?;
    Ok(ExitCode::from(error.exit_code() as u8))
}
