//! The `everfold` command.

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
use everfold_lab::{Chaos, Failure, Plan, note, say};

/// Reductions that finish: start jobs on this machine, measure reductions, break them,
/// simulate them, place checkpoints.
///
/// Logs are silent unless RUST_LOG asks for them, for instance RUST_LOG=debug.
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

fn main() -> ExitCode {
    let result = Arguments::try_parse().map_or_else(explain, Arguments::run);
    result.unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            note!("everfold: {}", failure.message);
        }
        ExitCode::from(failure.exit_code)
    })
}

impl Arguments {
    fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Run(run) => run.run(),
            Command::Bench(bench) => bench.run(),
            Command::Chaos(chaos) => chaos.run(),
            Command::Checkpoint(checkpoint) => checkpoint.run(),
            Command::Faults(faults) => faults.run(),
            Command::Jobs(jobs) => jobs.run(),
            Command::Plan(plan) => plan.run(),
            Command::Recovery(recovery) => recovery.run(),
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
