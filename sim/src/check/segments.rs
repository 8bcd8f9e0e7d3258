//! What has to hold of recovery segments: each index counts once, and all ranks come to the same.

use everfold_protocol::{Path, Rank, Timestamp, spec::Order};
use everfold_segment::report::SegmentReport;

use super::{
    judge::Judgement,
    reach::Reaches,
    schedule::{Body, CallAt, Leave, Planned, PlannedSegment, Receiver, Schedule},
    tally::Tally,
    violation::Violation,
};
use crate::{
    World,
    segments::{Doing, Outcome, Part, Value, is_told_alike},
    world::RoundCalls,
};

pub(super) const ENDS: &str = "every recovery segment ends";
pub(super) const ONCE: &str = "in a recovery segment each index counts once";
pub(super) const ALIKE: &str = "ranks come to the same in a recovery segment";
pub(super) const UNDISTURBED: &str = "where nothing goes wrong, no index is computed again";

/// Rules that judge recovery segments.
pub(super) const RULES_OF_SEGMENTS: [&str; 4] = [ENDS, ONCE, ALIKE, UNDISTURBED];

/// A schedule as it was executed: the rounds of its segments are reductions, and ranks left that heard errors
/// in them.
pub(super) fn as_executed(schedule: &Schedule, world: &World, began: Timestamp) -> Schedule {
    let us = |at: Timestamp| u64::try_from(at.since(began).as_micros()).unwrap_or(u64::MAX);
    let mut executed = schedule.clone();
    let leave = |(rank, at): (&Rank, &Timestamp)| Leave { rank: rank.0, at_us: us(*at) };
    let left: Vec<Leave> = world.segments().left.iter().map(leave).collect();
    // Who has left leaves no more.
    let has_left = |it: &Leave| left.iter().any(|other| other.rank == it.rank && other.at_us < it.at_us);
    executed.leaves.retain(|it| !has_left(it));
    executed.leaves.extend(left);
    for round in world.segments().rounds.values() {
        executed.reductions.push(as_planned(&schedule.segments[round.segment], round, world, us));
    }
    executed
}

fn as_planned(
    segment: &PlannedSegment,
    round: &RoundCalls,
    world: &World,
    us: impl Fn(Timestamp) -> u64,
) -> Planned {
    let mut calls: Vec<CallAt> =
        round.calls.iter().map(|(rank, at)| CallAt { rank: rank.0, at_us: us(*at) }).collect();
    let last_us = calls.iter().map(|call| call.at_us).max().unwrap_or_default();
    let has_called = |rank: &Rank| round.calls.iter().any(|(caller, _)| caller == rank);
    let (mut about_to_call, mut absent) = (Vec::new(), Vec::new());
    for rank in round.group.iter().filter(|rank| !has_called(rank)) {
        match world.facts().ended.get(&rank) {
            // Until it died, the others waited for it.
            Some(died) => about_to_call.push(CallAt { rank: rank.0, at_us: us(*died).max(last_us) }),
            None => absent.push(rank.0),
        }
    }
    calls.extend(about_to_call);
    Planned {
        name: round.name.clone(),
        sequence: round.sequence,
        receiver: Receiver::All,
        body: Body::Object,
        fold_us: 0,
        order: Order::Arrival,
        inline: segment.inline,
        long: Vec::new(),
        protection: segment.protection,
        allow_missing: true,
        trace: false,
        deadline_us: segment.deadline_us,
        disagrees: None,
        absent,
        calls,
    }
}

fn broken(
    planned: &PlannedSegment,
    rank: Rank,
    rule: &'static str,
    found: impl std::fmt::Display,
) -> Violation {
    Violation::new(rule, format!("rank {rank}, recovery segment {:?}: {found}", planned.name))
}

impl Judgement<'_> {
    /// Judges what has come of recovery segments.
    pub(super) fn segments_hold(&self, tally: &mut Tally) -> Result<(), Violation> {
        for (index, planned) in self.schedule.segments.iter().enumerate() {
            for call in &planned.calls {
                let rank = Rank(call.rank);
                let part = self.world.segments().parts.get(&(rank, index));
                self.segment_has_ended(planned, rank, part, tally)?;
                for outcome in part.iter().flat_map(|part| &part.outcomes) {
                    // A rank that hears that a result is lost, as its bytes stay damaged, leaves the job.
                    let may_be_alone = !Reaches::new(self.schedule, Path::empty()).spoilt.is_empty();
                    let has_none = matches!(outcome, Outcome::NoValue(_));
                    if !(may_be_alone && has_none) {
                        judge_outcome(planned, rank, outcome, tally)?;
                    }
                }
            }
            self.ranks_come_to_the_same(planned, index, tally)?;
        }
        Ok(())
    }

    fn segment_has_ended(
        &self,
        planned: &PlannedSegment,
        rank: Rank,
        part: Option<&Part>,
        tally: &mut Tally,
    ) -> Result<(), Violation> {
        if self.suspects.is_dead(rank) {
            return Ok(());
        }
        tally.judge(ENDS);
        match part {
            Some(Part { doing: Doing::Over, .. }) => Ok(()),
            part => {
                let found = part.map(|part| (part.number, part.ledger.rounds(), &part.step));
                Err(broken(planned, rank, ENDS, format!("it is at {found:?}")))
            }
        }
    }

    fn ranks_come_to_the_same(
        &self,
        planned: &PlannedSegment,
        index: usize,
        tally: &mut Tally,
    ) -> Result<(), Violation> {
        let schedule = self.schedule;
        let goes_wrong = schedule.faults.iter().any(|fault| !fault.what.is_only_told());
        let is_fair = !goes_wrong && schedule.leaves.is_empty() && schedule.damage_percent == 0;
        let may_fail = planned.deadline_us.is_some() || !schedule.windowless.is_empty();
        for number in 0..planned.times as usize {
            let mut first: Option<(Rank, &Value, &SegmentReport)> = None;
            for call in &planned.calls {
                let rank = Rank(call.rank);
                let part = self.world.segments().parts.get(&(rank, index));
                let outcome = part.and_then(|part| part.outcomes.get(number));
                if is_fair && !may_fail {
                    tally.judge(UNDISTURBED);
                    let Some(Outcome::Value(_, report)) = outcome else {
                        return Err(broken(planned, rank, UNDISTURBED, format!("{outcome:?}")));
                    };
                    let is_all = report.again == 0 && report.lost.is_empty() && report.salvaged == 0;
                    if !is_all || report.survivors != planned.group() {
                        return Err(broken(planned, rank, UNDISTURBED, report));
                    }
                }
                let Some(Outcome::Value(value, report)) = outcome else { continue };
                let (other, same, told) = *first.get_or_insert((rank, value, report));
                tally.judge_if(ALIKE, other != rank);
                if !is_alike((value, report), (same, told), planned.fixed) {
                    let found = format!("{report} where rank {other} has {told}: {report:?} {told:?}");
                    return Err(broken(planned, rank, ALIKE, found));
                }
            }
        }
        Ok(())
    }
}

/// Each index is in the value once; in the fixed order, it is the very expression that one rank alone
/// computes.
fn judge_outcome(
    planned: &PlannedSegment,
    rank: Rank,
    outcome: &Outcome,
    tally: &mut Tally,
) -> Result<(), Violation> {
    tally.judge_if(ONCE, !matches!(outcome, Outcome::Refused(_)));
    match outcome {
        Outcome::Value(value, report) => {
            let mut indices = value.indices.clone();
            indices.sort_unstable();
            let computed: u64 = report.computed.iter().map(|(_, indices)| indices).sum();
            let is_once = indices.iter().copied().eq(0..planned.indices) && computed == planned.indices;
            let is_it = !planned.fixed || *value == Value::alone(&planned.grains(), true);
            match is_once && is_it {
                true => Ok(()),
                false => Err(broken(planned, rank, ONCE, format!("{value:?}: {report:?}"))),
            }
        }
        Outcome::NoValue(error) => Err(broken(planned, rank, ONCE, error)),
        Outcome::Refused(_) => Ok(()),
    }
}

/// Whether two ranks are told the same. The order in which values have met may differ, unless it is fixed.
fn is_alike(
    (value, one): (&Value, &SegmentReport),
    (other_value, other): (&Value, &SegmentReport),
    is_fixed: bool,
) -> bool {
    is_told_alike(one, other) && (!is_fixed || value == other_value)
}
