//! The `everfold` command.

#[macro_use]
mod say;

mod bench;
mod chaos;
mod children;
mod clock;
mod cluster;
mod interrupts;
mod meeting;
mod run;
mod scratch;
mod sim;
mod size;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nix::sys::signal::Signal;

/// Reductions that finish: start jobs on this machine, measure reductions, break them, simulate them.
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
    Chaos(Box<chaos::Chaos>),
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
            Command::Sim(sim) => sim.run(),
        }
    }
}

/// Prints help, the version, or what is wrong with the arguments.
fn explain(error: clap::Error) -> Result<ExitCode, Failure> {
    error.print().map_err(say::failure)?;
    Ok(ExitCode::from(error.exit_code() as u8))
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
struct Failure {
    /// Empty if nobody is there to be told.
    message: String,
    exit_code: u8,
}

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_code: 1 }
    }

    /// We were asked to end.
    fn interrupted(signal: Signal) -> Self {
        Self { message: format!("ended by {signal}"), exit_code: 128 + signal as u8 }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), exit_code: 1 }
    }
}
