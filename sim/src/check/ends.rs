//! How a call may end: for a reason that the schedule gives, and not in an error that others could have
//! spared it.

use std::collections::BTreeSet;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, Timestamp, message::Evidence, report::Refusal, spec::Protection,
};
use everfold_worker::machine::End;

use super::{
    judge::{Case, Judgement},
    reach::Reaches,
    schedule::{Fault, Schedule, Trouble},
    suspects::join,
    tally::Tally,
};
use crate::{Ended, facts::Facts};

pub(super) const REASON: &str = "a future ends for a reason that the schedule gives";
pub(super) const SAFE: &str = "what was protected before it counted survives one death";
pub(super) const MISSING: &str = "whoever lets contributions be missing receives what those who live have";
pub(super) const OUTLIVES: &str =
    "what a rank has called outlives its process where an agent holds its memory";

/// What had gone wrong when it was decided how a call ends, and what was left.
pub(super) struct Circumstances<'a> {
    judgement: &'a Judgement<'a>,
    case: &'a Case<'a>,
    ended: &'a Ended,
    failed: Path,
    closed: Path,
    /// What could be read without those who have failed or left.
    reaches: Reaches<'a>,
    /// How many ranks of the group have failed, those that have come back among them.
    hit: usize,
    /// Whether those who call are on several hosts.
    is_far_apart: bool,
    /// Whether others go on where contributions are missing.
    goes_on: bool,
    somebody_receives: bool,
    /// Ranks whose contributions agents hold.
    held: Path,
}

impl<'a> Circumstances<'a> {
    pub fn new(judgement: &'a Judgement<'a>, case: &'a Case<'a>, ended: &'a Ended) -> Self {
        let Judgement { schedule, world, suspects } = judgement;
        let refused = world.facts().refused.get(&(case.id(), case.rank));
        let at = refused.map_or(ended.at, |at| ended.at.min(*at));
        let (failed, closed) = (suspects.failed_by(at), suspects.closed_by(at));
        let reaches = Reaches::new(schedule, join(&failed, &closed));
        let ever_failed = world.facts().ever_failed_by(at);
        let hit = case.spec.group.iter().filter(|rank| ever_failed.contains(*rank)).count();
        let hosts = case.planned.calls.iter().map(|call| schedule.hosts[call.rank as usize]);
        let is_far_apart = hosts.collect::<BTreeSet<_>>().len() > 1;
        // A piece that one rank alone has, or is to have, goes with its owner.
        let pattern = case.spec.kind.pattern();
        let is_for_one = pattern.is_some_and(|it| it.source().is_some() || it.cut().is_some());
        // Where ranks come back, results are copied over contributions.
        let copies_beside = schedule.returns.is_none();
        let keeps_bodies = is_far_apart || keeps_bodies(judgement, case);
        let goes_on = case.spec.allow_missing && copies_beside && !is_for_one && keeps_bodies;
        let candidates = case.spec.delivery.candidates();
        let is_there = |rank: &Rank| !reaches.gone.contains(*rank);
        let somebody_receives = candidates.is_empty() || candidates.iter().any(is_there);
        let held = held_by_agents(judgement, case, &failed).difference(&reaches.spoilt);
        Self {
            judgement,
            case,
            ended,
            failed,
            closed,
            reaches,
            hit,
            is_far_apart,
            goes_on,
            somebody_receives,
            held,
        }
    }

    /// Counts which rules judge this end.
    pub fn count(&self, tally: &mut Tally) {
        tally.judge_if(MISSING, self.goes_on && self.hit > 0);
        tally.judge_if(SAFE, self.case.spec.protection == Protection::CommitFirst && self.hit == 1);
        tally.judge_if(REASON, !matches!(self.ended.end, End::Finished(_) | End::Received(_)));
        tally.judge_if(OUTLIVES, self.is_far_apart && !self.held.is_empty());
        self.reaches.count(tally);
    }

    /// The rule that this end breaks.
    pub fn breaks(&self) -> Option<&'static str> {
        match &self.ended.end {
            End::Finished(report) | End::Received(report) => {
                self.is_held(&report.missing).then_some(OUTLIVES)
            }
            End::Refused(refusal) if self.loses_what_is_held(refusal) => Some(OUTLIVES),
            End::Refused(refusal) if self.excuses(refusal) => None,
            End::Refused(refusal) => self
                .reaches
                .forbids(self.case.planned, refusal)
                .or_else(|| self.gives_up_others(refusal).then_some(MISSING))
                .or_else(|| self.loses_what_was_protected(refusal).then_some(SAFE))
                .or_else(|| (!self.gives_reason_for(refusal)).then_some(REASON)),
            end => (!self.is_on_its_own(end)).then_some(REASON),
        }
    }

    fn is_held(&self, ranks: &Path) -> bool {
        !ranks.is_disjoint(&self.held)
    }

    fn loses_what_is_held(&self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::ContributionLost { ranks } => self.is_held(ranks),
            Refusal::ProcessFailed { ranks } => self.somebody_receives && self.is_held(ranks),
            _ => false,
        }
    }

    /// Whether something could not be reached, or there was no room for it.
    fn excuses(&self, refusal: &Refusal) -> bool {
        let is_without_room = match refusal {
            Refusal::FoldFailed { executor, .. } => self.is_windowless(*executor),
            // The only one who was to have it has no room for it.
            Refusal::ResultLost { ranks } => ranks.iter().all(|rank| self.is_windowless(rank)),
            _ => false,
        };
        is_without_room || self.reaches.excuses(self.case.planned, refusal)
    }

    fn is_windowless(&self, rank: Rank) -> bool {
        self.judgement.schedule.windowless.contains(&rank.0)
    }

    /// Whether ranks were to receive the contributions of those that live. One whose bytes stay damaged may
    /// have been given up before.
    fn gives_up_others(&self, refusal: &Refusal) -> bool {
        let misses = matches!(
            refusal,
            Refusal::ContributionLost { .. }
                | Refusal::ResultLost { .. }
                | Refusal::ProcessFailed { .. }
                | Refusal::RanksLeft { .. }
        );
        let contributes_nothing = join(&self.reaches.gone, &self.reaches.spoilt);
        let somebody_contributes = !self.case.spec.group.is_subset(&contributes_nothing);
        misses && self.goes_on && self.somebody_receives && somebody_contributes
    }

    /// Whether a contribution is lost by one death that had a copy before it counted.
    fn loses_what_was_protected(&self, refusal: &Refusal) -> bool {
        let Refusal::ContributionLost { ranks } = refusal else { return false };
        let spec = &self.case.spec;
        let id = self.case.id();
        let name = ReductionId::new(&self.case.planned.name, 0).name;
        let unprotected = |rank: Rank| {
            // A rank that gives the master up closes its windows.
            let has_left = self.facts().deserted.contains_key(&rank) && !self.facts().was_kept(rank, id);
            has_left || self.facts().unprotected.contains(&(rank, name))
        };
        let was_copied = |rank: Rank| self.judgement.world.was_copied(id, rank, spec);
        // Keepers belong to the group.
        let counted = ranks.iter().all(|rank| was_copied(rank) && !unprotected(rank));
        // A task may read a copy and other bytes of its keeper: if these stay damaged, both are given up.
        let world = self.judgement.world;
        let keeps_one = |keeper: Rank| ranks.iter().any(|owner| world.was_copied_to(keeper, id, owner, spec));
        let spoils = |fault: &Fault| match fault.what {
            Trouble::SpoilCopies(_) | Trouble::Damage { copies: true, .. } => true,
            Trouble::Damage { rank, .. } => keeps_one(Rank(rank)),
            _ => false,
        };
        let Schedule { damage_percent, faults, .. } = self.judgement.schedule;
        let is_sound = *damage_percent == 0 && !faults.iter().any(spoils);
        spec.protection == Protection::CommitFirst && counted && self.hit == 1 && is_sound
    }

    /// Whether the schedule has a reason for a refusal.
    fn gives_reason_for(&self, refusal: &Refusal) -> bool {
        let (schedule, planned, spec) = (self.judgement.schedule, self.case.planned, &self.case.spec);
        match refusal {
            Refusal::ProcessFailed { ranks } => ranks.is_subset(&self.reaches.gone),
            Refusal::ContributionLost { ranks } => ranks.is_subset(&self.failed),
            // A rank has the result where its contribution has lain: any contribution may be lost with it.
            // Not where it outlives all who have failed.
            Refusal::ResultLost { ranks } => {
                ranks.is_subset(&spec.group) && self.hit > 0 && !self.is_result_left()
            }
            // In the end all leave, also those who were awaited. Nobody waits for those who have called
            // before.
            Refusal::RanksLeft { ranks } => {
                let has_called = |rank: Rank| !self.failed.contains(rank) && self.called_before_it_left(rank);
                ranks.is_subset(&self.closed) && !ranks.iter().all(has_called)
            }
            Refusal::DeadlineExceeded { .. } => spec.deadline.is_some(),
            Refusal::Mismatch { .. } => planned.disagrees.is_some(),
            // Others heard the reason.
            Refusal::Over => {
                schedule.pacing.refusals_max.is_some()
                    && (!schedule.windowless.is_empty()
                        || self.reaches.fail
                        || spec.deadline.is_some()
                        || planned.disagrees.is_some()
                        || !planned.absent.is_empty()
                        || !spec.group.is_disjoint(&self.reaches.gone))
            }
            _ => false,
        }
    }

    /// Whether agents hold all that the ranks of the group have left which have failed, the pieces of the
    /// result among it.
    fn is_result_left(&self) -> bool {
        let Judgement { schedule, world, .. } = self.judgement;
        let Schedule { private, full, windowless, damage_percent, returns, .. } = schedule;
        let facts = self.facts();
        let is_left = |rank: Rank| {
            let is_gone =
                |host| facts.hosts_ended.contains_key(&host) || facts.hosts_lost.contains_key(&host);
            let lives = !world.homes(rank).any(is_gone);
            let goes = [private, full, windowless].iter().any(|ranks| ranks.contains(&rank.0));
            lives && !goes && facts.is_held(world.home(rank), rank) && facts.have_all_left_memory(rank)
        };
        let has_died = |rank: &Rank| facts.failed.contains_key(rank) || facts.ended.contains_key(rank);
        returns.is_none()
            && *damage_percent == 0
            && !facts.deserters.keys().any(|process| self.case.spec.group.contains(process.rank))
            && self.case.spec.group.iter().filter(has_died).all(is_left)
    }

    /// Whether something happened to the rank itself that ends its calls.
    fn is_on_its_own(&self, end: &End) -> bool {
        let rank = self.case.rank;
        match end {
            End::ResultLost(_) => self.is_windowless(rank),
            End::Fenced => {
                let is_fenced = |(process, (since, evidence)): (&ProcessId, &(Timestamp, Evidence))| {
                    process.rank == rank && *since <= self.ended.at && !evidence.leaves_memory()
                };
                self.facts().failures.iter().any(is_fenced)
            }
            End::MasterLost => {
                let is_it =
                    |(process, at): (&ProcessId, &Timestamp)| process.rank == rank && *at <= self.ended.at;
                self.facts().deserters.iter().any(is_it)
            }
            End::Closed => {
                let mut leaves = self.judgement.schedule.leaves.iter();
                leaves.any(|leave| leave.rank == rank.0 && leave.at_us <= self.case.called_us)
            }
            End::Finished(_) | End::Received(_) | End::Refused(_) => true,
        }
    }

    fn called_before_it_left(&self, rank: Rank) -> bool {
        let mut leaves = self.judgement.schedule.leaves.iter().filter(|leave| leave.rank == rank.0);
        let leave = leaves.next().map_or(u64::MAX, |leave| leave.at_us);
        self.case.planned.calls.iter().any(|call| call.rank == rank.0 && call.at_us < leave)
    }

    fn facts(&self) -> &Facts {
        self.judgement.world.facts()
    }
}

/// Of ranks of the group that have `failed`, those whose contributions the master had taken in, and whose
/// agents hold them since: also where a result was copied over them, if all that it was made of is there.
fn held_by_agents(judgement: &Judgement, case: &Case, failed: &Path) -> Path {
    let Judgement { schedule, world, .. } = judgement;
    let Schedule { private, full, .. } = schedule;
    let facts = world.facts();
    let id = case.id();
    // What a later process brings along stands in for what the earlier one has left.
    let has_called_once = |rank: Rank| world.processes_that_called(rank, id) < 2;
    let is_left = |rank: Rank| {
        let is_gone = |host| facts.hosts_ended.contains_key(&host) || facts.hosts_lost.contains_key(&host);
        let lives = !world.homes(rank).any(is_gone);
        let is_held = facts.is_held(world.home(rank), rank) && facts.have_all_left_memory(rank);
        lives && is_held && has_called_once(rank)
    };
    let is_whole = |rank: Rank| {
        let has_died = facts.failed.contains_key(&rank) || facts.ended.contains_key(&rank);
        let goes = private.contains(&rank.0) || full.contains(&rank.0) || !is_left(rank);
        if has_died { !goes } else { has_called_once(rank) }
    };
    let all_there = case.spec.group.iter().all(is_whole);
    let is_held = |rank: &Rank| {
        let is_overwritten = facts.overwrites.contains(&(*rank, id));
        is_left(*rank)
            && !private.contains(&rank.0)
            && facts.heard(*rank, id).is_some()
            && (!is_overwritten || all_there)
    };
    case.spec.group.intersection(failed).iter().filter(is_held).collect()
}

/// Whether results leave contributions on one host as they are, or where these lie outlives all processes
/// there: of one that was silent nothing is read, and one that gives the master up closes its windows.
fn keeps_bodies(judgement: &Judgement, case: &Case) -> bool {
    let Schedule { private, full, .. } = judgement.schedule;
    let facts = judgement.world.facts();
    let outlives = |rank: Rank| {
        let is_read = !facts.failed.contains_key(&rank) || facts.has_left_memory(rank);
        let is_lost = judgement.world.homes(rank).any(|host| facts.hosts_lost.contains_key(&host));
        let is_shared = !private.contains(&rank.0) && !full.contains(&rank.0);
        is_shared && is_read && !is_lost && !facts.deserted.contains_key(&rank)
    };
    case.spec.kind.array_bytes().is_none() || case.spec.group.iter().all(outlives)
}
