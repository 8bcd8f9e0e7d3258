//! `everfold sim check`: random worlds by seed.
//!
//! | to know | see |
//! |---|---|
//! | what can be asked for | this file |
//! | how seeds are shared out over threads | [`batch`] |
//! | what is told to people | [`show`] |
//!
//! What is drawn, what has to hold and how failures are made smaller is the library's:
//! [`everfold_sim::check`].

mod batch;
mod show;

use std::{
    fmt, fs, num::NonZeroUsize, ops::Range, panic, path::PathBuf, process::ExitCode, sync::mpsc, thread,
};

use clap::Args;
use everfold_lab::{Failure, note, say};
use everfold_sim::check::{Ran, Schedule, Violation, draw, run, run_told, shrink};

const EXAMPLES: &str = "\
Examples:
  everfold sim check --seeds 0..100000 --jobs 2
  everfold sim check --seed 4711 --trace | less
      One seed, with a line for every event.
  everfold sim check --seed 4711 --shrink > found.toml
      As little of a world that fails as is needed for it to fail.
  everfold sim check --replay found.toml --trace

Exit codes: 0 all that has to hold did, 1 something did not, 2 nothing could be checked, 74 results could not be printed.";

/// Runs of a shrinker: a minute or two.
const SHRINK_RUNS_MAX: u64 = 50_000;

/// Run random worlds by seed, and check the invariants in each of them.
///
/// A seed decides everything: ranks, hosts, reductions, delays, and faults. After every event the invariants
/// are checked. In the end all faults are over: every future must have ended for a reason, every value must
/// be the fold of the contributions that its report names, and every rank must be able to leave.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Check {
    /// Run these seeds, such as 1000 for the first thousand, or 5000..6000, without the last.
    #[arg(long, value_name = "RANGE", default_value = "0..10000", value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// Run only this seed.
    #[arg(long, value_name = "K", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the schedule in this file instead of what a seed draws.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds"])]
    replay: Option<PathBuf>,
    /// Number of threads [default: one per core].
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Print every event of the one run.
    #[arg(long, conflicts_with_all = ["seeds", "shrink"])]
    trace: bool,
    /// Make a failing schedule as small as possible, and print it.
    #[arg(long)]
    shrink: bool,
    /// Print the schedule of the one run instead of running it.
    #[arg(long, conflicts_with_all = ["seeds", "trace", "shrink"])]
    print: bool,
    /// Print a hash of everything that happened, and when: the same whenever and wherever the same code runs.
    #[arg(long)]
    hash: bool,
}

impl Check {
    pub fn run(self) -> Result<ExitCode, Failure> {
        if self.seed.is_none() && self.replay.is_none() {
            for (option, is_given) in [("--trace", self.trace), ("--print", self.print)] {
                if is_given {
                    return Err(unusable(format!(
                        "{option} tells of one run: name it with --seed or --replay"
                    )));
                }
            }
        }
        let one = match (&self.replay, self.seed) {
            (Some(path), _) => Some((Origin::File(path.clone()), read(path)?)),
            (None, Some(seed)) => Some((Origin::Seed(seed), draw(seed))),
            (None, None) => None,
        };
        match one {
            Some((_, schedule)) if self.print => {
                say::results(write(&schedule)?)?;
                Ok(ExitCode::SUCCESS)
            }
            Some((origin, schedule)) => self.run_one(&origin, &schedule),
            None => self.run_many(),
        }
    }

    fn run_one(&self, origin: &Origin, schedule: &Schedule) -> Result<ExitCode, Failure> {
        let (untold, not_told) = mpsc::channel();
        let result = if self.trace {
            // A reader that has seen enough may go: what comes of the run is to be known all the same.
            run_told(schedule, move |line| drop(say!("{line}").map_err(|failure| untold.send(failure))))
        } else {
            quietly(|| run(schedule))
        };
        match result {
            Ok(Ran { events, trace_hash, .. }) => {
                not_told.try_recv().map_or(Ok(()), Err)?;
                say!("{origin}: all holds, {events} events")?;
                if self.hash {
                    say!("hash {trace_hash:016x}")?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(violation) => self.tell(origin, schedule, &violation, self.shrink),
        }
    }

    fn run_many(&self) -> Result<ExitCode, Failure> {
        let jobs = self.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let batch = quietly(|| batch::run_all(self.seeds.clone(), jobs))?;
        let said = say::results(show::summary(&batch));
        let said = if self.hash { said.and_then(|()| say!("hash {:016x}", batch.hash)) } else { said };
        match (batch.failed, batch.interrupted) {
            (Some((seed, violation)), interrupted) => {
                let shrinks = self.shrink && interrupted.is_none();
                self.tell(&Origin::Seed(seed), &draw(seed), &violation, shrinks)
            }
            (None, Some(signal)) => Ok(ExitCode::from(128 + signal as u8)),
            (None, None) => said.map(|()| ExitCode::SUCCESS),
        }
    }

    /// Tells what does not hold, and how to see it again; `shrinks` it if that is wanted.
    fn tell(
        &self,
        origin: &Origin,
        schedule: &Schedule,
        violation: &Violation,
        shrinks: bool,
    ) -> Result<ExitCode, Failure> {
        note!("{origin}: {violation}");
        if !self.trace {
            note!("  replay: everfold sim check {} --trace", origin.option());
        }
        if shrinks {
            let shrunk = quietly(|| shrink(schedule, SHRINK_RUNS_MAX, |schedule| run(schedule).map(|_| ())));
            let shrunk = shrunk.ok_or_else(|| Failure::new("the failure does not come again"))?;
            note!("  shrunk in {} runs: {}", shrunk.runs, shrunk.violation);
            note!("  a file of its own in sim/tests/scenarios makes it a test; --replay FILE runs it");
            say::results(format_args!("# {}\n{}", shrunk.violation.rule, write(&shrunk.schedule)?))?;
        } else {
            note!("  shrink: everfold sim check {} --shrink", origin.option());
        }
        Ok(ExitCode::FAILURE)
    }
}

/// Where a schedule comes from.
enum Origin {
    Seed(u64),
    File(PathBuf),
}

impl Origin {
    fn option(&self) -> String {
        match self {
            Self::Seed(seed) => format!("--seed {seed}"),
            Self::File(path) => format!("--replay {}", path.display()),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seed(seed) => write!(f, "seed {seed}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Assertions that fail are told once, by us.
fn quietly<T>(what: impl FnOnce() -> T) -> T {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = what();
    panic::set_hook(hook);
    result
}

fn unusable(message: impl Into<String>) -> Failure {
    Failure { exit_code: 2, ..Failure::new(message) }
}

fn read(path: &PathBuf) -> Result<Schedule, Failure> {
    let text = fs::read_to_string(path).map_err(|error| unusable(format!("{}: {error}", path.display())))?;
    let refuse =
        |error: toml::de::Error| unusable(format!("{}: {}", path.display(), error.to_string().trim_end()));
    let schedule: Schedule = toml::from_str(&text).map_err(refuse)?;
    match schedule.flaw() {
        Some(flaw) => Err(unusable(format!("{}: {flaw}", path.display()))),
        None => Ok(schedule),
    }
}

fn write(schedule: &Schedule) -> Result<String, Failure> {
    Ok(toml::to_string(schedule)?)
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let refuse = || format!("{text:?} is no range of seeds; write 1000 or 5000..6000");
    let number = |text: &str| text.replace('_', "").parse::<u64>().map_err(|_| refuse());
    let (first, end) = match text.split_once("..") {
        Some((first, end)) => (number(first)?, number(end)?),
        None => (0, number(text)?),
    };
    if first < end { Ok(first..end) } else { Err(refuse()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_seeds_are_read() {
        assert_eq!(parse_seeds("1000"), Ok(0..1000));
        assert_eq!(parse_seeds("5..7"), Ok(5..7));
        assert_eq!(parse_seeds("0..1_000_000"), Ok(0..1_000_000));
        for text in ["", "..", "7..5", "0", "a..b", "-1..2"] {
            assert!(parse_seeds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn schedules_come_back_from_their_files() {
        for seed in 0..200 {
            let schedule = draw(seed);
            let text = write(&schedule).unwrap();
            assert_eq!(toml::from_str::<Schedule>(&text).unwrap(), schedule, "{text}");
        }
    }
}
