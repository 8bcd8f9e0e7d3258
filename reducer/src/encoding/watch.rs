//! What is noticed while a value is encoded.

use std::cell::Cell;

use everfold_protocol::codec::DEPTH_MAX;
use everfold_runtime::body::Unfit;
use serde::ser::Error;

/// Structs and variants that have been seen, each as one of 64 bits by its hash: two that share one are seen
/// as one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts(u64);

impl Parts {
    pub(super) fn include(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }

    pub(super) fn add(&mut self, others: Self) {
        self.0 |= others.0;
    }
}

/// One encoding or decoding under way.
#[derive(Default)]
pub(super) struct Watch {
    parts: Cell<u64>,
    unfit: Cell<Option<Unfit>>,
}

impl Watch {
    pub(super) fn parts(&self) -> Parts {
        Parts(self.parts.get())
    }

    /// Why it was ended, if it was from here.
    pub(super) fn unfit(&self) -> Option<Unfit> {
        self.unfit.take()
    }
}

/// A place in a value.
#[derive(Clone, Copy)]
pub(super) struct Place<'w> {
    watch: &'w Watch,
    depth: u32,
}

impl<'w> Place<'w> {
    /// The outermost.
    pub(super) fn new(watch: &'w Watch) -> Self {
        Self { watch, depth: 0 }
    }

    /// One level further in.
    #[inline]
    pub(super) fn deeper<E: Error>(self) -> Result<Self, E> {
        match self.depth < DEPTH_MAX {
            true => Ok(Self { depth: self.depth + 1, ..self }),
            false => Err(self.refuse(Unfit::TooDeep { limit: DEPTH_MAX })),
        }
    }

    /// Ends it.
    #[cold]
    pub(super) fn refuse<E: Error>(self, unfit: Unfit) -> E {
        let told = E::custom(&unfit);
        self.watch.unfit.set(Some(unfit));
        told
    }

    /// A struct with this number of fields, or a variant, has been seen.
    #[inline]
    pub(super) fn see(self, name: &'static str, number: usize) {
        let (part, parts) = (1 << ((name.as_ptr() as usize + number) % 64), self.watch.parts.get());
        // Most are the same again.
        if parts & part == 0 {
            self.note(part);
        }
    }

    #[cold]
    fn note(self, part: u64) {
        self.watch.parts.set(self.watch.parts.get() | part);
    }
}
