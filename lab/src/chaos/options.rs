//! What `everfold chaos` can be told.

use std::{ffi::OsString, io::ErrorKind, ops::RangeInclusive, process::ExitCode};

use clap::{Args, Subcommand};

use super::{
    compare::{Compare, Solver},
    job::Begin,
    program::Program,
    schedule::{Kind, Plan},
    setting::Setting,
    storage,
    summary::Summary,
    table2::Table2,
};
use crate::Failure;

const EXAMPLES: &str = "\
Examples:
  everfold chaos --kill 1 --ranks 8 --bytes 4MiB --trials 50
      Kills one of ranks 1 to 7 in each of 50 reductions, at a moment drawn from the time that one takes.
  everfold chaos --kill 2 --stop 1 --slow 1 --faults 1..3 --kind object --all --seed 7
      One to three of these four faults in each trial, in allreduces of serialised objects.
  everfold chaos --cut 1 --hosts 4 --rate 500mbit --ranks 8
      Cuts off one of four hosts (network namespaces, as root); some cuts are healed, some go one way only.
  everfold chaos --kill 1 --lose 1 --lose-domain 1 --faults 1 --hosts 8 --domains 4 --ranks 16 --protection memory
      Kills a process, a host or a domain of two hosts, and tells apart what came of each. What a process has called
      outlives it at every level; what a host or a domain has called needs a replica outside of it.
  everfold chaos --kill 1 --seed 7 --trial 12 --time 41230us
      Repeats one trial. The command is printed for each trial that was wrong, hung or failed otherwise.
  everfold chaos --kill 1 --ranks 4 -- ./simulate --steps 100
      Kills a rank of another program. Ranks that end with exit code 75 say by it that something is lost.
  everfold chaos compare restart.toml rollback.toml -n 4 --process-faults 600/hour -- ./simulate
      Runs a program under the same faults with two recovery files, and prints what each makes of them.
  everfold chaos table2
      The experiment behind Table 2 of the paper, beside its figures.

What counts:
  recovered  every rank that was not hit came to a good end, and the built-in program found every element right
  lost       a rank ended in an error that says what is lost
  wrong      a value was wrong, at whatever rank
  hung       a rank that was not killed did not end in time
  other      a rank failed in another way
The exit code is 0 only if none was wrong or hung, and, with the built-in program, none counts as other.";

/// Make processes, networks and disks fail, and count the results: recovered, lost, wrong, hung.
///
/// Each trial is a job of its own on this machine. Faults are drawn from the seed and the trial's number. In
/// the built-in program they count from the moment when all ranks have joined and the first calls its
/// reduction; in another program from its start. All files of a run are removed, but for the output of trials
/// that went wrong.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, args_override_self = true, after_long_help = EXAMPLES)]
pub struct Chaos {
    #[command(subcommand)]
    case: Option<Case>,
    #[command(flatten)]
    faults: Faults,
    /// Number of trials.
    #[arg(long, default_value_t = 20, value_name = "N")]
    trials: u64,
    #[command(flatten)]
    setting: Setting,
    /// A program to start instead of the built-in one, and its arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Subcommand)]
enum Case {
    Compare(Box<Compare>),
    Table2(Table2),
    /// One rank of the built-in program; started by the others.
    #[command(hide = true)]
    Rank(Program),
    /// One rank of the built-in program of compare; started by it.
    #[command(hide = true)]
    Solver(Solver),
}

/// What goes wrong.
#[derive(Debug, Args)]
#[command(next_help_heading = "Faults")]
struct Faults {
    /// Kill N ranks.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    kill: usize,
    /// Let the built-in program fail on N ranks: it ends in an error, panics, or abandons its session and
    /// lives on.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        conflicts_with = "program"
    )]
    fail: usize,
    /// Stop N ranks for 0.1 to 5 s each.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    stop: usize,
    /// Cut N hosts off from the others, for 0.1 to 5 s or for good; implies --hosts, one for each rank. Needs
    /// root.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    cut: usize,
    /// Kill N hosts as a whole, each with its agent and all its ranks, but not the host of rank 0, which hosts
    /// the master; implies --hosts, one for each rank. Needs root.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    lose: usize,
    /// Kill N domains as a whole, each with all its hosts, but not the one of rank 0. Needs --domains and root.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    lose_domain: usize,
    /// Let N ranks run only 2 to 20 % of the time.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    slow: usize,
    /// Fill the disk under the job's directory, EVERFOLD_DIR. Needs root.
    #[arg(long)]
    disk_full: bool,
    /// Change bytes of a file of the job, N times.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    corrupt: usize,
    /// Draw this many of these faults for each trial, such as 2 or 1..3 (one, two or three), instead of all.
    #[arg(long, value_name = "RANGE", value_parser = parse_range)]
    faults: Option<RangeInclusive<usize>>,
    /// Ranks that may be hit, such as 1,4..7, both ends included. By default all but the one that receives the
    /// result, if only one does.
    #[arg(long, value_name = "RANKS", value_delimiter = ',', value_parser = parse_range)]
    victims: Option<Vec<RangeInclusive<usize>>>,
}

fn parse_range(text: &str) -> Result<RangeInclusive<usize>, String> {
    let refuse = || format!("{text:?} is no range; write 2 or 1..3");
    let number = |text: &str| text.parse::<usize>().map_err(|_| refuse());
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (number(first)?, number(last.trim_start_matches('='))?),
        None => (number(text)?, number(text)?),
    };
    if first <= last { Ok(first..=last) } else { Err(refuse()) }
}

impl Chaos {
    /// Runs what was asked for, and prints what came of it.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(mut self) -> Result<ExitCode, Failure> {
        match self.case.take() {
            None => self.run_trials(),
            Some(Case::Compare(compare)) => compare.run(),
            Some(Case::Table2(table2)) => table2.run(),
            Some(Case::Rank(program)) => program.run(),
            Some(Case::Solver(solver)) => solver.run(),
        }
    }

    fn run_trials(self) -> Result<ExitCode, Failure> {
        let ranks = self.setting.ranks.unwrap_or(8);
        let mut kinds = self.faults.kinds();
        if kinds.is_empty() {
            return Err(Failure::new(
                "nothing is to go wrong: ask for --kill, --lose, --stop, --cut, --slow, --disk-full or --corrupt",
            ));
        }
        if let Some(most) =
            self.faults.faults.as_ref().map(|faults| *faults.end()).filter(|most| *most > kinds.len())
        {
            return Err(Failure::new(format!(
                "--faults asks for {most} faults, but only {} are named: name more of them",
                kinds.len()
            )));
        }
        self.setting.check_file()?;
        if kinds.contains(&Kind::DiskFull) {
            match storage::keep_mounts_to_ourselves() {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    note!(
                        "everfold: --disk-full is skipped: it mounts a disk of its own, and that needs root \
                         (CAP_SYS_ADMIN): {error}"
                    );
                    kinds.retain(|kind| *kind != Kind::DiskFull);
                }
                result => result?,
            }
        }
        let cluster = match self.setting.cluster(ranks, kinds.iter().any(is_of_hosts)) {
            Err(error) if error.is_unavailable() && self.setting.hosts.is_none() => {
                note!("everfold: faults of hosts are skipped: {error}");
                kinds.retain(|kind| !is_of_hosts(kind));
                None
            }
            cluster => cluster?,
        };
        if kinds.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let faults = self
            .faults
            .faults
            .map(|faults| *faults.start().min(&kinds.len())..=*faults.end().min(&kinds.len()));
        let layout = self.setting.layout(ranks, cluster.as_ref());
        let victims = victims(self.faults.victims.as_deref(), ranks, self.setting.program.root())?;
        let plan = Plan { kinds, faults, victims, layout };
        let spec = self.setting.spec(self.program, layout, cluster, Begin::FirstCall)?;
        let built_in = spec.speaks;
        let seen = self.setting.experiment(spec, plan, self.trials).run()?;
        let summary = Summary::new(&seen.trials, &seen.without_faults);
        self.setting.tell(&seen, &summary, &summary.show())?;
        Ok(if summary.is_good(built_in) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Faults {
    fn kinds(&self) -> Vec<Kind> {
        let counts = [
            (Kind::Kill, self.kill),
            (Kind::Fail, self.fail),
            (Kind::Stop, self.stop),
            (Kind::Cut, self.cut),
            (Kind::Lose, self.lose),
            (Kind::LoseDomain, self.lose_domain),
            (Kind::Slow, self.slow),
            (Kind::DiskFull, usize::from(self.disk_full)),
            (Kind::Corrupt, self.corrupt),
        ];
        counts.into_iter().flat_map(|(kind, count)| std::iter::repeat_n(kind, count)).collect()
    }
}

/// Whether it hits a host.
fn is_of_hosts(kind: &Kind) -> bool {
    matches!(kind, Kind::Cut | Kind::Lose | Kind::LoseDomain)
}

fn victims(
    chosen: Option<&[RangeInclusive<usize>]>,
    ranks: u32,
    spared: Option<u32>,
) -> Result<Vec<u32>, Failure> {
    let Some(chosen) = chosen else {
        return Ok((0..ranks).filter(|rank| Some(*rank) != spared).collect());
    };
    let chosen = |rank: &u32| chosen.iter().any(|range| range.contains(&(*rank as usize)));
    let victims: Vec<u32> = (0..ranks).filter(chosen).collect();
    if victims.is_empty() {
        return Err(Failure::new(format!("--victims names none of the ranks 0 to {}", ranks - 1)));
    }
    Ok(victims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(parse_range("2"), Ok(2..=2));
        assert_eq!(parse_range("1..3"), Ok(1..=3));
        assert_eq!(parse_range("1..=3"), Ok(1..=3));
        for text in ["", "3..1", "a", "1..", "-1"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_root_is_spared_unless_it_is_named() {
        assert_eq!(victims(None, 4, Some(0)).unwrap(), [1, 2, 3]);
        assert_eq!(victims(None, 4, None).unwrap(), [0, 1, 2, 3]);
        assert_eq!(victims(Some(&[0..=0, 2..=9]), 4, Some(0)).unwrap(), [0, 2, 3]);
        assert!(victims(Some(&[4..=9]), 4, None).is_err());
    }
}
