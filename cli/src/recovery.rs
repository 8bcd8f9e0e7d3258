//! `everfold recovery`: what is done about which fault.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use everfold::{launch::Components, recovery::RecoveryFile};
use everfold_lab::{Failure, say};

/// The exit code if the file cannot be used.
const UNUSABLE: u8 = 2;

/// Look at a file that chooses recoveries.
#[derive(Subcommand)]
pub enum Recovery {
    Check(Check),
}

/// Say what happens at each fault, or name the mistake in the file.
///
/// `everfold run --recovery FILE` and the variable EVERFOLD_RECOVERY use such a file. It replaces what the
/// program says of recoveries and of checkpoints.
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct Check {
    /// The file; without it, the defaults are shown.
    file: Option<PathBuf>,
}

const EXAMPLE: &str = "\
Every key may be left out. All but [located], [repeated] and [network] are shown with what they are
then:
  process = \"restart\"       # a process has ended, and its host is well: \"restart\", \"migrate\", \"ignore\",
                            # or \"rollback\" of all ranks
  physical = \"ignore\"       # a host is lost: \"migrate\" or \"ignore\"; [\"migrate\", \"ignore\"] is a list

  [located]                 # a process has ended on a host with one of these faults, which was located
  faults = [\"disk_failing\", \"host_overloaded\"] # names of rules: `everfold rules check` lists them
  recovery = \"migrate\"

  [repeated]                # processes of one host die again and again
  faults = 5                # after this number of faults ...
  within = \"10 min\"         # ... within this time
  recovery = \"ignore\"

  [network]                 # so many hosts of a domain are lost that it is the domain's fault
  share_percent = 50        # more than this share of them
  recovery = \"migrate\"      # to hosts of other domains

  [restart]
  starts_max = 100          # most starts of a rank
  fruitless_max = 8         # most starts in a row without progress on one host;
                            # over all hosts twice as many
  pause = \"100 ms\"          # before a start without progress; doubles each time
  pause_max = \"10 s\"
  join_timeout = \"60 s\"     # how long a started process has to join

  [migrate]
  replica_bytes = \"4 GiB\"   # most bytes of replicas that the agent of a host holds

  [checkpoint]
  protocol = \"independent\"  # or \"coordinated\", which a directory and a rollback mean anyway
  interval = \"daly\"         # or \"young\", or a time such as \"5 min\"
  mtbf = \"1 d\"              # mean time between failures of a process
  result_log = \"1 GiB\"      # most bytes of outcomes per rank between two checkpoints

Without a default:
  detectors = [\"cautious\"]  # of your own, in the program that starts the job: asked before
                            # all of these, in this order
  directory = \"/scratch/me\" # under [checkpoint]: where checkpoints outlive the job

The exit code is 2 if the file cannot be used.";

impl Recovery {
    pub fn run(self, components: &Components) -> Result<ExitCode, Failure> {
        let Self::Check(Check { file }) = self;
        let empty = || RecoveryFile::parse("").map_err(|error| error.to_string());
        let read = file.map_or_else(empty, |file| read(&file, components));
        let file = read.map_err(|message| Failure { message, exit_code: UNUSABLE })?;
        say!("{}", file.to_string().trim_end())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The file, if it makes sense and this command has the detectors that it chooses.
pub fn read(path: &Path, components: &Components) -> Result<RecoveryFile, String> {
    let file = RecoveryFile::read(path).map_err(|error| error.to_string())?;
    match components.choose(file.detectors()) {
        Ok(_) => Ok(file),
        Err(unknown) => Err(format!("{}, key `detectors`: {unknown}", path.display())),
    }
}
