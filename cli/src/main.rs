//! The `everfold` command.

mod bench;
mod run;
mod size;
mod timeline;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Reductions that finish: start jobs on this machine, measure reductions, draw what happened in one.
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
    /// Start a program as a job of several processes on this machine.
    Run(run::Run),
    /// Measure reductions on this machine.
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(run) => run.run(),
        Command::Bench(bench) => bench.run(),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("everfold: {}", failure.message);
        ExitCode::from(failure.exit_code)
    })
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
struct Failure {
    message: String,
    exit_code: u8,
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), exit_code: 1 }
    }
}
