//! What has to hold in the end.

use everfold_protocol::{
    Path, Rank, ReductionId, Timestamp,
    pieces::Pattern,
    report::{Refusal, Report},
    spec::{Delivery, Order, ReductionSpec},
};
use everfold_worker::machine::End;

use super::{
    consistency::RULES_OF_CONSISTENCY,
    early::RULES_OF_EARLY_ENDS,
    ends::{Circumstances, MISSING, OUTLIVES, REASON, SAFE},
    needless::RULES_OF_THRIFT,
    protection,
    reach::{RULES_OF_REACH, Reaches},
    returning::RULES_OF_RETURNS,
    schedule::{Planned, Schedule},
    segments::RULES_OF_SEGMENTS,
    suspects::{DESERTED, FENCED, Suspects, TOGETHER, TOLD, join},
    tally::Tally,
    violation::Violation,
};
use crate::{Ended, World, evidence};

pub(crate) const AT_REST: &str = "a world comes to rest";
const ENDS: &str = "every future ends";
const VALUE: &str = "a value is the fold of what its report claims";
const RECEIVER: &str = "whoever is to receive the result does, and nobody else";
const AGREE: &str = "ranks to which nothing happened agree";
const IN_VAIN: &str = "a rank that was refused before it had the whole result does not receive it";
const SAME: &str = "where nobody is hit, all receive the same bits";
const ONCE: &str = "where nobody is slow, each contribution is folded once, whatever that takes";
const IN_TIME: &str = "a call ends soon after the last rank has called and the last fault is over";
const DEADLINE: &str = "a deadline that has passed ends its call";
const LEAVE: &str = "everyone can leave";
const OPEN: &str = "nothing is left open";

/// The rules that judge calls one by one.
const RULES_OF_CALLS: [&str; 14] = [
    ENDS, REASON, VALUE, RECEIVER, AGREE, IN_VAIN, SAME, SAFE, ONCE, MISSING, OUTLIVES, IN_TIME, DEADLINE,
    LEAVE,
];
const RULES_OF_PROCESSES: [&str; 4] = [FENCED, TOGETHER, TOLD, DESERTED];

/// All rules of which it is counted how often they judge.
pub(super) const RULES: [&[&str]; 8] = [
    &RULES_OF_CALLS,
    &RULES_OF_PROCESSES,
    &RULES_OF_SEGMENTS,
    &RULES_OF_EARLY_ENDS,
    &RULES_OF_CONSISTENCY,
    &RULES_OF_THRIFT,
    &RULES_OF_REACH,
    &RULES_OF_RETURNS,
];

/// Judges what comes of one schedule.
pub(crate) struct Judgement<'a> {
    pub schedule: &'a Schedule,
    pub world: &'a World,
    pub suspects: Suspects<'a>,
}

/// A call, and what it was part of.
pub(super) struct Case<'a> {
    pub planned: &'a Planned,
    pub rank: Rank,
    pub spec: ReductionSpec,
    pub called_us: u64,
}

/// What comes of a call, as far as ranks agree on it to which nothing happens.
#[derive(Clone, Debug, PartialEq)]
enum Came {
    /// It ends well, and these contributions count.
    Well(Path),
    /// The result came too late, or was lost on its way: other ranks may have had it before.
    TooLate,
    Refused,
    /// It was refused so long ago that nobody knows why.
    Over,
}

impl Came {
    /// What came of a call that ends like this. If it ends well, these contributions count.
    fn of(end: &End, counted: Option<Path>) -> Self {
        match (counted, end) {
            (Some(counted), _) => Self::Well(counted),
            (None, End::Refused(Refusal::Over)) => Self::Over,
            (None, end) if Case::may_come_too_late(end) => Self::TooLate,
            (None, _) => Self::Refused,
        }
    }

    fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Well(_), Self::TooLate) | (Self::TooLate, Self::Well(_)) => true,
            (Self::Over, other) | (other, Self::Over) => !matches!(other, Self::Well(_)),
            (one, other) => one == other,
        }
    }
}

impl Case<'_> {
    pub fn id(&self) -> ReductionId {
        ReductionId::new(&self.planned.name, self.planned.sequence)
    }

    pub fn broken(&self, rule: &str, found: impl std::fmt::Display) -> Violation {
        let Planned { name, sequence, .. } = self.planned;
        Violation::new(rule, format!("rank {}, call {sequence} of {name:?}: {found}", self.rank))
    }
}

impl<'a> Judgement<'a> {
    /// Reductions that all ranks call need nobody to leave in order to end; nor do those that somebody leaves
    /// before.
    pub fn complete_reductions_have_ended(&self) -> Result<(), Violation> {
        let complete = |planned: &&Planned| planned.absent.is_empty();
        for planned in self.schedule.reductions.iter().filter(complete) {
            for case in cases(planned) {
                if self.end(&case).is_none() && !self.suspects.is_dead(case.rank) {
                    return Err(case.broken(ENDS, self.what_is_open(planned)));
                }
            }
        }
        let unnoted = self.world.master().has_yet_to_note();
        let unnoted: Path = unnoted.iter().filter(|rank| !self.suspects.is_dead(*rank)).collect();
        let is_over = self.world.calls_ended() == self.calls();
        match is_over && !self.suspects.master_is_dead() && !unnoted.is_empty() {
            true => Err(Violation::new(OPEN, format!("ranks {unnoted} are to note what they have noted"))),
            false => Ok(()),
        }
    }

    /// How many calls there are.
    fn calls(&self) -> u64 {
        self.schedule.reductions.iter().map(|planned| planned.calls.len() as u64).sum()
    }

    /// Everything else, once everyone who lives has left.
    pub fn verdict(&self) -> Result<Tally, Violation> {
        let mut tally = Tally::of(self.schedule);
        self.suspects.check(&mut tally)?;
        for planned in &self.schedule.reductions {
            self.judge_reduction(planned, &mut tally)?;
        }
        self.slow_folds_are_done_once(&mut tally)?;
        self.nothing_was_done_in_vain(&mut tally)?;
        protection::judge(self.schedule, self.world, &mut tally)?;
        self.calls_are_consistent(&mut tally)?;
        self.deaths_cost_nothing_but_time(&mut tally)?;
        self.segments_hold(&mut tally)?;
        self.all_is_closed(&mut tally)?;
        tally.take_world(self.world);
        tally.take_events(self.world.seen());
        Ok(tally)
    }

    fn judge_reduction(&self, planned: &Planned, tally: &mut Tally) -> Result<(), Violation> {
        let mut agreed: Option<(Rank, Came)> = None;
        let mut received: Option<(Rank, &Vec<Vec<Rank>>)> = None;
        let ends = cases(planned).filter_map(|case| self.end(&case));
        // What happens to whom when all is over is no excuse.
        let gone = self.suspects.gone_by(ends.map(|ended| ended.at).max().unwrap_or_default());
        for case in cases(planned) {
            let ended = self.end(&case);
            tally.take(ended.map(|ended| &ended.end));
            tally.judge(ENDS);
            let Some(ended) = ended else {
                if self.suspects.is_dead(case.rank) {
                    continue;
                }
                return Err(case.broken(ENDS, self.what_is_open(planned)));
            };
            let counted = self.judge(&case, ended, tally)?;
            self.judge_time(&case, ended, tally)?;
            let is_well = matches!(ended.end, End::Finished(_) | End::Received(_));
            tally.judge_if(IN_VAIN, ended.was_refused);
            if ended.was_refused && is_well {
                return Err(case.broken(IN_VAIN, format!("{:?}", ended.end)));
            }
            let goes_alone =
                matches!(ended.end, End::MasterLost | End::Fenced | End::Closed | End::ResultLost(_));
            if goes_alone || gone.contains(case.rank) {
                continue;
            }
            // What is lost on its way may be folded anew for those who do not have it yet.
            let failed = self.world.facts().ever_failed();
            let undisturbed = case.spec.group.is_disjoint(&join(&gone, &failed));
            if let Some(value) = ended.value.as_ref().filter(|_| undisturbed) {
                let (first, same) = *received.get_or_insert((case.rank, value));
                tally.judge_if(SAME, first != case.rank);
                if same != value {
                    let found = format!("what it received is folded otherwise than what rank {first} did");
                    return Err(case.broken(SAME, found));
                }
            }
            if self.may_have_noted_alone(planned, case.rank) {
                continue;
            }
            let came = Came::of(&ended.end, counted);
            let (rank, other) = agreed.get_or_insert_with(|| (case.rank, came.clone()));
            tally.judge_if(AGREE, *rank != case.rank);
            if !came.agrees(other) {
                return Err(case.broken(AGREE, format!("{came:?}, and of rank {rank}, {other:?}")));
            }
            if matches!(came, Came::Well(_)) {
                agreed = Some((case.rank, came));
            }
        }
        Ok(())
    }

    /// Judges when a call ended. Those that wait for ranks who never come end when these leave.
    fn judge_time(&self, case: &Case, ended: &Ended, tally: &mut Tally) -> Result<(), Violation> {
        let Planned { calls, absent, .. } = case.planned;
        let first = calls.iter().map(|call| call.at_us).min().unwrap_or_default();
        let passes = case.spec.deadline.map(|deadline| self.suspects.at(first) + deadline);
        if let Some(passes) = passes {
            tally.judge(DEADLINE);
            let due = self.suspects.due_after(case.planned, passes.max(self.suspects.at(case.called_us)));
            if ended.at > due {
                return Err(case.broken(DEADLINE, told(ended, due)));
            }
        }
        if absent.is_empty() {
            tally.judge(IN_TIME);
            let due = self.suspects.due(case.planned);
            if ended.at > due {
                return Err(case.broken(IN_TIME, told(ended, due)));
            }
        }
        Ok(())
    }

    /// Without faults nobody is slow: ranks take less for a task than the operations do.
    fn slow_folds_are_done_once(&self, tally: &mut Tally) -> Result<(), Violation> {
        let Schedule { faults, leaves, damage_percent, .. } = self.schedule;
        let goes_wrong = faults.iter().any(|fault| !fault.what.is_only_told());
        if goes_wrong || !leaves.is_empty() || *damage_percent > 0 {
            return Ok(());
        }
        for planned in self.schedule.reductions.iter().filter(|planned| planned.fold_us > 0) {
            let ended_well = |case: &Case| {
                let end = self.end(case).map(|ended| &ended.end);
                matches!(end, Some(End::Finished(report) | End::Received(report)) if report.missing.is_empty())
            };
            let Some(case) = cases(planned).next().filter(ended_well) else { continue };
            tally.judge(ONCE);
            let id = ReductionId::new(&planned.name, planned.sequence);
            let segments = self.world.settings().segments(id, &case.spec).count();
            let folds = self.world.folds(&planned.name, planned.sequence);
            if folds as usize != (case.spec.group.len() - 1) * segments {
                return Err(case.broken(ONCE, format!("{folds} folds of {}", case.spec.group)));
            }
        }
        Ok(())
    }

    pub(super) fn end(&self, case: &Case) -> Option<&'a Ended> {
        self.world.ended(case.rank, &case.planned.name, case.planned.sequence)
    }

    /// Judges how a call ended; tells whose contributions count, if it ended well.
    fn judge(&self, case: &Case, ended: &Ended, tally: &mut Tally) -> Result<Option<Path>, Violation> {
        let state = Circumstances::new(self, case, ended);
        state.count(tally);
        if let Some(rule) = state.breaks() {
            return Err(case.broken(rule, format!("{:?}", ended.end)));
        }
        match &ended.end {
            End::Finished(report) | End::Received(report) => {
                self.judge_report(case, ended, report, tally).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn judge_report(
        &self,
        case: &Case,
        ended: &Ended,
        report: &Report,
        tally: &mut Tally,
    ) -> Result<Path, Violation> {
        tally.judge(RECEIVER);
        tally.judge(VALUE);
        let spec = &case.spec;
        let received = matches!(ended.end, End::Received(_));
        let receives = match &spec.delivery {
            Delivery::Root(root) => *root == case.rank,
            Delivery::FirstOf(candidates) => received && candidates.contains(&case.rank),
            Delivery::All => true,
        };
        if (received, ended.value.is_some()) != (receives, receives) {
            return Err(case.broken(RECEIVER, format!("{:?}", ended.end)));
        }
        let failed = self.suspects.failed_by(ended.at);
        let may_miss = join(&failed, &self.suspects.closed_by(ended.at));
        let Reaches { gone, spoilt, .. } = Reaches::new(self.schedule, may_miss);
        let may_miss = join(&gone, &spoilt);
        let honest = report.contributors == spec.group.difference(&report.missing)
            && (spec.allow_missing || report.missing.is_empty())
            && report.missing.is_subset(&may_miss)
            && report.survived.is_subset(&self.world.facts().ever_failed_by(ended.at))
            && case.planned.disagrees.is_none_or(|rank| {
                !report.contributors.contains(Rank(rank)) || report.contributors.len() == 1
            });
        if !honest {
            return Err(case.broken(VALUE, format!("{report:?}")));
        }
        let expected = match spec.order {
            _ if let Some(source) = spec.kind.pattern().and_then(Pattern::source) => vec![source],
            Order::Arrival => report.contributors.iter().collect(),
            Order::Fixed => evidence::in_fixed_order(&spec.group, &report.contributors),
        };
        for (index, segment) in ended.value.iter().flatten().enumerate() {
            let mut counted = segment.clone();
            if spec.order == Order::Arrival {
                counted.sort_unstable();
            }
            if counted != expected {
                let [segment, expected] = [segment, &expected].map(|it| evidence::text(it));
                let found = format!("segment {index} holds {segment}, the report claims {expected}");
                return Err(case.broken(VALUE, found));
            }
        }
        Ok(report.contributors.clone())
    }

    fn all_is_closed(&self, tally: &mut Tally) -> Result<(), Violation> {
        let world = self.world;
        let ranks = (0..self.schedule.ranks()).map(Rank);
        for rank in ranks.filter(|rank| !self.suspects.is_dead(*rank)) {
            tally.judge(LEAVE);
            if !world.closed().contains(&rank) {
                return Err(Violation::new(LEAVE, format!("rank {rank} has not left")));
            }
            if let Some(id) = world.unreleased(rank).next() {
                return Err(Violation::new(OPEN, format!("rank {rank} still serves {id:?}")));
            }
        }
        if let Some(host) = world.needless_agents().next() {
            return Err(Violation::new(LEAVE, format!("the agent of host {host} has not gone")));
        }
        if self.suspects.master_is_dead() {
            return Ok(());
        }
        if !world.is_done() {
            return Err(Violation::new(LEAVE, "the master has not gone"));
        }
        if let Some(reduction) = world.tried() {
            return Err(Violation::new(OPEN, format!("a deputy has {:?}", reduction.name())));
        }
        match world.master().reductions().next() {
            Some((_, reduction)) => {
                Err(Violation::new(OPEN, format!("the master has {:?}", reduction.name())))
            }
            None => Ok(()),
        }
    }

    /// What the master knows of a reduction that did not end.
    fn what_is_open(&self, planned: &Planned) -> String {
        let open = self.world.master().reductions().map(|(_, reduction)| reduction);
        match open.into_iter().find(|reduction| reduction.name() == planned.name) {
            None => "it waits; the master knows of no such reduction".to_owned(),
            Some(reduction) => format!(
                "it waits; the master has {} of {}, {} segments unfinished, collecting {:?}",
                reduction.arrived(),
                reduction.group(),
                reduction.unfinished(),
                reduction.collecting()
            ),
        }
    }
}

/// How and when a call ended, and when it was to.
fn told(ended: &Ended, due: Timestamp) -> String {
    let [at, due] = [ended.at, due].map(|at| at.as_nanos() as f64 / 1e6);
    format!("at {at} ms, {due} ms were expected: {:?}", ended.end)
}

pub(super) fn cases(planned: &Planned) -> impl Iterator<Item = Case<'_>> {
    planned.calls.iter().map(move |call| Case {
        planned,
        rank: Rank(call.rank),
        spec: planned.spec(Rank(call.rank)),
        called_us: call.at_us,
    })
}
