//! `everfold rules`: what rules about faults conclude.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use everfold::locating::{self, JobId};
use everfold_lab::{Failure, say};
use everfold_locate::rules::{DEFAULT, Rule, RuleBase};

use crate::jobs::{failure, number};

/// The exit code if the rules cannot be used.
const UNUSABLE: u8 = 2;

/// Look at the rules that locate faults, or change those of a running job.
#[derive(Subcommand)]
pub enum Rules {
    Check(Check),
    Push(Push),
}

/// Let rules hold in a running job of yours, on all of its hosts, from now on.
///
/// They are compiled completely before they take the place of those that hold. A file that is wrong changes nothing, and what is
/// wrong in it is said, with line and key.
#[derive(Args)]
pub struct Push {
    /// A file of rules.
    file: PathBuf,
    /// The job, as `everfold jobs` lists it; not needed if only one runs here.
    #[arg(long, value_parser = number)]
    job: Option<JobId>,
}

/// Compile rules, and say what would be concluded from what.
#[derive(Args)]
pub struct Check {
    /// A file of rules; without it, the rules that everfold comes with.
    file: Option<PathBuf>,
}

impl Rules {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Check(check) => check.run(),
            Self::Push(push) => push.run(),
        }
    }
}

impl Push {
    fn run(self) -> Result<ExitCode, Failure> {
        let name = self.file.display();
        let unusable = |reason: String| Failure { message: format!("{name}: {reason}"), exit_code: UNUSABLE };
        let text = fs::read_to_string(&self.file).map_err(|error| unusable(error.to_string()))?;
        let rules = RuleBase::parse(&text).map_err(|error| unusable(error.to_string()))?;
        locating::push_rules(self.job, text).map_err(failure)?;
        say!("{} rules hold from now on", rules.rules().len())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Check {
    fn run(self) -> Result<ExitCode, Failure> {
        let (name, text) = match &self.file {
            Some(file) => (file.display().to_string(), fs::read_to_string(file)),
            None => ("the rules of everfold".to_owned(), Ok(DEFAULT.to_owned())),
        };
        let unusable = |reason: String| Failure { message: format!("{name}: {reason}"), exit_code: UNUSABLE };
        let text = text.map_err(|error| unusable(error.to_string()))?;
        let rules = RuleBase::parse(&text).map_err(|error| unusable(error.to_string()))?;
        for rule in rules.rules() {
            say!("{}", told(rule))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn told(rule: &Rule) -> String {
    let Rule { fault, says, about, when, confidence, .. } = rule;
    let scope = format!("{about:?}").to_lowercase();
    let mut text =
        format!("{fault}, of a {scope}: {says}\n  may be, with confidence {confidence}, if {when}\n");
    if let Some(confirm) = &rule.confirm {
        let probes: Vec<String> =
            rule.probes.iter().map(|probe| format!("{probe:?}").to_lowercase()).collect();
        text += &format!("  is confirmed if, after probes of {}, {confirm}\n", probes.join(", then "));
    } else {
        text += "  is then confirmed without probes\n";
    }
    if !rule.covers.is_empty() {
        text += &format!("  explains {}\n", rule.covers.join(", "));
    }
    if rule.stops {
        text += "  stops the host, so that it does not locate faults\n";
    }
    if rule.harmless {
        text += "  is no fault of a component\n";
    }
    text
}
