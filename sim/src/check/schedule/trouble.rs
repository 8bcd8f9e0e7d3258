//! What goes wrong in a schedule, as plain data.

use serde::{Deserialize, Serialize};

use super::is_default;

/// Something goes wrong, and is well again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When it begins.
    pub at_us: u64,
    /// How long it lasts; deaths last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lasts_us: u64,
    /// What.
    pub what: Trouble,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[allow(missing_docs)]
pub enum Trouble {
    /// A process dies; its connections break.
    Kill(u32),
    /// A process dies, and of its messages to the master that are under way only the first `arrive` arrive.
    Crash { rank: u32, arrive: u64 },
    /// A process on the master's host dies; its lifeline tells that before anything that it had sent arrives.
    LetGo(u32),
    /// A process leaves its job without a word, and lives on: its program has failed.
    Abandon(u32),
    /// The connection between a process and the master breaks, and both live.
    Break(u32),
    /// A host goes with all its processes, without a word; the master, too, if it is on it.
    LoseHost(u32),
    /// The agent of a host dies, and the ranks there with it; their connections break. The master dies, too,
    /// if it is on it.
    EndHost(u32),
    /// A process does not run.
    Freeze(u32),
    /// The agent of a host does not run, nor does the master, if it is in it.
    FreezeAgent(u32),
    /// A process runs only for `runs_us` of every `every_us`.
    Starve { rank: u32, every_us: u64, runs_us: u64 },
    /// The agent of a host does.
    StarveAgent { host: u32, every_us: u64, runs_us: u64 },
    /// Hosts cannot be heard by others; connections hold.
    Cut { from: Vec<u32>, to: Vec<u32>, both_ways: bool },
    /// Two hosts do not reach each other's memory, although the master hears both; for the rest of the run,
    /// unless it lasts for a time. Reads fail at once, or nothing answers them.
    Unreachable { a: u32, b: u32, at_once: bool },
    /// Messages between the master and a rank take up to so much longer; nobody is silent for too long.
    Late { rank: u32, by_us: u64 },
    /// So many reads from other hosts of what a rank holds in its memory arrive damaged.
    Garble { rank: u32, reads: u32 },
    /// What a rank holds in its memory, or the `copies` that it keeps of others, arrives damaged at every
    /// reader on another host, or at one `reader`, however often that reads it; for the rest of the run,
    /// unless it lasts for a time.
    Damage {
        rank: u32,
        #[serde(default, skip_serializing_if = "is_default")]
        copies: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        reader: Option<u32>,
    },
    /// A rank takes longer for its tasks.
    Slow { rank: u32, task_us: u64 },
    /// A rank takes longer to write a copy.
    SlowDisk { rank: u32, write_us: u64 },
    /// A rank's disk takes no copies.
    FullDisk(u32),
    /// The copies that a rank keeps by then are damaged.
    SpoilCopies(u32),
    /// The master hears that hosts have a fault, rightly or not, and that it is over if it lasts for a time.
    /// Its name is one that has a recovery, or another one.
    Locate { hosts: Vec<u32>, named: bool },
    /// It hears that of the link from one host to another.
    LocateLink { from: u32, to: u32 },
}

impl Trouble {
    /// Which rank it hits, if it is one.
    pub fn rank(&self) -> Option<u32> {
        match self {
            Self::Kill(rank) | Self::LetGo(rank) | Self::Abandon(rank) | Self::Break(rank) => Some(*rank),
            Self::Freeze(rank) | Self::FullDisk(rank) | Self::SpoilCopies(rank) => Some(*rank),
            Self::Crash { rank, .. }
            | Self::Starve { rank, .. }
            | Self::Slow { rank, .. }
            | Self::SlowDisk { rank, .. }
            | Self::Garble { rank, .. }
            | Self::Damage { rank, .. }
            | Self::Late { rank, .. } => Some(*rank),
            _ => None,
        }
    }

    /// Whether nothing is wrong for it: the master only hears so.
    pub(crate) fn is_only_told(&self) -> bool {
        matches!(self, Self::Locate { .. } | Self::LocateLink { .. })
    }

    /// Whether it ends a process or a host, and does nothing else.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Kill(_) | Self::EndHost(_) | Self::LoseHost(_))
    }

    /// Whether somebody does not run meanwhile, or messages do not arrive.
    pub(crate) fn halts(&self) -> bool {
        let of_agent = matches!(self, Self::FreezeAgent(_) | Self::StarveAgent { .. });
        of_agent || matches!(self, Self::Freeze(_) | Self::Starve { .. } | Self::Cut { .. })
    }

    /// Which host it hits, if it is one.
    pub(crate) fn host(&self) -> Option<u32> {
        match self {
            Self::LoseHost(host) | Self::EndHost(host) | Self::FreezeAgent(host) => Some(*host),
            Self::StarveAgent { host, .. } => Some(*host),
            _ => None,
        }
    }

    pub(crate) fn rank_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Kill(rank) | Self::LetGo(rank) | Self::Abandon(rank) | Self::Break(rank) => Some(rank),
            Self::Freeze(rank) | Self::FullDisk(rank) | Self::SpoilCopies(rank) => Some(rank),
            Self::Crash { rank, .. }
            | Self::Starve { rank, .. }
            | Self::Slow { rank, .. }
            | Self::SlowDisk { rank, .. }
            | Self::Garble { rank, .. }
            | Self::Damage { rank, .. }
            | Self::Late { rank, .. } => Some(rank),
            _ => None,
        }
    }

    /// The only rank that it hits as a reader, if it is one.
    pub(crate) fn reader_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Damage { reader, .. } => reader.as_mut(),
            _ => None,
        }
    }
}
