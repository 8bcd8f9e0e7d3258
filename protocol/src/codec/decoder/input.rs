//! What is left of the bytes, and how numbers, text and lengths are read from them.

use super::error::DecodeError;

/// Bytes that have not been read yet.
#[derive(Debug)]
pub struct Input<'de> {
    rest: &'de [u8],
}

impl<'de> Input<'de> {
    pub fn new(rest: &'de [u8]) -> Self {
        Self { rest }
    }

    /// Number of bytes that are left.
    #[inline]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'de [u8], DecodeError> {
        let missing = || DecodeError::End { missing: len - self.rest.len() };
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(missing)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let missing = || DecodeError::End { missing: N - self.rest.len() };
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(missing)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    pub fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            byte => Err(DecodeError::Flag(byte)),
        }
    }

    /// An integer of up to 64 bits.
    #[inline]
    pub fn short<T: TryFrom<u64>>(&mut self, name: &'static str) -> Result<T, DecodeError> {
        let value = self.digits(size_of::<T>(), name)?;
        T::try_from(value).map_err(|_| DecodeError::Integer(name))
    }

    /// The digits of an integer of up to `bytes_max` bytes.
    #[inline]
    pub fn digits(&mut self, bytes_max: usize, name: &'static str) -> Result<u64, DecodeError> {
        match *self.rest {
            [byte @ 0..=250, ref rest @ ..] => {
                self.rest = rest;
                Ok(byte.into())
            }
            _ => self.wide(bytes_max, name),
        }
    }

    /// An integer that takes more than one byte: the first one says how many follow. Integers of a type are
    /// not written as longer ones, though these would fit.
    #[inline(never)]
    pub fn wide(&mut self, bytes_max: usize, name: &'static str) -> Result<u64, DecodeError> {
        match self.byte()? {
            251 if bytes_max >= 2 => self.array().map(|bytes| u16::from_le_bytes(bytes).into()),
            252 if bytes_max >= 4 => self.array().map(|bytes| u32::from_le_bytes(bytes).into()),
            253 if bytes_max >= 8 => self.array().map(u64::from_le_bytes),
            _ => Err(DecodeError::Integer(name)),
        }
    }

    pub fn long(&mut self) -> Result<u128, DecodeError> {
        match self.rest.first() {
            Some(254) => {
                self.byte()?;
                self.array().map(u128::from_le_bytes)
            }
            _ => self.short::<u64>("u128").map(u128::from),
        }
    }

    /// Zigzag: the sign is the lowest bit.
    pub fn signed<T: TryFrom<i64>>(&mut self, name: &'static str) -> Result<T, DecodeError> {
        let value = self.digits(size_of::<T>(), name)?;
        let value = (value >> 1) as i64 ^ -((value & 1) as i64);
        T::try_from(value).map_err(|_| DecodeError::Integer(name))
    }

    /// As many bytes as a length says.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'de [u8], DecodeError> {
        let announced: u64 = self.short("usize")?;
        let left = self.rest.len();
        let len = usize::try_from(announced).ok().filter(|&len| len <= left);
        self.take(len.ok_or(DecodeError::Length { announced, left })?)
    }

    #[inline]
    pub fn text(&mut self) -> Result<&'de str, DecodeError> {
        core::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Text)
    }

    pub fn character(&mut self) -> Result<char, DecodeError> {
        let len = match self.rest.first() {
            None => return Err(DecodeError::End { missing: 1 }),
            Some(0x00..0x80) => 1,
            Some(0x80..0xe0) => 2,
            Some(0xe0..0xf0) => 3,
            Some(0xf0..) => 4,
        };
        let text = core::str::from_utf8(self.take(len)?).map_err(|_| DecodeError::Text)?;
        text.chars().next().ok_or(DecodeError::Text)
    }
}
