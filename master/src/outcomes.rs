//! How reductions have ended of which not every rank that called them has the outcome in its result log.
//!
//! A rank whose process dies between two lines of its log calls again what it had called, and hears from here
//! how that has ended. Results themselves are not here: who is to have one copies it, and the reduction is
//! open until it has. Kept only in jobs whose ranks come back.
//!
//! # Memory
//! An entry for each reduction that some rank has yet to note. A rank that is there notes what it hears at
//! once; one that is away keeps what ends meanwhile of what its earlier process has called.

use alloc::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};

use everfold_protocol::{
    Path, Rank, ReductionId, ReductionSpec,
    report::{Refusal, Report},
};

use crate::reduction::Called;

/// How a reduction has ended for those who do not receive a result.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Well.
    Finished(Box<Completed>),
    /// Refused.
    Refused(Refusal),
}

/// A reduction that has ended well.
#[derive(Clone, Debug)]
pub(crate) struct Completed {
    pub name: String,
    pub spec: ReductionSpec,
    pub report: Report,
}

impl Outcome {
    /// Whether it answers this call: it may be another one than an earlier process of the caller has made.
    pub fn answers(&self, called: Called) -> bool {
        match self {
            Self::Finished(completed) => {
                completed.name == called.name && completed.spec.disagreement(called.spec).is_none()
            }
            Self::Refused(_) => true,
        }
    }
}

/// Outcomes, and who has yet to note them. Of one reduction there are several where ranks disagree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes(BTreeMap<ReductionId, Vec<(Outcome, Path)>>);

impl Outcomes {
    /// Keeps how a reduction has ended until all of `awaited` have noted it.
    pub fn add(&mut self, id: ReductionId, outcome: Outcome, awaited: Path) {
        if !awaited.is_empty() {
            self.0.entry(id).or_default().push((outcome, awaited));
        }
    }

    /// How a reduction has ended that `caller` calls again.
    pub fn tell(&self, id: ReductionId, caller: Rank) -> Option<&Outcome> {
        let mut of_it = self.0.get(&id)?.iter();
        of_it.find(|(_, awaited)| awaited.contains(caller)).map(|(outcome, _)| outcome)
    }

    /// Takes in that `rank` has noted an outcome.
    pub fn note(&mut self, id: ReductionId, rank: Rank) {
        let Some(of_it) = self.0.get_mut(&id) else { return };
        of_it.retain_mut(|(_, awaited)| {
            awaited.remove(rank);
            !awaited.is_empty()
        });
        if of_it.is_empty() {
            self.0.remove(&id);
        }
    }

    /// Takes in that `rank` calls nothing again.
    pub fn depart(&mut self, rank: Rank) {
        let known: Vec<ReductionId> = self.0.keys().copied().collect();
        for id in known {
            self.note(id, rank);
        }
    }

    /// Ranks that have something to note yet.
    pub fn awaited(&self) -> Path {
        self.0.values().flatten().flat_map(|(_, awaited)| awaited.iter()).collect()
    }

    /// Whether nobody has anything to note.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection};

    use super::*;

    fn spec(length: u64) -> ReductionSpec {
        ReductionSpec {
            group: Path::range(0, 3),
            delivery: Delivery::FirstOf(alloc::vec![Rank(0)]),
            order: Order::Arrival,
            kind: BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length },
            deadline: None,
            protection: Protection::None,
            allow_missing: false,
            trace: false,
        }
    }

    fn finished() -> Outcome {
        Outcome::Finished(Box::new(Completed {
            name: "sum".into(),
            spec: spec(3),
            report: Report::default(),
        }))
    }

    #[test]
    fn an_outcome_answers_the_call_that_it_is_of() {
        assert!(finished().answers(Called { name: "sum", spec: &spec(3) }));
        assert!(!finished().answers(Called { name: "sum", spec: &spec(4) }));
        assert!(!finished().answers(Called { name: "other", spec: &spec(3) }));
        assert!(Outcome::Refused(Refusal::EmptyGroup).answers(Called { name: "sum", spec: &spec(4) }));
    }

    #[test]
    fn an_outcome_is_kept_until_all_have_noted_it() {
        let mut outcomes = Outcomes::default();
        let [first, second] = [0, 1].map(|sequence| ReductionId::new("sum", sequence));
        outcomes.add(first, finished(), Path::range(0, 3));
        outcomes.add(second, Outcome::Refused(Refusal::EmptyGroup), Path::range(1, 2));
        outcomes.add(ReductionId::new("sum", 2), finished(), Path::empty());
        assert!(matches!(outcomes.tell(second, Rank(1)), Some(Outcome::Refused(_))));
        assert!(outcomes.tell(second, Rank(0)).is_none(), "it has not called");
        outcomes.note(first, Rank(0));
        assert!(outcomes.tell(first, Rank(0)).is_none(), "it has it already");
        outcomes.depart(Rank(1));
        assert!(outcomes.tell(first, Rank(2)).is_some() && outcomes.tell(second, Rank(1)).is_none());
        outcomes.note(first, Rank(2));
        assert!(outcomes.is_empty());
    }
}
