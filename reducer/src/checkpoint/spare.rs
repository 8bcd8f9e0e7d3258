//! Buffers of copies that were written, for the next ones: the kernel takes longer to give fresh memory than
//! it takes to fill memory that is there.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Buffers by what they are for. A checkpoint has the same parts as the one before.
#[derive(Default)]
pub(super) struct Spare(Mutex<Buffers>);

#[derive(Default)]
struct Buffers {
    arrays: Vec<Vec<u8>>,
    hooks: Vec<Vec<u8>>,
}

impl Spare {
    /// An empty buffer for an array.
    pub fn for_array(&self, index: usize) -> Vec<u8> {
        take(&mut self.buffers().arrays, index)
    }

    /// An empty buffer for what a hook saves.
    pub fn for_hook(&self, index: usize) -> Vec<u8> {
        take(&mut self.buffers().hooks, index)
    }

    /// The copies of arrays are needed no more.
    pub fn return_arrays(&self, arrays: Vec<Vec<u8>>) {
        self.buffers().arrays = arrays;
    }

    /// What hooks have saved is needed no more.
    pub fn return_hooks(&self, hooks: Vec<Vec<u8>>) {
        self.buffers().hooks = hooks;
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(buffers: &mut [Vec<u8>], index: usize) -> Vec<u8> {
    let mut buffer = buffers.get_mut(index).map(std::mem::take).unwrap_or_default();
    buffer.clear();
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_made_where_the_one_before_was() {
        let spare = Spare::default();
        let mut copy = spare.for_array(1);
        assert_eq!(copy.capacity(), 0, "there is none yet");
        copy.extend([1; 4096]);
        let place = copy.as_ptr();
        spare.return_arrays(vec![vec![], copy]);
        assert_eq!(spare.for_hook(1).capacity(), 0, "it is an array's");
        let again = spare.for_array(1);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        assert_eq!(spare.for_array(1).capacity(), 0, "it is in use");
    }
}
