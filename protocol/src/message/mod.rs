//! Everything that travels between workers, agents, the master and its deputies.
//!
//! Each frame carries one [`Header`] and a batch of messages of one direction. Every message is idempotent or
//! is recognised as stale by its header, its task or its path: the table is in `docs/protocol.md`.
//!
//! | file | holds |
//! |---|---|
//! | `to_master` | what a worker says to the master |
//! | `to_worker` | what the master says to a worker |
//! | `agent` | what an agent and the master say to each other |
//! | `header` | who speaks |
//! | `data`, `peer` | where bytes can be read; how a process is reached, and its memory |
//! | `contribution` | how a rank or a team enters a reduction |
//! | `task` | what a worker is to fold, and what becomes of it |
//! | `keep` | which original a worker is to copy, and what becomes of the copy |
//! | `result` | where a result lies, and what becomes of those who copy it |
//! | `news` | what the application may want to know |

mod agent;
mod contribution;
mod data;
mod header;
mod keep;
mod news;
mod peer;
mod result;
mod task;
mod to_master;
mod to_worker;

pub use self::{
    agent::{FromAgent, Lodging, Origin, ToAgent},
    contribution::{Contribution, Effort, Opened, Part},
    data::{Data, Place, RegionRef, WindowRef},
    header::{Header, MASTER},
    keep::{Keep, KeepAs, Kept, NotKept, Writing},
    news::News,
    peer::{AgentRef, Peer},
    result::{Finished, HalfBody, Learning, NotCollected, Piece, Prefetch, Prefetched},
    task::{Fault, PartialReady, Source, Task, TaskCounters, TaskFailed},
    to_master::{Comeback, ToMaster},
    to_worker::ToWorker,
};
pub use crate::{
    evidence::{Ending, Evidence, NoReturn, Recovery},
    id::ByteRange,
};
