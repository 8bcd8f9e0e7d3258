//! The file in which recoveries are chosen.

mod written;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use everfold_runtime::locating::{host_faults, is_fault};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

pub(crate) use self::written::Protocol;
use self::written::{
    Due, Process, Written, WrittenCheckpoint, WrittenLocated, WrittenNetwork, WrittenRepeated, WrittenRestart,
};
use super::{Chain, LocatedFaults, Network, Recoveries, Recovery, Repeated, Restart};
use crate::{
    checkpoint::Interval,
    config::{Config, ConfigError},
};

/// Most detectors of a programmer's own, and most located faults.
pub(crate) const NAMES_MAX: usize = 16;
/// Most bytes of the name of one.
const NAME_BYTES_MAX: usize = 64;

/// A file that chooses which recovery meets which fault, and when ranks save checkpoints.
///
/// ```
/// use everfold::recovery::{Recovery, RecoveryFile};
///
/// let file = RecoveryFile::parse(r#"
///     process = "restart"       # a process has ended: "migrate", "promote", "ignore", a list of them, or "rollback"
///     physical = "ignore"       # a host is lost: "migrate", "promote", "ignore", or a list of them
///     detectors = ["cautious"]  # of your own, asked before the built-in ones; none without it
///
///     [located]                 # a process has ended on a host that is known to be faulty
///     faults = ["disk_failing"] # the name of the fault in the rules
///     recovery = "migrate"
///
///     [repeated]                # processes of one host die again and again
///     faults = 5                # after this number of faults ...
///     within = "10 min"         # ... within this time
///     recovery = "ignore"
///
///     [network]                 # so many hosts of a domain are lost that it is the domain's fault
///     share_percent = 50        # more than this share of them
///     recovery = "migrate"      # to hosts of other domains
///
///     [restart]
///     starts_max = 100          # most starts of a rank
///     fruitless_max = 8         # most starts in a row without progress on one host; over all hosts twice as many
///     pause = "100 ms"          # before a start without progress; doubles each time
///     pause_max = "10 s"
///     join_timeout = "60 s"     # how long a started process has to join
///
///     [migrate]
///     replica_bytes = "4 GiB"   # most bytes of replicas that the agent of a host holds
///
///     [checkpoint]
///     protocol = "coordinated"  # or "independent": whether all ranks save at the same call
///     directory = "/scratch/me" # where they outlive the job; none without it
///     interval = "daly"         # or "young", or a time such as "5 min"; or `pace = "NAME"`, one of your own
///     mtbf = "1 d"              # mean time between failures of a process
///     result_log = "1 GiB"      # most bytes of outcomes per rank between two checkpoints
/// "#)?;
/// assert_eq!(file.recoveries().process, Recovery::Restart.into());
/// # Ok::<(), everfold::recovery::RecoveryError>(())
/// ```
///
/// Every key may be left out, and so may the whole content. A key that is left out has the value that it has
/// above, with three exceptions: without `[located]`, `[repeated]` and `[network]` there are no such faults.
/// These sections need all of their keys. Without `directory`, the protocol is "independent".
///
/// A file replaces all that the program chooses, but for the directory, if the file names none. `Display`
/// says in plain words what happens at each fault.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveryFile {
    recoveries: Recoveries,
    detectors: Vec<String>,
    rolls_back: bool,
    interval: Interval,
    pace: Option<String>,
    protocol: Option<Protocol>,
    directory: Option<PathBuf>,
    result_log_bytes_max: u64,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// It cannot be read.
    #[error("cannot read the recovery file {}: {source}", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Its text has a mistake.
    #[error("the recovery file{} has a mistake: {reason}", at(path))]
    Malformed {
        /// Its path, if it was read from one.
        path: Option<PathBuf>,
        /// What is wrong, with line and key.
        reason: String,
    },
}

fn at(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(String::new, |path| format!(" {}", path.display()))
}

impl RecoveryFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`RecoveryError`]: it cannot be read, or has a mistake, whose line and key it names.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, RecoveryError> {
        let path = path.as_ref().to_owned();
        match fs::read_to_string(&path) {
            Ok(text) => {
                Self::from_text(&text).map_err(|reason| RecoveryError::Malformed { path: Some(path), reason })
            }
            Err(source) => Err(RecoveryError::Unreadable { path, source }),
        }
    }

    /// Reads what stands in such a file.
    ///
    /// # Errors
    /// The text makes no sense. What is wrong is told with line and key.
    pub fn parse(text: &str) -> Result<Self, RecoveryError> {
        Self::from_text(text).map_err(|reason| RecoveryError::Malformed { path: None, reason })
    }

    /// Whether all ranks go back to the last checkpoint when a process has ended.
    pub fn rolls_back(&self) -> bool {
        self.rolls_back
    }

    /// The directory of checkpoints that outlive the job.
    pub fn checkpoint_directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// The names of detectors of your own, in the order in which they are asked.
    pub fn detectors(&self) -> &[String] {
        &self.detectors
    }

    /// Which recovery meets which fault.
    pub fn recoveries(&self) -> Recoveries {
        self.recoveries.clone()
    }

    /// When checkpoints are due, unless a [pace](Self::checkpoint_pace) of the program's own decides.
    pub fn checkpoint_interval(&self) -> Interval {
        self.interval
    }

    /// The name of the [pace](crate::CheckpointPace) of the program's own that decides when checkpoints are due.
    pub fn checkpoint_pace(&self) -> Option<&str> {
        self.pace.as_deref()
    }

    /// Most bytes of outcomes that a rank notes between two checkpoints.
    pub fn result_log_bytes_max(&self) -> u64 {
        self.result_log_bytes_max
    }

    /// `config`, with what the file says in place of what the program says.
    pub fn apply(&self, config: Config) -> Config {
        let config = config
            .recover(self.recoveries.clone())
            .detectors(self.detectors.iter().cloned())
            .checkpoint_interval(self.interval)
            .paced_by(self.pace.clone())
            .saved_by(self.protocol)
            .result_log_bytes_max(self.result_log_bytes_max);
        let config = if self.rolls_back { config.roll_back() } else { config };
        match &self.directory {
            Some(directory) => config.checkpoint_directory(directory),
            None => config,
        }
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let written: Written =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        let file = Self::from_written(&written).map_err(|(at, why)| format!("{}, {why}", line(text, at)))?;
        file.apply(Config::default()).validate().map_err(|error| located(text, &error))?;
        let refused = |key: &str, why: &str| {
            let offset = DeTable::parse(text).ok().and_then(|table| offset_of(table.get_ref(), key));
            Err(format!("{}, key `{key}`: {why}", line(text, offset.unwrap_or(0))))
        };
        if !file.detectors.is_empty() && !file.recoveries.ranks_return() {
            let why = "detectors choose among recoveries of single ranks, and here no rank comes back by itself: choose \
                       `restart`, `migrate` or `promote` for some fault, or leave it out";
            return refused("detectors", why);
        }
        if let Some(key) = beside_rollback(&file.recoveries).filter(|_| file.rolls_back) {
            let why = "where all ranks go back, none is started alone, migrates or is promoted, whatever the fault: leave \
                       it out";
            return refused(key, why);
        }
        if file.recoveries.ranks_stand_by() {
            let why = "where ranks are promoted, their standbys would save there, too: leave it out, or choose other \
                       recoveries than `promote`";
            if file.directory.is_some() {
                return refused("checkpoint.directory", why);
            }
            if file.protocol == Some(Protocol::Coordinated) {
                return refused(
                    "checkpoint.protocol",
                    "ranks that are promoted save for themselves: \"independent\"",
                );
            }
        }
        Ok(file)
    }

    /// What is written; an error comes with its offset.
    fn from_written(written: &Written) -> Result<Self, (usize, String)> {
        let Written {
            process,
            physical,
            detectors,
            located,
            repeated,
            network,
            restart,
            migrate,
            checkpoint,
        } = written;
        let day = Duration::from_secs(86_400);
        let mtbf = checkpoint.mtbf.as_ref().map_or(day, |mtbf| mtbf.get_ref().0);
        let interval = match (checkpoint.interval, &checkpoint.mtbf) {
            (Some(Due::Fixed(_)), Some(mtbf)) => {
                let why =
                    "key `checkpoint.mtbf`: the interval is fixed and depends on no failures; leave it out";
                return Err((mtbf.span().start, why.to_owned()));
            }
            (Some(Due::Fixed(interval)), None) => Interval::Fixed(interval),
            (Some(Due::Young), _) => Interval::Young { mtbf },
            (Some(Due::Daly) | None, _) => Interval::Daly { mtbf },
        };
        let pace = checkpoint.pace.as_ref().map(|pace| own_pace(pace, checkpoint)).transpose()?;
        let WrittenRestart { starts_max, fruitless_max, pause, pause_max, join_timeout } = *restart;
        let repeated = repeated.as_ref().map(|&WrittenRepeated { faults, within, recovery }| Repeated {
            faults,
            within,
            recovery,
        });
        let located = located.as_ref().map(faults).transpose()?;
        let network = network
            .as_ref()
            .map(|&WrittenNetwork { share_percent, recovery }| Network { share_percent, recovery });
        let replica_bytes_max = migrate.replica_bytes.unwrap_or(Recoveries::IGNORE.replica_bytes_max);
        let restart = Restart { starts_max, fruitless_max, pause, pause_max, join_timeout };
        let result_log_bytes_max = checkpoint.result_log.unwrap_or(1 << 30);
        let directory = checkpoint.directory.clone();
        if let Some(protocol) =
            checkpoint.protocol.as_ref().filter(|it| *it.get_ref() == Protocol::Independent)
            && (directory.is_some() || *process == Process::Rollback)
        {
            let why = "key `checkpoint.protocol`: checkpoints of a directory, and a rollback, are those of all ranks \
                       together: choose \"coordinated\"";
            return Err((protocol.span().start, why.to_owned()));
        }
        let (process, rolls_back) = match *process {
            Process::Of(recovery) => (recovery, false),
            Process::Rollback => (Chain::of(Recovery::Ignore), true),
        };
        Ok(Self {
            recoveries: Recoveries {
                process,
                located,
                repeated,
                physical: *physical,
                network,
                restart,
                replica_bytes_max,
            },
            detectors: named("detectors", detectors, |name| !name.is_empty(), || "is no name".into())?,
            rolls_back,
            interval,
            pace,
            protocol: checkpoint.protocol.as_ref().map(|protocol| *protocol.get_ref()),
            directory,
            result_log_bytes_max,
        })
    }
}

/// The pace of the program's own that takes the place of an interval.
fn own_pace(pace: &Spanned<String>, checkpoint: &WrittenCheckpoint) -> Result<String, (usize, String)> {
    let name = pace.get_ref();
    let why = match name {
        name if name.is_empty() || name.len() > NAME_BYTES_MAX => format!("`{name}` is no name"),
        _ if checkpoint.interval.is_some() || checkpoint.mtbf.is_some() => format!(
            "`{name}`, a pace of your own, decides when checkpoints are due: leave `interval` and `mtbf` out"
        ),
        name => return Ok(name.clone()),
    };
    Err((pace.span().start, format!("key `checkpoint.pace`: {why}")))
}

/// The located faults that are met in a way of their own. Whether a rule concludes them shows only while the
/// job runs: then others may be pushed.
fn faults(written: &WrittenLocated) -> Result<LocatedFaults, (usize, String)> {
    let faults = named("located.faults", &written.faults, is_fault, || {
        let known = host_faults().join("`, `");
        format!(
            "is no fault: rules write them in snake_case, such as those that everfold comes with: `{known}`"
        )
    })?;
    Ok(LocatedFaults { faults, recovery: written.recovery })
}

/// The names in a list, all of which `is_name` accepts, or else `why` not.
fn named(
    key: &str,
    names: &[Spanned<String>],
    is_name: impl Fn(&str) -> bool,
    why: impl Fn() -> String,
) -> Result<Vec<String>, (usize, String)> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        let why = match name.get_ref() {
            name if name.len() > NAME_BYTES_MAX || !is_name(name) => why(),
            name if all.contains(name) => "stands there twice".into(),
            _ if all.len() == NAMES_MAX => "is one too many".into(),
            name => {
                all.push(name.clone());
                continue;
            }
        };
        return Err((name.span().start, format!("key `{key}`: `{}` {why}", name.get_ref())));
    }
    Ok(all)
}

fn line(text: &str, offset: usize) -> String {
    format!("line {}", text[..offset].matches('\n').count() + 1)
}

/// A knob that is out of range, with the line of its key.
fn located(text: &str, error: &ConfigError) -> String {
    let key = error.key();
    let offset = DeTable::parse(text).ok().and_then(|table| offset_of(table.get_ref(), key));
    format!("{}, key `{key}`: {error}", line(text, offset.unwrap_or(0)))
}

/// Where the value of a key such as `restart.pause` stands.
fn offset_of(table: &DeTable<'_>, key: &str) -> Option<usize> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let value = table.get(first)?;
    match (rest, value.get_ref()) {
        (Some(rest), DeValue::Table(inner)) => offset_of(inner, rest),
        _ => Some(value.span().start),
    }
}

/// The key of a recovery of single ranks, if there is one: a rollback leaves it no room.
fn beside_rollback(recoveries: &Recoveries) -> Option<&'static str> {
    let Recoveries { physical, network, located, repeated, .. } = recoveries;
    let chosen = [
        ("physical", *physical != Recovery::Ignore.into()),
        ("network", network.is_some()),
        ("located", located.is_some()),
        ("repeated", repeated.is_some()),
    ];
    chosen.into_iter().find(|(_, is_chosen)| *is_chosen).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        RecoveryFile::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_restarts_ranks_with_the_usual_limits() {
        let file = RecoveryFile::parse("").unwrap();
        assert_eq!(file.recoveries, Recoveries::RESTART);
        let config = Config::default().restart_ranks();
        assert_eq!(file.apply(Config::default()), config, "that is what a program says without a file");
    }

    #[test]
    fn what_stands_there_replaces_what_the_program_says() {
        let file = RecoveryFile::parse(
            "process = \"ignore\"\n[repeated]\nfaults = 3\nwithin = \"1.5 h\"\nrecovery = \"restart\"\n\
             [restart]\npause = \"0 s\"\nstarts_max = 7\n[checkpoint]\ninterval = \"5 min\"\nresult_log = \"1 MiB\"",
        )
        .unwrap();
        let Recoveries { process, repeated, restart, .. } = file.recoveries();
        let within = Duration::from_secs(5400);
        assert_eq!(process, Recovery::Ignore.into());
        assert_eq!(repeated, Some(Repeated { faults: 3, within, recovery: Recovery::Restart.into() }));
        assert_eq!(restart, Restart { pause: Duration::ZERO, starts_max: 7, ..Restart::USUAL });
        assert_eq!(file.checkpoint_interval(), Interval::Fixed(Duration::from_secs(300)));
        assert_eq!(file.result_log_bytes_max(), 1 << 20);
        let by_law = RecoveryFile::parse("[checkpoint]\ninterval = \"young\"\nmtbf = \"8 h\"").unwrap();
        assert_eq!(by_law.checkpoint_interval(), Interval::Young { mtbf: Duration::from_secs(8 * 3600) });
    }

    #[test]
    fn located_faults_have_a_recovery_of_their_own() {
        let text =
            "[located]\nfaults = [\"host_overloaded\", \"of_my_own\"]\nrecovery = [\"migrate\", \"restart\"]";
        let file = RecoveryFile::parse(text).unwrap();
        let faults = ["host_overloaded", "of_my_own"].map(str::to_owned).into();
        let recovery = Chain::then(Recovery::Migrate, Recovery::Restart);
        assert_eq!(file.recoveries().located, Some(LocatedFaults { faults, recovery }));
        assert!(file.recoveries().ranks_migrate(), "there are replicas");
        let unknown = refused("[located]\nfaults = [\"Disk-Failing\"]\nrecovery = \"migrate\"");
        let known = |name: &str| unknown.contains(&format!("`{name}`"));
        assert!(known("disk_failing") && known("domain_bad"), "{unknown}");
        assert!(!known("link_slow") && !known("process_crashed") && !known("clock_jumped"), "{unknown}");
    }

    #[test]
    fn ranks_may_migrate_at_every_fault() {
        let text = "process = [\"restart\", \"migrate\"]\nphysical = [\"migrate\", \"ignore\"]\n\
                    [network]\nshare_percent = 60\nrecovery = \"migrate\"\n[migrate]\nreplica_bytes = \"2 GiB\"";
        let Recoveries { process, physical, network, replica_bytes_max, .. } =
            RecoveryFile::parse(text).unwrap().recoveries();
        assert_eq!(process, Chain::then(Recovery::Restart, Recovery::Migrate));
        assert_eq!(physical, Chain::then(Recovery::Migrate, Recovery::Ignore));
        assert_eq!(network, Some(Network { share_percent: 60, recovery: Recovery::Migrate.into() }));
        assert_eq!(replica_bytes_max, 2 << 30);
    }

    #[test]
    fn standbys_may_be_promoted_at_every_fault() {
        let text = "process = [\"promote\", \"restart\", \"migrate\", \"ignore\"]\nphysical = \"promote\"\n\
                    [repeated]\nfaults = 2\nwithin = \"1 h\"\nrecovery = [\"promote\", \"migrate\"]";
        let recoveries = RecoveryFile::parse(text).unwrap().recoveries();
        assert!(recoveries.process.iter().eq([
            Recovery::Promote,
            Recovery::Restart,
            Recovery::Migrate,
            Recovery::Ignore
        ]));
        assert_eq!(recoveries.physical, Recovery::Promote.into());
        assert!(recoveries.ranks_stand_by() && recoveries.ranks_return());
        assert!(recoveries.repeated.is_some_and(|repeated| repeated.recovery.contains(Recovery::Promote)));
    }

    #[test]
    fn own_detectors_are_asked_in_the_order_of_the_file() {
        let file = RecoveryFile::parse("detectors = [\"cautious\", \"brave\"]").unwrap();
        assert_eq!(file.detectors(), ["cautious", "brave"]);
        assert_eq!(file.apply(Config::default()).detector_names(), file.detectors());
        let none = RecoveryFile::parse("").unwrap();
        let config = none.apply(Config::default().detectors(["cautious"]));
        assert!(config.detector_names().is_empty(), "what the file says counts");
        let many: Vec<String> = (0..17).map(|number| format!("\"{number}\"")).collect();
        assert!(refused(&format!("detectors = [{}]", many.join(", "))).contains("`16` is one too many"));
    }

    #[test]
    fn mistakes_are_told_with_line_and_key() {
        for (text, told) in [
            ("\nproces = \"restart\"", ["line 2", "`proces`"]),
            ("process = \"advance\"", ["line 1", "or `rollback`"]),
            ("process = \"promote\"\n[checkpoint]\ndirectory = \"d\"", ["line 3", "checkpoint.directory"]),
            ("physical = \"promote\"\n[checkpoint]\nprotocol = \"coordinated\"", ["line 3", "independent"]),
            ("process = \"rollback\"\nphysical = \"promote\"", ["line 2, key `physical`", "leave it out"]),
            ("process = \"rollback\"\nphysical = \"migrate\"", ["line 2, key `physical`", "leave it out"]),
            (
                "process = \"rollback\"\n[repeated]\nfaults = 5\nwithin = \"1 s\"\nrecovery = \"restart\"",
                ["line 2, key `repeated`", "leave it out"],
            ),
            (
                "process = \"rollback\"\n[network]\nshare_percent = 50\nrecovery = \"ignore\"",
                ["line 2, key `network`", "leave it out"],
            ),
            ("process = []", ["line 1", "at least one"]),
            ("process = [\"restart\", \"restart\"]", ["line 1", "at most once"]),
            ("\nphysical = \"restart\"", ["line 2", "a host that is lost"]),
            ("process = \"ignore\"\ndetectors = [\"a\"]", ["line 2", "no rank comes back"]),
            ("process = \"rollback\"\ndetectors = [\"a\"]", ["line 2", "no rank comes back"]),
            ("detectors = [\"a\",\n\"a\"]", ["line 2", "twice"]),
            ("detectors = [\"\"]", ["line 1", "no name"]),
            ("[located]\nrecovery = \"migrate\"", ["line 1", "`faults`"]),
            ("[located]\nfaults = [\"a\"]", ["line 1", "`recovery`"]),
            ("[located]\nfaults = [\"a\"]\nrecovery = \"rollback\"", ["line 3", "unknown recovery"]),
            ("[located]\nfaults = []\nrecovery = \"migrate\"", ["line 2", "located.faults is 0"]),
            ("[located]\nfaults = [\"a\",\n\"a\"]\nrecovery = \"migrate\"", ["line 3", "twice"]),
            ("[located]\nfaults = [\"disk 1\"]\nrecovery = \"migrate\"", ["line 2", "`disk 1` is no fault"]),
            (
                "process = \"rollback\"\n[located]\nfaults = [\"a\"]\nrecovery = \"migrate\"",
                ["line 2, key `located`", "leave it out"],
            ),
            ("process = 3", ["line 1", "a list of them"]),
            ("[network]\nshare_percent = 50", ["line 1", "`recovery`"]),
            ("[network]\nshare_percent = 100\nrecovery = \"migrate\"", ["line 2", "network.share_percent"]),
            ("[migrate]\nreplica_bytes = \"3 B\"", ["line 2", "migrate.replica_bytes"]),
            (
                "[checkpoint]\ndirectory = \"d\"\nprotocol = \"independent\"",
                ["line 3", "checkpoint.protocol"],
            ),
            ("process = \"rollback\"\n[checkpoint]\nprotocol = \"independent\"", ["line 3", "coordinated"]),
            ("[host]\nrecovery = \"migrate\"", ["line 1", "`host`"]),
            ("[repeated]\nfaults = 3", ["line 1", "`within`"]),
            ("[restart]\n\npause = \"3\"", ["line 3", "has no unit"]),
            ("[restart]\npause = \"20 s\"", ["line 2", "restart.pause"]),
            ("[restart]\nstarts_max = 0", ["line 2", "restart.starts_max"]),
            (
                "[repeated]\nfaults = 0\nwithin = \"1 s\"\nrecovery = \"ignore\"",
                ["line 2", "repeated.faults"],
            ),
            ("[checkpoint]\ninterval = \"sometimes\"", ["line 2", "neither \"young\" nor \"daly\""]),
            ("[checkpoint]\ninterval = \"1 s\"\nmtbf = \"1 d\"", ["line 3", "checkpoint.mtbf"]),
            ("[checkpoint]\nmtbf = \"1 ms\"", ["line 2", "checkpoint.mtbf"]),
            ("[checkpoint]\n\npace = \"\"", ["line 3", "checkpoint.pace"]),
            (
                "[checkpoint]\ninterval = \"1 s\"\npace = \"wary\"",
                ["line 3", "leave `interval` and `mtbf` out"],
            ),
            ("[checkpoint]\npace = \"wary\"\nmtbf = \"1 d\"", ["line 2", "leave `interval` and `mtbf` out"]),
            ("[checkpoint]\nresult_log = \"3 B\"", ["line 2", "checkpoint.result_log"]),
        ] {
            let error = refused(text);
            assert!(told.iter().all(|word| error.contains(word)), "{text}: {error}");
        }
        let missing = RecoveryFile::read("/nowhere/at.toml").unwrap_err().to_string();
        assert!(missing.contains("/nowhere/at.toml"), "{missing}");
    }
}
