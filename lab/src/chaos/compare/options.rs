//! What `everfold chaos compare` can be told, and the runs in their order.

use std::{
    ffi::OsString,
    fs,
    num::NonZeroU32,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc,
    time::Duration,
};

use clap::Args;
use everfold::{launch::hosts::HostCount, recovery::RecoveryFile};
use everfold_protocol::units;
use everfold_sim::model::Failures;

use super::{
    plot,
    program::Solver,
    rates::{Fault, Rates, parse_bad, parse_rate},
    run::{End, Seen, Stage},
    table::{self, Contestant, Row},
};
use crate::{
    Failure, Transport,
    chaos::{job::Event, schedule::Layout},
    cluster::{Cluster, HOSTS_MAX},
    files, interrupts, progress,
    scratch::Scratch,
};

const EXAMPLES: &str = "\
Examples:
  everfold chaos compare restart.toml rollback.toml -n 4 --process-faults 600/hour -- ./simulate
      Kills a process of ./simulate every 6 s on average, and shows what each of the two files makes of it:

      recovery file   ended    undisturbed   time     lost    beside first   done again   restarts  ...
      restart.toml    1 of 1   20.3 s        22.1 s   1.8 s   -              610.0 ms     4
      rollback.toml   1 of 1   20.4 s        31.9 s   11.5 s  +44 %          38.2 s       0

  everfold chaos compare stay.toml leave.toml -n 2 --hosts 3:4 --process-faults 20/hour --bad 1:50 --trials 5 -- ./simulate
      On host 1 processes die 50 times as often as elsewhere. Host 3 is spare. Needs root.
  everfold chaos compare one.toml domain.toml -n 2 --hosts 5:8 --domains 2 --host-faults 5/hour --bad-domain 1:40 -- ./simulate
      Behind a switch that goes bad, one host after the other is lost. Needs root.
  everfold chaos compare a.toml b.toml -n 8 --process-faults lanl-20 --faster 1e6 --same=digest -- ./07_come_back
      Faults as they came in a real system, but a million times as often. All runs have to print the same lines with
      the word digest.

What the table shows, as means over trials; times are those of runs that came to their end:
  ended         trials that came to their end: all processes that were not killed, or came back, ended with 0
  undisturbed   time to the end of a run without faults
  time, lost    time to the end with faults, and how much longer than undisturbed that is
  beside first  how the time differs from that under the first file, in the same trials
  done again    for how long ranks did again what had been done before, added up over ranks
  restarts      processes that were started again on their host
  migrations    processes that were started on another host
  promotions    standbys that took the places of their ranks' processes
  rollbacks     how often all ranks went back to a checkpoint
  ranks lost    ranks that were not back in the end
  faults        faults that have hit something: a host that has lost its ranks has no process to kill
The exit code is 0 if there is a table, and 1 if a run without faults fails, or if --same finds a difference.";

/// Run one program under the same faults with several recovery files, and see which serves it best.
///
/// From the moment when all ranks have joined, processes are killed, and hosts and domains are lost, at the
/// given rates. The faults are drawn from the seed and the trial's number, and are the same for each file. A
/// run without faults comes first under each file. Without --hosts, all ranks run on this machine. With
/// --hosts, each host is a network namespace. Host 0, where the master is, is never lost.
///
/// If a file lets ranks come back, the program has to be written for it. If a file names a directory of
/// checkpoints, each run has a directory of its own instead.
#[derive(Args)]
#[command(args_override_self = true, after_long_help = EXAMPLES)]
pub struct Compare {
    /// Recovery files; `everfold recovery check --help` shows one.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    faults: FaultRates,
    /// Number of processes; with --hosts, on each host that has some.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512))]
    ranks: u32,
    /// Number of hosts with ranks, or N:M for N hosts with ranks of M in all. Needs root.
    #[arg(long, value_name = "N[:M]")]
    hosts: Option<HostCount>,
    /// Let neighbouring hosts form D domains.
    #[arg(long, value_name = "D", requires = "hosts")]
    domains: Option<NonZeroU32>,
    /// How the ranks of a host read each other's memory.
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
    /// Seed of all faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs with faults under each file.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    trials: u64,
    /// A run that takes longer is killed and counts as one that has not come to its end.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = parse_time)]
    time_limit: Duration,
    /// Demand that all runs come to their end and print the same lines, in any order and any number; with TEXT, the same
    /// lines with that text.
    #[arg(long, value_name = "TEXT", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    same: Option<String>,
    /// Draw all runs to this file, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Also write all observations to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where to keep the output of runs that do not come to their end.
    #[arg(long, value_name = "FOLDER", default_value = "everfold-compare")]
    keep: PathBuf,
    #[command(flatten)]
    solver: Solver,
    /// A program to start instead of the built-in one, and its arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// How often components fail.
#[derive(Debug, Args)]
#[command(next_help_heading = "Faults")]
struct FaultRates {
    /// Processes that are killed: a number per hour and host, such as 120/hour, or a law of a real system: lanl-2, lanl-16,
    /// lanl-18, lanl-19, lanl-20, llama-3, rsc-1 or rsc-2.
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    process_faults: Option<Failures>,
    /// Hosts that are lost: a number per hour and host, or a law. Needs --hosts.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, requires = "hosts")]
    host_faults: Option<Failures>,
    /// Domains that are lost, each with all its hosts: a number per hour and domain, or a law. Needs --domains.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, requires = "domains")]
    domain_faults: Option<Failures>,
    /// Shape of the Weibull law of the gaps between the faults of a component: below 1 they come in bursts, and 1 is a
    /// constant rate [default: 1, or that of the law].
    #[arg(long, value_name = "K", value_parser = parse_shape)]
    shape: Option<f64>,
    /// Factor on the rates of all faults.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_factor)]
    faster: f64,
    /// A host whose processes are killed FACTOR times as often as others; may be given several times.
    #[arg(long, value_name = "HOST:FACTOR", value_parser = parse_bad)]
    bad: Vec<(u32, f64)>,
    /// A domain whose hosts are lost FACTOR times as often as others; may be given several times.
    #[arg(long, value_name = "DOMAIN:FACTOR", value_parser = parse_bad, requires = "domains")]
    bad_domain: Vec<(u32, f64)>,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let seconds = units::seconds(text)?;
    let range = 0.1..=30.0 * 86_400.0;
    if range.contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("it is not from 100 ms to 30 d".to_owned())
    }
}

fn parse_shape(text: &str) -> Result<f64, String> {
    let shape = text.parse().ok().filter(|shape| (0.3..=5.0).contains(shape));
    shape.ok_or_else(|| format!("{text:?} is no shape from 0.3 to 5"))
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (1e-3..=1e12).contains(factor));
    factor.ok_or_else(|| format!("{text:?} is no factor from 0.001 to 1e12"))
}

impl FaultRates {
    fn rates(self) -> Rates {
        let (shape, faster) = (self.shape, self.faster);
        let adapt = |law: Failures| Failures {
            node_mtbf_hours: law.node_mtbf_hours / faster,
            shape: shape.unwrap_or(law.shape),
        };
        Rates {
            process: self.process_faults.map(adapt),
            host: self.host_faults.map(adapt),
            domain: self.domain_faults.map(adapt),
            bad_hosts: self.bad,
            bad_domains: self.bad_domain,
        }
    }
}

impl Compare {
    /// Runs the program under all files, and prints the table.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there is none.
    pub fn run(self) -> Result<ExitCode, Failure> {
        for file in &self.files {
            RecoveryFile::read(file)?;
        }
        let rates = self.faults.rates();
        if rates.are_zero() {
            return Err(Failure::new(
                "nothing is to go wrong: ask for --process-faults, --host-faults or --domain-faults",
            ));
        }
        let hosts = self.hosts.map_or(1, |HostCount { count, spares }| count.saturating_add(spares));
        let layout = Layout { ranks: self.ranks, hosts, domains: self.domains };
        check(&rates, layout)?;
        let transport = if self.hosts.is_some() { self.transport.of_hosts()? } else { self.transport.into() };
        let draw = |trial| rates.draw(layout, (self.seed, trial), self.time_limit);
        let schedules: Vec<Vec<Fault>> = (0..self.trials).map(draw).collect::<Result<_, _>>()?;
        self.json.iter().chain(&self.plot).try_for_each(|path| files::check(path))?;

        let scratch = Scratch::new_in(&std::env::temp_dir())?;
        let (sender, events) = mpsc::channel();
        let signals = sender.clone();
        interrupts::listen(move |signal| signals.send(Event::Signal(signal)).is_ok())?;
        let stage = Stage {
            program: if self.program.is_empty() { built_in(&self.solver)? } else { self.program },
            ranks: self.ranks,
            hosts: self.hosts,
            cluster: self.hosts.map(|_| Cluster::start(hosts, None)).transpose()?,
            layout,
            transport,
            time_limit: self.time_limit,
            scratch: scratch.path().to_owned(),
            events,
            sender,
        };
        let contestants = run_all(&stage, self.files, &schedules)?;
        let rows: Vec<Row> = contestants.iter().map(|one| Row::new(one, &contestants[0])).collect();
        let limit_s = self.time_limit.as_secs_f64();
        let figures = self
            .json
            .iter()
            .try_for_each(|path| table::write(path, (self.seed, limit_s), &schedules, &contestants, &rows));
        let title = format!("seed {}: runs under the same faults", self.seed);
        let picture = self.plot.iter().try_for_each(|path| plot::draw(path, &title, &contestants));
        let mut written = figures.and(picture);
        for (place, contestant) in (1..).zip(&contestants) {
            written = written.and(tell_failures(contestant, place, &self.keep));
        }
        say!("{}", table::show(&rows))?;
        let differences = self.same.map_or(0, |text| tell_differences(&contestants, &text));
        written?;
        Ok(if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// One rank of the built-in program.
fn built_in(solver: &Solver) -> Result<Vec<OsString>, Failure> {
    let own = std::env::current_exe()?.into_os_string();
    let words =
        ["chaos", "solver"].map(OsString::from).into_iter().chain(solver.arguments().map(OsString::from));
    Ok([own].into_iter().chain(words).collect())
}

/// Checks that what is bad is there.
fn check(rates: &Rates, layout: Layout) -> Result<(), Failure> {
    let domains = layout.domains.map_or(0, NonZeroU32::get);
    if layout.hosts > HOSTS_MAX || domains > layout.hosts {
        return Err(Failure::new(format!(
            "there can be up to {HOSTS_MAX} hosts, and no more domains than hosts"
        )));
    }
    let missing =
        |bad: &[(u32, f64)], count: u32| bad.iter().map(|(index, _)| *index).find(|index| *index >= count);
    if let Some(host) = missing(&rates.bad_hosts, layout.hosts) {
        return Err(Failure::new(format!(
            "--bad names host {host}, but there are {}, counted from 0",
            layout.hosts
        )));
    }
    if let Some(domain) = missing(&rates.bad_domains, domains) {
        return Err(Failure::new(format!(
            "--bad-domain names domain {domain}, but there are {domains}, counted from 0"
        )));
    }
    Ok(())
}

fn run_all(stage: &Stage, files: Vec<PathBuf>, schedules: &[Vec<Fault>]) -> Result<Vec<Contestant>, Failure> {
    let progress = progress::bar((files.len() * (schedules.len() + 1)) as u64, "runs");
    let run = |file: &PathBuf, faults: &[Fault]| stage.run(file, faults).inspect(|_| progress.inc(1));
    let mut contestants: Vec<Contestant> = Vec::new();
    for file in files {
        let undisturbed = run(&file, &[])?;
        if let Some(why) = describe(&undisturbed.end) {
            let file = file.display();
            return Err(Failure::new(format!(
                "without any fault, the program does not end well under {file}: {why}"
            )));
        }
        contestants.push(Contestant { file, undisturbed, trials: Vec::new() });
    }
    // In turns, so that what disturbs the machine disturbs all of them.
    for faults in schedules {
        for Contestant { file, trials, .. } in &mut contestants {
            trials.push(run(file, faults)?);
        }
    }
    progress.finish_and_clear();
    Ok(contestants)
}

/// Why a run has not come to its end.
fn describe(end: &End) -> Option<&str> {
    match end {
        End::Well => None,
        End::Failed { why } => Some(why),
        End::TimeLimit => Some("it took longer than --time-limit"),
    }
}

/// Tells which runs have not come to their end, and keeps what they have said. Their place among all files
/// tells files of the same name apart.
fn tell_failures(
    Contestant { file, trials, .. }: &Contestant,
    place: usize,
    keep: &Path,
) -> Result<(), Failure> {
    for (number, seen) in trials.iter().enumerate() {
        let Some(why) = describe(&seen.end) else { continue };
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let path = keep.join(format!("{place}-{name}-trial-{number}.txt"));
        let output = seen.output.as_deref().unwrap_or_default();
        fs::create_dir_all(keep)
            .and_then(|()| fs::write(&path, output))
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        note!("everfold: {}, trial {number}: {why}\n  output: {}", file.display(), path.display());
    }
    Ok(())
}

/// Tells which runs have not printed what the first one has, as far as it has that text. Returns how many.
fn tell_differences(contestants: &[Contestant], text: &str) -> usize {
    let lines = |seen: &Seen| -> Vec<String> {
        seen.lines.iter().filter(|line| line.contains(text)).cloned().collect()
    };
    let expected = lines(&contestants[0].undisturbed);
    if expected.is_empty() {
        note!("everfold: the run without faults prints no line with {text:?}");
        return 1;
    }
    let mut differences = 0;
    for Contestant { file, undisturbed, trials } in contestants {
        let named = trials.iter().enumerate().map(|(number, seen)| (format!("trial {number}"), seen));
        for (name, seen) in [("undisturbed".to_owned(), undisturbed)].into_iter().chain(named) {
            let found = lines(seen);
            if seen.end == End::Well && found == expected {
                continue;
            }
            differences += 1;
            let odd = |lines: &[String], others: &[String]| {
                lines
                    .iter()
                    .find(|line| !others.contains(line))
                    .cloned()
                    .unwrap_or_else(|| "nothing else".to_owned())
            };
            let (is, was) = (odd(&found, &expected), odd(&expected, &found));
            note!("everfold: {}, {name}, has not printed the same: {is}; instead of: {was}", file.display());
        }
    }
    differences
}
