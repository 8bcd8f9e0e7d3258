//! What has to hold: how calls end, and when a contribution may be called lost.

use std::collections::BTreeSet;

use everfold_master as master;
use everfold_protocol::{
    Rank, ReductionId, SegmentId, SegmentIndex, Timestamp, message::News, report::Refusal,
};
use everfold_worker::machine::End;

use crate::{
    process::{Process, Share},
    world::World,
};

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// How.
    pub end: End,
    /// The [`evidence`](crate::evidence) in each segment, where this rank was to have the result.
    pub value: Option<Vec<Vec<Rank>>>,
    /// When.
    pub at: Timestamp,
}

impl World {
    /// How `rank`'s call ended, if it has.
    pub fn ended(&self, rank: Rank, name: &str, sequence: u64) -> Option<&Ended> {
        self.process(rank).shares.get(&ReductionId::new(name, sequence))?.ended.as_ref()
    }

    /// Reductions that `rank` called and whose windows it still serves.
    pub fn unreleased(&self, rank: Rank) -> impl Iterator<Item = ReductionId> {
        let process = self.process(rank);
        process.shares.keys().copied().filter(|id| !process.released.contains(id))
    }

    /// Takes in that a future ends.
    pub(crate) fn resolve(&mut self, rank: Rank, reduction: ReductionId, end: End) {
        let process = self.process_mut(rank);
        let lends = process.lends(reduction);
        let share = process.shares.get_mut(&reduction).expect("it was called here");
        if matches!(end, End::Received(_)) && share.spec.kind.array_bytes().is_some() && lends {
            share.waits = Some(end);
            return;
        }
        let process = self.process(rank);
        let share = &process.shares[&reduction];
        // Where its partials grew.
        let reduction_id = if share.tried { reduction.in_teams() } else { reduction };
        let value = match end {
            End::Received(_) if share.collected.is_empty() || share.how.beside => {
                let segments = self.segments(reduction_id, &share.spec);
                Some(
                    segments
                        .map(|(index, _)| process.partial(SegmentId { reduction: reduction_id, index }))
                        .collect(),
                )
            }
            End::Received(_) => Some(share.collected.clone()),
            _ => None,
        };
        let at = self.now;
        if self.teller.is_heard() {
            self.teller.resolved(at, rank, reduction, &end);
        }
        let share = self.process_mut(rank).shares.get_mut(&reduction).expect("it was called here");
        let before = share.ended.replace(Ended { end, value, at });
        assert!(before.is_none(), "a future ends once");
        self.calls_ended += 1;
    }

    /// A contribution that is called lost is in no survivor's hands.
    pub(crate) fn check_loss(&self, notice: &master::Notice) {
        let master::Notice::Refused { reduction, refusal, .. } = notice else { return };
        if let Refusal::ProcessFailed { ranks } = refusal {
            for process in ranks.iter().map(|rank| self.process(rank)) {
                let share = process.shares.get(reduction);
                // Nobody else has the contribution of a root.
                let tells = share.is_some_and(|share| share.spec.delivery.root() != Some(process.id.rank));
                let placed = self.has_placed(process.id.rank, *reduction);
                assert!(!(tells && placed), "what {} contributed lies on the board", process.id);
            }
        }
        let (Refusal::ContributionLost { ranks } | Refusal::ResultLost { ranks }) = refusal else { return };
        let fenced = |rank: Rank| {
            let failed = |notice: &master::Notice| matches!(notice, master::Notice::Failed { process, .. } if process.rank == rank);
            self.notices.iter().any(failed)
        };
        for lost in ranks.iter().filter(|rank| !fenced(*rank)) {
            let process = self.process(lost);
            let share = process.shares.get(reduction);
            let inline = share.is_some_and(|share| share.inline);
            let overwritten = share.is_some_and(Share::is_overwritten);
            assert!(
                process.worker.is_none() || overwritten,
                "rank {lost} lives and has its own contribution"
            );
            assert!(!inline, "the master has rank {lost}'s contribution");
        }
        let survivors: Vec<&Process> = self
            .processes
            .iter()
            .filter(|process| process.worker.is_some() && !fenced(process.id.rank))
            .collect();
        let share = self.processes.iter().find_map(|process| process.shares.get(reduction));
        // Partials are of no use that hold what the result is to miss.
        let misses = share.is_some_and(|share| share.spec.allow_missing);
        let survives = |rank: &Rank| survivors.iter().any(|process| process.id.rank == *rank);
        let is_of_use =
            |held: &&Vec<Rank>| !misses || held.iter().all(|rank| ranks.contains(*rank) || survives(rank));
        let is_lost = |index: SegmentIndex| {
            let segment = SegmentId { reduction: *reduction, index };
            let counts = |process: &&&Process| !process.given_up.contains(&segment);
            let survivors = || survivors.iter().filter(counts);
            let whole = survivors().filter(|process| process.is_whole(segment));
            let partials = whole.filter_map(|process| process.partials.get(&segment));
            // What was copied before the call ended can still be had.
            let shares = survivors().filter_map(|process| process.shares.get(reduction));
            let open = shares.filter(|share| share.is_lent() && !share.inline);
            let copied = open.filter_map(|share| share.collected.get(index.0 as usize));
            let held: BTreeSet<Rank> = partials.chain(copied).filter(is_of_use).flatten().copied().collect();
            ranks.iter().all(|rank| !held.contains(&rank))
        };
        let lost =
            share.is_none_or(|share| self.segments(*reduction, &share.spec).any(|(index, _)| is_lost(index)));
        // A task that was doubled leaves partials behind that overlap; not every cover is found among them.
        let is_slow = |notice: &master::Notice| matches!(notice, master::Notice::News(News::Slow { name, .. }) if ReductionId::new(name, reduction.sequence) == *reduction);
        let was_handed_out = matches!(refusal, Refusal::ResultLost { .. });
        let lost = lost || (misses && was_handed_out) || self.notices.iter().any(is_slow);
        assert!(lost, "a survivor holds what is called lost: {ranks}");
    }
}
