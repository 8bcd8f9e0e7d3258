//! An array that is folded: its original, where partials grow, and how far the result is there.

use std::sync::{Arc, Mutex, PoisonError};

use everfold_protocol::message::Data;

use crate::{body::BodyError, kernel::Accumulate, memory::buffer::Buffer};

pub(super) struct Array {
    pub original: Mutex<Option<Arc<Buffer>>>,
    pub bytes: usize,
    /// Where partials grow, unless they do in the original itself.
    pub partial: Mutex<Option<(Arc<Buffer>, Data)>>,
    /// Whether partials grow in the original, because no other process reads it.
    pub in_place: bool,
    pub element_bytes: usize,
    pub accumulate: Accumulate,
    /// Whether the operation is one of ours.
    pub predefined: bool,
    pub collected: Mutex<Progress>,
}

/// How far the result is copied into an array.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// The bytes before this one are the result.
    pub done: u64,
    /// The bytes from this one on are as they were.
    pub touched: u64,
    /// The window on it, once others may have to read it.
    pub shown: Option<Data>,
    /// Whether it is copied into the partial.
    pub beside: bool,
}

impl Array {
    pub fn original(&self) -> Result<Arc<Buffer>, BodyError> {
        let original = self.original.lock().unwrap_or_else(PoisonError::into_inner);
        original.clone().ok_or_else(handed_back)
    }
}

pub(super) fn handed_back() -> BodyError {
    BodyError::Failed("it was handed back to the application".to_owned())
}

impl Array {
    /// Takes in that the partial is folded anew from this byte on: a part of a result that was copied there
    /// is gone.
    pub fn forget_result(&self, start: u64) {
        let mut progress = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.beside {
            progress.done = progress.done.min(start);
        }
    }

    /// Takes the partial, if the whole result was copied there.
    pub fn take_beside(&self) -> Option<Arc<Buffer>> {
        let progress = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = progress.beside && progress.done == self.bytes as u64;
        let mut partial = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
        partial.take_if(|_| is_there).map(|(partial, _)| partial)
    }
}
