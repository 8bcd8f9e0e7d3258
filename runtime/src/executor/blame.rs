//! Whose contribution it was, when a fold panics in the application's code.

use std::{cell::Cell, ops::Range};

use everfold_protocol::{Path, ProcessId, message::Task};
use everfold_worker::machine::ExecutionError;

/// The step that a fold is at. Operands are numbered from the left, sources in the order of the task.
#[derive(Clone, Copy, Debug, Default)]
enum Step {
    /// Nothing of the application's.
    #[default]
    Ours,
    /// Decodes this source.
    Decoding(usize),
    /// Combines the operands from the first number up to the second with those from there up to the third.
    Combining(usize, usize, usize),
    /// Combines all operands, element by element.
    CombiningElements,
}

/// How far a fold has come, seen from outside when it has panicked.
#[derive(Debug, Default)]
pub(super) struct Progress(Cell<Step>);

impl Progress {
    pub(super) fn decode(&self, source: usize) {
        self.0.set(Step::Decoding(source));
    }

    /// Combines two neighbours, each of which is made of a range of operands.
    pub(super) fn combine(&self, left: &Range<usize>, right: &Range<usize>) {
        self.0.set(Step::Combining(left.start, right.start, right.end));
    }

    pub(super) fn combine_elements(&self) {
        self.0.set(Step::CombiningElements);
    }

    pub(super) fn leave_the_application(&self) {
        self.0.set(Step::Ours);
    }

    /// Why `task` was not done, after its fold has panicked here. `own_number` is that of this rank's
    /// operand, if it has one.
    pub(super) fn blame(&self, me: ProcessId, task: &Task, own_number: usize) -> ExecutionError {
        let message = format!("the message of the panic is in the output of rank {}", me.rank);
        let sources = task.sources.iter().map(|source| &source.path);
        let mut operands: Vec<&Path> = sources.clone().collect();
        if !task.own.is_empty() {
            operands.insert(own_number, &task.own);
        }
        let (suspects, reason) = match self.0.get() {
            Step::Ours => (Path::empty(), format!("the fold panicked; {message}")),
            Step::Decoding(source) => {
                let path = &task.sources[source].path;
                (path.clone(), format!("decoding it panicked; {message}"))
            }
            Step::Combining(first, middle, last) => {
                let sides = [all(&operands[first..middle]), all(&operands[middle..last])];
                let reason = format!("combining {} with {} panicked; {message}", sides[0], sides[1]);
                (suspects(&sides.each_ref()), reason)
            }
            Step::CombiningElements => {
                let reason = format!(
                    "combining elements of {} panicked, and whose it was cannot be told; {message}",
                    all(&operands)
                );
                (suspects(&operands), reason)
            }
        };
        ExecutionError { suspects, ..ExecutionError::blame(me, reason) }
    }
}

fn all(paths: &[&Path]) -> Path {
    paths.iter().flat_map(|path| path.iter()).collect()
}

/// Those of `operands` that are most likely to blame: operands that were combined well before are suspected
/// only if all were.
fn suspects(operands: &[&Path]) -> Path {
    let originals: Vec<&Path> = operands.iter().copied().filter(|path| path.len() == 1).collect();
    if originals.is_empty() { all(operands) } else { all(&originals) }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::Rank;

    use super::*;

    #[test]
    fn originals_are_suspected_before_partials() {
        let [one, two, both] = [Path::single(Rank(1)), Path::single(Rank(2)), Path::range(3, 5)];
        let suspected = |operands: &[&Path]| suspects(operands).to_string();
        assert_eq!(suspected(&[&both, &one]), "{1}");
        assert_eq!(suspected(&[&one, &two]), "{1-2}");
        assert_eq!(suspected(&[&one, &both, &two]), "{1-2}");
        assert_eq!(suspected(&[&both]), "{3-4}");
    }
}
