//! Types that arrays may have as elements.

use bytemuck::{Pod, Zeroable};
use everfold_protocol::spec::ElementType;

/// A type that arrays may have as elements and that predefined operations know.
pub trait Element: Pod + Send + Sync {
    /// Its name on the wire.
    fn element_type() -> ElementType;
}

/// A value and where it was found: the element of min-loc and max-loc.
///
/// Of equal values the smaller location wins, as in MPI, which makes the operation commutative. `-0.0` is
/// smaller than `0.0`, and a NaN goes before all numbers, on either side.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(C)]
pub struct Located<T: Value> {
    /// The value.
    pub value: T,
    /// Where it was found: a rank, an index, or anything else that the application counts. As wide as the
    /// value.
    pub location: T::Location,
}

/// A value that min-loc and max-loc compare.
pub trait Value: Pod + PartialOrd + Send + Sync {
    /// Unsigned integer of the same size and alignment.
    type Location: Pod + Ord + Send + Sync;
}

macro_rules! elements {
    ($($type:ty => $name:ident),*) => {$(
        impl Element for $type {
            fn element_type() -> ElementType {
                ElementType::$name
            }
        }
    )*};
}

elements!(f32 => F32, f64 => F64, i32 => I32, i64 => I64, u32 => U32, u64 => U64, u8 => U8);

macro_rules! located {
    ($($type:ty, $location:ty);*) => {$(
        impl Value for $type {
            type Location = $location;
        }

        // SAFETY: all zeros is a valid value of both fields.
        unsafe impl Zeroable for Located<$type> {}
        // SAFETY: `repr(C)` with two fields of equal size and alignment has no padding, and both are plain
        // old data.
        unsafe impl Pod for Located<$type> {}

        impl Element for Located<$type> {
            fn element_type() -> ElementType {
                ElementType::Located(Box::new(<$type>::element_type()))
            }
        }
    )*};
}

located!(f32, u32; f64, u64; i32, u32; i64, u64; u32, u32; u64, u64);
