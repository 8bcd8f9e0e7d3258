//! How long the application's own operations take.
//!
//! What a predefined operation takes follows from its bytes, and a task that takes much longer tells of a
//! slow worker. An operation of the application may take a microsecond or an hour: only tasks that are done
//! tell. So whoever folds with such an operation is compared with others that did the same, or with its own
//! past where nobody else did. Where nothing is known, nobody is late: doing the work again would take just
//! as long. A worker that froze is silent, and found by that.
//!
//! What is known also decides how bodies of one piece are folded ([`Paces::folds_in_pairs`]): all by one
//! worker in one task, or in pairs, as a tree. One task costs one round trip, and folds one after the other;
//! a tree costs a round trip for each level, and folds a level at once. The first reduction with an operation
//! is folded in pairs: if it is quick, that takes some round trips more, once; if it is slow, one worker
//! would fold for as long as all others together could.

use alloc::{borrow::ToOwned, collections::BTreeMap, string::String};
use core::time::Duration;

use everfold_protocol::{
    Rank,
    message::TaskCounters,
    spec::{BodyKind, Operation},
};
use smallvec::SmallVec;

use crate::{lane::Load, task::Running};

/// Latest tasks of one operation that are remembered. An odd fold among them, one that the processor was
/// taken away from, does not count.
const TASKS_MAX: usize = 8;

/// Operations that are remembered. A program has few; one with more has some of them learnt anew.
const OPERATIONS_MAX: usize = 256;

/// The paces of operations, by name: for objects the name of the type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paces(BTreeMap<String, SmallVec<[Pace; TASKS_MAX]>>);

/// What one task took for each of its folds.
#[derive(Clone, Copy, Debug)]
struct Pace {
    executor: Rank,
    /// Bytes of an operand.
    bytes: u64,
    /// In nanoseconds, with the time to read the operands, and without.
    task_ns: u64,
    fold_ns: u64,
}

/// The name of the application's operation, if it is one.
fn own_operation(kind: &BodyKind) -> Option<&str> {
    match kind {
        BodyKind::Object { type_name } => Some(type_name),
        BodyKind::Array { operation: Operation::Custom(name), .. } => Some(name),
        BodyKind::Array { .. } | BodyKind::Pieces { .. } => None,
    }
}

impl Paces {
    /// Learns from a task that is done.
    pub fn observe(
        &mut self,
        kind: &BodyKind,
        executor: Rank,
        load: &Load,
        partials: usize,
        counters: &TaskCounters,
    ) {
        let Some(operation) = own_operation(kind) else { return };
        let folds = partials.saturating_sub(1).max(1) as u64;
        let pace = Pace {
            executor,
            bytes: load.bytes / (folds + 1),
            task_ns: counters.task_ns / folds,
            fold_ns: counters.task_ns.saturating_sub(counters.fetch_ns) / folds,
        };
        match self.0.get_mut(operation) {
            Some(paces) => {
                if paces.len() == TASKS_MAX {
                    paces.remove(0);
                }
                paces.push(pace);
            }
            None => {
                if self.0.len() == OPERATIONS_MAX {
                    self.0.pop_first();
                }
                self.0.insert(operation.to_owned(), core::iter::once(pace).collect());
            }
        }
    }

    /// Whether bodies of `kind` in one segment are folded in pairs: the operation is the application's, and
    /// it takes at least `slow`, or its pace is unknown.
    pub fn folds_in_pairs(&self, kind: &BodyKind, slow: Duration) -> bool {
        let Some(operation) = own_operation(kind) else { return false };
        let known = self.0.get(operation).and_then(|paces| median(paces.iter().map(|pace| pace.fold_ns)));
        known.is_none_or(|ns| u128::from(ns) >= slow.as_nanos())
    }

    /// How long others, or else its executor, would take for a task of `kind`; `None` if that is unknown. The
    /// time grows with the length of the operands.
    pub fn expected(&self, kind: &BodyKind, running: &Running) -> Option<Duration> {
        let paces = self.0.get(own_operation(kind)?)?;
        let folds = running.partials().saturating_sub(1).max(1) as u64;
        let bytes = running.load.bytes / (folds + 1);
        let ns = |pace: &Pace| {
            let longer = u128::from(bytes.max(pace.bytes).max(1)) / u128::from(pace.bytes.max(1));
            u64::try_from(u128::from(pace.task_ns) * longer).unwrap_or(u64::MAX)
        };
        let others = paces.iter().filter(|pace| pace.executor != running.executor.rank);
        let each = median(others.map(ns)).or_else(|| median(paces.iter().map(ns)))?;
        Some(Duration::from_nanos(each.saturating_mul(folds)))
    }
}

/// The one in the middle; of two the smaller.
fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: SmallVec<[u64; TASKS_MAX]> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}
