//! `everfold run`: a program as a job of several processes.

use std::{
    ffi::OsString,
    fs::File,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use everfold::{
    launch::{Components, Hosts, Local, hosts, hosts::HostCount, use_checkpoints},
    plan::PlanFile,
};
use everfold_lab::{Failure, Transport, note};
use everfold_storage::directory::Directory;

use crate::{events, recovery};

/// Start a program as a job of several processes, on this machine or on several hosts.
///
/// Its N copies find their rank, size and rendezvous in their environment. On a cluster, a launcher starts
/// this command once on each host, and it starts N copies there. Without options, the number of hosts, the
/// index of this one and the rendezvous are taken from the environment of Slurm, Open MPI, PMIx or MPICH. All
/// hosts need the same secret, in EVERFOLD_SECRET or in a file that EVERFOLD_SECRET_FILE names.
///
/// Their output is forwarded line by line, marked with the rank. The exit code is 0 if no process failed, and
/// otherwise that of the process that failed first: 128 + s if signal s killed it. When this command is
/// interrupted or killed, all copies end.
///
/// If none failed, but their output could not be written, for instance because the disk is full, the exit
/// code is 74. If the reader of the output goes, as `head` does, the job goes on to its end and what it prints
/// is dropped.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// Number of processes; with --hosts, on each host.
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Number of hosts, on each of which this command is started; of N:M hosts the first N have ranks, and the
    /// others are spare [env: EVERFOLD_HOSTS].
    #[arg(long, value_name = "N[:M]", help_heading = "Several hosts")]
    hosts: Option<HostCount>,
    /// Index of this host, from 0 [env: EVERFOLD_HOST_INDEX].
    #[arg(long, value_name = "I", help_heading = "Several hosts")]
    host_index: Option<u32>,
    /// The rendezvous of all hosts: an address of host 0 that the others reach, and a free port there [env:
    /// EVERFOLD_RENDEZVOUS].
    #[arg(long, value_name = "HOST:PORT", help_heading = "Several hosts")]
    rendezvous: Option<String>,
    /// How the processes read each other's memory.
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
    /// End with 0 although signals have killed some processes, if all others end well. On one host at least
    /// one has to.
    #[arg(long)]
    survive_deaths: bool,
    /// The file that chooses what is done about processes that die; `everfold recovery check --help` shows
    /// one [env: EVERFOLD_RECOVERY].
    #[arg(long, value_name = "FILE")]
    recovery: Option<PathBuf>,
    /// The file of the rules that locate faults; `everfold rules check` says what one means [env: EVERFOLD_RULES].
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Where each host adds the symptoms that it sees and the faults that it locates, best on a disk of its
    /// own; `everfold rules learn` makes rules from it [env: EVERFOLD_RECORD_SYMPTOMS].
    #[arg(long, value_name = "FILE")]
    record_symptoms: Option<PathBuf>,
    /// The plan of checkpoints that ranks follow, made by `everfold plan` [env: EVERFOLD_PLAN].
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Where rank 0 writes a profile of the program, from which `everfold plan` makes a plan [env:
    /// EVERFOLD_RECORD].
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The directory in which checkpoints outlive the job; all hosts share it, or each has its own [env:
    /// EVERFOLD_CHECKPOINTS].
    #[arg(long, value_name = "DIR", help_heading = "Checkpoints")]
    checkpoints: Option<PathBuf>,
    /// Go on from the newest complete checkpoint in this directory, and save there [env: EVERFOLD_RESUME].
    #[arg(long, value_name = "DIR", help_heading = "Checkpoints", conflicts_with = "checkpoints")]
    resume: Option<PathBuf>,
    /// Add events of the job to this file, a line of JSON each: starts of processes here, rollbacks, and on
    /// the first host the news that the ranks hear.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Do not mark lines of output with the rank.
    #[arg(long)]
    no_prefix: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  everfold run -n 4 -- ./simulate --steps 100
      Four processes on this machine.
  everfold run -n 4 --recovery recovery.toml -- ./simulate
      The file says whether ranks come back whose processes have died.
  everfold run -n 4 --record-symptoms symptoms -- ./simulate
  everfold rules learn symptoms
      Records symptoms of faults, and learns rules that locate them.
  everfold run -n 4 --record profile.toml -- ./simulate
  everfold plan profile.toml
  everfold run -n 4 --plan plan.toml -- ./simulate
      Records where the program may save checkpoints, plans where it best does, and has it do so.
  everfold run -n 4 --checkpoints /scratch/simulate -- ./simulate
      Checkpoints outlive the job, also if the machine is switched off.
  everfold run -n 4 --resume /scratch/simulate -- ./simulate
      Goes on from there. `everfold checkpoint list /scratch/simulate` shows what there is.
  everfold run --hosts 2 --host-index 0 --rendezvous node0:7077 -n 8 -- ./simulate
      On the first of two hosts; --host-index 1 on the second one. 16 processes in all.
  srun -N 6 --ntasks-per-node=1 everfold run --hosts 4:6 -n 16 --recovery recovery.toml -- ./simulate
      64 processes on the first four nodes. If one of these is lost, and the file says that ranks migrate,
      its ranks go on on one of the other two.
  srun -N 4 --ntasks-per-node=1 everfold run --hosts 4 -n 16 -- ./simulate
      Slurm says which host is which; they meet on the first one, at port 7077.
  mpirun -n 4 --map-by node everfold run --hosts 4 --rendezvous node0:7077 -n 16 -- ./simulate
      Open MPI says which host is which; with MPICH: mpiexec -n 4 -ppn 1.
  everfold run --hosts 4 --rendezvous simulate-0.simulate:7077 -n 2 -- ./simulate
      In each pod of an indexed job of Kubernetes, with a headless service of that name.";

impl Run {
    pub fn run(self, components: &Components) -> Result<ExitCode, Failure> {
        // A process of a job has started this command: the variables are those of that job.
        let is_nested = variable("EVERFOLD_RANK").is_some();
        let named = |name| variable(name).filter(|_| !is_nested);
        let mut words = self.program.into_iter();
        let program = PathBuf::from(words.next().expect("clap requires the program"));
        let mut local = Local::new(self.ranks, program);
        local.arguments = words.collect();
        local.transport = self.transport.into();
        local.survive_deaths = self.survive_deaths;
        local.prefix = !self.no_prefix;
        local.is_nested = is_nested;
        local.recovery = self.recovery.or_else(|| named("EVERFOLD_RECOVERY"));
        local.recovery = local.recovery.map(|file| usable(file, components)).transpose()?;
        local.components = components.clone();
        local.rules = self.rules;
        let symptoms = self.record_symptoms.or_else(|| named("EVERFOLD_RECORD_SYMPTOMS"));
        local.symptoms = symptoms.map(extensible).transpose()?;
        local.plan = self.plan.or_else(|| named("EVERFOLD_PLAN")).map(followable).transpose()?;
        local.watcher = self.events.map(|file| events::write_to(&file)).transpose()?;
        let record = self.record.or_else(|| named("EVERFOLD_RECORD"));
        local.record = record.map(|file| absolute(&file)).transpose()?;
        let said = hosts::Said { count: self.hosts, index: self.host_index, rendezvous: self.rendezvous };
        let is_meant = |name: &str| !is_nested || !OF_HOSTS.contains(&name);
        let lookup = |name: &str| std::env::var(name).ok().filter(|_| is_meant(name));
        local.hosts = Hosts::find(said, lookup).map_err(|error| Failure::new(error.to_string()))?;
        let (resume, checkpoints) = match (self.resume, self.checkpoints) {
            (None, None) => (named("EVERFOLD_RESUME"), named("EVERFOLD_CHECKPOINTS")),
            said => said,
        };
        use_checkpoints(&mut local, checkpoints, resume).map_err(|error| Failure::new(error.to_string()))?;
        let is_first = local.hosts.as_ref().is_none_or(|hosts| hosts.index == 0);
        let checkpoints = local.checkpoints.as_ref().filter(|_| is_first).map(|of| of.directory.clone());
        let code = local
            .run()
            .map_err(|error| Failure { exit_code: error.exit_code(), message: error.to_string() })?;
        checkpoints.filter(|_| code != 0).iter().for_each(|directory| say_what_is_left(directory));
        Ok(ExitCode::from(code))
    }
}

/// Tells people where a job can go on that has failed, or was interrupted.
fn say_what_is_left(directory: &Path) {
    let complete = Directory::open(directory).and_then(|directory| directory.complete());
    if let Some((newest, _)) = complete.ok().and_then(|mut complete| complete.pop()) {
        let (generation, directory) = (newest.generation.0, directory.display());
        note!("everfold: the job can go on from generation {generation}: start it with --resume {directory}");
    }
}

/// Variables that say which of the hosts of a job this one is.
const OF_HOSTS: [&str; 4] = ["EVERFOLD_HOSTS", "EVERFOLD_HOST_INDEX", "EVERFOLD_RENDEZVOUS", "EVERFOLD_JOB"];

/// The path in a variable. An empty one names none.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The path from everywhere of a recovery file that makes sense.
fn usable(file: PathBuf, components: &Components) -> Result<PathBuf, Failure> {
    recovery::read(&file, components).map_err(Failure::new)?;
    absolute(&file)
}

/// The path from everywhere of a plan that programs can follow.
fn followable(file: PathBuf) -> Result<PathBuf, Failure> {
    PlanFile::read(&file).map_err(|error| Failure::new(error.to_string()))?;
    absolute(&file)
}

/// A file that can be added to.
fn extensible(file: PathBuf) -> Result<PathBuf, Failure> {
    let opened = File::options().append(true).create(true).open(&file);
    opened.map_err(|error| Failure::new(format!("cannot add lines to {}: {error}", file.display())))?;
    Ok(file)
}

fn absolute(file: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}
