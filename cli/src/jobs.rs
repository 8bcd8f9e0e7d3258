//! `everfold jobs` and `everfold faults`: what runs here, and what is faulty.

use std::{fs, process::ExitCode, time::Duration};

use clap::Args;
use everfold::locating::{self, AskError, Fault, JobId, JobInfo};
use everfold_lab::{Failure, say};

/// List your jobs that run on this machine: number, ranks here and in all, hosts, age, faults, and the
/// process of their agent here.
#[derive(Args)]
pub struct Jobs {}

/// List the faults that were located in a running job: component, fault, time, and evidence.
///
/// Ask on any host of the job, as the user who has started it. A fault that is over stays in the list, marked
/// as over. The exit code is 0 if no component is faulty now, and 3 if one is.
#[derive(Args)]
pub struct Faults {
    /// The job, as `everfold jobs` lists it; not needed if only one runs here.
    #[arg(value_parser = number)]
    job: Option<JobId>,
}

/// The exit code if a component is faulty.
const FAULTY: u8 = 3;

impl Jobs {
    pub fn run(self) -> Result<ExitCode, Failure> {
        for job in locating::jobs().map_err(failure)? {
            say!("{}", told(&job))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Faults {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let faults = locating::faults(self.job).map_err(failure)?;
        for Fault { ago, over, located } in &faults {
            let over = over.map_or_else(String::new, |over| format!(" [over, {} ago]", age(over)));
            say!("{} ago: {located}{}{over}", age(*ago), if located.harmless { " [no fault]" } else { "" })?;
        }
        let is_faulty = faults.iter().any(|fault| !fault.located.harmless && fault.over.is_none());
        Ok(if is_faulty { ExitCode::from(FAULTY) } else { ExitCode::SUCCESS })
    }
}

/// Reads a job as it is listed.
pub fn number(text: &str) -> Result<JobId, String> {
    u64::from_str_radix(text, 16).map(JobId).map_err(|_| "a job is a hexadecimal number".to_owned())
}

pub fn failure(error: AskError) -> Failure {
    Failure::new(error.to_string())
}

fn told(job: &JobInfo) -> String {
    let JobInfo { ranks, size, hosts, faults, pid, .. } = job;
    let begun = match hosts {
        0 => "not begun".to_owned(),
        1 => format!("{size} ranks"),
        _ => format!("ranks {ranks} of {size}, {hosts} hosts"),
    };
    let age = age(job.age);
    format!("{:x}  {begun}, {age}, {faults} faults, process {pid}: {}", job.job.0, command(*pid))
}

/// The command line of an agent's process.
fn command(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    words.trim().chars().take(80).collect()
}

fn age(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}
