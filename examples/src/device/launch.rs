//! What a device is told to run.

use super::{Buffer, Id};

/// A launch of a kernel: its name, a thread of the device for each item, and arguments.
///
/// A graphics card runs the kernel of that name in the program's source, which gets the number of items and
/// then the arguments. Threads run the closure that is launched with it, which has to compute the same.
#[derive(Clone, Debug)]
pub struct Launch {
    pub(super) name: &'static str,
    pub(super) items: usize,
    pub(super) per_block: usize,
    pub(super) moved: usize,
    pub(super) arguments: Vec<Argument>,
}

/// What a kernel gets.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// A pointer to the first value of a buffer.
    Buffer(Id),
    /// An `unsigned long long`.
    Count(u64),
    /// A `double`.
    Real(f64),
}

/// Threads of a block, where blocks mean nothing to the kernel.
const PER_BLOCK: usize = 256;

impl Launch {
    /// The kernel of that name, with a thread of the device for each of `items`.
    pub fn of(name: &'static str, items: usize) -> Self {
        Self { name, items, per_block: PER_BLOCK, moved: 0, arguments: vec![] }
    }

    /// How many bytes of the device's memory it moves: a simulated device takes its time by them.
    pub fn moving(mut self, bytes: usize) -> Self {
        self.moved = bytes;
        self
    }

    /// Puts that many `threads` into each block: those of a block may wait for one another.
    pub fn in_blocks_of(mut self, threads: usize) -> Self {
        self.per_block = threads;
        self
    }

    /// Adds an argument.
    pub fn with(self, argument: impl Into<Argument>) -> Self {
        self.with_all([argument])
    }

    /// Adds arguments in that order.
    pub fn with_all(mut self, arguments: impl IntoIterator<Item: Into<Argument>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }
}

impl<T> From<Buffer<T>> for Argument {
    fn from(buffer: Buffer<T>) -> Self {
        Self::Buffer(buffer.id())
    }
}

impl From<usize> for Argument {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<bool> for Argument {
    fn from(is: bool) -> Self {
        Self::Count(is.into())
    }
}

impl From<f64> for Argument {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl From<f32> for Argument {
    fn from(real: f32) -> Self {
        Self::Real(real.into())
    }
}
