//! `everfold rules`: what rules about faults conclude, and from which symptoms they could.

use std::{fmt::Display, fs, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use everfold::locating::{self, JobId};
use everfold_lab::{Failure, say};
use everfold_locate::{
    learn::{self, Least, record},
    rules::{DEFAULT, Rule, RuleBase},
};

use crate::jobs::{failure, number};

/// The exit code if the rules cannot be used.
const UNUSABLE: u8 = 2;

/// Look at the rules that locate faults, learn others, or change those of a running job.
#[derive(Subcommand)]
pub enum Rules {
    Check(Check),
    Learn(Learn),
    Push(Push),
}

/// Put rules in force in one of your running jobs, on all of its hosts.
///
/// They are compiled completely before they replace the rules in force. If the file has a mistake, nothing
/// changes, and the message names line and key.
#[derive(Args)]
pub struct Push {
    /// A file of rules.
    file: PathBuf,
    /// The job, as `everfold jobs` lists it; not needed if only one runs here.
    #[arg(long, value_parser = number)]
    job: Option<JobId>,
}

/// Compile rules, and say which fault follows from which symptoms.
#[derive(Args)]
pub struct Check {
    /// A file of rules; without it, the rules that everfold comes with.
    file: Option<PathBuf>,
}

/// Learn rules from recorded symptoms and confirmed faults.
///
/// Prints a draft of a rule file. Comments say how often each rule would have held and the fault was
/// confirmed, and in which order symptoms came before it. Nothing is learnt about faults of whole domains, or
/// about absent symptoms.
#[derive(Args)]
#[command(after_help = LEARNING)]
pub struct Learn {
    /// Files of recorded symptoms, of any number of jobs and hosts.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Least number of times that a fault was confirmed with the same symptoms.
    #[arg(long, value_name = "N", default_value_t = Least::default().support, value_parser = clap::value_parser!(u32).range(1..))]
    support: u32,
    /// Least share of the windows with these symptoms in which the fault was confirmed, between 0 and 1. If
    /// probes confirm the fault, a small share only costs probes.
    #[arg(long, value_name = "C", default_value_t = Least::default().confidence, value_parser = share)]
    confidence: f64,
}

const LEARNING: &str = "\
Example:
  everfold run -n 4 --record-symptoms symptoms -- ./simulate
      Each host adds lines to its file, for each symptom and for each fault that is confirmed, rejected or over:
        3fa21b07 1.204 seen ended rank2@host0 by host0 value 1.000
        3fa21b07 1.511 confirmed process_crashed rank2@host0
  everfold rules learn symptoms > draft.toml
  everfold rules check draft.toml
  everfold run -n 4 --rules draft.toml -- ./simulate

A fault that everfold does not know is learnt, too, if somebody says when it was there. Add a line to the file, with
the number of the node and the seconds of the symptoms, which have to be at most 3 s older:
        3fa21b07 95.3 confirmed bad_fan host0
        3fa21b07 160 over bad_fan host0
Symptoms between the two lines are explained by it. Places are host0, rank2@host0, or host0>host1 for a link.

The exit code is 0 if rules were learnt, 1 if none were, 2 if a file cannot be used.";

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a number between 0 and 1 is needed".to_owned())
}

impl Rules {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Check(check) => check.run(),
            Self::Learn(learn) => learn.run(),
            Self::Push(push) => push.run(),
        }
    }
}

impl Push {
    fn run(self) -> Result<ExitCode, Failure> {
        let text = usable(&self.file.display(), fs::read_to_string(&self.file))?;
        let rules = usable(&self.file.display(), RuleBase::parse(&text))?;
        locating::push_rules(self.job, text).map_err(failure)?;
        say!("{} rules hold from now on", rules.rules().len())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Learn {
    fn run(self) -> Result<ExitCode, Failure> {
        let mut lines = Vec::new();
        for file in &self.files {
            let text = usable(&file.display(), fs::read_to_string(file))?;
            lines.extend(usable(&file.display(), record::parse(&text))?);
        }
        let (rules, least) =
            (RuleBase::default(), Least { support: self.support, confidence: self.confidence });
        let learnt = learn::learn(&lines, &rules, least);
        if learnt.is_empty() {
            let Least { support, confidence } = least;
            return Err(Failure::new(format!(
                "no fault was confirmed {support} times with the same symptoms, and in {:.0} % of the windows with them",
                confidence * 100.0
            )));
        }
        say!("{}", learnt.draft(&rules).trim_end())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Check {
    fn run(self) -> Result<ExitCode, Failure> {
        let (name, text) = match &self.file {
            Some(file) => (file.display().to_string(), fs::read_to_string(file)),
            None => ("the rules of everfold".to_owned(), Ok(DEFAULT.to_owned())),
        };
        let rules = usable(&name, RuleBase::parse(&usable(&name, text)?))?;
        for rule in rules.rules() {
            say!("{}", told(rule))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What was read of a file that people have written.
fn usable<T, E: Display>(file: &dyn Display, read: Result<T, E>) -> Result<T, Failure> {
    read.map_err(|error| Failure { message: format!("{file}: {error}"), exit_code: UNUSABLE })
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
