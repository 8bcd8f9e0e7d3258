//! In tests: what is done to the files of vaults on this thread, in order.

use std::cell::RefCell;

use super::Half;

/// One thing that is done to a file.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Write { half: Half, offset: usize, bytes: Vec<u8> },
    Cut { half: Half, bytes: usize },
}

thread_local! {
    static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn write(half: Half, offset: u64, bytes: &[u8]) {
    note(Step::Write { half, offset: offset as usize, bytes: bytes.to_vec() });
}

pub(super) fn cut(half: Half, bytes: u64) {
    note(Step::Cut { half, bytes: bytes as usize });
}

/// What was done since this was last asked.
pub(super) fn take() -> Vec<Step> {
    STEPS.with_borrow_mut(std::mem::take)
}

fn note(step: Step) {
    STEPS.with_borrow_mut(|steps| steps.push(step));
}
