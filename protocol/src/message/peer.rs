//! How a process is reached, and its memory.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::data::RegionRef;
use crate::id::{AgentId, ProcessId};

/// What peers must know of a process to read from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Which process.
    pub process: ProcessId,
    /// Equal for processes that can share memory: same machine, same namespace of process ids, same user.
    pub host: u64,
    /// Process id on that host.
    pub pid: u32,
    /// Its region of shared memory.
    pub region: Option<RegionRef>,
    /// What wakes it up for what is on the board: file descriptor of a pipe in that process.
    pub bell: Option<i32>,
    /// Where the ranks of one host put short contributions, if the agent has handed that to this process: file
    /// descriptor in it.
    pub board: Option<i32>,
    /// Where its server listens, `host:port`.
    pub address: String,
    /// Label of what its host shares with others, such as a switch: hosts with one label may fail together.
    pub domain: Option<String>,
    /// The agent that holds its region, too, so that the region outlives the process.
    pub agent: Option<AgentRef>,
}

/// How the memory of a process is reached that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRef {
    /// Which agent.
    pub id: AgentId,
    /// Where it serves the regions of its host's processes, `host:port`.
    pub address: String,
}
