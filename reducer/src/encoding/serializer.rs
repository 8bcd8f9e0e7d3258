//! Forwards to the serializer of the format, and watches what it is asked for.

use everfold_protocol::codec;
use everfold_runtime::body::Unfit;
use serde::{
    Serialize, Serializer,
    ser::{
        Error, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};

use super::watch::{Place, Watch};

/// A value that is watched while it is serialized. If `SORTED`, its sequences and maps are in the order of
/// their bytes.
pub(super) struct Watched<'w, T: ?Sized, const SORTED: bool> {
    value: &'w T,
    place: Place<'w>,
}

impl<'w, T: ?Sized, const SORTED: bool> Watched<'w, T, SORTED> {
    pub(super) fn new(value: &'w T, watch: &'w Watch) -> Self {
        Self { value, place: Place::new(watch) }
    }
}

impl<T: Serialize + ?Sized, const SORTED: bool> Serialize for Watched<'_, T, SORTED> {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Watching::<S, SORTED> { inner: serializer, place: self.place })
    }
}

struct Watching<'w, S, const SORTED: bool> {
    inner: S,
    place: Place<'w>,
}

/// What has parts: a sequence, map, tuple, struct or variant.
struct Parts<'w, C, const SORTED: bool> {
    inner: C,
    place: Place<'w>,
    name: &'static str,
    announced: usize,
    written: usize,
}

/// A sequence or map.
struct Many<'w, C, const SORTED: bool> {
    parts: Parts<'w, C, SORTED>,
    /// Encoded elements or entries, if they are to be sorted.
    sorted: Vec<Vec<u8>>,
}

impl<'w, C, const SORTED: bool> Parts<'w, C, SORTED> {
    #[inline]
    fn new(inner: C, place: Place<'w>, name: &'static str, announced: usize) -> Self {
        Self { inner, place, name, announced, written: 0 }
    }

    #[inline]
    fn watched<'v, T: ?Sized>(&self, value: &'v T) -> Watched<'v, T, SORTED>
    where
        'w: 'v,
    {
        Watched { value, place: self.place }
    }

    #[inline]
    fn check<E: Error>(&self) -> Result<(), E> {
        let Self { name: within, announced, written, .. } = *self;
        match announced == written {
            true => Ok(()),
            false => Err(self.place.refuse(Unfit::WrongLength { within, announced, written })),
        }
    }

    fn skipped<E: Error>(&self, field: &'static str) -> E {
        self.place.refuse(Unfit::SkippedField { within: self.name, field })
    }

    #[cold]
    fn encoded<E: Error, T: Serialize + ?Sized>(&self, value: &T) -> Result<Vec<u8>, E> {
        codec::encode(&self.watched(value)).map_err(E::custom)
    }
}

/// Bytes as they are.
struct Raw(Vec<u8>);

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = serializer.serialize_tuple(self.0.len())?;
        self.0.iter().try_for_each(|byte| bytes.serialize_element(byte))?;
        bytes.end()
    }
}

macro_rules! forward {
    ($($method:ident($type:ty)),*) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            self.inner.$method(value)
        }
    )*};
}

impl<'w, S: Serializer, const SORTED: bool> Serializer for Watching<'w, S, SORTED> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Many<'w, S::SerializeSeq, SORTED>;
    type SerializeTuple = Parts<'w, S::SerializeTuple, SORTED>;
    type SerializeTupleStruct = Parts<'w, S::SerializeTupleStruct, SORTED>;
    type SerializeTupleVariant = Parts<'w, S::SerializeTupleVariant, SORTED>;
    type SerializeMap = Many<'w, S::SerializeMap, SORTED>;
    type SerializeStruct = Parts<'w, S::SerializeStruct, SORTED>;
    type SerializeStructVariant = Parts<'w, S::SerializeStructVariant, SORTED>;

    forward! {
        serialize_bool(bool), serialize_char(char), serialize_str(&str), serialize_bytes(&[u8]),
        serialize_i8(i8), serialize_i16(i16), serialize_i32(i32), serialize_i64(i64), serialize_i128(i128),
        serialize_u8(u8), serialize_u16(u16), serialize_u32(u32), serialize_u64(u64), serialize_u128(u128),
        serialize_f32(f32), serialize_f64(f64), serialize_unit_struct(&'static str)
    }

    #[inline]
    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let place = self.place.deeper()?;
        self.inner.serialize_some(&Watched::<T, SORTED> { value, place })
    }

    #[inline]
    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        // The decoder does not know before that there is nothing in it.
        self.place.deeper()?;
        self.place.see(variant, index as usize);
        self.inner.serialize_unit_variant(name, index, variant)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.place.see(name, 1);
        let place = self.place.deeper()?;
        self.inner.serialize_newtype_struct(name, &Watched::<T, SORTED> { value, place })
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.place.see(variant, index as usize);
        let place = self.place.deeper()?;
        self.inner.serialize_newtype_variant(name, index, variant, &Watched::<T, SORTED> { value, place })
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        let unknown = || self.place.refuse(Unfit::UnknownLength);
        let (announced, place) = (len.ok_or_else(unknown)?, self.place.deeper()?);
        let parts = Parts::new(self.inner.serialize_seq(len)?, place, "a sequence", announced);
        Ok(Many { parts, sorted: Vec::new() })
    }

    #[inline]
    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        let place = self.place.deeper()?;
        Ok(Parts::new(self.inner.serialize_tuple(len)?, place, "a tuple", len))
    }

    #[inline]
    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.place.see(name, len);
        let place = self.place.deeper()?;
        Ok(Parts::new(self.inner.serialize_tuple_struct(name, len)?, place, name, len))
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.place.see(variant, len + index as usize);
        let place = self.place.deeper()?;
        Ok(Parts::new(self.inner.serialize_tuple_variant(name, index, variant, len)?, place, variant, len))
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        let unknown = || self.place.refuse(Unfit::UnknownLength);
        let (announced, place) = (len.ok_or_else(unknown)?, self.place.deeper()?);
        let parts = Parts::new(self.inner.serialize_map(len)?, place, "a map", announced);
        Ok(Many { parts, sorted: Vec::new() })
    }

    #[inline]
    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeStruct, S::Error> {
        self.place.see(name, len);
        let place = self.place.deeper()?;
        Ok(Parts::new(self.inner.serialize_struct(name, len)?, place, name, len))
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.place.see(variant, len + index as usize);
        let place = self.place.deeper()?;
        Ok(Parts::new(self.inner.serialize_struct_variant(name, index, variant, len)?, place, variant, len))
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<C: SerializeSeq, const SORTED: bool> SerializeSeq for Many<'_, C, SORTED> {
    type Ok = C::Ok;
    type Error = C::Error;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.parts.written += 1;
        if SORTED {
            let encoded = self.parts.encoded(value)?;
            self.sorted.push(encoded);
            return Ok(());
        }
        let value = self.parts.watched(value);
        self.parts.inner.serialize_element(&value)
    }

    #[inline]
    fn end(mut self) -> Result<C::Ok, C::Error> {
        self.parts.check()?;
        self.sorted.sort();
        self.sorted.into_iter().try_for_each(|element| self.parts.inner.serialize_element(&Raw(element)))?;
        self.parts.inner.end()
    }
}

impl<C: SerializeMap, const SORTED: bool> SerializeMap for Many<'_, C, SORTED> {
    type Ok = C::Ok;
    type Error = C::Error;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.parts.written += 1;
        if SORTED {
            let encoded = self.parts.encoded(key)?;
            self.sorted.push(encoded);
            return Ok(());
        }
        let key = self.parts.watched(key);
        self.parts.inner.serialize_key(&key)
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        if SORTED {
            let encoded = self.parts.encoded(value)?;
            self.sorted.last_mut().into_iter().for_each(|entry| entry.extend_from_slice(&encoded));
            return Ok(());
        }
        let value = self.parts.watched(value);
        self.parts.inner.serialize_value(&value)
    }

    #[inline]
    fn end(mut self) -> Result<C::Ok, C::Error> {
        self.parts.check()?;
        self.sorted.sort();
        self.sorted.into_iter().try_for_each(|entry| self.parts.inner.serialize_entry(&Raw(entry), &()))?;
        self.parts.inner.end()
    }
}

/// What has a fixed number of parts without names.
macro_rules! parts {
    ($($trait:ident::$method:ident),*) => {$(
        impl<C: $trait, const SORTED: bool> $trait for Parts<'_, C, SORTED> {
            type Ok = C::Ok;
            type Error = C::Error;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                self.written += 1;
                let value = self.watched(value);
                self.inner.$method(&value)
            }

            #[inline]
            fn end(self) -> Result<C::Ok, C::Error> {
                self.check()?;
                self.inner.end()
            }
        }
    )*};
}

parts!(
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

/// What has fields with names.
macro_rules! fields {
    ($($trait:ident),*) => {$(
        impl<C: $trait, const SORTED: bool> $trait for Parts<'_, C, SORTED> {
            type Ok = C::Ok;
            type Error = C::Error;

            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), C::Error> {
                self.written += 1;
                let value = self.watched(value);
                self.inner.serialize_field(key, &value)
            }

            #[cold]
            fn skip_field(&mut self, key: &'static str) -> Result<(), C::Error> {
                Err(self.skipped(key))
            }

            #[inline]
            fn end(self) -> Result<C::Ok, C::Error> {
                self.check()?;
                self.inner.end()
            }
        }
    )*};
}

fields!(SerializeStruct, SerializeStructVariant);
