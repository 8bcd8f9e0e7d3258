//! What the master has learnt of reductions that are about the same, as far as a rank has to know it.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use everfold_protocol::{
    ReductionId, ReductionSpec,
    class::Class,
    message::{Learning, ToMaster},
};

/// What the master has learnt, and what it has asked for.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    /// Whose bodies are to come inlined, however long they are.
    inlined: BTreeSet<Class>,
    /// How long the latest reduction took of which the master wants to know it.
    took: BTreeMap<Class, (ReductionId, Duration)>,
}

impl Learnt {
    /// Takes in what came with an outcome.
    pub fn hear(&mut self, spec: &ReductionSpec, learning: Learning) {
        if let Some(class) = Class::of(spec) {
            match learning.inlines {
                true => self.inlined.insert(class),
                false => self.inlined.remove(&class),
            };
        }
    }

    /// Whether the body of a call is to come inlined, however long it is.
    pub fn inlines(&self, spec: &ReductionSpec) -> bool {
        !self.inlined.is_empty() && Class::of(spec).is_some_and(|class| self.inlined.contains(&class))
    }

    /// Notes how long a reduction took, for the master to hear with the next call of its class.
    pub fn note(&mut self, spec: &ReductionSpec, reduction: ReductionId, took: Duration) {
        if let Some(class) = Class::of(spec) {
            self.took.insert(class, (reduction, took));
        }
    }

    /// What the master is to hear before a call.
    pub fn tell(&mut self, spec: &ReductionSpec) -> Option<ToMaster> {
        if self.took.is_empty() {
            return None;
        }
        let (reduction, took) = self.took.remove(&Class::of(spec)?)?;
        Some(ToMaster::Took { reduction, took })
    }
}
