//! Whether a contribution may take part, and in what.

use alloc::string::ToString;
use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId,
    message::Contribution,
    report::Refusal,
    spec::{Aspect, Delivery},
};

use super::Master;
use crate::{
    reduction::{Called, Reduction},
    timers::Timer,
};

impl Master {
    pub(super) fn contribute(&mut self, sender: ProcessId, contribution: Contribution) {
        let id = contribution.reduction;
        if id.is_in_teams() {
            return self.contribute_in_teams(sender, contribution);
        }
        let told = self.refused_before(id, sender.rank, &contribution.spec.group);
        let is_news = told.is_none() && !self.reductions.contains_key(&id);
        let refusal = told.or_else(|| self.unacceptable(sender, &contribution));
        // Those who have called hear of a disagreement, too.
        if let Some(refusal) =
            refusal.filter(|it| it.absent().is_none() || !self.disagrees(sender, &contribution))
        {
            if refusal.absent().is_some() && is_news {
                // Who else is absent by then is no other reason for those who call later.
                self.remember_refusal(id, &refusal, &contribution.spec.group, |rank| rank == sender.rank);
            }
            self.tell_refused(id, Path::single(sender.rank), refusal);
            return;
        }
        if self.reductions.contains_key(&id.in_teams()) {
            // They would wait for this rank.
            self.dissolve(id.in_teams(), &contribution.spec.group);
        }
        self.expose_skipped(sender.rank, &contribution);
        if let Some(reduction) = self.reductions.get(&id) {
            if reduction.arrived().contains(sender.rank) {
                self.desk.outbox.stale(sender, "second contribution to one reduction");
                return;
            }
            let Contribution { name, spec, .. } = &contribution;
            if let Some(refusal) = reduction.disagreement(id, sender.rank, Called { name, spec }) {
                self.refuse_also(id, refusal.clone(), (sender.rank, &spec.group));
                self.tell_refused(id, Path::single(sender.rank), refusal);
                return;
            }
        }
        let passed_by = self.passed_by(sender.rank, &contribution);
        let reduction = self.reductions.entry(id).or_insert_with(|| {
            if let Some(deadline) = contribution.spec.deadline {
                self.desk.timers.set(self.desk.now + deadline, Timer::Deadline(id));
            }
            let share_memory = self.desk.members.share_memory(&contribution.spec.group);
            let mut reduction =
                Reduction::new(self.desk.now, sender.rank, &contribution, &self.desk.policy, share_memory);
            if self.scheduler.folds_in_pairs(&contribution.spec.kind, &self.desk.policy) {
                reduction.fold_in_pairs();
            }
            if let Some(end) = reduction.gathers_until(&self.desk.policy) {
                self.desk.timers.set(end, Timer::Gathered(id));
            }
            reduction
        });
        reduction.arrive(self.desk.now, sender, contribution.data, contribution.spec.trace);
        if let Some(refusal) = passed_by {
            self.refuse(id, refusal);
            return;
        }
        let at_once = reduction.wants_copies() && reduction.copies_at_once();
        if reduction.wants_copies() && !at_once {
            let wait = reduction.copy_wait(sender.rank, self.desk.policy.limits.ping_interval);
            self.look_for_copies(self.desk.now + wait, id);
        }
        let reduction = &self.reductions[&id];
        match self.desk.members.absent(reduction.group(), reduction.arrived()) {
            Some(refusal) => self.do_without(id, refusal),
            None => self.proceed(id),
        }
        if at_once {
            self.copies(id, |reduction, desk| reduction.order_copies_for(id, sender.rank, desk));
        }
    }

    /// What `caller`, who believes in `group`, hears if a reduction has been refused.
    fn refused_before(&mut self, id: ReductionId, caller: Rank, group: &Path) -> Option<Refusal> {
        let Self { refusals, desk, .. } = self;
        if self.reductions.contains_key(&id) {
            refusals.pass(id, caller);
            return None;
        }
        refusals.tell(id, caller, group, |rank| desk.members.may_call(*rank))
    }

    /// Whether `sender` calls something else than those who have called a reduction that is open.
    fn disagrees(&self, sender: ProcessId, contribution: &Contribution) -> bool {
        let Contribution { reduction: id, name, spec, .. } = contribution;
        let open = self.reductions.get(id);
        open.is_some_and(|open| open.disagreement(*id, sender.rank, Called { name, spec }).is_some())
    }

    /// Why `sender` may not contribute, whatever the others say.
    fn unacceptable(&self, sender: ProcessId, contribution: &Contribution) -> Option<Refusal> {
        let spec = &contribution.spec;
        let rank = sender.rank;
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
        } else if let Some(root) =
            spec.delivery.candidates().iter().copied().find(|root| !spec.group.contains(*root))
        {
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

    /// Ends the oldest reduction of the same name if `rank` belongs to its group and has just passed it by: it
    /// counts its calls of that name differently from the others, so nobody else's wait would ever end.
    fn expose_skipped(&mut self, rank: Rank, contribution: &Contribution) {
        let id = contribution.reduction;
        let oldest = ReductionId { sequence: 0, ..id };
        let Some((&skipped, reduction)) = self.reductions.range(oldest..id).next() else {
            return;
        };
        // What is missing of a rank that lives has come, and could not be read.
        let has_called = reduction.arrived().contains(rank) || reduction.missing().contains(rank);
        if has_called || !reduction.spec().group.contains(rank) {
            return;
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
        self.refuse(skipped, refusal);
    }

    /// Why a reduction that begins with `contribution` would never complete: a rank of its group has called that name
    /// more often already.
    fn passed_by(&self, caller: Rank, contribution: &Contribution) -> Option<Refusal> {
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
