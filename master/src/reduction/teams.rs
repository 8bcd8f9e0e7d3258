//! What is different about an attempt in teams.

use alloc::{sync::Arc, vec::Vec};

use everfold_protocol::{Path, ProcessId, Rank, SegmentIndex, TaskId, Timestamp, message::Part};

use super::{Called, Reduction, Sizes};
use crate::{lane::Load, policy::Policy, queue::Ready, segment::Running};

/// What a team as a whole works on.
const OF_TEAM: TaskId = TaskId(u64::MAX);

impl Reduction {
    /// What begins with the first that is heard of an attempt. `team`: whose, at a deputy.
    pub(crate) fn attempt(
        now: Timestamp,
        caller: Rank,
        called: Called,
        team: Option<Path>,
        policy: &Policy,
    ) -> Self {
        let spec = called.spec;
        let sizes =
            Sizes { ranks: policy.ranks_in_teams(spec), segment_bytes: policy.segment_len_in_teams(spec) };
        let mut reduction = Self::cut(now, caller, called, sizes, policy, false);
        reduction.group = team.unwrap_or(reduction.group);
        reduction.inline = reduction.body_bytes <= policy.limits.inline_bytes_max;
        reduction
    }

    /// Takes in that a whole team has contributed, and works on all segments.
    pub(crate) fn open(&mut self, now: Timestamp, deputy: ProcessId, team: &Path) {
        self.arrive_together(now, team);
        for segment in &mut self.segments {
            let running = Running {
                task: OF_TEAM,
                executor: deputy,
                own: Path::empty(),
                sources: Vec::new(),
                path: team.clone(),
                load: Load::default(),
                late: Timestamp::from_nanos(u64::MAX),
            };
            segment.running.insert(deputy.rank, running);
        }
    }

    /// Takes in a segment of a team. Returns false if that has told of it before, or of nothing yet.
    pub(crate) fn take_part(&mut self, now: Timestamp, deputy: ProcessId, part: Part) -> bool {
        let Some(running) = self.take_running(part.index, OF_TEAM, deputy) else { return false };
        let ready = Arc::new(Ready { process: part.process, path: running.path, data: part.data });
        self.segments[part.index].hold(ready.clone());
        self.put(part.index, ready);
        self.last_progress = now;
        true
    }

    /// Whether a team has not folded this segment yet.
    pub(super) fn awaits_part(&self, index: SegmentIndex) -> bool {
        self.segments[index].running.values().any(|running| running.task == OF_TEAM)
    }

    /// Where a team's finished segment lies.
    pub(crate) fn part(&self, index: SegmentIndex) -> Option<Part> {
        let result = self.segments[index].result.as_ref()?;
        Some(Part { index, process: result.process, data: result.data.clone() })
    }
}
