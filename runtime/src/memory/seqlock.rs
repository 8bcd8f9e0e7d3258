//! A window's generation in shared memory, as a sequence lock: the bytes that a reader has read were those of
//! the window if the generation is the same before and after.
//!
//! The owner writes a window's bytes, then [opens](open) it; it [closes](close) it before it gives a byte
//! back, or uses it for something else. A reader asks [`is_open`], reads, and asks [`is_still_open`]. A
//! generation is never used twice, so that one that was seen twice was there all the time.
//! `runtime/tests/orderings.rs` tries every order in which two processors may see these steps.
//!
//! The lock tells nothing of what the owner writes into an open window: see [`super::region`].

use crate::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// The value of a closed window.
pub const CLOSED: u64 = 0;

/// Lets readers see all earlier writes.
pub fn open(word: &AtomicU64, generation: u64) {
    word.store(generation, Release);
}

/// No reader takes later writes for valid.
pub fn close(word: &AtomicU64) {
    word.store(CLOSED, Relaxed);
    fence(Release);
}

/// Whether bytes that are read from now on may be valid. A closed window has none.
pub fn is_open(word: &AtomicU64, generation: u64) -> bool {
    generation != CLOSED && word.load(Acquire) == generation
}

/// Whether bytes that were read since [`is_open`] are valid.
pub fn is_still_open(word: &AtomicU64, generation: u64) -> bool {
    fence(Acquire);
    word.load(Relaxed) == generation
}
