//! Disagreements between the callers of a reduction.

use alloc::borrow::ToOwned;

use everfold_protocol::{Rank, ReductionId, report::Refusal, spec::Aspect};

use super::{Called, Reduction};

impl Reduction {
    /// On what `rank` disagrees with earlier callers.
    pub(crate) fn disagreement(&self, id: ReductionId, rank: Rank, called: Called) -> Option<Refusal> {
        let (aspect, first_says, other_says) = if self.name == called.name {
            self.spec.disagreement(called.spec)?
        } else {
            (Aspect::Name, self.name.clone(), called.name.to_owned())
        };
        Some(Refusal::Mismatch {
            name: self.name.clone(),
            sequence: id.sequence,
            aspect,
            first: self.first,
            first_says,
            other: rank,
            other_says,
        })
    }
}
