//! How ranks come back in a schedule, as plain data.

use serde::{Deserialize, Serialize};

use super::is_default;

/// How ranks come back whose processes have died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Returning {
    /// Longest time that a process takes to start, or to end after its program has failed.
    pub start_us: u64,
    /// How often it cannot be started.
    #[serde(default, skip_serializing_if = "is_default")]
    pub start_failures_percent: u32,
    /// How often a process lives on after its program has failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hang_percent: u32,
    /// Longest time that a process takes to note something, and then to hear that it is noted.
    pub note_us: u64,
    /// How often the log has no room for an outcome.
    #[serde(default, skip_serializing_if = "is_default")]
    pub note_failures_percent: u32,
    /// How often a program is about to save a checkpoint when a call has ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub checkpoints_percent: u32,
    /// How long the master waits for a rank.
    pub return_us: u64,
    /// How often a rank may come back.
    pub returns_max: u32,
    /// How often in a row without progress.
    #[serde(default = "usual_fruitless_max")]
    pub fruitless_max: u32,
    /// What the master waits before it has a rank started again that has made no progress.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pause_us: u64,
    /// With how many process faults of a host within which time further ones are ignored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repeated: Option<(u32, u64)>,
    /// What is done about processes that end on hosts with located faults.
    #[serde(default, skip_serializing_if = "is_default")]
    pub located: Option<Remedy>,
    /// Whether own detectors choose recoveries and hosts, as they are drawn.
    #[serde(default, skip_serializing_if = "is_default")]
    pub own_detectors: bool,
    /// How ranks come back on other hosts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub migrates: Option<Migrating>,
}

impl Returning {
    /// The longest that it takes to note how a call has ended: it waits for a copy of the vault that is under
    /// way, and then for its own.
    pub fn note_us_max(&self) -> u64 {
        let copy_us = self.migrates.map_or(0, |migrates| migrates.copy_us);
        2 * (self.note_us + copy_us)
    }
}

/// A recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// The rank is started again where it was.
    Restart,
    /// It leaves its host, in worlds whose ranks migrate.
    Migrate,
    /// It does not come back.
    Ignore,
}

/// How ranks come back on other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Migrating {
    /// Hosts without ranks.
    pub spares: u32,
    /// Longest time that a copy of a vault takes, or of what is new in it.
    pub copy_us: u64,
    /// How often a copy fails.
    #[serde(default, skip_serializing_if = "is_default")]
    pub copy_failures_percent: u32,
    /// Whether repeated faults are met by migration.
    #[serde(default, skip_serializing_if = "is_default")]
    pub from_repeated: bool,
    /// Share of the hosts of a domain beyond which it counts as lost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network_percent: Option<u32>,
    /// How processes stand by, if they do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub standbys: Option<Standing>,
}

/// What becomes of processes that stand by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// How often one dies some time after its start.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deaths_percent: u32,
    /// How often one does nothing when it is to take a place.
    #[serde(default, skip_serializing_if = "is_default")]
    pub frozen_percent: u32,
}

fn usual_fruitless_max() -> u32 {
    100
}
