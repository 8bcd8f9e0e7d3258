//! Whether a contribution may take part.

use alloc::string::ToString;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId,
    message::Contribution,
    report::Refusal,
    spec::{Aspect, Delivery},
};

use super::Master;
use crate::{
    desk::Desk,
    reduction::{Called, Reductions},
};

impl Master {
    /// Whether a contribution may take part. If not, its sender is told why.
    pub(super) fn admit(&mut self, sender: ProcessId, contribution: &Contribution) -> bool {
        let id = contribution.reduction;
        let told = self.refused_before(id, sender.rank, &contribution.spec.group);
        let is_news = told.is_none() && !self.reductions.contains_key(&id);
        let refusal = told.or_else(|| self.application(sender, contribution).unacceptable());
        // Ranks that have called hear of a disagreement, too.
        let disagrees = || self.application(sender, contribution).disagreement().is_some();
        if let Some(refusal) = refusal.filter(|it| it.absent().is_none() || !disagrees()) {
            if refusal.absent().is_some() && is_news {
                // Ranks that call later hear the same refusal, even if more ranks are absent by then.
                self.remember_refusal(id, &refusal, &contribution.spec.group, |rank| rank == sender.rank);
            }
            self.tell_refused(id, Path::single(sender.rank), refusal);
            return false;
        }
        if self.reductions.contains_key(&id.in_teams()) {
            // They would wait for this rank.
            self.dissolve(id.in_teams(), &contribution.spec.group);
        }
        if let Some((skipped, refusal)) = self.application(sender, contribution).skipped() {
            self.refuse(skipped, refusal);
        }
        let Some(reduction) = self.reductions.get(&id) else { return true };
        if reduction.arrived().contains(sender.rank) {
            self.desk.outbox.stale(sender, "second contribution to one reduction");
            return false;
        }
        let Contribution { name, spec, .. } = contribution;
        if let Some(refusal) = reduction.disagreement(id, sender.rank, Called { name, spec }) {
            self.refuse_also(id, refusal.clone(), (sender.rank, &spec.group));
            self.tell_refused(id, Path::single(sender.rank), refusal);
            return false;
        }
        true
    }

    /// The refusal that `caller`, which believes in `group`, hears if a reduction has been refused.
    fn refused_before(&mut self, id: ReductionId, caller: Rank, group: &Path) -> Option<Refusal> {
        let Self { refusals, desk, .. } = self;
        if self.reductions.contains_key(&id) {
            refusals.pass(id, caller);
            return None;
        }
        refusals.tell(id, caller, group, |rank| desk.members.may_call(*rank))
    }

    pub(super) fn application<'a>(
        &'a self,
        sender: ProcessId,
        contribution: &'a Contribution,
    ) -> Application<'a> {
        let Self { desk, reductions, .. } = self;
        Application { desk, reductions, caller: sender.rank, contribution }
    }
}

/// A contribution that is to take part, and the state with which it is compared.
pub(super) struct Application<'a> {
    pub(super) desk: &'a Desk,
    pub(super) reductions: &'a Reductions,
    pub(super) caller: Rank,
    pub(super) contribution: &'a Contribution,
}

impl Application<'_> {
    /// On what the caller disagrees with earlier callers of the same reduction, if that is open.
    pub(super) fn disagreement(&self) -> Option<Refusal> {
        let Contribution { reduction: id, name, spec, .. } = self.contribution;
        self.reductions.get(id)?.disagreement(*id, self.caller, Called { name, spec })
    }

    /// Why the caller may not contribute, whatever its peers say.
    pub(super) fn unacceptable(&self) -> Option<Refusal> {
        let Self { contribution, caller: rank, .. } = *self;
        let spec = &contribution.spec;
        let group = || spec.group.clone();
        let limit = self.desk.policy.limits.body_bytes_max;
        let bytes = spec.kind.array_bytes().map_or(contribution.data.len(), |(bytes, _)| bytes);
        let size = self.desk.members.size();
        if spec.group.is_empty() {
            Some(Refusal::EmptyGroup)
        } else if spec.group.last().is_some_and(|last| last.0 >= size) {
            Some(Refusal::UnknownRanks { group: group(), size })
        } else if !spec.group.contains(rank) {
            Some(Refusal::CallerOutsideGroup { rank, group: group() })
        } else if matches!(&spec.delivery, Delivery::FirstOf(roots) if roots.is_empty()) {
            Some(Refusal::NoRoots)
        } else if let Some(root) = spec.named_roots().find(|root| !spec.group.contains(*root)) {
            Some(Refusal::RootOutsideGroup { root, group: group() })
        } else if spec.kind.array_bytes().is_some() && bytes == 0 {
            Some(Refusal::EmptyBody { rank })
        } else if bytes > limit {
            Some(Refusal::BodyTooLarge { rank, bytes, limit })
        } else if spec.allow_missing {
            None
        } else {
            let arrived = self.reductions.get(&contribution.reduction).map(|reduction| reduction.arrived());
            self.desk.members.absent(&spec.group, arrived.unwrap_or(&Path::empty()))
        }
    }

    /// The oldest reduction of the same name, if the caller belongs to its group and has just passed it by,
    /// and the refusal in which that ends: the caller counts its calls of that name differently from the
    /// others, so their wait would never end.
    pub(super) fn skipped(&self) -> Option<(ReductionId, Refusal)> {
        let Self { contribution, caller: rank, .. } = *self;
        let id = contribution.reduction;
        let oldest = ReductionId { sequence: 0, ..id };
        let (&skipped, reduction) = self.reductions.range(oldest..id).next()?;
        // A missing contribution of a living rank has come, and could not be read.
        let has_called = reduction.arrived().contains(rank) || reduction.missing().contains(rank);
        if has_called || !reduction.spec().group.contains(rank) {
            return None;
        }
        let refusal = Refusal::Mismatch {
            name: reduction.name().to_string(),
            sequence: skipped.sequence,
            aspect: Aspect::Group,
            first: reduction.first(),
            first_says: reduction.spec().group.to_string(),
            other: rank,
            other_says: format!("{} (as its call {})", contribution.spec.group, id.sequence),
        };
        Some((skipped, refusal))
    }

    /// Why a reduction that begins with it would never complete: a rank of its group has called that name
    /// more often already.
    pub(super) fn passed_by(&self) -> Option<Refusal> {
        let Self { contribution, caller, .. } = *self;
        let id = contribution.reduction;
        if self.reductions.contains_key(&id) {
            return None;
        }
        let group = &contribution.spec.group;
        let latest = ReductionId { sequence: u64::MAX, ..id }.called();
        let mut later = self.reductions.range(id..=latest);
        let (later, rank, reduction) = later.find_map(|(later, reduction)| {
            let lives = |rank: &Rank| self.desk.is_alive(*rank);
            let callers = reduction.arrived().iter().chain(reduction.missing().iter().filter(lives));
            let rank = callers.into_iter().find(|rank| group.contains(*rank))?;
            Some((later, rank, reduction))
        })?;
        Some(Refusal::Mismatch {
            name: contribution.name.clone(),
            sequence: id.sequence,
            aspect: Aspect::Group,
            first: caller,
            first_says: group.to_string(),
            other: rank,
            other_says: format!("{} (as its call {})", reduction.spec().group, later.sequence),
        })
    }
}
