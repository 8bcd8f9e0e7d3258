//! What has to hold: how calls end, and when a contribution may be called lost.

use std::collections::BTreeSet;

use everfold_master as master;
use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentId, SegmentIndex, report::Refusal, spec::Protection,
};
use everfold_worker::machine::End;

use super::World;
use crate::{
    evidence,
    process::{Ended, Process, Share, Shown},
};

impl World {
    /// Takes in that a future ends.
    pub(super) fn resolve(&mut self, rank: Rank, reduction: ReductionId, end: End) {
        let now = self.now();
        let process = self.process_mut(rank);
        let (lends, lends_body) = (process.lends(reduction), process.lends_body(reduction));
        let share = process.shares.get_mut(&reduction).expect("it was called here");
        if matches!(end, End::Received(_)) && share.spec.kind.array_bytes().is_some() && lends {
            share.waits = Some(end);
            share.told = Some(now);
            self.waits_for_partials += u64::from(!lends_body);
            return;
        }
        let value = self.value(rank, reduction, &end);
        let at = self.agenda.now();
        if self.teller.is_heard() {
            self.teller.resolved(at, rank, reduction, &end);
        }
        let share = self.process_mut(rank).shares.get_mut(&reduction).expect("it was called here");
        let told = share.told.unwrap_or(at);
        let ended = Ended { end, value, at, told, was_refused: share.is_refused };
        let before = share.ended.replace(ended.clone());
        assert!(before.is_none(), "a future ends once");
        self.calls_ended += 1;
        self.end_call(rank, reduction, &ended);
    }

    /// What a call brings that ends so.
    pub(super) fn value(&self, rank: Rank, reduction: ReductionId, end: &End) -> Option<Vec<Vec<Rank>>> {
        let process = self.process(rank);
        let share = &process.shares[&reduction];
        // Where its partials grew.
        let id = if share.tried { reduction.in_teams() } else { reduction };
        match end {
            End::Received(_) if share.collected.is_empty() || share.how.beside => {
                let segments = self.settings.segments(id, &share.spec);
                Some(segments.map(|(index, _)| process.partial(SegmentId { reduction: id, index })).collect())
            }
            End::Received(_) => Some(share.collected.clone()),
            _ => None,
        }
    }

    /// A contribution that is called lost, or not to have come, is nowhere where the master could have had it
    /// from.
    pub(super) fn check_loss(&self, notice: &master::Notice) {
        let master::Notice::Refused { reduction, refusal, .. } = notice else { return };
        match refusal {
            Refusal::ProcessFailed { ranks } => {
                ranks.iter().for_each(|rank| self.check_that_it_did_not_come(rank, *reduction));
            }
            Refusal::ContributionLost { ranks } => self.check_that_nobody_has(*reduction, ranks, false),
            // It names a rank that lives and cannot be reached.
            Refusal::ResultLost { .. } if self.is_parted(*reduction) => {}
            // It names a rank that has it, or whose earlier process has left it. Their bytes stay damaged.
            Refusal::ResultLost { ranks } if ranks.iter().all(|rank| self.stayed_damaged(rank)) => {}
            // It names the only one who was to have it, and has no room for it.
            Refusal::ResultLost { ranks } if ranks.iter().all(|rank| self.process(rank).is_windowless) => {}
            Refusal::ResultLost { ranks } => self.check_that_nobody_has(*reduction, ranks, true),
            _ => {}
        }
    }

    /// Whether two hosts of those who call do not reach each other's memory.
    fn is_parted(&self, reduction: ReductionId) -> bool {
        let callers = self.all().filter(|process| process.shares.contains_key(&reduction.called()));
        let hosts: BTreeSet<u64> = callers.map(|process| process.host).collect();
        let mut readers = hosts.iter();
        readers.any(|reader| hosts.iter().any(|owner| self.outages.gap(*reader, *owner).is_some()))
    }

    /// The contribution of `rank`, whose process failed, was not the master's to count.
    fn check_that_it_did_not_come(&self, rank: Rank, reduction: ReductionId) {
        let process = self.process(rank);
        let Some(share) = process.shares.get(&reduction) else { return };
        let spec = &share.spec;
        // Nobody else has the contribution of a root.
        let tells = spec.delivery.root() != Some(rank);
        let listens =
            |rank| !self.is_gone(rank) && !self.facts.deserters.contains_key(&self.process(rank).id);
        let candidates = spec.delivery.candidates();
        let is_root = spec.delivery.root().is_some();
        let may_receive = |rank: &Rank| is_root || candidates.is_empty() || candidates.contains(rank);
        let is_for_somebody = spec.group.iter().filter(may_receive).any(listens);
        assert!(
            !(tells && is_for_somebody && self.has_placed(rank, reduction)),
            "what {} contributed lies on the board",
            process.id
        );
        let Some(inline) = self.facts.heard(rank, reduction) else { return };
        if !inline && self.settings.returns.is_some() && !self.is_left_by_a_caller(rank, reduction) {
            // It was lost, and was to come again.
            return;
        }
        let receives = |rank: &Rank| !self.is_gone(*rank) && self.facts.heard(*rank, reduction).is_some();
        let somebody_receives = candidates.is_empty() || candidates.iter().any(receives);
        // Where contributions may be missing, it goes on without those who call nothing more.
        let counts = |rank: Rank| !spec.allow_missing || self.facts.heard(rank, reduction).is_some();
        let somebody_is_left = spec.group.iter().any(|rank| !self.is_gone(rank) && counts(rank));
        // It did not count before there was a copy of it, unless it outlives its process.
        let waited = spec.protection == Protection::CommitFirst && !inline && !self.outlives(rank, reduction);
        assert!(
            waited || !somebody_receives || !somebody_is_left,
            "rank {rank} failed after it had contributed"
        );
    }

    /// Whether a contribution can be read in what a process of `rank` has left, and the master knows of it.
    pub(super) fn is_left_by_a_caller(&self, rank: Rank, reduction: ReductionId) -> bool {
        let is_held = |process: &&Process| !self.facts.hosts_lost.contains_key(&process.host);
        let overwritten = self.facts.overwrites.contains(&(rank, reduction));
        let mut of_rank = self.all().filter(|process| process.id.rank == rank).filter(is_held);
        let is_left = |process: &Process| {
            let remains = process.remains(reduction, Shown::Original) && !process.stayed_damaged;
            let is_lost = self.facts.has_taken_its_memory_along(process.id);
            remains && !is_lost && self.facts.heard_from(process.id, reduction)
        };
        !overwritten && of_rank.any(is_left)
    }

    /// Whether bytes of a process of `rank` stayed damaged.
    fn stayed_damaged(&self, rank: Rank) -> bool {
        self.all().any(|process| process.id.rank == rank && process.stayed_damaged)
    }

    /// Whether the master has declared `rank` failed, or has let it go.
    fn is_gone(&self, rank: Rank) -> bool {
        let left =
            |notice: &master::Notice| matches!(notice, master::Notice::Left(process) if process.rank == rank);
        self.is_fenced(rank) || self.notices.iter().any(left)
    }

    fn is_fenced(&self, rank: Rank) -> bool {
        self.facts.failed.contains_key(&rank)
    }

    /// Whether the memory of `rank`, which has failed, is there: for everybody, if its agent holds it, or for
    /// all of a group that is on its host.
    fn has_remains(&self, rank: Rank, reduction: ReductionId) -> bool {
        let group = self.process(rank).shares.get(&reduction).map(|share| &share.spec.group);
        let host = self.home(rank);
        let is_here = |group: &Path| group.iter().all(|other| self.home(other) == host);
        let is_mapped = || !self.facts.hosts_lost.contains_key(&host) && group.is_some_and(is_here);
        self.facts.has_left_memory(rank) && (self.facts.is_held(host, rank) || is_mapped())
    }

    /// Whether the contribution of `rank`, which has failed, can be read in what it has left.
    fn outlives(&self, rank: Rank, reduction: ReductionId) -> bool {
        let process = self.process(rank);
        // The master cannot tell how far it came, and lets go of its contribution when it says so.
        let overwritten = self.facts.overwrites.contains(&(rank, reduction));
        let is_first = !self.has_called_before(process.id, reduction);
        let remains = process.remains(reduction, Shown::Original);
        is_first && !overwritten && self.has_remains(rank, reduction) && remains
    }

    /// Whether an earlier process of its rank has called this, too. What the later one brings along stands in
    /// for the contribution of the earlier as long as it lives.
    fn has_called_before(&self, process: ProcessId, reduction: ReductionId) -> bool {
        let is_earlier =
            |other: &ProcessId| other.rank == process.rank && other.incarnation < process.incarnation;
        self.all().any(|other| is_earlier(&other.id) && other.shares.contains_key(&reduction))
    }

    /// How many processes of `rank` have called this.
    pub(crate) fn processes_that_called(&self, rank: Rank, reduction: ReductionId) -> usize {
        self.all()
            .filter(|process| process.id.rank == rank && process.shares.contains_key(&reduction))
            .count()
    }

    /// Whether a partial is what the master was told last, and can be read in what its process has left.
    fn is_left(&self, process: &Process, segment: SegmentId) -> bool {
        let (rank, reduction) = (process.id.rank, segment.reduction);
        let told = self.facts.told(rank, segment);
        let partial = process.partials.get(&segment);
        let is_it = told.zip(partial).is_some_and(|(path, partial)| evidence::is_fold_of(path, partial));
        is_it && self.has_remains(rank, reduction) && process.remains(reduction, Shown::Partial)
    }

    /// What a refusal calls lost is not to be had. `handed_out`: the result was.
    fn check_that_nobody_has(&self, reduction: ReductionId, ranks: &Path, handed_out: bool) {
        for lost in ranks.iter() {
            let process = self.process(lost);
            let inline = self.facts.heard(lost, reduction) == Some(true);
            assert!(!inline, "the master has rank {lost}'s contribution");
            if !self.is_fenced(lost) {
                let overwritten = process.shares.get(&reduction).is_some_and(Share::is_overwritten);
                // It may be told again when that is another process of its rank.
                let was_garbled = self.all().any(|of| of.id.rank == lost && of.was_garbled);
                assert!(
                    process.worker.is_none()
                        || overwritten
                        || was_garbled
                        || (handed_out && self.facts.has_come_back(lost)),
                    "rank {lost} lives and has its own contribution"
                );
            }
        }
        let survivors: Vec<&Process> = self
            .processes
            .iter()
            .filter(|process| {
                process.worker.is_some() && !process.was_garbled && !self.is_fenced(process.id.rank)
            })
            .collect();
        let share = self.processes.iter().find_map(|process| process.shares.get(&reduction));
        // Partials are of no use that hold what the result is to miss.
        let misses = share.is_some_and(|share| share.spec.allow_missing);
        let survives = |rank: &Rank| survivors.iter().any(|process| process.id.rank == *rank);
        // Those are of no use either that hold what was to come again.
        let comes_again = |rank: &Rank| self.facts.has_come_back(*rank) || self.master().awaits(*rank);
        let counts = |rank: &Rank| (survives(rank) || !misses) && !comes_again(rank);
        let is_of_use = |held: &&Vec<Rank>| held.iter().all(|rank| ranks.contains(*rank) || counts(rank));
        let is_lost = |index: SegmentIndex| {
            let segment = SegmentId { reduction, index };
            // What is being folded comes to nothing if a contribution in it is to come again.
            let is_told = |process: &Process| {
                let told = self.facts.told(process.id.rank, segment);
                self.settings.returns.is_none() || told.is_some()
            };
            let counts = |process: &&&Process| !process.given_up.contains(&segment) && is_told(process);
            let survivors = || survivors.iter().filter(counts);
            let is_sound = |process: &&Process| !process.was_garbled && self.is_left(process, segment);
            let left = self.processes.iter().filter(is_sound);
            let whole = survivors().copied().chain(left).filter(|process| process.is_whole(segment));
            let partials = whole.filter_map(|process| process.partials.get(&segment));
            // What was copied before the call ended can still be had.
            let shares = survivors().filter_map(|process| process.shares.get(&reduction));
            let open = shares.filter(|share| share.is_lent() && !share.inline);
            let copied = open.filter_map(|share| share.collected.get(index.0 as usize));
            let held = partials.chain(copied).filter(is_of_use).flatten().copied();
            let is_damaged =
                |rank: Rank| self.all().any(|process| process.id.rank == rank && process.was_garbled);
            let originals = ranks.iter().filter(|rank| self.outlives(*rank, reduction) && !is_damaged(*rank));
            let held: BTreeSet<Rank> = held.chain(originals).collect();
            ranks.iter().all(|rank| !held.contains(&rank))
        };
        let lost = share.is_none_or(|share| {
            self.settings.segments(reduction, &share.spec).any(|(index, _)| is_lost(index))
        });
        // A task that was doubled leaves partials behind that overlap; not every cover is found among them.
        // What bodies held is overwritten once a result is copied, also where a contribution was to come
        // again.
        let may_differ = misses || self.settings.returns.is_some();
        let lost = lost || (may_differ && handed_out) || self.slow.contains(&reduction);
        assert!(lost, "somebody holds what is called lost: {ranks}");
    }
}
