//! What has to hold in the end.

use std::collections::BTreeSet;

use everfold_master::Notice;
use everfold_protocol::{
    Path, Rank,
    message::News,
    report::{Refusal, Report},
    spec::{Delivery, Order, Protection, ReductionSpec},
};
use everfold_worker::machine::End;

use super::{
    execute::Violation,
    protection,
    schedule::{Planned, Schedule},
    suspects::{Suspects, join},
    tally::Tally,
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
const LENT: &str = "a result that somebody has survives one death";
const MISSING: &str =
    "between hosts, whoever lets contributions be missing receives what those who live have";
const LEAVE: &str = "everyone can leave";
const OPEN: &str = "nothing is left open";

/// Judges what comes of one schedule.
pub(crate) struct Judgement<'a> {
    pub schedule: &'a Schedule,
    pub suspects: &'a Suspects,
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

impl Judgement<'_> {
    /// Reductions that all ranks call need nobody to leave in order to end; nor do those that somebody leaves before.
    pub fn complete_reductions_have_ended(&self, world: &World) -> Result<(), Violation> {
        let complete = |planned: &&Planned| planned.absent.is_empty();
        for planned in self.schedule.reductions.iter().filter(complete) {
            for case in cases(planned) {
                if self.end(world, &case).is_none() && !self.suspects.dead.contains(case.rank) {
                    return Err(case.broken(ENDS, self.what_is_open(world, planned)));
                }
            }
        }
        Ok(())
    }

    /// Everything else, once everyone who lives has left.
    pub fn verdict(&self, world: &World) -> Result<Tally, Violation> {
        let mut tally = Tally::of(self.schedule);
        for planned in &self.schedule.reductions {
            let mut agreed: Option<(Rank, Option<Path>)> = None;
            let mut received: Option<(Rank, &Vec<Vec<Rank>>)> = None;
            for case in cases(planned) {
                let ended = self.end(world, &case);
                tally.take(ended.map(|ended| &ended.end));
                let Some(ended) = ended else {
                    if self.suspects.dead.contains(case.rank) {
                        continue;
                    }
                    return Err(case.broken(ENDS, self.what_is_open(world, planned)));
                };
                let counted = self.judge(world, &case, ended)?;
                if self.suspects.all.contains(case.rank) || self.suspects.leaving.contains(case.rank) {
                    continue;
                }
                // What is lost on its way may be folded anew for those who do not have it yet.
                let undisturbed = case.spec.group.is_disjoint(&self.suspects.all);
                if let Some(value) = ended.value.as_ref().filter(|_| undisturbed) {
                    let (first, same) = *received.get_or_insert((case.rank, value));
                    if same != value {
                        let found =
                            format!("what it received is folded otherwise than what rank {first} did");
                        return Err(case.broken(SAME, found));
                    }
                }
                match &agreed {
                    // It was later than others when the result went with whoever held it.
                    _ if matches!(ended.end, End::Refused(Refusal::ResultLost { .. })) => {}
                    None => agreed = Some((case.rank, counted)),
                    Some((_, other)) if *other == counted => {}
                    Some((rank, other)) => {
                        let found = format!("counts {counted:?}, rank {rank} counts {other:?}");
                        return Err(case.broken(AGREE, found));
                    }
                }
            }
        }
        self.slow_folds_are_done_once(world)?;
        self.nothing_was_done_in_vain(world, &mut tally)?;
        self.all_is_closed(world)?;
        protection::judge(self.schedule, world, &mut tally)?;
        tally.take_board(world.board_counts());
        tally.take_teams(world.team_counts());
        Ok(tally)
    }

    /// Without faults nobody is slow: ranks take less for a task than the operations do.
    fn slow_folds_are_done_once(&self, world: &World) -> Result<(), Violation> {
        let Schedule { faults, leaves, damage_percent, .. } = self.schedule;
        if !faults.is_empty() || !leaves.is_empty() || *damage_percent > 0 {
            return Ok(());
        }
        for planned in self.schedule.reductions.iter().filter(|planned| planned.fold_us > 0) {
            let ended_well = |case: &Case| {
                let end = self.end(world, case).map(|ended| &ended.end);
                matches!(end, Some(End::Finished(report) | End::Received(report)) if report.missing.is_empty())
            };
            let folds = world.folds(&planned.name, planned.sequence);
            if let Some(case) = cases(planned).next().filter(ended_well)
                && folds as usize != case.spec.group.len() - 1
            {
                return Err(case.broken(ONCE, format!("{folds} folds of {}", case.spec.group)));
            }
        }
        Ok(())
    }

    pub(super) fn end<'w>(&self, world: &'w World, case: &Case) -> Option<&'w Ended> {
        world.ended(case.rank, &case.planned.name, case.planned.sequence)
    }

    /// Judges how a call ended; tells whose contributions count, if it ended well.
    fn judge(&self, world: &World, case: &Case, ended: &Ended) -> Result<Option<Path>, Violation> {
        let Suspects { all: suspects, leaving, .. } = self.suspects;
        let gone = join(suspects, leaving);
        let reason = |holds: bool| match holds {
            true => Ok(None),
            false => Err(case.broken(REASON, format!("{:?}", ended.end))),
        };
        let hosts = case.planned.calls.iter().map(|call| self.schedule.hosts[call.rank as usize]);
        let far_apart = hosts.collect::<BTreeSet<_>>().len() > 1;
        let candidates = case.spec.delivery.candidates();
        let is_there = |rank: &Rank| !gone.contains(*rank);
        let somebody_receives = candidates.is_empty() || candidates.iter().any(is_there);
        match &ended.end {
            End::Refused(Refusal::ContributionLost { .. } | Refusal::ResultLost { .. })
                if case.spec.allow_missing && far_apart && somebody_receives =>
            {
                Err(case.broken(MISSING, format!("{:?}", ended.end)))
            }
            End::Finished(report) => self.judge_report(case, ended, report, false).map(Some),
            End::Received(report) => self.judge_report(case, ended, report, true).map(Some),
            End::Refused(Refusal::ProcessFailed { ranks }) => reason(ranks.is_subset(&gone)),
            End::Refused(Refusal::ContributionLost { ranks }) => {
                // Keepers belong to the group.
                let hit = case.spec.group.iter().filter(|rank| suspects.contains(*rank)).count();
                let safe = case.spec.protection == Protection::CommitFirst && !self.suspects.copies_fail;
                let told = |notice: &Notice| matches!(notice, Notice::News(News::Unprotected { rank, name, .. }) if ranks.contains(*rank) && *name == case.planned.name);
                if safe && hit == 1 && !world.notices().iter().any(told) {
                    return Err(case.broken(SAFE, format!("{:?}", ended.end)));
                }
                reason(ranks.is_subset(suspects))
            }
            End::Refused(Refusal::ResultLost { ranks }) => {
                let hit = case.spec.group.iter().filter(|rank| suspects.contains(*rank)).count();
                if far_apart && hit == 1 {
                    return Err(case.broken(LENT, format!("{:?}", ended.end)));
                }
                // Whoever has the result has it where its contribution has lain: any contribution may be lost with it.
                reason(ranks.is_subset(&case.spec.group) && hit > 0)
            }
            End::Refused(Refusal::RanksLeft { ranks }) => {
                // In the end all leave, also those who were awaited. Nobody waits for those who have called before.
                let absent = case.planned.absent.iter().copied().map(Rank).collect();
                let has_called =
                    |rank: Rank| !suspects.contains(rank) && self.called_before_it_left(case, rank);
                reason(ranks.is_subset(&join(&gone, &absent)) && !ranks.iter().all(has_called))
            }
            End::Refused(Refusal::DeadlineExceeded { .. }) => reason(case.spec.deadline.is_some()),
            End::Refused(Refusal::Mismatch { .. }) => reason(case.planned.disagrees.is_some()),
            // Whatever it was, others heard it.
            End::Refused(Refusal::Over) => reason(
                self.schedule.pacing.refusals_max.is_some()
                    && (case.spec.deadline.is_some()
                        || case.planned.disagrees.is_some()
                        || !case.planned.absent.is_empty()
                        || !case.spec.group.is_disjoint(&gone)),
            ),
            End::Refused(_) => reason(false),
            End::ResultLost(_) => reason(false),
            End::Fenced => reason(suspects.contains(case.rank)),
            End::MasterLost => reason(suspects.contains(case.rank)),
            End::Closed => {
                let mut leaves = self.schedule.leaves.iter();
                reason(leaves.any(|leave| leave.rank == case.rank.0 && leave.at_us <= case.called_us))
            }
        }
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
        received: bool,
    ) -> Result<Path, Violation> {
        let spec = &case.spec;
        let suspects = &self.suspects.all;
        let receives = match &spec.delivery {
            Delivery::Root(root) => *root == case.rank,
            Delivery::FirstOf(candidates) => received && candidates.contains(&case.rank),
            Delivery::All => true,
        };
        if (received, ended.value.is_some()) != (receives, receives) {
            return Err(case.broken(RECEIVER, format!("{:?}", ended.end)));
        }
        let may_miss = join(suspects, &self.suspects.leaving);
        let may_miss = join(&may_miss, &case.planned.absent.iter().copied().map(Rank).collect());
        let honest = report.contributors == spec.group.difference(&report.missing)
            && (spec.allow_missing || report.missing.is_empty())
            && report.missing.is_subset(&may_miss)
            && report.survived.is_subset(suspects)
            && case.planned.disagrees.is_none_or(|rank| {
                !report.contributors.contains(Rank(rank)) || report.contributors.len() == 1
            });
        if !honest {
            return Err(case.broken(VALUE, format!("{report:?}")));
        }
        let expected = match spec.order {
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

    fn all_is_closed(&self, world: &World) -> Result<(), Violation> {
        let living = (0..self.schedule.ranks()).map(Rank).filter(|rank| !self.suspects.dead.contains(*rank));
        for rank in living.clone() {
            if !world.closed().contains(&rank) {
                return Err(Violation::new(LEAVE, format!("rank {rank} has not left")));
            }
            if let Some(id) = world.unreleased(rank).next() {
                return Err(Violation::new(OPEN, format!("rank {rank} still serves {id:?}")));
            }
        }
        if self.suspects.master_dies {
            return Ok(());
        }
        if !world.is_done() {
            return Err(Violation::new(LEAVE, "the master has not gone"));
        }
        if let Some(reduction) = world.tried() {
            return Err(Violation::new(OPEN, format!("a deputy has {:?}", reduction.name)));
        }
        match world.master().reductions().next() {
            Some((_, reduction)) => Err(Violation::new(OPEN, format!("the master has {:?}", reduction.name))),
            None => Ok(()),
        }
    }

    /// What the master knows of a reduction that did not end.
    fn what_is_open(&self, world: &World, planned: &Planned) -> String {
        let open = world.master().reductions().map(|(_, reduction)| reduction);
        match open.into_iter().find(|reduction| reduction.name == planned.name) {
            None => "it waits; the master knows of no such reduction".to_owned(),
            Some(reduction) => format!(
                "it waits; the master has {} of {}, {} segments unfinished, collecting {:?}",
                reduction.arrived, reduction.group, reduction.unfinished, reduction.collecting
            ),
        }
    }
}

pub(super) fn cases(planned: &Planned) -> impl Iterator<Item = Case<'_>> {
    planned.calls.iter().map(move |call| Case {
        planned,
        rank: Rank(call.rank),
        spec: planned.spec(Rank(call.rank)),
        called_us: call.at_us,
    })
}
