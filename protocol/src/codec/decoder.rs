//! Reads bincode's standard format: integers of variable length, the smallest first; no names and no types.
//!
//! bincode's own decoder allocates what a length announces before it looks whether that many bytes follow.
//! This one believes no length further than the input reaches, so that the memory a value takes is bounded by
//! its encoding.

use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};

/// Why bytes are not an encoding of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ends before the value does.
    #[error("the input ends {missing} bytes too early")]
    End {
        /// Bytes that are missing at least.
        missing: usize,
    },
    /// A length announces more than the rest of the input can hold.
    #[error("a length of {announced} is announced, but only {left} bytes are left")]
    Length {
        /// Elements or bytes that were announced.
        announced: u64,
        /// Bytes that are left.
        left: usize,
    },
    /// A collection has more elements without any bytes than a value may have.
    #[error("more than {EMPTY_ELEMENTS_MAX} elements take no bytes")]
    EmptyElements,
    /// An integer is too large for its type, or begins with a byte that begins no integer.
    #[error("an integer does not fit into its type {0}")]
    Integer(&'static str),
    /// A byte that stands for false or true, absent or present, is neither.
    #[error("the byte {0} stands for neither no nor yes")]
    Flag(u8),
    /// Values are nested deeper than any that is encoded.
    #[error("it is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// Text is not UTF-8.
    #[error("text is not UTF-8")]
    Text,
    /// The type asks the input for what it is, which this format does not say.
    #[error("the encoding does not describe itself: {0} cannot be decoded")]
    NotDescribed(&'static str),
    /// The type's own `Deserialize` refuses the value.
    #[error("{0}")]
    Refused(String),
}

impl Error for DecodeError {
    fn custom<T: core::fmt::Display>(message: T) -> Self {
        Self::Refused(message.to_string())
    }
}

/// How deeply values may be nested. Every struct, enum, option, sequence and map is one.
///
/// Encoding, decoding, combining and dropping recurse. A level takes up to 4 KiB of stack in programs without
/// optimisation, and threads of the application have 2 MiB.
pub const DEPTH_MAX: u32 = 256;

/// Elements of collections in one value that may take no bytes, such as `()`: nothing else bounds their
/// number.
pub const EMPTY_ELEMENTS_MAX: usize = 1 << 20;

/// What is left of an encoding.
#[derive(Debug)]
pub struct Decoder<'de> {
    rest: &'de [u8],
    empty_elements: usize,
    depth: u32,
}

impl<'de> Decoder<'de> {
    /// Begins at the first of `bytes`.
    pub fn new(bytes: &'de [u8]) -> Self {
        Self { rest: bytes, empty_elements: 0, depth: 0 }
    }

    /// Number of bytes that are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Reads what lies one level deeper.
    #[inline]
    fn level<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        if self.depth == DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'de [u8], DecodeError> {
        let missing = || DecodeError::End { missing: len - self.rest.len() };
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(missing)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let missing = || DecodeError::End { missing: N - self.rest.len() };
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(missing)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            byte => Err(DecodeError::Flag(byte)),
        }
    }

    /// An integer of up to 64 bits.
    #[inline]
    fn short<T: TryFrom<u64>>(&mut self, name: &'static str) -> Result<T, DecodeError> {
        let value = self.digits(size_of::<T>(), name)?;
        T::try_from(value).map_err(|_| DecodeError::Integer(name))
    }

    /// The digits of an integer of up to `bytes_max` bytes.
    #[inline]
    fn digits(&mut self, bytes_max: usize, name: &'static str) -> Result<u64, DecodeError> {
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
    fn wide(&mut self, bytes_max: usize, name: &'static str) -> Result<u64, DecodeError> {
        match self.byte()? {
            251 if bytes_max >= 2 => self.array().map(|bytes| u16::from_le_bytes(bytes).into()),
            252 if bytes_max >= 4 => self.array().map(|bytes| u32::from_le_bytes(bytes).into()),
            253 if bytes_max >= 8 => self.array().map(u64::from_le_bytes),
            _ => Err(DecodeError::Integer(name)),
        }
    }

    fn long(&mut self) -> Result<u128, DecodeError> {
        match self.rest.first() {
            Some(254) => {
                self.byte()?;
                self.array().map(u128::from_le_bytes)
            }
            _ => self.short::<u64>("u128").map(u128::from),
        }
    }

    /// Zigzag: the sign is the lowest bit.
    fn signed<T: TryFrom<i64>>(&mut self, name: &'static str) -> Result<T, DecodeError> {
        let value = self.digits(size_of::<T>(), name)?;
        let value = (value >> 1) as i64 ^ -((value & 1) as i64);
        T::try_from(value).map_err(|_| DecodeError::Integer(name))
    }

    /// As many bytes as a length says.
    #[inline]
    fn bytes(&mut self) -> Result<&'de [u8], DecodeError> {
        let announced: u64 = self.short("usize")?;
        let left = self.rest.len();
        let len = usize::try_from(announced).ok().filter(|&len| len <= left);
        self.take(len.ok_or(DecodeError::Length { announced, left })?)
    }

    #[inline]
    fn text(&mut self) -> Result<&'de str, DecodeError> {
        core::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Text)
    }

    fn character(&mut self) -> Result<char, DecodeError> {
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

    /// The length of a collection, each of whose elements takes a byte or counts as empty.
    #[inline]
    fn collection(&mut self) -> Result<Elements<'_, 'de>, DecodeError> {
        let announced: u64 = self.short("usize")?;
        let left = self.rest.len();
        let most = left + (EMPTY_ELEMENTS_MAX - self.empty_elements);
        let len = usize::try_from(announced).ok().filter(|&len| len <= most);
        let left = len.ok_or(DecodeError::Length { announced, left })?;
        Ok(Elements { decoder: self, left, counts_empty: true })
    }

    /// Elements whose number the type says.
    #[inline]
    fn elements(&mut self, left: usize) -> Elements<'_, 'de> {
        Elements { decoder: self, left, counts_empty: false }
    }
}

/// The elements of a collection that are left.
struct Elements<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    left: usize,
    counts_empty: bool,
}

impl<'de> Elements<'_, 'de> {
    #[inline]
    fn next<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let before = self.decoder.rest.len();
        let value = seed.deserialize(&mut *self.decoder)?;
        if self.counts_empty && self.decoder.rest.len() == before {
            if self.decoder.empty_elements == EMPTY_ELEMENTS_MAX {
                return Err(DecodeError::EmptyElements);
            }
            self.decoder.empty_elements += 1;
        }
        Ok(Some(value))
    }

    /// No more than there are bytes: memory may be reserved for as many.
    #[inline]
    fn hint(&self) -> usize {
        self.left.min(self.decoder.rest.len())
    }
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        self.next(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.hint())
    }
}

impl<'de> MapAccess<'de> for Elements<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        self.next(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        seed.deserialize(&mut *self.decoder)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.hint())
    }
}

/// Methods that read one value and show it to the visitor.
macro_rules! values {
    ($($method:ident => $visit:ident($read:expr);)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            #[allow(clippy::redundant_closure_call)]
            let value = ($read)(&mut *self)?;
            visitor.$visit(value)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = DecodeError;

    values! {
        deserialize_bool => visit_bool(Decoder::flag);
        deserialize_u8 => visit_u8(Decoder::byte);
        deserialize_u16 => visit_u16(|d: &mut Decoder<'de>| d.short("u16"));
        deserialize_u32 => visit_u32(|d: &mut Decoder<'de>| d.short("u32"));
        deserialize_u64 => visit_u64(|d: &mut Decoder<'de>| d.short("u64"));
        deserialize_u128 => visit_u128(Decoder::long);
        deserialize_i8 => visit_i8(|d: &mut Decoder<'de>| d.byte().map(u8::cast_signed));
        deserialize_i16 => visit_i16(|d: &mut Decoder<'de>| d.signed("i16"));
        deserialize_i32 => visit_i32(|d: &mut Decoder<'de>| d.signed("i32"));
        deserialize_i64 => visit_i64(|d: &mut Decoder<'de>| d.signed("i64"));
        deserialize_i128 => visit_i128(|d: &mut Decoder<'de>| {
            d.long().map(|value| (value >> 1) as i128 ^ -((value & 1) as i128))
        });
        deserialize_f32 => visit_f32(|d: &mut Decoder<'de>| d.array().map(f32::from_le_bytes));
        deserialize_f64 => visit_f64(|d: &mut Decoder<'de>| d.array().map(f64::from_le_bytes));
        deserialize_char => visit_char(Decoder::character);
        deserialize_str => visit_borrowed_str(Decoder::text);
        deserialize_string => visit_string(|d: &mut Decoder<'de>| d.text().map(str::to_owned));
        deserialize_bytes => visit_borrowed_bytes(Decoder::bytes);
        deserialize_byte_buf => visit_byte_buf(|d: &mut Decoder<'de>| d.bytes().map(<[u8]>::to_vec));
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.flag()? {
            true => self.level(|decoder| visitor.visit_some(decoder)),
            false => visitor.visit_none(),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.level(|decoder| visitor.visit_newtype_struct(decoder))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.level(|decoder| visitor.visit_seq(decoder.collection()?))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.level(|decoder| visitor.visit_map(decoder.collection()?))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.level(|decoder| visitor.visit_seq(decoder.elements(len)))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.level(|decoder| visitor.visit_seq(decoder.elements(len)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.level(|decoder| visitor.visit_seq(decoder.elements(fields.len())))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.level(|decoder| visitor.visit_enum(decoder))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DecodeError> {
        Err(DecodeError::NotDescribed("a value of any type"))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DecodeError> {
        Err(DecodeError::NotDescribed("a name"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DecodeError> {
        Err(DecodeError::NotDescribed("an ignored value"))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

impl<'de> EnumAccess<'de> for &mut Decoder<'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), DecodeError> {
        let index: u32 = self.short("u32")?;
        Ok((seed.deserialize(index.into_deserializer())?, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Decoder<'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.elements(len))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.elements(fields.len()))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Chain(#[allow(dead_code)] Option<Box<Chain>>);

    #[test]
    fn depth_is_bounded_before_the_stack_is() {
        let nested = |links: u32| {
            let bytes: Vec<u8> = (0..links).map(|_| 1).chain([0]).collect();
            Chain::deserialize(&mut Decoder::new(&bytes)).map(drop)
        };
        // Each link is a struct and an option.
        assert_eq!(nested(DEPTH_MAX / 2 - 1), Ok(()));
        assert_eq!(nested(DEPTH_MAX / 2), Err(DecodeError::TooDeep));
        assert_eq!(nested(1 << 20), Err(DecodeError::TooDeep));
    }
}
