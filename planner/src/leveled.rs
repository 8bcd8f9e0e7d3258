//! Plans with levels as they are written down, and how deep the checkpoints of a running program go.

use alloc::{string::String, vec::Vec};

use serde::{Deserialize, Serialize};

/// A plan with levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeveledPlan {
    /// What the program is.
    pub title: String,
    /// How long the program runs without checkpoints and failures.
    pub run_ns: u64,
    /// Mean time to the end with failures, in seconds.
    pub expected_s: f64,
    /// Names of all points of the profile: a program that reaches another one is another program.
    #[serde(default)]
    pub points: Vec<String>,
    /// The checkpoints, in order.
    pub stops: Vec<LeveledStop>,
}

/// A checkpoint of a level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeveledStop {
    /// The point's name.
    pub point: String,
    /// How often the program has passed a point of that name before.
    pub pass: u64,
    /// When the program reaches it, without checkpoints.
    pub at_ns: u64,
    /// Of which level it is.
    pub level: String,
    /// How long it takes to write it, at all levels up to its own.
    pub write_ns: u64,
}

/// How deep a checkpoint of a running program goes: what it outlives. One that goes deep is in all above, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Into memory of the host: it outlives the process.
    Memory,
    /// To the agent of another host as well: it outlives the host.
    Replica,
    /// Into the directory as well: it outlives the job.
    Directory,
}

impl Depth {
    /// Names of levels that running programs have, for people.
    pub const NAMES: &str = "memory, region or vault; replica; disk or directory";

    /// How deep checkpoints of a level with this name go, if running programs have such a level.
    pub fn of_level(name: &str) -> Option<Self> {
        match name {
            "memory" | "region" | "vault" => Some(Self::Memory),
            "replica" => Some(Self::Replica),
            "disk" | "directory" => Some(Self::Directory),
            _ => None,
        }
    }
}
