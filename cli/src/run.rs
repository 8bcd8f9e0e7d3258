//! `everfold run`: a program as a job of several processes.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::Args;
use everfold::launch::Local;
use everfold_lab::{Failure, Transport};

/// Start a program as a job of several processes on this machine.
///
/// Its N copies find their rank, size and meeting point in their environment.
///
/// Their output is forwarded line by line, marked with the rank. The exit code is that of the process that
/// failed first: 128 + s if signal s killed it, 0 if none failed. When this command is interrupted or killed,
/// all copies end.
///
/// If none failed, but their output could not be written, for instance because the disk is full, the exit
/// code is 74. If the reader of the output goes, as `head` does, the job goes on to its end and what it prints
/// is dropped.
///
/// Example: everfold run -n 4 -- ./simulate --steps 100
#[derive(Args)]
pub struct Run {
    /// Number of processes.
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// How the processes read each other's memory.
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
    /// End with 0 although signals have killed some processes, if rank 0 and all others end well.
    #[arg(long)]
    survive_deaths: bool,
    /// Do not mark lines of output with the rank.
    #[arg(long)]
    no_prefix: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Run {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut words = self.program.into_iter();
        let program = PathBuf::from(words.next().expect("clap requires the program"));
        let mut local = Local::new(self.ranks, program);
        local.arguments = words.collect();
        local.transport = self.transport.into();
        local.survive_deaths = self.survive_deaths;
        local.prefix = !self.no_prefix;
        let code = local
            .run()
            .map_err(|error| Failure { exit_code: error.exit_code(), message: error.to_string() })?;
        Ok(ExitCode::from(code))
    }
}
