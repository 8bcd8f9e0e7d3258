//! Values of any type, from the input to serde's visitors.

use alloc::borrow::ToOwned;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::{
    error::{DEPTH_MAX, DecodeError, EMPTY_ELEMENTS_MAX},
    input::Input,
};

/// What is left of an encoding.
#[derive(Debug)]
pub struct Decoder<'de> {
    input: Input<'de>,
    empty_elements: usize,
    depth: u32,
}

impl<'de> Decoder<'de> {
    /// Begins at the first of `bytes`.
    pub fn new(bytes: &'de [u8]) -> Self {
        Self { input: Input::new(bytes), empty_elements: 0, depth: 0 }
    }

    /// Number of bytes that are left.
    pub fn left(&self) -> usize {
        self.input.left()
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

    /// The length of a collection, each of whose elements takes a byte or counts as empty.
    #[inline]
    fn collection(&mut self) -> Result<Elements<'_, 'de>, DecodeError> {
        let announced: u64 = self.input.short("usize")?;
        let left = self.input.left();
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
        let before = self.decoder.left();
        let value = seed.deserialize(&mut *self.decoder)?;
        if self.counts_empty && self.decoder.left() == before {
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
        self.left.min(self.decoder.left())
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
            let value = ($read)(&mut self.input)?;
            visitor.$visit(value)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = DecodeError;

    values! {
        deserialize_bool => visit_bool(Input::flag);
        deserialize_u8 => visit_u8(Input::byte);
        deserialize_u16 => visit_u16(|d: &mut Input<'de>| d.short("u16"));
        deserialize_u32 => visit_u32(|d: &mut Input<'de>| d.short("u32"));
        deserialize_u64 => visit_u64(|d: &mut Input<'de>| d.short("u64"));
        deserialize_u128 => visit_u128(Input::long);
        deserialize_i8 => visit_i8(|d: &mut Input<'de>| d.byte().map(u8::cast_signed));
        deserialize_i16 => visit_i16(|d: &mut Input<'de>| d.signed("i16"));
        deserialize_i32 => visit_i32(|d: &mut Input<'de>| d.signed("i32"));
        deserialize_i64 => visit_i64(|d: &mut Input<'de>| d.signed("i64"));
        deserialize_i128 => visit_i128(|d: &mut Input<'de>| {
            d.long().map(|value| (value >> 1) as i128 ^ -((value & 1) as i128))
        });
        deserialize_f32 => visit_f32(|d: &mut Input<'de>| d.array().map(f32::from_le_bytes));
        deserialize_f64 => visit_f64(|d: &mut Input<'de>| d.array().map(f64::from_le_bytes));
        deserialize_char => visit_char(Input::character);
        deserialize_str => visit_borrowed_str(Input::text);
        deserialize_string => visit_string(|d: &mut Input<'de>| d.text().map(str::to_owned));
        deserialize_bytes => visit_borrowed_bytes(Input::bytes);
        deserialize_byte_buf => visit_byte_buf(|d: &mut Input<'de>| d.bytes().map(<[u8]>::to_vec));
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.input.flag()? {
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
        let index: u32 = self.input.short("u32")?;
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
