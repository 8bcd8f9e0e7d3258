//! Arrays in memory that the other processes of the host can map.

use std::{
    any::Any,
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

use bytemuck::Pod;
use everfold_runtime::memory::{buffer::Memory, region::Block};

/// An array in shared memory: made by [`Session::array`](crate::Session::array), or received.
///
/// A reduction of it copies nothing: processes of the same host fold straight from here. A `Vec` works as
/// well, and costs one copy: the call copies it into shared memory. An `Array` derefs to a slice; its length is
/// fixed.
pub struct Array<T> {
    memory: Box<dyn Memory>,
    element: PhantomData<T>,
}

impl<T: Pod + Send + Sync> Array<T> {
    /// Takes `memory`, whose length is a multiple of the element's size.
    pub(crate) fn new(memory: Box<dyn Memory>) -> Self {
        Self { memory, element: PhantomData }
    }

    /// Takes memory that others have filled, or copies it if its place does not suit the type. Of a length that
    /// does not suit, there is none.
    pub(crate) fn filled(memory: Box<dyn Memory>) -> Option<Self> {
        match bytemuck::try_cast_slice::<u8, T>(memory.bytes()) {
            Ok(_) => Some(Self::new(memory)),
            Err(bytemuck::PodCastError::TargetAlignmentGreaterAndInputNotAligned) => {
                let len = memory.bytes().len() / size_of::<T>().max(1);
                let mut elements = vec![T::zeroed(); len];
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
                (bytes.len() == memory.bytes().len()).then(|| bytes.copy_from_slice(memory.bytes()))?;
                Some(Self::new(Box::new(elements)))
            }
            Err(_) => None,
        }
    }

    /// In shared memory if there is some, else in private memory.
    pub(crate) fn allocate(block: Option<Block>, len: usize) -> Self {
        match block {
            Some(block) => Self::new(Box::new(block)),
            None => Self::new(Box::new(vec![T::zeroed(); len])),
        }
    }

    pub(crate) fn into_memory(self) -> Box<dyn Memory> {
        self.memory
    }
}

impl<T: Pod> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(self.memory.bytes())
    }
}

impl<T: Pod> DerefMut for Array<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.memory.bytes_mut())
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The typed owner behind type-erased memory.
pub(crate) fn downcast<T: Any>(memory: Box<dyn Memory>) -> Option<T> {
    memory.into_any().downcast().ok().map(|owner| *owner)
}
