//! The sizes, depths and times that the scheduler works with.

use core::{ops::RangeInclusive, time::Duration};

use everfold_protocol::{
    ReductionSpec,
    spec::{BodyKind, Limits},
    team,
    watch::INTERVALS_MOST,
};
use serde::{Deserialize, Serialize};

use crate::{keepers::Patience, recovery::Recoveries, tries::RETRY_PAUSE};

/// Least number of tries to reach a living process before a reduction gives up.
const ATTEMPTS_MIN: u32 = 1000;

/// The part of a ping interval that a reduction lasts before its originals are copied, and that an original
/// waits for its placed keeper to call.
pub(crate) const COPY_WAIT: u32 = 20;

/// How long an owner that lives may be out of reach for its keepers at least before it is given up.
const REACH_PATIENCE_MIN: Duration = Duration::from_secs(1);

/// Time of tries to read a process that lives, however soon its silence would be noticed.
const TRIES_TIME_MIN: Duration = Duration::from_secs(1);

/// Segments that a team needs, so that it folds one while another is read.
const SEGMENTS_IN_TEAMS_MIN: u64 = 8;

/// Least time in which nothing comes of an attempt before it is dissolved.
const ATTEMPT_PATIENCE_MIN: Duration = Duration::from_millis(100);

/// Least length in bytes of a segment that is cut only to give each core one.
const PART_BYTES_MIN: u64 = 256 << 10;

/// How the scheduler cuts, batches and waits. The defaults are measured ones: with `everfold bench reduce`
/// and `bench compare`, and for large groups with `everfold sim scale`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Limits that hold for all processes of the job.
    pub limits: Limits,
    /// Greatest length of a segment in bytes, and that where processes share memory. Shorter segments balance
    /// better, longer ones cost fewer messages. Between hosts the length is learnt.
    pub segment_bytes: u64,
    /// Least length of a segment in bytes between hosts: about the bytes that a link carries while a message
    /// is on its way.
    pub segment_bytes_min: u64,
    /// Segments of a long body between hosts. The root's link is idle until the first of them has been
    /// folded.
    pub segments: u64,
    /// Partials that may wait in all segments of a body when all ranks have contributed: each costs the
    /// master time and memory.
    pub partials_max: u64,
    /// Bytes of a body that keep the links busy for as long as one waiting partial keeps the master busy. So
    /// of longer bodies more partials may wait.
    pub bytes_per_partial: u64,
    /// Least bytes that a task between hosts reads, for each rank of the group. Then the links are busy at
    /// least as long as the master: a task costs the master about 2.5 µs, and a byte costs a link about 1 ns.
    pub task_bytes_per_rank: u64,
    /// Where processes share memory, tasks wait this long after a reduction's first contribution, so that one
    /// task can fold all partials: each byte is read once, and there are few messages.
    pub gather_time: Duration,
    /// Most partials that one task folds, unless `task_bytes_per_rank` asks for more between hosts.
    pub fan_in_max: usize,
    /// A worker is given as many tasks as its rate gets done in this time.
    pub lane_time: Duration,
    /// Most bytes of granted tasks at which a worker is given another one, however fast it is.
    pub lane_bytes: u64,
    /// Reads of granted tasks up to which a worker is always given another one. Some reads should be under
    /// way to each peer, so that a busy peer does not keep the others waiting. Tasks on their way to the
    /// worker or back do not count.
    pub lane_reads_min: u32,
    /// Most reads of granted tasks at which a worker is given another one, however short they are.
    pub lane_reads_max: u32,
    /// An owner is slow if reads from it take much longer than this, and much longer than reads from others.
    pub read_time: Duration,
    /// Tasks that a worker is given at a time if it has mapped all that they read: one for each core.
    pub folds: u32,
    /// Bodies of one piece are folded in pairs, as a tree, if a fold of the application's operation takes at
    /// least this long. That is much longer than the round trip that each level of a tree costs, and than the
    /// delay that a busy processor adds to a quick fold.
    pub slow_fold: Duration,
    /// With more open reductions than this, waiting segments are listed by the workers that can go on with
    /// them. With fewer it is as quick to look through all of them.
    pub crowd_from: usize,
    /// Once the master holds this many inlined bytes, it sends them on without waiting for the rest of the
    /// group.
    pub hold_bytes: u64,
    /// Where the master cannot fold inlined contributions: if all of them fit in this many bytes, it sends
    /// them to every rank, and each folds them. Otherwise one rank folds them and sends the result back. In
    /// large groups they are too long: each message costs the master and its receiver time.
    pub spread_bytes: u64,
    /// Most bytes that the master holds, and most that it sends on, of one reduction whose bodies are longer
    /// than `inline_bytes_max`, and come inlined because that has proved quicker. Zero: they never do.
    pub relay_bytes: u64,
    /// Parts into which a piece is cut that goes from host to host in a pipeline. The last link is idle until the
    /// first part has come over two others.
    pub pipeline_parts: u64,
    /// Least length of such a part in bytes, and greatest: each costs the master a message to each rank.
    pub pipeline_bytes_min: u64,
    /// The same.
    pub pipeline_bytes_max: u64,
    /// Bytes of one owner's original that a keeper may be asked for before it has acknowledged earlier ones.
    pub copy_bytes: u64,
    /// Refusals that are kept for ranks that have yet to call. Of older ones a late caller hears only that
    /// its call is over.
    pub refusals_max: usize,
    /// How long a job waits for its processes.
    pub join_timeout: Duration,
    /// The recoveries of processes that die.
    pub recoveries: Recoveries,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            segment_bytes: 1 << 20,
            segment_bytes_min: 16 << 10,
            segments: 512,
            partials_max: 8 << 10,
            bytes_per_partial: 2 << 10,
            task_bytes_per_rank: 4 << 10,
            gather_time: Duration::from_millis(2),
            fan_in_max: 16,
            lane_time: Duration::from_millis(2),
            lane_bytes: 2 << 20,
            lane_reads_min: 8,
            lane_reads_max: 1024,
            read_time: Duration::from_millis(5),
            folds: 2,
            slow_fold: Duration::from_millis(1),
            crowd_from: 256,
            hold_bytes: 256 << 10,
            spread_bytes: 4 << 10,
            relay_bytes: 1 << 20,
            pipeline_parts: 64,
            pipeline_bytes_min: 32 << 10,
            pipeline_bytes_max: 1 << 20,
            copy_bytes: 4 << 20,
            refusals_max: 4096,
            join_timeout: Duration::from_secs(60),
            recoveries: Recoveries::IGNORE,
        }
    }
}

impl Policy {
    /// Length in bytes of the segments of a body of `kind` in a reduction of `ranks` ranks; the last one may
    /// be shorter.
    ///
    /// Zero for objects, which are one piece of any length.
    pub fn segment_len(&self, kind: &BodyKind, ranks: usize, share_memory: bool) -> u64 {
        let Some((body, element)) = kind.array_bytes() else {
            return 0;
        };
        let target = match share_memory {
            // A part for each core.
            true => {
                let part = body.div_ceil(u64::from(self.folds.max(1)));
                let part = part.clamp(PART_BYTES_MIN.min(self.segment_bytes), self.segment_bytes);
                // A body that the master takes from a board is one segment.
                if body <= self.limits.board_bytes_max { body } else { part }
            }
            false => {
                let partials = self.partials_max.max(body / self.bytes_per_partial);
                self.segment_bytes(body, partials / ranks.max(1) as u64)
            }
        };
        self.cut(body, element, target)
    }

    /// The same for an attempt in teams. A rank tells of all its partials in one message, a team of each as
    /// it comes: there are as many as the links take time for.
    pub fn segment_len_in_teams(&self, spec: &ReductionSpec) -> u64 {
        let Some((body, element)) = spec.kind.array_bytes() else {
            return 0;
        };
        let partials = body / (2 * self.bytes_per_partial);
        let segments = (partials / team::width(spec) as u64).max(SEGMENTS_IN_TEAMS_MIN);
        self.cut(body, element, self.segment_bytes(body, segments))
    }

    /// Length of a segment, if there are to be this many.
    fn segment_bytes(&self, body: u64, segments: u64) -> u64 {
        let segments = self.segments.min(segments).max(1);
        (body / segments).clamp(self.segment_bytes_min.min(self.segment_bytes), self.segment_bytes)
    }

    /// Whole elements of about `target` bytes, or all of a body that is short.
    fn cut(&self, body: u64, element: u64, target: u64) -> u64 {
        if body <= target.max(self.limits.inline_bytes_max) {
            return body;
        }
        let elements = (target / element.max(1)).max(1);
        elements * element
    }

    /// Length in bytes of the parts of a piece that goes to this many ranks in a pipeline.
    pub(crate) fn part_bytes(&self, bytes: u64, receivers: usize) -> u64 {
        let parts = self.pipeline_parts.min(self.partials_max / receivers.max(1) as u64);
        let part = bytes.div_ceil(parts.max(1));
        part.clamp(self.pipeline_bytes_min, self.pipeline_bytes_max.max(self.pipeline_bytes_min))
    }

    /// How long a pipeline may stand still: as long as an attempt in teams.
    pub(crate) fn pipeline_patience(&self) -> Duration {
        self.attempt_patience()
    }

    /// The load of an attempt in teams on the master, in ranks that would send as many messages: it hears of
    /// each partial.
    pub fn ranks_in_teams(&self, spec: &ReductionSpec) -> usize {
        4 * team::width(spec)
    }

    /// How long the master lets an attempt in teams stand still. Deputies wait longer: one word of the
    /// master's spares them theirs.
    pub(crate) fn attempt_patience(&self) -> Duration {
        self.limits.ping_interval.max(ATTEMPT_PATIENCE_MIN)
    }

    /// Whether `spec` is one that is tried in teams in a job of `size` ranks.
    pub(crate) fn tries_in_teams(&self, spec: &ReductionSpec, size: u32) -> bool {
        let Limits { teams_from, body_bytes_max, .. } = self.limits;
        let is_known = spec.group.last().is_some_and(|last| last.0 < size);
        is_known && team::is_sound(spec, body_bytes_max) && team::suits(spec, teams_from)
    }

    /// How long the master waits for keepers. An owner's death is noticed before its contribution is given
    /// up.
    pub(crate) fn copy_patience(&self) -> Patience {
        let interval = self.limits.ping_interval;
        Patience {
            call: (interval / COPY_WAIT).max(RETRY_PAUSE),
            answer: Some(interval).filter(|interval| !interval.is_zero()),
            reach: (interval * (INTERVALS_MOST + 2)).max(REACH_PATIENCE_MIN),
        }
    }

    /// How long workers that cannot reach a living process keep trying, if no other worker can: longer than
    /// it takes to notice that a process is silent.
    pub(crate) fn tries_max(&self) -> Duration {
        match self.limits.ping_interval.is_zero() {
            true => RETRY_PAUSE * ATTEMPTS_MIN,
            false => self.limits.silence_max() + self.limits.ping_interval * 2 + TRIES_TIME_MIN,
        }
    }

    /// The least and the most partials that meet in a task of a reduction of `ranks` ranks, whose body has
    /// this many segments of `segment_bytes` bytes: fewer than the least meet only if no more are to come.
    ///
    /// With shared memory each byte is read once, so as many meet as there are. Between hosts a task with
    /// many sources keeps the executor's link busy for long, no other worker can go on with its segment
    /// meanwhile, and there are fewer tasks to share out; many segments make up for that. In large groups the
    /// master cannot hand out small tasks in time.
    pub fn fan_in(
        &self,
        ranks: usize,
        segments: usize,
        segment_bytes: u64,
        share_memory: bool,
    ) -> RangeInclusive<usize> {
        if share_memory {
            let gathers = !self.gather_time.is_zero();
            let least = if gathers { ranks.clamp(2, self.fan_in_max.max(2)) } else { 2 };
            return least..=self.fan_in_max;
        }
        let reads = (self.task_bytes_per_rank * ranks as u64).checked_div(segment_bytes).unwrap_or(0);
        // The messages of fewer tasks than that are few beside those of the ranks.
        let least = (1 + reads as usize).min(2 * segments).clamp(2, ranks.max(2));
        let most = (segments / 8 + 1).clamp(2, self.fan_in_max.max(2));
        least..=most.max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_last_longer_than_any_silence() {
        for interval in [10, 500, 1500, 60_000].map(Duration::from_millis) {
            let policy = Policy {
                limits: Limits { ping_interval: interval, ..Limits::default() },
                ..Policy::default()
            };
            assert!(policy.tries_max() > interval * INTERVALS_MOST, "{interval:?}");
        }
    }
}
