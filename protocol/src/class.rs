//! Which reductions are about the same: what one of them has taken tells what the next will.

use crate::{ReductionSpec, spec::Delivery};

/// Reductions of about the same size, whose results go to as many. Lengths of bodies and numbers of ranks
/// count as powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    body: u32,
    ranks: u32,
    receivers: Receivers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Receivers {
    Root,
    First,
    All,
}

impl Class {
    /// That of `spec`, if its bodies are arrays.
    pub fn of(spec: &ReductionSpec) -> Option<Self> {
        let (bytes, _) = spec.kind.array_bytes()?;
        let receivers = match spec.delivery {
            Delivery::Root(_) => Receivers::Root,
            Delivery::FirstOf(_) => Receivers::First,
            Delivery::All => Receivers::All,
        };
        Some(Self { body: bytes.max(1).ilog2(), ranks: spec.group.len().max(1).ilog2(), receivers })
    }
}
