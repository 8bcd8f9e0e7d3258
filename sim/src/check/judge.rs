//! What has to hold in the end.

use std::collections::BTreeSet;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, Timestamp,
    message::Evidence,
    pieces::Pattern,
    report::{Refusal, Report},
    spec::{Delivery, Order, Protection, ReductionSpec},
};
use everfold_worker::machine::End;

use super::{
    protection,
    reach::Reaches,
    schedule::{Fault, Planned, Schedule, Trouble},
    suspects::{DESERTED, FENCED, Suspects, TOGETHER, TOLD, join},
    tally::Tally,
    violation::Violation,
};
use crate::{Ended, World, evidence};

pub(crate) const AT_REST: &str = "a world comes to rest";
const ENDS: &str = "every future ends";
const REASON: &str = "a future ends for a reason that the schedule gives";
const VALUE: &str = "a value is the fold of what its report claims";
const RECEIVER: &str = "whoever is to receive the result does, and nobody else";
const AGREE: &str = "ranks to which nothing happened agree";
const SAME: &str = "where nobody is hit, all receive the same bits";
const SAFE: &str = "what was protected before it counted survives one death";
const ONCE: &str = "where nobody is slow, each contribution is folded once, whatever that takes";
const MISSING: &str = "whoever lets contributions be missing receives what those who live have";
const OUTLIVES: &str = "what a rank has called outlives its process where an agent holds its memory";
const IN_TIME: &str = "a call ends soon after the last rank has called and the last fault is over";
const DEADLINE: &str = "a deadline that has passed ends its call";
const LEAVE: &str = "everyone can leave";
const OPEN: &str = "nothing is left open";

/// All rules that judge calls, processes or reductions one by one.
pub(crate) const RULES: [&str; 13] =
    [ENDS, REASON, VALUE, RECEIVER, AGREE, SAME, SAFE, ONCE, MISSING, OUTLIVES, IN_TIME, DEADLINE, LEAVE];
pub(crate) const RULES_OF_PROCESSES: [&str; 4] = [FENCED, TOGETHER, TOLD, DESERTED];

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
    called_us: u64,
}

impl Case<'_> {
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
        Ok(())
    }

    /// Everything else, once everyone who lives has left.
    pub fn verdict(&self) -> Result<Tally, Violation> {
        let mut tally = Tally::of(self.schedule);
        RULES.into_iter().chain(RULES_OF_PROCESSES).for_each(|rule| tally.know(rule));
        self.suspects.check(&mut tally)?;
        for planned in &self.schedule.reductions {
            self.judge_reduction(planned, &mut tally)?;
        }
        self.slow_folds_are_done_once(&mut tally)?;
        self.nothing_was_done_in_vain(&mut tally)?;
        protection::judge(self.schedule, self.world, &mut tally)?;
        self.calls_are_consistent(&mut tally)?;
        self.deaths_cost_nothing_but_time(&mut tally)?;
        self.all_is_closed(&mut tally)?;
        tally.take_world(self.world);
        tally.take_events(self.world.seen());
        Ok(tally)
    }

    fn judge_reduction(&self, planned: &Planned, tally: &mut Tally) -> Result<(), Violation> {
        let mut agreed: Option<(Rank, Option<Path>)> = None;
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
            match &agreed {
                _ if Case::may_come_too_late(&ended.end) => {}
                _ if self.may_have_noted_alone(planned, case.rank) => {}
                None => agreed = Some((case.rank, counted)),
                Some((rank, other)) => {
                    tally.judge(AGREE);
                    if *other != counted {
                        let found = format!("counts {counted:?}, rank {rank} counts {other:?}");
                        return Err(case.broken(AGREE, found));
                    }
                }
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
            let due = self.suspects.due_after(passes.max(self.suspects.at(case.called_us)));
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
        if !faults.is_empty() || !leaves.is_empty() || *damage_percent > 0 {
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

    /// When it was decided how a call ends, as far as that is known.
    fn decided(&self, case: &Case, ended: &Ended) -> Timestamp {
        let id = ReductionId::new(&case.planned.name, case.planned.sequence);
        let refused = self.world.facts().refused.get(&(id, case.rank));
        refused.map_or(ended.at, |at| ended.at.min(*at))
    }

    /// Judges how a call ended; tells whose contributions count, if it ended well.
    fn judge(&self, case: &Case, ended: &Ended, tally: &mut Tally) -> Result<Option<Path>, Violation> {
        let at = self.decided(case, ended);
        let (failed, closed) = (self.suspects.failed_by(at), self.suspects.closed_by(at));
        let gone = join(&failed, &closed);
        let ever_failed = self.world.facts().ever_failed_by(at);
        let hit = case.spec.group.iter().filter(|rank| ever_failed.contains(*rank)).count();
        let facts = self.world.facts();
        let windowless = |rank: Rank| self.schedule.windowless.contains(&rank.0);
        let hosts = case.planned.calls.iter().map(|call| self.schedule.hosts[call.rank as usize]);
        let far_apart = hosts.collect::<BTreeSet<_>>().len() > 1;
        let is_well = matches!(ended.end, End::Finished(_) | End::Received(_));
        // Where ranks come back, results are copied over contributions.
        let copies_beside = self.schedule.returns.is_none();
        // A piece that one rank alone has, or is to have, goes with its owner.
        let pattern = case.spec.kind.pattern();
        let is_for_one = pattern.is_some_and(|it| it.source().is_some() || it.cut().is_some());
        let goes_on =
            case.spec.allow_missing && copies_beside && !is_for_one && (far_apart || self.keeps_bodies(case));
        tally.judge_if(MISSING, goes_on && hit > 0);
        tally.judge_if(SAFE, case.spec.protection == Protection::CommitFirst && hit == 1);
        tally.judge_if(REASON, !is_well);
        let reason = |holds: bool| match holds {
            true => Ok(None),
            false => Err(case.broken(REASON, format!("{:?}", ended.end))),
        };
        let candidates = case.spec.delivery.candidates();
        let is_there = |rank: &Rank| !gone.contains(*rank);
        let somebody_receives = candidates.is_empty() || candidates.iter().any(is_there);
        let reaches = Reaches::new(self.schedule, &gone);
        reaches.count(tally);
        let held = self.held_by_agents(case, at).difference(&reaches.spoilt);
        tally.judge_if(OUTLIVES, far_apart && !held.is_empty());
        let is_held = |ranks: &Path| !ranks.is_disjoint(&held);
        match &ended.end {
            End::Finished(report) | End::Received(report) if is_held(&report.missing) => {
                Err(case.broken(OUTLIVES, format!("{report:?}")))
            }
            End::Refused(Refusal::ContributionLost { ranks }) if is_held(ranks) => {
                Err(case.broken(OUTLIVES, format!("{:?}", ended.end)))
            }
            End::Refused(Refusal::ProcessFailed { ranks }) if somebody_receives && is_held(ranks) => {
                Err(case.broken(OUTLIVES, format!("{:?}", ended.end)))
            }
            End::Refused(refusal) if reaches.excuses(case.planned, refusal) => Ok(None),
            End::Refused(Refusal::FoldFailed { executor, .. }) if windowless(*executor) => Ok(None),
            // The only one who was to have it has no room for it.
            End::Refused(Refusal::ResultLost { ranks }) if ranks.iter().all(windowless) => Ok(None),
            End::Refused(refusal) if let Some(rule) = reaches.forbids(case.planned, refusal) => {
                Err(case.broken(rule, format!("{refusal:?}")))
            }
            End::Refused(
                Refusal::ContributionLost { .. }
                | Refusal::ResultLost { .. }
                | Refusal::ProcessFailed { .. }
                | Refusal::RanksLeft { .. },
            ) if goes_on && somebody_receives && case.spec.group.iter().any(|rank| is_there(&rank)) => {
                Err(case.broken(MISSING, format!("{:?}", ended.end)))
            }
            End::Finished(report) => self.judge_report(case, ended, report, tally).map(Some),
            End::Received(report) => self.judge_report(case, ended, report, tally).map(Some),
            End::Refused(Refusal::ProcessFailed { ranks }) => reason(ranks.is_subset(&gone)),
            End::Refused(Refusal::ContributionLost { ranks }) => {
                // Keepers belong to the group.
                let name = ReductionId::new(&case.planned.name, 0).name;
                let id = ReductionId::new(&case.planned.name, case.planned.sequence);
                let unprotected = |rank: Rank| {
                    // A rank that gives the master up closes its windows.
                    let has_left = facts.deserted.contains_key(&rank) && !facts.was_kept(rank, id);
                    has_left || facts.unprotected.contains(&(rank, name))
                };
                let was_copied = |rank: Rank| self.world.was_copied(id, rank, &case.spec);
                let counted = ranks.iter().all(|rank| was_copied(rank) && !unprotected(rank));
                let safe = case.spec.protection == Protection::CommitFirst && counted;
                let spoils = |fault: &Fault| matches!(fault.what, Trouble::SpoilCopies(_));
                let Schedule { damage_percent, faults, .. } = self.schedule;
                let is_sound = *damage_percent == 0 && !faults.iter().any(spoils);
                if safe && hit == 1 && is_sound {
                    return Err(case.broken(SAFE, format!("{:?}", ended.end)));
                }
                reason(ranks.is_subset(&failed))
            }
            End::Refused(Refusal::ResultLost { ranks }) => {
                // A rank has the result where its contribution has lain: any contribution may be lost with
                // it.
                reason(ranks.is_subset(&case.spec.group) && hit > 0)
            }
            End::Refused(Refusal::RanksLeft { ranks }) => {
                // In the end all leave, also those who were awaited. Nobody waits for those who have called
                // before.
                let has_called =
                    |rank: Rank| !failed.contains(rank) && self.called_before_it_left(case, rank);
                reason(ranks.is_subset(&closed) && !ranks.iter().all(has_called))
            }
            End::Refused(Refusal::DeadlineExceeded { .. }) => reason(case.spec.deadline.is_some()),
            End::Refused(Refusal::Mismatch { .. }) => reason(case.planned.disagrees.is_some()),
            // Others heard the reason.
            End::Refused(Refusal::Over) => reason(
                self.schedule.pacing.refusals_max.is_some()
                    && (!self.schedule.windowless.is_empty()
                        || reaches.fail
                        || case.spec.deadline.is_some()
                        || case.planned.disagrees.is_some()
                        || !case.planned.absent.is_empty()
                        || !case.spec.group.is_disjoint(&gone)),
            ),
            End::Refused(_) => reason(false),
            End::ResultLost(_) => reason(windowless(case.rank)),
            End::Fenced => {
                let is_fenced = |(process, (since, evidence)): (&ProcessId, &(Timestamp, Evidence))| {
                    process.rank == case.rank && *since <= ended.at && !evidence.leaves_memory()
                };
                reason(facts.failures.iter().any(is_fenced))
            }
            End::MasterLost => {
                let mut deserters = facts.deserters.iter();
                let is_it =
                    |(process, at): (&ProcessId, &Timestamp)| process.rank == case.rank && *at <= ended.at;
                reason(deserters.any(is_it))
            }
            End::Closed => {
                let mut leaves = self.schedule.leaves.iter();
                reason(leaves.any(|leave| leave.rank == case.rank.0 && leave.at_us <= case.called_us))
            }
        }
    }

    /// Ranks of the group that had died by `at`, whose contributions the master had taken in, and whose agents
    /// hold them since: also where a result was copied over them, if all that it was made of is there.
    fn held_by_agents(&self, case: &Case, at: Timestamp) -> Path {
        let facts = self.world.facts();
        let id = ReductionId::new(&case.planned.name, case.planned.sequence);
        let Schedule { private, full, .. } = self.schedule;
        // What a later process brings along stands in for what the earlier one has left.
        let has_called_once = |rank: Rank| self.world.processes_that_called(rank, id) < 2;
        let is_left = |rank: Rank| {
            let host = self.world.home(rank);
            let is_gone = |host| facts.hosts_ended.contains_key(&host) || facts.hosts_lost.contains_key(&host);
            let lives = !self.world.homes(rank).any(is_gone);
            lives && facts.is_held(host, rank) && facts.have_all_left_memory(rank) && has_called_once(rank)
        };
        let is_whole = |rank: Rank| {
            let has_died = facts.failed.contains_key(&rank) || facts.ended.contains_key(&rank);
            let goes = private.contains(&rank.0) || full.contains(&rank.0) || !is_left(rank);
            if has_died { !goes } else { has_called_once(rank) }
        };
        let all_there = case.spec.group.iter().all(is_whole);
        let failed = self.suspects.failed_by(at);
        let is_held = |rank: &Rank| {
            let is_overwritten = facts.overwrites.contains(&(*rank, id));
            is_left(*rank)
                && !private.contains(&rank.0)
                && facts.heard(*rank, id).is_some()
                && (!is_overwritten || all_there)
        };
        case.spec.group.intersection(&failed).iter().filter(is_held).collect()
    }

    /// Whether results leave contributions on one host as they are, or where these lie outlives all processes
    /// there: of one that was silent nothing is read, and one that gives the master up closes its windows.
    fn keeps_bodies(&self, case: &Case) -> bool {
        let Schedule { private, full, .. } = self.schedule;
        let facts = self.world.facts();
        let outlives = |rank: Rank| {
            let is_read = !facts.failed.contains_key(&rank) || facts.has_left_memory(rank);
            let is_lost = self.world.homes(rank).any(|host| facts.hosts_lost.contains_key(&host));
            let is_shared = !private.contains(&rank.0) && !full.contains(&rank.0);
            is_shared && is_read && !is_lost && !facts.deserted.contains_key(&rank)
        };
        case.spec.kind.array_bytes().is_none() || case.spec.group.iter().all(outlives)
    }

    fn called_before_it_left(&self, case: &Case, rank: Rank) -> bool {
        let mut leaves = self.schedule.leaves.iter().filter(|leave| leave.rank == rank.0);
        let leave = leaves.next().map_or(u64::MAX, |leave| leave.at_us);
        case.planned.calls.iter().any(|call| call.rank == rank.0 && call.at_us < leave)
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
        let may_miss = join(&may_miss, &Reaches::new(self.schedule, &may_miss).spoilt);
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
