//! What all calls of one reduction have to agree on, and when deadlines end them.

use std::{collections::BTreeSet, time::Duration};

use everfold_protocol::{
    Path, Rank, ReductionId, Timestamp,
    report::{Refusal, Report},
};
use everfold_worker::machine::End;

use super::{
    judge::{Case, Judgement, cases},
    reach::Reaches,
    schedule::{Planned, Receiver, Schedule, Trouble},
    suspects::join,
    tally::Tally,
    violation::Violation,
};

const ONE_REPORT: &str = "all calls that end well tell one report";
const ONE_ERROR: &str = "all calls that are refused hear one error";
const EARLY: &str = "no deadline ends a call before it has passed";
const LATE: &str = "no call outlasts its deadline";
const LENT: &str = "a result that somebody has survives one death";
const GIVEN_UP: &str = "a rank gives up a result that it cannot reach";
const REACHED: &str = "a result that a third host has is not lost between two that cannot reach each other";

/// The rules that judge the calls of one reduction beside each other.
pub(super) const RULES_OF_CONSISTENCY: [&str; 7] =
    [ONE_REPORT, ONE_ERROR, EARLY, LATE, LENT, GIVEN_UP, REACHED];

/// How often a rank tries to reach a piece of a result, with some that folding has taken; and the pause in
/// between.
const TRIES_MOST: u64 = 1100;
const RETRY_US: u64 = 20_000;
/// Segments of the longest body.
const SEGMENTS_MOST: u64 = 7;

/// The parts of a report that are the same for all.
type Version<'a> = [&'a Path; 4];

fn version(report: &Report) -> Version<'_> {
    let Report { contributors, missing, survived, protected, .. } = report;
    [contributors, missing, survived, protected]
}

impl Judgement<'_> {
    /// Judges how the calls of each reduction ended beside each other, and when.
    pub(super) fn calls_are_consistent(&self, tally: &mut Tally) -> Result<(), Violation> {
        for planned in &self.schedule.reductions {
            self.one_report(planned, tally)?;
            self.one_error(planned, tally)?;
            self.deadlines_are_kept(planned, tally)?;
            self.results_are_lent(planned, tally)?;
            self.results_are_found(planned, tally)?;
            self.results_are_given_up(planned, tally)?;
        }
        Ok(())
    }

    /// Also those who were declared failed later, or have died, may have told others what they know.
    fn one_report(&self, planned: &Planned, tally: &mut Tally) -> Result<(), Violation> {
        let gone = self.gone(planned);
        let id = ReductionId::new(&planned.name, planned.sequence);
        let mut first: Option<(Rank, Version)> = None;
        let mut alone = Vec::new();
        for case in cases(planned) {
            let report = match self.end(&case).map(|ended| &ended.end) {
                Some(End::Finished(report) | End::Received(report)) => report,
                _ => continue,
            };
            // The next root receives another result if the first, who may have received one already, is given
            // up.
            let has_successors = matches!(planned.receiver, Receiver::FirstOf(_));
            if has_successors && gone.contains(case.rank) {
                continue;
            }
            let told = version(report);
            // Where ranks come back, a rank that does not may have noted a result and gone before the master
            // heard so. The others go on without what went with it, if they may.
            let may_note = self.schedule.returns.is_some() && planned.allow_missing;
            let has_noted = may_note && !self.world.facts().is_served(case.rank, id);
            if has_noted && gone.contains(case.rank) || self.may_have_noted_alone(planned, case.rank) {
                alone.push((case, told));
                continue;
            }
            let (rank, other) = *first.get_or_insert((case.rank, told));
            if told != other {
                let names = ["contributors", "missing", "survived", "protected"];
                let differ =
                    names.iter().zip(told.iter().zip(other)).filter(|(_, (mine, other))| **mine != *other);
                let differ: Vec<String> =
                    differ.map(|(name, (mine, other))| format!("{name} {mine} and not {other}")).collect();
                return Err(case.broken(ONE_REPORT, format!("{}, as rank {rank} tells", differ.join(", "))));
            }
            tally.judge_if(ONE_REPORT, rank != case.rank);
        }
        let Some((rank, [contributors, ..])) = first else { return Ok(()) };
        for (case, [mine, ..]) in alone {
            // It goes with more than the others have, never with less.
            if !contributors.is_subset(mine) {
                let found = format!(
                    "contributors {mine} alone, without some of {contributors} that rank {rank} tells"
                );
                return Err(case.broken(ONE_REPORT, found));
            }
        }
        Ok(())
    }

    /// A rank that migrates keeps the result that it has noted. Its host may have been lost before the master heard
    /// of that, together with contributions, and the others go on without these, if they may.
    pub(super) fn may_have_noted_alone(&self, planned: &Planned, rank: Rank) -> bool {
        let facts = self.world.facts();
        let migrates = self.schedule.returns.is_some_and(|returns| returns.migrates.is_some());
        let has_gone = !facts.hosts_lost.is_empty() && facts.ever_failed().contains(rank);
        planned.allow_missing && migrates && has_gone
    }

    fn one_error(&self, planned: &Planned, tally: &mut Tally) -> Result<(), Violation> {
        let mut first: Option<(Rank, &Refusal)> = None;
        for case in cases(planned) {
            let Some(End::Refused(refusal)) = self.end(&case).map(|ended| &ended.end) else {
                continue;
            };
            // Who calls long after the others may hear only that it is over.
            if *refusal == Refusal::Over {
                continue;
            }
            let (rank, other) = *first.get_or_insert((case.rank, refusal));
            if refusal != other {
                return Err(case.broken(ONE_ERROR, format!("{refusal:?}, rank {rank} hears {other:?}")));
            }
            tally.judge_if(ONE_ERROR, rank != case.rank);
        }
        Ok(())
    }

    /// A deadline counts from the moment at which the master hears the first contribution.
    fn deadlines_are_kept(&self, planned: &Planned, tally: &mut Tally) -> Result<(), Violation> {
        let Some(deadline) = planned.deadline_us.map(Duration::from_micros) else { return Ok(()) };
        let id = ReductionId::new(&planned.name, planned.sequence);
        let Some(started) = self.world.facts().heard_first(id) else { return Ok(()) };
        let due = started + deadline;
        // Whoever comes back hears it when it is there.
        let gone = join(&self.gone(planned), &self.world.facts().ever_failed());
        for case in cases(planned) {
            let Some(ended) = self.end(&case) else { continue };
            let at = |at: Timestamp| format!("{:.3} ms", at.as_nanos() as f64 / 1e6);
            if matches!(ended.end, End::Refused(Refusal::DeadlineExceeded { .. })) {
                tally.judge(EARLY);
                if ended.told < due {
                    return Err(case.broken(EARLY, format!("at {}, due at {}", at(ended.told), at(due))));
                }
            }
            let Some(heard) = self.world.facts().heard_at(id, case.rank) else { continue };
            let latest = due.max(heard) + self.last_words(case.rank);
            if !self.everybody_runs() || gone.contains(case.rank) {
                continue;
            }
            tally.judge(LATE);
            if ended.told > latest {
                let found = format!("ended at {}, due at {}: {:?}", at(ended.told), at(due), ended.end);
                return Err(case.broken(LATE, found));
            }
        }
        Ok(())
    }

    /// What the master says last takes to reach a rank, and what that rank takes to fold what came with it, and
    /// to note how its call has ended.
    fn last_words(&self, rank: Rank) -> Duration {
        let limps = self.schedule.faults.iter().filter_map(|fault| match fault.what {
            Trouble::Slow { rank: slow, task_us } if slow == rank.0 => Some(task_us),
            _ => None,
        });
        let task_us = limps.chain([self.schedule.task_us[rank.index()]]).max().unwrap_or_default();
        let late = self.schedule.faults.iter().filter_map(|fault| match fault.what {
            Trouble::Late { rank: late, by_us } if late == rank.0 => Some(by_us),
            _ => None,
        });
        let late_us: u64 = late.sum();
        let note_us = self.schedule.returns.map_or(0, |returns| returns.note_us_max());
        let round_us = 2 * self.schedule.latency_us.1 + self.schedule.batch_us;
        // A rank whose log is full ends the call once the master knows that its replica lacks the outcome.
        let is_full_at_times = self.schedule.returns.is_some_and(|returns| returns.note_failures_percent > 0);
        let rounds = 1 + u64::from(is_full_at_times);
        Duration::from_micros(late_us + rounds * round_us + task_us + note_us)
    }

    /// Where the result went with one process, nobody has it.
    fn results_are_lent(&self, planned: &Planned, tally: &mut Tally) -> Result<(), Violation> {
        let gone = self.gone(planned);
        let has_come_back = |rank: Rank| self.world.facts().has_come_back(rank);
        // Whoever has come back has died before.
        let died = |rank: Rank| usize::from(gone.contains(rank)) + usize::from(has_come_back(rank));
        let hit: usize = planned.group().iter().map(died).sum();
        let is_lent = planned.is_one_for_all() && self.hosts_of(planned).len() > 1;
        if hit != 1 || self.hosts_are_apart() || !is_lent {
            return Ok(());
        }
        let end = |case: &Case| self.end(case).map(|ended| &ended.end);
        // A process that was declared failed keeps what it has for itself. Of one whose bytes stay damaged
        // nobody has anything.
        let spoilt = Reaches::new(self.schedule, Path::empty()).spoilt;
        let mut others = cases(planned).filter(|case| died(case.rank) == 0 && !spoilt.contains(case.rank));
        let is_received = others.any(|case| matches!(end(&case), Some(End::Received(_))));
        for case in cases(planned).filter(|_| is_received) {
            tally.judge(LENT);
            if let Some(end @ End::Refused(Refusal::ResultLost { .. })) = end(&case) {
                return Err(case.broken(LENT, format!("{end:?}")));
            }
        }
        Ok(())
    }

    /// Ranks that had gone when the last of these calls ended.
    fn gone(&self, planned: &Planned) -> Path {
        let ends = cases(planned).filter_map(|case| self.end(&case)).map(|ended| ended.at);
        self.suspects.gone_by(ends.max().unwrap_or_default())
    }

    /// Whether some hosts do not reach each other's memory.
    fn hosts_are_apart(&self) -> bool {
        self.schedule.faults.iter().any(|fault| matches!(fault.what, Trouble::Unreachable { .. }))
    }

    /// Whether nobody stands still, and every message arrives, unless its process or its host is dead.
    fn everybody_runs(&self) -> bool {
        !self.schedule.faults.iter().any(|fault| fault.what.halts())
    }

    /// The hosts of those who call.
    fn hosts_of(&self, planned: &Planned) -> BTreeSet<u32> {
        planned.calls.iter().map(|call| self.schedule.hosts[call.rank as usize]).collect()
    }

    /// What a rank cannot reach it tries again for as long as any silence lasts, however many ranks there
    /// are.
    fn results_are_given_up(&self, planned: &Planned, tally: &mut Tally) -> Result<(), Violation> {
        let undisturbed = self.everybody_runs() && self.gone(planned).is_empty();
        if !self.hosts_are_apart() || !undisturbed {
            return Ok(());
        }
        let Schedule { latency_us, collect_us, .. } = self.schedule;
        // A rank copies as many segments before it misses one.
        let once_us = RETRY_US + 2 * latency_us.1 + SEGMENTS_MOST * (collect_us + latency_us.1);
        // A rank that gets further begins to count anew; now and then it copies a little more of the segment
        // that it misses.
        let times = if self.schedule.halves { 2 } else { 1 };
        let most = Duration::from_micros(TRIES_MOST * once_us * times);
        let id = ReductionId::new(&planned.name, planned.sequence);
        let heard = cases(planned).filter_map(|case| self.world.facts().heard_at(id, case.rank)).max();
        for case in cases(planned) {
            let (Some(ended), Some(heard)) = (self.end(&case), heard) else { continue };
            let is_lost = matches!(ended.end, End::Refused(Refusal::ResultLost { .. }));
            tally.judge(GIVEN_UP);
            if is_lost && ended.told > heard + most {
                let found = format!("after {:?}, not {most:?}", ended.told.since(heard));
                return Err(case.broken(GIVEN_UP, found));
            }
        }
        Ok(())
    }

    /// A rank that cannot reach who holds a piece of the result is told somebody else who has it.
    fn results_are_found(&self, planned: &Planned, tally: &mut Tally) -> Result<(), Violation> {
        let mut apart =
            self.schedule.faults.iter().filter(|fault| matches!(fault.what, Trouble::Unreachable { .. }));
        let (Some(_), None) = (apart.next(), apart.next()) else { return Ok(()) };
        let is_whole = self.gone(planned).is_empty() && self.world.facts().ever_failed().is_empty();
        let spoilt = Reaches::new(self.schedule, Path::empty()).spoilt;
        let is_sound = planned.group().is_disjoint(&spoilt);
        let undisturbed = is_whole && is_sound && self.schedule.leaves.is_empty();
        // Where one rank receives, nobody else has the result.
        let is_lent = planned.receiver == Receiver::All && planned.is_one_for_all();
        if self.hosts_of(planned).len() < 3 || !undisturbed || !is_lent {
            return Ok(());
        }
        for case in cases(planned) {
            let Some(ended) = self.end(&case) else { continue };
            tally.judge(REACHED);
            if matches!(ended.end, End::Refused(Refusal::ResultLost { .. })) {
                return Err(case.broken(REACHED, format!("{:?}", ended.end)));
            }
        }
        Ok(())
    }
}

impl Case<'_> {
    /// Whether a rank that ends in an error may stand beside others that end well: they had the result
    /// before.
    pub(super) fn may_come_too_late(end: &End) -> bool {
        match end {
            End::Refused(Refusal::ResultLost { .. }) => true,
            End::Refused(Refusal::DeadlineExceeded { missing, .. }) => missing.is_empty(),
            _ => false,
        }
    }
}
