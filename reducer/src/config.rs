//! Limits and timeouts of a job.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use everfold_master::Policy;
use everfold_protocol::spec::Limits;

use crate::{
    checkpoint::Interval,
    recovery::{LocatedFaults, NAMES_MAX, Protocol, Recoveries, Recovery, Repeated, Restart},
};

/// The limits and waiting times of a job. All processes of a job run the same program and so have the same
/// configuration; if they differ, the limits of rank 0 hold.
///
/// | knob | unit | default | range | more costs | less costs |
/// |---|---|---|---|---|---|
/// | [`join_timeout`](Self::join_timeout) | time | 60 s | 1 ms – 1 day | a missing process is reported later | slow starts fail |
/// | [`body_bytes_max`](Self::body_bytes_max) | bytes | 16 GiB | 1 – 2⁴⁸ | a wrong length takes more memory before it is refused | long bodies are refused |
/// | [`ping_interval`](Self::ping_interval) | time | 500 ms | 10 ms – 1 min | silence is noticed later | more messages; a busy machine is taken for dead |
/// | [`inline_bytes_max`](Self::inline_bytes_max) | bytes | 16 KiB | 0 – 1 MiB | memory and time of the master | short bodies pay round trips |
/// | [`board_bytes_max`](Self::board_bytes_max) | bytes | 512 KiB | 0 (none) – 512 KiB | one rank folds alone where several could | messages and tasks for short arrays |
/// | [`reductions_max`](Self::reductions_max) | open calls per rank | 65 536 | 1 – 2²⁴ | a program that forgets to await takes more memory before it is refused | fewer at a time |
/// | [`teams_from`](Self::teams_from) | ranks | 100 | 0 (never), 3 – 2³² − 1 | the master's messages take longer than the data | a death loses more of what has no protection |
/// | [`checkpoint_interval`](Self::checkpoint_interval) | time | Daly's optimum for an MTBF of a day | fixed: 0 – 1 year; MTBF: 1 s – 100 years | more is computed again after a death | time to save |
/// | [`result_log_bytes_max`](Self::result_log_bytes_max) | bytes per rank | 1 GiB | 1 KiB – 2⁴⁸ | memory of the host | checkpoints have to come more often |
///
/// Silence counts as death after three ping intervals, and up to twenty for a process that has been late
/// before. Fixed parts of the interval decide when a slow task is given to others, when replicas are made,
/// and when a process that was itself woken late discounts that. Pings cost two messages per process and
/// interval.
///
/// ```
/// use std::time::Duration;
/// use everfold::{Config, Launch};
///
/// let launch = Launch::from_env_or_local(4).config(Config::default().join_timeout(Duration::from_secs(5)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    join_timeout: Duration,
    limits: Limits,
    recoveries: Recoveries,
    detectors: Vec<String>,
    storage: Option<PathBuf>,
    domain: Option<String>,
    checkpoint_interval: Interval,
    checkpoint_pace: Option<String>,
    checkpoint_directory: Option<PathBuf>,
    checkpoint_protocol: Option<Protocol>,
    rolls_back: bool,
    result_log_bytes_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            join_timeout: Duration::from_secs(60),
            limits: Limits::default(),
            recoveries: Recoveries::IGNORE,
            detectors: Vec::new(),
            storage: None,
            domain: std::env::var("EVERFOLD_DOMAIN").ok().filter(|label| !label.is_empty()),
            checkpoint_interval: Interval::default(),
            checkpoint_pace: None,
            checkpoint_directory: None,
            checkpoint_protocol: None,
            rolls_back: false,
            result_log_bytes_max: 1 << 30,
        }
    }
}

/// A knob is set to a value that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.told())]
pub struct ConfigError {
    /// Which one.
    pub knob: &'static str,
    /// Its value: nanoseconds of a time, bytes of a size, a number otherwise.
    pub value: u128,
    /// The least that makes sense.
    pub least: u128,
    /// The most that makes sense.
    pub most: u128,
}

/// The end of the names of knobs that are times.
const NANOSECONDS: &str = " (ns)";

fn time(ns: u128) -> Duration {
    u64::try_from(ns).map_or(Duration::MAX, Duration::from_nanos)
}

impl ConfigError {
    /// Where the knob stands in a [recovery file](crate::recovery::RecoveryFile).
    pub(crate) fn key(&self) -> &'static str {
        match self.knob {
            "result_log_bytes_max" => "checkpoint.result_log",
            "checkpoint_interval (ns)" => "checkpoint.interval",
            "checkpoint_interval, mtbf (ns)" => "checkpoint.mtbf",
            knob => knob.trim_end_matches(NANOSECONDS),
        }
    }

    fn told(&self) -> String {
        let Self { knob, value, least, most } = *self;
        match knob.strip_suffix(NANOSECONDS) {
            Some(knob) => {
                let [value, least, most] = [value, least, most].map(time);
                format!("{knob} is {value:?}; it has to be {least:?} to {most:?}")
            }
            None => format!("{knob} is {value}; it has to be {least} to {most}"),
        }
    }
}

impl Config {
    /// How long a process waits for the others of its job to join.
    pub fn join_timeout(mut self, timeout: Duration) -> Self {
        self.join_timeout = timeout;
        self
    }

    /// Largest body, in bytes.
    pub fn body_bytes_max(mut self, bytes: u64) -> Self {
        self.limits.body_bytes_max = bytes;
        self
    }

    /// Largest body that travels inside its message, in bytes.
    pub fn inline_bytes_max(mut self, bytes: u64) -> Self {
        self.limits.inline_bytes_max = bytes;
        self
    }

    /// Largest array, in bytes, that goes on the board: memory that the ranks of one host share, where they
    /// fold without the master; 0 for none. The arrays of all ranks together have at most 4 MiB in any case,
    /// and 1 MiB if every rank receives the result. Where ranks migrate or are promoted, there is none.
    pub fn board_bytes_max(mut self, bytes: u64) -> Self {
        self.limits.board_bytes_max = bytes;
        self
    }

    /// Most open reductions of one rank: called, and not ended. Besides its body, each takes memory at its
    /// rank and, once for all ranks, at the master.
    pub fn reductions_max(mut self, reductions: u64) -> Self {
        self.limits.reductions_max = reductions;
        self
    }

    /// Number of ranks from which on a reduction to one root works in teams, each with a deputy of the
    /// master; 0 for never. Only arrays between hosts do, in the order of arrival, without protection,
    /// deadline and trace. The root then keeps a copy of its array until it has the result.
    pub fn teams_from(mut self, ranks: u32) -> Self {
        self.limits.teams_from = ranks;
        self
    }

    /// Lets ranks come back whose processes have died: the agent of their host starts them again, with the same
    /// arguments. A process that comes back makes the calls of the earlier process again, hears how those
    /// reductions ended, and goes on from there. So a program has to do the same again.
    ///
    /// Each rank notes its outcomes before the program hears them. Teams could not note theirs, so
    /// [`teams_from`](Self::teams_from) counts as 0.
    pub fn restart_ranks(self) -> Self {
        self.recover(Recoveries::RESTART)
    }

    /// Which recovery meets which fault: [`restart_ranks`](Self::restart_ranks) with limits of your own. A
    /// [file](crate::recovery::RecoveryFile) takes precedence.
    pub fn recover(mut self, recoveries: Recoveries) -> Self {
        self.rolls_back = false;
        self.recoveries = recoveries;
        self
    }

    /// The names of [detectors of your own](crate::Launch::detector), which are asked about each death in
    /// this order, before the built-in ones. They are asked where ranks come back. A
    /// [file](crate::recovery::RecoveryFile) takes precedence.
    pub fn detectors<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.detectors = names.into_iter().map(Into::into).collect();
        self
    }

    /// How long a rank computes between two checkpoints, where [ranks come back](Self::restart_ranks).
    pub fn checkpoint_interval(mut self, interval: Interval) -> Self {
        self.checkpoint_interval = interval;
        self
    }

    /// The name of a [pace of your own](crate::Launch::checkpoint_pace), which decides when checkpoints are due
    /// in place of the [interval](Self::checkpoint_interval). A [file](crate::recovery::RecoveryFile) takes
    /// precedence.
    pub fn checkpoint_pace(mut self, name: impl Into<String>) -> Self {
        self.checkpoint_pace = Some(name.into());
        self
    }

    /// Saves checkpoints also in a directory that outlives the job: [`Launch::resume`](crate::Launch::resume)
    /// goes on from there. The directory is on a file system that all hosts share, or each host has one of
    /// its own. All ranks then save at the same call of [`Session::checkpoint`](crate::Session::checkpoint),
    /// whether ranks come back or not.
    pub fn checkpoint_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.checkpoint_directory = Some(directory.into());
        self
    }

    /// Lets all ranks go back to the last complete checkpoint in the [directory](Self::checkpoint_directory)
    /// when the process of one has ended: all processes are started again and call
    /// [`Session::resume`](crate::Session::resume). For programs that would not repeat the same calls between
    /// two checkpoints, as [`restart_ranks`](Self::restart_ranks) needs. The limits are those of
    /// [`Recoveries::restart`]; a new checkpoint is progress.
    pub fn roll_back(mut self) -> Self {
        self.rolls_back = true;
        let ignore = Recovery::Ignore.into();
        self.recoveries = Recoveries {
            process: ignore,
            located: None,
            repeated: None,
            physical: ignore,
            network: None,
            ..self.recoveries
        };
        self
    }

    /// Most bytes of outcomes that a rank notes between two checkpoints, where [ranks come
    /// back](Self::restart_ranks). A checkpoint is due once half of them are taken. Over the limit the rank
    /// goes on, but cannot come back before its next checkpoint;
    /// [`News::CannotReturn`](crate::News::CannotReturn) says so.
    pub fn result_log_bytes_max(mut self, bytes: u64) -> Self {
        self.result_log_bytes_max = bytes;
        self
    }

    /// Time between two pings of every process.
    pub fn ping_interval(mut self, interval: Duration) -> Self {
        self.limits.ping_interval = interval;
        self
    }

    /// Directory on a local disk for replicas of contributions, while a job needs them. Without it,
    /// `$EVERFOLD_DIR`, or `everfold` in the user's cache directory. Without the feature `disk` nothing is
    /// written there.
    pub fn storage(mut self, directory: impl Into<PathBuf>) -> Self {
        self.storage = Some(directory.into());
        self
    }

    /// Label of the hosts that may fail together with this one, such as those of a switch or a rack. Replicas
    /// go to another domain where there is one. Without it, `$EVERFOLD_DOMAIN`.
    pub fn domain(mut self, label: impl Into<String>) -> Self {
        self.domain = Some(label.into());
        self
    }

    /// Checks all knobs.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let day_ns = 86_400 * 1_000_000_000;
        check("join_timeout (ns)", self.join_timeout.as_nanos(), 1_000_000..=day_ns)?;
        let minute_ns = 60 * 1_000_000_000;
        check("ping_interval (ns)", self.limits.ping_interval.as_nanos(), 10_000_000..=minute_ns)?;
        check("body_bytes_max", self.limits.body_bytes_max.into(), 1..=1 << 48)?;
        check("inline_bytes_max", self.limits.inline_bytes_max.into(), 0..=1 << 20)?;
        check("board_bytes_max", self.limits.board_bytes_max.into(), 0..=512 << 10)?;
        check("reductions_max", self.limits.reductions_max.into(), 1..=1 << 24)?;
        check("result_log_bytes_max", self.result_log_bytes_max.into(), 1 << 10..=1 << 48)?;
        let year_ns = 366 * day_ns;
        match self.checkpoint_interval {
            Interval::Fixed(interval) => check("checkpoint_interval (ns)", interval.as_nanos(), 0..=year_ns)?,
            Interval::Young { mtbf } | Interval::Daly { mtbf } => {
                check("checkpoint_interval, mtbf (ns)", mtbf.as_nanos(), 1_000_000_000..=100 * year_ns)?;
            }
        }
        self.validate_recoveries(day_ns)?;
        match self.limits.teams_from {
            0 => Ok(()),
            ranks => check("teams_from", ranks.into(), 3..=u32::MAX.into()),
        }
    }

    fn validate_recoveries(&self, day_ns: u128) -> Result<(), ConfigError> {
        let Recoveries { ref located, repeated, restart, network, replica_bytes_max, .. } = self.recoveries;
        check("restart.starts_max", restart.starts_max.into(), 1..=1 << 20)?;
        check("restart.fruitless_max", restart.fruitless_max.into(), 0..=1 << 20)?;
        check("restart.pause_max (ns)", restart.pause_max.as_nanos(), 0..=day_ns)?;
        check("restart.join_timeout (ns)", restart.join_timeout.as_nanos(), 1_000_000..=day_ns)?;
        check("restart.pause (ns)", restart.pause.as_nanos(), 0..=restart.pause_max.as_nanos())?;
        check("migrate.replica_bytes", replica_bytes_max.into(), 1 << 10..=1 << 48)?;
        if let Some(network) = network {
            check("network.share_percent", network.share_percent.into(), 0..=99)?;
        }
        if let Some(LocatedFaults { faults, .. }) = located {
            check("located.faults", faults.len() as u128, 1..=NAMES_MAX as u128)?;
        }
        let Some(Repeated { faults, within, .. }) = repeated else { return Ok(()) };
        check("repeated.faults", faults.into(), 1..=1 << 20)?;
        check("repeated.within (ns)", within.as_nanos(), 1_000_000..=366 * day_ns)
    }

    pub(crate) fn policy(&self) -> Policy {
        let folds = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        Policy {
            limits: self.limits(),
            join_timeout: self.join_timeout,
            recoveries: self.recoveries.clone(),
            folds,
            ..Policy::default()
        }
    }

    /// The limits of the job's ranks. Outcomes in a team cannot be noted, and those on a board are not replicated.
    fn limits(&self) -> Limits {
        let limits = match self.recoveries.ranks_return() {
            true => Limits { ranks_return: true, replica_bytes_max: 0, teams_from: 0, ..self.limits },
            false => self.limits,
        };
        match self.recoveries.ranks_migrate() {
            true => {
                let replica_bytes_max = self.recoveries.replica_bytes_max;
                Limits { replica_bytes_max, board_bytes_max: 0, ..limits }
            }
            false => limits,
        }
    }

    /// The names of own detectors.
    pub(crate) fn detector_names(&self) -> &[String] {
        &self.detectors
    }

    pub(crate) fn storage_directory(&self) -> PathBuf {
        self.storage.clone().unwrap_or_else(everfold_storage::job_directory::base_directory)
    }

    /// The directory of checkpoints, if there is one.
    pub(crate) fn checkpoints(&self) -> Option<&Path> {
        self.checkpoint_directory.as_deref()
    }

    /// Whether a second process of each rank stands by.
    pub(crate) fn ranks_stand_by(&self) -> bool {
        self.recoveries.ranks_stand_by()
    }

    /// How often all ranks may go back to a checkpoint together, if they do.
    pub(crate) fn rollback(&self) -> Option<Restart> {
        self.rolls_back.then_some(self.recoveries.restart)
    }

    pub(crate) fn interval(&self) -> Interval {
        self.checkpoint_interval
    }

    /// The name of the program's own pace of checkpoints.
    pub(crate) fn pace(&self) -> Option<&str> {
        self.checkpoint_pace.as_deref()
    }

    /// This, with this pace in place of another one or none, or with none.
    pub(crate) fn paced_by(mut self, name: Option<String>) -> Self {
        self.checkpoint_pace = name;
        self
    }

    /// Whether ranks save for themselves or together, where that is demanded.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        self.checkpoint_protocol
    }

    /// This, with a demand for this protocol in place of another one or none, or with none.
    pub(crate) fn saved_by(mut self, protocol: Option<Protocol>) -> Self {
        self.checkpoint_protocol = protocol;
        self
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        self.result_log_bytes_max
    }

    pub(crate) fn domain_label(&self) -> Option<String> {
        self.domain.clone()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.join_timeout
    }
}

fn check(knob: &'static str, value: u128, range: RangeInclusive<u128>) -> Result<(), ConfigError> {
    let (least, most) = range.clone().into_inner();
    if range.contains(&value) { Ok(()) } else { Err(ConfigError { knob, value, least, most }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_have_ranges() {
        let good = Config::default();
        assert_eq!(good.validate(), Ok(()));
        let knob = |config: Config| config.validate().unwrap_err().knob;
        assert_eq!(knob(good.clone().join_timeout(Duration::ZERO)), "join_timeout (ns)");
        assert_eq!(knob(good.clone().join_timeout(Duration::MAX)), "join_timeout (ns)");
        let told = good.clone().ping_interval(Duration::from_millis(1)).validate().unwrap_err().to_string();
        assert_eq!(told, "ping_interval is 1ms; it has to be 10ms to 60s");
        assert_eq!(knob(good.clone().ping_interval(Duration::ZERO)), "ping_interval (ns)");
        assert_eq!(knob(good.clone().body_bytes_max(0)), "body_bytes_max");
        assert_eq!(knob(good.clone().inline_bytes_max(2 << 20)), "inline_bytes_max");
        assert_eq!(knob(good.clone().board_bytes_max(1 << 20)), "board_bytes_max");
        assert_eq!(knob(good.clone().reductions_max(0)), "reductions_max");
        let short = Interval::Young { mtbf: Duration::ZERO };
        assert_eq!(knob(good.clone().checkpoint_interval(short)), "checkpoint_interval, mtbf (ns)");
        let long = Interval::Fixed(Duration::MAX);
        assert_eq!(knob(good.clone().checkpoint_interval(long)), "checkpoint_interval (ns)");
        assert_eq!(knob(good.clone().result_log_bytes_max(0)), "result_log_bytes_max");
        assert_eq!(good.clone().teams_from(0).validate(), Ok(()));
        assert_eq!(knob(good.teams_from(2)), "teams_from");
    }

    #[test]
    fn where_ranks_come_back_nothing_goes_past_the_result_log() {
        let limits = |config: Config| config.policy().limits;
        for config in [Config::default().restart_ranks(), Config::default().teams_from(3).restart_ranks()] {
            let limits = limits(config);
            assert!(limits.ranks_return && limits.board_bytes_max > 0);
            assert_eq!((limits.teams_from, limits.replica_bytes_max), (0, 0));
        }
        let limits =
            limits(Config::default().recover(Recoveries::MIGRATE).board_bytes_max(512 << 10).teams_from(3));
        assert!(limits.ranks_return && limits.replica_bytes_max > 0);
        assert_eq!((limits.teams_from, limits.board_bytes_max), (0, 0));
    }
}
