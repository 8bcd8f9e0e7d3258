//! Sizes and depths the scheduler works with.

use std::time::Duration;

use everfold_protocol::spec::{BodyKind, Limits};

/// How the scheduler cuts, batches and waits. The defaults are measured ones; `everfold bench reduce` reruns them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Limits that hold for everyone.
    pub limits: Limits,
    /// Target length of a segment in bytes. Shorter segments balance better, longer ones cost fewer messages.
    pub segment_bytes: u64,
    /// Most partials that one task folds when all its processes share memory. Between hosts a task has two, so that
    /// no link carries more than its share.
    pub fan_in_max: usize,
    /// Bytes of granted tasks up to which a worker is given more. Enough to hide a round trip; little enough that
    /// what is still unassigned can go to whoever turns out faster.
    pub lane_bytes: u64,
    /// Tasks up to which a worker is given more, however long they are.
    pub lane_tasks_min: u32,
    /// Tasks up to which a worker is given more, however short they are.
    pub lane_tasks_max: u32,
    /// Inlined bytes that the master collects before it sends them on without waiting for the rest of the group.
    pub hold_bytes: u64,
    /// Bytes of one owner's original whose copies are ordered ahead of their acknowledgement.
    pub copy_bytes: u64,
    /// How long a job waits for its processes.
    pub join_timeout: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            segment_bytes: 1 << 20,
            fan_in_max: 16,
            lane_bytes: 2 << 20,
            lane_tasks_min: 4,
            lane_tasks_max: 256,
            hold_bytes: 256 << 10,
            copy_bytes: 4 << 20,
            join_timeout: Duration::from_secs(60),
        }
    }
}

impl Policy {
    /// Length in bytes of the segments of a body of `kind`; the last one may be shorter.
    ///
    /// Zero for objects, which are one piece of any length.
    pub fn segment_len(&self, kind: &BodyKind) -> u64 {
        let Some((body, element)) = kind.array_bytes() else {
            return 0;
        };
        let target = self.segment_bytes.max(self.limits.inline_bytes_max);
        if body <= target {
            return body;
        }
        let elements = (target / element.max(1)).max(1);
        elements * element
    }
}
