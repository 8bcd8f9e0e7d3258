//! Any bytes as numbers and pieces. What is missing at the end is zero.

use std::iter;

/// Bytes that are left.
#[derive(Clone, Copy)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.take(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number that is mostly small, and sometimes as large as there are.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=199 => small.into(),
            200..=219 => self.short().into(),
            220..=239 => self.long(),
            240..=247 => u64::MAX - u64::from(self.byte()),
            _ => 1 << (self.byte() % 64),
        }
    }

    /// The next `len` bytes, or those that are left if they are fewer.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A piece that begins with its length in two bytes.
    pub fn piece(&mut self) -> &'a [u8] {
        let len = self.short().into();
        self.take(len)
    }

    pub fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    /// What `each` makes of the rest, at most `most` times.
    pub fn many<T>(&mut self, most: usize, mut each: impl FnMut(&mut Self) -> T) -> Vec<T> {
        iter::from_fn(|| (!self.is_empty()).then(|| each(self))).take(most).collect()
    }
}

/// A piece as [`Input::piece`] reads it.
pub fn piece(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).expect("samples are short");
    [&len.to_le_bytes(), bytes].concat()
}
