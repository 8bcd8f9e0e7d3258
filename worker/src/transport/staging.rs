//! Memory that a read is copied into, used again and again: fresh pages cost more than the copy.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
};

/// Buffers kept for the next read.
const KEPT_MAX: usize = 64;

/// Buffers for reads.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<u64>>>>);

/// Bytes on loan from a [`Pool`], aligned for every element type.
#[derive(Debug)]
pub struct Staging {
    words: Vec<u64>,
    len: usize,
    pool: Pool,
}

impl Pool {
    /// A buffer of `len` bytes with arbitrary content.
    pub fn take(&self, len: usize) -> Staging {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        words.resize(len.div_ceil(8), 0);
        Staging { words, len, pool: self.clone() }
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
        let mut kept = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(std::mem::take(&mut self.words));
        }
    }
}
