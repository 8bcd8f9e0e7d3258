//! How long a call may take.
//!
//! The bound is that of the slowest way which the rules allow: all tasks of all reductions one after the
//! other, each as long as the slowest rank takes for it, with a message there and back. It is far from what a
//! run takes; what waits for a timer that nobody set, or for somebody who was not asked, is beyond it all the
//! same. While something goes wrong nothing is expected. After that, silences are noticed, and all may have
//! to be done again once for each process that is gone.

use std::time::Duration;

use everfold_protocol::board::PATIENCE as BOARD_PATIENCE;
use everfold_protocol::{Rank, ReductionId, Timestamp, spec::Protection, watch::INTERVALS_MOST};

use super::{
    reach::HEALS_MAX,
    schedule::{Fault, Planned, Receiver, Schedule, Trouble},
    suspects::Suspects,
};

/// How long a process is left alone that could not be reached.
const PAUSE: Duration = Duration::from_millis(20);

/// Pauses that one call may have to wait for, one after the other.
const PAUSES: u32 = 3;

/// The longest pause between two tries to reach somebody.
const TRY_PAUSE: Duration = Duration::from_millis(160);

/// How long a reader tries to reach an owner that lives, besides the time in which its silence would be
/// noticed.
const TRIES_TIME: Duration = Duration::from_secs(20);

/// Damaged reads of what lies at one rank of which each may take a task more. What stays damaged is given up.
const DAMAGED_READS_MOST: u32 = 32;

/// How long a rank may try to find room for a result, besides the time in which its silence would be noticed.
const CROWD_TIME: Duration = Duration::from_secs(22);

/// How long an attempt in teams may stand still, besides a ping interval.
const TEAM_PATIENCE: Duration = Duration::from_millis(100);

impl Suspects<'_> {
    /// When the calls of a reduction have to have ended that all of its group have called.
    pub fn due(&self, planned: &Planned) -> Timestamp {
        let last = planned.calls.iter().map(|call| call.at_us).max().unwrap_or_default();
        self.due_after(planned, self.at(last))
    }

    /// When a call has to have ended that nobody keeps waiting from `ready` on.
    pub fn due_after(&self, planned: &Planned, ready: Timestamp) -> Timestamp {
        let Schedule { faults, leaves, .. } = self.schedule;
        let leaves = leaves.iter().map(|leave| (self.at(leave.at_us), self.at(leave.at_us)));
        let faults = faults.iter().map(|fault| (self.at(fault.at_us), self.at(end_us(fault))));
        let mut spans: Vec<_> = leaves.chain(faults).collect();
        spans.sort_unstable();
        let work = self.work() + self.tries(planned);
        let (mut due, mut from) = (ready + work, ready);
        // A fault that begins when all is to be over is no excuse.
        for (since, until) in spans {
            if since <= due {
                from = from.max(until);
                due = from
                    + self.detection()
                    + self.returning()
                    + work * (1 + self.world.facts().failures.len() as u32);
            }
        }
        due
    }

    /// How long it takes until a silence is noticed by one end and then by the other, and for the next
    /// attempts to reach somebody. A process that was hindered before is given more time.
    fn detection(&self) -> Duration {
        let interval = self.world.settings().policy.limits.ping_interval;
        let hindrances = self.schedule.faults.iter().filter(|fault| fault.what.halts());
        let hindered_us = hindrances.map(|fault| fault.lasts_us).sum();
        let silence = interval * 3 + Duration::from_micros(hindered_us) * 2;
        (silence.min(interval * INTERVALS_MOST) + interval) * 2 + PAUSE * PAUSES
    }

    /// How long ranks take that come back, each after the other as often as it does, and how long the master
    /// waits for those that do not.
    fn returning(&self) -> Duration {
        let Some(returns) = self.schedule.returns else { return Duration::ZERO };
        let hops = Duration::from_micros(10 * (self.schedule.latency_us.1 + self.schedule.batch_us));
        // A program that fails takes as long to end as the next one to start.
        // The longest pause is 16 times the first one.
        let pause = 16 * returns.pause_us;
        let copy_us = returns.migrates.map_or(0, |migrates| 2 * migrates.copy_us);
        let once = Duration::from_micros(2 * returns.start_us + returns.note_us + copy_us + pause) + hops;
        let starts = self.world.starts() as u32;
        let in_vain = self.world.given_up() as u32 + self.world.frozen_standbys() as u32;
        let in_vain = Duration::from_micros(returns.return_us) * in_vain;
        // A process that has failed and lives on is ended after a quarter of the time.
        let hung = Duration::from_micros(returns.return_us) / 4 * self.world.hung() as u32;
        once * (starts + 1) + in_vain + hung
    }

    /// How long all reductions take, one task after the other.
    fn work(&self) -> Duration {
        let Schedule {
            latency_us, task_us, pacing, board, ping_interval_us, damage_percent, batch_us, ..
        } = self.schedule;
        let hop = Duration::from_micros(2 * latency_us.1 + batch_us);
        let task = Duration::from_micros(task_us.iter().copied().max().unwrap_or_default());
        let reductions = self.schedule.reductions.iter();
        let folding: Duration = reductions.map(|planned| self.work_of(planned, hop, task)).sum();
        let board = if *board { BOARD_PATIENCE * 4 } else { Duration::ZERO };
        let patience = TEAM_PATIENCE.max(Duration::from_micros(*ping_interval_us));
        let teams = if pacing.teams_from > 0 { patience * 4 } else { Duration::ZERO };
        // What is damaged on its way is folded again, and that may be damaged, too.
        let again = if *damage_percent > 0 { 4 } else { 1 };
        let Schedule { crowded, windowless, .. } = self.schedule;
        let is_crowded = !crowded.is_empty() || !windowless.is_empty();
        let silence = self.world.settings().policy.limits.silence_max();
        let crowd = if is_crowded { CROWD_TIME + silence } else { Duration::ZERO };
        let damaged_reads = self.schedule.faults.iter().map(|fault| match fault.what {
            Trouble::Garble { reads, .. } => reads.min(DAMAGED_READS_MOST),
            Trouble::Damage { .. } => DAMAGED_READS_MOST,
            _ => 0,
        });
        let fold_us =
            self.schedule.reductions.iter().map(|planned| planned.fold_us).max().unwrap_or_default();
        let read_again = (hop + task + Duration::from_micros(fold_us)) * damaged_reads.sum::<u32>();
        folding * again + read_again + crowd + board + teams
    }

    /// How long ranks of a group try that do not reach each other's memory, or read it damaged, first to fold
    /// and then to copy the result: until the next try after they reach it again, or until they give up.
    fn tries(&self, planned: &Planned) -> Duration {
        let group = planned.group();
        let is_here = |host| group.iter().any(|rank| self.schedule.hosts[rank.index()] == host);
        let lasts_us = |fault: &Fault| match fault.what {
            Trouble::Unreachable { a, b, .. } if is_here(a) && is_here(b) => Some(fault.lasts_us),
            Trouble::Garble { rank, reads } if group.contains(Rank(rank)) && reads > HEALS_MAX => Some(0),
            Trouble::Damage { rank, copies: false, .. } if group.contains(Rank(rank)) => Some(fault.lasts_us),
            _ => None,
        };
        let limits = &self.world.settings().policy.limits;
        let each = match self.schedule.faults.iter().filter_map(lasts_us).min() {
            None => Duration::ZERO,
            Some(0) => limits.silence_max() + limits.read_patience() * 2 + TRIES_TIME,
            Some(_) => limits.read_patience() + TRY_PAUSE,
        };
        each * 2
    }

    fn work_of(&self, planned: &Planned, hop: Duration, task: Duration) -> Duration {
        let Some(first) = planned.calls.first() else { return Duration::ZERO };
        let spec = planned.spec(Rank(first.rank));
        let id = ReductionId::new(&planned.name, planned.sequence);
        let ids = if self.schedule.pacing.teams_from > 0 { &[id, id.in_teams()][..] } else { &[id] };
        let parts = |id: &ReductionId| self.world.settings().segments(*id, &spec).count() as u32;
        let (segments, ranks) = (ids.iter().map(parts).sum::<u32>(), spec.group.len() as u32);
        // If one reduction of a name is slow, all of that name are.
        let namesakes = self.schedule.reductions.iter().filter(|other| other.name == planned.name);
        let fold = Duration::from_micros(namesakes.map(|other| other.fold_us).max().unwrap_or_default());
        let tasks = (hop + task + fold) * segments * ranks;
        let gather = Duration::from_micros(self.schedule.pacing.gather_us);
        // Each portion of an original is ordered when the one before it was acknowledged.
        let copies =
            if planned.protection == Protection::CommitFirst { hop * 2 * segments } else { Duration::ZERO };
        // A copy may be made a few segments at a time, or a few of the pieces that lie side by side.
        let copied = if spec.kind.pattern().is_some() { ranks } else { parts(&id) };
        let portions = copied.checked_div(self.schedule.collect_segments).unwrap_or(0) + 1;
        let collect = Duration::from_micros(self.schedule.collect_us) * portions + hop * 2;
        let hands_out = if matches!(planned.receiver, Receiver::Root(_)) { hop } else { collect * 2 };
        let note_us = self.schedule.returns.map_or(0, |returns| returns.note_us_max());
        // First whoever receives the result, and then all others.
        let notes = (Duration::from_micros(note_us) + hop) * 2 * u32::from(note_us > 0);
        tasks + gather + copies + hands_out + notes
    }
}

/// When a fault is over. A rank that was slow is done with what it has begun.
fn end_us(fault: &Fault) -> u64 {
    if fault.what.is_only_told() {
        return 0;
    }
    let tail_us = match fault.what {
        Trouble::Slow { task_us, .. } => task_us,
        Trouble::SlowDisk { write_us, .. } => write_us,
        _ => 0,
    };
    fault.at_us + fault.lasts_us + tail_us
}
