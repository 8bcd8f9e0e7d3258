//! Who speaks.

use serde::{Deserialize, Serialize};

use crate::id::{Epoch, Incarnation, JobId, ProcessId, Rank};

/// Who speaks, in which job, and what membership it knew when it spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// A frame of another job is refused.
    pub job: JobId,
    /// The sender's epoch.
    pub epoch: Epoch,
    /// The sender and its life.
    pub sender: ProcessId,
}

/// Whom the master's messages name as their sender: it is no rank's process.
pub const MASTER: ProcessId = ProcessId { rank: Rank(u32::MAX), incarnation: Incarnation(u32::MAX) };
