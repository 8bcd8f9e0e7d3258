//! Reductions that were refused while some ranks had yet to call them.
//!
//! A rank that calls such a reduction hears why it was refused, however late that is: it would otherwise open
//! it once more, and wait for ranks that have gone on. A refusal is forgotten as soon as all ranks that may
//! call the reduction have heard it, or call nothing more. Of the refusals that some ranks have yet to hear,
//! only the latest are kept whole ([`Policy::refusals_max`]). Of earlier ones the master keeps, for each
//! name, the last call that is over; all calls of that name before it have ended, too, or are open, because
//! each rank's calls of a name come in order. A rank that is so late hears that the reduction is over
//! ([`Refusal::Over`]), but not why.
//!
//! # Memory
//! As many refusals as that, and behind them an entry of about a hundred bytes for each name that some rank
//! has yet to call: no more than each process has for its own names.
//!
//! [`Policy::refusals_max`]: crate::Policy::refusals_max

use alloc::{collections::BTreeMap, vec::Vec};

use everfold_protocol::{Path, Rank, ReductionId, report::Refusal};

/// What late ranks are to hear.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    latest: BTreeMap<ReductionId, Refused>,
    /// The same in the order in which they were refused.
    order: BTreeMap<u64, ReductionId>,
    /// How many there were.
    count: u64,
    /// By name, of those that are not among the latest any more.
    over: BTreeMap<u64, Over>,
}

/// A reduction that was refused.
#[derive(Clone, Debug)]
struct Refused {
    refusal: Refusal,
    number: u64,
    /// All ranks that may call it: the groups of its callers.
    group: Path,
    /// Those of them that have yet to call it.
    awaited: Path,
}

/// The latest refused call of one name.
#[derive(Clone, Debug)]
struct Over {
    /// The last of them.
    sequence: u64,
    /// The ranks that may have yet to call one of them.
    awaited: Path,
}

impl Refusals {
    /// Notes that a reduction of `group` was refused, and that the `awaited` ranks have yet to hear it.
    pub fn add(&mut self, id: ReductionId, refusal: Refusal, group: &Path, awaited: Path) {
        if awaited.is_empty() {
            return;
        }
        let number = self.count;
        self.count += 1;
        self.order.insert(number, id);
        self.latest.insert(id, Refused { refusal, number, group: group.clone(), awaited });
    }

    /// Keeps no more than `most` refusals as they are.
    pub fn limit(&mut self, most: usize) {
        while self.latest.len() > most
            && let Some((_, oldest)) = self.order.pop_first()
            && let Some(Refused { awaited, .. }) = self.latest.remove(&oldest)
        {
            let over = self.over.entry(oldest.name);
            let over = over.or_insert_with(|| Over { sequence: 0, awaited: Path::empty() });
            over.sequence = over.sequence.max(oldest.sequence);
            over.awaited = over.awaited.iter().chain(awaited.iter()).collect();
        }
    }

    /// Whether a reduction that is not open was refused.
    pub fn contain(&self, id: ReductionId) -> bool {
        self.latest.contains_key(&id)
            || self.over.get(&id.name).is_some_and(|over| id.sequence <= over.sequence)
    }

    /// The refusal that `caller`, which believes in `group`, hears of a reduction that is not open, if it was
    /// refused.
    pub fn tell(
        &mut self,
        id: ReductionId,
        caller: Rank,
        group: &Path,
        may_call: impl Fn(&Rank) -> bool,
    ) -> Option<Refusal> {
        let Some(refused) = self.latest.get_mut(&id) else { return self.pass(id, caller) };
        let more = group.difference(&refused.group);
        if !more.is_empty() {
            let others = more.iter().filter(may_call);
            refused.awaited = refused.awaited.iter().chain(others).collect();
            refused.group = refused.group.iter().chain(more.iter()).collect();
        }
        refused.awaited.remove(caller);
        let refusal = refused.refusal.clone();
        self.forget(id);
        Some(refusal)
    }

    /// Takes in how far `caller` is with its calls of a name. Returns the refusal of this call, if the
    /// reduction is not open.
    pub fn pass(&mut self, id: ReductionId, caller: Rank) -> Option<Refusal> {
        let over = self.over.get_mut(&id.name)?;
        // Others count their own calls of that name.
        let is_over = id.sequence <= over.sequence && over.awaited.contains(caller);
        if id.sequence >= over.sequence {
            // All its calls from now on come later.
            over.awaited.remove(caller);
            if over.awaited.is_empty() {
                self.over.remove(&id.name);
            }
        }
        is_over.then_some(Refusal::Over)
    }

    /// Takes in that `rank` calls nothing more.
    pub fn depart(&mut self, rank: Rank) {
        let hit =
            self.latest.iter_mut().filter_map(|(id, refused)| refused.awaited.remove(rank).then_some(*id));
        let hit: Vec<ReductionId> = hit.collect();
        hit.into_iter().for_each(|id| self.forget(id));
        self.over.retain(|_, over| {
            over.awaited.remove(rank);
            !over.awaited.is_empty()
        });
    }

    /// Forgets a refusal that all ranks have heard.
    fn forget(&mut self, id: ReductionId) {
        if let Some(refused) = self.latest.get(&id).filter(|refused| refused.awaited.is_empty()) {
            self.order.remove(&refused.number);
            self.latest.remove(&id);
        }
    }

    /// Whether all ranks have heard all refusals.
    pub fn is_empty(&self) -> bool {
        self.latest.is_empty() && self.order.is_empty() && self.over.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn late() -> Refusal {
        Refusal::DeadlineExceeded { deadline: Duration::from_secs(1), missing: Path::single(Rank(2)) }
    }

    fn of_three(refusals: &mut Refusals, id: ReductionId, awaited: &[u32], most: usize) {
        let awaited = awaited.iter().copied().map(Rank).collect();
        refusals.add(id, late(), &Path::range(0, 3), awaited);
        refusals.limit(most);
    }

    fn tell(refusals: &mut Refusals, id: ReductionId, caller: u32) -> Option<Refusal> {
        refusals.tell(id, Rank(caller), &Path::range(0, 3), |_| true)
    }

    #[test]
    fn a_refusal_is_kept_until_all_have_heard_it() {
        let mut refusals = Refusals::default();
        let id = ReductionId::new("x", 0);
        of_three(&mut refusals, id, &[1, 2], 8);
        assert_eq!(tell(&mut refusals, id, 2), Some(late()));
        assert!(refusals.contain(id));
        assert_eq!(tell(&mut refusals, id, 1), Some(late()));
        assert!(refusals.is_empty());
        assert_eq!(tell(&mut refusals, id, 1), None);
        of_three(&mut refusals, id, &[], 8);
        assert!(refusals.is_empty(), "all have called it");
        of_three(&mut refusals, id, &[2], 8);
        refusals.depart(Rank(2));
        assert!(refusals.is_empty(), "nobody will call it");
    }

    #[test]
    fn those_in_whom_another_caller_believes_hear_it_too() {
        let mut refusals = Refusals::default();
        let id = ReductionId::new("x", 0);
        of_three(&mut refusals, id, &[2], 8);
        let larger = Path::range(0, 6);
        let told = refusals.tell(id, Rank(2), &larger, |rank| *rank != Rank(5));
        assert_eq!(told, Some(late()));
        for rank in [3, 4] {
            assert!(!refusals.is_empty());
            assert_eq!(tell(&mut refusals, id, rank), Some(late()));
        }
        assert!(refusals.is_empty(), "rank 5 is gone");
    }

    #[test]
    fn however_many_are_refused_a_late_rank_hears_that_its_call_is_over() {
        let mut refusals = Refusals::default();
        let id = |sequence| ReductionId::new("x", sequence);
        for sequence in 0..1000 {
            of_three(&mut refusals, id(sequence), &[2], 10);
        }
        assert_eq!((refusals.latest.len(), refusals.order.len(), refusals.over.len()), (10, 10, 1));
        for sequence in 0..1000 {
            let expected = if sequence < 990 { Refusal::Over } else { late() };
            assert!(refusals.contain(id(sequence)));
            assert_eq!(tell(&mut refusals, id(sequence), 2), Some(expected), "{sequence}");
        }
        assert!(refusals.is_empty());
        assert!(!refusals.contain(id(5)) && tell(&mut refusals, id(1000), 2).is_none());
    }

    #[test]
    fn a_rank_that_is_gone_or_has_gone_on_is_waited_for_no_longer() {
        let mut refusals = Refusals::default();
        for (name, sequence) in [("x", 3), ("y", 7)] {
            of_three(&mut refusals, ReductionId::new(name, sequence), &[1, 2], 0);
        }
        assert_eq!(tell(&mut refusals, ReductionId::new("x", 4), 1), None);
        assert_eq!(tell(&mut refusals, ReductionId::new("y", 7), 1), Some(Refusal::Over));
        assert_eq!(refusals.over.len(), 2);
        refusals.depart(Rank(2));
        assert!(refusals.is_empty());
    }
}
