//! Memory of a device.

use std::{any::Any, marker::PhantomData};

use bytemuck::Pod;

/// Values that buffers hold.
pub trait Plain: Pod + Send + Sync {}
impl<T: Pod + Send + Sync> Plain for T {}

/// Which buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub(super) usize);

/// A buffer of a device.
#[derive(Debug)]
pub struct Buffer<T>(Id, PhantomData<fn() -> T>);

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Buffer<T> {}

impl<T> Buffer<T> {
    pub(super) fn of(id: Id) -> Self {
        Self(id, PhantomData)
    }

    /// Which one it is, whatever it holds.
    pub fn id(self) -> Id {
        self.0
    }
}

/// What kernels see.
#[derive(Default)]
pub struct Memory(Vec<Box<dyn Bytes>>);

/// Values of a buffer, whatever they are.
pub(super) trait Bytes: Any + Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl<T: Plain> Bytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }
}

impl Memory {
    pub(super) fn add(&mut self, values: Box<dyn Bytes>) -> Id {
        self.0.push(values);
        Id(self.0.len() - 1)
    }

    pub(super) fn buffer(&mut self, id: Id) -> Option<&mut dyn Bytes> {
        Some(self.0.get_mut(id.0)?.as_mut())
    }

    /// A buffer to read.
    pub fn of<T: Plain>(&self, buffer: Buffer<T>) -> &[T] {
        let any: &dyn Any = self.0[buffer.0.0].as_ref();
        any.downcast_ref::<Vec<T>>().expect("a buffer keeps its type")
    }

    /// A buffer to write.
    pub fn of_mut<T: Plain>(&mut self, buffer: Buffer<T>) -> &mut [T] {
        self.vec(buffer)
    }

    /// Lets a kernel write some buffers while it reads others.
    pub fn write<T: Plain, const N: usize>(
        &mut self,
        buffers: [Buffer<T>; N],
        act: impl FnOnce(&Self, &mut [Vec<T>; N]),
    ) {
        let mut values = buffers.map(|buffer| std::mem::take(self.vec(buffer)));
        act(self, &mut values);
        buffers.into_iter().zip(values).for_each(|(buffer, values)| *self.vec(buffer) = values);
    }

    /// Exchanges what is in two buffers, without moving it.
    pub(super) fn swap(&mut self, a: Id, b: Id) {
        self.0.swap(a.0, b.0);
    }

    fn vec<T: Plain>(&mut self, buffer: Buffer<T>) -> &mut Vec<T> {
        let any: &mut dyn Any = self.0[buffer.0.0].as_mut();
        any.downcast_mut::<Vec<T>>().expect("a buffer keeps its type")
    }
}
