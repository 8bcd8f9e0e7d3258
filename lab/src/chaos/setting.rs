//! Where trials take place, and how they are told: options that all of `everfold chaos` has.

use std::{ffi::OsString, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::Args;

use super::{
    experiment::{Experiment, Seen},
    job::{Begin, JobSpec},
    program::Program,
    schedule::{Layout, Plan},
    summary::{self, Summary},
};
use crate::{
    Failure, Transport,
    cluster::{Cluster, ClusterError, HOSTS_MAX, Rate},
    files, say,
};

/// The longest time that can be given, in seconds: thirty days. Many times of it can still be counted.
const TIME_MAX_S: f64 = 30.0 * 86_400.0;

/// Where trials take place.
#[derive(Clone, Debug, Args)]
pub struct Setting {
    /// Number of processes [default: 8; 16 for table2].
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub ranks: Option<u32>,
    /// Seed of all faults.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Run only this trial, counted from 0.
    #[arg(long, value_name = "K")]
    pub trial: Option<u64>,
    /// Time of a trial without faults, such as 41230us or 1.5s. Measured if not given.
    #[arg(long, value_parser = parse_time)]
    pub time: Option<Duration>,
    /// Faults come within this many times of the time without faults.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = parse_factor)]
    pub window: f64,
    /// Trials that take longer count as hung.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_time)]
    pub timeout: Duration,
    /// How the ranks read each other's memory.
    #[arg(long, value_enum, default_value_t)]
    pub transport: Transport,
    /// Spread the ranks over H hosts with networks of their own. Needs root.
    #[arg(long, value_name = "H", value_parser = clap::value_parser!(u32).range(1..=i64::from(HOSTS_MAX)))]
    pub hosts: Option<u32>,
    /// Let neighbouring hosts form D domains, each with a label: replicas go to another domain.
    #[arg(long, value_name = "D", requires = "hosts")]
    pub domains: Option<NonZeroU32>,
    /// Rate of a host's link each way, such as 500mbit.
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Also write all observations to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where to keep the output of trials that were wrong, hung or failed otherwise.
    #[arg(long, value_name = "FOLDER", default_value = "everfold-chaos")]
    pub keep: PathBuf,
    #[command(flatten)]
    pub program: Program,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is no time up to 30 days; write 500us, 20ms or 1.5s");
    let (number, unit) = ["us", "ms", "s"]
        .iter()
        .find_map(|unit| Some((text.strip_suffix(unit)?, *unit)))
        .ok_or_else(refuse)?;
    let seconds = number.parse::<f64>().map_err(|_| refuse())?
        * match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            _ => 1.0,
        };
    let is_meant = (0.0..=TIME_MAX_S).contains(&seconds);
    is_meant.then(|| Duration::from_secs_f64(seconds)).ok_or_else(refuse)
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (0.0..=1000.0).contains(factor));
    factor.ok_or_else(|| format!("{text:?} is no factor from 0 to 1000"))
}

impl Setting {
    /// Checks that the file that is asked for can be written.
    pub fn check_file(&self) -> Result<(), Failure> {
        self.json.iter().try_for_each(|path| files::check(path))
    }

    /// The hosts, if there are to be any.
    pub fn cluster(&self, ranks: u32, is_cut: bool) -> Result<Option<Cluster>, ClusterError> {
        let hosts = self.hosts.or((is_cut || self.rate.is_some()).then_some(ranks));
        hosts.map(|hosts| Cluster::start(hosts, self.rate)).transpose()
    }

    /// Where ranks and hosts are.
    pub fn layout(&self, ranks: u32, cluster: Option<&Cluster>) -> Layout {
        Layout { ranks, hosts: cluster.map_or(1, Cluster::len), domains: self.domains }
    }

    /// What each trial runs: `words`, or the built-in program.
    pub fn spec(
        &self,
        words: Vec<OsString>,
        layout: Layout,
        cluster: Option<Cluster>,
        begin: Begin,
    ) -> Result<JobSpec, Failure> {
        let transport = if cluster.is_some() { self.transport.of_hosts()? } else { self.transport.into() };
        let mut words = words.into_iter();
        let (program, arguments, speaks) = match words.next() {
            Some(program) => (program.into(), words.collect(), false),
            None => {
                let ours = ["chaos", "rank"].map(str::to_owned).into_iter().chain(self.program.arguments());
                (std::env::current_exe()?, ours.map(Into::into).collect(), true)
            }
        };
        Ok(JobSpec { program, arguments, speaks, transport, layout, cluster, begin })
    }

    /// Trials 0 to `trials`, or the one that is chosen.
    pub fn experiment(&self, spec: JobSpec, plan: Plan, trials: u64) -> Experiment {
        Experiment {
            spec,
            root: self.program.root(),
            plan,
            seed: self.seed,
            numbers: self.trial.map_or_else(|| (0..trials).collect(), |trial| vec![trial]),
            timeout: self.timeout,
            time: self.time,
            window: self.window,
            keep: self.keep.clone(),
        }
    }

    /// Writes the file that is asked for, and prints `results`, also if that file cannot be written.
    pub fn tell(&self, seen: &Seen, summary: &Summary, results: &str) -> Result<(), Failure> {
        let written = match &self.json {
            Some(path) => summary::write(path, self.seed, seen, summary),
            None => Ok(()),
        };
        say::results(results)?;
        written?;
        self.json.iter().try_for_each(|path| say!("figures: {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(parse_time("41230us"), Ok(Duration::from_micros(41_230)));
        assert_eq!(parse_time("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2592000s"), Ok(Duration::from_secs(2_592_000)));
        for text in ["", "5", "s", "-1s", "infs", "nans", "1e40s", "1e19s", "2592001s"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
