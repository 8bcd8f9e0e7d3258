//! Memory that a read is copied into, used again and again: fresh pages cost more than the copy.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
};

/// Buffers kept for the next read.
const KEPT_MAX: usize = 64;

/// Most bytes of all buffers kept for reads: far more than the segments that are read at a time, and little beside one
/// long object.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Buffers for reads.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Mutex<Kept>>);

impl Default for Pool {
    fn default() -> Self {
        Self::new(KEPT_BYTES_MAX)
    }
}

#[derive(Debug)]
struct Kept {
    buffers: Vec<Vec<u64>>,
    bytes: usize,
    bytes_max: usize,
}

impl Kept {
    fn take(&mut self) -> Vec<u64> {
        let words = self.buffers.pop().unwrap_or_default();
        self.bytes -= bytes_of(&words);
        words
    }

    /// Keeps a buffer, unless that would be too many, or too much.
    fn keep(&mut self, words: Vec<u64>) {
        let bytes = self.bytes + bytes_of(&words);
        if self.buffers.len() < KEPT_MAX && bytes <= self.bytes_max {
            self.buffers.push(words);
            self.bytes = bytes;
        }
    }
}

fn bytes_of(words: &Vec<u64>) -> usize {
    words.capacity() * size_of::<u64>()
}

/// Bytes on loan from a [`Pool`], aligned for every element type.
#[derive(Debug)]
pub struct Staging {
    words: Vec<u64>,
    len: usize,
    pool: Pool,
}

impl Pool {
    /// Buffers of which up to so many bytes are kept.
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Kept { buffers: Vec::new(), bytes: 0, bytes_max })))
    }

    /// A buffer of up to `len` bytes with arbitrary content: as many as a kept one has, or `least`.
    pub fn take_kept(&self, len: usize, least: usize) -> Staging {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut staging = Staging { len: 0, words, pool: self.clone() };
        staging.grow(len.min(least.max(staging.words.len() * size_of::<u64>())));
        staging
    }

    /// A buffer of `len` bytes with arbitrary content.
    pub fn take(&self, len: usize) -> Staging {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut staging = Staging { words, len: 0, pool: self.clone() };
        staging.grow(len);
        staging
    }
}

impl Staging {
    /// Makes it this long. What it holds stays.
    pub fn grow(&mut self, len: usize) {
        if self.words.len() < len.div_ceil(8) {
            self.words.resize(len.div_ceil(8), 0);
        }
        self.len = len;
    }
}

impl AsRef<[u8]> for Staging {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for Staging {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

impl DerefMut for Staging {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let words = std::mem::take(&mut self.words);
        self.pool.0.lock().unwrap_or_else(PoisonError::into_inner).keep(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_the_next_reads_is_bounded() {
        let pool = Pool::default();
        let kept = || pool.0.lock().unwrap().bytes;
        drop(pool.take(1 << 20));
        assert_eq!(kept(), 1 << 20);
        drop(pool.take(KEPT_BYTES_MAX + 8));
        assert_eq!(kept(), 0, "the short buffer has grown, and is too long now");
        drop((0..100).map(|_| pool.take(1 << 20)).collect::<Vec<_>>());
        assert_eq!(kept(), KEPT_BYTES_MAX);
        drop((0..100).map(|_| pool.take(1 << 20)).collect::<Vec<_>>());
        assert_eq!(kept(), KEPT_BYTES_MAX, "taken and given back");
        drop((0..100).map(|_| pool.take(8)).collect::<Vec<_>>());
        assert!(pool.0.lock().unwrap().buffers.len() <= KEPT_MAX);
    }
}
