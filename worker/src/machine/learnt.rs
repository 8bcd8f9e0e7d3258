//! How long bodies of a class of reductions come, as the master has learnt and as ranks have to know.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use everfold_protocol::{
    ReductionId, ReductionSpec,
    class::Class,
    message::{Learning, ToMaster},
};

/// The master's lessons of each class, and the times that it has asked for.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    /// Whose bodies are to come inlined, however long they are.
    inlined: BTreeSet<Class>,
    /// How long the latest reduction took of which the master wants to know it.
    took: BTreeMap<Class, (ReductionId, Duration)>,
}

impl Learnt {
    /// Takes in the lesson that came with an outcome.
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

    /// The message that the master is to hear before a call, if any.
    pub fn tell(&mut self, spec: &ReductionSpec) -> Option<ToMaster> {
        if self.took.is_empty() {
            return None;
        }
        let (reduction, took) = self.took.remove(&Class::of(spec)?)?;
        Some(ToMaster::Took { reduction, took })
    }
}
