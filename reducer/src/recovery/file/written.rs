//! The keys of the file, and how their values are written.

use std::{fmt, path::PathBuf, time::Duration};

use everfold_protocol::units;
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use toml::Spanned;

use crate::recovery::{Chain, Recovery, Restart};

/// A file, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Written {
    pub(super) process: Process,
    #[serde(deserialize_with = "chain_elsewhere")]
    pub(super) physical: Chain,
    pub(super) detectors: Vec<Spanned<String>>,
    pub(super) located: Option<WrittenLocated>,
    pub(super) repeated: Option<WrittenRepeated>,
    pub(super) network: Option<WrittenNetwork>,
    pub(super) restart: WrittenRestart,
    pub(super) migrate: WrittenMigrate,
    pub(super) checkpoint: WrittenCheckpoint,
}

/// What is done about a process fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    /// Something that is done about one rank.
    Of(Chain),
    /// All ranks go back to the last checkpoint.
    Rollback,
}

/// Whether all ranks save together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    Independent,
    Coordinated,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenLocated {
    pub(super) faults: Vec<Spanned<String>>,
    #[serde(deserialize_with = "chain")]
    pub(super) recovery: Chain,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenRepeated {
    pub(super) faults: u32,
    #[serde(deserialize_with = "time")]
    pub(super) within: Duration,
    #[serde(deserialize_with = "chain")]
    pub(super) recovery: Chain,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenNetwork {
    pub(super) share_percent: u32,
    #[serde(deserialize_with = "chain_elsewhere")]
    pub(super) recovery: Chain,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenMigrate {
    #[serde(deserialize_with = "size")]
    pub(super) replica_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenRestart {
    pub(super) starts_max: u32,
    pub(super) fruitless_max: u32,
    #[serde(deserialize_with = "time")]
    pub(super) pause: Duration,
    #[serde(deserialize_with = "time")]
    pub(super) pause_max: Duration,
    #[serde(deserialize_with = "time")]
    pub(super) join_timeout: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenCheckpoint {
    pub(super) protocol: Option<Spanned<Protocol>>,
    pub(super) directory: Option<PathBuf>,
    pub(super) interval: Option<Due>,
    pub(super) pace: Option<Spanned<String>>,
    pub(super) mtbf: Option<Spanned<Mtbf>>,
    #[serde(deserialize_with = "size")]
    pub(super) result_log: Option<u64>,
}

/// When checkpoints are due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    Young,
    Daly,
    Fixed(Duration),
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Mtbf(#[serde(deserialize_with = "time")] pub(super) Duration);

impl Default for Written {
    fn default() -> Self {
        Self {
            process: Process::Of(Chain::of(Recovery::Restart)),
            physical: Recovery::Ignore.into(),
            detectors: Vec::new(),
            located: None,
            repeated: None,
            network: None,
            restart: WrittenRestart::default(),
            migrate: WrittenMigrate::default(),
            checkpoint: WrittenCheckpoint::default(),
        }
    }
}

impl Default for WrittenRestart {
    fn default() -> Self {
        let Restart { starts_max, fruitless_max, pause, pause_max, join_timeout } = Restart::USUAL;
        Self { starts_max, fruitless_max, pause, pause_max, join_timeout }
    }
}

impl<'de> Deserialize<'de> for Process {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ProcessVisitor)
    }
}

/// What [`ChainVisitor`] takes, or that all ranks go back.
struct ProcessVisitor;

impl<'de> Visitor<'de> for ProcessVisitor {
    type Value = Process;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ChainVisitor.expecting(f)?;
        f.write_str(", or `rollback`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Process, E> {
        match text {
            "rollback" => Ok(Process::Rollback),
            other => {
                let of = recovery(other).map(Chain::of).map(Process::Of);
                of.map_err(|error| E::custom(format!("{error}, or `rollback`")))
            }
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Process, A::Error> {
        ChainVisitor.visit_seq(items).map(Process::Of)
    }
}

impl<'de> Deserialize<'de> for Due {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "young" => Ok(Self::Young),
            "daly" => Ok(Self::Daly),
            other => duration(other)
                .map(Self::Fixed)
                .map_err(|why| D::Error::custom(format!("neither \"young\" nor \"daly\", and {why}"))),
        }
    }
}

/// A recovery, or a list of them.
struct ChainVisitor;

impl<'de> Visitor<'de> for ChainVisitor {
    type Value = Chain;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`restart`, `migrate`, `promote` or `ignore`, or a list of them, each once")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Chain, E> {
        recovery(text).map(Chain::of).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Chain, A::Error> {
        let mut recoveries = Vec::new();
        while let Some(text) = items.next_element::<String>()? {
            recoveries.push(recovery(&text).map_err(A::Error::custom)?);
        }
        Chain::new(&recoveries)
            .ok_or_else(|| A::Error::custom("a list names each recovery at most once, and at least one"))
    }
}

fn recovery(text: &str) -> Result<Recovery, String> {
    match text {
        "restart" => Ok(Recovery::Restart),
        "migrate" => Ok(Recovery::Migrate),
        "promote" => Ok(Recovery::Promote),
        "ignore" => Ok(Recovery::Ignore),
        other => {
            Err(format!("unknown recovery `{other}`, expected `restart`, `migrate`, `promote` or `ignore`"))
        }
    }
}

fn chain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Chain, D::Error> {
    deserializer.deserialize_any(ChainVisitor)
}

fn chain_elsewhere<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Chain, D::Error> {
    let chain = chain(deserializer)?;
    match chain.contains(Recovery::Restart) {
        true => Err(D::Error::custom(
            "on a host that is lost nothing is started: `migrate`, `promote` or `ignore`",
        )),
        false => Ok(chain),
    }
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    duration(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    units::bytes(&text).map(|bytes| Some(bytes.round() as u64)).map_err(D::Error::custom)
}

fn duration(text: &str) -> Result<Duration, String> {
    let seconds = units::seconds(text)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is too long a time"))
}
